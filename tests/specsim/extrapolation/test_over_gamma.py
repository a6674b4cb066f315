"""Counts at some draft lengths answer for others: exactly where measured, closely elsewhere."""

from __future__ import annotations

import csv
from collections import defaultdict
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from specsim.acceptance import Acceptance
from specsim.checks import Floats, UnsupportedError
from specsim.counts.drafts import DraftCounts
from specsim.extrapolation import (
    Conditional,
    GapLaw,
    Marginal,
    acceptance_from_counts,
    extrapolate,
)
from specsim.extrapolation.curve import INTERVAL_LEVEL, curve_of_tokens
from specsim.extrapolation.trends import FALLING
from specsim.intervals import normal_quantile
from tests.support.refusals import refuses
from tests.support.traces import trace_of
from tests.support.two_states import two_state_gaps

REFERENCE = Path(__file__).parents[2] / "reference"


def counted(curve: Floats, rounds: float) -> DraftCounts:
    """Counts whose rates are S_1..S_K exactly."""
    reached = rounds * np.asarray(curve)
    gamma, total = reached.size, float(reached.sum())
    return DraftCounts(gamma, rounds, total, rounds * gamma, tuple(reached.tolist()))


def totals(gamma: int, tokens_per_call: float, rounds: float = 2000.0) -> DraftCounts:
    return DraftCounts(gamma, rounds, rounds * (tokens_per_call - 1), rounds * gamma)


# --- what always holds -------------------------------------------------------------------------

falling = st.lists(st.floats(0.02, 0.98), min_size=1, max_size=5).map(
    lambda rates: tuple(np.cumprod(rates).tolist())
)


@settings(max_examples=25)
@given(falling, st.booleans(), st.integers(0, 8), st.sampled_from([None, 50, 5000]))
def test_always_a_survival_curve_within_its_interval(
    rates: tuple[float, ...], heads: bool, gamma: int, rounds: float | None
) -> None:
    found = Marginal(rates, rounds, heads).over_gamma()
    assert isinstance(found, Acceptance)
    curve = found.survival(gamma)
    assert curve.shape == (gamma + 1,)
    assert curve[0] == 1
    assert ((curve >= 0) & (curve <= 1)).all()
    assert (np.diff(curve) <= 0).all()
    assert found.tokens_per_call(gamma)[-1] == curve.sum()
    interval = found.interval(gamma)
    assert 1 <= interval.low <= interval.best <= interval.high <= gamma + 1
    assert bool(found.notes(gamma)) == (gamma not in (0, len(rates)))


@given(falling, st.booleans())
def test_what_was_measured_comes_back(rates: tuple[float, ...], heads: bool) -> None:
    found = Marginal(rates, heads=heads).over_gamma()
    np.testing.assert_allclose(found.survival(len(rates))[1:], rates, rtol=1e-12)
    assert found.model(len(rates)) == "measured"


def test_both_kinds_of_rates_say_the_same() -> None:
    marginal = Marginal((0.8, 0.56, 0.42)).over_gamma()
    conditional = Conditional((0.8, 0.7, 0.75)).over_gamma()
    np.testing.assert_allclose(marginal.tokens_per_call(6), conditional.tokens_per_call(6))


@pytest.mark.parametrize("heads", [False, True])
def test_rates_that_fall_with_the_position_are_cut(heads: bool) -> None:
    # Of 10,000 rounds: no mixture has falling rates, so nothing says that blocks start elsewhere.
    found = Marginal((0.9, 0.45, 0.18), 10_000, heads).over_gamma()
    np.testing.assert_allclose(found.tokens_per_call(3), [1, 1.9, 2.35, 2.53], rtol=5e-3)


@pytest.mark.parametrize("heads", [False, True])
@pytest.mark.parametrize("rate", [0.0, 1.0])
def test_ends(rate: float, heads: bool) -> None:
    found = Marginal((rate,) * 3, 5000, heads).over_gamma().tokens_per_call(6)
    np.testing.assert_allclose(found, 1 + rate * np.arange(7), rtol=2e-3)


