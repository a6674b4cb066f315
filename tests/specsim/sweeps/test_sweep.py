"""Sweeps from beginning to end: what they write, and that nothing but the settings decides it."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterable, Iterator
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

import pandas as pd
import pyarrow.parquet as pq
import pytest

import specsim
from specsim.api.result import plain
from specsim.checks import InvalidArgumentError
from specsim.files import FileError
from specsim.schemes import SpeculativeDecoding
from specsim.sweeps.tallies import Tally
from specsim.sweeps.workers import Workers, WorkersLostError
from tests.support.command_line import fail, run
from tests.support.refusals import refuses
from tests.support.sweeps import (
    EVALUATE,
    SIMULATE,
    Watch,
    contents,
    deadly_answer,
    fatal_answer,
    is_fatal,
    watched_answer,
)

TOML = """
command = "simulate speculative"
[inputs]
alpha = [0.7, 0.8]
gamma = {{ first = 1, last = 6 }}
c = 0.05
blocks = {blocks}
seed = [0, 1]
"""


def test_a_row_a_setting_with_inputs_answer_and_version(tmp_path: Path) -> None:
    found = specsim.sweep(EVALUATE, tmp_path / "out", workers=1, chunk=4)
    assert (found.settings, found.failed, found.parts, found.found) == (18, 6, 5, 0)
    rows = pq.read_table(found.folder).to_pylist()
    assert list(found.settings_frame["setting"]) == list(range(18))
    assert [row["setting"] for row in rows] == list(range(18))
    assert {row["specsim_version"] for row in rows} == {specsim.__version__}
    inputs = [rows[5][f"input_{name}"] for name in ("alpha", "c", "gamma")]
    assert inputs == ["0.6", 0.15, 4]
    for index, alpha in ((5, 0.6), (11, [0.8, 0.7])):
        wanted = specsim.evaluate(alpha, 0.15, 4).rows()[0]
        assert rows[index].items() >= plain(wanted).items()
    failed = [row for row in rows if row["failure"] is not None]
    assert [row["setting"] for row in failed] == list(range(12, 18))
    assert {row["failure"] for row in failed} == {"--alpha must be in [0, 1], got 1.5"}
    assert {row["speedup"] for row in failed} == {None}
    (reason,) = found.left_out
    assert (reason.what, reason.why) == (
        "6 settings (first 12)",
        "--alpha must be in [0, 1], got 1.5",
    )
    assert sorted(contents(tmp_path)) == [
        "out/_sweep.json",
        *(f"out/part-0000{number}.parquet" for number in range(5)),
    ]
    usual = tmp_path / "usual"
    usual.mkdir()
    assert found.folder.stat().st_mode == usual.stat().st_mode


def test_any_number_of_processes_writes_the_same_bytes(tmp_path: Path) -> None:
    for name, settings in {"evaluate": EVALUATE, "simulate": SIMULATE}.items():
        one = specsim.sweep(settings, tmp_path / name / "one", workers=1, chunk=3)
        two = specsim.sweep(settings, tmp_path / name / "two", workers=2, chunk=3)
        assert contents(one.folder) == contents(two.folder)
        assert (two.found, two.repeated) == (0, 0)


def test_intervals_are_columns(tmp_path: Path) -> None:
    frame = specsim.sweep(SIMULATE, tmp_path / "out", workers=1).settings_frame
    assert len(frame) == 24
    assert (frame["speedup_low"] < frame["speedup"]).all()
    assert (frame["speedup"] < frame["speedup_high"]).all()
    (blocks, c) = (SIMULATE["inputs"][name] for name in ("blocks", "c"))
    scheme = SpeculativeDecoding(gamma=2)
    one = specsim.simulate(scheme, 0.7, c=c, blocks=blocks, seed=1)
    at = (frame["input_alpha"] == 0.7) & (frame["input_gamma"] == 2) & (frame["input_seed"] == 1)
    assert frame[at]["speedup"].item() == one.rows()[0]["speedup"]


def test_all_parts_have_the_columns_of_all(tmp_path: Path) -> None:
    """One batch gives numbers, two give lists; a model that nobody knows gives neither."""
    deployed = {"target": "llama-3.1-8b", "accelerator": "H100-SXM", "alpha": 0.7, "context": 512}
    settings = {
        "command": "optimize",
        "inputs": {"draft": ["llama-3.2-1b", "nobody"], **deployed, "batch": [1, "1,8"]},
    }
    found = specsim.sweep(settings, tmp_path / "out", workers=1, chunk=1)
    parts = sorted(found.folder.glob("*.parquet"))
    assert len(parts) == 4
    schemas = {str(pq.read_schema(path)) for path in parts}
    assert len(schemas) == 1
    frame = found.settings_frame
    assert [list(cell) for cell in frame["batch"][:2]] == [[1], [1, 8]]
    assert frame["batch"][2:].isna().all()
    assert found.failed == 2


LOADS = {
    "command": "optimize",
    "inputs": {
        "target": "llama-3.1-8b",
        "accelerator": "H100-SXM",
        "drafter": "eagle3",
        "alpha": [0.6, 0.7],
        "batch": [1, "1,8"],
        "context": 512,
    },
}


def test_warnings_are_counted_and_bounds_are_told(tmp_path: Path) -> None:
    found = specsim.sweep(LOADS, tmp_path / "out", workers=1)
    said = [set(each) for each in found.settings_frame["warnings"]]
    assert all(said)
    assert found.settings_frame["bound"].all()
    bound = "4 settings (first 0): prices are bounds that no engine reaches"
    assert bound in found.warnings
    (numbered,) = (line for line in found.warnings if "is taken at every draft" in line)
    start, _, first = numbered.partition(": ")
    assert start == "4 settings (first 0, whose numbers these are)"
    assert first in said[0]


def test_a_record_without_warnings_is_read_and_they_are_counted_again(tmp_path: Path) -> None:
    found = specsim.sweep(LOADS, tmp_path / "out", workers=1)
    file = found.folder / "_sweep.json"
    record = json.loads(file.read_text())
    assert record.pop("warnings")
    del record["more_warnings"]
    file.write_text(json.dumps(record))
    again = specsim.sweep(LOADS, tmp_path / "out", workers=1)
    assert again.found == again.parts
    assert again.warnings == found.warnings


def test_lines_are_told_apart_up_to_a_thousand() -> None:
    reasons, warned = Tally("other reasons"), Tally()
    for setting in range(1500):
        for tally in (reasons, warned):
            tally.add(str(setting), str(setting), setting)
            tally.add("all", "all", setting)
    assert reasons.most_frequent()[:2] == [
        ("all", 1500, 0, False),
        ("other reasons", 501, 999, False),
    ]
    assert len(reasons.most_frequent()) == 20
    assert warned.most_frequent()[:2] == [("all", 1500, 0, False), ("0", 1, 0, False)]


def test_a_complete_sweep_is_not_made_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = specsim.sweep(EVALUATE, tmp_path / "out", workers=1, chunk=5)
    before = contents(tmp_path)

    def nobody(chunk: object) -> None:
        raise AssertionError

    monkeypatch.setattr("specsim.sweeps.workers.answer_chunk", nobody)
    again = specsim.sweep(EVALUATE, tmp_path / "out", workers=1, chunk=5)
    assert again.found == again.parts == 4
    assert (again.failed, again.left_out) == (first.failed, first.left_out)
    assert contents(tmp_path) == before
    other = {**EVALUATE, "inputs": {**EVALUATE["inputs"], "gamma": [4, 1]}}
    for settings, chunk in ((other, 5), (EVALUATE, 6)):
        with pytest.raises(FileError, match=r"out: holds another sweep"):
            specsim.sweep(settings, tmp_path / "out", workers=1, chunk=chunk)
    (tmp_path / "mine").mkdir()
    with pytest.raises(FileError, match=r"mine: is there and no sweep"):
        specsim.sweep(EVALUATE, tmp_path / "mine", workers=1)


def test_a_sweep_that_was_killed_just_behind_its_end_keeps_no_lock(tmp_path: Path) -> None:
    out = tmp_path / "out"
    specsim.sweep(EVALUATE, out, workers=1)
    (out / ".lock").touch()
    specsim.sweep(EVALUATE, out, workers=1)
    assert not list(out.glob(".*"))


def test_the_order_of_inputs_is_another_sweep(tmp_path: Path) -> None:
    inputs = dict(reversed(EVALUATE["inputs"].items()))
    specsim.sweep(EVALUATE, tmp_path / "out", workers=1)
    with pytest.raises(FileError, match="holds another sweep"):
        specsim.sweep({**EVALUATE, "inputs": inputs}, tmp_path / "out", workers=1)


def test_an_interrupted_sweep_goes_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Interrupted after each of its parts in turn: every chunk is answered once in all."""
    whole = specsim.sweep(EVALUATE, tmp_path / "whole", workers=1, chunk=4)
    watch = Watch(tmp_path)
    monkeypatch.setattr("specsim.sweeps.workers.answer_chunk", watched_answer)

    def interrupt(start: int, activity: str, done: int, total: int) -> None:
        if total and done > start:
            raise KeyboardInterrupt

    for start in (0, 4, 8, 12):
        progress = partial(interrupt, start)
        with pytest.raises(KeyboardInterrupt):
            specsim.sweep(EVALUATE, tmp_path / "out", workers=1, chunk=4, progress=progress)
        assert not (tmp_path / "out").exists()
    said: list[tuple[str, int, int]] = []
    found = specsim.sweep(
        EVALUATE, tmp_path / "out", workers=1, chunk=4, progress=lambda *each: said.append(each)
    )
    assert found.found == 4
    assert watch.begun == dict.fromkeys(range(5), 1)
    assert said == [
        ("going on with 4 of 5 parts, which were there", 0, 0),
        ("settings", 16, 18),
        ("settings", 18, 18),
    ]
    assert contents(found.folder) == contents(whole.folder)


