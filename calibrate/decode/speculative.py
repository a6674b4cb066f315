"""Speculative decoding (Leviathan23 Alg 1) with any drafter, under any rule of verification.

Each block: the drafter proposes up to gamma tokens; the target reads the last emitted token and
the proposal in one run; the longest accepted prefix is kept, then comes a recovered token or,
after full acceptance, a bonus token.

Above temperature 0 there are three ways to accept without loss (``specsim.acceptance``): by the
ratio test; greedy drafts, where the drafter decodes at temperature 0 and the ratio test sees
one-hot rows; and exact match, where the target draws a token of its own at every position and the
drafts stand as far as they are equal to it, which asks for no row of the drafter.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import torch

from calibrate.decode.drafters.base import Drafter
from calibrate.decode.drafters.neural import Neural
from calibrate.decode.drawing import Drawing
from calibrate.decode.engine import CachedModel, DecodeRequest, Decoding, RequestState
from calibrate.decode.text import Reader, Text
from calibrate.decode.verification import Observer, drawing_for, verify_rows, verify_tokens
from calibrate.models.sampling import Sampling
from specsim.acceptance import ACCEPTANCE_LAWS, AcceptanceLaw
from specsim.checks import UnsupportedError, check_choice, integer
from specsim.rules import Lossless, Rule

_LOSSLESS = Lossless()
_GREEDY = Sampling(0.0)


def speculative(
    target: CachedModel,
    drafter: Drafter | CachedModel,
    request: DecodeRequest,
    gamma: int | None = None,
    rule: Rule = _LOSSLESS,
    observe: Observer | None = None,
    acceptance_law: AcceptanceLaw = "ratio-test",
) -> Decoding:
    """Decode one request.

    drafter : a model drafts token by token
    gamma : the most tokens drafted in a block, or None where the drafter has a length of its own;
        a block never drafts past the limit
    rule : what p and q make of a draft token; see ``verification.lenient`` for lenience
    observe : sees every block with the rows that decided it
    acceptance_law : how drafts are made and accepted; at temperature 0 all do the same

    Raises UnsupportedError for another law than the ratio test with a rule that changes the text,
    and for exact match with an observer, since no rows decide there.
    """
    check_choice("acceptance_law", acceptance_law, ACCEPTANCE_LAWS)
    if acceptance_law != "ratio-test" and not isinstance(rule, Lossless):
        raise UnsupportedError(
            f"{type(rule).__name__} changes the text by the ratio test: {acceptance_law} has no "
            "meaning under it"
        )
    match_exactly = acceptance_law == "exact-match"
    if match_exactly and observe:
        raise UnsupportedError("exact-match compares tokens: there are no rows to observe")
    if isinstance(drafter, CachedModel):
        drafter = Neural(drafter)
    if gamma is not None:
        gamma = integer("gamma", gamma)
    state = RequestState(request, target, *drafter.sources)
    text = Text.of(request, target)
    drafter.begin(text)
    asked = Drawing(request.sampling, request.random, rows=observe is not None)
    drawing = asked if match_exactly else drawing_for(rule, asked)
    drafts = replace(drawing, sampling=_GREEDY) if acceptance_law == "greedy-drafts" else drawing
    blocks = _blocks(state, text.reader(target), drafter, gamma, rule, drawing, drafts, observe)
    return Decoding(state, blocks)


@torch.inference_mode()
def _blocks(
    state: RequestState,
    reader: Reader,
    drafter: Drafter,
    gamma: int | None,
    rule: Rule,
    drawing: Drawing,
    drafts: Drawing,
    observe: Observer | None,
) -> Iterator[None]:
    """Block by block; ``drawing`` is the target's, ``drafts`` the drafter's."""
    text = reader.text
    while True:
        start = len(text)
        room = state.to_go - 1
        rows = drafter.propose(room if gamma is None else min(gamma, room), drafts)
        length = len(text) - start
        if drawing.rows:
            block = verify_rows(text, start, reader, rows, rule, drawing, drafter.propose)
            count = block.accepted
            if observe:
                observe(block)
        else:
            count = verify_tokens(text, start, reader, drawing)
        state.emit(text.tokens()[start:], count, length)
        yield
