"""A row of a table by its name, or one of one's own from a JSON file."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from importlib import resources
from pathlib import Path
from typing import TypeVar

import msgspec

from specsim.checks import InvalidArgumentError, SpecsimError, UnsupportedError, did_you_mean
from specsim.files import read_regular

Row = TypeVar("Row")
Document = TypeVar("Document", bound=msgspec.Struct)

# Bytes of a file that describes one row.
_LARGEST = 2**20


def table_text(file_name: str) -> str:
    """The text of a table that ships in ``configs``."""
    return (resources.files("specsim") / "configs" / file_name).read_text("utf-8")


def split_aliases(rows: Mapping[str, str]) -> dict[str, str]:
    """Alias to name, from the name to its aliases as the table writes them: ``H100;H100-SXM5``."""
    return {alias: name for name, listed in rows.items() for alias in listed.split(";") if alias}


def find(
    what: str, name: str, rows: Mapping[str, Row], aliases: Mapping[str, str], remedy: str
) -> Row:
    """The row of that name or alias; only letters and digits count, upper and lower case alike.

    what : of what kind the rows are, for the message
    remedy : what else can be given, for the message
    Raises UnsupportedError with the near misses and every name.
    """
    called = {_letters(alias): rows[of] for alias, of in aliases.items()}
    called.update({_letters(key): row for key, row in rows.items()})
    found = called.get(_letters(name))
    if found is not None:
        return found
    raise UnsupportedError(
        f"{what} {name!r} is not known{did_you_mean(name, [*rows, *aliases])} "
        f"(known: {', '.join(rows)}); {remedy}"
    )


def is_file_name(name: str) -> bool:
    """Whether a file is meant and not a row."""
    return name.casefold().endswith(".json")


def read_own(what: str, path: Path, kind: type[Document]) -> Document:
    """A file of ``kind``; raises InvalidArgumentError that names the file and the field."""
    content = read_regular(path, what, InvalidArgumentError, _LARGEST)
    try:
        return msgspec.json.decode(content, type=kind)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise InvalidArgumentError(f"{what} {path}: {error}") from None


@contextmanager
def said_of(what: str, path: Path) -> Iterator[None]:
    """Puts the file's name before what is refused inside."""
    try:
        yield
    except SpecsimError as error:
        raise InvalidArgumentError(f"{what} {path}: {error}") from None


def _letters(word: str) -> str:
    return "".join(filter(str.isalnum, word.casefold()))
