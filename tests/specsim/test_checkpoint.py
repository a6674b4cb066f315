"""A run that was killed goes on where it was, and leaves nothing behind once it is done."""

from __future__ import annotations

import tempfile
from pathlib import Path

import pytest

from specsim.checkpoint import Checkpoint
from specsim.files import FileError


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
