"""A busy machine is noticed at once, said in one line, and remembered over a kill."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from calibrate.models import busy
from calibrate.models.busy import (
    BUSY,
    CpuTimes,
    Watch,
    busy_warning,
    too_busy,
)
from specsim.checkpoint import Checkpoint


def test_others_are_what_all_use_but_this_process() -> None:
    before, after = CpuTimes(10.0, 100.0, 7.0), CpuTimes(14.0, 110.0, 11.0)
    assert after.others_since(before) == (10 - 4) / 4
    # Clocks that tick at different moments do not make less than nothing of it.
    assert CpuTimes(14.0, 103.0, 11.0).others_since(before) == 0
    # Of processes that have ended nothing is told.
    assert CpuTimes(14.0, 110.0, 3.0).others_since(before) is None


def test_time_of_children_is_the_own_one() -> None:
    """Of the process alone, whatever else runs on the machine."""
    spin = "import time\nend = time.process_time() + 0.3\nwhile time.process_time() < end: pass"
    before = CpuTimes.now()
    if before.all_s is None:
        pytest.skip("the system does not say what all programs use")
    child = subprocess.Popen([sys.executable, "-c", spin])
    seen = 0.0
    while child.poll() is None:
        time.sleep(0.02)
        seen = max(seen, CpuTimes.now().own_s - before.own_s)
    after = CpuTimes.now()
    assert seen > 0.1  # while it runs
    assert after.own_s - before.own_s > 0.3  # when it was waited for
    assert after.all_s is not None
    assert after.all_s - before.all_s > 0.3


def test_a_program_may_have_any_name() -> None:
    """Of Cyrillic letters the kernel keeps seven and a half."""
    name = Path("/proc/self/comm")
    if not name.exists():
        pytest.skip("the system has no names of programs there")
    rename = f"open('{name}', 'wb').write(b'\\xd0\\xbf' * 9)\nprint(flush=True)\ninput()"
    command = [sys.executable, "-c", rename]
    pipe = subprocess.PIPE
    with subprocess.Popen(command, stdin=pipe, stdout=pipe) as other:
        assert other.stdout is not None
        other.stdout.readline()
        assert len(Path(f"/proc/{other.pid}/comm").read_bytes()) == 15 + 1
        found = dict(busy._processes())
        other.communicate(b"\n")
    assert int(found[other.pid][1]) == os.getpid()


@pytest.mark.parametrize(
    ("others", "threads", "cores", "busy"),
    [
        (1.6, 1, 2, True),
        (0.9, 1, 2, True),  # the other core shares its caches and its memory
        (0.3, 1, 2, False),
        (0.3, 2, 2, True),  # threads wait for the one whose core is taken
        (0.1, 2, 2, False),
        (2.0, 1, 8, False),
        (2.0, 8, 8, True),
        (4.0, 1, 8, True),
        (None, 1, 2, False),
    ],
)
def test_busy_is_what_disturbs(others: float | None, threads: int, cores: int, busy: bool) -> None:
    assert too_busy(others, threads, cores) is busy
    warning = busy_warning(others, threads, cores)
    assert (warning is not None) is busy
    if warning is not None:
        assert warning.startswith(f"{BUSY}other programs use {others:.1f} of {cores} cores: stop")
        assert "\n" not in warning


def looks(*others: float) -> Callable[[], CpuTimes]:
    """The times of a machine with one second between looks, this process on one core."""

    def moments() -> Iterator[CpuTimes]:
        at, used = 0.0, 0.0
        yield CpuTimes(at, used, at)
        for cores in others:
            at, used = at + 1.0, used + cores + 1.0
            yield CpuTimes(at, used, at)

    return moments().__next__


def test_a_watch_says_it_once_and_knows_which_phase(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(busy, "usable_cores", lambda: 2.0)
    checkpoint = Checkpoint(tmp_path / "work")
    heard: list[tuple[str, int, int]] = []

    def watch(*others: float) -> Watch:
        def hear(activity: str, done: int, total: int) -> None:
            heard.append((activity, done, total))

        return Watch(checkpoint, hear, 1, first_s=0, every_s=0, look=looks(*others))

    # Calm at the start; then a program on both cores, and nobody any more.
    first = watch(0.0, 0.0, 2.0, 2.0)
    first.progress("run times", 0, 2)
    assert not heard[:-1]
    assert not (tmp_path / "work").exists(), "nothing is kept before there is an item"
    checkpoint.keep_json("item.json", lambda: 1)
    first.progress("run times", 1, 2)
    first.progress("run times", 2, 2)
    notes = [activity for activity, _, total in heard if not total]
    assert len(notes) == 1
    assert notes[0].startswith("busy machine: other programs use 2.0 of 2 cores")
    # Killed here.  The next one begins on a calm machine and knows what was before.
    second = watch(0.0, 0.0, 0.0, 0.0)
    second.progress("grid", 0, 1)
    second.progress("grid", 1, 1)
    (line,) = second.warnings()
    assert line.startswith("busy machine: of 2 cores other programs used 2.0 during run times: ")
    assert "grid" not in line


def watched(checkpoint: Checkpoint, *others: float) -> list[str]:
    """What is said of a phase in which other programs were seen to use so many cores."""
    moments = looks(0.0, 0.0, *others)
    watch = Watch(checkpoint, lambda *heard: None, 1, first_s=0, every_s=0, look=moments)
    for done in range(len(others)):
        watch.progress("run times", done, len(others))
    return watch.warnings()


def test_a_program_beside_part_of_a_phase_is_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where the mean over the phase is that of a calm machine, if it was a tenth or more."""
    monkeypatch.setattr(busy, "usable_cores", lambda: 2.0)
    (line,) = watched(Checkpoint(tmp_path / "part"), 1.8, *[0.0] * 5)
    assert line.startswith("busy machine: of 2 cores other programs used 0.3 during run times ")
    assert "run times (too much for 17% of it): run times came out too long" in line
    assert watched(Checkpoint(tmp_path / "moment"), 1.8, *[0.0] * 11) == []
    assert watched(Checkpoint(tmp_path / "little"), *[0.7] * 6) == []


