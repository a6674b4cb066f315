"""Claims against intervals, and the roofline of a made-up core."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from specsim import hardware
from studies.common.claims import beyond, counted
from studies.common.measured import Measured
from studies.fidelity import roofline as fidelity_roofline
from tests.support.profiles import write


def test_what_an_interval_says_of_a_mark() -> None:
    assert beyond(1.1, 1.3, 1.0) is True
    assert beyond(0.7, 0.9, 1.0) is False
    assert beyond(0.9, 1.1, 1.0) is beyond(1.0, 1.2, 1.0) is None


def test_a_claim_counts_what_is_open() -> None:
    (row,) = counted([("A", "b", True, "x"), ("A", "b", None, "y"), ("A", "b", False, "z")])
    assert row == {"claim": "b", "holds": "1 of 3, 1 open", "here": "x; y; z", "source": "A"}
    assert counted([("A", "b", True, "x")])[0]["holds"] == "1 of 1"
    assert counted([]) == []


def test_the_rates_of_a_core_are_found_again(tmp_path: Path) -> None:
    config = hardware.read_config("llama-3.2-1b")
    shape = hardware.shape_from_config(config).at(hardware.Precision("float32"))
    core = hardware.Accelerator("core", {"float32": 50e9}, 20e9, 1e12, "made up")

    def cell(kind: tuple[str, str, int], batch: int) -> dict[str, Any]:
        model, follows, tokens = kind
        seconds, plain = (
            hardware.roofline(shape, core, new, batch, 64).seconds for new in (tokens, 1)
        )
        where = {"batch": batch, "context": 64, "mode": "eager"}
        runs = {"seconds": [seconds], "plain": [plain]}
        return {"model": model, "follows": follows, "tokens": tokens, **where, **runs}

    kinds = [("target", "draft", tokens) for tokens in range(1, 6)]
    kinds += [("draft", "target", 1), ("draft", "draft", 1)]
    grid = [cell(kind, batch) for kind in kinds for batch in (1, 2, 8, 32)]
    model = {"name": "m", "parameters": 1, "context": 512, "sha256": "0", "config": config}
    path = write(tmp_path, grid=grid, target=model, draft=model)
    rows = {row["run"]: row for row in fidelity_roofline.rows(Measured.at(path))}
    assert rows.keys() == {"target", "first draft", "next draft"}
    assert rows["target"]["gflop_per_s"] == pytest.approx(50, rel=0.01)
    assert rows["target"]["gb_per_s"] == pytest.approx(20, rel=0.01)
    assert rows["target"]["worst_error"] < 0.01
    # Without a grid there is nothing to compare.
    assert not list(fidelity_roofline.rows(Measured.at(write(tmp_path))))
