"""Speculative decoding (Leviathan23 Alg 1) with any drafter, under any rule of verification.

Each block: the drafter proposes up to gamma tokens; the target reads the last emitted token and
the proposal in one run; the longest accepted prefix is kept, then comes a recovered token or,
after full acceptance, a bonus token.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import torch

from calibrate.decode.drafters.base import Drafter, Drawing
from calibrate.decode.drafters.neural import Neural
from calibrate.decode.engine import CachedModel, Decoding, Request
from calibrate.decode.text import Text
from calibrate.decode.verification import Observer, drawing_for, verify_rows, verify_tokens
from calibrate.models.sampling import Sampling
from specsim.checks import integer
from specsim.rules import Lossless, Rule

_LOSSLESS = Lossless()


def speculative(
    target: CachedModel,
    drafter: Drafter | CachedModel,
    prompt: Sequence[int],
    gamma: int | None,
    max_new_tokens: int,
    sampling: Sampling,
    generator: torch.Generator,
    end_of_text: int | None = None,
    rule: Rule = _LOSSLESS,
    observe: Observer | None = None,
) -> Decoding:
    """Decode one request.

    drafter : a model drafts token by token
    gamma : the most tokens drafted in a block, or None where the drafter has a length of its own;
        a block never drafts past ``max_new_tokens``
    rule : what p and q make of a draft token; see ``verification.lenient`` for lenience
    observe : sees every block with the rows that decided it
    """
    if isinstance(drafter, CachedModel):
        drafter = Neural(drafter)
    if gamma is not None:
        gamma = integer("gamma", gamma)
    request = Request(prompt, max_new_tokens, end_of_text, target, *drafter.sources)
    text = Text(prompt, len(prompt) + max_new_tokens, target.vocabulary, target.device)
    drafter.begin(text)
    drawing = drawing_for(rule, Drawing(sampling, generator, rows=observe is not None))
    blocks = _blocks(request, text, target, drafter, gamma, rule, drawing, observe)
    return Decoding(request, blocks)


@torch.inference_mode()
def _blocks(
    request: Request,
    text: Text,
    target: CachedModel,
    drafter: Drafter,
    gamma: int | None,
    rule: Rule,
    drawing: Drawing,
    observe: Observer | None,
) -> Iterator[None]:
    reader = text.reader(target)
    while True:
        start = len(text)
        room = request.to_go - 1
        rows = drafter.propose(room if gamma is None else min(gamma, room), drawing)
        length = len(text) - start
        if drawing.rows:
            block = verify_rows(text, start, reader, rows, rule, drawing, drafter)
            count = block.accepted
            if observe:
                observe(block)
        else:
            count = verify_tokens(text, start, reader)
        request.emit(text.tokens()[start:], count, length)
        yield
