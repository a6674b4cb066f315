"""How good the law is that a setting emits: on real text, read by both models once."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch

from calibrate.decode.engine import CachedModel
from calibrate.schemes.base import ModelSet, Setting
from calibrate.schemes.lossy import PositionWise


@dataclass(frozen=True)
class Quality:
    """Of the emitted law on the next token of real text, a mean over positions.

    log_loss : nats; None where it would be infinite, since some tokens never come: at temperature
        0 and under top-k and top-p
    accuracy : share of positions where the most probable token is the text's
    """

    log_loss: float | None
    accuracy: float


@torch.inference_mode()
def quality(
    setting: Setting, texts: Sequence[Sequence[int]], model_set: ModelSet
) -> Quality | None:
    """None for settings without a law of one position: SpecDec++ and the sequence cascade."""
    if not (setting.lossless or isinstance(setting, PositionWise)):
        return None
    losses: list[torch.Tensor] = []
    right: list[torch.Tensor] = []
    for text in texts:
        labels = torch.tensor(text[1:], device=model_set.target.device)
        rows = _read(model_set.target, text)
        emitted = setting.sampling.probabilities(rows)
        if isinstance(setting, PositionWise):
            emitted = setting.law(rows, _read(model_set[setting.draft], text)).emitted
        losses.append(-emitted.gather(1, labels[:, None])[:, 0].double().log())
        right.append((emitted.argmax(-1) == labels).double())
    loss = float(torch.cat(losses).mean())
    return Quality(
        loss if np.isfinite(loss) else None, float(np.mean(torch.cat(right).cpu().numpy()))
    )


def _read(model: CachedModel, text: Sequence[int]) -> torch.Tensor:
    """Logits for every token of the text but the first, (T - 1, V)."""
    model.reset()
    return model.read(torch.tensor([list(text[:-1])], device=model.device))
