"""The seed that is typed reaches what runs models."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from specsim.checks import InvalidArgumentError
from tests.support.command_line import fail
from tests.support.profiles import write

BLIND = ["--blind", "--engine", "vllm"]


@pytest.mark.parametrize(
    ("words", "seed"),
    [([], 0), (["--seed", "3"], 3), (BLIND, 0), ([*BLIND, "--seed", "2"], 2)],
)
def test_a_check_has_the_seed_that_was_typed(
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    words: list[str],
    seed: int,
) -> None:
    def asked(profile: Path, check: Any, *_: Any, **__: Any) -> None:
        raise InvalidArgumentError(f"asked for seed {check.seed}")

    monkeypatch.setattr("specsim.api.validate.validate", asked)
    monkeypatch.setattr("specsim.api.engine_blind.validate_engine", asked)
    said = fail(capsys, "validate", str(write(tmp_path)), *words)
    assert said == f"specsim: error: asked for seed {seed}\n"


def test_an_engine_is_timed_with_the_seed_of_the_calibration(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    def asked(out: Path, timing: Any, command: str) -> bool:
        raise InvalidArgumentError(f"asked for seed {timing.seed}")

    monkeypatch.setattr("specsim.api.engine_timing.awaits_timing", asked)
    monkeypatch.setattr("specsim.api.engine_timing.EngineTiming.find_program", lambda timing: None)
    words = ["calibrate", "--engine", "vllm", "--out", str(tmp_path / "p.json"), "--seed", "5"]
    assert fail(capsys, *words) == "specsim: error: asked for seed 5\n"
