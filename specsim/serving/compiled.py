"""Loops that numba compiles, once for all: the machine code is kept beside the module."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar, cast

# Where colorama is installed, too, numba would end the output with an escape, even in a pipe.
os.environ.setdefault("NUMBA_DISABLE_ERROR_MESSAGE_HIGHLIGHTING", "1")

from numba import njit, types
from numba.core import cgutils
from numba.extending import intrinsic

Function = TypeVar("Function", bound=Callable[..., Any])

# Whose records and numbers are compiled in, beside the files of the functions themselves.
_HERE = Path(__file__).parent
_SOURCES = {
    str(_HERE / name)
    for name in (
        *("compiled.py", "state.py", "step_model.py", "acceptance.py", "adaptive_steps.py"),
        "engines/settings.py",
    )
}


def compiled(function: Function) -> Function:
    """``function`` as machine code, with float64 as written: nothing is reordered or fused."""
    return _kept(function, {})


def inner(function: Function) -> Function:
    """The same, to be called by compiled functions alone: in half the time to compile it."""
    return _kept(function, {"no_cpython_wrapper": True, "no_cfunc_wrapper": True})


def inlined(function: Function) -> Function:
    """The same of small functions that are called for every request of every step: a call would
    hand over all arrays one by one, which takes longer than what they do.
    """
    options = {"no_cpython_wrapper": True, "no_cfunc_wrapper": True, "forceinline": True}
    return _kept(function, options)


@intrinsic  # type: ignore[untyped-decorator]
def borrowed(_: Any, value: Any) -> Any:
    """The same arrays, or tuples of them, as ``value``, of which the caller keeps the ownership.

    Each use of an array that is in a tuple is counted twice, where it begins and ends, and that
    took three quarters of the loop's time.  There is nothing to count of an array that belongs to
    nobody.
    """

    def write(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return _borrowed(context, builder, value, arguments[0])

    return value(value), write


def _borrowed(context: Any, builder: Any, kind: Any, value: Any) -> Any:
    if isinstance(kind, types.Array):
        array = context.make_array(kind)(context, builder, value=value)
        array.meminfo = cgutils.get_null_value(array.meminfo.type)
        return array._getvalue()
    if isinstance(kind, types.BaseTuple):
        parts = [
            _borrowed(context, builder, each, builder.extract_value(value, at))
            for at, each in enumerate(kind.types)
        ]
        return context.make_tuple(builder, kind, parts)
    return value


def _kept(function: Function, options: dict[str, Any]) -> Function:
    """With its machine code kept until a source changes that is compiled into it.

    numba asks for the function's own file alone, and would run what another file said before.
    """
    dispatcher = njit(cache=True, error_model="numpy", **options)(function)
    _SOURCES.add(function.__code__.co_filename)
    stamp = tuple(
        (name, Path(name).stat().st_mtime_ns) for name in sorted(_SOURCES) if Path(name).exists()
    )
    dispatcher._cache._cache_file._source_stamp = stamp
    return cast(Function, dispatcher)
