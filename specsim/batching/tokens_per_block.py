"""What a request gains in a block, by draft length: what a batch needs to know of acceptance."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from specsim.acceptance import Acceptance, AcceptanceByLength, tokens_per_call
from specsim.checks import Floats, InvalidArgumentError, integer, probabilities

if TYPE_CHECKING:
    from specsim.predict.replay.fixed_gamma import Replay
    from specsim.traces import Trace


@dataclass(frozen=True, eq=False)
class TokensPerBlock:
    """By draft length gamma = 0..K.

    tokens : E[N], tokens that a block yields, shape (K + 1,); one without drafts
    bonus : chance that a block comes after one whose drafts were all accepted, shape (K + 1,)
    """

    tokens: Floats
    bonus: Floats

    @property
    def longest(self) -> int:
        """K, the largest gamma that is known."""
        return self.tokens.size - 1

    @staticmethod
    def of(acceptance: TokensPerBlockLike) -> TokensPerBlock:
        """What is given, or from the survival curve that is given."""
        if isinstance(acceptance, TokensPerBlock):
            return acceptance
        return TokensPerBlock.of_survival(acceptance)

    @staticmethod
    def of_survival(survival: npt.ArrayLike) -> TokensPerBlock:
        """From S_1..S_K, shape (K,), non-increasing and the same for every block:
        E[N] = 1 + S_1 + ... + S_gamma (Leviathan23 eq 1 where acceptance is i.i.d.).
        """
        curve = np.atleast_1d(probabilities("survival", survival))
        if (np.diff(curve) > 0).any():
            raise InvalidArgumentError("survival must be non-increasing in the position")
        return TokensPerBlock(1.0 + np.append(0.0, np.cumsum(curve)), np.append(1.0, curve))

    @staticmethod
    def of_acceptance(acceptance: Acceptance, gamma_max: int) -> TokensPerBlock:
        """From what is known of acceptance, at gamma = 0..gamma_max; each draft length may have a
        survival curve of its own.
        """
        if not isinstance(acceptance, AcceptanceByLength):
            return TokensPerBlock.of_survival(acceptance.survival(max(gamma_max, 1))[1:])
        lengths = range(gamma_max + 1)
        bonus = np.array([acceptance.survival(gamma)[gamma] for gamma in lengths])
        return TokensPerBlock(tokens_per_call(acceptance, gamma_max), bonus)

    @staticmethod
    def of_trace(trace: Trace, gamma_max: int) -> TokensPerBlock:
        """By exact replay, which knows where blocks start: not everywhere in the text alike.

        A request's last block counts as a whole one, so short texts gain a little less a block.
        """
        from specsim.predict.replay.fixed_gamma import replay  # loads scipy

        return TokensPerBlock.of_replays(replay(trace, range(integer("gamma_max", gamma_max) + 1)))

    @staticmethod
    def of_replays(replayed: Sequence[Replay]) -> TokensPerBlock:
        """From the replays of a trace at gamma = 0, 1, ..., K."""
        return TokensPerBlock(
            np.array([each.tokens_per_call for each in replayed]),
            np.array([each.bonus.sum() / each.total_calls for each in replayed]),
        )


# What a block gains; or S_1..S_K, shape (K,), the same for every block.
TokensPerBlockLike = TokensPerBlock | npt.ArrayLike