def test_what_older_versions_kept_of_a_run_is_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(busy, "usable_cores", lambda: 2.0)
    for name, used, others, share in (
        ("calm", 3.0, (0.0, 0.0), None),
        ("busy", 18.0, (0.0, 0.0), ""),
        ("later", 3.0, (1.8, 1.8), " (too much for 17% of it)"),
    ):
        checkpoint = Checkpoint(tmp_path / name)
        checkpoint.keep_json("others.json", lambda used=used: {"run times": [10.0, used]})
        lines = watched(checkpoint, *others)
        assert len(lines) == (share is not None)
        assert all(f" during run times{share}: run times came" in line for line in lines)


def test_cores_are_those_that_may_be_used(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of a machine with many a program is given two, and another one runs on these."""
    monkeypatch.setattr(busy, "usable_cores", lambda: 64.0)
    assert not too_busy(0.9, threads=1)
    monkeypatch.setattr(busy, "usable_cores", lambda: 2.0)
    assert too_busy(0.9, threads=1)
    tick, stat = os.sysconf("SC_CLK_TCK"), tmp_path / "stat"
    used = {"cpu": 6, "cpu0": 1, "cpu1": 2, "cpu2": 3}
    lines = [f"{name} {each * tick} 0 0 9 9 0 0 0 0 0" for name, each in used.items()]
    stat.write_text("\n".join([*lines, "intr 5 0", ""]))
    # The last are the numbers that a host gives to the processors of a container.
    for own, seconds in (({0, 2}, 4.0), ({0, 1, 2}, 6.0), ({5, 9}, 6.0)):
        monkeypatch.setattr(busy, "own_processors", lambda own=own: own)
        assert busy._all_seconds(stat, tmp_path) == seconds
    (tmp_path / "cpu.max").write_text("50000 100000\n")
    (tmp_path / "cpu.stat").write_text("usage_usec 2500000\nuser_usec 1\n")
    assert busy._all_seconds(stat, tmp_path) == 2.5


def heard_by(checkpoint: Checkpoint, *others: float) -> tuple[Watch, list[str]]:
    """A watch over traces and what is timed, and what it says meanwhile."""
    heard: list[str] = []
    watch = Watch(
        checkpoint,
        lambda activity, done, total: heard.append(activity),
        1,
        untimed=("trace",),
        first_s=0,
        every_s=0,
        look=looks(*others),
    )
    return watch, heard


def test_others_are_seen_in_the_midst_of_what_reports_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(busy, "usable_cores", lambda: 2.0)
    watch, heard = heard_by(Checkpoint(tmp_path / "work"), 0.0, 0.0, 2.0, 0.0)
    watch.progress("timing", 0, 5)
    watch.look_if_due()
    assert [each for each in heard if each.startswith("busy machine")]
    (line,) = watch.warnings()
    assert "during timing" in line


def test_others_may_run_where_nothing_is_timed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(busy, "usable_cores", lambda: 2.0)
    watch, heard = heard_by(Checkpoint(tmp_path / "work"), 2.0, 2.0, 2.0, 2.0, 0.0, 0.0)
    watch.progress("trace at temperature 0", 0, 1)
    watch.progress("trace at temperature 0", 1, 1)
    watch.progress("run times", 0, 1)
    watch.progress("run times", 1, 1)
    # It is said at once, so that they may be stopped in time.
    assert any(each.startswith("busy machine: other programs use 2.0") for each in heard)
    assert watch.warnings() == []


def test_a_calm_machine_is_not_mentioned(tmp_path: Path) -> None:
    watch = Watch(
        Checkpoint(tmp_path / "work"), lambda *heard: None, 1, first_s=0, look=looks(0, 0, 0)
    )
    watch.progress("trace", 0, 1)
    assert watch.warnings() == []
