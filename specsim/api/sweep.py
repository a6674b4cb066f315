"""``specsim.sweep``: one command, many settings of its inputs, one row of results for each."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from specsim.api.progress import Progress, note, quiet
from specsim.api.result import LeftOut, Result, Row
from specsim.checks import integer

if TYPE_CHECKING:
    import pandas as pd

    from specsim.sweeps.record import SweepRecord
    from specsim.sweeps.workers import Backend

# Parts of a sweep where nobody says how large they are, and settings of the largest.
_PARTS = 200
_MOST_OF_A_PART = 1000


@dataclass(frozen=True, kw_only=True)
class SettingsSweep(Result):
    """A sweep that is complete.

    folder : with the parts, part-00000.parquet and so on, and the record _sweep.json
    settings, failed : how many, and how many of them have no answer but a reason
    parts, found : of the folder, and how many were there before this call began
    repeated : chunks that were handed out more than once, because workers were lost

    ``settings_frame`` has a row for each setting: its number, its inputs as ``input_NAME``, its
    answer, and ``failure``, ``warnings``, ``left_out`` and ``specsim_version``.  What failed is
    left out, too: the most frequent reasons, each with how many settings it is of.  So are the
    warnings of the answers, and that their prices are bounds.
    """

    schema: ClassVar[str] = "specsim.sweep"

    folder: Path
    settings: int
    failed: int
    parts: int
    found: int
    repeated: int = 0

    @property
    def title(self) -> str:
        return f"sweep of {self.inputs.get('command')} over {self.settings:,} settings"

    def rows(self) -> list[Row]:
        """The sweep as a whole, in one row; the settings are in ``settings_frame``."""
        return [
            {
                "settings": self.settings,
                "failed": self.failed,
                "parts": self.parts,
                "parts_found": self.found,
                "parts_computed": self.parts - self.found,
                "chunks_repeated": self.repeated,
                "folder": str(self.folder),
            }
        ]

    @cached_property
    def settings_frame(self) -> pd.DataFrame:
        """All settings, in order, in memory."""
        from specsim.sweeps.record import read_record
        from specsim.sweeps.results import read_settings

        frame: pd.DataFrame = read_settings(self.folder, read_record(self.folder)).to_pandas()
        return frame


def sweep(
    settings: str | PathLike[str] | Mapping[str, Any],
    out: str | PathLike[str],
    *,
    backend: Backend = "processes",
    address: str | None = None,
    workers: int | None = None,
    chunk: int | None = None,
    progress: Progress = quiet,
) -> SettingsSweep:
    """Ask one command for every setting of its inputs, and write a row of Parquet for each.

    settings : a file of TOML or YAML, or what one holds as a mapping: ``command``, ``inputs`` (by
        the names of the command's options, with lists and ranges) and ``cases``
        (specsim.sweeps.reading)
    out : folder to make.  Where it holds this very sweep already it is read and nothing computed.
    backend : ``processes`` of this machine, a ``dask`` scheduler or a ``ray`` cluster
    address : of the scheduler or the cluster
    workers : of processes; one for each core where none is given
    chunk : settings that are answered by one worker at a time and make one part of the results: at
        most so many are computed again after a kill.  By default a 200th of all, at most 1,000.

    The results are the same bytes for any number of workers and any backend.  A sweep that was
    killed goes on where it was when it is called again with the same settings, ``out`` and chunk.
    A setting that the command refuses is a row with the reason.  Settings are made when they are
    asked for, so that a million of them take no memory.

    Raises SweepFileError for settings that are none, and WorkersLostError where workers are lost
    again and again.
    """
    from specsim.sweeps.parts import SweepParts
    from specsim.sweeps.reading import read_definition
    from specsim.sweeps.workers import Workers, answered

    at = Workers(backend, address, workers)
    definition = read_definition(settings)
    if chunk is None:
        chunk = max(1, min(_MOST_OF_A_PART, definition.size // _PARTS))
    parts = SweepParts(definition, Path(out), integer("chunk", chunk, low=1))
    inputs = {**definition.described(), "chunk": parts.chunk}
    if (record := parts.record()) is not None:
        return _swept(parts.out, record, inputs, found=parts.count)
    done = parts.present()
    found = len(done)
    handed_out: set[int] = set()
    repeated = 0

    def is_taken(number: int) -> bool:
        """Whether a part is there; if not its chunk is handed out now."""
        nonlocal repeated
        if number in done:
            return True
        repeated += number in handed_out
        handed_out.add(number)
        return False

    answered_settings = sum(map(parts.size, done))
    if found:
        note(progress, f"going on with {found:,} of {parts.count:,} parts, which were there")
    progress("settings", answered_settings, definition.size)
    for each in answered(lambda: parts.chunks(is_taken), at, progress):
        parts.keep(each)
        done.add(each.number)
        handed_out.discard(each.number)
        answered_settings += parts.size(each.number)
        progress("settings", answered_settings, definition.size)
    return _swept(parts.out, parts.finish(), inputs, found=found, repeated=repeated)


def _swept(
    out: Path, record: SweepRecord, inputs: Row, *, found: int, repeated: int = 0
) -> SettingsSweep:
    return SettingsSweep(
        folder=out,
        settings=record.settings,
        failed=record.failed,
        parts=record.parts,
        found=found,
        repeated=repeated,
        inputs=inputs,
        left_out=tuple(
            LeftOut(_settings(each.settings, each.first), each.reason, each.settings > 1)
            for each in record.reasons
        ),
        warnings=tuple(_warnings(record)),
    )


def _warnings(record: SweepRecord) -> Iterator[str]:
    """What answers warn of, each with how many settings it is of."""
    for each in record.warnings or ():
        numbers = ", whose numbers these are" if each.varied else ""
        yield f"{_settings(each.settings, each.first, numbers)}: {each.warning}"
    if record.more_warnings:
        yield f"{record.more_warnings:,} other warnings or more: column warnings has all of them"


def _settings(count: int, first: int, more: str = "") -> str:
    """How many, and which is the first."""
    return f"{count:,} settings (first {first}{more})" if count > 1 else f"1 setting ({first})"