@settings(max_examples=15)
@given(
    st.lists(
        st.tuples(st.integers(1, 6), st.sampled_from([1, 40, 2000]), st.floats(0, 1)),
        min_size=1,
        max_size=3,
    ),
    st.booleans(),
)
def test_totals_alone_are_carried_too(
    counted_totals: list[tuple[int, int, float]], heads: bool
) -> None:
    counts = [totals(gamma, 1 + share * gamma, rounds) for gamma, rounds, share in counted_totals]
    found = acceptance_from_counts(counts, heads)
    for gamma in range(8):
        curve = found.survival(gamma)
        assert ((curve >= 0) & (curve <= 1)).all()
        assert (np.diff(curve) <= 0).all()
        interval = found.interval(gamma)
        assert 1 <= interval.low <= interval.best <= interval.high <= gamma + 1


def test_heads_go_on_as_extrapolate_says() -> None:
    rates = (0.7, 0.45, 0.3)
    found = Marginal(rates, 2000).over_gamma()
    wanted = extrapolate(rates, 6, 2000, "falling")
    assert found.model(6) == wanted.model
    np.testing.assert_array_equal(found.survival(6)[1:], wanted.survival)
    assert found.interval(6).low == pytest.approx(1 + wanted.low.sum())
    assert found.interval(6).high == pytest.approx(1 + wanted.high.sum())
    assert Marginal(rates, 2000, heads=False).over_gamma().model(6) == "token mixture"


def test_notes_name_what_was_measured_and_asked() -> None:
    found = Marginal((0.7, 0.45, 0.3), 2000).over_gamma()
    (line,) = found.notes(5)
    assert line.startswith("acceptance was measured at gamma 3; gamma 5 is 2 beyond")
    assert "by the log-odds trend, 90% interval" in line
    (line,) = found.notes(1)
    assert "gamma 1 was not measured: 1.697" in line
    assert "by the token mixture, 90% interval" in line


@pytest.mark.parametrize("first", [0, 1])
def test_totals_beside_positions_are_left_out_aloud(first: int) -> None:
    both = [counted(np.array([0.7, 0.45, 0.3]), 1000), totals(3, 1.5, 8000)]
    found = acceptance_from_counts([both[first], both[1 - first]])
    assert found.counts == (both[0],)
    assert found.notes(3) == (
        "left out: 8,000 rounds at gamma 3 whose positions were not counted, 1.500 tokens per "
        "call; those with positions are used",
    )


@pytest.mark.parametrize(("rate", "low", "high"), [(1.0, 4.4, 5.0), (0.0, 1.0, 1.5)])
def test_rounds_that_were_all_alike_are_not_sure(rate: float, low: float, high: float) -> None:
    """Of twenty with four drafts each, a tenth may have gone otherwise."""
    found = acceptance_from_counts([counted(np.full(4, rate), 20)]).interval(4)
    assert found.low == pytest.approx(low, abs=0.2)
    assert found.high == pytest.approx(high, abs=0.2)
    assert found.high - found.low > 0.3


def test_rates_near_one_are_carried_from_rounds_of_which_some_were_short() -> None:
    count = DraftCounts(3, 1000, 2960, 2960, (1000.0, 1000.0, 960.0))
    found = acceptance_from_counts([count]).interval(2)
    assert 2.5 < found.low <= found.best <= found.high <= 3.0


def test_few_rounds_are_said() -> None:
    (line,) = acceptance_from_counts([counted(np.array([1.0, 0.0]), 1)]).notes(2)
    assert line.startswith("acceptance at gamma 2 was counted in 1 rounds alone: 2.000 tokens")
    assert not Marginal((0.7, 0.45, 0.3)).over_gamma().notes(3)


def test_counts_that_contradict_each_other_are_named() -> None:
    easy, hard = counted(np.array([0.9]), 1000), counted(0.4 ** np.arange(1.0, 6.0), 1000)
    found = acceptance_from_counts([easy, hard])
    assert "1.900 tokens per call at gamma 1 are more than the 1.660" in found.notes(1)[-1]
    assert "tokens per call at gamma 3 are fewer than the 1.900" in found.notes(3)[-1]
    assert "1.660 tokens per call at gamma 5 are fewer than the 1.900" in found.notes(5)[-1]
    # The same rate at both lengths is no contradiction, though chance moves one of them.
    near = counted(0.39 ** np.arange(1.0, 3.0), 1000)
    alike = acceptance_from_counts([near, hard])
    assert not [line for gamma in (0, 2, 5) for line in alike.notes(gamma)]
    assert len(alike.notes(3)) == 1


