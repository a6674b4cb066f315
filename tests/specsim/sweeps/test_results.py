"""Results of a sweep that are not what their record says are refused in one line."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import specsim
from specsim.sweeps.record import NAME, SweepFolderError, read_record
from specsim.sweeps.results import read_settings

ASKED = {"command": "evaluate", "inputs": {"alpha": [0.6, 0.8, 1.2], "c": 0.05, "gamma": [1, 4]}}


def swept(folder: Path) -> Path:
    """Six settings in parts of four and two."""
    return specsim.sweep(ASKED, folder / "out", workers=1, chunk=4).folder


def test_all_settings_in_order(tmp_path: Path) -> None:
    folder = swept(tmp_path)
    found = read_settings(folder, read_record(folder))
    assert found.column("setting").to_pylist() == list(range(6))
    assert found.equals(pq.read_table(folder).replace_schema_metadata(None))


def _cut(part: Path) -> None:
    part.write_bytes(part.read_bytes()[:-50])


def _again(part: Path) -> None:
    part.with_name("part-00002.parquet").write_bytes(part.read_bytes())


def _rows(part: Path) -> None:
    pq.write_table(pq.read_table(part).slice(1), part)


def _columns(part: Path) -> None:
    pq.write_table(pq.read_table(part).drop_columns("speedup"), part)


def _twice(part: Path) -> None:
    table = pq.read_table(part)
    pq.write_table(table.append_column("speedup", table.column("speedup")), part)


def _kind(part: Path) -> None:
    table = pq.read_table(part)
    at = table.column_names.index("speedup")
    dates = pa.array([0] * table.num_rows, pa.date32())
    pq.write_table(table.set_column(at, "speedup", dates), part)


def _folder(part: Path) -> None:
    part.unlink()
    part.mkdir()


def _fewer(part: Path) -> None:
    record = part.with_name(NAME)
    content = json.loads(record.read_text())
    record.write_text(json.dumps({**content, "settings": 5}))


@pytest.mark.parametrize(
    ("damage", "said"),
    [
        (_cut, "cannot be read"),
        (_again, "must have 2 parts, as its record says, got 3"),
        (Path.unlink, "must have 2 parts, as its record says, got 1"),
        (_rows, "part-00001.parquet: must have 2 rows, got 1"),
        (_columns, "has other columns than part-00000.parquet"),
        (_twice, "has more than one column 'speedup'"),
        (_kind, r"column 'speedup' is date32\[day\], which no sweep writes"),
        (_folder, "is a folder"),
        (_fewer, "part-00001.parquet: must have 1 rows, got 2"),
    ],
)
def test_damaged_results_are_refused(
    tmp_path: Path, damage: Callable[[Path], None], said: str
) -> None:
    folder = swept(tmp_path)
    damage(folder / "part-00001.parquet")
    with pytest.raises(SweepFolderError, match=said) as refused:
        read_settings(folder, read_record(folder))
    assert "\n" not in str(refused.value)
    with pytest.raises(SweepFolderError, match=said):
        specsim.compare(folder, folder)
