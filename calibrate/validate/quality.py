"""How good the law is that a scheme emits: on real text, read by both models once."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch

from calibrate.decode.encoder_decoder import EncoderDecoder
from calibrate.decode.engine import CachedModel
from calibrate.measure.emitted_text import PositionWise, position_law
from calibrate.models.pool import ModelSet
from calibrate.models.sampling import Sampling
from specsim.schemes import Scheme


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
    scheme: Scheme, sampling: Sampling, texts: Sequence[Sequence[int]], model_set: ModelSet
) -> Quality | None:
    """None for schemes without a law of one position: SpecDec++ and the sequence cascade.

    None for encoder-decoder models, too: their prompts are sources, which no decoder writes.  And
    none where every text is of one token, behind which nothing is told.
    """
    texts = [text for text in texts if len(text) > 1]
    if isinstance(model_set.target, EncoderDecoder) or not texts:
        return None
    losses: list[torch.Tensor] = []
    right: list[torch.Tensor] = []
    for text in texts:
        labels = torch.tensor(text[1:], device=model_set.target.device)
        rows = _read(model_set.target, text)
        if scheme.lossless:
            emitted = sampling.probabilities(rows)
        elif isinstance(scheme, PositionWise):
            draft = _read(model_set[scheme.draft], text)
            emitted = position_law(scheme, sampling, rows, draft).emitted
        else:
            return None
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
