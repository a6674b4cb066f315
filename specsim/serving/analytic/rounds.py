"""How many rounds some tokens take, exactly.

Rounds emit independent numbers of tokens N with one law.  J(m), the rounds until m tokens are
there, obeys J(m) = 1 + J(m - N) with J = 0 from 0 on down, so that its first two moments are the
output of one linear recursion, and P(J(m) > j) = P(N_1 + ... + N_j < m).
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt

from specsim.checks import Floats, Ints, InvalidArgumentError, probabilities

# Tokens up to which the whole law is tabulated; beyond it a normal law has its exact moments.
_TABULATED = 512


@dataclass(frozen=True, eq=False)
class RoundCounts:
    """The law of J(m) for every m.

    token_law : P(N = n) for n = 1..K + 1, shape (K + 1,)
    """

    token_law: Floats

    def __post_init__(self) -> None:
        law = probabilities("token_law", self.token_law)
        if law.ndim != 1 or abs(float(law.sum()) - 1.0) > 1e-9:
            raise InvalidArgumentError(f"token_law must sum to one, sums to {law.sum():.12g}")
        object.__setattr__(self, "token_law", law)

    @staticmethod
    def of_survival(survival: npt.ArrayLike, gamma: int) -> RoundCounts:
        """From P(the first j drafts all stand), j = 1..gamma at least, of a round of ``gamma``."""
        curve = np.concatenate([[1.0], np.asarray(survival, dtype=np.float64)[:gamma], [0.0]])
        return RoundCounts(-np.diff(curve))

    @cached_property
    def tokens_per_call(self) -> float:
        """E[N]"""
        return float(self.token_law @ np.arange(1, self.token_law.size + 1))

    def mean(self, tokens: Ints) -> Floats:
        """E[J(m)] at each of ``tokens`` >= 0."""
        return self._moments(int(np.max(tokens, initial=0)))[0][tokens]

    def variance(self, tokens: Ints) -> Floats:
        """Var J(m) at each of ``tokens`` >= 0."""
        mean, square = (each[tokens] for each in self._moments(int(np.max(tokens, initial=0))))
        found: Floats = np.maximum(square - mean**2, 0.0)
        return found

    def quantile(self, tokens: Ints, level: Floats) -> Floats:
        """The least j with P(J(m) <= j) >= level; of more than 512 tokens that of a normal law.

        tokens, level : shapes that go together; tokens >= 1, level in (0, 1)
        """
        tokens, level = np.broadcast_arrays(np.asarray(tokens, dtype=np.int64), level)
        if self.token_law[0] == 1.0:
            return tokens.astype(np.float64)
        from scipy.special import ndtri  # loads scipy

        found: Floats = self.mean(tokens) + ndtri(level) * np.sqrt(self.variance(tokens))
        found = np.clip(found, tokens / self.token_law.size, tokens)
        short = tokens <= _TABULATED
        found[short] = self._exact(tokens[short], level[short])
        return found

    def _exact(self, tokens: Ints, level: Floats) -> Floats:
        # P(S_j < m) falls with j, and is 0 from j = m on.
        table = self._below
        low, high = np.zeros(tokens.size, dtype=np.int64), tokens.copy()
        while (high - low > 1).any():
            middle = (low + high) // 2
            enough = 1.0 - table[middle, tokens - 1] >= level
            low, high = np.where(enough, low, middle), np.where(enough, middle, high)
        return high.astype(np.float64)

    @cached_property
    def _below(self) -> Floats:
        """P(N_1 + ... + N_j <= s) at [j, s], shape (513, 512)."""
        found = np.empty((_TABULATED + 1, _TABULATED))
        law = np.zeros(_TABULATED)
        law[0] = 1.0
        step = np.concatenate([[0.0], self.token_law])
        for j in range(_TABULATED + 1):
            found[j] = np.cumsum(law)
            law = np.convolve(law, step)[:_TABULATED]
        return found

    def _moments(self, most: int) -> tuple[Floats, Floats]:
        """E[J(m)] and E[J(m)^2] for m = 0..most at least."""
        known = self.__dict__.get("_known")
        if known is None or known[0].size <= most:
            from scipy.linalg import solve_banded  # loads scipy

            size = max(2 * most, _TABULATED)
            # E[J(m)] - sum_n P(n) E[J(m - n)] = 1, a band below the diagonal.
            band = np.tile(np.append(1.0, -self.token_law)[:, None], (1, size))
            below = (self.token_law.size, 0)
            mean = solve_banded(below, band, np.ones(size))
            square = solve_banded(below, band, 2.0 * mean - 1.0)
            known = tuple(np.concatenate([[0.0], each]) for each in (mean, square))
            self.__dict__["_known"] = known
        return known
