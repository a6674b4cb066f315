"""The table at the door, prices, choices and their intervals."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from specsim import optimize
from specsim.acceptance import ConstantAcceptance
from specsim.checks import InvalidArgumentError, UnsupportedError
from specsim.cost import Cost, LinearVerify, MeasuredVerify
from specsim.frontier import (
    OPTIMUM,
    BlockPrices,
    Comparison,
    LabelledPositions,
    PositionsError,
    read_positions,
)
from specsim.intervals import DRAWS, Bootstrap
from specsim.optimizers.workload import Workload
from specsim.predict.measured import drift_draws
from specsim.profiles import read_profile
from tests.support.positions import frame, write_positions
from tests.support.profiles import REPEATED, write


@pytest.fixture
def positions(tmp_path: Path) -> LabelledPositions:
    return read_positions(write_positions(tmp_path))


@pytest.mark.parametrize("suffix", [".csv", ".parquet"])
def test_rows_are_grouped_by_request(tmp_path: Path, suffix: str) -> None:
    path = tmp_path / f"p{suffix}"
    given = frame(requests=3, length=2).iloc[[0, 2, 4, 1, 3, 5]]
    given.to_csv(path, index=False) if suffix == ".csv" else given.to_parquet(path)
    read = read_positions(path)
    assert read.starts.tolist() == [0, 2, 4, 6]
    assert read.tv == pytest.approx(frame(requests=3, length=2)["tv"])
    assert read.by_request(np.ones(6)).tolist() == [2, 2, 2]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"tv": None}, "missing column tv"),
        ({"tv": 1.5}, r"tv must be a number in \[0, 1\], got 1.5 in row 0"),
        ({"logp_draft": 0.5}, r"logp_draft must be a number in \[-inf, 0\], got 0.5"),
        ({"target_top_is_label": 0.5}, "target_top_is_label must be"),
        ({"unscaled_draft_max": np.nan}, "unscaled_draft_max must be"),
        ({"Lossy(looseness=0.9).top": None}, r"missing column Lossy\(looseness=0.9\).top"),
    ],
)
def test_bad_files_are_refused(tmp_path: Path, change: dict[str, object], message: str) -> None:
    given = frame()
    for name, value in change.items():
        given = given.drop(columns=name) if value is None else given.assign(**{name: value})
    path = tmp_path / "p.csv"
    given.to_csv(path, index=False)
    with pytest.raises(PositionsError, match=message):
        read_positions(path)


def test_missing_statistics_leave_rules_out(positions: LabelledPositions) -> None:
    """Maxima are there, entropies and distances are not."""
    rules = Comparison.of(positions, "0-1", "unscaled").rules
    assert set(rules) == {"Chow", "Diff", "Opt", "Lossless", "Lossy"}
    assert set(Comparison.of(positions, "0-1", "tempered").rules) == {"Lossless", "Lossy"}


def test_losses(positions: LabelledPositions) -> None:
    draft = positions.losses("sampled")[0]
    assert draft == pytest.approx(1 - np.exp(positions.columns["logp_draft"]))
    assert positions.losses("log")[1] == pytest.approx(-positions.columns["logp_target"])
    assert set(np.unique(positions.losses("0-1"))) == {0.0, 1.0}
    greedy = LabelledPositions(
        positions.starts, {**positions.columns, "logp_draft": np.full(positions.positions, -np.inf)}
    )
    with pytest.raises(PositionsError, match="infinite at 600 of 600 positions"):
        greedy.losses("log")


COST = Cost({"draft": 0.1}, LinearVerify(0.02), overhead=0.05)


@given(st.floats(0, 1))
def test_best_gamma_is_that_of_optimize(rejection: float) -> None:
    """An independent search, where drafting pays; this one has no gamma 0."""
    speed, gamma = BlockPrices.of_cost(COST).speedup(rejection)
    found = optimize(ConstantAcceptance(1 - rejection), c=0.1, verify_slope=0.02, overhead=0.05)
    if found.gamma:
        assert speed == pytest.approx(found.speedup, rel=1e-12)
    else:
        assert speed <= 1
    assert 1 <= gamma <= 64


@given(st.floats(0, 0.99), st.sampled_from([None, 1, 5]))
def test_allowed_rejection_inverts_speedup(rejection: float, gamma: int | None) -> None:
    prices = BlockPrices.of_cost(COST, gamma)
    speed = float(prices.speedup(rejection)[0])
    allowed = prices.allowed_rejection(speed)
    assert allowed is not None
    assert float(prices.speedup(allowed)[0]) == pytest.approx(speed, rel=1e-9)
    assert prices.allowed_rejection(100.0) is None


def test_prices_end_where_verification_was_measured() -> None:
    measured = Cost({"draft": 0.1}, MeasuredVerify((1.0, 1.1, 1.2)))
    assert BlockPrices.of_cost(measured).blocks == pytest.approx([1, 1.2, 1.4])
    with pytest.raises(UnsupportedError, match="5 asked for"):
        BlockPrices.of_cost(measured, gamma=4)
    with pytest.raises(InvalidArgumentError, match="gamma must be a whole number >= 1"):
        BlockPrices.of_cost(measured, gamma=0)


def test_prices_that_were_measured_leave_speedups_open(positions: LabelledPositions) -> None:
    """Beside what requests do; the two in quadrature, as logarithms."""
    known = BlockPrices.of_cost(COST, 4)
    off = np.random.default_rng(1).normal(0.0, 0.05, DRAWS)
    drawn = known.blocks[:, None] * np.exp(np.where(np.arange(5)[:, None] > 0, off, 0.0))
    widths = []
    for prices in (known, BlockPrices(known.blocks, 4, drawn)):
        found = Comparison.of(positions, "0-1", "unscaled", prices).at("Lossless", 0).speedup
        assert found is not None
        assert found.low < found.best < found.high
        widths.append(np.log(found.high / found.low) / 2)
    assert widths[1] == pytest.approx(np.hypot(widths[0], 1.96 * 0.05), rel=0.1)


def test_prices_of_a_profile_are_drawn_with_its_repeats_and_the_drift(tmp_path: Path) -> None:
    path = write(tmp_path)
    profile = read_profile(path)
    (workload,) = Workload.all_of(profile, path, None)
    prices = BlockPrices.of_workload(workload)
    assert prices.drawn is not None
    assert prices.drawn.shape == (profile.gamma_max + 1, DRAWS)
    assert (prices.drawn[0] == 1).all()
    # A profile of one repeat: the drift alone, the same at all lengths.
    off = np.log(prices.drawn[1:] / prices.blocks[1:, None])
    assert off.std() == pytest.approx(profile.drift, rel=0.1)
    assert off == pytest.approx(np.broadcast_to(off[0], off.shape))
    # Repeats that differ are drawn as well.
    profile = read_profile(REPEATED)
    (workload,) = Workload.all_of(profile, REPEATED, 0.0)
    prices = BlockPrices.of_workload(workload)
    assert prices.drawn is not None
    off = np.log(prices.drawn[1:] / prices.blocks[1:, None])
    drift = np.log(drift_draws(profile.drift, DRAWS))
    assert (off - drift).std(axis=1).min() > 0.002


def test_least_rejection_by_search(positions: LabelledPositions) -> None:
    """Against a loop over thresholds."""
    comparison = Comparison.of(positions, "0-1", "unscaled", BlockPrices.of_cost(COST, 4))
    quality = float(comparison.quality(comparison.target_loss))
    choices = comparison.least_rejection(quality)
    gap = positions.columns["unscaled_target_max"] - positions.columns["unscaled_draft_max"]
    draft, target = positions.losses("0-1")
    reached = [
        np.where(gap > t, positions.tv, 0).mean()
        for t in [*gap, -1.0]
        if np.where(gap > t, target, draft).mean() <= comparison.target_loss + 1e-9
    ]
    diff = choices["Diff"]
    assert diff is not None
    assert diff.rejection.best == pytest.approx(min(reached))
    assert diff.gamma == 4
    lossy = choices["Lossy"]
    assert lossy is not None
    assert lossy.setting == "looseness=0.5"
    best = comparison.optimum_rejection(quality)
    assert best is not None
    assert best <= diff.rejection.best
    for choice in (diff, lossy):
        for figure in (choice.quality, choice.rejection, choice.speedup):
            assert figure is not None
            assert figure.low <= figure.best <= figure.high


@pytest.mark.parametrize("of", ["quality", "rejection"])
def test_the_optimum_has_the_intervals_of_its_draws(positions: LabelledPositions, of: str) -> None:
    """Beside requests that are drawn by hand, and the optimum of what comes of them."""
    comparison = Comparison.of(positions, "0-1", "unscaled", BlockPrices.of_cost(COST))
    wanted = {"quality": 0.6, "rejection": 0.1}[of]
    found = comparison.optimum(**{of: wanted})
    assert found is not None
    assert found.rule == OPTIMUM
    bootstrap = Bootstrap(positions.requests, draws=200)
    starts, drawn = positions.starts, []
    for chosen in bootstrap.drawn:
        rows = np.concatenate([np.arange(starts[n], starts[n + 1]) for n in chosen])
        draft, target, tv = (each[rows] for each in (*positions.losses("0-1"), positions.tv))
        # The label is known: what deferring gains for its rejection is deferred first.
        order = np.argsort(-np.where(draft > target, (draft - target) / np.maximum(tv, 1e-300), 0))
        gained = (draft - target)[order].clip(min=0.0)
        paid = np.where(gained > 0, tv[order], 0.0)
        loss = draft.mean() - np.append(0.0, gained.cumsum()) / rows.size
        spent = np.append(0.0, paid.cumsum()) / rows.size
        if of == "rejection":
            drawn.append(1.0 - np.interp(wanted, spent, loss))
        elif loss[-1] <= 1.0 - wanted + 1e-9:
            drawn.append(float(np.interp(-(1.0 - wanted + 1e-9), -loss, spent)))
    figure = found.quality if of == "rejection" else found.rejection
    expected = bootstrap.around(figure.best, np.array(drawn), 0.0, 1.0)
    assert (figure.low, figure.high) == pytest.approx((expected.low, expected.high), abs=1e-6)
    given = found.rejection if of == "rejection" else found.quality
    assert given.low == given.best == given.high == wanted
    assert found.speedup is not None
    assert found.speedup.low <= found.speedup.best <= found.speedup.high
    if of == "quality":
        assert found.rejection.best == comparison.optimum_rejection(wanted)
        assert found.speedup.low < found.speedup.high
        assert comparison.optimum(quality=1.1) is None


def test_best_quality_within_a_speedup(positions: LabelledPositions) -> None:
    comparison = Comparison.of(positions, "0-1", "unscaled", BlockPrices.of_cost(COST))
    prices = comparison.prices
    assert prices is not None
    allowed = prices.allowed_rejection(2.5)
    assert allowed is not None
    for name, choice in comparison.best_quality(2.5).items():
        curve = comparison.rules[name].curve()
        inside = curve.loss[curve.rejection <= allowed + 1e-9]
        if choice is None:
            assert inside.size == 0
        else:
            assert choice.quality.best == pytest.approx(1 - inside.min())
            assert choice.quality.best <= comparison.optimum_quality(allowed) + 1e-9 or (
                name == "Lossy"  # not a deferral rule
            )
    with pytest.raises(InvalidArgumentError, match="needs a price"):
        Comparison.of(positions, "0-1", "unscaled").best_quality(2.0)


def test_infinite_losses_are_never_chosen(positions: LabelledPositions) -> None:
    """Lossy(0.9) gives every label probability zero here."""
    comparison = Comparison.of(positions, "log", "unscaled", BlockPrices.of_cost(COST))
    choices = [comparison.best_quality(1.0)["Lossy"], comparison.least_rejection(-5.0)["Lossy"]]
    assert [choice.setting for choice in choices if choice] == ["looseness=0.5"] * 2


def test_summary(positions: LabelledPositions) -> None:
    comparison = Comparison.of(positions, "0-1", "unscaled")
    summary = comparison.summary((0.5,))
    assert summary[OPTIMUM].regret.best == 0
    widest = positions.tv.mean()
    assert summary[OPTIMUM].within[0].best == pytest.approx(comparison.optimum_quality(widest / 2))
    for name in ("Chow", "Diff", "Opt", "Lossless"):
        assert summary[name].regret.low >= 0
        assert summary[name].regret.low <= summary[name].regret.best <= summary[name].regret.high
    # Half its own rejection does not pay for the target: what is left is the draft.
    alone = float(comparison.quality(comparison.draft_loss))
    assert summary["Lossless"].within[0].best == pytest.approx(alone)


def test_intervals_cover() -> None:
    """95 % intervals of Chow's quality over 200 workloads of 20 requests.

    Below 88 % (176 of 200) by chance is P(Binomial(200, 0.94) < 176) < 1e-3, and an interval over
    positions instead of requests, which act alike within one here, covers some 60 %.
    """
    truth, covered, length = 0.6, 0, 10
    random = np.random.default_rng(5)
    for _ in range(200):
        right = np.repeat(random.uniform(size=20) < truth, length).astype(float)
        columns = {
            "tv": np.full(right.shape, 0.5),
            "target_top_is_label": right,
            "draft_top_is_label": right,
            "logp_target": np.zeros_like(right),
            "logp_draft": np.zeros_like(right),
        }
        table = LabelledPositions(np.arange(21) * length, columns)
        choice = Comparison.of(table, "0-1", "unscaled").at("Lossless", 0)
        covered += choice.quality.low <= truth <= choice.quality.high
    assert covered >= 172


def test_one_request_has_no_interval(tmp_path: Path) -> None:
    path = tmp_path / "p.csv"
    frame(requests=1).to_csv(path, index=False)
    with pytest.raises(UnsupportedError, match="at least two are needed"):
        Comparison.of(read_positions(path), "0-1", "unscaled").summary()
