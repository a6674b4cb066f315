"""What the settings of a sweep say of themselves, counted: why they failed, and their warnings."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path

import pyarrow.parquet as pq

from specsim.sweeps.columns import FAILURE, SETTING, WARNINGS, kinds_of
from specsim.sweeps.record import FailedSettings, WarnedSettings

# Lines that are told apart, and those that are kept.
_TOLD_APART = 1000
_MOST = 20
_OTHER_REASONS = "other reasons"
_NUMBER = re.compile(r"\d[\d.,]*")
# The columns of answers whose prices are bounds, and what is said of them.
_BOUND = ("bound", "summary_bound")
_IS_BOUND = "prices are bounds that no engine reaches"


@dataclass
class Tally:
    """How many settings say a line, and the first that does.

    other : stands for the lines that come when 1,000 are told apart; empty: those are not counted
    found : by its words, the line of the first, how many, the first, and whether others say it with
        other numbers
    """

    other: str = ""
    found: dict[str, tuple[str, int, int, bool]] = field(default_factory=dict)

    def add(self, words: str, line: str, setting: int) -> None:
        """words : those of the line by which it is told apart, once of each setting"""
        if words not in self.found and len(self.found) >= _TOLD_APART:
            if not self.other:
                return
            words = line = self.other
        first_line, count, first, varied = self.found.get(words, (line, 0, setting, False))
        self.found[words] = first_line, count + 1, first, varied or line != first_line

    def most_frequent(self) -> list[tuple[str, int, int, bool]]:
        """At most 20: the line, how many settings, the first of them, whether numbers differ."""
        order = sorted(self.found.values(), key=lambda each: (-each[1], each[2]))
        return order[:_MOST]


@dataclass
class SettingsTally:
    """What is counted of all parts.

    failed : settings that have no answer
    """

    failed: int = 0
    failures: Tally = field(default_factory=lambda: Tally(_OTHER_REASONS))
    warned: Tally = field(default_factory=Tally)

    @staticmethod
    def of(paths: Iterable[Path]) -> SettingsTally:
        """Of these parts."""
        found = SettingsTally()
        for path in paths:
            found.add(path)
        return found

    def add(self, path: Path) -> None:
        """Count the settings of a part."""
        with pq.ParquetFile(path) as file:
            kinds = kinds_of(file.schema_arrow)
            bound = [name for name in _BOUND if kinds.get(name) == "bool"]
            table = file.read(columns=[SETTING, FAILURE, WARNINGS, *bound])
        for row in table.to_pylist():
            setting = row[SETTING]
            if row[FAILURE] is not None:
                self.failed += 1
                self.failures.add(row[FAILURE], row[FAILURE], setting)
            said = [*(row[WARNINGS] or ()), *(_IS_BOUND for name in bound if row[name])]
            # Lines that differ in their numbers alone are one; of a setting it is its first.
            alike = {_NUMBER.sub("#", line): line for line in reversed(said)}
            for words, line in alike.items():
                self.warned.add(words, line, setting)

    @property
    def reasons(self) -> list[FailedSettings]:
        """Why settings failed, the most frequent first."""
        return [FailedSettings(*each[:3]) for each in self.failures.most_frequent()]

    @property
    def warnings(self) -> list[WarnedSettings]:
        """What settings warn of, the most frequent first."""
        return [WarnedSettings(*each) for each in self.warned.most_frequent()]

    @property
    def more_warnings(self) -> int:
        """Warnings beyond those, at least."""
        return max(0, len(self.warned.found) - _MOST)
