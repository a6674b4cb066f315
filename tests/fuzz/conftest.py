"""How long is tried, and the files that are damaged."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings
from hypothesis.database import DirectoryBasedExampleDatabase

import specsim
from tests.support.fuzz_files import KINDS
from tests.support.profiles import write_grid

# Of each kind of file, and ten times as many command lines.  ``make fuzz`` tries more, others every
# time, and keeps what it found.
EXAMPLES = os.environ.get("FUZZ_EXAMPLES")
KEPT = os.environ.get("FUZZ_FOLDER", "build/fuzz")
settings.register_profile(
    "fuzz",
    max_examples=int(EXAMPLES or 10),
    deadline=None,
    derandomize=EXAMPLES is None,
    database=None if EXAMPLES is None else DirectoryBasedExampleDatabase(f"{KEPT}/examples"),
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
    print_blob=True,
)


@pytest.fixture(scope="session")
def originals(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """A whole file of every kind, each in a folder of its own."""
    # Loops of the simulator are compiled once for all, which may take longer than an answer may.
    requests = specsim.workload(rate=20, requests=2, prompt=20, output=6)
    specsim.serve(requests, step_model="step_ms=5", engine="vllm:num_gpu_blocks=600")
    found = {kind.name: kind.write(tmp_path_factory.mktemp("whole")) for kind in KINDS}
    return {**found, "PROFILE": write_grid(tmp_path_factory.mktemp("profile"))}


@pytest.fixture(scope="session")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where damaged files are put."""
    return tmp_path_factory.mktemp("damaged") / "here"
