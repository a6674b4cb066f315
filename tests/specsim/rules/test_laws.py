"""What each rule emits, against a slow twin and against what its sampler does."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from specsim import rules
from specsim.checks import Floats, SpecsimError
from specsim.rules import Distributions
from specsim.rules.verify import draw, verify
from tests.support.refusals import refuses
from tests.support.rule_cases import CASES, Case, adversarial, emitted, pairs

BELOW_ONE = np.nextafter(1.0, 0.0)
everywhere = pytest.mark.parametrize("case", CASES, ids=str)


@everywhere
def test_emitted_law_and_acceptance_equal_the_twin(case: Case) -> None:
    p, q = adversarial()
    rows = Distributions.checked(p, q)
    law, acceptance = case.rule.emitted(rows), case.rule.acceptance(rows)
    for row in range(len(p)):
        beta, expected = emitted(case, p[row].tolist(), q[row].tolist())
        np.testing.assert_allclose(law[row], expected, rtol=0, atol=1e-12)
        assert acceptance[row] == pytest.approx(min(beta, 1), abs=1e-12)


@given(pairs(), st.sampled_from(CASES))
def test_emitted_law_equals_the_twin_on_random_rows(
    pair: tuple[Floats, Floats], case: Case
) -> None:
    p, q = pair
    law = case.rule.emitted(Distributions(p, q))
    # A threshold met to the last digit may fall either way; then either law is right.
    nudged = [p, p * (1 + 1e-13 * np.arange(len(p))), p * (1 - 1e-13 * np.arange(len(p)))]
    expected = [emitted(case, row.tolist(), q.tolist())[1] for row in nudged]
    assert min(np.abs(law - row).max() for row in expected) < 1e-12


@everywhere
def test_law_of_a_large_vocabulary_equals_the_twin(case: Case) -> None:
    random = np.random.default_rng(1)
    p, q = random.dirichlet(np.full(152_064, 0.05), size=2)
    beta, expected = emitted(case, p.tolist(), q.tolist())
    rows = Distributions.checked(p, q)
    np.testing.assert_allclose(case.rule.emitted(rows), expected, rtol=0, atol=1e-12)
    assert case.rule.acceptance(rows) == pytest.approx(beta, abs=1e-12)


@everywhere
def test_one_token_is_always_emitted_from_a_vocabulary_of_one(case: Case) -> None:
    rows = Distributions(np.ones((3, 1)), np.ones((3, 1)))
    np.testing.assert_array_equal(case.rule.emitted(rows), np.ones((3, 1)))


@everywhere
@pytest.mark.parametrize("library", ["numpy", "torch"])
def test_law_of_the_sampler_is_the_emitted_law(case: Case, library: str) -> None:
    """The sampler's own law, found by halving the uniform numbers that it takes."""
    p, q = adversarial()
    size = p.shape[1]
    drafts = np.tile(np.arange(size), len(p))
    rows_p, rows_q = np.repeat(p, size, axis=0), np.repeat(q, size, axis=0)
    to = torch.asarray if library == "torch" else np.asarray

    def positions(index: np.ndarray, coins: Floats, draws: Floats) -> tuple[np.ndarray, np.ndarray]:
        rows = (to(np.repeat(row[index, None], 2, axis=1)) for row in (rows_p, rows_q))
        given = (to(drafts[index, None]), to(coins[:, None]), to(draws))
        accepted, token = verify(case.rule, *rows, *given)
        return np.asarray(accepted) == 1, np.asarray(token)

    everyone = np.arange(len(drafts))
    half = np.full(len(drafts), 0.5)
    chance = last_true(lambda coin: positions(everyone, coin, half)[0], len(drafts))
    assert (chance[rows_q[everyone, drafts] == 0] == 0).all()
    # Where the coin just below one rejects: the recovered token's cumulative distribution.
    rejected = np.flatnonzero(chance < BELOW_ONE)
    index, tokens = np.repeat(rejected, size), np.tile(np.arange(size), len(rejected))
    ones = np.full(len(index), BELOW_ONE)
    reach = last_true(lambda u: positions(index, ones, u)[1] <= tokens, len(index))
    recovered = np.zeros((len(drafts), size))
    recovered[rejected] = np.diff(reach.reshape(-1, size), axis=1, prepend=0.0)

    weight = q.ravel()
    law = (weight * chance)[:, None] * np.eye(size)[drafts]
    law += (weight * (1 - chance))[:, None] * recovered
    law = law.reshape(len(p), size, size).sum(axis=1)
    np.testing.assert_allclose(law, case.rule.emitted(Distributions(p, q)), rtol=0, atol=1e-12)


