"""Plain autoregressive decoding: one target run a token.  The baseline of every speedup."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence

import torch

from calibrate.decode.engine import CachedModel, Decoded, Runs, check_request
from calibrate.sampling import Sampling

Observer = Callable[[torch.Tensor], None]


@torch.inference_mode()
def plain(
    target: CachedModel,
    prompt: Sequence[int],
    max_new_tokens: int,
    sampling: Sampling,
    generator: torch.Generator,
    end_of_text: int | None = None,
    observe: Observer | None = None,
) -> Decoded:
    """Decode one request; ``observe`` sees the logits (1, V) that each token is drawn from."""
    check_request(prompt, max_new_tokens, target)
    target.prefill(prompt)
    tokens: list[int] = []
    done = max_new_tokens == 0
    latest = torch.tensor([[prompt[-1]]], device=target.device)
    start = time.perf_counter()
    while not done:
        logits = target.read(latest)
        if observe:
            observe(logits)
        latest = sampling.draw(logits, generator)
        tokens.append(int(latest))
        done = len(tokens) == max_new_tokens or tokens[-1] == end_of_text
    seconds = time.perf_counter() - start
    blocks = [0] * len(tokens)
    return Decoded(tokens, blocks, blocks, target.runs, Runs(), seconds)