def test_a_kill_between_parts_and_folder_loses_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = specsim.sweep(SIMULATE, tmp_path / "whole", workers=1, chunk=6)

    def killed(*_: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr("specsim.sweeps.parts.Checkpoint.replace_json", killed)
        with pytest.raises(KeyboardInterrupt):
            specsim.sweep(SIMULATE, tmp_path / "out", workers=1, chunk=6)
    found = specsim.sweep(SIMULATE, tmp_path / "out", workers=1, chunk=6)
    assert found.found == found.parts == 4
    assert contents(found.folder) == contents(whole.folder)


def test_a_killed_driver_goes_on(tmp_path: Path) -> None:
    """SIGKILL in the middle: what was written is not computed again, and the bytes are the same."""
    file = tmp_path / "settings.toml"
    file.write_text(TOML.format(blocks=500_000))
    words = [sys.executable, "-m", "specsim", "sweep", str(file), "--workers", "2", "--chunk", "1"]
    driver = subprocess.Popen(
        [*words, "--out", str(tmp_path / "out")],
        start_new_session=True,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    deadline = time.monotonic() + 60
    while not list(tmp_path.glob(".out.*.work/part-*.parquet")):
        assert driver.poll() is None, "it ended before it could be killed"
        assert time.monotonic() < deadline
        time.sleep(0.01)
    driver.kill()
    driver.wait()
    with suppress(ProcessLookupError):  # its workers, which nobody tells
        os.killpg(driver.pid, signal.SIGKILL)
    there = len(list(tmp_path.glob(".out.*.work/part-*.parquet")))
    assert 0 < there < 24
    found = specsim.sweep(file, tmp_path / "out", workers=2, chunk=1)
    assert (found.found, found.parts) == (there, 24)
    whole = specsim.sweep(file, tmp_path / "whole", workers=1, chunk=1)
    assert contents(found.folder) == contents(whole.folder)


def test_a_lost_worker_costs_what_was_in_flight(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = specsim.sweep(SIMULATE, tmp_path / "whole", workers=1, chunk=1)
    watch = Watch(tmp_path)
    monkeypatch.setattr("specsim.sweeps.workers.answer_chunk", deadly_answer)
    said: list[str] = []
    found = specsim.sweep(
        SIMULATE,
        tmp_path / "out",
        workers=2,
        chunk=1,
        progress=lambda activity, done, total: said.append(activity),
    )
    assert watch.died
    assert any(line.startswith("a worker was lost, what it had is done again") for line in said)
    assert set(watch.begun) == set(range(24))
    # Six are with two workers, one at hand and two next with each, and some answers may wait for
    # the driver; of all these one at least went with its worker, and was not computed before.
    assert watch.again < found.repeated <= 10
    assert contents(found.folder) == contents(whole.folder)


@pytest.mark.long
@pytest.mark.parametrize("chunk", [1, 6])
def test_settings_that_end_their_worker_are_failures(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, chunk: int
) -> None:
    """Two of 24, far from each other; all others are answered, also those in the same chunk."""
    whole = specsim.sweep(SIMULATE, tmp_path / "whole", workers=1, chunk=chunk).settings_frame
    Watch(tmp_path)
    monkeypatch.setattr("specsim.sweeps.workers.answer_chunk", fatal_answer)
    found = specsim.sweep(SIMULATE, tmp_path / "out", workers=2, chunk=chunk)
    frame = found.settings_frame
    failures = frame["failure"].dropna()
    assert list(failures.index) == [number for number in range(24) if is_fatal(whole.loc[number])]
    assert found.failed == len(failures) == 2
    assert set(failures) == {
        "the process that answered it ended, each time: killed, or out of memory"
    }
    left = frame.drop(index=failures.index)
    pd.testing.assert_frame_equal(left, whole.drop(index=failures.index), check_dtype=False)


def test_workers_that_always_die_end_the_sweep(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def silent(chunks: Iterable[object], workers: object) -> Iterator[None]:
        list(chunks)
        yield from ()

    monkeypatch.setattr("specsim.sweeps.workers._HAND_OUT", {"processes": silent})
    with pytest.raises(WorkersLostError, match=r"lost 3 times .*4 answers never came\)$") as ended:
        specsim.sweep(SIMULATE, tmp_path / "out", workers=2, chunk=6)
    assert "\n" not in str(ended.value)


def test_a_worker_with_another_version_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("specsim.sweeps.chunks.__version__", "0.0.1")
    monkeypatch.setattr("specsim.sweeps.parts.versions", lambda: "specsim 0.0.2")
    with pytest.raises(InvalidArgumentError, match=r"a worker has specsim 0\.0\.1"):
        specsim.sweep(EVALUATE, tmp_path / "out", workers=1)


def test_as_it_is_typed(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    file, out = tmp_path / "settings.toml", tmp_path / "out"
    file.write_text(TOML.format(blocks=1000))
    words = ["sweep", str(file), "--out", str(out), "--workers", "1", "--format", "json"]
    code, printed, err = run(capsys, *words)
    assert code == 0, err
    document: dict[str, Any] = json.loads(printed)
    assert (document["schema"], document["version"]) == ("specsim.sweep", 1)
    assert document["inputs"]["command"] == "simulate speculative"
    assert document["answer"]["rows"] == [
        {
            "settings": 24,
            "failed": 0,
            "parts": 24,
            "parts_found": 0,
            "parts_computed": 24,
            "chunks_repeated": 0,
            "folder": str(out),
        }
    ]
    file.write_text(TOML.format(blocks=0))
    code, printed, err = run(capsys, *words[:3], str(tmp_path / "failed"), *words[4:-2])
    assert code == 1
    assert "24 settings (first 0) are left out: --blocks must be a whole number >= 1, got 0" in err
    refusal = fail(capsys, "sweep", str(tmp_path / "no.toml"), "--out", str(out))
    assert "no.toml: no such file" in refusal


test_workers_that_cannot_be_are_refused = refuses(
    (lambda: Workers("threads"), "backend must be one of processes, dask, ray"),
    (lambda: Workers("processes", "tcp://a:1"), "address tcp://a:1 goes with backend dask or ray"),
    (lambda: Workers("dask"), "address is missing: that of the dask scheduler"),
    (lambda: Workers("dask", "tcp://a:1", 2), "workers goes with backend processes"),
    (lambda: Workers("ray", None, 2), "workers goes with backend processes, a ray cluster"),
    (lambda: Workers(count=0), "workers must be a whole number >= 1, got 0"),
)
