"""Sums of what was counted apart: lines of a log, requests, files."""

from __future__ import annotations

from collections.abc import Iterable

from specsim.counts.drafts import DraftCounts, DraftTotals, MeanLength


def pooled_counts(counts: Iterable[DraftCounts]) -> list[tuple[DraftCounts, int]]:
    """Sums by draft length, shortest first, and how many were added to each.

    Different draft lengths are never added: the rate at a position depends on the length.  Nor
    are counts by position and counts without, which would lose the positions.
    """
    groups: dict[tuple[int | None, bool], list[DraftCounts]] = {}
    for each in counts:
        groups.setdefault((each.gamma, bool(each.reached)), []).append(each)
    ordered = sorted(groups, key=lambda key: (key[0] is None, key[0] or 0, not key[1]))
    return [(_sum(groups[key]), len(groups[key])) for key in ordered]


def pooled_totals(totals: Iterable[DraftTotals]) -> DraftTotals | None:
    """The sum; None of nothing."""
    known = [*totals]
    return sum(known[1:], known[0]) if known else None


def pooled_lengths(lengths: Iterable[MeanLength]) -> list[MeanLength]:
    """Means by draft length and kind of weight, each over all of its kind."""
    groups: dict[tuple[int | None, str], MeanLength] = {}
    for each in lengths:
        key = each.gamma, each.weight_of
        groups[key] = groups[key] + each if key in groups else each
    return list(groups.values())


def _sum(counts: list[DraftCounts]) -> DraftCounts:
    first, *rest = counts
    return sum(rest, first)
