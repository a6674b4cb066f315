"""Names beside the places of an axis, where there is little room for them."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

# Letters of a line that have room in any case, and at most; pixels of one, and between lines.
_ROOM, _MOST = 24, 36
_LETTER, _LINE = 6.3, 13


def labels_of(names: Sequence[Any]) -> dict[str, Any]:
    """The axis in the grammar of Vega-Lite, so that names stay apart.

    Names that have no room in one line are broken into two, and of lines that are still too long
    the middle is left out, at a length at which no two names look alike.
    """
    texts = [str(name) for name in names]
    if max(map(len, texts), default=0) <= _ROOM:
        return {"labelLimit": round(_ROOM * _LETTER)}
    lines = shortened([two_lines(text) for text in texts])
    longest = max(len(line) for label in lines for line in label)
    return {
        "labelExpr": f"({json.dumps(dict(zip(texts, lines, strict=True)))})[datum.label]",
        "labelLimit": round((longest + 1) * _LETTER),
        "labelLineHeight": _LINE,
        # Lines of a label hang from the first.
        "labelOffset": -_LINE / 2,
    }


def two_lines(text: str) -> tuple[str, str]:
    """Broken behind a comma, or else at a space, where the longer line is shortest."""
    for mark in (", ", " "):
        places = [at for at in range(len(text)) if text.startswith(mark, at)]
        if places:
            behind = len(mark) - 1
            at = min(places, key=lambda at: max(at + behind, len(text) - at - behind - 1))
            return text[: at + behind], text[at + behind + 1 :]
    middle = -(-len(text) // 2)
    return text[:middle], text[middle:]


def shortened(labels: Sequence[tuple[str, str]]) -> list[tuple[str, str]]:
    """With lines as short as keeps labels apart that differ."""
    for most in range(_ROOM, _MOST + 1):
        found = [(_cut(first, most), _cut(second, most)) for first, second in labels]
        if len(set(found)) == len(set(labels)):
            break
    return found


def _cut(line: str, most: int) -> str:
    """Without its middle, where it is longer."""
    behind = (most - 1) // 2
    before = most - 1 - behind
    return line if len(line) <= most else f"{line[:before]}…{line[len(line) - behind :]}"
