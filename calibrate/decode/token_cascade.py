"""Token-level cascade, run token by token (Narasimhan24 Algorithm 2).

The small model (here: the draft) writes until a rule that looks at q only defers; then the target
reads what it has not read and writes the next token.  Nothing is verified and nothing is taken
back, so the small model may well end the text.  A block is up to and including a target run; the
last block may have none.
"""

from __future__ import annotations

from collections.abc import Iterator

import torch

from calibrate.decode.engine import CachedModel, DecodeRequest, Decoding, RequestState
from calibrate.decode.text import Reader, Text, write_while_sure
from calibrate.models.sampling import Sampling
from specsim.schemes import TokenCascade


def token_cascade(
    target: CachedModel, draft: CachedModel, request: DecodeRequest, scheme: TokenCascade
) -> Decoding:
    """Decode one request.

    At temperature 0 the scheme's rule must decide on the unscaled rows, since the tempered q is
    one-hot and never unsure.
    """
    state = RequestState(request, target, draft)
    text = Text.of(request, target)
    return Decoding(state, _blocks(state, text.reader(target), text.reader(draft), scheme))


@torch.inference_mode()
def _blocks(
    state: RequestState, large: Reader, small: Reader, scheme: TokenCascade
) -> Iterator[None]:
    request, rule = state.request, scheme.rule
    decided_on = Sampling(1.0) if rule.decide_on == "unscaled" else request.sampling

    def unsure(logits: torch.Tensor) -> bool:
        return bool(rule.unsure(decided_on.probabilities(logits)))

    text, end = large.text, request.end_of_text
    while True:
        start, most = len(text), min(scheme.cap, state.to_go)
        write_while_sure(small, most, unsure, request)
        written = len(text) - start
        ended = written == state.to_go or (written > 0 and text.tokens()[-1] in end)
        if not ended:
            text.push(request.sampling.draw(large.catch_up()[-1:], request.random))
        state.emit(text.tokens()[start:], written, written)
        yield