@pytest.mark.parametrize(
    ("curves", "gamma"),
    [
        ([(1221, 828, 582, 470, 394)], 2),
        ([(1143, 681, 459, 346, 295)], 8),
        ([(1209, 833), (1084, 674, 465, 347, 301)], 3),
    ],
)
def test_counts_whose_bounds_the_simplex_method_does_not_find(
    curves: list[tuple[int, ...]], gamma: int
) -> None:
    rounds = 2000.0
    known = acceptance_from_counts(
        [counted(np.array(each) / rounds, rounds) for each in curves], heads=False
    )
    found = known.interval(gamma)
    assert 1.0 < found.low < found.best < found.high < 1.15 * found.best


def test_drafts_longer_than_any_are_refused() -> None:
    with pytest.raises(UnsupportedError, match="1,000 drafts at most, 1,500 were"):
        acceptance_from_counts([totals(1500, 3.0)])


def test_counts_of_one_length_are_added_up() -> None:
    one = counted(np.array([0.8, 0.6]), 100)
    found = acceptance_from_counts([one, counted(np.array([0.9, 0.7]), 300), totals(0, 1.0)])
    np.testing.assert_allclose(found.survival(2), [1, 0.875, 0.675])
    assert found.measured == (2,)


test_what_says_nothing_is_refused = refuses(
    (lambda: acceptance_from_counts([]), "no round was drafted"),
    (
        lambda: acceptance_from_counts([DraftCounts(None, 10, 5)]),
        "counts of rounds whose draft length varied",
    ),
    (
        lambda: Marginal((0.5,)).over_gamma().survival(1001),
        "carried to 1,000 drafts at most, 1,001 asked for",
    ),
    error=UnsupportedError,
)

test_bad_rates_are_named = refuses(
    (lambda: Marginal((0.5, 0.7)), "marginal must be rates that do not rise"),
    (lambda: Marginal((1.5,)), r"marginal must be in \[0, 1\], got 1.5"),
    (lambda: Conditional(()), "conditional is empty"),
    (lambda: Marginal((0.5,), rounds=0), "rounds must be >= 1, got 0"),
)


# --- accuracy ----------------------------------------------------------------------------------


def embedded_traces() -> dict[tuple[str, float], GapLaw]:
    """By draft and temperature."""
    rows: dict[tuple[str, float], dict[str, list[float]]] = defaultdict(lambda: defaultdict(list))
    with (REFERENCE / "embedded_acceptance.csv").open() as file:
        for row in csv.DictReader(line for line in file if not line.startswith("#")):
            rows[row["draft"], float(row["temperature"])][row["request"]] = [
                int(digits, 36) / 1295 for digits in row["acceptance"].split()
            ]
    return {setting: GapLaw.of_trace(trace_of(*found.values())) for setting, found in rows.items()}


def test_embedded_family_from_one_length_and_from_three() -> None:
    # What an engine would count on these texts at K = 5, and at K = 1, 2, 3, by exact replay.  The
    # estimator was chosen on these and on simulated text, so this guards it rather than judges it;
    # the counts of one model at K = 8 and K = 1 below were not used.
    laws = embedded_traces()
    assert len(laws) == 4
    for law in laws.values():
        wanted = law.tokens_per_call(5)
        five = acceptance_from_counts([counted(law.survival(5)[1:], 1000)], heads=False)
        cut = np.cumsum(law.survival(5))
        for gamma in (1, 2, 3):
            assert five.tokens_per_call(gamma)[-1] == pytest.approx(wanted[gamma], rel=0.02)
            assert cut[gamma] < 0.995 * wanted[gamma]  # cutting is always low, by 1 to 6 %
        short = [counted(law.survival(gamma)[1:], 1000) for gamma in (1, 2, 3)]
        three = acceptance_from_counts(short, heads=False)
        assert three.tokens_per_call(5)[-1] == pytest.approx(wanted[5], rel=0.02)
        assert three.interval(5).low < wanted[5] < three.interval(5).high


