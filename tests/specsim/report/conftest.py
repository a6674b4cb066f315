"""The results whose pages are looked at, with a browser and without one."""

from __future__ import annotations

from collections.abc import Callable

import pytest

import specsim
from tests.support.results import RESULTS


@pytest.fixture(scope="session")
def results(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], specsim.Result]:
    """Results by name, each worked out once."""
    found: dict[str, specsim.Result] = {}

    def get(name: str) -> specsim.Result:
        if name not in found:
            found[name] = RESULTS[name](tmp_path_factory.mktemp("result"))
        return found[name]

    return get
