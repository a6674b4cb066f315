"""What the long run rests on: examples by number, counts that add up, findings as cases."""

from __future__ import annotations

import ctypes
import json
from pathlib import Path

import pytest

import specsim
from tests.support import fuzz_examples
from tests.support.fuzz_batches import finding, try_batch
from tests.support.fuzz_examples import example_number, file_cases, keep_case, line_cases
from tests.support.fuzz_readers import READERS
from tests.support.fuzz_run import MOST_BYTES, Outcome
from tests.support.fuzz_session import Example, FuzzSession
from tests.support.fuzz_tally import LINES, Tally


def test_numbers_name_examples(session: FuzzSession) -> None:
    found = [example_number(session, 3, index) for index in range(12)]
    assert found == [example_number(session, 3, index) for index in range(12)]
    assert [bool(each.line) for each in found] == [True, False] * 6
    assert all(each.damage and each.kind and each.command for each in found[1::2])


def test_what_was_tried_adds_up(session: FuzzSession, tmp_path: Path) -> None:
    at = ctypes.c_long(0)
    one, other = (try_batch(session, batch, 6, at).tally for batch in (0, 1))
    assert at.value == 5
    path = tmp_path / "tally.json"
    assert Tally.at(path) == Tally()
    both = Tally.at(path)
    for each in (one, other):
        both.add(each)
    both.write(path)
    assert Tally.at(path) == both
    assert sum(both.counts[LINES].values()) == 6
    assert sum(sum(ends.values()) for ends in both.counts.values()) == 12
    assert both.slowest_s == max(one.slowest_s, other.slowest_s)
    *_, files, lines, _took, problems = both.lines()
    assert files.split()[:3] == ["damaged", "files", "6"]
    assert lines.split()[:3] == ["command", "lines", "6"]
    assert problems == "problems: 0"


def _responses(tokens_per_call: float) -> str:
    """Requests of 9 tokens, which are the first of a response of 64."""
    asked = {"scheme": "sequence-cascade", "tokens": 9, "description": {"length": 64}}
    return json.dumps({"inputs": asked, "answer": {"tokens_per_call": tokens_per_call}})


@pytest.mark.parametrize(
    ("outcome", "problem"),
    [
        (Outcome(("x",), 0, '{"answer": {"rows": [{"speedup": 1.5}]}}', ""), None),
        (Outcome(("x",), 0, '{"answer": {"rows": [{"speedup": -1}]}}', ""), "speedup = -1"),
        (Outcome(("x",), 1, '{"answer": {"tokens_per_call": 0.5}}', ""), "tokens_per_call = 0.5"),
        (Outcome(("x",), 0, _responses(tokens_per_call=0.15), ""), None),
        (Outcome(("x",), 0, _responses(tokens_per_call=0.14), ""), "tokens_per_call = 0.14"),
        (Outcome(("x",), 0, '{"answer": {"alpha": NaN}}', ""), "a figure that is NaN"),
        (Outcome(("x",), 0, '{"answer"', ""), "no JSON"),
        (Outcome(("x",), 2, "", "specsim: error: no\n"), None),
        (Outcome(("x",), 2, "", "specsim: error: no\nmore\n"), "a refusal of other than one line"),
        (Outcome(("x",), 2, "1", "specsim: error: no\n"), "a refusal with an answer"),
        (Outcome(("x",), 3, "", "specsim: internal error"), "status 3"),
        (Outcome(("x",), 0, "", "Traceback (most recent call last)"), "a traceback"),
        (Outcome(("x",), 0, "", "", seconds=11.0), "took 11 s"),
        (Outcome(("x",), 0, "", "", peak_bytes=2 * MOST_BYTES), "took 3.0 GiB"),
    ],
)
def test_what_must_not_come_of_a_command(outcome: Outcome, problem: str | None) -> None:
    found = outcome.problem()
    assert (found is None) == (problem is None)
    assert problem is None or (found is not None and found.startswith(problem))


def test_memory_is_that_of_one_command(
    session: FuzzSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of 300 MB that are held for a moment, in the one command that holds them."""

    def hold(path: Path) -> None:
        assert len(bytearray(3 * 10**8)) == 3 * 10**8

    def peak() -> int:
        return session.run_damaged("prompts in text", {}, "read-prompts FILE").peak_bytes

    monkeypatch.setitem(READERS, "read-prompts", hold)
    assert peak() > 2.9e8
    monkeypatch.setitem(READERS, "read-prompts", lambda path: None)
    assert peak() < 1e8


def test_what_is_found_is_kept_and_made_shorter(
    session: FuzzSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Words go that are not needed for the failure."""

    def crash(name: str) -> None:
        raise ZeroDivisionError(name)

    monkeypatch.setattr(specsim, "schema", crash)
    monkeypatch.setattr(fuzz_examples, "CASES", tmp_path)
    line = Example(line=("schema", "--", "profile"))
    outcome = line.run(session)
    assert outcome.code == 3
    found = finding(session, line, outcome)
    assert found.example == Example(line=("schema", "profile"))
    assert found.problem == "specsim/commands/schema.py, command: ZeroDivisionError"
    damaged = Example(kind="plan", damage={"plan.json": b"\xff"}, command="export vllm")
    keep_case(damaged, "status 3")
    keep_case(found.example, found.problem)
    assert list(line_cases()) == [found.example]
    ((name, kept),) = file_cases()
    assert name.startswith("plan-")
    assert kept == damaged
