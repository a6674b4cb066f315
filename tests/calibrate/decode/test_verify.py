"""The sampler on torch's own generator."""

from __future__ import annotations

import numpy as np
import torch
from scipy.stats import chi2

from calibrate.models.sampling import Sampling
from specsim.rules import Distributions, Lossless, Opt, Rule, TokenV3
from specsim.rules.verify import Verdict, verify


def verified(
    rule: Rule, p: torch.Tensor, q: torch.Tensor, drafts: torch.Tensor, random: torch.Generator
) -> Verdict:
    coins = torch.rand(drafts.shape, generator=random, dtype=torch.float64)
    draws = torch.rand(len(drafts), generator=random, dtype=torch.float64)
    return verify(rule, p, q, drafts, coins, draws)


def test_frequencies_of_the_first_token_equal_the_emitted_law() -> None:
    """200,000 blocks for each rule; chi-square at 1e-6 each, so 3e-6 false alarms in all."""
    generator = torch.Generator().manual_seed(3)
    count, size = 200_000, 6
    p, q = torch.randn(2, 2, size, generator=generator).mul(1.5).softmax(-1)
    drafts = torch.multinomial(q[0], count, replacement=True, generator=generator)[:, None]
    shape = (count, 2, size)
    for rule in (Lossless(), Opt(0.2), TokenV3(0.5)):
        verdict = verified(rule, p.expand(shape), q.expand(shape), drafts, generator)
        first = torch.where(verdict.accepted == 1, drafts[:, 0], verdict.token)
        seen = first.bincount(minlength=size).numpy()
        expected = count * rule.emitted(Distributions(p[0].double(), q[0].double())).numpy()
        statistic = float(np.sum((seen - expected) ** 2 / expected))
        assert chi2.sf(statistic, size - 1) > 1e-6


def test_greedy_blocks_from_logits() -> None:
    """At temperature 0 the draft's tokens stand while both argmaxes agree, then the target's."""
    generator = torch.Generator().manual_seed(4)
    logits = torch.randn(2, 100, 4, 3, generator=generator)
    p, q = (Sampling(0.0).probabilities(rows) for rows in logits)
    drafts = q[:, :3].argmax(-1)
    verdict = verified(Lossless(), p, q[:, :3], drafts, generator)
    choice = p.argmax(-1)
    expected = (choice[:, :3] == drafts).long().cumprod(1).sum(1)
    assert torch.equal(verdict.accepted, expected)
    assert torch.equal(verdict.token, choice[torch.arange(100), expected])
