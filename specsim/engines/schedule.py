"""What every engine is told: a draft length for each range of batches."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby

from specsim.checks import InvalidArgumentError

# (first batch, last batch, gamma), both ends included; from batch 1 on, without a gap.
Schedule = list[tuple[int, int, int]]


def merged(gammas: Sequence[int]) -> Schedule:
    """The ranges of equal neighbours; ``gammas[b - 1]`` is for batch b."""
    schedule: Schedule = []
    first = 1
    for gamma, group in groupby(gammas):
        last = first + len(list(group)) - 1
        schedule.append((first, last, gamma))
        first = last + 1
    return schedule


def gamma_at(schedule: Schedule, batch: int) -> int:
    """The gamma of one batch."""
    for first, last, gamma in schedule:
        if first <= batch <= last:
            return gamma
    raise InvalidArgumentError(f"batch must be in [1, {schedule[-1][1]}], got {batch}")


def of_group(schedule: Schedule, groups: int) -> Schedule:
    """What each of ``groups`` servers is told that share all requests evenly: one that has b of
    them drafts what was best where all have b of them.
    """
    last = schedule[-1][1]
    return merged(
        [gamma_at(schedule, min(groups * own, last)) for own in range(1, -(-last // groups) + 1)]
    )


def largest(schedule: Schedule) -> int:
    """The largest gamma; 0 where speculation never pays."""
    return max(gamma for _, _, gamma in schedule)


def in_words(schedule: Schedule) -> str:
    """``1: 4, 2-64: 3, 65-256: 0``."""
    return ", ".join(f"{ranges_in_words([span])}: {span[2]}" for span in schedule)


def ranges_in_words(schedule: Schedule) -> str:
    """``1, 2-64, 65-256``."""
    return ", ".join(
        f"{first}" if first == last else f"{first}-{last}" for first, last, _ in schedule
    )


def off_at(schedule: Schedule) -> bool:
    """Whether some batch drafts nothing."""
    return any(gamma == 0 for _, _, gamma in schedule)
