"""Plain autoregressive decoding: one target run a token.  The baseline of every speedup."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

import torch

from calibrate.decode.engine import CachedModel, Decoding, Request
from calibrate.models.sampling import Sampling

Observer = Callable[[torch.Tensor], None]


def plain(
    target: CachedModel,
    prompt: Sequence[int],
    max_new_tokens: int,
    sampling: Sampling,
    generator: torch.Generator,
    end_of_text: int | None = None,
    observe: Observer | None = None,
) -> Decoding:
    """Decode one request; ``observe`` sees the logits (1, V) that each token is drawn from."""
    request = Request(prompt, max_new_tokens, end_of_text, target)
    return Decoding(request, _blocks(request, target, prompt[-1], sampling, generator, observe))


@torch.inference_mode()
def _blocks(
    request: Request,
    target: CachedModel,
    last: int,
    sampling: Sampling,
    generator: torch.Generator,
    observe: Observer | None,
) -> Iterator[None]:
    latest = torch.tensor([[last]], device=target.device)
    while True:
        logits = target.read(latest)
        if observe:
            observe(logits)
        latest = sampling.draw(logits, generator)
        request.emit([int(latest)])
        yield
