"""Models that several tests of decoding share."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from calibrate.decode.engine import CachedModel
from tests.support.executions import Model
from tests.support.imitations import remembered, uncached
from tests.support.models import build_family, build_model
from tests.support.sequences import model_at


@pytest.fixture(autouse=True, scope="session")
def servers_that_need_no_rest() -> Iterator[None]:
    """Those of the tests do not look out for work as real ones do."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("calibrate.engine.sets._RESTED_S", 0.0)
        yield


@pytest.fixture(scope="session")
def models(tmp_path_factory: pytest.TempPathFactory) -> dict[str, CachedModel]:
    """A family of two layers, of which one can be left out, each with a cache and under its own
    name.
    """
    family = build_family(tmp_path_factory.mktemp("two-layers"), layers=2)
    return {name: model_at(folder, name) for name, folder in family.items()}


@pytest.fixture(scope="session")
def rows(models: dict[str, CachedModel]) -> dict[str, Model]:
    """The same models as functions of the whole text."""
    return {name: uncached(model) for name, model in models.items()}


@pytest.fixture(scope="session")
def four_words(tmp_path_factory: pytest.TempPathFactory) -> tuple[CachedModel, CachedModel]:
    """A target and an unlike draft over four words: whole sequences can be enumerated."""
    root = tmp_path_factory.mktemp("four")
    return tuple(  # type: ignore[return-value]
        model_at(build_model(root / name, layers=1, width=16, seed=seed, words=4, spread=0.25))
        for name, seed in (("target", 11), ("draft", 12))
    )


@pytest.fixture(scope="session")
def four_remembered(
    four_words: tuple[CachedModel, CachedModel],
) -> tuple[CachedModel, CachedModel]:
    """The same, which read no text twice: for thousands of short texts."""
    target, draft = map(remembered, four_words)
    return target, draft
