"""Which settings a sweep has: each is made from its number when it is asked for."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from math import prod
from pathlib import Path
from typing import Any

from specsim.checks import InvalidArgumentError
from specsim.files import file_digest
from specsim.sweeps.values import MOST_SETTINGS, Spaced, Stepped, Value, Values

# What commands read in folders that a word may name: models, and tables of kernels.
_IN_FOLDERS = ("config.json", "dense.csv", "attention.csv", "per_sequence.csv")

# The inputs of one run of the command, by name.
Setting = dict[str, Value]


@dataclass(frozen=True)
class SweepDefinition:
    """All settings of a sweep: every case with every combination of the inputs' values.

    command : as it is typed, such as ``optimize`` or ``simulate bild``
    inputs : the values of each input by its name (the option's, without dashes in front and with _
        for -); the last one varies fastest
    cases : inputs that go together, with one value each; the case varies slowest

    Settings are numbered from 0; ``size`` says how many there are.
    """

    command: str
    inputs: Mapping[str, Values]
    cases: tuple[Mapping[str, Value], ...] = ({},)

    def __post_init__(self) -> None:
        for name, values in self.inputs.items():
            if not len(values):
                raise InvalidArgumentError(f"inputs.{name} is empty, expected at least one value")
            if any(name in case for case in self.cases):
                raise InvalidArgumentError(
                    f"{name} is in inputs and in cases; leave it in one of them"
                )
        if not self.cases:
            raise InvalidArgumentError("cases is empty; leave it out or give at least one")
        if self.size > MOST_SETTINGS:
            raise InvalidArgumentError(
                f"a sweep must have at most {MOST_SETTINGS:,} settings, got {self.size:,}"
            )

    @cached_property
    def size(self) -> int:
        """How many settings there are."""
        return len(self.cases) * prod(map(len, self.inputs.values()))

    @property
    def names(self) -> tuple[str, ...]:
        """All inputs that any setting has, those of cases first."""
        of_cases = dict.fromkeys(name for case in self.cases for name in case)
        return (*of_cases, *self.inputs)

    def setting(self, index: int) -> Setting:
        """The setting of a number in [0, size)."""
        if not 0 <= index < self.size:
            raise IndexError(index)
        found: Setting = {}
        for name, values in reversed(list(self.inputs.items())):
            index, at = divmod(index, len(values))
            found[name] = values[at]
        return {**self.cases[index], **{name: found[name] for name in self.inputs}}

    def described(self) -> dict[str, Any]:
        """As a file says it, in plain values; ranges stay ranges."""
        inputs = {name: _described(values) for name, values in self.inputs.items()}
        found: dict[str, Any] = {"command": self.command, "inputs": inputs}
        return {**found, "cases": list(map(dict, self.cases))} if any(self.cases) else found

    def files(self) -> dict[str, str]:
        """The digests of files that its words name, by path: they decide the answers, too."""
        found = {path for text in self._texts() for path in _paths(text)}
        return {path: file_digest(Path(path)) for path in sorted(found)}

    def _texts(self) -> Iterator[str]:
        """Every word that may hold the name of a file."""
        for values in (*self.inputs.values(), *(tuple(case.values()) for case in self.cases)):
            if isinstance(values, tuple):
                for value in values:
                    for each in value if isinstance(value, tuple) else (value,):
                        if isinstance(each, str):
                            yield each


def _described(values: Values) -> Any:
    if isinstance(values, Stepped):
        return {"first": values.first, "last": values.last, "step": values.step}
    if isinstance(values, Spaced):
        found = {"first": values.first, "last": values.last, "count": values.count}
        return {**found, "spacing": "log"} if values.log else found
    return [values[index] for index in range(len(values))]


def _paths(text: str) -> list[str]:
    """Files named by a word, or by a piece of one such as ``file:lengths.txt``; of a folder those
    that commands read in one.
    """
    pieces = {text, *re.split(r"[:,=]", text)} - {""}
    inside = {str(Path(piece, name)) for piece in pieces for name in _IN_FOLDERS}
    return [piece for piece in pieces | inside if _is_file(piece)]


def _is_file(name: str) -> bool:
    try:
        return Path(name).is_file()
    except (OSError, ValueError):  # longer than any name, or with a null character
        return False
