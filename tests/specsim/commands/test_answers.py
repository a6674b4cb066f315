"""Commands asked without a terminal, against the same as they are typed."""

from __future__ import annotations

import json
import shlex
from pathlib import Path
from typing import Any

import pytest

from specsim.checks import InvalidArgumentError, SpecsimError
from specsim.cli import COMMANDS
from specsim.commands._answers import ANSWERING, NOT_INPUTS, answer, inputs_of
from specsim.schemes import SCHEMES
from specsim.sweeps.chunks import answer_setting
from tests.support.command_line import fail, run

DEPLOYED = {
    "target": "llama-3.1-8b",
    "drafter": ("draft_model:llama-3.2-1b", "ngram:match=0.4,alpha=0.6"),
    "accelerator": "H100-SXM",
}
ASKED: list[tuple[str, dict[str, Any], str]] = [
    ("evaluate", {"alpha": 0.8, "c": 0.05, "gamma": 4}, "--alpha 0.8 --c 0.05 --gamma 4"),
    (
        "optimize",
        {"conditional": (0.8, 0.7), "heads": False, "rounds": 500, "c": 0.05},
        "--conditional 0.8,0.7 --no-heads --rounds 500 --c 0.05",
    ),
    (
        "optimize",
        {**DEPLOYED, "alpha": 0.7, "batch": "1,8", "context": 512},
        "--target llama-3.1-8b --drafter draft_model:llama-3.2-1b "
        "--drafter ngram:match=0.4,alpha=0.6 --accelerator H100-SXM --alpha 0.7 --batch 1,8 "
        "--context 512",
    ),
    (
        "optimize bild",
        {"fallback": 0.2, "rollback": 0.05, "window": "1:5", "c": 0.1},
        "--fallback 0.2 --rollback 0.05 --window 1:5 --c 0.1",
    ),
    (
        "simulate speculative",
        {"alpha": 0.8, "gamma": 3, "c": 0.05, "blocks": 1000, "seed": 7},
        "--alpha 0.8 --gamma 3 --c 0.05 --blocks 1000 --seed 7",
    ),
    (
        "allocate",
        {"drafter": ("base:0.8:0.04", "small:0.75:0.02")},
        "--drafter base:0.8:0.04 --drafter small:0.75:0.02",
    ),
    (
        "explain",
        {**DEPLOYED, "drafter": None, "draft": "llama-3.2-1b", "gamma": 3, "alpha": 0.7},
        "--target llama-3.1-8b --accelerator H100-SXM --draft llama-3.2-1b --gamma 3 --alpha 0.7",
    ),
    (
        "workload",
        {"rate": 4, "prompt": "uniform:50,400", "output": 100, "requests": 50},
        "--rate 4 --prompt uniform:50,400 --output 100 --requests 50",
    ),
]


@pytest.mark.parametrize(("command", "setting", "words"), ASKED)
def test_an_answer_is_what_the_command_prints(
    capsys: pytest.CaptureFixture[str], command: str, setting: dict[str, Any], words: str
) -> None:
    found = answer(command, setting)
    assert capsys.readouterr() == ("", "")
    code, out, err = run(capsys, *shlex.split(f"{command} {words} --format json"))
    assert code == 0, err
    assert found.document() == json.loads(out)


def test_an_argument_stands_behind_the_options(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    trace = tmp_path / "trace.csv"
    trace.write_text(
        "request,position,logp_target,logp_draft\n0,0,-0.1,-0.2\n0,1,-0.3,-0.1\n0,2,-0.1,-0.1\n"
    )
    found = answer("replay", {"trace": str(trace), "gamma": "1:2", "greedy": False})
    code, out, err = run(capsys, "replay", "--gamma", "1:2", str(trace), "--format", "json")
    assert code == 0, err
    assert found.document() == json.loads(out)


@pytest.mark.parametrize(
    ("command", "setting", "words"),
    [
        ("evaluate", {"alpha": 1.5, "c": 0.1, "gamma": 2}, "--alpha 1.5 --c 0.1 --gamma 2"),
        ("evaluate", {"alpha": 0.5, "gamma": 2}, "--alpha 0.5 --gamma 2"),
        ("simulate bild", {"fallback": 0.2, "c": 0.1}, "--fallback 0.2 --c 0.1"),
        ("optimize", {"alpha": 0.5, "acceptance_law": "x"}, "--alpha 0.5 --acceptance-law x"),
    ],
)
def test_a_failure_has_the_line_of_the_terminal(
    capsys: pytest.CaptureFixture[str], command: str, setting: dict[str, Any], words: str
) -> None:
    with pytest.raises(SpecsimError) as refusal:
        answer(command, setting)
    printed = fail(capsys, *shlex.split(f"{command} {words}"))
    assert f"specsim: error: {refusal.value}\n" == printed
    assert answer_setting(command, setting) == {"failure": str(refusal.value)}


def test_what_nobody_thought_of_is_a_failure_of_its_setting(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def broken(command: str, setting: object) -> None:
        raise ZeroDivisionError("division\nby zero")

    monkeypatch.setattr("specsim.commands._answers.answer", broken)
    assert answer_setting("evaluate", {}) == {"failure": "ZeroDivisionError: division by zero"}


def test_every_command_that_answers_has_inputs() -> None:
    assert set(ANSWERING) <= set(COMMANDS)
    for command in set(ANSWERING) - {"simulate"}:
        found = inputs_of(command)
        assert found
        assert not set(NOT_INPUTS) & set(found)
        assert all(name == each.name for name, each in found.items())
    for command in ("optimize", "evaluate", "simulate"):
        for scheme in SCHEMES:
            assert "c" in inputs_of(f"{command} {scheme}")


def test_names_are_those_of_the_options() -> None:
    found = inputs_of("replay")
    assert (found["trace"].on, found["trace"].required) == ("", True)
    assert (found["policy"].on, found["policy"].repeats) == ("--policy", True)
    assert found["greedy"].is_switch
    heads = inputs_of("evaluate")["heads"]
    assert (heads.on, heads.off, heads.is_switch) == ("--heads", "--no-heads", True)
    assert inputs_of("plan")["slo"].required
    assert inputs_of("read")["files"].repeats
    with pytest.raises(InvalidArgumentError, match="command must be one of"):
        inputs_of("")
