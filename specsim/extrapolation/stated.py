"""Rates by position that were measured at one draft length, and which rates they are."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass

import numpy as np

from specsim.checks import Floats, InvalidArgumentError, number, probabilities
from specsim.counts.drafts import DraftCounts
from specsim.extrapolation.curve import UNKNOWN_COUNTS
from specsim.extrapolation.over_gamma import AcceptanceOverGamma


@dataclass(frozen=True)
class _Stated(ABC):
    """What both kinds have.

    rates : in [0, 1]; their number K is the draft length that they were measured at
    rounds : behind the rates; None is not known, and they weigh like rates from 400
    heads : whether the drafter reads its own features back (EAGLE, MTP) and loses hold with depth;
        false for a draft model; None: as what drafts in a deployment does, elsewhere true
    """

    rates: tuple[float, ...]
    rounds: float | None = None
    heads: bool | None = None

    def __post_init__(self) -> None:
        name = type(self).__name__.lower()
        rates = np.atleast_1d(probabilities(name, self.rates))
        if rates.ndim > 1:
            raise InvalidArgumentError(
                f"{name} must be one row of rates, got {rates.ndim} dimensions"
            )
        object.__setattr__(self, "rates", tuple(rates.tolist()))
        if self.rounds is not None:
            object.__setattr__(self, "rounds", number("rounds", self.rounds, low=1.0))

    @property
    @abstractmethod
    def curve(self) -> Floats:
        """S_1..S_K, shape (K,)."""

    def over_gamma(self) -> AcceptanceOverGamma:
        """What rates measured at one draft length say of every other."""
        rounds = UNKNOWN_COUNTS if self.rounds is None else self.rounds
        reached = rounds * self.curve
        gamma = reached.size
        count = DraftCounts(
            gamma, rounds, float(reached.sum()), rounds * gamma, tuple(reached.tolist())
        )
        return AcceptanceOverGamma((count,), self.heads is not False)


@dataclass(frozen=True)
class Marginal(_Stated):
    """Shares of all rounds whose first i drafts were all accepted, S_1, ..., S_K; they never rise.

    Engines print them as acceptance per position.

    >>> Marginal((0.8, 0.56)).curve
    array([0.8 , 0.56])
    """

    def __post_init__(self) -> None:
        super().__post_init__()
        if (np.diff(self.rates) > 0).any():
            raise InvalidArgumentError(
                "marginal must be rates that do not rise with the position, got "
                f"{', '.join(f'{each:g}' for each in self.rates)}; rates of the drafts that got to "
                "a position are conditional"
            )

    @property
    def curve(self) -> Floats:
        return np.array(self.rates)


@dataclass(frozen=True)
class Conditional(_Stated):
    """Shares accepted of the drafts that got to a position, alpha_1, ..., alpha_K.

    S_i = alpha_1 ... alpha_i, and they may rise.

    >>> Conditional((0.8, 0.7)).curve
    array([0.8 , 0.56])
    """

    @property
    def curve(self) -> Floats:
        return np.asarray(np.cumprod(self.rates), dtype=np.float64)
