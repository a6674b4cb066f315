"""How long prompts and outputs are: laws of a number of tokens."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol, runtime_checkable

import numpy as np

from specsim.checks import Ints, InvalidArgumentError, integer, integers, number

# No model takes so many tokens.
LONGEST = 100_000_000


@runtime_checkable
class Lengths(Protocol):
    """A law of whole numbers of tokens, >= 1."""

    def draw(self, count: int, random: np.random.Generator) -> Ints:
        """(count,) independent lengths."""
        ...


@dataclass(frozen=True)
class FixedLength:
    """Always the same number of tokens."""

    tokens: int

    def __post_init__(self) -> None:
        integer("tokens", self.tokens, low=1, high=LONGEST)

    def draw(self, count: int, random: np.random.Generator) -> Ints:
        return np.full(count, self.tokens, dtype=np.int64)


@dataclass(frozen=True)
class UniformLength:
    """Every number of tokens from ``low`` to ``high``, both included, equally often."""

    low: int
    high: int

    def __post_init__(self) -> None:
        integer("low", self.low, low=1, high=LONGEST)
        integer("high", self.high, low=1, high=LONGEST)
        if self.high < self.low:
            raise InvalidArgumentError(f"high must be >= low = {self.low}, got {self.high}")

    def draw(self, count: int, random: np.random.Generator) -> Ints:
        # One random number for each, so that another range sees the same ones long.
        spread = self.high - self.low + 1
        return (self.low + np.floor(random.random(count) * spread)).astype(np.int64)


@dataclass(frozen=True)
class LognormalLength:
    """Rounded numbers whose logarithm is normal, at least 1 and at most ``high``.

    The logarithm has the mean ln(mean) - sigma**2 / 2, so that ``mean`` is that of the tokens
    themselves, before rounding and before what is longer than ``high`` is cut to it.

    mean : of the tokens, not of their logarithm
    sigma : standard deviation of the natural logarithm of the tokens; the median is
        mean exp(-sigma**2 / 2) and the 99th percentile exp(2.33 sigma) times that
    """

    mean: float
    sigma: float
    high: int = LONGEST

    def __post_init__(self) -> None:
        number("mean", self.mean, low=1.0, high=LONGEST)
        number("sigma", self.sigma, low=0.0, high=10.0)
        integer("high", self.high, low=1, high=LONGEST)

    def draw(self, count: int, random: np.random.Generator) -> Ints:
        centre = np.log(self.mean) - self.sigma**2 / 2
        tokens = np.exp(centre + self.sigma * random.standard_normal(count))
        whole: Ints = np.clip(np.rint(tokens), 1, self.high).astype(np.int64)
        return whole


@dataclass(frozen=True, eq=False)
class EmpiricalLength:
    """Lengths that were seen, each as often as the others.

    tokens : (M,) >= 1
    file, sha256 : whose they are, and the digest of its content; None where they are of no file
    """

    tokens: Ints
    file: str | None = None
    sha256: str | None = None

    def __post_init__(self) -> None:
        seen = integers("tokens", self.tokens, low=1, high=LONGEST)
        if seen.ndim != 1:
            raise InvalidArgumentError(f"tokens must have one axis, got shape {seen.shape}")
        object.__setattr__(self, "tokens", np.sort(seen))

    def draw(self, count: int, random: np.random.Generator) -> Ints:
        # Sorted, so that a large random number is a long one whatever was seen.
        ranks = np.floor(random.random(count) * self.tokens.size).astype(np.int64)
        found: Ints = self.tokens[ranks]
        return found