def test_text_of_two_kinds() -> None:
    law = GapLaw(two_state_gaps(4000))
    wanted = law.tokens_per_call(16)
    for known, asked in (((5,), (1, 2, 3, 8)), ((1, 2, 3), (5, 8)), ((8,), (1, 3, 16))):
        counts = [counted(law.survival(gamma)[1:], 1e5) for gamma in known]
        found = acceptance_from_counts(counts, heads=False)
        for gamma in asked:
            error = 0.005 if gamma < max(known) else 0.02
            assert found.tokens_per_call(gamma)[-1] == pytest.approx(wanted[gamma], rel=error)
            interval = found.interval(gamma)
            assert interval.low < wanted[gamma] < interval.high


# vllm-project/vllm pull request #48892, comment of 2026-08-03: one multi-layer MTP model, gsm8k,
# temperature 0, 11,043 drafts at K = 8 and 26,407 at K = 1.
EIGHT = (0.7617, 0.6158, 0.5125, 0.4243, 0.3640, 0.3094, 0.2722, 0.2365)
ONE = 0.8339


@pytest.mark.parametrize("heads", [False, True])
def test_one_model_at_eight_and_at_one(heads: bool) -> None:
    found = acceptance_from_counts([counted(np.array(EIGHT), 11_043)], heads)
    tokens = found.tokens_per_call(1)[-1]
    assert tokens == pytest.approx(1.812, abs=1e-3)
    assert tokens == pytest.approx(1 + ONE, rel=0.02)
    assert 1 + EIGHT[0] < 0.97 * (1 + ONE)  # what cutting says


def test_longer_drafts_of_totals_leave_the_slope_open() -> None:
    """As shorter ones do: totals do not tell how rates go on, which positions would."""
    reach = normal_quantile(INTERVAL_LEVEL) * FALLING.spread
    for tokens in (1.4, 2.45, 3.6):
        found = acceptance_from_counts([totals(3, tokens)]).interval(7)
        same = counted(curve_of_tokens(tokens, 3), 2000)
        positions = acceptance_from_counts([same]).interval(7)
        assert found.best == pytest.approx(positions.best)
        assert found.low < positions.low < positions.high < found.high
        for slope in (FALLING.slope - reach, FALLING.slope + reach):
            other = extrapolate(curve_of_tokens(tokens, 3, slope), 7, 2000, "falling").interval(7)
            assert found.low <= other.low <= other.high <= found.high


def test_public_chains_of_heads() -> None:
    # SpecForge's EAGLE-3 chains by their mean acceptance lengths at K = 3, 5, 7 alone.
    chains: dict[tuple[str, ...], dict[int, float]] = defaultdict(dict)
    with (REFERENCE / "acceptance_curves.csv").open() as file:
        for row in csv.DictReader(file):
            if row["kind"] == "length" and "chain" in row["note"]:
                name = tuple(row[column] for column in ("source", "group", "draft", "task"))
                chains[name][int(row["drafted"])] = float(row["value"])
    whole = [chain for chain in chains.values() if set(chain) == {3, 5, 7}]
    assert len(whole) > 60
    for known, asked, error in ((3, 7, 0.02), (3, 5, 0.015), (5, 3, 0.01), (7, 3, 0.012)):
        off, inside = [], []
        for chain in whole:
            found = acceptance_from_counts([totals(known, chain[known])])
            interval = found.interval(asked)
            off.append(abs(interval.best / chain[asked] - 1))
            inside.append(interval.low <= chain[asked] <= interval.high)
        assert np.mean(off) < error
        assert np.mean(inside) > 0.9


def test_of_heads_the_fall_with_depth_is_in_the_interval_of_shorter_drafts() -> None:
    """What vLLM counted of one multi-layer MTP model at K = 8 and at K = 1."""
    # vllm-project/vllm pull request 48892, comment of 2026-08-03
    eight = (0.7617, 0.6158, 0.5125, 0.4243, 0.3640, 0.3094, 0.2722, 0.2365)
    measured = 1.8339
    found = Marginal(eight, rounds=11_043).over_gamma().interval(1)
    assert found.low < measured < found.high
    # Nor is it hidden where some of the positions alone were counted, and what was accepted in all.
    whole = counted(np.array(eight), 11_043)
    part = replace(whole, reached=whole.reached[:3])
    assert acceptance_from_counts([part]).interval(1).high > measured
    # A draft model has no such fall, and its interval is that of mixtures alone.
    text_alone = Marginal(eight, rounds=11_043, heads=False).over_gamma().interval(1)
    assert text_alone.high < measured < found.high
    assert text_alone.low == found.low
