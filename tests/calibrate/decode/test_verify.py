"""The sampler on torch's own generator."""

from __future__ import annotations

import numpy as np
import torch
from scipy.stats import chi2

from calibrate.models.sampling import Sampling
from calibrate.verify import verify
from specsim.rules import Distributions, Lossless, Opt, TokenV3


def test_the_seed_decides() -> None:
    p, q = torch.randn(2, 50, 4, 30, generator=torch.Generator().manual_seed(0)).softmax(-1)
    drafts = torch.randint(30, (50, 3), generator=torch.Generator().manual_seed(1))
    first, second = (
        verify(TokenV3(0.3), p, q, drafts, torch.Generator().manual_seed(2)) for _ in range(2)
    )
    assert torch.equal(first.accepted, second.accepted)
    assert torch.equal(first.token, second.token)
    assert 0 < first.accepted.double().mean() < 3


def test_frequencies_of_the_first_token_equal_the_emitted_law() -> None:
    """200,000 blocks for each rule; chi-square at 1e-6 each, so 3e-6 false alarms in all."""
    generator = torch.Generator().manual_seed(3)
    count, size = 200_000, 6
    p, q = torch.randn(2, 2, size, generator=generator).mul(1.5).softmax(-1)
    drafts = torch.multinomial(q[0], count, replacement=True, generator=generator)[:, None]
    shape = (count, 2, size)
    for rule in (Lossless(), Opt(0.2), TokenV3(0.5)):
        verdict = verify(rule, p.expand(shape), q.expand(shape), drafts, generator)
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
    verdict = verify(Lossless(), p, q[:, :3], drafts, generator)
    choice = p.argmax(-1)
    expected = (choice[:, :3] == drafts).long().cumprod(1).sum(1)
    assert torch.equal(verdict.accepted, expected)
    assert torch.equal(verdict.token, choice[torch.arange(100), expected])
