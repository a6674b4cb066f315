"""The parts of a sweep that is complete, read back as one table."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as parquet

from specsim.checks import SpecsimError, reason_of
from specsim.files import check_regular
from specsim.sweeps.columns import is_kind, kinds_of
from specsim.sweeps.record import SweepFolderError, SweepRecord

# Bytes of all cells, before they become values of Python or of pandas.
_MOST_BYTES = 2**29


def read_settings(folder: Path, record: SweepRecord) -> pa.Table:
    """A row for each setting of the sweep in a folder, in order.

    Raises SweepFolderError of one line where the parts are not those that the record tells of: too
    few or too many, with other rows, other columns, or damaged.
    """
    paths = sorted(folder.glob("part-*.parquet"))
    if len(paths) != record.parts:
        raise SweepFolderError(
            f"{folder} must have {record.parts:,} parts, as its record says, got {len(paths):,}"
        )
    tables: list[pa.Table] = []
    left = record.settings
    for path in paths:
        check_regular(path, str(path), SweepFolderError, _MOST_BYTES)
        try:
            tables.append(_part(path, min(left, record.chunk)))
        except SpecsimError as error:
            raise SweepFolderError(f"{path}: {error}") from None
        # A damaged file leads its reader to exceptions of any kind, which all mean the same.
        except Exception as error:
            raise SweepFolderError(f"{path}: cannot be read: {reason_of(error)}") from None
        if tables[-1].schema != tables[0].schema:
            raise SweepFolderError(f"{path}: has other columns than {paths[0].name}")
        left -= record.chunk
    return pa.concat_tables(tables)


def _part(path: Path, rows: int) -> pa.Table:
    """One part, which must have so many rows and columns of the kinds that sweeps write."""
    with parquet.ParquetFile(path) as file:
        if file.metadata.num_rows != rows:
            raise SweepFolderError(f"must have {rows:,} rows, got {file.metadata.num_rows:,}")
        names = file.schema_arrow.names
        twice = next((name for name in names if names.count(name) > 1), None)
        if twice is not None:
            raise SweepFolderError(f"has more than one column {twice[:40]!r}")
        for name, kind in kinds_of(file.schema_arrow).items():
            if not is_kind(kind):
                raise SweepFolderError(f"column {name[:40]!r} is {kind}, which no sweep writes")
        groups = (file.metadata.row_group(each) for each in range(file.num_row_groups))
        size = sum(each.total_byte_size for each in groups)
        if size > _MOST_BYTES:
            raise SweepFolderError(
                f"must have at most {_MOST_BYTES / 2**20:,.0f} MiB of cells, got "
                f"{size / 2**20:,.1f} MiB"
            )
        return file.read().replace_schema_metadata(None)
