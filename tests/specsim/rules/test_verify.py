"""GenSpecSample on blocks, against the obvious loop and in the corners where samplers break."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from specsim import rules
from specsim.checks import InvalidArgumentError
from specsim.rules import Distributions
from specsim.rules.verify import Verdict, gen_spec_sample, verify
from tests.support.rule_cases import CASES, Case

GAMMA, SIZE = 3, 5


def blocks(
    random: np.random.Generator, count: int, gamma: int = GAMMA, size: int = SIZE
) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """p, q, drafts, coins and draws of so many blocks, some rows equal and some with zeros."""
    p, q = random.dirichlet(np.full(size, 0.5), size=(2, count, gamma + 1))
    equal = random.random((count, gamma + 1)) < 0.3
    q[equal] = p[equal]
    q[random.random(q.shape) < 0.2] = 0
    q[q.sum(axis=-1) == 0] = 1.0
    q /= q.sum(axis=-1, keepdims=True)
    ends = q[:, :gamma].cumsum(axis=-1)
    ends /= ends[..., -1:]
    drafts = (ends <= random.random((count, gamma, 1))).sum(axis=-1)
    return p, q, drafts, random.random((count, gamma)), random.random(count)


def obvious(case: Case, p: np.ndarray, q: np.ndarray, *given: np.ndarray) -> list[tuple[int, int]]:
    """Block after block, position after position."""
    verdicts = []
    for rows_p, rows_q, drafts, coins, draw in zip(p, q, *given, strict=True):
        accepted = 0
        while accepted < len(drafts):
            token = drafts[accepted]
            kept, weights = case.twin(rows_p[accepted].tolist(), rows_q[accepted].tolist())
            if coins[accepted] >= kept[token] / rows_q[accepted, token]:
                if sum(weights) == 0:
                    weights = rows_p[accepted].tolist()
                break
            accepted += 1
        else:
            weights = case.rule.emitted(Distributions(rows_p[-1], rows_q[-1])).tolist()
        ends = np.cumsum(weights)
        verdicts.append((accepted, int(np.searchsorted(ends, draw * ends[-1], side="right"))))
    return verdicts


@pytest.mark.parametrize("case", CASES, ids=str)
@pytest.mark.parametrize("library", ["numpy", "torch"])
def test_verdicts_equal_the_obvious_loop(case: Case, library: str) -> None:
    given = blocks(np.random.default_rng(0), 60)
    to = torch.tensor if library == "torch" else np.asarray
    verdict = verify(case.rule, *(to(array) for array in given))
    assert list(zip(*(part.tolist() for part in verdict), strict=True)) == obvious(case, *given)


@given(st.integers(0, 2**32 - 1), st.integers(1, 200), st.sampled_from(CASES))
def test_the_size_of_the_parts_changes_nothing(seed: int, cells: int, case: Case) -> None:
    given = blocks(np.random.default_rng(seed), 7)
    whole = verify(case.rule, *given)
    parts = verify(case.rule, *given, cells_at_once=cells)
    assert [part.tolist() for part in whole] == [part.tolist() for part in parts]


@pytest.mark.parametrize("case", CASES, ids=str)
def test_a_rule_that_needs_no_draft_for_the_bonus_does_without(case: Case) -> None:
    p, q, *rest = blocks(np.random.default_rng(1), 40)
    if case.rule.bonus_needs_draft:
        with pytest.raises(InvalidArgumentError, match=r"q must have shape \(40, 4, V\)"):
            verify(case.rule, p, q[:, :GAMMA], *rest)
        return
    short, long = verify(case.rule, p, q[:, :GAMMA], *rest), verify(case.rule, p, q, *rest)
    assert [part.tolist() for part in short] == [part.tolist() for part in long]
    assert (short.accepted == GAMMA).any()


def test_without_draft_tokens_the_target_alone_speaks() -> None:
    p, _, _, _, draws = blocks(np.random.default_rng(2), 30, gamma=0)
    nothing = np.empty((30, 0))
    verdict = verify(
        rules.Lossless(), p, np.empty((30, 0, SIZE)), nothing.astype(int), nothing, draws
    )
    assert (verdict.accepted == 0).all()
    expected = (p[:, 0].cumsum(axis=-1) <= draws[:, None]).sum(axis=-1)
    np.testing.assert_array_equal(verdict.token, expected)


def test_equal_distributions_are_accepted_whole_and_impossible_tokens_never() -> None:
    random = np.random.default_rng(3)
    p, _, drafts, _, draws = blocks(random, 50)
    below_one = np.full(drafts.shape, np.nextafter(1.0, 0.0))
    same = verify(rules.Lossless(), p, p, drafts, below_one, draws)
    assert (same.accepted == GAMMA).all()
    hot = np.broadcast_to(np.eye(SIZE)[0], p.shape)
    apart = np.broadcast_to(np.eye(SIZE)[1], p.shape)
    ones = np.ones_like(drafts)
    never = verify(rules.Lossless(), hot, apart, ones, np.zeros(drafts.shape), draws)
    assert never.accepted.tolist() == [0] * 50
    assert never.token.tolist() == [0] * 50


@pytest.mark.parametrize("kind", [torch.float32, torch.float16, torch.bfloat16])
def test_short_types_never_emit_a_token_of_probability_zero(kind: torch.dtype) -> None:
    generator = torch.Generator().manual_seed(0)
    logits = 20 * torch.randn(2, 200, 2, 300, generator=generator)
    p, q = logits.softmax(-1).to(kind)
    drafts = torch.multinomial(q[:, 0].float(), 1, generator=generator)
    for case in CASES:
        coins, draws = torch.rand(200, 1).double(), torch.rand(200).double()
        accepted, token = verify(case.rule, p, q, drafts, coins, draws)
        rows = torch.arange(200)
        possible = (p + q)[rows, accepted, token] > 0
        if isinstance(case.rule, rules.Lossless):
            possible = p[rows, accepted, token] > 0
        assert possible.all()


def test_frequencies_of_a_block_equal_its_law() -> None:
    """100,000 blocks; the cells with fewer than 5 expected are pooled.

    Chi-square at 1e-6: the false-alarm chance of this seeded test is one in a million.
    """
    from scipy.stats import chi2

    random = np.random.default_rng(4)
    rule, count = rules.TokenV3(0.4), 100_000
    p, q = random.dirichlet(np.ones(4), size=(2, 2))
    drafts = random.choice(4, size=(count, 1), p=q[0])
    shape = (count, 2, 4)
    verdict = gen_spec_sample(
        rule, np.broadcast_to(p, shape), np.broadcast_to(q, shape), drafts, random
    )
    seen = np.bincount(
        np.where(verdict.accepted == 1, 4 + 4 * drafts[:, 0], 0) + verdict.token, minlength=20
    )
    rows = Distributions(p, q)
    kept = rule.accepted(rows)[0]
    law = np.concatenate(
        [(1 - kept.sum()) * rule.residual(rows)[0], np.outer(kept, rule.bonus(rows)[1]).ravel()]
    )
    large = law * count >= 5
    expected = np.append(law[large], law[~large].sum()) * count
    found = np.append(seen[large], seen[~large].sum())
    some = expected > 0
    statistic = ((found[some] - expected[some]) ** 2 / expected[some]).sum()
    assert found[~some].sum() == 0
    assert chi2.sf(statistic, some.sum() - 1) > 1e-6


def test_one_block_may_come_alone_and_the_seed_decides() -> None:
    p, q, drafts, _, _ = blocks(np.random.default_rng(5), 1)
    rule = rules.Opt(0.1)
    batch = gen_spec_sample(rule, p, q, drafts, np.random.default_rng(6))
    alone = gen_spec_sample(rule, p[0], q[0], drafts[0], np.random.default_rng(6))
    assert alone == Verdict(batch.accepted[0], batch.token[0])


def test_bad_blocks_are_refused() -> None:
    p, q, drafts, coins, draws = blocks(np.random.default_rng(0), 2)
    rule, rng = rules.Opt(0.1), np.random.default_rng(0)
    for change, message in (
        ({"p": p[:, :-1]}, r"p must have shape \(2, 4, V\) for Opt, got \(2, 3, 5\)"),
        ({"q": q[..., :-1]}, "q must have the vocabulary of p, 5 tokens, got 4"),
        ({"drafts": drafts[:, :, None]}, r"drafts must have shape \(B, gamma\)"),
        ({"coins": coins[:1]}, r"coins must have shape \(2, 3\)"),
        ({"draws": coins}, r"draws must have shape \(2,\)"),
        ({"unscaled_p": p[:1]}, r"unscaled_p must have shape \(2, 4, 5\)"),
    ):
        given = {"p": p, "q": q, "drafts": drafts, "coins": coins, "draws": draws, **change}
        with pytest.raises(InvalidArgumentError, match=message):
            verify(rule, **given)
    for change, message in (
        ({"p": -p}, "p must be >= 0"),
        ({"q": 2 * q}, "q must sum to one"),
        ({"unscaled_q": 2 * q}, "unscaled_q must sum to one"),
        ({"drafts": drafts + 5}, r"drafts must be tokens in \[0, 4\]"),
    ):
        with pytest.raises(InvalidArgumentError, match=message):
            gen_spec_sample(rule, **{"p": p, "q": q, "drafts": drafts, "rng": rng, **change})
