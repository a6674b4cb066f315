"""Quality of a law on texts."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch

from calibrate.decode.engine import CachedModel
from calibrate.models.pool import ModelSet
from calibrate.models.sampling import Sampling
from calibrate.validate.quality import Quality, quality
from specsim.rules import Chow
from specsim.schemes import PlainDecoding, SequenceCascade, TokenCascade

# Of different lengths, so that a mean over texts is another one than over their positions.
TEXTS = [[2, 1, 0, 3, 3, 1, 2, 2, 0], [3, 0, 1], [1]]


def test_texts_of_one_token_tell_nothing(four_words: tuple[CachedModel, CachedModel]) -> None:
    scheme: Any = SimpleNamespace(lossless=True)
    models: Any = SimpleNamespace(target=four_words[0])

    def found(*texts: list[int]) -> Quality | None:
        return quality(scheme, Sampling(1.0), texts, models)

    assert found([2], [1]) is None
    whole, beside = found([2, 1, 0]), found([3], [2, 1, 0])
    assert whole is not None
    assert beside is not None
    assert beside.log_loss == pytest.approx(whole.log_loss)


@torch.inference_mode()
def laws(model: CachedModel, temperature: float = 1.0) -> np.ndarray:
    """What the model expects behind every beginning of the texts, each read by itself."""
    found = []
    for text in TEXTS:
        for end in range(1, len(text)):
            logits = model.model(input_ids=torch.tensor([text[:end]])).logits[0, -1]
            weights = np.exp(logits.double().numpy() / temperature)
            found.append(weights / weights.sum())
    return np.array(found)


def told(rows: np.ndarray) -> tuple[float, float]:
    """Mean of -log of the probability of what comes, and how often that is the most probable."""
    comes = np.array([token for text in TEXTS for token in text[1:]])
    losses = -np.log(rows[np.arange(comes.size), comes])
    return float(losses.mean()), float(np.mean(rows.argmax(axis=1) == comes))


@pytest.mark.parametrize("temperature", [1.0, 0.5])
def test_a_lossless_scheme_is_as_good_as_the_rows_of_its_target(
    four_words: tuple[CachedModel, CachedModel], temperature: float
) -> None:
    target, draft = four_words
    models = ModelSet(target, {"draft": draft})
    found = quality(PlainDecoding(), Sampling(temperature), TEXTS, models)
    assert found is not None
    loss, right = told(laws(target, temperature))
    assert 0 < right < 1
    assert found.log_loss == pytest.approx(loss)
    assert found.accuracy == pytest.approx(right)
    # At temperature 0 some of what comes is impossible.
    assert quality(PlainDecoding(), Sampling(0.0), TEXTS, models) == Quality(None, found.accuracy)


def test_a_cascade_is_as_good_as_the_rows_that_it_takes(
    four_words: tuple[CachedModel, CachedModel],
) -> None:
    """The draft's where it is sure, the target's elsewhere: at half of the places each."""
    target, draft = four_words
    p, q = laws(target), laws(draft)
    sure = q.max(axis=1)
    enough = float(np.sort(sure)[sure.size // 2 - 1 : sure.size // 2 + 1].mean())
    rows = np.where((sure >= enough)[:, None], q, p)
    scheme = TokenCascade(10, "draft", Chow(1 - enough))
    found = quality(scheme, Sampling(1.0), TEXTS, ModelSet(target, {"draft": draft}))
    assert found is not None
    loss, right = told(rows)
    assert 0 < right < 1
    assert found.log_loss == pytest.approx(loss)
    assert found.accuracy == pytest.approx(right)
    others = [told(each)[0] for each in (p, q, np.where((sure < enough)[:, None], q, p))]
    assert all(abs(each - loss) > 1e-3 for each in others)


def test_a_scheme_without_a_law_of_one_position_has_no_quality(
    four_words: tuple[CachedModel, CachedModel],
) -> None:
    target, draft = four_words
    scheme = SequenceCascade(draft="draft", confidence="mean", threshold=-1.0)
    assert quality(scheme, Sampling(1.0), TEXTS, ModelSet(target, {"draft": draft})) is None
