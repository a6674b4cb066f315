"""Speculative decoding (Leviathan23 Alg 1) with any drafter, under any rule of verification.

Each block: the drafter proposes up to gamma tokens; the target reads the last emitted token and
the proposal in one run; the longest accepted prefix is kept, then comes a recovered token or,
after full acceptance, a bonus token.
"""

from __future__ import annotations

from collections.abc import Iterator

import torch

from calibrate.decode.drafters.base import Drafter
from calibrate.decode.drafters.neural import Neural
from calibrate.decode.drawing import Drawing
from calibrate.decode.engine import CachedModel, DecodeRequest, Decoding, RequestState
from calibrate.decode.text import Reader, Text
from calibrate.decode.verification import Observer, drawing_for, verify_rows, verify_tokens
from specsim.checks import integer
from specsim.rules import Lossless, Rule

_LOSSLESS = Lossless()


def speculative(
    target: CachedModel,
    drafter: Drafter | CachedModel,
    request: DecodeRequest,
    gamma: int | None = None,
    rule: Rule = _LOSSLESS,
    observe: Observer | None = None,
) -> Decoding:
    """Decode one request.

    drafter : a model drafts token by token
    gamma : the most tokens drafted in a block, or None where the drafter has a length of its own;
        a block never drafts past the limit
    rule : what p and q make of a draft token; see ``verification.lenient`` for lenience
    observe : sees every block with the rows that decided it
    """
    if isinstance(drafter, CachedModel):
        drafter = Neural(drafter)
    if gamma is not None:
        gamma = integer("gamma", gamma)
    state = RequestState(request, target, *drafter.sources)
    text = Text.of(request, target)
    drafter.begin(text)
    asked = Drawing(request.sampling, request.random, rows=observe is not None)
    drawing = drawing_for(rule, asked)
    blocks = _blocks(state, text.reader(target), drafter, gamma, rule, drawing, observe)
    return Decoding(state, blocks)


@torch.inference_mode()
def _blocks(
    state: RequestState,
    reader: Reader,
    drafter: Drafter,
    gamma: int | None,
    rule: Rule,
    drawing: Drawing,
    observe: Observer | None,
) -> Iterator[None]:
    text = reader.text
    while True:
        start = len(text)
        room = state.to_go - 1
        rows = drafter.propose(room if gamma is None else min(gamma, room), drawing)
        length = len(text) - start
        if drawing.rows:
            block = verify_rows(text, start, reader, rows, rule, drawing, drafter.propose)
            count = block.accepted
            if observe:
                observe(block)
        else:
            count = verify_tokens(text, start, reader)
        state.emit(text.tokens()[start:], count, length)
        yield
