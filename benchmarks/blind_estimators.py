"""Other ways to make costs of the same measurements, and smaller calibrations of them."""

from __future__ import annotations

from collections.abc import Callable
from statistics import median

import msgspec

from specsim.hardware import run_time_fit
from specsim.hardware.repeats import Repeats
from specsim.profiles import Overhead, Profile, RunTime


def medians(profile: Profile) -> Profile:
    """A price of its own for every width: the median of its repeats."""

    def one(row: RunTime) -> RunTime:
        return _priced(row, lambda repeats: median(run_time_fit.ratios(repeats)))

    host = [
        msgspec.structs.replace(
            row,
            seconds=[median(s / p for s, p in zip(row.seconds, row.plain, strict=True))],
            plain=[1.0],
            passes=[],
        )
        for row in profile.overhead
    ]
    usual = median(each for row in profile.overhead for each in row.plain)
    host = [
        msgspec.structs.replace(row, seconds=[row.seconds[0] * usual], plain=[usual])
        for row in host
    ]
    return msgspec.structs.replace(
        profile, run_times=[one(row) for row in profile.run_times], overhead=host
    )


def means(profile: Profile) -> Profile:
    """A price of its own for every width: the mean of its repeats, outliers held."""

    def one(row: RunTime) -> RunTime:
        return _priced(row, lambda repeats: run_time_fit.repeats_of(repeats).mean)

    return msgspec.structs.replace(profile, run_times=[one(row) for row in profile.run_times])


def _priced(row: RunTime, price: Callable[[RunTime], float]) -> RunTime:
    """One price in the place of all repeats, or of all of a draft length where that is told."""
    usual = median(row.plain)
    lengths = sorted(set(row.gammas))
    found = [price(run_time_fit.of_length(row, gamma)) for gamma in lengths] or [price(row)]
    return msgspec.structs.replace(
        row,
        seconds=[usual * ratio for ratio in found],
        plain=[usual] * len(found),
        passes=[],
        runs=[],
        gammas=lengths,
    )


def host_alone(profile: Profile) -> Profile:
    """Host time of each draft length by itself: as if all of its repeats agreed."""

    def one(row: Overhead) -> Overhead:
        ratios = [s / p for s, p in zip(row.seconds, row.plain, strict=True)]
        mean = Repeats.of(ratios).mean
        return msgspec.structs.replace(row, seconds=[mean * plain for plain in row.plain])

    return msgspec.structs.replace(profile, overhead=[one(row) for row in profile.overhead])


def alone(profile: Profile) -> Profile:
    """As if no other program had run beside it, which profiles say and intervals allow for."""
    return msgspec.structs.replace(profile, notes=[])


def alike(profile: Profile) -> Profile:
    """As if nobody told the draft lengths of draft runs."""
    rows = [msgspec.structs.replace(row, gammas=[]) for row in profile.run_times]
    return msgspec.structs.replace(profile, run_times=rows)


def shorter(profile: Profile, repeats: int) -> Profile:
    """As if only the first passes had been made, each at both temperatures."""
    passes = range(2 * repeats)
    return msgspec.structs.replace(
        profile,
        run_times=run_time_fit.in_passes(profile.run_times, passes),
        overhead=run_time_fit.in_passes(profile.overhead, passes),
    )


def seconds_timed(profile: Profile, repeats: int, requests: int, timed_tokens: int) -> float:
    """Seconds of decoding that a calibration of this size takes, from its own run times."""
    plain = median(each for row in profile.run_times for each in row.plain)
    host = median(each for row in profile.overhead if row.gamma == 0 for each in row.seconds)
    # Plain decodings stand before and after every two draft lengths.
    decodings = repeats * 2 * (profile.gamma_max * 1.5 + 1) * timed_tokens
    texts = sum(min(requests, each.requests) * each.max_new_tokens for each in profile.acceptance)
    return (plain + host) * (decodings + texts)
