"""A profile of the embedded family, and the program of ``make engine``."""

from __future__ import annotations

from pathlib import Path

import pytest

import specsim
from calibrate.engine.server import find_program

GAMMA_MAX = 3


@pytest.fixture(scope="session")
def profile(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """30 requests of 128 tokens and the longest draft more, at temperatures 0 and 1."""
    path = tmp_path_factory.mktemp("engine") / "profile.json"
    measurement = specsim.Measurement(
        temperature=(0.0, 1.0),
        requests=(30,),
        max_new_tokens=128 + GAMMA_MAX,
        gamma_max=GAMMA_MAX,
        repeats=2,
    )
    specsim.calibrate(path, specsim.Models(draft="embedded/small", threads=1), measurement)
    return path


@pytest.fixture(scope="session")
def program() -> Path:
    """The vllm of ``make engine``; a test session that has none fails."""
    return find_program(None)
