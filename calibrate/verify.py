"""Verification of draft tokens on the device of the logits, for any rule of ``specsim.rules``."""

from __future__ import annotations

import torch

from specsim.rules import Rule
from specsim.rules.verify import CELLS_AT_ONCE, Verdict
from specsim.rules.verify import verify as verify_given

# A GPU is busy only with many rows at once: 128 MiB of float32 for each array in hand.
_CELLS_AT_ONCE_ON_GPU = 2**25


@torch.inference_mode()
def verify(
    rule: Rule,
    p: torch.Tensor,
    q: torch.Tensor,
    drafts: torch.Tensor,
    generator: torch.Generator,
    unscaled_p: torch.Tensor | None = None,
    unscaled_q: torch.Tensor | None = None,
) -> Verdict:
    """GenSpecSample for B blocks of gamma draft tokens, without waiting for the device.

    p (B, gamma + 1, V), q (B, gamma + 1 or gamma, V) and drafts (B, gamma) as in
    ``specsim.rules.verify.verify``; ``generator`` lives on their device.  Returns the number of
    accepted tokens and the recovered or bonus token, (B,) each, on that device.  Values are not
    checked, since a look at them would wait for the device.
    """
    device = p.device
    coins = torch.rand(drafts.shape, generator=generator, dtype=torch.float64, device=device)
    draws = torch.rand(len(drafts), generator=generator, dtype=torch.float64, device=device)
    cells = CELLS_AT_ONCE if device.type == "cpu" else _CELLS_AT_ONCE_ON_GPU
    return verify_given(rule, p, q, drafts, coins, draws, unscaled_p, unscaled_q, cells)
