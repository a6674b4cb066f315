"""What an engine counted of its drafts: sums that add up, rates with intervals on reading.

A *round* is one target run that verified a draft (vLLM's ``num_drafts``, SGLang's
``spec_verify_ct``).  The recovered or bonus token of a round is in none of the sums.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from specsim.checks import Floats, InvalidArgumentError, UnsupportedError
from specsim.intervals import Interval, wilson_interval

# Sums are often recovered from printed shares, so they need not be whole.
_ROUNDING = 1e-6


@dataclass(frozen=True)
class DraftCounts:
    """Rounds of one draft length, counted.

    gamma : draft tokens of a round; None where it varied or the source does not tell
    rounds : how many
    accepted : draft tokens accepted, in all rounds
    drafted : draft tokens proposed; None where the source does not tell
    reached : rounds whose first i drafts were all accepted, i = 1, 2, ...; empty where the source
        has only totals
    """

    gamma: int | None
    rounds: float
    accepted: float
    drafted: float | None = None
    reached: tuple[float, ...] = ()

    def __post_init__(self) -> None:
        for name in ("rounds", "accepted", "drafted"):
            value = getattr(self, name)
            if value is not None and not (np.isfinite(value) and value >= 0):
                raise InvalidArgumentError(f"{name} must be a number >= 0, got {value}")
        if self.drafted is not None and self.accepted > self.drafted * (1 + _ROUNDING):
            raise InvalidArgumentError(
                f"accepted must be at most drafted = {self.drafted:g}, got {self.accepted:g}"
            )
        if self.gamma is not None and self.accepted > self.rounds * self.gamma * (1 + _ROUNDING):
            raise InvalidArgumentError(
                f"accepted must be at most gamma = {self.gamma} in each of {self.rounds:g} "
                f"rounds, got {self.accepted:g}"
            )
        falling = np.array([self.rounds, *self.reached], dtype=float)
        if not np.isfinite(falling).all() or falling[-1] < 0:
            raise InvalidArgumentError(f"reached must be numbers >= 0, got {self.reached}")
        if (np.diff(falling) > _ROUNDING * max(self.rounds, 1.0)).any():
            raise InvalidArgumentError(
                "accepted tokens must not rise with the position, got "
                f"{', '.join(f'{each:g}' for each in self.reached)} in {self.rounds:g} rounds"
            )

    def __add__(self, other: DraftCounts) -> DraftCounts:
        """Both together; positions and drafted tokens stay known where both know them."""
        reached: tuple[float, ...] = ()
        if self.reached and other.reached:
            longest = max(len(self.reached), len(other.reached))
            reached = tuple(
                sum(
                    np.pad(each.reached, (0, longest - len(each.reached))) for each in (self, other)
                ).tolist()
            )
        drafted = None
        if self.drafted is not None and other.drafted is not None:
            drafted = self.drafted + other.drafted
        return DraftCounts(
            gamma=self.gamma if self.gamma == other.gamma else None,
            rounds=self.rounds + other.rounds,
            accepted=self.accepted + other.accepted,
            drafted=drafted,
            reached=reached,
        )

    @property
    def tokens_per_call(self) -> float:
        """Mean acceptance length: tokens of a round, its recovered or bonus token counted."""
        return 1.0 + self.accepted / self._some_rounds()

    def marginal(self, level: float = 0.95) -> Interval[Floats]:
        """S_1, S_2, ...: the share of all rounds whose first i drafts were all accepted."""
        rounds = self._some_rounds()
        rates = np.clip(np.array(self.reached, dtype=float) / rounds, 0.0, 1.0)
        return wilson_interval(rates, np.full(rates.shape, rounds), level)

    def conditional(self, level: float = 0.95) -> Interval[Floats]:
        """alpha_i = S_i / S_{i-1}, of the rounds that got to position i; as far as any did."""
        before = np.array([self._some_rounds(), *self.reached[:-1]])[: len(self.reached)]
        tried = before[before > 0]
        rates = np.clip(np.array(self.reached, dtype=float)[: tried.size] / tried, 0.0, 1.0)
        return wilson_interval(rates, tried, level)

    def _some_rounds(self) -> float:
        if not self.rounds:
            raise UnsupportedError("no round was drafted, so there is no rate of acceptance")
        return self.rounds
