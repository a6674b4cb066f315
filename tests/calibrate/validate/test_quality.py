"""Quality of a law on texts."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from calibrate.decode.engine import CachedModel
from calibrate.models.sampling import Sampling
from calibrate.validate.quality import Quality, quality


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
