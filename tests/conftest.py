"""Models small enough to build in a test."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import Phase, settings

from tests.support.models import build_family

# A busy machine is no failure, and the same examples come on every run.
settings.register_profile("specsim", deadline=None, derandomize=True)
# Few of them, for mutants: the smallest that fails matters to nobody (tests/support/mutants).
settings.register_profile(
    "mutants",
    settings.get_profile("specsim"),
    max_examples=15,
    phases=(Phase.explicit, Phase.generate),
)
settings.load_profile("specsim")


@pytest.fixture(scope="session")
def tiny_family(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """A target, a draft that often agrees (the target with small noise) and an unrelated one, of
    one layer each.
    """
    return build_family(tmp_path_factory.mktemp("models"), layers=1)
