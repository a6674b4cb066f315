"""Plain autoregressive decoding: one target run a token.  The baseline of every speedup."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import torch

from calibrate.decode.engine import CachedModel, DecodeRequest, Decoding, RequestState

Observer = Callable[[torch.Tensor], None]


def plain(target: CachedModel, request: DecodeRequest, observe: Observer | None = None) -> Decoding:
    """Decode one request; ``observe`` sees the logits (1, V) that each token is drawn from."""
    state = RequestState(request, target)
    return Decoding(state, _blocks(state, target, observe))


@torch.inference_mode()
def _blocks(state: RequestState, target: CachedModel, observe: Observer | None) -> Iterator[None]:
    request = state.request
    latest = torch.tensor([[request.text[-1]]], device=target.device)
    while True:
        logits = target.read(latest)
        if observe:
            observe(logits)
        latest = request.sampling.draw(logits, request.random)
        state.emit([int(latest)])
        yield
