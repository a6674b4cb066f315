"""What an inference engine counts while it emits a known text: rounds, and accepted by position.

The replays beside this one follow decoding as the papers write it.  An engine differs at the two
ends of a request (vLLM 0.32.0, ``v1/core/sched/scheduler.py``, ``update_from_output``):

* The run that reads the prompt emits the first token, so rounds cover the tokens from the second
  on.
* The last round drafts all its tokens, however few are left, and those that are accepted behind
  the last token asked for are counted too.  So a replay needs to know how drafts fare there; a
  text that goes on for so many tokens says so exactly.

A round in which nothing is drafted (prompt lookup without a match) is a step that no counter of
drafts sees.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from specsim.checks import Floats, Ints, InvalidArgumentError, integer
from specsim.counts.drafts import DraftCounts

# Rounding of sums of this many products; a smaller variance is none.
_ROUNDING = 1e-9


@dataclass(frozen=True)
class ExpectedRounds:
    """Expected counts of an engine, and how far chance moves them; they add up over requests.

    mean : shape (K + 2,): rounds, drafted tokens, and rounds whose first i drafts were all
        accepted, i = 1..K
    covariance : shape (K + 2, K + 2), given the text
    """

    mean: Floats
    covariance: Floats

    def __add__(self, other: ExpectedRounds) -> ExpectedRounds:
        return ExpectedRounds(self.mean + other.mean, self.covariance + other.covariance)

    @property
    def gamma(self) -> int:
        return len(self.mean) - 2

    @property
    def counts(self) -> DraftCounts:
        """The expected counts, as an engine's own are kept."""
        rounds, drafted, *reached = self.mean.tolist()
        return DraftCounts(self.gamma, rounds, sum(reached), drafted, tuple(reached))

    @property
    def certain(self) -> bool:
        """Whether the text leaves nothing to chance, as at temperature 0."""
        return bool((np.diag(self.covariance) < _ROUNDING).all())

    def z_rounds(self, counted: DraftCounts) -> float:
        """Standard score of the counted rounds."""
        return _z(counted.rounds - float(self.mean[0]), float(self.covariance[0, 0]))

    def z_drafted(self, counted: DraftCounts) -> float:
        """Standard score of the drafted tokens, which must have been counted."""
        assert counted.drafted is not None
        return _z(counted.drafted - float(self.mean[1]), float(self.covariance[1, 1]))

    def z_reached(self, counted: DraftCounts) -> Floats:
        """Standard scores of the marginal rates by position, shape (K,).

        Position i tests reached_i - S_i rounds, S_i = E reached_i / E rounds, whose mean is 0.
        """
        rates = self.mean[2:] / (self.mean[0] or 1.0)
        scores = np.zeros(self.gamma)
        for i, (rate, reached) in enumerate(zip(rates, counted.reached, strict=True)):
            weights = np.zeros(len(self.mean))
            weights[0], weights[i + 2] = -rate, 1.0
            variance = float(weights @ self.covariance @ weights)
            scores[i] = _z(reached - rate * counted.rounds, variance)
        return scores


def engine_rounds(accepted: Floats, tokens: int, gamma: int) -> ExpectedRounds:
    """One request whose drafts a model writes, ``gamma`` in every round.

    accepted : shape (T,), P(the draft's token at this position is accepted | those before it
        were), T >= tokens + gamma - 1
    tokens : that the engine emitted, the one of the prompt's run among them
    """
    gamma, tokens = integer("gamma", gamma, low=1), integer("tokens", tokens, low=1)
    if len(accepted) < tokens + gamma - 1:
        raise InvalidArgumentError(
            f"accepted must reach {gamma - 1} positions behind the {tokens} tokens emitted, where "
            f"the last round may draft, got {len(accepted)} in all"
        )
    places = np.arange(tokens)[:, None] + np.arange(gamma)
    return _chain(np.asarray(accepted, float)[places], None, tokens)


def engine_rounds_of_proposals(
    text: Sequence[int], proposals: Sequence[Sequence[int]], tokens: int, gamma: int
) -> ExpectedRounds:
    """One request whose drafts follow from the text, and are as long as they come out.

    text : the engine's, and what the target says behind it, T >= tokens + gamma - 1
    proposals : those before each position of the text, at most ``gamma`` tokens each
    tokens : that the engine emitted, the one of the prompt's run among them
    """
    if len(text) < tokens + gamma - 1:
        raise InvalidArgumentError(
            f"text must reach {gamma - 1} positions behind the {tokens} tokens emitted, got "
            f"{len(text)} in all"
        )
    agrees = np.zeros((tokens, gamma))
    drafted = np.zeros(tokens, dtype=np.int64)
    for place in range(tokens):
        proposed = proposals[place][:gamma]
        drafted[place] = len(proposed)
        for index, token in enumerate(proposed):
            agrees[place, index] = token == text[place + index]
    return _chain(agrees, drafted, tokens)


def _chain(rates: Floats, drafted: Ints | None, tokens: int) -> ExpectedRounds:
    """Mean and covariance of the counts, from the last possible round to the first.

    rates : shape (tokens, K): draft i of a round at this position is accepted, given those before
    drafted : shape (tokens,), drafts of a round there; None for K everywhere
    """
    gamma = rates.shape[1]
    # counted[n] is what a round with n accepted drafts adds: a round, its drafts, and i <= n.
    counted = np.zeros((gamma + 1, gamma + 2))
    counted[:, 0], counted[:, 1] = 1.0, gamma
    counted[:, 2:] = np.arange(1, gamma + 1) <= np.arange(gamma + 1)[:, None]
    # Rows behind the last token stay zero: no round starts there.
    mean = np.zeros((tokens + gamma + 1, gamma + 2))
    covariance = np.zeros((tokens + gamma + 1, gamma + 2, gamma + 2))
    for start in range(tokens - 1, 0, -1):
        added = counted
        if drafted is not None:
            added = counted.copy()
            added[:, 1] = drafted[start]
            added[:, 0] = drafted[start] > 0
        alive = np.concatenate([[1.0], np.cumprod(rates[start])])
        chance = alive - np.append(alive[1:], 0.0)
        following = slice(start + 1, start + gamma + 2)
        total = added + mean[following]
        mean[start] = chance @ total
        gaps = total - mean[start]
        covariance[start] = (
            np.tensordot(chance, covariance[following], 1) + (gaps.T * chance) @ gaps
        )
    return ExpectedRounds(mean[1], covariance[1])


def _z(gap: float, variance: float) -> float:
    if variance < _ROUNDING:
        return 0.0 if abs(gap) < _ROUNDING else float(np.copysign(np.inf, gap))
    return float(gap / np.sqrt(variance))
