"""How many examples are tried, and the files that they name and damage."""

from __future__ import annotations

import pytest
from hypothesis import HealthCheck, settings

from tests.support.fuzz_session import FuzzSession

# Of each kind of file, and ten times as many command lines.  ``make fuzz`` (tests/fuzz/long.py)
# tries many more, others every time, and keeps what it found.
settings.register_profile(
    "fuzz",
    max_examples=6,
    deadline=None,
    derandomize=True,
    database=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
    print_blob=True,
)


@pytest.fixture(scope="session")
def session(tmp_path_factory: pytest.TempPathFactory) -> FuzzSession:
    found = FuzzSession(tmp_path_factory.mktemp("fuzz"))
    found.warm_up()
    return found
