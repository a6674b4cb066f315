"""How many tokens a round emits: a law, a trace replayed by request and position, or lengths that
were recorded.

Random numbers belong to a seed, a request and its round (of a law) or its token (of a trace), and
not to the order in which a scheduler asks: the same seed gives the same acceptance under every
schedule, and runs that differ in the draft length share what is random.  Which text a request has
is random, too, unless that is said: some texts are easier to draft than others, and nobody knows
which of them come together.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import floor
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from specsim.checks import (
    Floats,
    Ints,
    InvalidArgumentError,
    integer,
    integers,
    number,
    numbers,
    probabilities,
)

LAW, TRACE, RECORDED = 0, 1, 2
# Beside a seed, so that texts are not drawn with the numbers of something else.
_TEXTS = 0x7E87


class CompiledAcceptance(NamedTuple):
    """As the compiled loop reads it."""

    kind: int
    values: Floats
    starts: Ints
    sources: Ints  # the trace of every request, (N,)
    positions: int  # columns of a law


@dataclass(frozen=True, eq=False)
class RoundAcceptance:
    """What a round of gamma drafts emits, 1 + the drafts that stand; made by the functions below.

    kind : LAW, TRACE or RECORDED
    values : of a law P(first j drafts stand) by gamma (rows 1..gamma_max) and j (columns); of
        traces and recorded lengths one number a token, one trace after another
    starts : where traces begin and the last ends
    sources : the trace of every request; None: drawn for each
    label : what it is, for results
    """

    kind: int
    values: Floats
    starts: Ints
    sources: Ints | None
    label: str

    @staticmethod
    def law(survival: npt.ArrayLike, label: str = "law") -> RoundAcceptance:
        """P(the first j drafts all stand) for j = 1, 2, ...: one curve for every draft length,
        or one row for each of 1, 2, ... drafts.  Rounds are independent.
        """
        curve = probabilities("survival", survival)
        if curve.ndim == 1:
            curve = np.tile(curve, (curve.size, 1))
        if curve.ndim != 2 or curve.shape[0] != curve.shape[1]:
            raise InvalidArgumentError(
                f"survival must be one curve, or as many as it has positions, got {curve.shape}"
            )
        if (np.diff(curve, axis=1) > 0).any():
            raise InvalidArgumentError("survival must not rise with the position")
        return RoundAcceptance(LAW, curve, np.zeros(1, dtype=np.int64), None, label)

    @staticmethod
    def synthetic_length(length: float, gamma: int, label: str = "synthetic") -> RoundAcceptance:
        """Engines that are told a mean length: the whole part always, the rest by chance.

        length : mean tokens of a round of ``gamma`` drafts, in [1, gamma + 1]
        """
        gamma = integer("gamma", gamma, low=1)
        drafts = number("length", length, low=1.0, high=gamma + 1.0) - 1.0
        curve = np.clip(drafts - np.arange(gamma), 0.0, 1.0)
        found = RoundAcceptance.law(curve, label)
        assert floor(drafts) == int((curve == 1.0).sum())
        return found

    @staticmethod
    def trace(
        acceptance: npt.ArrayLike,
        starts: npt.ArrayLike,
        sources: npt.ArrayLike | None = None,
        label: str = "trace",
    ) -> RoundAcceptance:
        """The chance that the drafter's guess of each token of some texts stands.

        acceptance : one number a token, one text after another
        starts : (texts + 1,) where they begin, and where the last ends
        sources : (N,) the text of every request; None: drawn for each.  A request that is longer
            than its text begins that again.

        Every token is guessed once at most, so that its draw is the same at every draft length and
        under every schedule.
        """
        return RoundAcceptance(
            TRACE, probabilities("acceptance", acceptance), *_texts(starts, sources), label
        )._checked()

    @staticmethod
    def recorded(
        lengths: npt.ArrayLike,
        starts: npt.ArrayLike,
        sources: npt.ArrayLike | None = None,
        label: str = "recorded",
    ) -> RoundAcceptance:
        """Lengths that were recorded: a round of gamma drafts that begins at output token i emits
        min(lengths[i], gamma + 1) tokens.  Arguments as of ``trace``.
        """
        return RoundAcceptance(
            RECORDED, numbers("lengths", lengths, low=1.0), *_texts(starts, sources), label
        )._checked()

    def _checked(self) -> RoundAcceptance:
        if self.starts[-1] != self.values.size:
            raise InvalidArgumentError(
                f"starts must end with the number of tokens, {self.values.size}, got "
                f"{self.starts[-1]}"
            )
        return self

    @property
    def gamma_max(self) -> float:
        """The longest draft that this says anything about."""
        return self.values.shape[0] if self.kind == LAW else np.inf

    @property
    def certain(self) -> bool:
        """Whether every seed says the same."""
        return self.kind == RECORDED and self.sources is not None

    def of_requests(self, requests: int, seed: int) -> RoundAcceptance:
        """With a text for each of so many requests; where none is named, one drawn by the seed."""
        if self.kind == LAW:
            return self
        if self.sources is None:
            texts = self.starts.size - 1
            drawn = np.random.default_rng([seed, _TEXTS]).integers(texts, size=requests)
            return replace(self, sources=drawn)
        if self.sources.size < requests:
            raise InvalidArgumentError(
                f"sources must name a text for each of {requests} requests, got {self.sources.size}"
            )
        return self

    def compiled(self, requests: int, seed: int) -> CompiledAcceptance:
        """For so many requests."""
        sources = self.of_requests(requests, seed).sources
        columns = self.values.shape[1] if self.kind == LAW else 0
        return CompiledAcceptance(
            self.kind,
            np.ravel(self.values),
            self.starts,
            np.zeros(1, np.int64) if sources is None else sources.astype(np.int64),
            columns,
        )


def _texts(starts: npt.ArrayLike, sources: npt.ArrayLike | None) -> tuple[Ints, Ints | None]:
    begins = integers("starts", starts)
    if begins.ndim != 1 or begins.size < 2 or begins[0] != 0 or (np.diff(begins) <= 0).any():
        raise InvalidArgumentError("starts must begin with 0 and rise, with one text at least")
    if sources is None:
        return begins, None
    return begins, integers("sources", sources, high=begins.size - 2)
