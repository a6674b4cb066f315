"""The battery for an accelerator at its small size: a kill, an error or no time cost little."""

from __future__ import annotations

import json
import multiprocessing
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from calibrate import gpu_suite
from calibrate.gpu_suite import FULL, Job, OutOfTimeError, Pair, Shapes
from calibrate.validate.blind import TooFewPassesError
from specsim.api.validation import BlindCheck, SyntheticCheck
from specsim.checkpoint import Checkpoint
from specsim.checks import SpecsimError
from specsim.profiles import read_profile

# A machine with an accelerator may have none of these.
ABSENT = ("pyarrow", "matplotlib", "pydantic", "threadpoolctl", "click", "rich")
PAIR, SHAPES = (next(p for p in FULL if isinstance(p, kind)) for kind in (Pair, Shapes))


@pytest.fixture(scope="module")
def out(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Results of all parts, by a Python in which the packages above cannot be imported.

    The run is killed when the pair is calibrated, and started again.  Most of the minute goes into
    importing torch, in one process a stage.
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
    out = folder / "results"
    command = [sys.executable, "-m", "calibrate.gpu_suite", "--tiny", "--out", str(out)]
    killed = subprocess.Popen(
        command, env=environment, start_new_session=True, stderr=subprocess.DEVNULL
    )
    patience = time.monotonic() + 300
    while not (out / "pair.json").is_file() and time.monotonic() < patience:
        assert killed.poll() is None
        time.sleep(0.02)
    os.killpg(killed.pid, signal.SIGKILL)
    killed.wait()
    kept = (out / "pair.json").read_bytes()
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stderr
    assert (out / "pair.json").read_bytes() == kept
    assert done.stdout.strip() == (out / "report.md").read_text().strip()
    return out


def content(out: Path, name: str) -> Any:
    return json.loads((out / f"{name}.json").read_text())


@pytest.mark.long
def test_everything_is_measured(out: Path) -> None:
    machine = content(out, "machine")
    assert (len(machine["visits"]), machine["errors"]) == (2, {})
    assert {file.name for file in out.glob("*.json")} == {
        *("machine.json", "pair.json", "pair.prediction.json", "checks-pair.json"),
        *("costs-8b-1b-eager.json", "checks-8b-1b-eager.json", "costs-30b-a3b-0.6b-eager.json"),
    }
    for name in ("8b-1b-eager", "30b-a3b-0.6b-eager"):
        profile = read_profile(out / f"costs-{name}.json")
        assert profile.missing == []
        assert {(row.batch, row.context) for row in profile.grid} == {
            (batch, context) for batch in (1, 2) for context in (16, 40)
        }
    answers = content(out, "checks-8b-1b-eager")
    assert list(answers) == ["batch 1", "batch 2"]
    rows = [row for each in answers.values() for row in each["answer"]["rows"]]
    assert len(rows) == 2 * 2 * 2  # batches, contexts, draft lengths
    # What is half done is gone, in the folder of the results and beside it.
    assert not list(out.glob(".*"))
    assert not list(out.with_name("results.work").glob("specsim-*"))


@pytest.mark.long
def test_the_pair_is_lossless_and_its_calls_are_those_of_the_replay(out: Path) -> None:
    assert {each.sampling.temperature for each in read_profile(out / "pair.json").acceptance} == {
        0,
        1,
    }
    answers = content(out, "checks-pair")
    assert list(answers) == ["predicted before", "its own acceptance, eager"]
    rows = answers["predicted before"]["answer"]["rows"]
    assert [(row["temperature"], row["gamma"], row["exact"]) for row in rows] == [
        *((0, 1, True), (0, 2, True)),
        *((1, 1, None), (1, 2, None)),
    ]


@pytest.mark.long
def test_the_report_says_what_was_found(out: Path) -> None:
    said = (out / "report.md").read_text()
    assert "no result here means anything" in said
    assert "Trained target: parameters 77040" in said
    assert "speculation pays up to batch" in said
    assert "What is missing" not in said


# -- a stage: what fails, what is left, what is tried again --


def job(folder: Path, until: float = 1e12, plan: gpu_suite.Plan = SHAPES) -> Job:
    return Job(plan, folder, folder, until, "", tiny=True)


def test_what_fails_is_tried_again_but_not_for_ever(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tried = []

    def fail(*_: Any, **__: Any) -> Any:
        tried.append(1)
        raise RuntimeError("CUDA error: misaligned address\nmore")

    monkeypatch.setattr(gpu_suite, "validate", fail)
    name = f"checks-{SHAPES.name}"
    with pytest.raises(OutOfTimeError):
        job(tmp_path, until=0.0).validate(tmp_path, "batch 1", SyntheticCheck())
    assert content(tmp_path, name) == {"batch 1": {"why": "out of time", "tries": 0}}
    for _ in range(gpu_suite._TRIES):
        with pytest.raises(RuntimeError, match="misaligned"):
            job(tmp_path).validate(tmp_path, "batch 1", SyntheticCheck())
    job(tmp_path).validate(tmp_path, "batch 1", SyntheticCheck())
    assert len(tried) == gpu_suite._TRIES
    answer = content(tmp_path, name)["batch 1"]
    assert answer["why"] == "RuntimeError: CUDA error: misaligned address"
    answered = SimpleNamespace(document=lambda: {"answer": {"rows": []}})
    monkeypatch.setattr(gpu_suite, "validate", lambda *_, **__: answered)
    job(tmp_path).validate(tmp_path, "batch 2", SyntheticCheck())
    monkeypatch.setattr(gpu_suite, "validate", fail)
    job(tmp_path).validate(tmp_path, "batch 2", SyntheticCheck())


def test_a_blind_check_without_two_whole_passes_is_for_another_visit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its progress does not stop it, so that it may judge what it has."""

    def validate(*_: Any, progress: Any, more_time: Any, **__: Any) -> Any:
        progress("decoding", 1, 2)
        assert more_time()
        raise TooFewPassesError("there was time for 1 of the two passes")

    monkeypatch.setattr(gpu_suite, "validate", validate)
    with pytest.raises(OutOfTimeError):
        job(tmp_path).validate(tmp_path, "predicted before", BlindCheck())
    found = content(tmp_path, f"checks-{SHAPES.name}")
    assert found == {"predicted before": {"why": "out of time", "tries": 0}}


def test_what_a_kill_left_behind_a_profile_goes(tmp_path: Path) -> None:
    """The long test above meets it by chance, where it kills in that moment."""
    left, other = (tmp_path / f".costs-{name}.json.0123456789ab.work" for name in "ab")
    for folder in (left, other):
        folder.mkdir()
        (folder / "grid.json").write_text("{}")
    Checkpoint.remove_behind(tmp_path / "costs-a.json")
    assert not left.exists()
    assert other.exists()


def test_a_check_that_failed_too_often_is_a_failure(tmp_path: Path) -> None:
    """The process that finds it given up ends as done."""
    for why, failed in (("out of time", []), ("RuntimeError: x", ["RuntimeError: x"])):
        answers = {"batch 1": {"answer": {}}, "batch 2": {"why": why, "tries": 2}}
        (tmp_path / "checks-a.json").write_text(json.dumps(answers))
        assert set(gpu_suite._failed_checks(tmp_path)) - {"out of time"} == set(failed)


def test_a_pair_without_time_is_left_for_another_visit(tmp_path: Path) -> None:
    with pytest.raises(OutOfTimeError):
        gpu_suite.measure_pair(job(tmp_path, time.time() + 0.1, PAIR), PAIR)
    assert not list(tmp_path.iterdir())


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
        ([0], ""),
        ([2], "out of time"),
        ([1, -9, 0], ""),
        ([1, -11, -9], "failed with exit code -9"),
        ([None], "stopped: still at it 45 s after its time"),
    ],
)
def test_how_a_stage_ends(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, codes: list[int | None], error: str
) -> None:
    monkeypatch.setattr(Process, "codes", list(codes), raising=False)
    fake = SimpleNamespace(Process=Process)
    monkeypatch.setattr(multiprocessing, "get_context", lambda _: fake)
    found = gpu_suite._run_stage(job(tmp_path))
    assert found.startswith(error)
    assert bool(found) == bool(error)


def test_each_of_the_two_calls_has_its_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gpu_suite, "_cuda", lambda: True)
    first, second = (gpu_suite._plans(parts, False) for parts in (["pair"], ["synthetic", "grids"]))
    assert [*first, *second] == list(FULL)
    assert sum(plan.minutes for plan in first) <= 9
    assert sum(plan.minutes for plan in second) <= 9


@pytest.mark.parametrize("words", [["--only", "grid"], ["--minutes", "0"]])
def test_wrong_words_are_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, words: list[str]
) -> None:
    monkeypatch.setattr(sys, "argv", ["gpu_suite", "--out", str(tmp_path / "results"), *words])
    with pytest.raises(SystemExit, match="2"):
        gpu_suite.main()
    assert not (tmp_path / "results").exists()


def test_sizes_are_not_mixed(tmp_path: Path) -> None:
    (tmp_path / "machine.json").write_text('{"visits": [{"tiny": true}], "errors": {}}')
    with pytest.raises(SpecsimError, match="holds results of the other size"):
        gpu_suite.run(tmp_path, 1.0, ["pair"], tiny=False)
