"""The values that an input of a sweep takes: listed, in steps, or so many from first to last."""

from __future__ import annotations

from dataclasses import dataclass
from decimal import Decimal
from typing import Protocol

from specsim.checks import InvalidArgumentError, integer, number

# What an input is set to; of several words the words, None: the input is not given.
Scalar = bool | int | float | str | None
Value = Scalar | tuple[Scalar, ...]

# More settings than anyone waits for; what is beyond is a slip of the pen.
MOST_SETTINGS = 1_000_000_000

# Digits of values that are worked out, so that they are read as they were meant.
_DIGITS = 12


class Values(Protocol):
    """Values by number, none of which need exist before it is asked for.  A tuple is one, too."""

    def __len__(self) -> int: ...

    def __getitem__(self, index: int, /) -> Value: ...


@dataclass(frozen=True)
class Stepped:
    """first, first + step, first + 2 step, ... up to last.

    Steps are added as the decimals that they are written as: 0.1 and two steps of 0.1 make 0.3.
    Whole numbers stay whole.
    """

    first: float
    last: float
    step: float = 1

    def __post_init__(self) -> None:
        number("first", self.first)
        number("last", self.last, low=self.first)
        if number("step", self.step, low=0.0) == 0 or self._steps > MOST_SETTINGS:
            raise InvalidArgumentError(
                f"step must be large enough for at most {MOST_SETTINGS:,} values, got {self.step:g}"
            )

    @property
    def _steps(self) -> float:
        return (self.last - self.first) / self.step

    @property
    def whole(self) -> bool:
        """Whether its values are whole numbers."""
        return all(isinstance(each, int) for each in (self.first, self.last, self.step))

    def __len__(self) -> int:
        return int((_decimal(self.last) - _decimal(self.first)) // _decimal(self.step)) + 1

    def __getitem__(self, index: int, /) -> Value:
        if not 0 <= index < len(self):
            raise IndexError(index)
        value = _decimal(self.first) + index * _decimal(self.step)
        return int(value) if self.whole else float(value)


@dataclass(frozen=True)
class Spaced:
    """``count`` values from first to last, both of them included, to 12 significant digits.

    log : whether neighbours have one ratio instead of one difference; both ends are then above 0
    """

    first: float
    last: float
    count: int
    log: bool = False

    def __post_init__(self) -> None:
        number("first", self.first)
        number("last", self.last, low=self.first)
        integer("count", self.count, low=2, high=MOST_SETTINGS)
        if self.log and not self.first > 0:
            raise InvalidArgumentError(
                f"first must be above 0 with spacing log, got {self.first:g}"
            )

    def __len__(self) -> int:
        return self.count

    def __getitem__(self, index: int, /) -> Value:
        if not 0 <= index < self.count:
            raise IndexError(index)
        if index == self.count - 1:
            return float(self.last)
        share = index / (self.count - 1)
        if self.log:
            value = self.first * (self.last / self.first) ** share
        else:
            value = self.first + (self.last - self.first) * share
        return float(f"{value:.{_DIGITS}g}")


def word(value: Value) -> str:
    """A value as it is typed behind an option: several with commas, numbers in full precision."""
    if isinstance(value, tuple):
        return ",".join(map(word, value))
    return value if isinstance(value, str) else repr(value)


def _decimal(value: float) -> Decimal:
    return Decimal(repr(value))
