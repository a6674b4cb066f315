"""Definitions from files, and files that are refused in one line."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from specsim.sweeps.definition import SweepDefinition
from specsim.sweeps.reading import SweepFileError, read_definition
from specsim.sweeps.values import Spaced, Stepped

TOML = """
command = "optimize"

[inputs]
alpha = [0.6, 0.7]
c = { first = 0.02, last = 0.2, step = 0.02 }
overhead = { first = 0.01, last = 1, count = 5, spacing = "log" }
gamma-max = 16
verify-cost = [[1, 1.1, 1.3], [1, 1.2]]

[[cases]]
c-ops = 0.1

[[cases]]
c-ops = 0.2
c_memory = 0.3
"""
YAML = """
command: optimize
inputs:
  alpha: [0.6, 0.7]
  c: {first: 0.02, last: 0.2, step: 0.02}
  overhead: {first: 0.01, last: 1, count: 5, spacing: log}
  gamma-max: 16
  verify-cost: [[1, 1.1, 1.3], [1, 1.2]]
cases:
  - c-ops: 0.1
  - c-ops: 0.2
    c_memory: 0.3
"""


def test_a_file_is_read(tmp_path: Path) -> None:
    found = {}
    for name, text in {"a.toml": TOML, "a.yaml": YAML}.items():
        (tmp_path / name).write_text(text)
        found[name] = read_definition(tmp_path / name)
    assert found["a.toml"] == SweepDefinition(
        "optimize",
        {
            "alpha": (0.6, 0.7),
            "c": Stepped(0.02, 0.2, 0.02),
            "overhead": Spaced(0.01, 1, 5, log=True),
            "gamma_max": (16,),
            "verify_cost": ((1, 1.1, 1.3), (1, 1.2)),
        },
        ({"c_ops": 0.1}, {"c_ops": 0.2, "c_memory": 0.3}),
    )
    assert found["a.yaml"] == found["a.toml"]
    assert found["a.toml"].size == 2 * 2 * 10 * 5 * 2


def test_what_it_says_of_itself_is_read_again(tmp_path: Path) -> None:
    (tmp_path / "a.toml").write_text(TOML)
    once = read_definition(tmp_path / "a.toml")
    # As JSON gives it back: tuples are lists there.
    said = once.described()
    said["inputs"]["verify_cost"] = [list(each) for each in said["inputs"]["verify_cost"]]
    assert read_definition(said) == once


def test_commands_with_schemes_switches_and_arguments() -> None:
    scheme = {"command": "simulate  bild", "inputs": {"fallback": 0.2, "rollback": 0.1, "c": 0.1}}
    assert read_definition(scheme).command == "simulate bild"
    plan = {"command": "plan", "inputs": {"slo": "ttft_p99=1", "analytic": [True, False]}}
    assert read_definition(plan).inputs["analytic"] == (True, False)
    replay = {"command": "replay", "inputs": {"trace": ["a.parquet", "b.parquet"]}}
    assert read_definition(replay).size == 2


def _inputs(command: str, **inputs: Any) -> dict[str, Any]:
    return {"command": command, "inputs": inputs}


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ({"inputs": {}}, r"command must be the name of a command"),
        ({"command": "optimise", "inputs": {"c": 1}}, r"one of .*, did you mean optimize\?"),
        ({"command": "calibrate", "inputs": {"c": 1}}, r"command must be one of"),
        ({"command": "validate"}, r"read, got 'validate', which runs models, writes files or is"),
        ({"command": "export", "inputs": {"c": 1}}, r"read, got 'export', which runs models"),
        ({"command": "optimise", "inputs": {"c": 1}}, r"'optimise', did you mean optimize\?"),
        ({"command": "simulate", "inputs": {"c": 1}}, r"needs a scheme behind it: plain"),
        ({"command": "simulate bidl", "inputs": {}}, r"has no 'bidl', did you mean bild\?"),
        ({"command": "allocate x", "inputs": {}}, r"has no 'x'"),
        ({"command": "evaluate", "input": {}}, r"'input' is none of .*, did you mean inputs\?"),
        ({"command": "evaluate"}, r"inputs is missing"),
        ({"command": "evaluate", "inputs": []}, r"inputs must be a table"),
        ({"command": "evaluate", "cases": {"c": 1}}, r"cases must be a list of tables"),
        ({"command": "evaluate", "cases": [1]}, r"cases\[0\] must be a table"),
        ({"command": "evaluate", "cases": [{"c": {"first": 1}}]}, r"cases\[0\].c must be a number"),
        (_inputs("evaluate", alfa=0.8), r"inputs.alfa is no input of specsim evaluate, did you"),
        (_inputs("optimize", figure="a.png"), r"inputs.figure is no input of a sweep: it says"),
        (_inputs("serve", workers=2), r"inputs.workers is no input of a sweep"),
        (_inputs("evaluate", **{"c-ops": 1, "c_ops": 2}), r"inputs.c_ops is given twice"),
        (_inputs("plan", rate=[1, 2]), r"inputs.slo is missing"),
        (_inputs("evaluate", c=[]), r"inputs.c is empty"),
        (_inputs("evaluate", c=True), r"inputs.c must be a number or a text, got True"),
        (_inputs("plan", slo="a", analytic=1), r"inputs.analytic must be true or false, got 1"),
        (_inputs("plan", slo="a", analytic={"first": 0}), r"analytic must be true or false"),
        (_inputs("evaluate", c=[[[1]]]), r"inputs.c has lists more than two deep"),
        (_inputs("evaluate", c=[[]]), r"inputs.c must hold words in an inner list"),
        (_inputs("evaluate", c=float("nan")), r"inputs.c must be finite, got nan"),
        (_inputs("evaluate", c=2**60), r"inputs.c must be at most 2\^53"),
        (_inputs("evaluate", c=object()), r"inputs.c must be a number or a text"),
        (_inputs("evaluate", c={"first": 0}), r"inputs.c: last is missing"),
        (_inputs("evaluate", c={"first": 0.5, "last": 1}), r"inputs.c: step or count is missing"),
        (_inputs("evaluate", c={"from": 0, "to": 1}), r"inputs.c: 'from' is none of first, last"),
        (_inputs("evaluate", c={"first": "a", "last": 1}), r"first must be a number, got 'a'"),
        (_inputs("evaluate", c={"first": 0, "last": 1, "count": 2.5}), r"must be a whole number"),
        (_inputs("evaluate", c={"first": 0, "last": 1, "step": 1, "count": 2}), r"exclude"),
        (_inputs("evaluate", c={"first": 0, "last": 1, "spacing": "log"}), r"goes with count"),
        (
            _inputs("evaluate", c={"first": 1, "last": 2, "count": 2, "spacing": "cubic"}),
            r"spacing must be one of linear, log",
        ),
        (_inputs("evaluate", c={"first": 2, "last": 1}), r"inputs.c: last must be >= 2, got 1"),
    ],
)
def test_what_is_no_sweep_is_refused_in_a_line(content: Any, message: str) -> None:
    with pytest.raises(SweepFileError, match=message) as refusal:
        read_definition(content)
    assert "\n" not in str(refusal.value)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("command: {laughs}", r"command must be the name of a command, such as optimize, got \[\["),
        ("command: evaluate\ninputs: {laughs}", "inputs must be a table"),
        ("command: evaluate\ninputs: {{c: {laughs}}}", "inputs.c has lists more than two deep"),
        (
            "command: evaluate\ninputs: {{c: {{first: {laughs}, last: 1}}}}",
            "first must be a number",
        ),
        ("command: evaluate\ninputs: {{c: &c [*c]}}", "inputs.c has lists more than two deep"),
        (
            "command: evaluate\ninputs: {{c: 0x{digits}}}",
            r"must be at most 2\^53, got int that is too",
        ),
        (
            "command: evaluate\ninputs:\n  ? 0x{digits}\n  : 1",
            "inputs must have texts as names, got int that is too long",
        ),
        (
            "command: evaluate\ninputs: {{c: {{first: 0x{digits}, last: 1}}}}",
            "first must be a number",
        ),
    ],
)
def test_yaml_that_is_larger_than_it_looks(text: str, message: str, tmp_path: Path) -> None:
    """Lists that hold each other or themselves, and numbers of ten thousand digits."""
    pytest.importorskip("yaml")
    flow = "&a0 [x, x]"
    for n in range(1, 30):
        flow = f"&a{n} [{flow}, *a{n - 1}]"
    path = tmp_path / "a.yaml"
    path.write_text(text.format(laughs=flow, digits="f" * 10_000))
    with pytest.raises(SweepFileError, match=message) as refusal:
        read_definition(path)
    assert "\n" not in str(refusal.value)
    assert len(str(refusal.value)) < 1000


def _missing(folder: Path) -> Path:
    return folder / "none.toml"


def _broken(folder: Path) -> Path:
    (folder / "a.toml").write_text("command = \n")
    return folder / "a.toml"


def _broken_yaml(folder: Path) -> Path:
    (folder / "a.yml").write_text("command: [\n")
    return folder / "a.yml"


def _list(folder: Path) -> Path:
    (folder / "a.yaml").write_text("- command\n")
    return folder / "a.yaml"


def _other(folder: Path) -> Path:
    (folder / "a.json").write_text("{}")
    return folder / "a.json"


def _bytes(folder: Path) -> Path:
    (folder / "b.toml").write_bytes(b"\xff\xfe")
    return folder / "b.toml"


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (_missing, "none.toml: no such file"),
        (_broken, "a.toml: not TOML"),
        (_broken_yaml, "a.yml: not YAML"),
        (_list, "a.yaml: a sweep must be a table of names and values"),
        (_other, r"a.json: the name must end in .toml, .yaml or .yml"),
        (_bytes, "b.toml: cannot be read"),
    ],
)
def test_a_bad_file_is_named_in_a_line(
    tmp_path: Path, make: Callable[[Path], Path], message: str
) -> None:
    path = make(tmp_path)
    with pytest.raises(SweepFileError, match=message) as refusal:
        read_definition(path)
    assert "\n" not in str(refusal.value)
