"""The first draft run of a block takes as long as its draft length says."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from specsim.hardware.first_drafts import as_in_the_mean, by_length
from specsim.predict.measured import MeasuredCost
from specsim.profiles import Overhead, RunTime

PLAIN_S = 0.004
# A few per cent up and down, in no order that a law would have.
MEASURED = {1: 1.026, 2: 0.968, 3: 0.989, 4: 1.0, 5: 1.003, 6: 1.008, 7: 1.012, 8: 1.018}
PASSES = 12


def first_runs(
    times: Mapping[int, float],
    level_s: float = 0.0005,
    context: int = 32,
    tokens: int = 1,
    noise: float = 0.0,
    seed: int = 0,
) -> RunTime:
    """A mean over the first runs of every draft length in every pass, as calibration keeps them."""
    random = np.random.default_rng(seed)
    told = [(number, gamma) for number in range(PASSES) for gamma in times]
    seconds = [level_s * times[gamma] * np.exp(noise * random.normal()) for _, gamma in told]
    return RunTime(
        *("draft", "target", tokens, 1, context, "eager"),
        seconds,
        [PLAIN_S] * len(told),
        passes=[number for number, _ in told],
        runs=[runs_of(gamma) for _, gamma in told],
        gammas=[gamma for _, gamma in told],
    )


def runs_of(gamma: int) -> int:
    """Blocks of so many drafts in a stretch of about 60 tokens."""
    return 60 // gamma


def over_mean(times: Mapping[int, float]) -> dict[int, float]:
    mean = np.average([*times.values()], weights=[runs_of(gamma) for gamma in times])
    return {gamma: each / mean for gamma, each in times.items()}


@given(st.permutations(list(MEASURED)), st.floats(1e-5, 1e-2), st.integers(2, 8))
def test_what_repeats_agree_on_is_found_and_taken_off(
    order: list[int], level_s: float, lengths: int
) -> None:
    """Whatever the length that has it; two cells, which differ by themselves as well."""
    times = {gamma: MEASURED[of] for gamma, of in list(zip(MEASURED, order, strict=True))[:lengths]}
    rows = [first_runs(times, level_s), first_runs(times, 1.3 * level_s, 96, 2)]
    found = by_length(rows)
    assert found == pytest.approx(over_mean(times), rel=1e-9)
    for row, level in zip(as_in_the_mean(rows, found), (1.0, 1.3), strict=True):
        mean = np.average([*times.values()], weights=[runs_of(gamma) for gamma in times])
        assert row.seconds == pytest.approx([level * level_s * mean] * len(row.seconds), rel=1e-9)


def test_a_length_that_one_cell_has_alone_is_not_taken_for_the_cell() -> None:
    """Long blocks may be timed at long contexts alone, where all runs take longer."""
    short = {gamma: MEASURED[gamma] for gamma in (1, 2, 3, 4)}
    long = {gamma: MEASURED[gamma] for gamma in (3, 4, 5, 6)}
    found = by_length([first_runs(short), first_runs(long, 0.0008, 448)])
    for gamma in range(2, 7):
        expected = MEASURED[gamma] / MEASURED[1]
        assert found[gamma] / found[1] == pytest.approx(expected, rel=1e-9)


def test_lengths_that_are_not_told_or_are_one_tell_nothing() -> None:
    silent = replace(first_runs(MEASURED), gammas=[])
    later = replace(first_runs(MEASURED), follows="draft")
    for rows in ([], [silent], [later], [first_runs({3: 1.1})]):
        assert by_length(rows) == {}
        assert as_in_the_mean(rows, {}) == rows
    assert as_in_the_mean([silent, later], MEASURED) == [silent, later]


def test_what_scatters_is_drawn_to_the_neighbours() -> None:
    """Where all lengths take the same, noise of 10 % by repeat leaves a standard error of 3 % to
    each; together they say better.  Fixed seeds, so that nothing is left to chance.
    """
    alike = dict.fromkeys(MEASURED, 1.0)
    drawn, alone = [], []
    for seed in range(20):
        row = first_runs(alike, noise=0.1, seed=seed)
        drawn += [np.log(each) for each in by_length([row]).values()]
        for gamma in alike:
            own = [s for s, g in zip(row.seconds, row.gammas, strict=True) if g == gamma]
            alone.append(np.log(np.mean(own) / np.mean(row.seconds)))
    assert np.std(drawn) < 0.8 * np.std(alone)


def test_an_interruption_is_no_share() -> None:
    row = first_runs(MEASURED, noise=0.002)
    interrupted = replace(row, seconds=[9 * row.seconds[0], *row.seconds[1:]])
    assert by_length([interrupted])[1] == pytest.approx(by_length([row])[1], rel=0.01)


@pytest.mark.parametrize("gamma", [1, 2, 5, 8])
def test_a_block_is_priced_by_its_length(gamma: int) -> None:
    rows = [
        RunTime("target", "target", 1, 1, 32, "eager", [PLAIN_S] * 2, [PLAIN_S] * 2, [0, 1]),
        RunTime("target", "draft", 9, 1, 32, "eager", [2 * PLAIN_S] * 2, [PLAIN_S] * 2, [0, 1]),
        RunTime("draft", "draft", 1, 1, 32, "eager", [0.0004] * 2, [PLAIN_S] * 2, [0, 1]),
        first_runs(MEASURED),
    ]
    host = [Overhead(0.0, k, 1, 0, "eager", [0.0], [PLAIN_S], [0]) for k in (0, 8)]
    cost = MeasuredCost.of(rows, host, 0.0)
    assert cost.draft_run(1, 32.0, gamma) == pytest.approx(0.0005 * MEASURED[gamma], rel=1e-6)
    expected = cost.target(gamma + 1, np.array([32.0]))[0] + 0.0005 * MEASURED[gamma]
    assert cost.block(gamma, 32.0) == pytest.approx(expected + 0.0004 * (gamma - 1), rel=1e-6)
    # A length that was not timed has the mean.
    mean = np.average([*MEASURED.values()], weights=[runs_of(each) for each in MEASURED])
    for every in (cost.draft_run(1, 32.0, 9), cost.draft_run(1, 32.0)):
        assert every == pytest.approx(0.0005 * mean, rel=1e-6)
