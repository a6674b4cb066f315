"""Which draft length at which batch, up to which batch speculation pays, and what has no price.

Up to ``EVERY`` batches are all looked at: whether speculation pays need not be monotone in the
batch (a mixture of experts reads more experts, then all of them; kernels change with the width).
Of more, about a hundred are, in steps that grow with the batch, and whatever lies between two that
differ, by bisection; what a plan did not look at it says (``Plan.looked_at``).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import groupby, pairwise

from specsim.batching.cost import CellUnavailableError
from specsim.batching.point import MARGIN, BatchPoint, batch_point, best_of_cell
from specsim.batching.workload import BatchWorkload
from specsim.checks import integer

# Batches that are all looked at.
EVERY = 512
# Of more, the next one looked at is so much larger, at least; the steps of any load are so many.
_LEAST_STEP = 1.05
_STEPS = 100
# Batches that have a row each; more share rows with their neighbours of the same length.
_ROWS = 64


@dataclass(frozen=True)
class Span:
    """Neighbours among the batches asked for that draft the same.

    first, last : the smallest and the largest of them; one and the same where it stands alone
    """

    first: BatchPoint
    last: BatchPoint


@dataclass(frozen=True)
class Plan:
    """The batches asked for at one context.

    spans : those that have a price, by rising batch
    stops : the smallest batch from which on nothing pays; None where the largest priced one pays
    missing : batches asked for that have no price, and why
    points : all that were looked at
    priced : batches asked for that have a price, looked at or not
    gamma : the draft length that was given; None: the best was looked for
    """

    context: int
    spans: tuple[Span, ...]
    stops: int | None
    missing: tuple[int, ...]
    why_missing: str
    points: tuple[BatchPoint, ...]
    priced: int
    gamma: int | None = None

    @property
    def looked_at(self) -> int:
        """How many of the priced batches were looked at."""
        return len(self.points)

    @property
    def largest(self) -> int:
        """The largest batch asked for that has a price."""
        return self.spans[-1].last.batch

    @property
    def off(self) -> list[int]:
        """Batches looked at below the last that pays which do not pay themselves."""
        end = self.stops or self.largest
        return [point.batch for point in self.points if not point.pays and point.batch < end]

    @property
    def sentence(self) -> str:
        """Up to which batch it pays."""
        margin = f"by {MARGIN:.0%} or more"
        start = f"context {self.context:,}: "
        if self.stops == 1:
            return f"{start}never pays {margin}"
        until = f"up to batch {(self.stops or self.largest + 1) - 1:,}"
        if self.stops is None:
            until = "at every batch asked for"
            if self.missing:
                until += f" that has a price, up to {self.largest:,}"
        off = f", but not at {ranges(self.off)}" if self.off else ""
        return f"{start}pays {margin} {until}{off}"


def plan(
    workload: BatchWorkload, batches: Sequence[int], context: int, gamma: int | None = None
) -> Plan:
    """The best draft length, or what ``gamma`` gives, at every batch; ``batches`` are rising.

    Raises CellUnavailableError where not even the smallest batch has a price.
    """

    @cache
    def at(batch: int) -> BatchPoint:
        if gamma is not None:
            return batch_point(workload.gains, workload.cost, gamma, batch, context)
        return best_of_cell(workload.gains, workload.cost, batch, context, workload.gamma_max)

    count, why = _priced(workload, batches, context, gamma or 0)
    priced = batches[:count]
    points = _decisions(at, priced)
    if count <= _ROWS:
        spans = [Span(point, point) for point in points]
    else:
        groups = [list(group) for _, group in groupby(points, key=_decision)]
        spans = [Span(group[0], group[-1]) for group in groups]
    return Plan(
        context=context,
        spans=tuple(spans),
        stops=stops_paying(lambda batch: at(batch).pays, priced[-1]),
        missing=tuple(batches[count:]),
        why_missing=why,
        points=tuple(points),
        priced=count,
        gamma=gamma,
    )


def stops_paying(pays: Callable[[int], bool], most: int) -> int | None:
    """The smallest batch from which on it does not pay, up to ``most``; None if ``most`` pays.

    From above: every batch where ``most`` is at most ``EVERY``; else in steps until one pays, and
    from there to the next one by bisection.
    """
    most = integer("most", most, low=1)
    above = most + 1
    for batch in reversed(list(_coarse(most))):
        if pays(batch):
            break
        above = batch
    else:
        return 1
    if above > most:
        return None
    while above - batch > 1:
        middle = (batch + above) // 2
        batch, above = (middle, above) if pays(middle) else (batch, middle)
    return above


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


def _decisions(at: Callable[[int], BatchPoint], batches: Sequence[int]) -> list[BatchPoint]:
    """Points that tell where decisions change, the first and the last batch among them."""
    found = {index: at(batches[index]) for index in (n - 1 for n in _coarse(len(batches)))}
    open_ends = [(a, b) for a, b in pairwise(sorted(found)) if b - a > 1]
    while open_ends:
        low, high = open_ends.pop()
        if high - low > 1 and _decision(found[low]) != _decision(found[high]):
            middle = (low + high) // 2
            found[middle] = at(batches[middle])
            open_ends += [(low, middle), (middle, high)]
    return [found[index] for index in sorted(found)]


def _decision(point: BatchPoint) -> tuple[int, bool]:
    return point.gamma, point.pays


def _coarse(count: int) -> Iterator[int]:
    """All of 1..count where those are few; else steps that grow, 1 and ``count`` among them."""
    number, step = 1, max(_LEAST_STEP, count ** (1 / _STEPS))
    while number < count:
        yield number
        number = number + 1 if count <= EVERY else max(number + 1, int(number * step))
    yield count
