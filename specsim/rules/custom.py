"""A rule given as a plain function."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar

from array_api_compat import array_namespace

from specsim.checks import InvalidArgumentError
from specsim.rules.base import Array, Distributions, Rule


@dataclass(frozen=True, repr=False)
class Custom(Rule):
    """pi = function(p, q), arrays of shape (..., V) to one of the same shape.

    pi must be non-negative and need not sum to one; only its shape is checked, because reading
    its values would stall a GPU.
    """

    sums_to_one: ClassVar[bool] = False
    function: Callable[[Array, Array], Array]

    def __post_init__(self) -> None:
        if not callable(self.function):
            raise InvalidArgumentError(
                f"function must take p and q and return pi, got {self.function!r}"
            )

    def __repr__(self) -> str:
        # The name, not the address in memory, which differs from run to run.
        return f"Custom({getattr(self.function, '__qualname__', type(self.function).__name__)})"

    def pi(self, rows: Distributions) -> Array:
        pi = self.function(rows.p, rows.q)
        shape = tuple(getattr(pi, "shape", ()))
        if shape != tuple(rows.p.shape):
            raise InvalidArgumentError(
                f"function must return an array of shape {tuple(rows.p.shape)}, got shape {shape}"
            )
        return array_namespace(rows.p).astype(pi, rows.p.dtype, copy=False)
