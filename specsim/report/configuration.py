"""An engine's configuration at a terminal: what it reads is the same, in lines that fit."""

from __future__ import annotations

import json
import shlex
from collections.abc import Iterator, Sequence
from typing import Any


def in_lines(text: str, width: int | None) -> str:
    """What an engine reads in lines of at most ``width`` characters; None: as it is.

    JSON has a line a key, and flags go on behind a backslash, as a shell reads them.  Nothing is
    broken inside a name, a word or a number, however long, and other lines stay as they are.
    """
    if width is None:
        return text
    return "\n".join(part for line in text.splitlines() for part in _parts(line, width))


def _parts(line: str, width: int) -> Iterator[str]:
    if len(line) <= width:
        yield line
    elif line.startswith("{"):
        yield from _json(json.loads(line), width)
    elif line.startswith("--"):
        *parts, last = _filled(_flags(line), width - len(" \\"), "", "  ")
        yield from (f"{part} \\" for part in parts)
        yield last
    else:
        yield line


def _json(content: dict[str, Any], width: int) -> Iterator[str]:
    """An object, whose lists may go on over lines."""
    yield "{"
    names = list(content)
    for name, value in content.items():
        many = value if isinstance(value, list) and value else None
        items = [json.dumps(each) for each in ([value] if many is None else many)]
        if many is not None:
            items = [f"{each}," for each in items[:-1]] + [f"{items[-1]}]"]
            items[0] = f"[{items[0]}"
        items[0] = f"{json.dumps(name)}: {items[0]}"
        items[-1] += "," if name != names[-1] else ""
        yield from _filled(items, width, "  ", "    ")
    yield "}"


def _flags(line: str) -> list[str]:
    """Each flag with its values."""
    groups: list[list[str]] = []
    for word in shlex.split(line):
        is_flag = word.startswith("-") and not word[1:2].isdigit()
        if is_flag or not groups:
            groups.append([])
        groups[-1].append(word)
    return [shlex.join(group) for group in groups]


def _filled(pieces: Sequence[str], width: int, indent: str, deeper: str) -> Iterator[str]:
    """Pieces beside each other while they have room; what follows a break is indented deeper."""
    line = indent + pieces[0]
    for piece in pieces[1:]:
        if len(line) + 1 + len(piece) <= width:
            line += f" {piece}"
        else:
            yield line
            line = deeper + piece
    yield line
