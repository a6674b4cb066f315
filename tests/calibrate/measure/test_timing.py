"""Run times go on where they were when a calibration was killed."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from calibrate.measure import timing
from specsim.checkpoint import Checkpoint


def test_rounds_that_were_timed_are_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rounds = 0

    def sample(*given: Any) -> None:
        nonlocal rounds
        *_, context, _, random, samples = given
        if rounds == 3:
            raise KeyboardInterrupt
        rounds += 1
        samples["target", "target", 1, context] += random.random(2).tolist()

    monkeypatch.setattr(timing, "sample_runs", sample)
    asked: Any = (None, None, [8, 16], 1, 3, 0)
    whole, killed = Checkpoint(tmp_path / "whole"), Checkpoint(tmp_path / "killed")
    with pytest.raises(KeyboardInterrupt):
        timing.time_runs(*asked, killed)
    rounds = -3  # six are asked for, and three of them are there
    resumed = timing.time_runs(*asked, killed)
    assert rounds == 0
    rounds = -6
    assert timing.time_runs(*asked, whole) == resumed
    assert [row.repeats for row in resumed] == [6, 6]
