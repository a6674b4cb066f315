"""Which draft length at which batch, up to which batch speculation pays, and what has no price.

Up to ``EVERY`` of the batches asked for are all looked at: whether speculation pays need not be
monotone in the batch (a mixture of experts reads more experts, then all of them; kernels change
with the width).  Of more, about a hundred are, in steps that grow with the batch, and whatever lies
between two that differ, by bisection; what a plan did not look at it says (``Plan.looked_at``).
The batch from which on nothing pays is looked for between those asked for, too.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache, cached_property
from itertools import groupby, pairwise
from operator import itemgetter

from specsim.batching.cost import CellUnavailableError
from specsim.batching.decision import Decision, decide
from specsim.batching.point import DEFAULT_MARGIN, BatchPoint
from specsim.batching.workload import BatchWorkload
from specsim.checks import UnsupportedError
from specsim.engines.ranges import fewest_ranges
from specsim.engines.schedule import Schedule

# Batches that are all looked at.
EVERY = 512
# Of more, the next one looked at is so much larger, at least; the steps of any load are so many.
_LEAST_STEP = 1.05
_STEPS = 100
# Share of the margin that a batch may lose for the sake of fewer ranges.
_LOSS = 0.2
# Of its best speedup, from which on what a batch loses is said.
_LOSS_SAID = 1e-3
# Batches that have a row each; more share rows with their neighbours of the same length.
_ROWS = 64


@dataclass(frozen=True)
class Span:
    """Neighbours among the batches asked for that draft the same.

    first, last : the smallest and the largest of them; one and the same where it stands alone
    """

    first: Decision
    last: Decision


@dataclass(frozen=True)
class Plan:
    """The batches asked for at one context.

    decisions : of all batches that were looked at, rising
    margin : what drafts must gain to pay
    stops : the smallest batch from which on nothing pays: at the low end of the interval of the
        speedups, as predicted, and at the high end; None where the largest priced one pays
    batches : those asked for that have a price, looked at or not
    missing : those that have none, and why
    gamma : the draft length that was given; None: the best was looked for
    """

    context: int
    decisions: tuple[Decision, ...]
    margin: float
    stops_low: int | None
    stops: int | None
    stops_high: int | None
    batches: Sequence[int]
    missing: tuple[int, ...]
    why_missing: str
    gamma: int | None = None

    @property
    def spans(self) -> list[Span]:
        """The priced batches, by themselves, or many of them by ranges of one draft length."""
        if self.priced <= _ROWS:
            return [Span(each, each) for each in self.decisions]
        groups = [list(group) for _, group in groupby(self.decisions, key=_decision)]
        return [Span(group[0], group[-1]) for group in groups]

    @property
    def points(self) -> tuple[BatchPoint, ...]:
        """What was chosen at every batch that was looked at."""
        return tuple(each.point for each in self.decisions)

    @property
    def priced(self) -> int:
        """How many of the batches asked for have a price."""
        return len(self.batches)

    @property
    def looked_at(self) -> int:
        """How many of the priced batches were looked at."""
        return len(self.decisions)

    @property
    def largest(self) -> int:
        """The largest batch asked for that has a price."""
        return self.batches[-1]

    @property
    def off(self) -> list[int]:
        """Batches looked at below the last that pays which do not pay themselves."""
        return list(self._end("best")[1])

    @property
    def is_sure(self) -> bool | None:
        """Whether the ends of the interval say the same of where it pays; None without one."""
        if all(each.speedup is None for each in self.decisions):
            return None
        return self._end("low") == self._end("best") == self._end("high")

    @property
    def sentence(self) -> str:
        """Up to which batch it pays, with the interval of that, and the draft length of each."""
        margin = f"by {100 * self.margin:.3g}% or more"
        if not self.decisions[0].workload.gamma_max:
            return f"context {self.context:,}: plain decoding, as no drafts were asked for"
        pays = f"context {self.context:,}: {self._pays(margin)}"
        if self.is_sure is False:
            pays += f" ({self._interval})"
        if self.gamma is not None:
            return pays
        found = f"{pays}, draft tokens by batch {in_words(self.schedule)}"
        if self.loss < _LOSS_SAID:
            return found
        return f"{found} (at most {100 * self.loss:.1g}% slower than the best)"

    def _pays(self, margin: str) -> str:
        asked = "batch asked for"
        if self.missing:
            asked += f" that has a price, up to {self.largest:,}"
        if self.stops == 1:
            return f"pays {margin} at no {asked}"
        until = f"at every {asked}" if self.stops is None else f"up to batch {self.stops - 1:,}"
        off = f", but not at {ranges(self.off)}" if self.off else ""
        return f"pays {margin} {until}{off}"

    @property
    def _interval(self) -> str:
        """``8 to 31`` between two batches; else the ends that differ from the middle, in words."""
        low, high = self.stops_low, self.stops_high
        if low and low > 1 and high and low != high:
            return f"{low - 1:,} to {high - 1:,}"
        best = self._end("best")
        ends = {end: self._end(end) for end in ("low", "high")}
        return ", ".join(
            f"at the {end} end of the interval {_until(*found)}"
            for end, found in ends.items()
            if found != best
        )

    def _end(self, end: str) -> tuple[int | None, tuple[int, ...]]:
        """The batch from which on nothing pays at an end of the interval, and the batches looked at
        below the last that pays which do not.
        """
        stops = {"low": self.stops_low, "best": self.stops, "high": self.stops_high}[end]
        below = (each for each in self.decisions if each.batch < (stops or self.largest))
        return stops, tuple(each.batch for each in below if not getattr(each.pays, end))

    @cached_property
    def schedule(self) -> Schedule:
        """The draft length by ranges of the batches asked for, as few as lose no batch more than a
        fifth of the margin, as a share of its best speedup.

        Batches that were not looked at lie between two that decide alike.
        """
        speedups = [[point.speedup for point in each.points] for each in self.decisions]
        gammas = fewest_ranges(speedups, self.margin, self.margin * _LOSS)
        found: Schedule = []
        for gamma, group in groupby(zip(gammas, self.decisions, strict=True), key=itemgetter(0)):
            first = next(group)[1].batch
            if found:
                start, _, length = found[-1]
                found[-1] = start, self.batches[bisect_left(self.batches, first) - 1], length
            found.append((first, self.largest, gamma))
        return found

    @cached_property
    def loss(self) -> float:
        """What a batch loses at most by the schedule, as a share of its best speedup."""
        found = 0.0
        for each in self.decisions:
            gamma = next(gamma for _, last, gamma in self.schedule if each.batch <= last)
            # Where no drafts pay none are made, and that is no loss.
            best = each.point if each.pays.best else each.points[0]
            found = max(found, 1.0 - each.points[gamma].speedup / best.speedup)
        return found


def plan(
    workload: BatchWorkload,
    batches: Sequence[int],
    context: int,
    gamma: int | None = None,
    margin: float = DEFAULT_MARGIN,
    told: Callable[[int], None] | None = None,
) -> Plan:
    """The best draft length, or what ``gamma`` gives, at every batch; ``batches`` are rising.

    told : called with how many of ``looked_at`` batches are done, after each

    Raises CellUnavailableError where not even the smallest batch has a price.
    """

    @cache
    def at(batch: int) -> Decision:
        return decide(workload, batch, context, margin, gamma)

    def pays(end: str) -> Callable[[int], bool]:
        def pays_at(batch: int) -> bool:
            try:
                return bool(getattr(at(batch).pays, end))
            except UnsupportedError:
                if batch < batches[0]:
                    return False  # nobody asked, and steps may have been timed from there on
                raise

        return pays_at

    count, why = _priced(workload, batches, context, gamma or 0)
    decisions = _decisions(at, batches[:count], told)
    known = [each.batch for each in decisions]
    low, best, high = (stops_paying(pays(end), known) for end in ("low", "best", "high"))
    return Plan(
        context=context,
        decisions=tuple(decisions),
        margin=margin,
        stops_low=low,
        stops=best,
        stops_high=high,
        batches=batches[:count],
        missing=tuple(batches[count:]),
        why_missing=why,
        gamma=gamma,
    )


def stops_paying(pays: Callable[[int], bool], batches: Sequence[int]) -> int | None:
    """The smallest batch from which on it does not pay; None if the largest of ``batches`` does.

    From above, among ``batches``, which rise, and batch 1, until one pays; from there to the next
    one by bisection.
    """
    tried = [*([1] if batches[0] > 1 else []), *batches]
    above = tried[-1] + 1
    for batch in reversed(tried):
        if pays(batch):
            break
        above = batch
    else:
        return 1
    if above > tried[-1]:
        return None
    while above - batch > 1:
        middle = (batch + above) // 2
        batch, above = (middle, above) if pays(middle) else (batch, middle)
    return above


def in_words(schedule: Schedule) -> str:
    """``1-64: 4, 65-256: 2, 257-300: off``."""
    words = []
    for first, last, gamma in schedule:
        words.append(f"{range_words(first, last)}: {gamma or 'off'}")
    return ", ".join(words)


def range_words(first: int, last: int) -> str:
    """``1-64``, or ``64`` of one batch."""
    return f"{first:,}-{last:,}" if last > first else f"{first:,}"


def _until(stops: int | None, off: Sequence[int]) -> str:
    """Up to where it pays, from the smallest batch from which on it does not."""
    if stops == 1:
        return "at none"
    until = "at all" if stops is None else f"up to {stops - 1:,}"
    return f"{until} but {ranges(off)}" if off else until


def ranges(numbers: Sequence[int]) -> str:
    """``1, 2, 4-7`` of increasing numbers; of many, the first and the last."""
    runs: list[list[int]] = []
    for number in numbers:
        if runs and number == runs[-1][-1] + 1:
            runs[-1].append(number)
        else:
            runs.append([number])
    words = [
        f"{run[0]:,}-{run[-1]:,}" if len(run) > 2 else ", ".join(f"{each:,}" for each in run)
        for run in runs
    ]
    if len(words) > 8:
        words = [*words[:3], "...", words[-1]]
    return ", ".join(words)


def _priced(
    workload: BatchWorkload, batches: Sequence[int], context: int, gamma: int
) -> tuple[int, str]:
    """How many of the batches have a price at ``gamma``, and why the next one has none.

    Where a batch has none, no larger one has: memory and what could not be measured say so.
    """

    def reason(batch: int) -> str:
        try:
            workload.cost.verify_s(gamma, batch, context)
        except CellUnavailableError as error:
            return str(error)
        return ""

    if not reason(batches[-1]):
        return len(batches), ""
    workload.cost.verify_s(gamma, batches[0], context)  # raises if nothing is left
    below, above = 0, len(batches) - 1
    while above - below > 1:
        middle = (below + above) // 2
        below, above = (below, middle) if reason(batches[middle]) else (middle, above)
    return above, reason(batches[above])


def looked_at(count: int) -> int:
    """How many of so many batches are looked at in any case."""
    return sum(1 for _ in _coarse(count))


def _decisions(
    at: Callable[[int], Decision], batches: Sequence[int], told: Callable[[int], None] | None
) -> list[Decision]:
    """Those that tell where they change, of the first and the last batch among them."""
    found = {}
    for number in _coarse(len(batches)):
        found[number - 1] = at(batches[number - 1])
        if told is not None:
            told(len(found))
    open_ends = [(a, b) for a, b in pairwise(sorted(found)) if b - a > 1]
    while open_ends:
        low, high = open_ends.pop()
        if high - low > 1 and _decision(found[low]) != _decision(found[high]):
            middle = (low + high) // 2
            found[middle] = at(batches[middle])
            open_ends += [(low, middle), (middle, high)]
    return [found[index] for index in sorted(found)]


def _decision(found: Decision) -> tuple[int, bool]:
    return found.point.gamma, bool(found.pays.best)


def _coarse(count: int) -> Iterator[int]:
    """All of 1..count where those are few; else steps that grow, 1 and ``count`` among them."""
    number, step = 1, max(_LEAST_STEP, count ** (1 / _STEPS))
    while number < count:
        yield number
        number = number + 1 if count <= EVERY else max(number + 1, int(number * step))
    yield count
