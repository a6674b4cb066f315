"""Strategies of hypothesis for command lines and damaged files, the same ones by number, and cases
that were found to fail.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from hashlib import sha256
from pathlib import Path
from random import Random

from hypothesis import strategies as st

from tests.support.fuzz_kinds import KINDS, FileKind
from tests.support.fuzz_session import Example, FuzzSession
from tests.support.fuzz_words import changed_line

CASES = Path(__file__).parents[1] / "fuzz" / "cases"
_FOUND = "found.jsonl"
_SHARES = [kind.share for kind in KINDS]


def command_lines() -> st.SearchStrategy[Example]:
    """Lines as users type them, changed."""
    return st.randoms(use_true_random=False).map(_line)


def damaged_files(session: FuzzSession, kind: FileKind) -> st.SearchStrategy[Example]:
    """A damaged file of a kind and who reads it."""
    return st.randoms(use_true_random=False).map(lambda random: _damaged(session, kind, random))


def example_number(session: FuzzSession, batch: int, index: int) -> Example:
    """By turns a command line and a damaged file of any kind; the same for the same numbers."""
    random = Random(f"{batch}/{index}")
    if index % 2 == 0:
        return _line(random)
    (kind,) = random.choices(KINDS, _SHARES)
    return _damaged(session, kind, random)


def _line(random: Random) -> Example:
    line = changed_line(random)
    # Without any word it prints the help of specsim itself.
    return Example(line=tuple(line) if {*line} - {"--"} else ("--version",))


def _damaged(session: FuzzSession, kind: FileKind, random: Random) -> Example:
    damage = session.original(kind.name).damaged(random)
    return Example(kind=kind.name, damage=damage, command=random.choice(kind.commands))


def keep_case(example: Example, problem: str) -> Path:
    """Keep what was found to fail among the cases, and return where it is."""
    if example.line:
        path = CASES / _FOUND
        with path.open("a", encoding="utf-8") as file:
            file.write(json.dumps({"was": problem, "line": list(example.line)}) + "\n")
        return path
    content = b"".join(example.damage[name] for name in sorted(example.damage))
    words = "-".join(filter(str.isalnum, example.kind.replace("'", "").lower().split()))
    folder = CASES / "files" / f"{words}-{sha256(content).hexdigest()[:8]}"
    for number, (_, damaged) in enumerate(sorted(example.damage.items())):
        (folder / str(number)).parent.mkdir(parents=True, exist_ok=True)
        (folder / str(number)).write_bytes(damaged)
    said = {
        "was": problem,
        "kind": example.kind,
        "command": example.command,
        "files": sorted(example.damage),
    }
    (folder / "case.json").write_text(json.dumps(said, indent=1) + "\n")
    return folder


def line_cases() -> Iterator[Example]:
    """Lines that once failed."""
    for row in (CASES / _FOUND).read_text(encoding="utf-8").splitlines():
        yield Example(line=tuple(json.loads(row)["line"]))


def file_cases() -> Iterator[tuple[str, Example]]:
    """Damaged files that once led to failure, each with a name."""
    for path in sorted((CASES / "files").glob("*/case.json")):
        said = json.loads(path.read_text())
        damage = {
            name: (path.parent / str(number)).read_bytes()
            for number, name in enumerate(said["files"])
        }
        yield path.parent.name, Example(kind=said["kind"], damage=damage, command=said["command"])
