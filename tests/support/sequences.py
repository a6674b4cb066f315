"""Models over four words, whose whole sequences can be enumerated, and a test against their law."""

from __future__ import annotations

from collections.abc import Callable
from itertools import product
from pathlib import Path

import numpy as np
import pytest
import torch
from transformers import AutoModelForCausalLM

from calibrate.decode.engine import CachedModel
from calibrate.models.sampling import Sampling
from tests.support.imitations import Remembered, assert_drawn_from


def model_at(folder: Path, name: str = "draft") -> CachedModel:
    model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32).eval()
    return CachedModel(model, name=name)


@torch.inference_mode()
def sequence_law(
    target: CachedModel, prompt: list[int], length: int, sampling: Sampling
) -> np.ndarray:
    """Exact probability of every continuation of ``length`` words, by enumeration."""
    texts = list(product(range(4), repeat=length))
    ids = torch.tensor([[*prompt, *text] for text in texts])
    model = target.model.model if isinstance(target.model, Remembered) else target.model
    logits = model(ids).logits[:, len(prompt) - 1 : -1]
    p = sampling.probabilities(logits.double()).double()
    chosen = p.gather(2, torch.tensor(texts)[:, :, None])[:, :, 0]
    return chosen.prod(dim=1).numpy()


def check_law(
    target: CachedModel,
    prompt: list[int],
    decode: Callable[[], list[int]],
    sampling: Sampling,
    draws: int = 1500,
    length: int = 3,
) -> None:
    """Chi-square of decoded sequences against the target's law, false-alarm chance 1e-4."""
    law = sequence_law(target, prompt, length, sampling)
    assert law.sum() == pytest.approx(1, abs=1e-5)
    texts = product(range(4), repeat=length)
    seen = [tuple(decode()) for _ in range(draws)]
    assert_drawn_from(dict(zip(texts, law.tolist(), strict=True)), seen, alarm=1e-4)
