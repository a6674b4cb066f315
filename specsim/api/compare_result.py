"""What ``specsim.compare`` returns: figures of two sides, and whether they differ beyond chance."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from math import isclose, isfinite, isnan
from typing import Any, ClassVar, Literal

from specsim.api.compared import FigureKey, Value
from specsim.api.result import Result, Row
from specsim.checks import significant
from specsim.intervals import Interval, apart, chance_limit

# Numbers that differ by no more than this share are the same ones, worked out elsewhere.
_ROUNDING = 1e-9
# Rows of a table for people, inputs that are named in a sentence, and letters of each.
_SHOWN, _NAMED, _LETTERS = 25, 8, 60

Verdict = Literal["same", "chance", "beyond chance", "not judged"]
_BY_CHANCE: Mapping[Verdict, str] = {"chance": "within", "beyond chance": "beyond"}


@dataclass(frozen=True)
class Difference:
    """One figure of both sides.

    first, second : a number with its interval, whose ends are nan where none is known, or a word
    apart : how far apart the two lie in what their intervals explain; None where one of them has no
        interval, or is no number
    """

    key: FigureKey
    first: Value
    second: Value

    @cached_property
    def apart(self) -> float | None:
        if not isinstance(self.first, Interval) or not isinstance(self.second, Interval):
            return None
        found = apart(self.first, self.second)
        return None if isnan(found) else found

    @property
    def is_same(self) -> bool:
        if isinstance(self.first, Interval) and isinstance(self.second, Interval):
            return isclose(self.first.best, self.second.best, rel_tol=_ROUNDING, abs_tol=1e-12)
        return self.first == self.second

    @property
    def is_certain(self) -> bool:
        """Whether neither side leaves anything to chance."""
        sides = (self.first, self.second)
        return all(isinstance(each, Interval) and each.low == each.high for each in sides)

    @property
    def change(self) -> float | None:
        """The second over the first, less one; None of words and of nothing."""
        first, second = self.first, self.second
        if not isinstance(first, Interval) or not isinstance(second, Interval) or not first.best:
            return None
        return second.best / first.best - 1

    def verdict(self, limit: float) -> Verdict:
        """``not judged`` where it differs and nobody knows what chance explains."""
        if self.is_same:
            return "same"
        if self.apart is None:
            return "not judged"
        return "chance" if self.apart <= limit else "beyond chance"


@dataclass(frozen=True, kw_only=True)
class Differences(Result):
    """Two results of one kind, figure by figure.

    kind : schema of the results, "profile", "acceptance file" or "sweep"
    names : what the two are called: their files, or "first" and "second"
    figures : those that both have
    other_inputs : inputs that are not the same, with the value on either side
    level : probability that none of the figures is beyond chance where both sides are of the same

    Rows are one figure each, the same ones included; ``apart`` is in what the intervals of both
    explain, so that 1 is the limit of a figure that is looked at alone.
    """

    schema: ClassVar[str] = "specsim.compare"

    kind: str
    names: tuple[str, str]
    figures: tuple[Difference, ...]
    other_inputs: Mapping[str, tuple[Any, Any]]
    level: float

    @property
    def title(self) -> str:
        return f"{self.kind}: {self.names[0]} (first), {self.names[1]} (second)"

    @cached_property
    def limit(self) -> float:
        """How far apart figures may lie by chance, in what their intervals explain."""
        return chance_limit(self.judged, self.level)

    @property
    def judged(self) -> int:
        """Figures with an interval on both sides that leave something to chance."""
        return sum(each.apart is not None and not each.is_certain for each in self.figures)

    @cached_property
    def counts(self) -> Counter[Verdict]:
        """How many figures there are of each verdict."""
        return Counter(each.verdict(self.limit) for each in self.figures)

    @property
    def differs(self) -> bool:
        """Whether a figure differs by more than chance; where none has an interval on both sides,
        whether any differs.
        """
        not_known = self.counts["not judged"] and not self.can_tell
        return bool(self.counts["beyond chance"] or not_known)

    @property
    def can_tell(self) -> bool:
        """Whether any figure has an interval on both sides, so that chance can be told."""
        return any(each.apart is not None for each in self.figures)

    def rows(self) -> list[Row]:
        return [self._row(each) for each in self.figures]

    def table(self) -> list[Row]:
        """What differs: by more than chance, what is no number, by chance, and what nobody can
        judge; the furthest first.  What all figures of a part are of is left out, and the name of
        the part where the figure's own tells it.
        """
        changed = [each for each in self.figures if not each.is_same]
        if not changed:
            return [{"figures": len(self.figures), "same": len(self.figures)}]
        shared = self.shared()
        parts: dict[str, set[str]] = {}
        for each in self.figures:
            parts.setdefault(each.key.figure, set()).add(each.key.table)
        rows = []
        for each in sorted(changed, key=self._rank)[:_SHOWN]:
            first, second = each.first, each.second
            verdict = each.verdict(self.limit)
            key = each.key.without(shared.get(each.key.table, ()))
            if len(parts[key.figure]) == 1:
                key = replace(key, table="")
            rows.append(
                {
                    "of": key.where or "-",
                    "figure": each.key.figure.replace("_", " "),
                    "first": _best(first),
                    "second": _best(second),
                    "change": _share(each.change),
                    "chance": _BY_CHANCE.get(verdict),
                    "first_interval": _ends(first),
                    "second_interval": _ends(second),
                    "apart": each.apart,
                }
            )
        return rows

    def _rank(self, each: Difference) -> tuple[int, float]:
        verdict = each.verdict(self.limit)
        if verdict != "not judged":
            return (0 if verdict == "beyond chance" else 2), -(each.apart or 0.0)
        return (1, 0.0) if each.change is None else (3, -abs(each.change))

    def shared(self) -> dict[str, set[str]]:
        """Of each table, the columns of settings that say the same of all its figures."""
        said: dict[str, dict[str, set[str]]] = {}
        for each in self.figures:
            columns = said.setdefault(each.key.table, {})
            for name, value in each.key.setting:
                columns.setdefault(name, set()).add(value)
        return {
            table: {name for name, values in columns.items() if len(values) == 1}
            for table, columns in said.items()
        }

    @property
    def essential(self) -> tuple[str, ...]:
        return "of", "figure", "first", "second", "change", "chance"

    def summary(self) -> Row:
        return {
            "title": self.title,
            "kind": self.kind,
            "first": self.names[0],
            "second": self.names[1],
            "differs": self.differs,
            "counts": dict(self.counts),
            "judged": self.judged,
            "level": self.level,
            "limit": self.limit,
            "other_inputs": {
                name: {"first": first, "second": second}
                for name, (first, second) in self.other_inputs.items()
            },
        }

    def sentences(self) -> list[str]:
        lines = []
        if self.other_inputs:
            said = [
                f"{name} {_short(first)} and {_short(second)}"
                for name, (first, second) in self.other_inputs.items()
            ]
            rest = len(said) - _NAMED
            more = [f"{rest} more (--format json)"] if rest > 0 else []
            lines.append(f"inputs differ: {'; '.join([*said[:_NAMED], *more])}")
        counts = self.counts
        lines.append(
            f"of {len(self.figures):,} figures {counts['same']:,} are the same, "
            f"{counts['chance']:,} differ as far as chance explains, {counts['beyond chance']:,} "
            f"by more, and {counts['not judged']:,} differ and have no interval on both sides"
        )
        changed = len(self.figures) - counts["same"]
        if changed > _SHOWN:
            lines.append(f"{_SHOWN} of {changed:,} figures that differ are shown")
        return [*lines, self._verdict()]

    def _verdict(self) -> str:
        if not self.can_tell:
            if self.differs:
                return "no figure has an interval on both sides, so that every difference counts"
            return "nothing differs"
        level = f"{self.level:.0%} over {self.judged} figures with an interval"
        if not self.differs:
            return f"nothing differs by more than chance explains ({level})"
        far = max(
            (each for each in self.figures if each.verdict(self.limit) == "beyond chance"),
            key=lambda each: each.apart or 0.0,
        )
        of = f" of {far.key.where}" if far.key.where else ""
        return (
            f"more than chance ({level}): {self.counts['beyond chance']}, {far.key.figure}{of} "
            f"above all, {_words(far.first)} and {_words(far.second)}"
        )

    def _row(self, each: Difference) -> Row:
        row: Row = {"table": each.key.table, "of": each.key.where, "figure": each.key.figure}
        for side, value in (("first", each.first), ("second", each.second)):
            if isinstance(value, Interval):
                row |= value.columns(side)
            else:
                row |= {side: value, f"{side}_low": None, f"{side}_high": None}
        verdict = each.verdict(self.limit)
        return {**row, "change": each.change, "apart": each.apart, "verdict": verdict}


def _words(value: Value) -> str:
    """A figure with its interval: ``1.52 (1.4 to 1.66)``."""
    ends = _ends(value)
    return f"{_best(value)} ({ends})" if ends else _best(value)


def _best(value: Value) -> str:
    if isinstance(value, Interval):
        return significant(value.best) if isfinite(value.best) else f"{value.best:g}"
    if isinstance(value, bool):
        return "yes" if value else "no"
    return "-" if value is None else str(value)


def _share(change: float | None) -> str | None:
    if change is None:
        return None
    return f"{change:+.1%}" if abs(change) < 1 else f"{change:+,.0%}"


def _ends(value: Value) -> str | None:
    if not isinstance(value, Interval) or isnan(value.low):
        return None
    return " to ".join(
        significant(end) if isfinite(end) else f"{end:g}" for end in (value.low, value.high)
    )


def _short(value: Any) -> str:
    """An input in a sentence."""
    words = f"{value:g}" if isinstance(value, float) else " ".join(str(value).split())
    return words if len(words) <= _LETTERS else f"{words[: _LETTERS - 3]}..."
