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

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import torch

from calibrate.decode.engine import CachedModel, Decoded, Decoding, Request
from calibrate.decode.text import Reader, Text, write_while_sure
from calibrate.models.sampling import Sampling
from specsim.checks import integer, number, probability
from specsim.schemes.bild import WINDOW


@dataclass(frozen=True)
class Policy:
    """When the small model gives way, and when the large one takes back.

    fallback : the small model goes on while its top probability is at least this, in [0, 1];
        0 never falls back before the window is full
    rollback : in nats, >= 0; a token stands if its distance is at most this, or if it is the
        large model's top token, which it could only replace by itself (errata Kim23 4).  Infinity
        never rolls back
    window : most tokens of the small model in a block, >= 0; 0 is plain decoding
    rescore : after a rollback, run the large model once more on the last token that stands, and
        take the replacement from that run, as the authors' code does and Algorithm 1 does not
    """

    fallback: float
    rollback: float
    window: int = WINDOW
    rescore: bool = False

    def __post_init__(self) -> None:
        object.__setattr__(self, "fallback", probability("fallback", self.fallback))
        if self.rollback != math.inf:
            object.__setattr__(self, "rollback", number("rollback", self.rollback, low=0.0))
        object.__setattr__(self, "window", integer("window", self.window))

    def unsure(self, logits: torch.Tensor) -> bool:
        """Fall back at these logits (1, V) of the small model?"""
        return float(logits.float().softmax(-1).amax()) < self.fallback

    def standing(self, logits: torch.Tensor, written: torch.Tensor) -> int:
        """How many of the tokens written, (n,), stand before logits (n, V) of the large model."""
        distance = -logits.float().log_softmax(-1).gather(1, written[:, None])[:, 0]
        stands = (distance <= self.rollback) | (logits.argmax(-1) == written)
        return int(stands.cumprod(0).sum())


def bild(
    target: CachedModel,
    draft: CachedModel,
    prompt: Sequence[int],
    policy: Policy,
    max_new_tokens: int,
    sampling: Sampling,
    generator: torch.Generator,
    end_of_text: int | None = None,
) -> Decoding:
    """Decode one request.

    The text always ends with a verdict of the large model: an end-of-text of the small one is
    verified first (errata Kim23 3), and the last token of ``max_new_tokens`` is the large model's.
    """
    request = Request(prompt, max_new_tokens, end_of_text, target, draft)
    text = Text(prompt, len(prompt) + max_new_tokens, target.vocabulary, target.device)
    large, small = text.reader(target), text.reader(draft)
    return Decoding(request, _blocks(request, large, small, policy, sampling, generator))


def fallbacks(decoded: Decoded) -> int:
    """How often the small model gave way: each time is a run of it without a token."""
    return decoded.draft.count - sum(decoded.drafted)


@torch.inference_mode()
def _blocks(
    request: Request,
    large: Reader,
    small: Reader,
    policy: Policy,
    sampling: Sampling,
    generator: torch.Generator,
) -> Iterator[None]:
    text = large.text
    while True:
        start, most = len(text), min(policy.window, request.to_go - 1)
        write_while_sure(small, most, policy.unsure, sampling, generator, request.end_of_text)
        written = len(text) - start
        logits = large.catch_up()
        count = policy.standing(logits[:-1], text.ids(start)[0])
        text.cut(start + count)
        verdict = logits[count : count + 1]
        if policy.rescore and count < written:
            large.cut(len(text) - 1)
            verdict = large.catch_up()
        text.push(sampling.draw(verdict, generator))
        request.emit(text.tokens()[start:], count, written)
        yield
