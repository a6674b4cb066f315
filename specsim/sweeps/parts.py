"""The parts of a sweep on disk: kept one by one while it runs, put together when all are there.

While a sweep runs its parts lie in a hidden folder beside the one that it is to fill, each written
whole or not at all under a name that holds its number: that is all there is to know to go on after
a kill.  When all are there they get the columns of all of them, one after the other, and the folder
gets its name at once, so that results are complete or absent.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import msgspec
import pyarrow.parquet as pq

from specsim import __version__
from specsim.checkpoint import Checkpoint
from specsim.checks import InvalidArgumentError
from specsim.files import FileError, short_digest, write_atomically
from specsim.sweeps.chunks import AnsweredChunk, Chunk, versions
from specsim.sweeps.columns import (
    Kind,
    fitted,
    input_kinds,
    kinds_of,
    parquet,
    together,
)
from specsim.sweeps.definition import SweepDefinition
from specsim.sweeps.record import (
    NAME,
    SCHEMA,
    VERSION,
    SweepRecord,
    has_record,
    read_record,
)
from specsim.sweeps.tallies import SettingsTally


@dataclass(frozen=True)
class SweepParts:
    """Where the results of a sweep go.

    out : the folder that is there once the sweep is complete
    chunk : settings of a part
    """

    definition: SweepDefinition
    out: Path
    chunk: int

    @cached_property
    def count(self) -> int:
        """How many parts there are."""
        return -(-self.definition.size // self.chunk)

    def record(self) -> SweepRecord | None:
        """The record where all is there; raises FileError where something else is in the way."""
        if not self.out.exists():
            return None
        if has_record(self.out):
            found = read_record(self.out)
            if found.key == self._key:
                self._remove_hidden()  # of one that was killed just behind its end
                return self._with_warnings(found)
            raise FileError(
                f"{self.out}: holds another sweep, or one by another specsim; name another folder, "
                "or remove it"
            )
        raise FileError(f"{self.out}: is there and no sweep; name another folder, or remove it")

    def _with_warnings(self, record: SweepRecord) -> SweepRecord:
        """Counted now, where a record was written without them."""
        if record.warnings is not None:
            return record
        tally = SettingsTally.of(self.out / self._name(number) for number in range(self.count))
        return msgspec.structs.replace(
            record, warnings=tally.warnings, more_warnings=tally.more_warnings
        )

    def present(self) -> set[int]:
        """The numbers of the parts that are kept."""
        if not self._checkpoint.begun:
            return set()
        names = {each.name for each in self._checkpoint.folder.iterdir()}
        return {number for number in range(self.count) if self._name(number) in names}

    def chunks(self, is_done: Callable[[int], bool]) -> Iterator[Chunk]:
        """One after the other those that are not done; none is made before it is asked for."""
        for number in range(self.count):
            if not is_done(number):
                yield Chunk(
                    number,
                    self.definition.command,
                    number * self.chunk,
                    tuple(map(self.definition.setting, self._indices(number))),
                    self._input_kinds,
                )

    def size(self, number: int) -> int:
        """Settings of a part."""
        return len(self._indices(number))

    def keep(self, answered: AnsweredChunk) -> None:
        """Write a part; raises InvalidArgumentError where another specsim or pyarrow made it."""
        if answered.versions != versions():
            raise InvalidArgumentError(
                f"a worker has {answered.versions}, and here are {versions()}; install the same"
            )
        name = self._name(answered.number)
        self._checkpoint.keep(name, lambda path: path.write_bytes(answered.content))

    def finish(self) -> SweepRecord:
        """Give all parts the columns of all, write the record, and the folder its name."""
        folder = self._checkpoint.folder
        paths = [folder / self._name(number) for number in range(self.count)]
        kinds = together(_kinds(path) for path in paths)
        tally = SettingsTally()
        for path in paths:
            if list(_kinds(path).items()) != list(kinds.items()):
                with pq.ParquetFile(path) as file:
                    table = file.read()
                write_atomically(path, parquet(fitted(table, kinds)))
            tally.add(path)
        record = SweepRecord(
            schema=SCHEMA,
            version=VERSION,
            specsim=__version__,
            key=self._key,
            definition=self.definition.described(),
            files=self._files,
            settings=self.definition.size,
            failed=tally.failed,
            chunk=self.chunk,
            reasons=tally.reasons,
            warnings=tally.warnings,
            more_warnings=tally.more_warnings,
        )
        self._checkpoint.replace_json(NAME, record)
        # While it was worked on nobody else was to write in it; as a result it is as any folder is.
        folder.chmod(0o777 & ~_umask())
        try:
            folder.rename(self.out)
        except OSError as error:
            raise FileError(f"{self.out}: cannot be made ({error.strerror})") from None
        self._remove_hidden()
        self._checkpoint.done()
        return record

    def _remove_hidden(self) -> None:
        """The lock of the folder while it was at work, and what a kill left half written."""
        for path in (self.out / ".lock", *self.out.glob(".*.partial")):
            with suppress(OSError):
                path.unlink()

    @cached_property
    def _files(self) -> dict[str, str]:
        return self.definition.files()

    @cached_property
    def _decisive(self) -> list[Any]:
        # Keys of objects are sorted in a digest, but the order of inputs numbers the settings.
        asked = [self.definition.described(), list(self.definition.names)]
        return [*asked, self._files, self.chunk, versions()]

    @cached_property
    def _key(self) -> str:
        return short_digest(self._decisive)

    @cached_property
    def _checkpoint(self) -> Checkpoint:
        return Checkpoint.beside(self.out, *self._decisive)

    @cached_property
    def _input_kinds(self) -> dict[str, Kind]:
        return input_kinds(self.definition)

    def _indices(self, number: int) -> range:
        first = number * self.chunk
        return range(first, min(first + self.chunk, self.definition.size))

    def _name(self, number: int) -> str:
        return f"part-{number:0{max(5, len(str(self.count - 1)))}d}.parquet"


def _kinds(path: Path) -> dict[str, Kind]:
    return kinds_of(pq.read_schema(path))


def _umask() -> int:
    """The mask of this process, which can only be read by setting it."""
    mask = os.umask(0)
    os.umask(mask)
    return mask
