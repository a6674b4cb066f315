"""A run that was killed goes on where it was, and leaves nothing behind once it is done."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import pytest

from specsim.checkpoint import Checkpoint, _is_taken, remove_left_over
from specsim.files import FileError, write_atomically


def test_what_was_made_is_not_made_again(tmp_path: Path) -> None:
    made = []

    def make() -> dict[str, object]:
        made.append(1)
        return {"seconds": (1.5, 2.5), "name": "a"}

    for _ in range(2):
        checkpoint = Checkpoint.beside(tmp_path / "out.json", "settings", 3)
        assert checkpoint.begun is bool(made)
        # Fresh and resumed runs see the same: a list, which JSON makes of a tuple.
        assert checkpoint.keep_json("a.json", make) == {"seconds": [1.5, 2.5], "name": "a"}
    assert made == [1]
    assert "a.json" in checkpoint


def test_other_settings_are_another_run(tmp_path: Path) -> None:
    one, other = (Checkpoint.beside(tmp_path / "out.json", settings) for settings in (1, 2))
    one.keep_json("a.json", lambda: 1)
    assert other.keep_json("a.json", lambda: 2) == 2


def test_the_key_holds_the_versions(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before = Checkpoint.beside(tmp_path / "out.json")
    monkeypatch.setattr("specsim.checkpoint.version", lambda package: "next")
    assert Checkpoint.beside(tmp_path / "out.json").folder != before.folder


def test_done_takes_all_of_the_output_and_nothing_else(tmp_path: Path) -> None:
    left, mine = (Checkpoint.beside(tmp_path / "a.json", settings) for settings in (1, 2))
    another = Checkpoint.beside(tmp_path / "a.json.json", 1)
    for checkpoint in (left, mine, another):
        checkpoint.keep_json("a.json", lambda: 1)
    mine.done()
    assert list(tmp_path.iterdir()) == [another.folder]


def test_nothing_is_made_before_there_is_an_item(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    checkpoint = Checkpoint.temporary("settings")
    with pytest.raises(ZeroDivisionError):
        checkpoint.keep_json("a.json", lambda: 1 / 0)
    checkpoint.done()
    assert not list(tmp_path.iterdir())


def test_an_item_is_there_whole_or_not_at_all(tmp_path: Path) -> None:
    checkpoint = Checkpoint(tmp_path / "work")

    def killed(path: Path) -> None:
        path.write_bytes(b"half")
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        checkpoint.keep("a", killed)
    assert "a" not in checkpoint
    assert not checkpoint.begun
    assert checkpoint.keep("a", lambda path: path.write_bytes(b"whole")).read_bytes() == b"whole"


def test_a_folder_that_cannot_be_made_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(FileError, match="cannot be written"):
        Checkpoint(tmp_path / "file" / "work").keep_json("a", lambda: 1)


WORK = """
import sys
from pathlib import Path
from specsim.checkpoint import Checkpoint
checkpoint = Checkpoint.beside(Path(sys.argv[1]), "settings")
checkpoint.keep_json("a.json", lambda: 1)
print("at work", flush=True)
sys.stdin.read()
"""


def test_two_processes_never_work_on_the_same(tmp_path: Path) -> None:
    out = tmp_path / "out.json"
    command = [sys.executable, "-c", WORK, str(out)]
    pipe = subprocess.PIPE
    with subprocess.Popen(command, stdin=pipe, stdout=pipe, text=True) as other:
        assert other.stdout is not None
        assert other.stdout.readline() == "at work\n"
        mine = Checkpoint.beside(out, "settings")
        for touch in (
            lambda: mine.keep_json("a.json", lambda: 2),
            lambda: mine.keep_json("b.json", lambda: 2),
            lambda: mine.begun,
        ):
            with pytest.raises(FileError, match=r"^[^\n]*another specsim is at work[^\n]*$"):
                touch()
        # Neither does one that is done with the same output, asked for something else.
        Checkpoint.beside(out, "others").done()
        assert (mine.folder / "a.json").read_bytes() == b"1"
        other.kill()
    # Whoever is killed holds nothing.
    assert mine.keep_json("a.json", lambda: 2) == 1
    mine.done()
    assert not list(tmp_path.iterdir())


def test_two_processes_never_work_on_one_output(tmp_path: Path) -> None:
    """Asked for something else, they would write it one over the other."""
    out = tmp_path / "out.json"
    command = [sys.executable, "-c", WORK, str(out)]
    pipe = subprocess.PIPE
    with subprocess.Popen(command, stdin=pipe, stdout=pipe, text=True) as other:
        assert other.stdout is not None
        assert other.stdout.readline() == "at work\n"
        mine = Checkpoint.beside(out, "others")
        with pytest.raises(FileError, match=r"^[^\n]*another specsim is at work[^\n]*$"):
            mine.keep_json("a.json", lambda: 2)
        assert not mine.folder.exists()
        # One of a name that begins like it is another.
        Checkpoint.beside(tmp_path / "out.json.json", "others").keep_json("a.json", lambda: 2)
        other.kill()
    # What nobody works on any more is in nobody's way.
    assert mine.keep_json("a.json", lambda: 2) == 2


def test_a_folder_is_held_until_nobody_finds_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    checkpoint, rename, taken = Checkpoint(tmp_path / "work"), Path.rename, list[bool]()

    def looked_at(folder: Path, aside: Path) -> Path:
        # Locks are of open files, so that this process may look as another one would.
        taken.append(_is_taken(folder))
        return rename(folder, aside)

    monkeypatch.setattr(Path, "rename", looked_at)
    checkpoint.keep_json("a.json", lambda: 1)
    checkpoint.done()
    assert taken == [True]
    assert not list(tmp_path.iterdir())


def test_a_folder_that_comes_again_is_held_again(tmp_path: Path) -> None:
    checkpoint = Checkpoint(tmp_path / "work")
    checkpoint.keep_json("a.json", lambda: 1)
    shutil.rmtree(checkpoint.folder)
    checkpoint.keep_json("a.json", lambda: 2)
    assert (checkpoint.folder / ".lock").exists()


def test_what_nobody_takes_up_again_is_removed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    days = 24 * 3600.0
    target = tmp_path / "elsewhere"
    target.mkdir()
    (target / "precious").touch()
    key = "0123456789ab"
    old = [f".p.json.{key}.work", f"specsim-0-{key}", "specsim-engine-abc_1234"]
    others = ["specsim-0-xyz", f"p.json.{key}.work", "specsim", f".p.{key}.works"]
    young = [f".q.json.{key}.work", f"specsim-1-{key}"]
    grows = "specsim-engine-grows_00"
    for name in (*old, *others, *young, grows):
        (tmp_path / name).mkdir()
        (tmp_path / name / "item").touch()
    now = time.time()
    for name in (*old, *others, grows):
        for path in (tmp_path / name / "item", tmp_path / name):
            os.utime(path, (now - 8 * days, now - 8 * days))
    os.utime(tmp_path / grows / "item", (now, now))
    (tmp_path / f".r.json.{key}.work").symlink_to(target)
    os.utime(tmp_path / f".r.json.{key}.work", (0, 0), follow_symlinks=False)
    # Killed while it was removed: no age saves it.
    (tmp_path / f"specsim-2-{key}.done").mkdir()
    before = {path.name for path in tmp_path.iterdir()}
    Checkpoint.temporary("anything")
    after = {path.name for path in tmp_path.iterdir()}
    assert before - after == {*old, f"specsim-2-{key}.done"}
    assert (target / "precious").exists()


def test_one_that_is_held_stays_however_old(tmp_path: Path) -> None:
    command = [sys.executable, "-c", WORK, str(tmp_path / "out.json")]
    pipe = subprocess.PIPE
    with subprocess.Popen(command, stdin=pipe, stdout=pipe, text=True) as other:
        assert other.stdout is not None
        other.stdout.readline()
        remove_left_over(tmp_path, days=-1)
        assert len(list(tmp_path.iterdir())) == 1
        other.kill()
    remove_left_over(tmp_path, days=-1)
    assert not list(tmp_path.iterdir())


def test_another_users_folder_is_not_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    folder = Checkpoint.temporary("settings").folder
    (tmp_path / "theirs").mkdir()
    folder.symlink_to(tmp_path / "theirs")
    with pytest.raises(FileError, match="belongs to somebody else"):
        Checkpoint.temporary("settings")


def test_what_a_killed_writer_left_goes_with_the_next(tmp_path: Path) -> None:
    dead = subprocess.run(
        [sys.executable, "-c", "import os; print(os.getpid())"], capture_output=True
    )
    left = tmp_path / f".out.json.{int(dead.stdout)}.partial"
    lives = tmp_path / f".out.json.{os.getppid()}.partial"
    other = tmp_path / f".out.json.json.{int(dead.stdout)}.partial"
    for path in (left, lives, other):
        path.touch()
    write_atomically(tmp_path / "out.json", b"whole")
    assert sorted(tmp_path.iterdir()) == sorted([tmp_path / "out.json", lives, other])
