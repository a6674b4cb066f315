"""SpecDec and SpecDec++ (Xia22): a block of k draft tokens from one run, verified in one run.

The drafter is not autoregressive: it reads the text and k masks at once.  SpecDec accepts a draft
token if it is the target's top token, so the text is that of greedy decoding; SpecDec++ accepts
what is near enough to the top.  The first token that is not accepted is replaced by the target's
top token.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import torch

from calibrate.decode.drafters.base import Drafter, Drawing, Rows
from calibrate.decode.engine import CachedModel, Decoding, Request
from calibrate.decode.text import Reader, Text
from calibrate.models.sampling import Sampling
from specsim.checks import UnsupportedError, integer
from specsim.rules import Distributions, GreedyMatch, TopBeta


class MaskDrafter(Drafter):
    """A causal model trained to fill in masks: the row at a mask is for the token there.

    A proposal is one run over what is new in the text and the masks, and takes the top tokens.
    """

    def __init__(self, model: CachedModel, mask: int) -> None:
        self.model, self.mask = model, mask
        self.sources = (model,)

    def begin(self, text: Text) -> None:
        super().begin(text)
        self.reader = text.reader(self.model)

    def propose(self, room: int, drawing: Drawing) -> Rows | None:
        if not drawing.sampling.greedy:
            raise UnsupportedError("a block drafted from masks takes top tokens: temperature 0")
        if not room:
            return None
        start = len(self.text)
        self.text.push_all([self.mask] * room)
        logits = self.reader.catch_up()[-room:]
        self.text.cut(start)
        self.text.push(logits.argmax(-1)[None])
        return drawing.certain(self.text, start)


def specdec(
    target: CachedModel,
    drafter: Drafter,
    prompt: Sequence[int],
    gamma: int,
    max_new_tokens: int,
    rule: GreedyMatch | TopBeta,
    generator: torch.Generator,
    end_of_text: int | None = None,
    bonus: bool = True,
) -> Decoding:
    """Decode one request greedily.

    gamma : k, most draft tokens in a block, >= 0; 0 is plain decoding
    rule : ``GreedyMatch`` is SpecDec, ``TopBeta`` SpecDec++ (eq. 6 and 7) with the target's
        probabilities at temperature 1
    bonus : whether a block accepted whole is followed by the target's next token; without it
        (eq. 4) the target does not read the last draft token
    """
    gamma = integer("gamma", gamma)
    request = Request(prompt, max_new_tokens, end_of_text, target, *drafter.sources)
    text = Text(prompt, len(prompt) + max_new_tokens, target.vocabulary, target.device)
    drafter.begin(text)
    drawing = Drawing(Sampling(0.0), generator, rows=False)
    blocks = _blocks(request, text.reader(target), drafter, drawing, gamma, rule, bonus)
    return Decoding(request, blocks)


@torch.inference_mode()
def _blocks(
    request: Request,
    target: Reader,
    drafter: Drafter,
    drawing: Drawing,
    gamma: int,
    rule: GreedyMatch | TopBeta,
    bonus: bool,
) -> Iterator[None]:
    text = target.text
    while True:
        start = len(text)
        drafter.propose(min(gamma, request.to_go - bonus), drawing)
        draft = text.ids(start)[0].clone()
        length = len(draft)
        if length and not bonus:
            text.cut(start + length - 1)
        logits = target.catch_up()
        count = _accepted(rule, logits[:length], draft)
        text.cut(start + count)
        if count < len(logits):
            text.push(logits[count].argmax()[None, None])
        else:
            text.push(draft[None, -1:])
        request.emit(text.tokens()[start:], count, length)
        yield


def _accepted(rule: GreedyMatch | TopBeta, logits: torch.Tensor, draft: torch.Tensor) -> int:
    """How many of n draft tokens are accepted, before logits (n, V)."""
    p = logits.float().softmax(-1)
    # The draft is sure of its tokens.
    q = torch.zeros_like(p).scatter_(1, draft[:, None], 1.0)
    accepted = rule.accepted_at(Distributions(p, q), draft) > 0
    return int(accepted.cumprod(0).sum())
