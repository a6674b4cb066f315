"""The ends of what is read and written: sizes, names, rights, versions, and what is left behind."""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pandas as pd
import pytest

from specsim import files
from specsim.checks import InvalidArgumentError, SpecsimError
from specsim.files import (
    FileError,
    Format,
    check_file_name,
    check_frame_path,
    check_regular,
    check_replaceable,
    file_digest,
    make_folder,
    read_frame,
    read_regular,
    short_digest,
    write_atomically,
    write_frame,
)


class ReadingError(SpecsimError):
    """What a reader of these tests raises."""


def sparse(path: Path, size: int) -> Path:
    """A file of so many bytes that takes no room."""
    with path.open("wb") as stream:
        stream.truncate(size)
    return path


def test_texts_have_64_mib_and_csv_512(tmp_path: Path) -> None:
    text = sparse(tmp_path / "text", 2**26)
    assert len(read_regular(text, "text", ReadingError)) == 2**26
    sparse(text, 2**26 + 1)
    with pytest.raises(ReadingError, match=r"has 64\.0 MiB or more, at most 64 MiB are read"):
        read_regular(text, "text", ReadingError)
    table = sparse(tmp_path / "table.csv", 2**29 + 1)
    with pytest.raises(ReadingError, match=r"has 512\.0 MiB or more, at most 512 MiB are read"):
        read_frame(table, "table", ReadingError)


