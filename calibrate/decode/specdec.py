"""SpecDec and SpecDec++ (Xia22): a block of k draft tokens from one run, verified in one run.

The drafter is not autoregressive: it reads the text and k masks at once.  SpecDec accepts a draft
token if it is the target's top token, so the text is that of greedy decoding; SpecDec++ accepts
what is near enough to the top.  The first token that is not accepted is replaced by the target's
top token.
"""

from __future__ import annotations

from collections.abc import Iterator

import torch

from calibrate.decode.drafters.base import Drafter
from calibrate.decode.drawing import Drawing
from calibrate.decode.engine import CachedModel, DecodeRequest, Decoding, RequestState
from calibrate.decode.text import Reader, Text
from specsim.checks import integer
from specsim.rules import Distributions, GreedyMatch, Rule, TopBeta
from specsim.rules.verify import leading


def specdec(
    target: CachedModel,
    drafter: Drafter,
    request: DecodeRequest,
    gamma: int,
    rule: GreedyMatch | TopBeta,
    bonus: bool = True,
) -> Decoding:
    """Decode one request, at temperature 0.

    gamma : k, most draft tokens in a block, >= 0; 0 is plain decoding
    rule : ``GreedyMatch`` is SpecDec, ``TopBeta`` SpecDec++ (eq. 6 and 7) with the target's
        probabilities at temperature 1
    bonus : whether a block accepted whole is followed by the target's next token; without it
        (eq. 4) the target does not read the last draft token
    """
    request.require_greedy("SpecDec")
    gamma = integer("gamma", gamma)
    state = RequestState(request, target, *drafter.sources)
    text = Text.of(request, target)
    drafter.begin(text)
    return Decoding(state, _blocks(state, text.reader(target), drafter, gamma, rule, bonus))


@torch.inference_mode()
def _blocks(
    state: RequestState,
    target: Reader,
    drafter: Drafter,
    gamma: int,
    rule: GreedyMatch | TopBeta,
    bonus: bool,
) -> Iterator[None]:
    text = target.text
    drawing = Drawing(state.request.sampling, state.request.random, rows=False)
    while True:
        start = len(text)
        drafter.propose(min(gamma, state.to_go - bonus), drawing)
        draft = text.ids(start)[0].clone()
        length = len(draft)
        if length and not bonus:
            text.cut(start + length - 1)
        logits = target.catch_up()
        count = accepted_tokens(rule, logits[:length], draft)
        text.cut(start + count)
        if count < len(logits):
            text.push(logits[count].argmax()[None, None])
        else:
            text.push(draft[None, -1:])
        state.emit(text.tokens()[start:], count, length)
        yield


def accepted_tokens(rule: Rule, logits: torch.Tensor, draft: torch.Tensor) -> int:
    """How many of n draft tokens are accepted, before logits (n, V)."""
    p = logits.float().softmax(-1)
    # The draft is sure of its tokens.
    q = torch.zeros_like(p).scatter_(1, draft[:, None], 1.0)
    return int(leading((rule.accepted_at(Distributions(p, q), draft) > 0)[None]))
