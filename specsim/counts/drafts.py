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
# How far shares of one position may be off that were printed as whole percentages.
_PRINTED = 0.01


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
        self._check_sum()

    def _check_sum(self) -> None:
        """Refuse positions that do not add up to what was accepted, or that nobody drafted."""
        total, off = sum(self.reached), _PRINTED * len(self.reached) * self.rounds
        if self.gamma is not None and sum(self.reached[self.gamma :]) > off:
            raise InvalidArgumentError(
                f"reached must have no round behind position gamma = {self.gamma}, got "
                f"{self.reached[self.gamma]:g} at position {self.gamma + 1}"
            )
        if not self.reached:
            return
        later = None if self.gamma is None else max(self.gamma - len(self.reached), 0)
        if self.accepted < total - off or (later == 0 and self.accepted > total + off):
            raise InvalidArgumentError(
                f"accepted must be the sum over positions, {total:g} with these, got "
                f"{self.accepted:g}"
            )
        if later:
            most = total + later * self.reached[-1]
            if self.accepted > most + off + later * _PRINTED * self.rounds:
                raise InvalidArgumentError(
                    f"accepted must be at most {most:g}, as no later position is reached more "
                    f"often than the last of these, got {self.accepted:g}"
                )

    def __add__(self, other: DraftCounts) -> DraftCounts:
        """Both together; positions and drafted tokens stay known where both know them."""
        reached: tuple[float, ...] = ()
        if self.reached and other.reached:
            # Positions behind the last are not known, or, of lengths that varied, were not reached.
            ends = sorted((len(self.reached), len(other.reached)))
            known = ends[1] if self.gamma is None or self.gamma != other.gamma else ends[0]
            sums = np.zeros(known)
            for each in (self, other):
                own = each.reached[:known]
                sums[: len(own)] += own
            reached = tuple(sums.tolist())
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

    def length(self, level: float = 0.95) -> Interval[float] | None:
        """``tokens_per_call`` with its interval, rounds taken as independent.

        Wilson's interval of the share accepted / (gamma rounds) over as many trials as give a
        round's accepted tokens their variance.  Where not all positions are known, the variance is
        the largest that the mean leaves, gamma^2 p (1 - p) (Bhatia and Davis 2000): the interval
        is then wider than need be.  None where nothing bounds a round.
        """
        longest = len(self.reached) if self.gamma is None else self.gamma
        if not longest:
            return None
        mean = self.accepted / self._some_rounds()
        # Printed shares and sums are rounded apart, so this may be just above one.
        share = min(mean / longest, 1.0)
        largest = longest**2 * share * (1 - share)
        variance = largest
        if len(self.reached) >= longest:
            odd = 2 * np.arange(1, len(self.reached) + 1) - 1
            variance = float(odd @ np.array(self.reached)) / self.rounds - mean**2
        spread = variance / largest if 0 < variance < largest else 1.0
        found = wilson_interval(np.array(share), np.array(self.rounds / spread), level)
        return Interval(1 + longest * float(found.low), 1 + mean, 1 + longest * float(found.high))

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


@dataclass(frozen=True)
class DraftTotals:
    """Accepted and drafted tokens where rounds were not counted.

    accepted / drafted is not alpha, and without the rounds it tells no tokens per call.
    """

    accepted: float
    drafted: float

    def __post_init__(self) -> None:
        for name in ("accepted", "drafted"):
            value = getattr(self, name)
            if not (np.isfinite(value) and value >= 0):
                raise InvalidArgumentError(f"{name} must be a number >= 0, got {value}")
        if self.accepted > self.drafted:
            raise InvalidArgumentError(
                f"accepted must be at most drafted = {self.drafted:g}, got {self.accepted:g}"
            )

    def __add__(self, other: DraftTotals) -> DraftTotals:
        return DraftTotals(self.accepted + other.accepted, self.drafted + other.drafted)


@dataclass(frozen=True)
class MeanLength:
    """A mean acceptance length of which no counts are known; plain decoding is 1.

    gamma : draft tokens of a round; None where it varied or the source does not tell
    tokens_per_call : the mean, the recovered or bonus token counted
    weight : how much it counts beside others
    weight_of : what the weight is a number of; lengths of one kind of weight average
    """

    gamma: int | None
    tokens_per_call: float
    weight: float = 1.0
    weight_of: str = "means"

    def __post_init__(self) -> None:
        most = np.inf if self.gamma is None else self.gamma + 1.0
        if not (np.isfinite(self.tokens_per_call) and 1 <= self.tokens_per_call <= most):
            allowed = ">= 1" if self.gamma is None else f"in [1, {most:g}]"
            raise InvalidArgumentError(
                f"the mean acceptance length must be {allowed}, got {self.tokens_per_call:g}"
            )
        if not (np.isfinite(self.weight) and self.weight > 0):
            raise InvalidArgumentError(f"its weight must be a number > 0, got {self.weight}")

    def __add__(self, other: MeanLength) -> MeanLength:
        """The mean of both by weight."""
        if (self.gamma, self.weight_of) != (other.gamma, other.weight_of):
            raise UnsupportedError("lengths of one gamma and one kind of weight average, no others")
        weight = self.weight + other.weight
        total = self.tokens_per_call * self.weight + other.tokens_per_call * other.weight
        return MeanLength(self.gamma, total / weight, weight, self.weight_of)