def last_true(holds: object, count: int) -> Floats:
    """For each of ``count`` conditions that hold up to some uniform number: up to which one."""
    low, high = np.zeros(count), np.ones(count)
    for _ in range(54):
        middle = (low + high) / 2
        true = holds(np.minimum(middle, BELOW_ONE))  # type: ignore[operator]
        low, high = np.where(true, middle, low), np.where(true, high, middle)
    return np.where(high == 1, 1.0, np.where(low == 0, 0.0, (low + high) / 2))


def test_draws_from_a_large_vocabulary_change_token_at_the_cumulative_sums() -> None:
    random = np.random.default_rng(3)
    weights = random.dirichlet(np.full(152_064, 0.2))
    weights[random.random(152_064) < 0.3] = 0
    ends = np.cumsum(weights.astype(np.longdouble))
    ends = (ends / ends[-1]).astype(np.float64)
    chosen = np.sort(random.choice(np.flatnonzero(np.diff(ends) > 1e-9), 64))
    rows = np.broadcast_to(weights, (64, weights.size))
    np.testing.assert_array_less(draw(rows, ends[chosen] - 1e-12), chosen + 1)
    np.testing.assert_array_less(chosen, draw(rows, ends[chosen] + 1e-12))


@given(st.integers(0, 2**32 - 1))
def test_draws_never_pick_a_token_of_weight_zero(seed: int) -> None:
    random = np.random.default_rng(seed)
    size = random.integers(1, 600)
    weights = random.random((4, size)) * (random.random((4, size)) < 0.02)
    weights[:, random.integers(size)] = random.choice([1e-300, 1e-38, 1.0])
    for uniform in (0.0, 0.3, BELOW_ONE):
        for kind in (np.float64, np.float32):
            row = np.maximum(weights.astype(kind), np.float32(1e-45) * (weights > 0)).astype(kind)
            token = draw(row, np.full(4, uniform))
            assert (row[np.arange(4), token] > 0).all()


def test_a_draw_that_rounds_to_the_end_of_its_row_takes_the_last_entry_with_weight() -> None:
    """The smallest number, less a half of its last digit, is itself again."""
    weights = 5e-324 * np.eye(4, 6, 1)
    below_one = np.full(4, BELOW_ONE)
    assert (below_one * 5e-324 == 5e-324).all()
    assert draw(weights, below_one).tolist() == [1, 2, 3, 4]


@given(pairs())
def test_emitted_law_is_pi_iff_pi_sums_to_one(pair: tuple[Floats, Floats]) -> None:
    rows = Distributions(*pair)
    for case in CASES:
        if isinstance(case.rule, rules.LenientRedraw):
            continue  # not of Algorithm 4's form
        pi, m = case.rule.pi(rows), case.rule.emitted(rows)
        excess = abs(pi.sum() - 1)
        assert np.abs(pi - m).sum() == pytest.approx(0, abs=1e-12) or excess > 1e-13
        assert np.abs(pi - m).sum() >= excess - 1e-12
        if case.rule.sums_to_one:
            assert excess < 1e-12


