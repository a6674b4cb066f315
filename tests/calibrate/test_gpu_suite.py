"""The battery for an accelerator at its small size, and the report that is made of it."""

from __future__ import annotations

import json
import multiprocessing
import os
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from calibrate import gpu_suite
from calibrate.batch.ragged import CompileError
from calibrate.gpu_report import main as report_main
from calibrate.gpu_report import report
from calibrate.gpu_suite import Job, Stage
from calibrate.suite import costs
from calibrate.suite.costs import StartAnewError, measure_costs
from calibrate.suite.pair import measure_pair
from calibrate.suite.plan import FULL, TINY
from calibrate.suite.raw import Deadline, Raw, cannot_be_recorded
from specsim.profiles import read_profile
from tests.support.command_line import run

# A machine with an accelerator may have none of these.
ABSENT = (*("msgspec", "scipy", "pandas", "pyarrow", "matplotlib", "pydantic", "array_api_compat"),)
CPU = torch.device("cpu")
LATER = Deadline(time.time() + 1e6)


@pytest.fixture(scope="module")
def raw(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The raw files of all parts, from a Python in which the packages above cannot be imported.

    Half a minute, nearly all of it imports of torch in one process a stage.
    """
    folder = tmp_path_factory.mktemp("battery")
    # Python runs a module of this name at every start, so it holds for the stages' processes too.
    block = f"import sys\nfor name in {ABSENT!r}:\n    sys.modules[name] = None\n"
    (folder / "sitecustomize.py").write_text(block)
    root = str(Path(__file__).parents[2])
    environment = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join([str(folder), root]),
        "OMP_NUM_THREADS": "1",
        "HF_HUB_OFFLINE": "1",
        "CUDA_VISIBLE_DEVICES": "",
    }
    out = folder / "raw"
    command = [sys.executable, "-m", "calibrate.gpu_suite", "--tiny", "--out", str(out)]
    done = subprocess.run(
        [*command, "--minutes", "20"], env=environment, capture_output=True, text=True, timeout=600
    )
    assert done.returncode == 0, done.stderr
    assert "no errors" in done.stderr
    return out


@pytest.fixture(scope="module")
def reported(raw: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What the report makes of them; the data sheet is that of a device that did not run here."""
    out = tmp_path_factory.mktemp("report")
    report(raw, out, "H200")
    return out


def content(raw: Path, name: str) -> Any:
    return json.loads((raw / f"{name}.json").read_text())


def test_what_comes_back_is_small(raw: Path) -> None:
    names = {file.name for file in raw.iterdir()}
    assert names == {
        *("machine.json", "pair.json", "trace.json", "forced.json"),
        *("costs-8b-1b.json", "costs-30b-a3b-0.6b.json"),
    }
    assert len(names) + len(FULL.costs) - len(TINY.costs) <= 8
    assert all(file.is_file() and file.stat().st_size < 2e6 for file in raw.iterdir())


def test_nothing_is_left_out(raw: Path) -> None:
    pair, plan = content(raw, "pair"), TINY.pair
    assert (pair["errors"], pair["missing"]) == ({}, {})
    assert len(pair["decoded"]) == plan.decoded * 2 * (plan.gamma_max + 1)
    assert set(pair["forced"]) == {"eager at temperature 0", "eager at temperature 1"}
    assert pair["training"]["target"]["tokens_seen"] > 0
    for cost in TINY.costs:
        cells = content(raw, f"costs-{cost.name}")["cells"]
        assert len(cells) == len(cost.batches) * len(cost.contexts)
        assert all("times" in cell for cell in cells.values())
    # Batches 1 and 2 at temperature 0 and batch 1 at temperature 1, at two contexts.
    assert Counter(cell["batch"] for cell in content(raw, "forced")["8b-1b"].values()) == {
        1: 4,
        2: 2,
    }


def test_decoding_is_lossless_and_its_calls_are_those_of_the_replay(reported: Path) -> None:
    greedy = [row for row in content(reported, "pair")["calls"] if row["temperature"] == 0]
    assert [row["gamma"] for row in greedy] == [0, 1, 2]
    for row in greedy:
        assert row["requests"] == row["equal_requests"] == row["same_text"] == TINY.pair.decoded


def test_the_report_is_read_by_specsim(reported: Path, capsys: pytest.CaptureFixture[str]) -> None:
    profile = read_profile(reported / "costs-8b-1b.json")
    assert profile.missing == []
    assert {row.batch for row in profile.grid} == {1, 2}
    words = ("--alpha", "0.8", "--batch", "1,2", "--context", "16", "--format", "json")
    code, printed, err = run(
        capsys, "optimize", "--profile", str(reported / "costs-8b-1b.json"), *words
    )
    assert code == 0, err
    assert len(json.loads(printed)) == 4
    assert len(content(reported, "forced")) == 6 * TINY.costs[0].gamma_max
    assert {row["drafter"] for row in content(reported, "pair")["alpha"]} == {
        *("draft", "unigram", "bigram"),
    }
    fitted = [row for row in content(reported, "roofline") if row["efficiency"] == "fitted"]
    assert {row["pair"] for row in fitted} == {"8b-1b", "30b-a3b-0.6b", "pair"}
    summary = (reported / "summary.md").read_text()
    assert "no result here means anything" in summary
    assert "break-even batch within one step" in summary


def test_the_report_says_what_is_missing(raw: Path, tmp_path: Path) -> None:
    some = tmp_path / "raw"
    some.mkdir()
    for name in ("machine", "costs-8b-1b"):
        found = content(raw, name)
        for cell in found.get("cells", {}).values():
            if cell["batch"] == 2:
                del cell["times"], cell["overhead"]
                cell["reason"] = "out of time"
        (some / f"{name}.json").write_text(json.dumps(found))
    broken = {"errors": {"32b-0.6b-compiled": "RuntimeError: no device"}}
    (some / "costs-32b-0.6b.json").write_text(json.dumps(broken))
    report(some, tmp_path / "out", "H200")
    summary = (tmp_path / "out" / "summary.md").read_text()
    assert "costs-8b-1b: eager-2-16, eager-2-40: out of time" in summary
    assert "costs-32b-0.6b: 32b-0.6b-compiled: RuntimeError: no device" in summary
    assert "Nothing to judge" in summary


def test_a_report_needs_results(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    words = ["gpu_report", str(tmp_path), "--out", str(tmp_path / "out")]
    monkeypatch.setattr(sys, "argv", words)
    with pytest.raises(SystemExit, match="2"):
        report_main()


# -- a stage: what fails, what is left, what is tried again --


def measure(out: Path, mode: str = "eager", deadline: Deadline = LATER) -> None:
    plan = TINY.costs[0]
    work = out / "work"
    measure_costs(plan, TINY.alpha, mode, ("forced", "grids"), out, work, deadline, CPU)


def reasons(out: Path) -> Counter[str]:
    cells = content(out, "costs-8b-1b")["cells"].values()
    return Counter(cell.get("reason", "") for cell in cells)


def pretend(monkeypatch: pytest.MonkeyPatch, error: Exception | None, batch: int) -> list[int]:
    """Cells that take no time, of which those of one batch fail; the batches that were tried."""
    tried: list[int] = []

    def grid_cell(_: Any, models: Any, size: int, *__: Any) -> dict[str, Any]:
        tried.append(size)
        if size == batch and error:
            raise error
        return {"times": [], "overhead": []}

    monkeypatch.setattr(costs._Measuring, "_grid_cell", grid_cell)
    monkeypatch.setattr(costs, "forced_cell", lambda *_: {"timed": {}})
    monkeypatch.setattr(costs, "freed", lambda: None)
    return tried


def test_what_is_there_is_not_measured_again(
    raw: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("costs-8b-1b", "forced"):
        (tmp_path / f"{name}.json").write_text((raw / f"{name}.json").read_text())

    def refuse(*_: Any) -> None:
        raise AssertionError("a model was built")

    monkeypatch.setattr(costs, "random_model", refuse)
    measure(tmp_path)


def test_what_time_did_not_suffice_for_is_named_and_done_later(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tried = pretend(monkeypatch, None, 0)
    measure(tmp_path, deadline=Deadline(time.time() - 1))
    assert (reasons(tmp_path), tried) == ({"out of time": 4}, [])
    assert not cannot_be_recorded(tmp_path, "8b-1b")
    measure(tmp_path)
    assert reasons(tmp_path) == {"": 4}


def test_larger_cells_than_one_without_memory_are_not_tried(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    error = torch.OutOfMemoryError("CUDA out of memory. Tried\nmore")
    tried = pretend(monkeypatch, error, batch=2)
    measure(tmp_path)
    assert reasons(tmp_path) == {"": 2, "OutOfMemoryError: CUDA out of memory. Tried": 2}
    assert tried == [1, 1, 2]


def test_a_shape_that_cannot_be_recorded_is_given_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tried = pretend(monkeypatch, CompileError("a run cannot be compiled: no"), batch=1)
    with pytest.raises(StartAnewError):
        measure(tmp_path, "compiled")
    measure(tmp_path, "compiled")  # what is left is nothing
    assert tried == [1]
    assert cannot_be_recorded(tmp_path, "8b-1b")


def test_no_memory_in_a_recording_is_no_fault_of_the_shape(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    error = CompileError("a run cannot be compiled: CUDA out of memory")
    tried = pretend(monkeypatch, error, batch=2)
    with pytest.raises(StartAnewError):
        measure(tmp_path, "compiled")
    measure(tmp_path, "compiled")
    assert tried == [1, 1, 2]
    assert not cannot_be_recorded(tmp_path, "8b-1b")


def test_a_device_that_fails_costs_one_cell(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tried = pretend(monkeypatch, RuntimeError("CUDA error: misaligned address"), batch=2)
    for _ in range(2):
        with pytest.raises(StartAnewError, match="misaligned"):
            measure(tmp_path)
    measure(tmp_path)
    assert tried == [1, 1, 2, 2]
    assert reasons(tmp_path) == {"": 2, "RuntimeError: CUDA error: misaligned address": 2}


@pytest.mark.parametrize(
    ("name", "batch", "context", "reason"),
    [
        # 16 + 2.5 GB of weights and 160 KiB of caches a token: 87 GB and the logits.
        ("8b-1b", 128, 4096, ""),
        # 66 + 1.2 GB, and 368 KiB a token.
        ("32b-0.6b", 32, 4096, ""),
        ("32b-0.6b", 64, 4096, "the device has 150 GB"),
    ],
)
def test_what_cannot_fit_is_not_tried(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    name: str,
    batch: int,
    context: int,
    reason: str,
) -> None:
    memory = SimpleNamespace(total_memory=150e9)
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda _: memory)
    device = torch.device("cuda")
    plan = FULL.cost(name)
    measuring = costs._Measuring(plan, 0.8, "compiled", tmp_path, tmp_path, LATER, device)
    found = measuring._too_large(batch, context)
    assert found.endswith(reason)
    assert bool(found) == bool(reason)


def test_a_pair_without_time_is_left_for_another_visit(tmp_path: Path) -> None:
    soon = Deadline(time.time() + 0.1)
    assert measure_pair(TINY.pair, tmp_path, tmp_path, soon, CPU)
    assert content(tmp_path, "pair")["missing"] == {"training": "out of time"}
    assert not (tmp_path / "target.pt").exists()


class Process:
    """Ends at once, as the next of ``codes`` says."""

    codes: list[int | None]

    def __init__(self, target: Any, args: Any) -> None:
        self.exitcode = self.codes.pop(0)

    def start(self) -> None: ...

    def join(self, timeout: float | None = None) -> None: ...

    def kill(self) -> None: ...

    def is_alive(self) -> bool:
        return self.exitcode is None


@pytest.mark.parametrize(
    ("codes", "error"),
    [
        ([0], None),
        ([3, 3, 0], None),
        ([3] * 4, "not complete after 4 starts"),
        ([1], "failed"),
        ([-9], "the process died (exit code -9)"),
        ([None], "stopped: still at it 45 s after its time"),
    ],
)
def test_how_a_stage_ends(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, codes: list[int | None], error: str | None
) -> None:
    monkeypatch.setattr(Process, "codes", list(codes), raising=False)
    fake = SimpleNamespace(Process=Process)
    monkeypatch.setattr(multiprocessing, "get_context", lambda _: fake)
    machine = Raw(tmp_path / "machine.json")
    job = Job(Stage("pair", 1.0, ("pair",)), tmp_path, tmp_path, time.time(), True)
    assert gpu_suite._run_stage(job, machine) == (error is None)
    said = content(tmp_path, "machine")["errors"].get("pair")
    assert (said is None) if error is None else said.startswith(error)


def test_an_error_is_kept_and_the_rest_goes_on(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    raw = Raw(tmp_path / "pair.json")
    with raw.attempt("trace"):
        raise RuntimeError("no such kernel\nat line 3")
    raw.put("after", 1.0 / 3)
    assert content(tmp_path, "pair") == {
        "errors": {"trace": "RuntimeError: no such kernel"},
        "after": 0.3333333,
    }
    assert "pair.json: trace: RuntimeError: no such kernel" in capsys.readouterr().err
    again = Raw(tmp_path / "pair.json")
    with again.attempt("trace"):
        pass
    assert again.content["errors"] == {}


@pytest.mark.parametrize("words", [["--only", "grid"], ["--minutes", "0"]])
def test_wrong_words_are_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, words: list[str]
) -> None:
    monkeypatch.setattr(sys, "argv", ["gpu_suite", "--out", str(tmp_path / "raw"), *words])
    with pytest.raises(SystemExit, match="2"):
        gpu_suite.main()
    assert not (tmp_path / "raw").exists()


def test_sizes_are_not_mixed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    Raw(tmp_path / "machine.json").put("visits", [{"tiny": True}])
    monkeypatch.setattr(sys, "argv", ["gpu_suite", "--out", str(tmp_path)])
    with pytest.raises(SystemExit, match="2"):
        gpu_suite.main()
    assert "holds results of the other size" in capsys.readouterr().err
