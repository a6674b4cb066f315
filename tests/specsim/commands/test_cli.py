"""The commands as a user types them: results, formats, one-line errors, exit codes."""

from __future__ import annotations

import csv
import io
import json
import re
import shlex
import subprocess
import sys
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from specsim.cli import COMMANDS
from specsim.optimizers.evaluation import FIGURES
from specsim.schemes import SCHEMES
from tests.support.command_line import SHAPES, fail, rows, run
from tests.support.profiles import write

PAIR = " ".join(SHAPES[:4])
MACHINE = " ".join(SHAPES[4:])
SHAPED = f"optimize {PAIR} {MACHINE} --alpha 0.8"
MISSPELT = f"optimize --target llama-3-8b --draft llama-3.2-1b {MACHINE}"


@pytest.fixture
def trace(tmp_path: Path) -> Path:
    path = tmp_path / "trace.csv"
    pd.DataFrame(
        {
            "request": [0] * 4,
            "position": range(4),
            "logp_target": [0.0] * 4,
            "logp_draft": [0.0, 0.0, -np.inf, 0.0],
        }
    ).to_csv(path, index=False)
    return path


@pytest.mark.parametrize(
    ("words", "name", "value", "tolerance"),
    [
        # Leviathan23 Thm 3.8 over gamma 0..64: the best is at 8.
        ("optimize --alpha 0.8 --c 0.05", "gamma", 8, 0),
        ("optimize --alpha 0.8 --c 0.05", "speedup", (1 - 0.8**9) / (0.2 * 1.4), 1e-12),
        # Leviathan23 Table 1, first row: operations 1.53, speed 1.96.
        ("evaluate --alpha 0.6 --c 0 --gamma 2", "operations_factor", 1.53, 0.005),
        ("evaluate --alpha 0.6 --c 0 --gamma 2", "speedup", 1.96, 0.005),
        ("evaluate --alpha 0.9,0.5 --c 0.1 --gamma 3", "tokens_per_call", 2.575, 1e-12),
        ("evaluate --alpha 0.5 --c 0.1 --gamma 1 --verify-cost 1,1.4", "speedup", 1, 1e-12),
    ],
)
def test_numbers(
    capsys: pytest.CaptureFixture[str], words: str, name: str, value: float, tolerance: float
) -> None:
    code, out, _ = run(capsys, *words.split(), "--format", "json")
    (result,) = rows(out)
    assert code == 0
    assert set(result) == set(FIGURES)
    assert result[name] == pytest.approx(value, abs=tolerance)


def test_formats(capsys: pytest.CaptureFixture[str]) -> None:
    words = ["optimize", "--alpha", "0.8", "--c", "0.05", "--format"]
    _, table, _ = run(capsys, *words, "table")
    assert "speedup" in table
    _, text, _ = run(capsys, *words, "csv")
    row = next(csv.DictReader(io.StringIO(text)))
    assert int(row["gamma"]) == 8
    _, text, _ = run(capsys, *words, "markdown")
    assert text.splitlines()[1].startswith("| --- |")


