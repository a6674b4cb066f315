"""What lies beside the parts of a sweep that is complete: the file _sweep.json."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import msgspec
from msgspec import Meta

from specsim.checks import SpecsimError
from specsim.files import Format

SCHEMA = "specsim-sweep"
VERSION = 1
# Readers of a folder of Parquet pass over what begins with an underscore.
NAME = "_sweep.json"

_Count = Annotated[int, Meta(ge=0)]


class SweepFolderError(SpecsimError):
    """The results of a sweep cannot be used; the message says which folder and why."""


class FailedSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Settings that failed for one reason.

    reason : in one line
    settings : how many
    first : the number of the first of them
    """

    reason: str
    settings: Annotated[int, Meta(ge=1)]
    first: _Count


class WarnedSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Settings whose answers warn of the same.

    warning : in one line
    settings : how many
    first : the number of the first of them
    varied : whether others of them have other numbers in it; these are of the first
    """

    warning: str
    settings: Annotated[int, Meta(ge=1)]
    first: _Count
    varied: bool = False


class SweepRecord(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A complete sweep: what was asked, and what came of it.

    specsim : the version that answered
    key : a digest of all that decides the results
    definition : as a file says it (``SweepDefinition.described``)
    files : digests of the files that it names, by path
    settings, failed : how many, and how many of them have no answer
    chunk : settings of a part, of which the last may have fewer
    reasons : why settings failed, the most frequent first; of very many the first
    warnings : what answers warn of, in the same way; None in records that were written without them
    more_warnings : how many other warnings there are, at least
    """

    schema: str
    version: int
    specsim: str
    key: str
    definition: dict[str, Any]
    files: dict[str, str]
    settings: Annotated[int, Meta(ge=1)]
    failed: _Count
    chunk: Annotated[int, Meta(ge=1)]
    reasons: list[FailedSettings]
    warnings: list[WarnedSettings] | None = None
    more_warnings: _Count = 0

    @property
    def parts(self) -> int:
        """How many there are."""
        return -(-self.settings // self.chunk)


_FORMAT = Format(
    "sweep",
    "the record of a sweep",
    SCHEMA,
    VERSION,
    "make the sweep again",
    error=SweepFolderError,
)


def read_record(folder: Path) -> SweepRecord:
    """The record of the sweep in a folder; raises SweepFolderError where there is none."""
    return _FORMAT.read(folder / NAME, SweepRecord)


def has_record(folder: Path) -> bool:
    """Whether a folder holds a complete sweep."""
    return _FORMAT.is_meant(folder / NAME)
