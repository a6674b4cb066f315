"""Speculative decoding (Leviathan23 Alg 1) with one draft model and key-value caches.

Each block: the draft proposes up to gamma tokens, one run each; the target reads the last
emitted token and the proposal in one run; the longest accepted prefix is kept, then comes a
recovered token (drawn from norm(max(0, p - q))) or, after full acceptance, a bonus token.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import torch

from calibrate.decode.engine import CachedModel, Decoding, Request
from calibrate.sampling import Sampling


def speculative(
    target: CachedModel,
    draft: CachedModel,
    prompt: Sequence[int],
    gamma: int,
    max_new_tokens: int,
    sampling: Sampling,
    generator: torch.Generator,
    end_of_text: int | None = None,
) -> Decoding:
    """Decode one request.  A block never drafts past ``max_new_tokens``."""
    request = Request(prompt, max_new_tokens, end_of_text, target, draft)
    blocks = _blocks(request, target, draft, prompt[-1], gamma, sampling, generator)
    return Decoding(request, blocks)


@torch.inference_mode()
def _blocks(
    request: Request,
    target: CachedModel,
    draft: CachedModel,
    last: int,
    gamma: int,
    sampling: Sampling,
    generator: torch.Generator,
) -> Iterator[None]:
    # What each model has still to read: the last token, and for the draft also its own last
    # proposal when that was accepted, since drafting never reads it.
    unread = latest = torch.tensor([[last]], device=target.device)
    while True:
        length = min(gamma, request.to_go - 1)
        proposal, q = _propose(draft, unread, length, sampling, generator)
        logits = target.read(torch.cat([latest, *proposal], dim=1))
        block, count = _verify(logits, proposal, q, sampling, generator)
        latest = block[:, -1:]
        target.forget(length - count)
        if count == length:
            unread = block[:, -2:]
        else:
            draft.forget(length - 1 - count)
            unread = latest
        request.emit(block[0].tolist(), count, length)
        yield


def _propose(
    draft: CachedModel,
    unread: torch.Tensor,
    length: int,
    sampling: Sampling,
    generator: torch.Generator,
) -> tuple[list[torch.Tensor], list[torch.Tensor]]:
    """``length`` tokens of shape (1, 1), and the distribution (V,) that each was drawn from."""
    proposal: list[torch.Tensor] = []
    q: list[torch.Tensor] = []
    for _ in range(length):
        logits = draft.read(unread)[-1:]
        if sampling.greedy:
            unread = logits.argmax(dim=-1, keepdim=True)
        else:
            row = sampling.probabilities(logits)
            unread = torch.multinomial(row, 1, generator=generator)
            q.append(row)
        proposal.append(unread)
    return proposal, q


def _verify(
    logits: torch.Tensor,
    proposal: list[torch.Tensor],
    q: list[torch.Tensor],
    sampling: Sampling,
    generator: torch.Generator,
) -> tuple[torch.Tensor, int]:
    """The block's tokens, shape (1, accepted + 1), and how many draft tokens were accepted."""
    length = len(proposal)
    if sampling.greedy:
        choice = logits.argmax(dim=-1)[None]
        if not length:
            return choice, 0
        equal = choice[:, :length] == torch.cat(proposal, dim=1)
        count = int(equal.cumprod(dim=1).sum())
        return choice[:, : count + 1], count
    p = sampling.probabilities(logits)
    count = 0
    if length:
        drafts = torch.cat(proposal, dim=1)
        drawn = torch.cat(q)
        ratio = p[:length].gather(1, drafts.T) / drawn.gather(1, drafts.T)
        draws = torch.rand((length, 1), generator=generator, device=p.device)
        count = int((draws < ratio).cumprod(dim=0).sum())
    last = p[count : count + 1]
    if count < length:
        residual = (last - drawn[count : count + 1]).clamp_(min=0)
        # p = q up to rounding leaves nothing to recover from; then p itself is the answer.
        last = torch.where(residual.sum() > 0, residual, last)
    token = torch.multinomial(last, 1, generator=generator)
    return torch.cat([drafts[:, :count], token], dim=1) if length else token, count
