"""Traces: text drawn from the target, and what target and draft thought of every token.

One generation by the target and one parallel pass of the draft give everything the exact replay
needs, for every gamma at once.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import numpy as np
import torch

from calibrate.decode.drafters.copying import PromptLookup
from calibrate.decode.engine import CachedModel, DecodeRequest
from calibrate.decode.plain import plain
from calibrate.models.sampling import Sampling
from specsim.rules import Distributions, expected_acceptance
from specsim.traces import LARGEST_RANK

if TYPE_CHECKING:
    import pandas as pd

# Positions that are looked at together.
_ROWS = 64
# First word of every random key, so that no two purposes share random numbers.
TRACE, DECODING, OVERHEAD, OFF_TEXT, LOSSY = 1, 2, 3, 4, 5


def generator(device: torch.device, *key: int) -> torch.Generator:
    """A generator of its own for every request, so that any subset can be made in any order."""
    state = np.random.SeedSequence(key).generate_state(1, np.uint64)[0]
    return torch.Generator(device=device).manual_seed(int(state >> 1))


@torch.inference_mode()
def record(
    target: CachedModel,
    draft: CachedModel | PromptLookup,
    number: int,
    request: DecodeRequest,
) -> pd.DataFrame:
    """The trace rows of one request, the ``number``-th (columns of ``specsim.traces``)."""
    import pandas as pd  # the rest of this module is used where there is none

    seen: list[torch.Tensor] = []
    decoded = plain(target, request, seen.append).finish()
    tokens = torch.tensor(decoded.tokens, device=target.device)
    target_logits = torch.cat(seen)
    if isinstance(draft, PromptLookup):
        columns = lookup_statistics(target_logits, draft, request, decoded.tokens)
    else:
        draft.prefill(request.prompt, request.written)
        text = torch.tensor([[request.text[-1], *decoded.tokens[:-1]]], device=draft.device)
        draft_logits = draft.read(text)
        columns = in_slices(
            len(tokens),
            lambda rows: statistics(
                target_logits[rows], draft_logits[rows], tokens[rows], request.sampling
            ),
        )
    return pd.DataFrame(
        {
            "request": number,
            "position": np.arange(len(tokens)),
            "context": len(request.text) + np.arange(len(tokens)),
            "token": decoded.tokens,
            **columns,
        }
    )


def lookup_statistics(
    target_logits: torch.Tensor, drafter: PromptLookup, request: DecodeRequest, tokens: list[int]
) -> dict[str, np.ndarray]:
    """Per-position columns from logits of shape (T, V) and the T emitted tokens, where every
    position is the start of a block that drafts all that is found, up to the request's limit.
    """
    text, before = request.text + tokens, len(request.text)
    starts = range(before, len(text))
    drafts = [drafter.found(text[:start], request.limit) for start in starts]
    matched = [_matched(found, text[at:]) for at, found in zip(starts, drafts, strict=True)]
    first = np.array([found[0] if found else -1 for found in drafts])
    stood = np.where(np.array(matched) > 0, 0.0, -np.inf)
    top = target_logits.argmax(-1).cpu().numpy()

    def of_target(rows: slice) -> dict[str, np.ndarray]:
        p = request.sampling.probabilities(target_logits[rows]).cpu()
        raw = target_logits[rows].float().softmax(-1).cpu()
        each, proposed = np.arange(len(p)), first[rows]
        return {
            "logp_target": p[each, tokens[rows]].log().clamp(max=0).numpy(),
            "logp_draft": stood[rows],
            "beta": np.where(proposed >= 0, p.numpy()[each, proposed], 0.0),
            "target_top": raw.amax(-1).numpy(),
            "target_entropy": torch.special.entr(raw).sum(-1).numpy(),
            "argmax_equal": (top[rows] == proposed).astype(np.int8),
        }

    return {
        **in_slices(len(tokens), of_target),
        "found": np.array([len(found) for found in drafts], dtype=np.int32),
        "matched": np.array(matched, dtype=np.int32),
    }


def in_slices(
    rows: int, columns: Callable[[slice], dict[str, np.ndarray]]
) -> dict[str, np.ndarray]:
    """Columns of so many rows, some rows at a time: of a vocabulary of 200,000 tokens each row is a
    megabyte, several times over.
    """
    parts = [columns(slice(start, start + _ROWS)) for start in range(0, rows, _ROWS)]
    return {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}


def _matched(drafts: list[int], text: list[int]) -> int:
    """How many drafts, from the first on, the text goes on with."""
    equal = [draft == token for draft, token in zip(drafts, text, strict=False)]
    return [*equal, False].index(False)


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
