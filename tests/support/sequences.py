"""Models over four words, whose whole sequences can be enumerated, and a test against their law."""

from __future__ import annotations

from collections.abc import Callable
from itertools import product
from pathlib import Path

import numpy as np
import pytest
import torch
from scipy.stats import chisquare
from transformers import AutoModelForCausalLM

from calibrate.decode.engine import CachedModel
from calibrate.models.sampling import Sampling


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
    logits = target.model(ids).logits[:, len(prompt) - 1 : -1]
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
    """Chi-square of decoded sequences against the target's law, false-alarm chance 1e-4.

    Sequences with fewer than 5 expected are pooled.
    """
    law = sequence_law(target, prompt, length, sampling)
    assert law.sum() == pytest.approx(1, abs=1e-5)
    seen = np.zeros(len(law))
    places = 4 ** np.arange(length)[::-1]
    for _ in range(draws):
        seen[np.dot(decode(), places)] += 1
    assert seen[law == 0].sum() == 0
    likely = law * draws >= 5
    observed = np.append(seen[likely], seen[~likely].sum())
    expected = np.append(law[likely], law[~likely].sum()) * draws
    kept = expected > 0
    expected = expected[kept] * observed[kept].sum() / expected[kept].sum()
    assert chisquare(observed[kept], expected).pvalue > 1e-4