@given(pairs(), st.sampled_from(CASES))
def test_accepted_at_one_token_equals_the_whole_row(
    pair: tuple[Floats, Floats], case: Case
) -> None:
    p, q = pair
    tokens = np.arange(len(p))
    rows = Distributions(np.tile(p, (len(p), 1)), np.tile(q, (len(p), 1)))
    np.testing.assert_allclose(
        case.rule.accepted_at(rows, tokens),
        np.diagonal(case.rule.accepted(rows)),
        rtol=1e-12,
        atol=1e-15,
    )


@everywhere
def test_accepted_at_every_token_equals_the_rows_of_any_leading_shape(case: Case) -> None:
    p, q = (rows[:16].reshape(2, 4, 2, -1) for rows in adversarial())
    rows = Distributions(p, q)
    whole = case.rule.accepted(rows)
    for token in range(p.shape[-1]):
        found = case.rule.accepted_at(rows, np.full(p.shape[:-1], token))
        np.testing.assert_allclose(found, whole[..., token], rtol=1e-12, atol=1e-15)


def test_what_nobody_can_emit_does_not_change_a_solved_scale() -> None:
    """Of b: where the draft is the target and nothing is rejected it is one."""
    same = np.array([0.0, 0.5, 0.5])
    assert rules.LossyStar(0.3).inverse_scale(Distributions(same, same)) == 1.0


@everywhere
def test_torch_and_numpy_agree_for_any_leading_shape(case: Case) -> None:
    p, q = (rows[:16].reshape(2, 4, 2, -1) for rows in adversarial())
    ours, theirs = Distributions(p, q), Distributions(torch.tensor(p), torch.tensor(q))
    for name in ("pi", "accepted", "acceptance", "residual", "emitted", "bonus"):
        expected = getattr(case.rule, name)(ours)
        found = getattr(case.rule, name)(theirs)
        assert isinstance(found, torch.Tensor)
        np.testing.assert_allclose(found.numpy(), expected, rtol=0, atol=1e-14)


@everywhere
@pytest.mark.parametrize("kind", [torch.float32, torch.float16, torch.bfloat16])
def test_short_types_become_rows_that_sum_to_one(case: Case, kind: torch.dtype) -> None:
    logits = torch.tensor(np.random.default_rng(0).normal(size=(2, 3, 5000)))
    p, q = logits.softmax(-1).to(kind)
    rows = Distributions.checked(p, q)
    law = case.rule.emitted(rows)
    assert law.dtype == torch.float32
    if not case.rule.sums_to_one and not isinstance(case.rule, rules.Lossy):
        return
    # 5000 roundings of float32.
    assert law.sum(-1).tolist() == pytest.approx([1.0] * 3, abs=1e-5)


def test_half_precision_of_numpy_is_accepted() -> None:
    p = np.full((2, 3000), 1 / 3000, dtype=np.float16)
    assert p.astype(np.float32).sum(axis=-1) != pytest.approx(1, abs=1e-5)
    rows = Distributions.checked(p, p)
    assert rules.Lossless().emitted(rows).sum(axis=-1) == pytest.approx(1, abs=1e-5)


def test_ties_at_temperature_zero_go_to_the_first_token() -> None:
    p, q = np.array([0.1, 0.45, 0.45]), np.array([0.1, 0.4, 0.5])
    assert rules.GreedyMatch().emitted(Distributions(p, q)).tolist() == pytest.approx([0, 1, 0])


def test_decisions_on_unscaled_rows_emit_the_tempered_ones() -> None:
    hot_p, hot_q = np.array([1.0, 0, 0]), np.array([0, 1.0, 0])
    raw_p, raw_q = np.array([0.5, 0.3, 0.2]), np.array([0.3, 0.4, 0.3])
    rows = Distributions(hot_p, hot_q, raw_p, raw_q)
    for rule, deferred in ((rules.Diff(0.05), True), (rules.Diff(0.15), False)):
        unscaled = type(rule)(rule.threshold, decide_on="unscaled")
        assert bool(unscaled.defer(rows)) is deferred
        np.testing.assert_array_equal(unscaled.emitted(rows), hot_p if deferred else hot_q)
        assert not rule.defer(rows)


