"""The Big Little Decoder (Kim23 Algorithm 1): the small model writes while it is confident.

Each block: the small model (here: the draft) writes until its top probability falls strictly
below the fallback threshold; the run at which it falls below gives no token.  The large model
(the target) reads what was written.  The first token m that is too far from its own opinion,
d = -log p_L(token) > rollback threshold, is replaced by the large model's, and all behind it is
dropped; where none is, the large model appends its next token.

Confidence and distance are those of the models' own distributions, at temperature 1 and
unfiltered, whatever tokens are drawn from: at temperature 0 every model would be sure of itself.
"""

from __future__ import annotations

from collections.abc import Iterator

import torch

from calibrate.decode.engine import CachedModel, DecodeRequest, Decoding, RequestState
from calibrate.decode.text import Reader, Text, write_while_sure
from specsim.schemes import BigLittle


def unsure(scheme: BigLittle, logits: torch.Tensor) -> torch.Tensor:
    """Fall back at these logits (n, V) of the small model?  Bool, (n,)."""
    return logits.float().softmax(-1).amax(-1) < scheme.fallback_threshold


def stands(scheme: BigLittle, logits: torch.Tensor) -> torch.Tensor:
    """Which tokens stand before logits (n, V) of the large model; bool, (n, V).

    Those within the rollback threshold, and the top token, which it could only replace by itself
    (errata Kim23 4).
    """
    near = -logits.float().log_softmax(-1) <= scheme.rollback_threshold
    return near.scatter(-1, logits.argmax(-1, keepdim=True), True)


def bild(
    target: CachedModel, draft: CachedModel, request: DecodeRequest, scheme: BigLittle
) -> Decoding:
    """Decode one request.

    The text always ends with a verdict of the large model: an end-of-text of the small one is
    verified first (errata Kim23 3), and the last token up to the limit is the large model's.
    """
    state = RequestState(request, target, draft)
    text = Text.of(request, target)
    return Decoding(state, _blocks(state, text.reader(target), text.reader(draft), scheme))


@torch.inference_mode()
def _blocks(state: RequestState, large: Reader, small: Reader, scheme: BigLittle) -> Iterator[None]:
    text, request = large.text, state.request
    while True:
        start, most = len(text), min(scheme.window, state.to_go - 1)
        write_while_sure(small, most, lambda logits: bool(unsure(scheme, logits)), request)
        written = len(text) - start
        logits = large.catch_up()
        standing = stands(scheme, logits[:-1]).gather(1, text.ids(start).T)[:, 0]
        count = int(standing.cumprod(0).sum())
        text.cut(start + count)
        verdict = logits[count : count + 1]
        if scheme.rescore and count < written:
            large.cut(len(text) - 1)
            verdict = large.catch_up()
        text.push(request.sampling.draw(verdict, request.random))
        state.emit(text.tokens()[start:], count, written)
        yield
