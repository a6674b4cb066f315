"""The gap law: acceptance at every draft length from the distances between rejections.

Let the guess for a token of the text be accepted or not whatever the blocks are: so it is with a
draft model, which reads the text alone, and each place is tested at most once.  Cut the text
behind every rejected place.  A block ends at a rejection or after gamma + 1 tokens, so a gap of L
tokens, the rejected one included, takes ceil(L / (gamma + 1)) blocks.  With G(n) = P(L > n)::

    tokens per call = sum_n G(n) / sum_m G(m (gamma + 1))
    S_j             = sum_m G(m (gamma + 1) + j) / sum_m G(m (gamma + 1)),    j = 0..gamma

Nothing is taken to be independent.  i.i.d. acceptance is G(n) = alpha^n, which gives
Leviathan23 eq 1.  Where easy and hard stretches of text alternate, S_1 falls as gamma grows: long
blocks start mostly behind rejections, in hard text, though the drafter is the same.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from specsim.acceptance import conditional_rates
from specsim.checks import (
    Floats,
    InvalidArgumentError,
    UnsupportedError,
    integer,
    integers,
    numbers,
)

if TYPE_CHECKING:
    from specsim.traces import Trace

# Gaps less likely than this are not followed: their sum is beyond the digits of a float.
_NEGLIGIBLE = 1e-18


@dataclass(frozen=True, eq=False)
class GapLaw:
    """How long gaps are; an acceptance that answers for blocks of any draft length.

    longer : G(0), G(1), ..., shape (N,): gaps of more than n tokens, in any unit (chances, or
        counts, which add up), non-increasing, G(0) > 0; nothing is longer than N
    tail : G falls by this factor at every further token beyond the last n; 0 is not at all
    """

    longer: Floats
    tail: float = 0.0

    def __post_init__(self) -> None:
        longer = np.atleast_1d(numbers("longer", self.longer, low=0.0))
        if longer.ndim > 1 or longer[0] == 0:
            raise InvalidArgumentError("longer must be one row that starts with G(0) > 0")
        if (np.diff(longer) > 1e-9 * longer[0]).any():
            raise InvalidArgumentError("longer must be non-increasing: gaps of more than n tokens")
        tail = numbers("tail", self.tail, low=0.0, high=1.0).item()
        if longer[-1] == 0:
            tail = 0.0  # nothing is left that could fall
        elif tail == 1:
            raise InvalidArgumentError("tail must be < 1, or gaps would never end, got 1")
        object.__setattr__(self, "longer", longer)
        object.__setattr__(self, "tail", tail)

    @staticmethod
    def of_trace(trace: Trace, *, stationary: bool = False) -> GapLaw:
        """From acceptances a_t along texts, which may be chances.

        A request starts with a gap, and its end ends one.  Then the tokens over the calls are those
        of the exact replay of the same trace, at every draft length and however short requests
        are; a draft token counts in S_j only if the text goes on behind it.  G(n) is the sum over
        places t where a gap may start, with chance 1 at the start of a request and
        1 - a_{t-1} elsewhere, of a_t ... a_{t+n-1}.

        stationary : of endless text instead, where there is no last block that is cut off.  Only
            gaps behind a rejection count, and one that the end cut off only as longer than it got
            (Kaplan and Meier 1958).  Gaps as long as requests are not seen; where they are not
            rare, neither figure is that of longer requests.

        Raises UnsupportedError for the trace of prompt lookup, whose drafts depend on where blocks
        start.
        """
        trace.require_model("the gap law")
        accepted = trace.acceptance
        starts = np.append(1.0, 1.0 - accepted[:-1])
        starts[trace.starts[:-1]] = 0.0 if stationary else 1.0
        left = np.repeat(trace.starts[1:], trace.lengths) - np.arange(trace.tokens)
        place = np.flatnonzero(starts)
        alive = starts[place]  # by where the gap started: it has more than n tokens
        totals, survivors = [], []
        for n in range(int(trace.lengths.max())):
            totals.append(float(alive.sum()))
            alive = alive * accepted[place + n]
            survivors.append(float(alive.sum()))
            going = (left[place] > n + 1) & (alive > _NEGLIGIBLE)
            place, alive = place[going], alive[going]
            if not place.size:
                break
        if not stationary:
            return GapLaw(np.array(totals))
        if not totals[0]:
            raise UnsupportedError("no draft token of the trace was ever rejected: gaps never end")
        hazard_free = np.array(survivors) / np.array(totals)
        if hazard_free[-1] > 0 and not (hazard_free < 1).any():
            raise UnsupportedError(
                "no draft token of the trace was ever rejected: gaps have no end"
            )
        return GapLaw(np.append(1.0, np.cumprod(hazard_free)))

    @staticmethod
    def of_lengths(counts: npt.ArrayLike) -> GapLaw:
        """From a histogram: counts[L - 1] gaps of L = 1, 2, ... tokens, shape (N,)."""
        seen = np.atleast_1d(numbers("counts", counts, low=0.0))
        return GapLaw(np.cumsum(seen[::-1])[::-1])

    @staticmethod
    def of_rounds(requests: Iterable[Sequence[int]], gamma: int) -> GapLaw:
        """From how many draft tokens each round of each request accepted, in their order.

        A round that accepted fewer than gamma ends at a rejection.  One that accepted all ends
        with a bonus token, of which nobody knows whether it would have been accepted.  So G(n) is
        counted up to n = gamma, from the rounds that a gap starts with (the first of a request,
        and those behind a rejection), and known no further.  Beyond, it is taken to fall by one
        factor, the one with which the tokens per call at this gamma are those that were counted.
        """
        gamma = integer("gamma", gamma, low=1)
        reached = np.zeros(gamma + 1)
        accepted, rounds = 0, 0
        for request in requests:
            each = integers("accepted", list(request), high=gamma)
            behind = np.append(True, each[:-1] < gamma)
            reached += np.bincount(each[behind], minlength=gamma + 1)[::-1].cumsum()[::-1]
            accepted, rounds = accepted + int(each.sum()), rounds + each.size
        if not rounds:
            raise UnsupportedError("no round was drafted, so there is no rate of acceptance")
        # 1 / AL = sum_m G(m (gamma + 1)) / sum_n G(n), which rises as the tail gets shorter.
        per_call = 1.0 + accepted / rounds
        return GapLaw(reached, _tail(reached, per_call))

    def tokens_per_call(self, longest: int) -> Floats:
        """At gamma = 0..longest, the recovered or bonus token counted, shape (longest + 1,)."""
        found = np.array([self._stations(gamma)[0] for gamma in range(longest + 1)])
        return np.asarray(self._total / found)

    def survival(self, length: int) -> Floats:
        """S_0..S_length of blocks that draft ``length`` tokens, shape (length + 1,)."""
        sums = self._stations(length)
        return np.asarray(sums / sums[0])

    def conditional(self, length: int) -> Floats:
        """alpha_1..alpha_length of such blocks; 0 behind a position that is never reached."""
        return conditional_rates(self.survival(length))

    @property
    def _total(self) -> float:
        """sum_n G(n): tokens, where G is gaps."""
        return float(self.longer.sum() + self.longer[-1] * self.tail / (1.0 - self.tail))

    def _stations(self, gamma: int) -> Floats:
        """sum_m G(m (gamma + 1) + j), j = 0..gamma, shape (gamma + 1,)."""
        width = gamma + 1
        rows = -(-self.longer.size // width)
        known = np.zeros(rows * width)
        known[: self.longer.size] = self.longer
        if not self.tail:
            return np.asarray(known.reshape(rows, width).sum(axis=0))
        beyond = np.arange(1, rows * width - self.longer.size + width + 1)
        rest = self.longer[-1] * self.tail**beyond
        # The last row is filled up, and one more row stands for it and all behind it.
        known[self.longer.size :] = rest[:-width]
        return np.asarray(
            known.reshape(rows, width).sum(axis=0) + rest[-width:] / (1.0 - self.tail**width)
        )


def _tail(reached: Floats, per_call: float) -> float:
    """The factor beyond G(gamma) that gives these tokens per call at gamma, in [0, 1)."""
    from scipy.optimize import brentq

    gamma = reached.size - 1

    def excess(tail: float) -> float:
        return float(GapLaw(reached, tail).tokens_per_call(gamma)[-1]) - per_call

    if not reached[-1] or excess(0.0) >= 0:
        return 0.0
    most = 1.0 - 1e-9
    if excess(most) <= 0:
        return most
    return float(brentq(excess, 0.0, most))
