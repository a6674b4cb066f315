"""What is kept of every mutant that was tried, and why some cannot be told from the module."""

from __future__ import annotations

import json
import tomllib
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path

HERE = Path(__file__).parent
FOLDER = HERE / "results"


@dataclass(frozen=True)
class Result:
    """One mutant of one module.

    killed_by : the first test that failed, or ``import``, ``time``, ``crash``; nothing where it
        survived
    """

    operator: str
    occurrence: int
    line: int
    was: str
    now: str
    killed_by: str

    @property
    def key(self) -> tuple[str, int]:
        return self.operator, self.occurrence


@dataclass(frozen=True)
class Results:
    """Of one module.

    digest : stands for the source that was changed
    places : at how many it could be changed, those without meaning included
    tried : in the order of the sample
    """

    module: str
    digest: str
    places: int
    tried: tuple[Result, ...] = ()

    @property
    def killed(self) -> int:
        return sum(bool(each.killed_by) for each in self.tried)

    @property
    def survivors(self) -> tuple[Result, ...]:
        return tuple(each for each in self.tried if not each.killed_by)

    def write(self) -> None:
        """A line for the module, and one for each mutant."""
        header = {"module": self.module, "digest": self.digest, "places": self.places}
        lines = [header, *map(asdict, self.tried)]
        FOLDER.mkdir(exist_ok=True)
        text = "".join(json.dumps(line, ensure_ascii=False) + "\n" for line in lines)
        _path(self.module).write_text(text, encoding="utf-8")


def read(module: str) -> Results | None:
    """What is kept of a module; None where nothing is."""
    path = _path(module)
    if not path.is_file():
        return None
    header, *lines = map(json.loads, path.read_text(encoding="utf-8").splitlines())
    return Results(**header, tried=tuple(Result(**line) for line in lines))


def killers() -> dict[str, list[str]]:
    """The tests that must kill the mutants of each module, the narrowest first."""
    with (HERE / "modules.toml").open("rb") as stream:
        known: dict[str, list[str]] = tomllib.load(stream)["tests"]
    return known


def equivalents() -> dict[tuple[str, str, str], str]:
    """By module, line and changed line, why the change computes the same."""
    with (HERE / "equivalent.toml").open("rb") as stream:
        known = tomllib.load(stream)
    return {
        (module, each["was"], each["now"]): each["why"]
        for module, entries in known.items()
        for each in entries
    }


def explained(module: str, survivors: Iterable[Result]) -> Iterator[tuple[Result, str]]:
    """Survivors with the reason, empty where none is known."""
    known = equivalents()
    for each in survivors:
        yield each, known.get((module, each.was, each.now), "")


def _path(module: str) -> Path:
    return FOLDER / f"{module}.jsonl"
