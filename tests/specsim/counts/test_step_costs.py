"""The law of a step is found again from steps that obey it; what was not timed is refused."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from specsim.checks import InvalidArgumentError, UnsupportedError
from specsim.counts.step_costs import StepCosts
from specsim.counts.steps import StepTime
from tests.support.refusals import refuses

seconds = st.floats(1e-4, 1.0)
lengths = st.lists(st.integers(1, 16), min_size=2, max_size=5, unique=True)


def lawful(
    gammas: list[int], batch: float, plain: float, fixed: float, draft: float, verify: float
) -> list[StepTime]:
    """Steps that obey S = s0 + f + K (d + b), with the time of their drafts."""
    return [StepTime(0, batch, plain)] + [
        StepTime(
            gamma,
            batch,
            plain + fixed + gamma * (draft + verify),
            draft_s=fixed / 2 + gamma * draft,
        )
        for gamma in gammas
    ]


@given(lengths, seconds, seconds, seconds, seconds)
def test_the_law_is_found_again(
    gammas: list[int], plain: float, fixed: float, draft: float, verify: float
) -> None:
    line = StepCosts.of(lawful(gammas, 4, plain, fixed, draft, verify)).line(4)
    found = (line.plain_s, line.fixed_s, line.per_draft_s, line.draft_run_s, line.verify_slope_s)
    np.testing.assert_allclose(
        found, (plain, fixed, draft + verify, draft, verify), rtol=1e-6, atol=1e-9
    )
    assert line.deviation < 1e-9
    for gamma in gammas:
        wanted = plain + fixed + gamma * (draft + verify)
        assert line.step_s(gamma) == pytest.approx(wanted, rel=1e-9)


@given(
    lengths, st.lists(seconds, min_size=5, max_size=5), st.lists(seconds, min_size=5, max_size=5)
)
def test_measured_points_are_exact_and_others_between_their_neighbours(
    gammas: list[int], first: list[float], second: list[float]
) -> None:
    steps = [
        StepTime(gamma, batch, each)
        for batch, times in ((1.0, first), (9.0, second))
        for gamma, each in zip(sorted(gammas), times, strict=False)
    ]
    costs = StepCosts.of(steps)
    for row in steps:
        assert costs.step_s(row.gamma, row.batch) == row.seconds
    for low, high in zip(sorted(gammas), sorted(gammas)[1:], strict=False):
        for gamma in range(low, high + 1):
            corners = [costs.step_s(each, at) for each in (low, high) for at in (1, 9)]
            assert min(corners) * (1 - 1e-12) <= costs.step_s(gamma, 4.0)
            assert costs.step_s(gamma, 4.0) <= max(corners) * (1 + 1e-12)


def test_drafts_and_verification_come_apart_where_both_were_timed() -> None:
    """As of two files of ``vllm bench forward``, one of them with ``--exclude-drafter``."""
    whole = [StepTime(gamma, 16, 10e-3 + gamma * 3e-3) for gamma in (2, 4)]
    alone = [StepTime(gamma, 16, 10e-3 + gamma * 1e-3, draft_s=0.0) for gamma in (2, 4)]
    costs = StepCosts.of([StepTime(0, 16, 10e-3), *whole, *alone])
    line = costs.line(16)
    assert line.draft_run_s == pytest.approx(2e-3)
    assert line.verify_slope_s == pytest.approx(1e-3)
    assert line.fixed_s == pytest.approx(0.0, abs=1e-12)
    assert len(costs.verification) == 2


def test_plain_decoding_with_a_drafter_loaded_is_priced_apart() -> None:
    steps = [
        StepTime(0, 1, 0.010, drafter_loaded=False),
        StepTime(0, 1, 0.025, drafter_loaded=True),
        StepTime(3, 1, 0.030, drafter_loaded=True),
    ]
    costs = StepCosts.of(steps)
    assert costs.plain_s(1) == 0.010
    assert costs.plain_s(1, drafter_loaded=True) == 0.025
    assert costs.relative(3, 1) == pytest.approx(3.0)


def test_one_draft_length_has_a_slope_only_if_the_fixed_cost_is_said() -> None:
    costs = StepCosts.of([StepTime(0, 1, 0.010), StepTime(4, 1, 0.018, draft_s=0.006)])
    with pytest.raises(UnsupportedError, match=r"a slope in K needs two; .*\(fixed_s\)$"):
        costs.line(1)
    line = costs.line(1, fixed_s=0.0)
    assert line.per_draft_s == pytest.approx(0.002)
    assert line.draft_run_s == pytest.approx(0.0015)
    assert line.step_s(2) == pytest.approx(0.014)


def test_batches_without_a_law_have_no_line() -> None:
    steps = [
        *lawful([1, 3], 4, 0.01, 0.002, 0.001, 0.0),
        StepTime(0, 8, 0.02),
        StepTime(3, 8, 0.03),
    ]
    assert [line.batch for line in StepCosts.of(steps).lines()] == [4.0]


def test_a_length_that_was_not_timed_at_a_batch_stops_no_other_there() -> None:
    wide, law = (0.02, 0.004, 0.001, 0.0005), (0.01, 0.002, 0.001, 0.0005)
    costs = StepCosts.of([*lawful([1, 2, 4], 1, *law), *lawful([1, 2], 8, *wide)])
    assert [(line.batch, line.gammas) for line in costs.lines()] == [(1, (1, 2, 4)), (8, (1, 2))]
    assert costs.line(8).step_s(4) == pytest.approx(0.03)
    few = StepCosts.of([*lawful([1, 3, 5], 1, *law), *lawful([1, 3], 8, *wide)])
    assert few.step_s(2, 8) == pytest.approx(0.027)
    with pytest.raises(UnsupportedError, match="5 draft tokens were timed at batch 1, 8 is"):
        few.step_s(4, 8)


def test_one_slope_through_two_lengths_misses_them() -> None:
    """Least squares of 3 and 5 ms at one and three drafts are 1.8 ms a draft."""
    steps = [StepTime(0, 1, 0.010), StepTime(1, 1, 0.013), StepTime(3, 1, 0.015)]
    costs = StepCosts.of(steps)
    assert costs.line(1).deviation == 0
    said = costs.line(1, fixed_s=0.0)
    assert said.per_draft_s == pytest.approx(0.0018)
    assert said.deviation == pytest.approx(0.0012 / 0.013)
    assert StepCosts.of(steps[:2]).line(1, fixed_s=0.0).deviation == 0


def test_rows_of_one_cell_are_weighted_by_their_steps() -> None:
    several = [StepTime(1, 1, 0.01, steps=300), StepTime(1, 1, 0.02, steps=100)]
    assert StepCosts.of(several).step_s(1, 1) == pytest.approx(0.0125)
    uncounted = [*several, StepTime(1, 1, 0.03)]
    assert StepCosts.of(uncounted).step_s(1, 1) == pytest.approx(0.02)
    assert StepCosts.of(uncounted).times[0].steps is None


ROWS = (StepTime(0, 1, 0.01), StepTime(2, 1, 0.02), StepTime(4, 8, 0.03))
COSTS = StepCosts.of(ROWS)

test_what_was_not_timed_is_refused = refuses(
    (lambda: COSTS.step_s(5, 1), "with 5 draft tokens was timed, only .* 4;"),
    (lambda: COSTS.step_s(1, 1), "with 1 draft tokens was timed"),
    (
        lambda: COSTS.step_s(2, 4),
        "2 draft tokens were timed at batch 1, 4 is",
    ),
    (lambda: COSTS.plain_s(2), "plain decoding were timed at batch 1, 2 is"),
    (lambda: COSTS.plain_s(1, True), "with a drafter loaded was timed"),
    (lambda: StepCosts.of(ROWS[1:]).relative(2, 1), "no step of plain decoding"),
    (
        lambda: StepCosts.of([StepTime(0, 1, 1, context=100), StepTime(1, 1, 1, context=900)]),
        "contexts from 100 to 900 tokens",
    ),
    (lambda: StepCosts.of([StepTime(None, 8, 0.5)]), "0.5 s at batch 8 has no draft length"),
    error=UnsupportedError,
)

test_arguments_without_meaning_are_refused = refuses(
    (lambda: StepCosts.of([]), "steps is empty"),
    (lambda: StepCosts.of([StepTime(-1, 1, 1)]), "gamma must be a whole number >= 0, got -1"),
    (lambda: StepCosts.of([StepTime(1, 0, 1)]), "batch of a step must be a number > 0, got 0"),
    (lambda: StepCosts.of([StepTime(1, 1, 0)]), "seconds of a step must be a number > 0"),
    (lambda: StepCosts.of([StepTime(1, 1, np.nan)]), "seconds of a step must be .* got nan"),
    (
        lambda: StepCosts.of([StepTime(1, 1, 1, draft_s=2)]),
        r"draft_s must be in \[0, seconds = 1\)",
    ),
    (lambda: COSTS.step_s(2, -1), "batch must be >= 0, got -1"),
    error=InvalidArgumentError,
)


# ggml-org/llama.cpp pull request #22673, comment of 2026-05-05 (Qwen3.6-35B-A3B MTP, RTX 3060
# Laptop, nine prompts): K, tokens/s, accepted / drafted
LLAMA_CPP_SWEEP = (
    (0, 22.92, 0.0),
    (1, 27.58, 0.8835),
    (2, 29.39, 0.815),
    (3, 27.78, 0.7127),
    (4, 26.09, 0.6421),
)


def test_a_public_sweep_over_k_is_a_line() -> None:
    """Tokens of a call over tokens/s is the step: 43.6, 68.3, 89.5, 113.0, 136.8 ms.

    All blocks are taken to be K long, so a call yields 1 + K accepted / drafted tokens.
    """
    steps = [
        StepTime(gamma, 1, (1 + gamma * rate) / speed) for gamma, speed, rate in LLAMA_CPP_SWEEP
    ]
    np.testing.assert_allclose(
        [row.seconds for row in steps], [0.0436, 0.0683, 0.0895, 0.1130, 0.1368], atol=5e-5
    )
    line = StepCosts.of(steps).line(1)
    assert line.per_draft_s == pytest.approx(0.0229, abs=5e-5)
    assert line.fixed_s == pytest.approx(0.00102, abs=1e-5)
    assert line.deviation < 0.012


def test_a_streamed_chunk_is_a_step() -> None:
    """ITL is S(K), and S(K) over the acceptance length is TPOT, within what is printed."""
    # vllm bench serve, Qwen/Qwen3.8-27B-FP8 with MTP K = 3 (public benchmark notes on GitHub):
    # mean ITL 40.50 ms, acceptance length 3.20, mean TPOT 12.65 ms
    itl_ms, length, tpot_ms = 40.50, 3.20, 12.65
    assert itl_ms / (length + 0.005) - 0.005 < tpot_ms < itl_ms / (length - 0.005) + 0.005