def test_a_table_may_be_as_large_as_that(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "table.csv"
    path.write_text("a,b\n1,2\n")
    monkeypatch.setattr(files, "_LARGEST_CSV", 8)
    assert read_frame(path, "table", ReadingError)["b"].tolist() == [2]
    monkeypatch.setattr(files, "_LARGEST_CSV", 7)
    with pytest.raises(ReadingError, match="at most 0 MiB are read"):
        read_frame(path, "table", ReadingError)
    path = tmp_path / "table.parquet"
    pd.DataFrame({"a": np.zeros(50), "b": np.zeros(50)}).to_parquet(path)
    monkeypatch.setattr(files, "_MOST_CELLS", 100)
    assert read_frame(path, "table", ReadingError).shape == (50, 2)
    # What is not wanted does not count.
    monkeypatch.setattr(files, "_MOST_CELLS", 50)
    assert read_frame(path, "table", ReadingError, lambda name: name == "a").shape == (50, 1)
    monkeypatch.setattr(files, "_MOST_CELLS", 99)
    with pytest.raises(ReadingError, match="has 100 numbers in 2 columns, at most 99 are read"):
        read_frame(path, "table", ReadingError)


def test_a_file_that_grows_meanwhile_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "text"
    path.write_bytes(b"x" * 1000)
    monkeypatch.setattr(files, "check_regular", lambda *_: None)
    assert len(read_regular(path, "text", ReadingError, most=1000)) == 1000
    for most in (999, 10):
        with pytest.raises(ReadingError, match="MiB or more, at most 0 MiB are read"):
            read_regular(path, "text", ReadingError, most=most)


def test_what_a_file_is_stands_before_its_name(tmp_path: Path) -> None:
    path = tmp_path / "none"
    with pytest.raises(ReadingError, match=f"^{path}: no such file$"):
        read_regular(path, "", ReadingError)
    with pytest.raises(ReadingError, match=f"^text {path}: no such file$"):
        read_regular(path, "text", ReadingError)
    check_regular(sparse(path, 10), "text", ReadingError, 10)
    with pytest.raises(ReadingError, match=r"^text: has 0\.0 MiB or more"):
        check_regular(path, "text", ReadingError, 9)
    check_regular(path, "text", ReadingError)


def test_what_a_system_says_of_a_name_is_said_without_its_number(tmp_path: Path) -> None:
    for name, said in (("n" * 300, "File name too long"), ("a\0b", "embedded null byte")):
        with pytest.raises(ReadingError) as refused:
            read_regular(tmp_path / name, "text", ReadingError)
        assert str(refused.value).endswith(f": cannot be read ({said})")
        with pytest.raises(FileError) as unwritten:
            check_replaceable(tmp_path / name)
        assert str(unwritten.value).endswith(f": cannot be written ({said})")


def test_where_a_file_is_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "out.json"
    assert check_replaceable(path) == path
    path.write_bytes(b"old")
    assert check_replaceable(path, "--out") == path
    link = tmp_path / "link"
    link.symlink_to(path)
    assert check_replaceable(link) == path
    for wrong, said in (
        (tmp_path, "is a folder; name a file in it"),
        (tmp_path / "none" / "out.json", r"cannot be written \(no such folder .*none\)"),
        (path / "out.json", r"cannot be written \(no such folder .*out.json\)"),
    ):
        with pytest.raises(FileError, match=f"^{wrong}: {said}$"):
            check_replaceable(wrong)
        with pytest.raises(FileError, match=f"^--out {wrong}: {said}$"):
            check_replaceable(wrong, "--out")
    monkeypatch.setattr(os, "access", lambda folder, mode: (folder, mode) != (tmp_path, os.W_OK))
    with pytest.raises(FileError, match=r"cannot be written \(no right to write in "):
        check_replaceable(path)


def test_what_killed_writers_left_goes_and_what_others_write_stays(tmp_path: Path) -> None:
    dead = subprocess.Popen([sys.executable, "-c", ""])
    dead.wait()
    names = {
        "gone": f".out.json.{dead.pid}.partial",
        "of one that lives": f".out.json.{os.getppid()}.partial",
        "of nobody": ".out.json.name.partial",
        "beyond any": f".out.json.{10**30}.partial",
        "of another file": f".out2.json.{dead.pid}.partial",
    }
    for name in names.values():
        (tmp_path / name).write_bytes(b"part")
    write_atomically(tmp_path / "out.json", b"whole")
    left = {each.name for each in tmp_path.iterdir()}
    assert left == {"out.json", *names.values()} - {names["gone"]}


def test_names_have_255_bytes() -> None:
    check_file_name("n" * 255)
    check_file_name("é" * 127)
    with pytest.raises(InvalidArgumentError, match=r"in at most 255 bytes, got 'éééé"):
        check_file_name("é" * 128)
    with pytest.raises(InvalidArgumentError) as refused:
        check_file_name("n" * 256)
    assert str(refused.value).endswith("got '" + "n" * 80 + "'")
    check_file_name("...")


class _Note(msgspec.Struct):
    schema: str
    version: int
    words: list[str]

    def __post_init__(self) -> None:
        if not self.words:
            raise InvalidArgumentError("words is empty")


NOTE = Format(
    "note",
    "a note of these tests",
    "test-note",
    3,
    "write it again",
    ReadingError,
    {2: lambda content: {**content, "version": 3, "words": content["words"].split()}},
)


def noted(folder: Path, **changes: Any) -> Path:
    path = folder / "note.json"
    path.write_text(json.dumps({"schema": "test-note", "version": 3, "words": ["a"]} | changes))
    return path


def test_a_document_is_read_by_schema_and_version(tmp_path: Path) -> None:
    assert NOTE.read(noted(tmp_path), _Note) == _Note("test-note", 3, ["a"])
    old = noted(tmp_path, version=2, words="a b")
    assert NOTE.read(old, _Note) == _Note("test-note", 3, ["a", "b"])
    for changes, said in (
        ({"schema": "other"}, 'not a note of these tests \\(no "schema": "test-note"\\)'),
        ({"version": 1}, "has version 1, this specsim reads version 3; use .* or write it again"),
        ({"version": 4}, "has version 4, this specsim reads version 3"),
        ({"version": None}, "has version None"),
        ({"version": "v" * 100}, f"has version {'v' * 40}, this"),
        ({"version": [2]}, r"has version \[2\]"),
        ({"words": []}, "words is empty"),
        ({"words": 3}, "Expected `array`, got `int`"),
        ({"version": 2, "words": 3}, "not as version 2 is"),
        ({"version": 2, "words": ""}, "words is empty"),
    ):
        with pytest.raises(ReadingError, match=said) as refused:
            NOTE.read(noted(tmp_path, **changes), _Note)
        assert str(refused.value).startswith(f"note {tmp_path / 'note.json'}: ")
        assert "\n" not in str(refused.value)
    for content in (b"[]", b"null", b'"test-note"', b"{", b"\xff"):
        (tmp_path / "note.json").write_bytes(content)
        assert not NOTE.is_meant(tmp_path / "note.json")
        with pytest.raises(ReadingError, match=r"not complete JSON|not a note"):
            NOTE.read(tmp_path / "note.json", _Note)
    assert NOTE.is_meant(noted(tmp_path, words=3))
    assert not NOTE.is_meant(tmp_path / "none.json")


def test_a_document_is_written_whole_or_not_at_all(tmp_path: Path) -> None:
    path = tmp_path / "note.json"
    NOTE.write(_Note("test-note", 3, ["a", "b"]), path)
    assert NOTE.read(path, _Note).words == ["a", "b"]
    assert path.read_bytes().endswith(b"\n}\n")
    before = path.read_bytes()
    with pytest.raises(FileError, match="cannot be written"):
        NOTE.write(_Note("test-note", 3, ["\ud800"]), path)
    assert path.read_bytes() == before


def test_folders_are_made_with_those_they_lie_in(tmp_path: Path) -> None:
    make_folder(tmp_path / "a" / "b")
    make_folder(tmp_path / "a" / "b")
    assert (tmp_path / "a" / "b").is_dir()
    (tmp_path / "file").write_bytes(b"")
    with pytest.raises(FileError, match=f"^--out {tmp_path / 'file'}: cannot be made"):
        make_folder(tmp_path / "file")


def test_digests(tmp_path: Path) -> None:
    path = tmp_path / "abc"
    path.write_bytes(b"abc")
    # FIPS 180-2, appendix B.1.
    assert file_digest(path) == "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"
    one = short_digest([{"a": 1, "b": 2.5}, "c"])
    assert one == short_digest([{"b": 2.5, "a": 1}, "c"])
    assert one == hashlib.sha256(b'[{"a": 1, "b": 2.5}, "c"]').hexdigest()[:12]
    assert one != short_digest(["c", {"a": 1, "b": 2.5}])


def test_tables_go_where_tables_may(tmp_path: Path) -> None:
    frame = pd.DataFrame({"a": [1, 2]})
    for name in ("t.csv", "t.parquet"):
        check_frame_path(tmp_path / name)
        write_frame(frame, tmp_path / name)
        assert read_frame(tmp_path / name, "table", ReadingError)["a"].tolist() == [1, 2]
    assert (tmp_path / "t.csv").read_text() == "a\n1\n2\n"
    assert pd.read_parquet(tmp_path / "t.parquet").columns.tolist() == ["a"]
    for wrong in (tmp_path / "t.txt", tmp_path / "none" / "t.csv", tmp_path / "none" / "t.parquet"):
        for call in (
            lambda wrong=wrong: check_frame_path(wrong),
            lambda wrong=wrong: write_frame(frame, wrong),
        ):
            with pytest.raises(FileError, match=r"must be a \.parquet or \.csv in a folder"):
                call()
    with pytest.raises(ReadingError, match=r"the name must end in \.parquet or \.csv"):
        read_frame(sparse(tmp_path / "t.txt", 3), "table", ReadingError)
