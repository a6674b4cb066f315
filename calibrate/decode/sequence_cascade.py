"""Sequence-level cascade (Narasimhan24 eq. 1): keep the small model's response, or write anew.

The small model (here: the draft) writes the whole response.  Where the confidence in it is below
the threshold, the target writes its own by plain decoding.  A response that is kept is one block;
one that is deferred is a block for every token of the target.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import torch

from calibrate.decode.engine import CachedModel, DecodeRequest, Decoding, RequestState
from calibrate.decode.text import Reader, Text
from specsim.checks import Floats
from specsim.rules.confidence import Confidence


def sequence_cascade(
    target: CachedModel,
    draft: CachedModel,
    request: DecodeRequest,
    confidence: Confidence,
    threshold: float,
) -> Decoding:
    """Decode one request.

    confidence : from the log probabilities of the response's tokens, end-of-text included, to a
        number (``specsim.rules.confidence`` has the usual ones).  They are those of the small
        model's own distribution, at temperature 1 and unfiltered
    threshold : the response is kept where its confidence is at least this; eq. 1 is the sum with
        log(1 - t).  -inf keeps every response, +inf none
    """
    state = RequestState(request, target, draft)
    # A text for each model: the target does not see the other's response.
    large, small = (Text.of(request, model).reader(model) for model in (target, draft))
    return Decoding(state, _blocks(state, large, small, confidence, threshold))


@torch.inference_mode()
def _blocks(
    state: RequestState, large: Reader, small: Reader, confidence: Confidence, threshold: float
) -> Iterator[None]:
    request = state.request
    response, logs = _respond(request, small)
    drafted = len(response)
    if confidence(logs) >= threshold:
        state.emit(response, drafted, drafted)
        yield
        return
    while True:
        large.text.push(request.sampling.draw(large.catch_up(), request.random))
        state.emit(large.text.tokens()[-1:], 0, drafted)
        drafted = 0
        yield


def _respond(request: DecodeRequest, small: Reader) -> tuple[list[int], Floats]:
    """The small model's whole response, and the log probability of each of its tokens."""
    text, logs = small.text, []
    start = len(text)
    for _ in range(request.limit):
        logits = small.catch_up()
        text.push(request.sampling.draw(logits, request.random))
        latest = text.tokens()[-1]
        logs.append(float(logits.float().log_softmax(-1)[0, latest]))
        if latest in request.end_of_text:
            break
    return text.tokens()[start:], np.array(logs)
