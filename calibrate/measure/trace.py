"""Traces: text drawn from the target, and what target and draft thought of every token.

One generation by the target and one parallel pass of the draft give everything the exact replay
needs, for every gamma at once.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import torch

from calibrate.decode.engine import CachedModel, DecodeRequest
from calibrate.decode.plain import plain
from calibrate.models.sampling import Sampling
from specsim.rules import Distributions, expected_acceptance
from specsim.traces import LARGEST_RANK

if TYPE_CHECKING:
    import pandas as pd

# First word of every random key, so that no two purposes share random numbers.
TRACE, DECODING, OVERHEAD, OFF_TEXT, LOSSY = 1, 2, 3, 4, 5


def generator(device: torch.device, *key: int) -> torch.Generator:
    """A generator of its own for every request, so that any subset can be made in any order."""
    state = np.random.SeedSequence(key).generate_state(1, np.uint64)[0]
    return torch.Generator(device=device).manual_seed(int(state >> 1))


@torch.inference_mode()
def record(
    target: CachedModel,
    draft: CachedModel,
    number: int,
    request: DecodeRequest,
) -> pd.DataFrame:
    """The trace rows of one request, the ``number``-th (columns of ``specsim.traces``)."""
    import pandas as pd  # the rest of this module is used where there is none

    seen: list[torch.Tensor] = []
    decoded = plain(target, request, seen.append).finish()
    tokens = torch.tensor(decoded.tokens, device=target.device)
    target_logits = torch.cat(seen)
    draft.prefill(request.prompt, request.written)
    text = torch.tensor([[request.text[-1], *decoded.tokens[:-1]]], device=draft.device)
    draft_logits = draft.read(text)
    return pd.DataFrame(
        {
            "request": number,
            "position": np.arange(len(tokens)),
            "context": len(request.text) + np.arange(len(tokens)),
            "token": decoded.tokens,
            **statistics(target_logits, draft_logits, tokens, request.sampling),
        }
    )


def statistics(
    target_logits: torch.Tensor,
    draft_logits: torch.Tensor,
    tokens: torch.Tensor,
    sampling: Sampling,
) -> dict[str, np.ndarray]:
    """Per-position columns from logits of shape (T, V) and the emitted tokens (T,)."""
    p, q = sampling.probabilities(target_logits), sampling.probabilities(draft_logits)
    raw_p, raw_q = target_logits.float().softmax(-1), draft_logits.float().softmax(-1)
    columns = {
        "logp_target": p.gather(1, tokens[:, None])[:, 0].log().clamp(max=0),
        "logp_draft": q.gather(1, tokens[:, None])[:, 0].log().clamp(max=0),
        "beta": expected_acceptance("ratio-test", Distributions(p, q)),
        "target_top": raw_p.amax(-1),
        "draft_top": raw_q.amax(-1),
        "target_entropy": torch.special.entr(raw_p).sum(-1),
        "draft_entropy": torch.special.entr(raw_q).sum(-1),
        "argmax_equal": (target_logits.argmax(-1) == draft_logits.argmax(-1)).to(torch.int8),
        "draft_rank": ranks(draft_logits, tokens).clamp(max=LARGEST_RANK).to(torch.uint8),
    }
    return {name: column.cpu().numpy() for name, column in columns.items()}


def ranks(logits: torch.Tensor, tokens: torch.Tensor) -> torch.Tensor:
    """The rank of one token in each row of logits (T, V), shape (T,), >= 1.

    Rank 1 is the argmax as torch picks it, which is what a greedy draft proposes; then by falling
    logit, equal ones by rising token id.  Temperature, top-k and top-p change none of it.
    """
    tokens = tokens[:, None]
    ids = torch.arange(logits.shape[1], device=logits.device)
    own, top = logits.gather(1, tokens), logits.argmax(-1, keepdim=True)
    ahead = (logits > own) | ((logits == own) & ((ids < tokens) | (ids == top)))
    ahead &= ids != tokens
    found: torch.Tensor = torch.where((tokens == top)[:, 0], 1, 1 + ahead.sum(-1))
    return found
