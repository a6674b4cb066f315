"""One shared set of argument checks, the errors they raise, and figures as messages write them.

Every message is one line that names the argument, the value found and the allowed range, so the
command line can print it as it is.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from reprlib import Repr
from typing import Any

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]


# Beyond this float64 holds not every whole number, and int64 ends soon after.
_LARGEST_WHOLE = 2.0**53

# More numbers in one option than anyone means.
_MOST_NUMBERS = 1_000_000

# What is no number may be of any length and depth.
_SHORT = Repr()
_SHORT.maxstring = _SHORT.maxother = 80
_SHORT.maxlevel = 3
_LONGEST_SHOWN = 120


class SpecsimError(ValueError):
    """Bad input.  The message is one line for a person; the command line exits 2 with it."""


class InvalidArgumentError(SpecsimError):
    """An argument is outside its allowed range."""


class UnsupportedError(SpecsimError):
    """A combination that has no exact answer here; the message names the part."""


def numbers(
    name: str, value: npt.ArrayLike, *, low: float = -np.inf, high: float = np.inf
) -> Floats:
    """``value`` as float64, all finite and in [low, high]; any shape but empty."""
    try:
        array = np.asarray(value, dtype=np.float64)
    except (TypeError, ValueError, OverflowError):
        raise InvalidArgumentError(f"{name} must be a number, got {_no_number(value)}") from None
    if array.size == 0:
        raise InvalidArgumentError(f"{name} is empty, expected at least one number")
    # Two passes and no temporaries where all is well: sweeps check 10^7 numbers. A nan fails both.
    lowest, highest = array.min(), array.max()
    if not (low <= lowest and highest <= high and np.isfinite(lowest) and np.isfinite(highest)):
        bad = ~(np.isfinite(array) & (array >= low) & (array <= high))
        found = float(array[bad].flat[0])
        allowed = "finite" if np.isinf(found) and low <= found <= high else _range(low, high)
        raise InvalidArgumentError(f"{name} must be {allowed}, got {_shown(found, low, high)}")
    return array


def _no_number(value: Any) -> str:
    """The first of several words that is none, or all of it."""
    for each in value if isinstance(value, (list, tuple)) else ():
        if isinstance(each, str):
            try:
                float(each)
            except ValueError:
                return shown(each)
    return shown(value)


def number(name: str, value: Any, *, low: float = -np.inf, high: float = np.inf) -> float:
    """One finite number in [low, high]."""
    if type(value) is float and low <= value <= high and -np.inf < value < np.inf:
        return value  # what sweeps check over and over needs no array
    array = numbers(name, value, low=low, high=high)
    if array.ndim:
        raise InvalidArgumentError(f"{name} must be one number, got {array.size} of them")
    return float(array)


def probability(name: str, value: Any) -> float:
    """One number in [0, 1]."""
    return number(name, value, low=0.0, high=1.0)


def probabilities(name: str, value: npt.ArrayLike) -> Floats:
    """Numbers in [0, 1]; any shape but empty."""
    return numbers(name, value, low=0.0, high=1.0)


def integers(name: str, value: npt.ArrayLike, *, low: int = 0, high: float = np.inf) -> Ints:
    """``value`` as int64, all whole and in [low, high]; any shape but empty."""
    array = numbers(name, value)
    if array.max() > _LARGEST_WHOLE:
        high = min(high, _LARGEST_WHOLE)
    wrong = (array != np.floor(array)) | (array < low) | (array > high)
    if wrong.any():
        found = float(array[wrong].flat[0])
        raise InvalidArgumentError(
            f"{name} must be a whole number {_range(low, high)}, got {_shown(found, low, high)}"
        )
    return array.astype(np.int64)


def integer(name: str, value: Any, *, low: int = 0, high: float = np.inf) -> int:
    """One whole number in [low, high]."""
    if type(value) is int and low <= value <= high and abs(value) <= _LARGEST_WHOLE:
        return value  # what sweeps check over and over needs no array
    array = integers(name, value, low=low, high=high)
    if array.ndim:
        raise InvalidArgumentError(f"{name} must be one whole number, got {array.size} of them")
    return int(array)


def check_rising(name: str, values: Sequence[int] | None) -> None:
    """Refuse anything but whole numbers from 1 on that rise, one at least; None is nothing said."""
    if values is None:
        return
    for value in values:
        integer(name, value, low=1)
    if not values or list(values) != sorted(set(values)):
        said = ", ".join(map(str, values)) or "none"
        raise InvalidArgumentError(f"{name} must rise, got {said}")


def integer_range(name: str, words: str, *, low: int = 0) -> list[int]:
    """Whole numbers: ``4``, a comma list ``1,2,4``, a range ``1:16``, or both ``1:4,8``."""
    found: list[int] = []
    for part in words.split(","):
        first, colon, last = part.partition(":")
        start = integer(name, first.strip(), low=low)
        end = integer(name, last.strip(), low=low) if colon else start
        if end < start:
            raise InvalidArgumentError(f"{name} must be a range first:last, got {part}")
        if len(found) + end - start >= _MOST_NUMBERS:
            raise InvalidArgumentError(f"{name} must be at most {_MOST_NUMBERS:,} numbers")
        found.extend(range(start, end + 1))
    return found


def shown(value: Any) -> str:
    """A value of any length and depth as Python writes it, cut to 120 characters.

    In a file of a few lines lists may hold each other until all of them would fill any memory, and
    a number may have more digits than Python writes.
    """
    try:
        text = _SHORT.repr(value)
    except ValueError:
        text = f"{type(value).__name__} that is too long to be shown"
    return text if len(text) <= _LONGEST_SHOWN else f"{text[: _LONGEST_SHOWN - 3]}..."


def check_choice(name: str, value: str, allowed: Iterable[str]) -> None:
    """One of a few words."""
    allowed = tuple(allowed)
    if value not in allowed:
        raise InvalidArgumentError(
            f"{name} must be one of {', '.join(allowed)}, got {shown(value)}"
        )


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """``, did you mean X or Y?`` of the known names that are near, or nothing where none is.

    Only letters and digits count, upper and lower case alike.
    """
    from difflib import get_close_matches

    def letters(word: str) -> str:
        return "".join(filter(str.isalnum, word.casefold()))

    word, found = letters(name), {each: letters(each) for each in known}
    near = [each for each, other in found.items() if word and other.startswith(word)]
    if not near:
        close = get_close_matches(word, found.values())
        near = [each for each, other in found.items() if other in close]
    return f", did you mean {' or '.join(near)}?" if near else ""


def reason_of(error: BaseException) -> str:
    """The first line of what an exception says, or its kind where it says nothing."""
    return (str(error).strip() or type(error).__name__).splitlines()[0]


def significant(value: float, digits: int = 4, zeros: bool = False) -> str:
    """A finite figure in so many significant digits, and in all of those before the point: 10,210.

    zeros : whether those at its end are kept

    Exponents are left to what is below 1e-5, or 1e15 and more.
    """
    if value == 0:
        return "0"
    size = abs(value)
    if not 1e-5 <= size < 1e15:
        return f"{value:.{digits}g}"
    places = max(0, digits - 1 - math.floor(math.log10(size)))
    text = f"{value:,.{places}f}"
    return text if zeros or not places else text.rstrip("0").rstrip(".")


def _shown(found: float, low: float, high: float) -> str:
    """A refused number in few digits, or in all where few would look as if it were allowed."""
    few = float(f"{found:g}")
    return f"{found!r}" if low <= few <= high and few != found else f"{found:g}"


def _range(low: float, high: float) -> str:
    if np.isneginf(low) and np.isposinf(high):
        return "finite"
    if np.isposinf(high):
        return f">= {_end(low)}"
    if np.isneginf(low):
        return f"<= {_end(high)}"
    return f"in [{_end(low)}, {_end(high)}]"


def _end(value: float) -> str:
    """A whole number has all its digits: whoever is at the end of a range types them."""
    return f"{value:.0f}" if abs(value) <= _LARGEST_WHOLE and value % 1 == 0 else f"{value:g}"


def refuse(given: Mapping[str, Any], reason: str) -> None:
    """Raise InvalidArgumentError with the first argument that is there, and why it must not be."""
    for name, value in given.items():
        if value is not None:
            raise InvalidArgumentError(f"{name} {reason}")