HALF = np.full((2, 2), 0.5)


test_bad_input_is_one_clear_error = refuses(
    (lambda: Distributions(HALF, HALF[:1]), r"q must have the shape of p, \(2, 2\), got"),
    (lambda: Distributions(np.ones(()), np.ones(())), "p must have shape"),
    (lambda: Distributions(np.ones((2, 0)), np.ones((2, 0))), "p must have shape"),
    (lambda: Distributions([0.5, 0.5], HALF), "p must be an array of NumPy or PyTorch"),
    (lambda: Distributions(np.array([1, 0]), HALF[0]), "p must hold floating-point"),
    (lambda: Distributions.checked(HALF, 0.9 * HALF), "q must sum to one .* got 0.9"),
    (lambda: Distributions.checked(HALF * np.nan, HALF), "p must be >= 0 everywhere, got nan"),
    (
        lambda: Distributions.checked(HALF, HALF, HALF, np.array([[-0.5, 1.5]] * 2)),
        "unscaled_q must be >= 0 everywhere, got -0.5",
    ),
    (lambda: rules.Lenient(1.5), r"lenience must be in \[0, 1\], got 1.5"),
    (lambda: rules.LenientScaledResidual(-0.1), "lenience must be"),
    (lambda: rules.LenientRedraw(float("nan")), "lenience must be"),
    (lambda: rules.Lossy(1.0), r"looseness must be in \[0, 1\), got 1"),
    (lambda: rules.Lossy(0.2, 0.5), "scale must be >= 0.8, got 0.5"),
    (lambda: rules.LossyStar(-1), "looseness must be >= 0, got -1"),
    (lambda: rules.Chow(1.2), r"threshold must be in \[0, 1\], got 1.2"),
    (lambda: rules.ChowLog(-1), "threshold must be >= 0, got -1"),
    (lambda: rules.Diff(2), r"threshold must be in \[-1, 1\], got 2"),
    (lambda: rules.DiffLog(float("inf")), "threshold must be finite, got inf"),
    (lambda: rules.Opt(float("nan")), "threshold must be finite, got nan"),
    (lambda: rules.OptLog(float("inf")), "threshold must be finite"),
    (lambda: rules.BildStar(-0.1), "threshold must be >= 0"),
    (lambda: rules.BildStar(1, "cosine"), "distance must be one of greedy, expectation"),
    (lambda: rules.TokenV1(-2), "threshold must be"),
    (lambda: rules.TokenV2(2), "threshold must be"),
    (lambda: rules.TokenV3(-0.1), r"threshold must be in \[0, 1\]"),
    (lambda: rules.TopBeta(0, 1), "beta must be a whole number >= 1, got 0"),
    (lambda: rules.TopBeta(2, -1), "tau must be >= 0, got -1"),
    (lambda: rules.GreedyLenient(2), "lenience must be"),
    (lambda: rules.Custom("p"), "function must take p and q and return pi"),
    (
        lambda: rules.Custom(lambda p, q: p[0]).pi(Distributions(HALF, HALF)),
        r"function must return an array of shape \(2, 2\)",
    ),
    (lambda: rules.Diff(0, decide_on="raw"), "decide_on must be one of tempered, unscaled"),
    (
        lambda: rules.Diff(0, decide_on="unscaled").defer(Distributions(HALF, HALF)),
        "Diff decides on unscaled rows: give unscaled_q",
    ),
    error=SpecsimError,
)


def test_every_rule_is_listed_and_tried() -> None:
    tried = {type(case.rule) for case in CASES}
    assert set(rules.RULES.values()) == tried
    assert all(rule.__name__ == name for name, rule in rules.RULES.items())
