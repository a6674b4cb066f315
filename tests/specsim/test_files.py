"""What may be read and replaced: regular files of a bounded size, whole or not at all."""

from __future__ import annotations

import os
import resource
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from specsim import files
from specsim.checks import InvalidArgumentError, SpecsimError
from specsim.files import (
    FileError,
    check_file_name,
    column_numbers,
    read_frame,
    read_regular,
    write_atomically,
)


class ReadingError(SpecsimError):
    """What a reader of these tests raises."""


@pytest.fixture
def frame() -> pd.DataFrame:
    return pd.DataFrame({"request": ["a", "b"], "value": [1.0, 2.0]})


def test_a_pipe_is_not_replaced(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    with pytest.raises(FileError, match="is no regular file, and nothing else is replaced"):
        write_atomically(pipe, b"text")
    assert pipe.is_fifo()
    assert [each.name for each in tmp_path.iterdir()] == ["pipe"]


def test_a_device_is_not_replaced() -> None:
    with pytest.raises(FileError, match="is no regular file"):
        write_atomically(Path(os.devnull), b"text")
    assert Path(os.devnull).is_char_device()


def test_a_folder_is_not_replaced(tmp_path: Path) -> None:
    for folder in (tmp_path, Path("."), Path("/")):
        with pytest.raises(FileError, match="is a folder"):
            write_atomically(folder, b"text")


def test_a_link_leads_to_what_it_names(tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    real, link = tmp_path / "real" / "out.json", tmp_path / "link.json"
    link.symlink_to(real)
    write_atomically(link, b"whole")
    assert link.is_symlink()
    assert real.read_bytes() == b"whole"
    to_device = tmp_path / "device.json"
    to_device.symlink_to(os.devnull)
    with pytest.raises(FileError, match="is no regular file"):
        write_atomically(to_device, b"text")
    assert Path(os.devnull).is_char_device()


def test_a_planted_link_is_not_written_through(tmp_path: Path) -> None:
    """The name of the temporary file can be guessed by whoever may write in the folder."""
    victim = tmp_path / "victim"
    victim.write_bytes(b"kept")
    (tmp_path / f".out.json.{os.getpid()}.partial").symlink_to(victim)
    write_atomically(tmp_path / "out.json", b"whole")
    assert victim.read_bytes() == b"kept"
    assert (tmp_path / "out.json").read_bytes() == b"whole"
    assert sorted(each.name for each in tmp_path.iterdir()) == ["out.json", "victim"]


@pytest.mark.parametrize("name", ["n" * 250, "n" * 300, "a\0b", "none/out.json", "file/out.json"])
def test_a_name_that_cannot_be_written_is_one_line(tmp_path: Path, name: str) -> None:
    """The first is a name itself, but not with what a temporary file has besides."""
    (tmp_path / "file").write_bytes(b"")
    with pytest.raises(FileError, match="cannot be written"):
        write_atomically(tmp_path / name, b"text")
    assert [each.name for each in tmp_path.iterdir()] == ["file"]


def test_an_interrupted_write_leaves_the_old_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "out.json"
    write_atomically(path, b"old")

    def interrupted(self: Path, target: Path) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(Path, "replace", interrupted)
    with pytest.raises(KeyboardInterrupt):
        write_atomically(path, b"new")
    assert [each.name for each in tmp_path.iterdir()] == ["out.json"]
    assert path.read_bytes() == b"old"


def test_a_disk_that_fills_up_leaves_the_old_file(tmp_path: Path) -> None:
    """As far as a limit on the size of files is one: the write stops in the middle."""
    path = tmp_path / "out.json"
    write_atomically(path, b"old")
    usual = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (4096, usual[1]))
    try:
        with pytest.raises(FileError, match="cannot be written"):
            write_atomically(path, b"x" * 10**6)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, usual)
    assert [each.name for each in tmp_path.iterdir()] == ["out.json"]
    assert path.read_bytes() == b"old"


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("none.txt", "no such file"),
        ("file/below", "no such file"),
        ("folder", "is a folder"),
        ("pipe", "may have no end"),
        ("n" * 300, "cannot be read"),
        ("a\0b", "cannot be read"),
    ],
)
def test_only_regular_files_are_read(tmp_path: Path, name: str, message: str) -> None:
    (tmp_path / "file").write_bytes(b"")
    (tmp_path / "folder").mkdir()
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(ReadingError, match=message) as refused:
        read_regular(tmp_path / name, "text", ReadingError)
    assert "\n" not in str(refused.value)


def test_a_device_without_end_is_not_read() -> None:
    with pytest.raises(ReadingError, match="may have no end"):
        read_regular(Path("/dev/zero"), "text", ReadingError)


def test_a_file_is_read_up_to_a_size(tmp_path: Path) -> None:
    path = tmp_path / "text"
    path.write_bytes(b"x" * 1000)
    assert read_regular(path, "text", ReadingError, most=1000) == b"x" * 1000
    with pytest.raises(ReadingError, match=r"at most 0 MiB are read; give a part of it"):
        read_regular(path, "text", ReadingError, most=999)


@pytest.mark.parametrize("name", ["", ".", "..", "a/b", "/etc/passwd", "..\\b", "a\0b", "n" * 256])
def test_names_that_leave_their_folder_are_refused(name: str) -> None:
    with pytest.raises(InvalidArgumentError, match="without a folder"):
        check_file_name(name)


