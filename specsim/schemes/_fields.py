"""Checks that the scheme descriptions share; a field is checked, normalised and set once."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from specsim.acceptance import Acceptance
from specsim.checks import InvalidArgumentError
from specsim.laws import TARGET


def settle(instance: object, **values: Any) -> None:
    """Set checked values on a frozen dataclass, from its ``__post_init__``."""
    for name, value in values.items():
        object.__setattr__(instance, name, value)


def acceptance(name: str, value: Any) -> Acceptance:
    """``value`` if it answers ``conditional``, as everything in specsim.acceptance does."""
    if not callable(getattr(value, "conditional", None)):
        raise InvalidArgumentError(
            f"{name} must be an acceptance such as ConstantAcceptance(0.8), got {value!r}"
        )
    known: Acceptance = value
    return known


def drafters(name: str, value: Sequence[str]) -> tuple[str, ...]:
    """At least one model name, all different, none of them the target's."""
    names = tuple(value)
    if not names or len(set(names)) < len(names) or TARGET in names:
        raise InvalidArgumentError(
            f"{name} must be different model names, at least one and not {TARGET!r}, got {names}"
        )
    return names


def same_size(name: str, value: Sequence[Any], size: int, what: str) -> None:
    """One entry of ``value`` for each of ``size`` things."""
    if len(value) != size:
        raise InvalidArgumentError(f"{name} must have {size} entries, {what}, got {len(value)}")
