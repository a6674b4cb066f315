"""Models that several tests of decoding share."""

from __future__ import annotations

import pytest

from calibrate.decode.engine import CachedModel
from tests.calibrate.sequences import model_at
from tests.conftest import build_model


@pytest.fixture(scope="session")
def four_words(tmp_path_factory: pytest.TempPathFactory) -> tuple[CachedModel, CachedModel]:
    """A target and an unlike draft over four words: whole sequences can be enumerated."""
    root = tmp_path_factory.mktemp("four")
    return tuple(  # type: ignore[return-value]
        model_at(build_model(root / name, layers=1, width=16, seed=seed, words=4, spread=0.25))
        for name, seed in (("target", 11), ("draft", 12))
    )