def test_names_that_stay_are_taken() -> None:
    for name in ("p.trace-0123.parquet", "..a", ".a", "\N{SNOWMAN}"):
        check_file_name(name)


@pytest.mark.parametrize("suffix", [".csv", ".parquet"])
def test_only_wanted_columns_are_read(tmp_path: Path, frame: pd.DataFrame, suffix: str) -> None:
    path = tmp_path / f"table{suffix}"
    files.write_frame(frame, path)
    found = read_frame(path, "table", ReadingError, lambda name: name == "value")
    assert found.columns.tolist() == ["value"]
    assert found["value"].tolist() == [1.0, 2.0]
    assert read_frame(path, "table", ReadingError).columns.tolist() == ["request", "value"]


def test_columns_with_dots_are_read_by_their_names(tmp_path: Path) -> None:
    path = tmp_path / "table.parquet"
    pd.DataFrame({"A(b=0.5).top": [1.0], "A(b=0.5)": [2.0]}).to_parquet(path)
    found = read_frame(path, "table", ReadingError, lambda name: name.endswith("top"))
    assert found.columns.tolist() == ["A(b=0.5).top"]


def test_attributes_are_read(tmp_path: Path, frame: pd.DataFrame) -> None:
    frame.attrs["temperature"] = 1.0
    frame.to_parquet(tmp_path / "table.parquet")
    assert read_frame(tmp_path / "table.parquet", "table", ReadingError).attrs == {
        "temperature": 1.0
    }


@pytest.mark.parametrize(
    "block", ["{", "[]", "null", '{"columns": 3}', "\ud800", '"x"', "[" * 3000]
)
def test_what_pandas_notes_of_a_table_need_not_be_whole(
    tmp_path: Path, frame: pd.DataFrame, block: str
) -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    path, noted = tmp_path / "table.parquet", block.encode("utf-8", "surrogatepass")
    pq.write_table(pa.Table.from_pandas(frame).replace_schema_metadata({"pandas": noted}), path)
    assert read_frame(path, "table", ReadingError)["value"].tolist() == [1.0, 2.0]
    table = pa.Table.from_pandas(frame).replace_schema_metadata({"PANDAS_ATTRS": noted})
    pq.write_table(table, path)
    if block == '{"columns": 3}':
        assert read_frame(path, "table", ReadingError).attrs == {"columns": 3}
    else:
        with pytest.raises(ReadingError) as refused:
            read_frame(path, "table", ReadingError)
        assert "\n" not in str(refused.value)


def test_columns_of_lists_and_doubled_columns_are_refused(tmp_path: Path) -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    path = tmp_path / "table.parquet"
    pq.write_table(pa.table({"request": [["a"], ["b"]]}), path)
    with pytest.raises(ReadingError, match="column request must hold numbers or words, got list"):
        read_frame(path, "table", ReadingError)
    pq.write_table(pa.Table.from_arrays([pa.array([1]), pa.array([2])], ["a", "a"]), path)
    with pytest.raises(ReadingError, match="more than one column a"):
        read_frame(path, "table", ReadingError)


def test_a_table_that_unfolds_beyond_memory_is_refused_before_it_does(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "table.parquet"
    pd.DataFrame({"value": np.zeros(1000)}).to_parquet(path)
    monkeypatch.setattr(files, "_MOST_CELLS", 999)
    with pytest.raises(ReadingError, match="has 1,000 numbers in 1 columns, at most 999 are read"):
        read_frame(path, "table", ReadingError)


def test_damaged_tables_are_one_line(tmp_path: Path, frame: pd.DataFrame) -> None:
    """Every byte of the file and of its footer is changed in turn, a tenth of them."""
    path = tmp_path / "table.parquet"
    frame.to_parquet(path)
    whole = path.read_bytes()
    for at in range(0, len(whole), 10):
        path.write_bytes(whole[:at] + bytes([whole[at] ^ 0xFF]) + whole[at + 1 :])
        try:
            read_frame(path, "table", ReadingError)
        except ReadingError as refused:
            said = str(refused)
            assert "\n" not in said


def test_a_csv_of_no_table_is_one_line(tmp_path: Path) -> None:
    path = tmp_path / "table.csv"
    for content in (b"", b"\xff\xfe\x00", b'"', b"a,b\n1,2,3\n1\n", b"\x00" * 10):
        path.write_bytes(content)
        try:
            read_frame(path, "table", ReadingError)
        except ReadingError as refused:
            said = str(refused)
            assert "\n" not in said


@pytest.mark.parametrize(
    ("column", "numbers"),
    [
        ([1, 2.5], [1, 2.5]),
        (["1", "x", "", None, "nan", "1e3"], [1, np.nan, np.nan, np.nan, np.nan, 1000]),
        (["0.5", "9" * 400, "-" + "9" * 400, "x"], [0.5, np.inf, -np.inf, np.nan]),
        ([0.5, 10**400, None, [1]], [0.5, np.inf, np.nan, np.nan]),
        ([], []),
    ],
)
def test_numbers_of_a_column_may_be_of_any_size(column: list[object], numbers: list[float]) -> None:
    np.testing.assert_array_equal(column_numbers(pd.Series(column, dtype=object)), numbers)