def test_profile_instead_of_numbers(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    path = str(write(tmp_path))
    _, out, _ = run(capsys, "optimize", "--profile", path, "--format", "json")
    (best,) = rows(out)
    assert set(best) >= {*FIGURES, "temperature", "formula_speedup", "formula_gamma"}
    _, out, _ = run(capsys, "evaluate", "--profile", path, "--gamma", "1", "--format", "json")
    assert rows(out)[0]["speedup"] <= best["speedup"]


def test_replay_counts(capsys: pytest.CaptureFixture[str], trace: Path) -> None:
    _, out, _ = run(capsys, "replay", str(trace), "--gamma", "0:2", "--format", "json")
    found = rows(out)
    assert [row["gamma"] for row in found] == [0, 1, 2]
    # Accepted, accepted, rejected, accepted: gamma 1 takes [0 1] [2] [3], gamma 2 [0 1 2] [3].
    assert [row["calls"] for row in found] == [4, 3, 2]
    assert "speedup" not in found[0]


def test_replay_prices_blocks(capsys: pytest.CaptureFixture[str], trace: Path) -> None:
    words = ["replay", str(trace), "--gamma", "0,2", "--c", "0.25", "--format", "json"]
    _, out, _ = run(capsys, *words, "--verify-slope", "0.25")
    assert [row["speedup"] for row in rows(out)] == [1, 2 / (0.5 + 1.5)]


def test_replay_of_policies(capsys: pytest.CaptureFixture[str], trace: Path) -> None:
    words = ["replay", str(trace), "--gamma", "1:3", "--c", "0.1", "--format", "json"]
    _, out, _ = run(capsys, *words, "--policy", "grow-shrink", "--policy", "estimate")
    found = rows(out)
    assert [row["gamma"] for row in found] == [1, 2, 3, "grow-shrink", "estimate"]
    # Starts at 3: [0 1, rejected 2], then gamma 2: [3].
    assert found[3]["calls"] == 2
    assert found[3]["speedup"] == pytest.approx(4 / (1.3 + 1.2))


@pytest.mark.parametrize("verb", ["evaluate", "simulate", "optimize"])
@pytest.mark.parametrize("scheme", list(SCHEMES))
def test_every_scheme_has_its_entry(
    capsys: pytest.CaptureFixture[str], verb: str, scheme: str
) -> None:
    words = [verb, scheme, *shlex.split(SCHEMES[scheme].example), "--format", "json"]
    if scheme == "adaptive-estimate" and verb != "simulate":
        assert "carries state across blocks" in fail(capsys, *words)
        return
    code, out, err = run(capsys, *words)
    document = json.loads(out)
    (result,) = document["answer"]["rows"]
    assert (code, err) == (0, "")
    assert document["inputs"]["scheme"] == result["scheme"] == scheme
    assert result["speedup"] > 0
    if verb == "simulate":
        assert result["speedup_low"] <= result["speedup"] <= result["speedup_high"]


def test_optimize_searches_ranges(capsys: pytest.CaptureFixture[str]) -> None:
    words = ["optimize", "speculative", "--alpha", "0.8", "--c", "0.05", "--format", "json"]
    _, out, _ = run(capsys, *words, "--gamma", "0:20")
    (best,) = json.loads(out)["answer"]["rows"]
    assert best["gamma"] == 8
    _, out, _ = run(capsys, "optimize", "--alpha", "0.8", "--c", "0.05", "--format", "json")
    assert best["speedup"] == pytest.approx(rows(out)[0]["speedup"], rel=1e-12)


def test_names_of_shapes_in_any_case(capsys: pytest.CaptureFixture[str]) -> None:
    words = ["--alpha", "0.8", "--batch", "1", "--context", "60000"]
    named = [word.upper() if not word.startswith("--") else word for word in SHAPES]
    code, out, _ = run(capsys, "optimize", *named, *words)
    assert code == 0
    assert "60,000" in out


def test_allocate(capsys: pytest.CaptureFixture[str]) -> None:
    words = ["--drafter", "small:0.65:0.0068", "--drafter", "base:0.73:0.022"]
    _, out, err = run(capsys, "allocate", *words, "--format", "json")
    assert "verification is taken as free" in err
    assert run(capsys, "allocate", *words, "--verify-slope", "0.01")[2] == ""
    result = json.loads(out)["answer"]
    # Chen23 Table 1's CNNDM pair; the true optimum is (5, 5), not the printed (5, 3).
    assert result["allocation"] == [
        {"drafter": "base", "tokens": 5},
        {"drafter": "small", "tokens": 5},
    ]
    assert result["rows"][0]["allocation"] == "base 5 + small 5"
    assert result["rows"][0]["speedup"] == pytest.approx(3.045, abs=5e-4)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("allocate --drafter a:0.2", "--drafter must be NAME:ALPHA:C"),
        ("allocate", "--drafter"),
        ("simulate nope", "no scheme is named 'nope'"),
        ("simulate bild --fallback 0.1 --c 1", "--rollback"),
        (
            "evaluate bild --fallback 0.1 --rollback 0.2 --c 0.1 --window 1:3",
            "--window must be one value here",
        ),
        (
            "evaluate bild --fallback 0.1 --rollback 0.2 --cost big=0.1",
            "the scheme's drafters are: small",
        ),
        ("optimize --c 0.1 bild --fallback 0.1 --rollback 0.2", "stands before the scheme bild"),
        ("optimize --alpha 1.3 --c 0.1", "--alpha must be in [0, 1], got 1.3"),
        ("optimize --alpha '' --c 0.1", "--alpha is empty"),
        ("optimize --alpha x --c 1", "--alpha must be a number"),
        ("optimize", "alpha is missing"),
        (
            "evaluate --alpha 0.5 --c 0.1 --gamma 2.5",
            "--gamma must be a whole number >= 0, got 2.5",
        ),
        ("replay none.csv", "no such file"),
        ("replay none.csv --gamma 4:2", "--gamma must be a range"),
        ("optimize --profile none.json", "none.json: no such file; specsim calibrate writes one"),
        ("optimize --profile none.json --alpha 0.5", "exclude each other"),
        ("nonsense", "No such command 'nonsense'"),
        ("optimise", "No such command 'optimise', did you mean optimize?"),
        ("optimize --nonsense", "No such option --nonsense"),
        ("study serving --measure", "Missing option '--out': Folder for the results\n"),
        (
            "allocate",
            "Missing option '--drafter': A drafter, its acceptance rate and its cost in target "
            "runs; repeat for each\n",
        ),
        ("optimize --tp 2", "No such option --tp\n"),
        ("optimize --contxt 2", "No such option --contxt, did you mean --context?"),
        ("optimize speculativ", "did you mean speculative"),
        (
            f"optimize {PAIR} --accelerator H100-SXN --alpha 0.8",
            "'H100-SXN' is not known, did you mean H100-SXM or",
        ),
        (SHAPED.removesuffix(" --alpha 0.8"), "alpha is missing"),
        (f"{MISSPELT} --alpha 0.8", "did you mean llama-3.1-8b or llama-3."),
        (f"{SHAPED} --batch 1:1000000000", "at most 1,000,000"),
        (f"{SHAPED} --context 131073", "must be <= 131,072"),
        ("optimize --profile x --gamma-max 3", "gamma_max and profile exclude"),
        ("replay x.csv --verify-slope 0.1", "verify_slope needs c"),
        ("replay x.csv --policy estimate", "needs c"),
    ],
)
def test_bad_input_is_one_line(
    capsys: pytest.CaptureFixture[str], words: str, message: str
) -> None:
    assert message in fail(capsys, *shlex.split(words))


