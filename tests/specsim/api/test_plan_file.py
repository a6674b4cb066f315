"""A plan in a file, as export takes it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from specsim.api.plan_file import planned_schedule
from specsim.checks import InvalidArgumentError


def written(folder: Path, schedule: Any, **plan: Any) -> Path:
    path = folder / "plan.json"
    answer = {"plan": {"met": True, "schedule": schedule, **plan}}
    path.write_text(json.dumps({"schema": "specsim.serving", "answer": answer}))
    return path


def test_a_schedule_is_read(tmp_path: Path) -> None:
    path = written(tmp_path, [[1, 4, 5], [5, 64, 0]])
    assert planned_schedule(path) == [(1, 4, 5), (5, 64, 0)]


@pytest.mark.parametrize(
    ("schedule", "message"),
    [
        (None, "schedule: Expected `array`, got `null`"),
        ([], "schedule is empty"),
        ([[1, 4]], "schedule: Expected `array` of length 3"),
        ([[1, 4, "five"]], "schedule: Expected `int`"),
        ([[2, 4, 5]], r"schedule\[0\] must be .* begin with batch 1, got \(2, 4, 5\)"),
        ([[1, 4, 5], [6, 8, 3]], r"schedule\[1\] must be .* begin with batch 5"),
        ([[1, 4, 5], [4, 8, 3]], r"schedule\[1\]"),
        ([[1, 0, 5]], r"schedule\[0\]"),
        ([[1, 4, -1]], r"schedule\[0\]"),
    ],
)
def test_a_schedule_that_cannot_be_is_refused(tmp_path: Path, schedule: Any, message: str) -> None:
    with pytest.raises(InvalidArgumentError, match=message) as refused:
        planned_schedule(written(tmp_path, schedule))
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize(
    "content",
    [b"", b"{", b"[]", b"null", b"[" * 100_000, b"\xff", b'{"schema": "specsim.serving"}'],
)
def test_what_is_no_plan_is_refused(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "plan.json"
    path.write_bytes(content)
    with pytest.raises(InvalidArgumentError, match=r"is no plan|cannot be read"):
        planned_schedule(path)
    with pytest.raises(InvalidArgumentError, match="no such file"):
        planned_schedule(tmp_path / "none.json")


def test_a_plan_that_meets_nothing_has_no_schedule(tmp_path: Path) -> None:
    with pytest.raises(InvalidArgumentError, match="meets no level"):
        planned_schedule(written(tmp_path, [[1, 4, 5]], met=False))
