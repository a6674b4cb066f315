"""What every result shares: the document, its JSON, and how a terminal shows it."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import pytest

from specsim import __version__
from specsim.api.result import LeftOut, Result, Row
from specsim.report.tables import show


@dataclass(frozen=True)
class _Answer(Result):
    schema: ClassVar[str] = "specsim.test"
    value: Any = 1.0

    def rows(self) -> list[Row]:
        return [{"value": self.value}]

    def summary(self) -> Row:
        return {"best": 3}

    def sentences(self) -> list[str]:
        return ["it pays"]


def test_the_document_says_what_it_rests_on() -> None:
    answer = _Answer(
        value=np.inf,
        inputs={"alpha": np.array([0.5, np.nan])},
        warnings=("doubt it",),
        left_out=(LeftOut("batch 9", "memory"),),
    )
    assert json.loads(answer.to_json()) == {
        "schema": "specsim.test",
        "version": 1,
        "specsim": __version__,
        "inputs": {"alpha": [0.5, None]},
        "answer": {"best": 3, "rows": [{"value": None}]},
        "left_out": [{"what": "batch 9", "why": "memory"}],
        "warnings": ["doubt it"],
    }
    assert answer.frame()["value"].tolist() == [np.inf]


def test_rows_on_stdout_and_the_rest_on_stderr(capsys: pytest.CaptureFixture[str]) -> None:
    answer = _Answer(warnings=("doubt it",), left_out=(LeftOut("batch 9", "memory"),))
    for output_format in ("table", "json", "csv", "markdown"):
        show(answer, output_format, "title")
        captured = capsys.readouterr()
        assert "value" in captured.out
        assert captured.err == "it pays\ndoubt it\nbatch 9 is left out: memory\n"


def test_at_most_twenty_lines_beside_a_result(capsys: pytest.CaptureFixture[str]) -> None:
    show(_Answer(warnings=tuple(f"warning {n}" for n in range(50))), "table")
    lines = capsys.readouterr().err.splitlines()
    assert len(lines) == 20
    assert lines[-1] == "and 32 lines more, all in --format json"
    show(_Answer(warnings=tuple(f"warning {n}" for n in range(19))), "table")
    assert len(capsys.readouterr().err.splitlines()) == 20


@pytest.mark.parametrize(
    ("value", "written"),
    [
        ("a\ud83db", "a\\ud83db"),
        (2**62, 2**62),
        (2**64, 2.0**64),
        (-(10**400), None),
        (True, True),
        ({"\udcff": (np.int8(1), float("nan"))}, {"\\udcff": [1, None]}),
    ],
)
def test_a_document_can_be_written_whatever_is_in_it(value: Any, written: Any) -> None:
    answer = _Answer(value=value, warnings=("half \ud83d of it",))
    document = json.loads(answer.to_json())
    assert document["answer"]["rows"] == [{"value": written}]
    assert document["warnings"] == ["half \\ud83d of it"]
