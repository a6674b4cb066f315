"""What every call returns: rows, a DataFrame, and one JSON form that says what it rests on."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, field, fields, is_dataclass
from typing import TYPE_CHECKING, Any, ClassVar

from specsim import __version__
from specsim.checks import significant

if TYPE_CHECKING:
    import pandas as pd

Row = dict[str, Any]


@dataclass(frozen=True)
class LeftOut:
    """Something that was asked for and has no answer.

    what : as a person would name it, such as "batch 256, context 4096"
    why : the reason in one line
    several : whether ``what`` names more than one thing, for the verb
    """

    what: str
    why: str
    several: bool = False

    @property
    def line(self) -> str:
        """That it is left out, and why."""
        return f"{self.what} {'are' if self.several else 'is'} left out: {self.why}"


@dataclass(frozen=True, kw_only=True)
class Result(ABC):
    """Base of the results of all calls.

    inputs : what was asked, as plain values
    warnings : every warning that a terminal shows, one line each
    left_out : what was asked for and has no answer
    """

    schema: ClassVar[str]
    version: ClassVar[int] = 1

    inputs: Mapping[str, Any] = field(default_factory=dict)
    warnings: tuple[str, ...] = ()
    left_out: tuple[LeftOut, ...] = ()

    @property
    def title(self) -> str:
        """Of its table, where the result says it itself; else empty."""
        return ""

    @abstractmethod
    def rows(self) -> list[Row]:
        """One row per setting, for programs."""

    def table(self) -> list[Row]:
        """The rows as a person reads them, where that is less than all of it."""
        return self.rows()

    @property
    def essential(self) -> tuple[str, ...]:
        """Columns of the table that matter most, the first of all first.

        A table begins with them, the others follow in their order, and where a terminal has no room
        for all of them the last are left out.
        """
        return ()

    @property
    def told_below(self) -> str:
        """A column of words whose cells are told in whole below a table that has no room for them;
        empty where there is none.
        """
        return ""

    def summary(self) -> Row:
        """What the answer says as a whole, beside its rows; empty where the rows say it all."""
        return {}

    def sentences(self) -> list[str]:
        """What the answer says as a whole, for people: one line each, beside the rows."""
        return []

    def frame(self) -> pd.DataFrame:
        """The rows as a DataFrame."""
        import pandas as pd

        return pd.DataFrame(self.rows())

    def document(self) -> Row:
        """The JSON form: schema, version, inputs, answer, what was left out, warnings."""
        return {
            "schema": self.schema,
            "version": self.version,
            "specsim": __version__,
            "inputs": plain(self.inputs),
            "answer": plain({**self.summary(), "rows": self.rows()}),
            "left_out": plain([{"what": each.what, "why": each.why} for each in self.left_out]),
            "warnings": plain(self.warnings),
        }

    def to_json(self) -> str:
        """The document as text; infinities and nan become null."""
        import msgspec

        return msgspec.json.format(msgspec.json.encode(self.document()), indent=2).decode()


def milliseconds(seconds: float) -> str:
    """Seconds as a table writes a latency: ``37.02 ms``."""
    return f"{significant(1e3 * seconds)} ms"


def plain(value: Any) -> Any:
    """Values that JSON has: arrays become lists, infinities and nan null, intervals low, best,
    high, and other descriptions objects.

    Half of a surrogate pair, which no text has, is written as its escape; a whole number that no
    64 bits hold becomes the nearest float, or null.
    """
    if is_dataclass(value) and not isinstance(value, type):
        from specsim.intervals import Interval

        if isinstance(value, Interval):
            return plain([value.low, value.best, value.high])
        named = {each.name: getattr(value, each.name) for each in fields(value)}
        return {"kind": type(value).__name__, **plain(named)}
    if isinstance(value, Mapping):
        return {plain(str(key)): plain(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [plain(item) for item in value]
    if hasattr(value, "tolist"):
        return plain(value.tolist())
    if isinstance(value, float) and not math.isfinite(value):
        return None
    if value is None or isinstance(value, (bool, float)):
        return value
    if isinstance(value, int):
        if abs(value) < 2**63:
            return value
        return float(value) if abs(value) < 2**1023 else None
    return str(value).encode("utf-8", "backslashreplace").decode("utf-8")
