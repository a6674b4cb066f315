"""Sequence-level cascade (Narasimhan24 eq. 1): keep the small model's response, or write anew.

The small model (here: the draft) writes the whole response.  Where the confidence in it is below
the threshold, the target writes its own by plain decoding.  A response that is kept is one block;
one that is deferred is a block for every token of the target.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import torch

from calibrate.decode.engine import CachedModel, Decoding, Request
from calibrate.decode.text import Reader, Text
from calibrate.models.sampling import Sampling
from specsim.checks import Floats
from specsim.rules.executions import Confidence


def sequence_cascade(
    target: CachedModel,
    draft: CachedModel,
    prompt: Sequence[int],
    confidence: Confidence,
    threshold: float,
    max_new_tokens: int,
    sampling: Sampling,
    generator: torch.Generator,
    end_of_text: int | None = None,
) -> Decoding:
    """Decode one request.

    confidence : from the log probabilities of the response's tokens, end-of-text included, to a
        number (``specsim.rules.executions`` has the usual ones).  They are those of the small
        model's own distribution, at temperature 1 and unfiltered
    threshold : the response is kept where its confidence is at least this; eq. 1 is the sum with
        log(1 - t).  -inf keeps every response, +inf none
    """
    request = Request(prompt, max_new_tokens, end_of_text, target, draft)
    # A text for each model: the target does not see the other's response.
    large, small = (
        Text(prompt, len(prompt) + max_new_tokens, model.vocabulary, model.device).reader(model)
        for model in (target, draft)
    )
    blocks = _blocks(request, large, small, confidence, threshold, sampling, generator)
    return Decoding(request, blocks)


@torch.inference_mode()
def _blocks(
    request: Request,
    large: Reader,
    small: Reader,
    confidence: Confidence,
    threshold: float,
    sampling: Sampling,
    generator: torch.Generator,
) -> Iterator[None]:
    response, logs = _respond(request, small, sampling, generator)
    drafted = len(response)
    if confidence(logs) >= threshold:
        request.emit(response, drafted, drafted)
        yield
        return
    while True:
        large.text.push(sampling.draw(large.catch_up(), generator))
        request.emit(large.text.tokens()[-1:], 0, drafted)
        drafted = 0
        yield


def _respond(
    request: Request, small: Reader, sampling: Sampling, generator: torch.Generator
) -> tuple[list[int], Floats]:
    """The small model's whole response, and the log probability of each of its tokens."""
    text, logs = small.text, []
    start = len(text)
    for _ in range(request.max_new_tokens):
        logits = small.catch_up()
        text.push(sampling.draw(logits, generator))
        latest = text.tokens()[-1]
        logs.append(float(logits.float().log_softmax(-1)[0, latest]))
        if latest == request.end_of_text:
            break
    return text.tokens()[start:], np.array(logs)
