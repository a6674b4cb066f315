"""Token-level cascade, run token by token (Narasimhan24 Algorithm 2).

The small model (here: the draft) writes until a rule that looks at q only defers; then the target
reads what it has not read and writes the next token.  Nothing is verified and nothing is taken
back, so the small model may well end the text.  A block is up to and including a target run; the
last block may have none.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import torch

from calibrate.decode.engine import CachedModel, Decoding, Request
from calibrate.decode.text import Reader, Text, write_while_sure
from calibrate.models.sampling import Sampling
from specsim.checks import integer
from specsim.rules import DraftDeferralRule
from specsim.schemes.deferral import CAP


def token_cascade(
    target: CachedModel,
    draft: CachedModel,
    prompt: Sequence[int],
    rule: DraftDeferralRule,
    max_new_tokens: int,
    sampling: Sampling,
    generator: torch.Generator,
    end_of_text: int | None = None,
    cap: int = CAP,
) -> Decoding:
    """Decode one request.

    rule : ``Chow`` or ``ChowLog``.  At temperature 0 it must decide on the unscaled rows, since
        the tempered q is one-hot and never unsure
    cap : most tokens that the small model writes before the target is called anyway, >= 0
        (Narasimhan24 E.1)
    """
    cap = integer("cap", cap)
    request = Request(prompt, max_new_tokens, end_of_text, target, draft)
    text = Text(prompt, len(prompt) + max_new_tokens, target.vocabulary, target.device)
    large, small = text.reader(target), text.reader(draft)
    return Decoding(request, _blocks(request, large, small, rule, cap, sampling, generator))


@torch.inference_mode()
def _blocks(
    request: Request,
    large: Reader,
    small: Reader,
    rule: DraftDeferralRule,
    cap: int,
    sampling: Sampling,
    generator: torch.Generator,
) -> Iterator[None]:
    decided_on = Sampling(1.0) if rule.decide_on == "unscaled" else sampling

    def unsure(logits: torch.Tensor) -> bool:
        return bool(rule.unsure(decided_on.probabilities(logits)))

    text, end = large.text, request.end_of_text
    while True:
        start, most = len(text), min(cap, request.to_go)
        write_while_sure(small, most, unsure, sampling, generator, end)
        written = len(text) - start
        ended = written == request.to_go or (written > 0 and text.tokens()[-1] == end)
        if not ended:
            text.push(sampling.draw(large.catch_up()[-1:], generator))
        request.emit(text.tokens()[start:], written, written)
        yield
