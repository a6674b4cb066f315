"""The compiled loops of the simulator as plain Python, so that a mutant needs no compiler.

Records are read and written by attribute there, which arrays of numpy do not offer.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

_COMPILED = """
def compiled(function):
    return function

inner = inlined = compiled
"""
# What follows the source of a module that makes records.
_RECORDS = """
from tests.support.mutants.plain import records as _records
_made = {name}

def {name}(*values, **named):
    found = _made(*values, **named)
    return _made(*map(_records, found))
"""
_MAKERS = {"specsim.serving.state": "State", "specsim.serving.adaptive_steps": "CompiledSteps"}


def sources() -> dict[str, str]:
    """Of the modules that are others then, by their dotted names."""
    found = {"specsim.serving.compiled": _COMPILED}
    for module, name in _MAKERS.items():
        own = Path(*module.split(".")).with_suffix(".py").read_text(encoding="utf-8")
        found[module] = own + _RECORDS.format(name=name)
    return found


def records(values: Any) -> Any:
    """An array of records that can be read by attribute; anything else as it is."""
    structured = isinstance(values, np.ndarray) and values.dtype.names is not None
    return values.view(_Records) if structured else values


class _Records(np.ndarray):
    def __getitem__(self, key: Any) -> Any:
        found = super().__getitem__(key)
        return _Record(found) if isinstance(found, np.void) else found


class _Record:
    """One entry, written through to its array; whole numbers are Python's."""

    __slots__ = ("_entry",)

    def __init__(self, entry: np.void) -> None:
        object.__setattr__(self, "_entry", entry)

    def __getattr__(self, name: str) -> Any:
        return self._entry[name].item()

    def __setattr__(self, name: str, value: Any) -> None:
        self._entry[name] = value