def test_without_a_command_the_help_is_readable(capsys: pytest.CaptureFixture[str]) -> None:
    code, out, err = run(capsys)
    assert (code, out) == (2, "")
    assert len(err.splitlines()) > 10


@pytest.mark.parametrize("name", ["", *COMMANDS])
def test_every_command_has_help_with_an_example(
    capsys: pytest.CaptureFixture[str], name: str
) -> None:
    code, out, err = run(capsys, *([name] if name else []), "--help")
    assert (code, err) == (0, "")
    assert re.search(rf"Example\S*:.*specsim {name}|Start with: specsim", out, re.S)


def test_help_and_optimize_import_nothing_heavy() -> None:
    heavy = {"torch", "transformers", "pandas", "matplotlib", "scipy", "sympy", "pyarrow"}
    heavy |= {f"specsim.{room}" for room in ("batching", "counts", "engines", "extrapolation")}
    script = (
        "import sys\nfrom specsim.cli import main\n"
        "try:\n    main(sys.argv[1:])\nexcept SystemExit:\n    pass\n"
        f"print(sorted({heavy!r} & set(sys.modules)))"
    )
    for words in (["--help"], ["optimize", "--alpha", "0.8", "--c", "0.05", "--format", "json"]):
        result = subprocess.run(
            [sys.executable, "-c", script, *words], capture_output=True, text=True, check=True
        )
        assert result.stdout.splitlines()[-1] == "[]"


def test_core_never_imports_torch() -> None:
    script = (
        "import sys, pkgutil, importlib, specsim\n"
        "for module in pkgutil.walk_packages(specsim.__path__, 'specsim.'):\n"
        "    importlib.import_module(module.name)\n"
        "print({'torch', 'transformers', 'calibrate', 'studies'} & set(sys.modules))"
    )
    result = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
    assert result.stdout.strip() == "set()", result.stderr
