"""Curves of every kind of drafter go on inside their intervals, in families not seen, too.

Evidence and figures are those of benchmarks/extrapolation_by_drafter.py.  Its curves are fixed, so
those tests have no false alarm; the simulated ones say theirs.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from benchmarks import extrapolation_by_drafter as benchmark
from benchmarks.acceptance_evidence import KNOWN, curves
from benchmarks.extrapolation_by_drafter import Chooser, Judged
from specsim.checks import Floats
from specsim.extrapolation.curve import continued, extrapolate
from specsim.extrapolation.trends import FALLING, LEVEL, RISING, STEEP, Trend

Rows = dict[tuple[str, int], list[Judged]]

DRAFTS = ("embedded draft models at 0, further", "embedded draft models at 1, further")
LOOKUPS = (
    "embedded lookups at 0, further",
    "embedded lookups at 1, further",
    "public lookups, further",
)


# Places of the text of the shipped pair from which eight positions are known.
DRAFTED = 3872


def rows_of(choose: Chooser) -> Rows:
    """Without longer blocks of draft models, which are not for extrapolate to answer."""
    asked = [each for each in benchmark.evidence() if benchmark.trend_of(each.curve)]
    return benchmark.judged(choose, asked)


@pytest.fixture(scope="module")
def held_out() -> Rows:
    return rows_of(benchmark.held_out)


def share(rows: Rows, *categories: str, known: int = 0) -> float:
    """Of later S_i, or where lengths are all there is, of tokens per call."""
    found = [each for category in categories for each in rows[category, known]]
    return benchmark.share(each.held or each.held_tokens for each in found)


def share_of_ratios(rows: Rows, *categories: str, known: int = 0) -> float:
    """Of later S_i / S_n, without what chance did to S_n, which is in both."""
    found = [each for category in categories for each in rows[category, known]]
    return benchmark.share(each.held_ratios for each in found)


@pytest.mark.parametrize("known", KNOWN)
def test_intervals_hold_families_that_were_not_seen(held_out: Rows, known: int) -> None:
    assert 0.9 <= share(held_out, "public heads, further", known=known) <= 0.99
    assert 0.9 <= share(held_out, "public heads, longer", known=known) <= 0.99
    assert 0.9 <= share_of_ratios(held_out, *DRAFTS, known=known) <= 0.99
    # With the chance in S_n, which later positions of a run share, hardly any is missed.
    assert share(held_out, DRAFTS[0], known=known) >= 0.9
    assert share(held_out, DRAFTS[1], known=known) == 1.0


@pytest.mark.parametrize("category", ["public heads, further", *DRAFTS])
def test_intervals_hold_both_kinds_at_both_temperatures(held_out: Rows, category: str) -> None:
    assert 0.9 <= share_of_ratios(held_out, category) <= 0.99
    for known in KNOWN:  # of so few runs nothing is told apart from the level
        low, high = benchmark.as_of_runs(held_out[category, known])
        assert low < 0.9 < high


def test_intervals_hold_what_lookups_do_later(held_out: Rows) -> None:
    assert 0.9 <= share(held_out, *LOOKUPS) <= 0.99
    # Of 24 rates of four public logs of 59 to 993 rounds, three are outside.
    assert share(held_out, LOOKUPS[2]) == pytest.approx(21 / 24)
    # At temperature 1 the first rate of the embedded lookup is 0.12 and the second 0.48: nothing
    # that is known of the others has that in it, so five of seven are outside, of one run.
    assert share(held_out, LOOKUPS[1], known=1) == pytest.approx(2 / 7)


def test_errors_are_not_above_those_of_holding_the_last_rate(held_out: Rows) -> None:
    for category, at_most in {
        "public heads, further": 0.9,
        "public heads, longer": 0.6,
        DRAFTS[0]: 0.6,
        DRAFTS[1]: 0.5,
        LOOKUPS[0]: 0.5,
        LOOKUPS[1]: 1.0,
        LOOKUPS[2]: 0.6,
    }.items():
        error, holding = benchmark.errors(held_out[category, 0])
        assert error <= at_most * holding


def test_what_one_trend_for_every_drafter_was_worth() -> None:
    falling = rows_of(lambda _: replace(FALLING, width=1.0))
    assert share(falling, *DRAFTS, known=1) < 0.05
    assert share(falling, *DRAFTS) < 0.5
    error, holding = benchmark.errors([each for name in DRAFTS for each in falling[name, 0]])
    assert error > 1.3 * holding


def test_where_the_drafter_is_not_said_intervals_hold_heads_and_draft_models() -> None:
    level = rows_of(lambda _: LEVEL)
    for known in KNOWN:
        assert 0.9 <= share(level, "public heads, further", known=known) <= 0.99
        assert share(level, *DRAFTS, known=known) >= 0.9
    assert 0.9 <= share_of_ratios(level, *DRAFTS) <= 0.99
    # A lookup's rates rise more than that from the first one on.
    assert share(level, *LOOKUPS[:2], known=1) < 0.5


@pytest.mark.parametrize("trend", [RISING, STEEP, LEVEL, FALLING], ids=lambda trend: trend.name)
def test_the_shipped_constants_are_those_that_the_evidence_gives(trend: Trend) -> None:
    assert benchmark.without(trend, "") == trend


def test_the_shipped_pair_from_one_position() -> None:
    """What one trend for all said of it at temperature 0: S_8 within 0.000 to 0.021, and 22.9 %
    fewer tokens per call."""
    curve = next(each for each in curves() if each.name == "embedded-cpu/profile.json")
    assert curve.temperature == 0
    assert curve.rates[7] == pytest.approx(0.0963, abs=1e-4)
    tokens = 1 + sum(curve.rates)
    for known, error in ((1, 0.08), (2, 0.03), (3, 0.03)):
        found = extrapolate(curve.rates[:known], 8, DRAFTED, "rising")
        assert found.tokens_per_call == pytest.approx(tokens, rel=error)
        assert 1 + found.low.sum() < tokens < 1 + found.high.sum()
    one = continued(curve.rates[:1], 8, DRAFTED, replace(FALLING, width=1.0))
    assert one.high[7] < 0.03
    assert one.tokens_per_call / tokens - 1 == pytest.approx(-0.229, abs=0.002)


# --- simulated curves --------------------------------------------------------------------------


def simulated(trend: Trend, count: int, length: int, random: np.random.Generator) -> Floats:
    """Conditional rates of curves of a trend, shape (count, length)."""
    depth = trend.depth(np.arange(1.0, length + 1))
    slopes = random.normal(0.0, trend.turn, (count, length - 1))
    slopes[:, 0] = random.normal(trend.slope, trend.spread, count)
    steps = np.diff(depth) * slopes.cumsum(axis=1)
    steps += random.normal(0.0, trend.walk, steps.shape)
    logits = np.repeat(random.uniform(-0.5, 2.0, (count, 1)), length, axis=1)
    logits[:, 1:] += steps.cumsum(axis=1)
    return np.asarray(1 / (1 + np.exp(-logits)))


@pytest.mark.parametrize("known", [1, 2, 3, 5])
@pytest.mark.parametrize("trend", [RISING, STEEP, LEVEL, FALLING], ids=lambda trend: trend.name)
def test_intervals_hold_simulated_curves(trend: Trend, known: int) -> None:
    # 200 curves from the law itself, 2000 blocks each.  S_{n+3} is inside in 0.92 to 0.96 of cases
    # (3,000 of each kind); in 168 of 200 or fewer by chance: at most 1.4e-4.
    random = np.random.default_rng(5)
    inside = 0
    for rates in simulated(trend, 200, known + 3, random):
        truth = np.cumprod(rates)
        law = -np.diff(np.concatenate([[1.0], truth, [0.0]]))
        stopped = random.multinomial(2000, law)
        seen = stopped[::-1].cumsum()[::-1][1:] / 2000
        found = continued(seen[:known], known + 3, 2000, trend)
        inside += bool(found.low[-1] <= truth[-1] <= found.high[-1])
    assert inside > 168
