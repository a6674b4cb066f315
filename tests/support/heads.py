"""A head over a small target whose every weight counts, and its slow obvious twin."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from typing import Any

import torch

from calibrate.models.eagle import EagleModel


@cache
def unlike(target: Any, spread: float = 0.1, seed: int = 7) -> EagleModel:
    """A head of a target, moved away from how it begins."""
    model = EagleModel(target).eval()
    random = torch.Generator().manual_seed(seed)
    for weight in model.own().values():
        weight.add_(spread * torch.randn(weight.shape, generator=random).to(weight))
    return model


@torch.inference_mode()
def slow_rows(model: EagleModel, target: Any, text: Sequence[int], depth: int) -> torch.Tensor:
    """What a head says after a text (1 + depth tokens at least), its last ``depth`` of its own.

    No cache, no mask: everything is read anew, one depth at a time.  Logits (V,).
    """
    known = len(text) - depth
    ids = torch.tensor([list(text)])
    states = target(ids[:, :known], output_hidden_states=True, use_cache=False).hidden_states[-1]
    features = states[:, : known - 1]
    while True:
        pairs = features.shape[1]
        logits, own = model(ids[:, 1 : pairs + 1], features, model.empty_cache())
        if pairs == len(text) - 1:
            return logits[0, -1]
        features = torch.cat([features, own[:, -1:]], dim=1)
