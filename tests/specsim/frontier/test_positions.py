"""Files of labelled positions that cannot be."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from specsim.frontier.positions import PositionsError, read_positions
from tests.support.command_line import fail, run
from tests.support.positions import frame, write_positions

Change = Callable[[pd.DataFrame], pd.DataFrame]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda f: f.iloc[:0], "has no rows"),
        (lambda f: f.drop(columns="tv"), "missing column tv"),
        (lambda f: f.assign(tv=1.1), r"tv must be a number in \[0, 1\], got 1.1 in row 0"),
        (lambda f: f.assign(tv=np.nan), "tv must be a number"),
        (lambda f: f.assign(logp_target=0.1), r"logp_target must be a number in \[-inf, 0\]"),
        (lambda f: f.assign(target_top_is_label=0.5), "target_top_is_label must be a number"),
        (lambda f: f.assign(unscaled_draft_max="x"), "unscaled_draft_max must be a number"),
        (lambda f: f.drop(columns="Lossy(looseness=0.5).top"), "missing column Lossy"),
        (lambda f: f.assign(request=None), "column request is empty in row 0"),
        (lambda f: f.assign(request=[[1]] * len(f)), "column request must hold numbers or words"),
        (lambda f: f.assign(position=0), "row 1 is of the same position of the same request"),
    ],
)
def test_what_cannot_be_is_refused(tmp_path: Path, change: Change, message: str) -> None:
    path = tmp_path / "positions.parquet"
    change(frame()).to_parquet(path)
    with pytest.raises(PositionsError, match=message) as refused:
        read_positions(path)
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize("temperature", ["hot", -1, [1.0, 2.0], {}, "1e400"])
def test_a_temperature_that_is_none_is_refused(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, temperature: Any
) -> None:
    path = tmp_path / "positions.parquet"
    given = frame()
    given.attrs = {"draft": "d", "target": "t", "temperature": temperature}
    given.to_parquet(path)
    assert "temperature must be" in fail(capsys, "defer", str(path))


def test_a_temperature_that_is_not_said_is_none(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    path = write_positions(tmp_path)
    given = frame()
    given.attrs = {"draft": "d", "target": "t", "temperature": None}
    given.to_parquet(path)
    assert "temperature" not in read_positions(path).about
    words = ("defer", str(path), "--c", "0.1", "--figure", str(tmp_path / "f.png"))
    code, out, _ = run(capsys, *words)
    assert (code, bool(out)) == (0, True)
