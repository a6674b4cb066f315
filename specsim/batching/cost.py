"""Seconds of everything that a batch does: what is asked of a cost."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Protocol, runtime_checkable

from specsim.checks import UnsupportedError
from specsim.profiles import Role


class CellUnavailableError(UnsupportedError):
    """One batch and context cannot be priced, mostly for want of memory; smaller ones can."""


class NoRoomError(CellUnavailableError):
    """The requests do not fit beside the weights with so many drafts; with fewer they may."""


class LoadCost(Protocol):
    """Seconds of everything that a batch does."""

    @property
    def longest(self) -> int:
        """The widest target run that can be priced: the largest gamma and one."""
        ...

    def draft_s(self, gamma: int, batch: int, context: float, bonus: float) -> float:
        """All that drafts ``gamma`` tokens, at least one, for each of ``batch`` requests.

        context : tokens that each request has in the cache before the round
        bonus : chance that a request comes from a round whose drafts were all accepted
        """
        ...

    def verify_s(self, gamma: int, batch: int, context: float) -> float:
        """The target run that verifies ``gamma`` drafts; gamma 0 is that of plain decoding."""
        ...

    def overhead_s(self, gamma: int, batch: int) -> float:
        """Host time of a block outside the runs; gamma 0 is a step of plain decoding."""
        ...

    def loaded_s(self, batch: int, context: float) -> float:
        """What a step without drafts takes longer because a drafter stays loaded, whose cache is
        kept in step; 0 where nobody knows.
        """
        ...


class RunByRun(ABC):
    """A cost whose runs are priced one by one, of a draft that is a model of its own.

    A request that accepted everything, with probability b, left its draft one token behind, and the
    batch reads as wide as its widest request, so the first draft run reads two tokens with
    probability 1 - (1 - b)^B (requests independent).
    """

    @abstractmethod
    def run_s(
        self, model: Role, tokens: int, batch: int, context: float, follows: Role = "draft"
    ) -> float:
        """One run over ``tokens`` new tokens of each of ``batch`` requests.

        context : tokens that each request has in the cache before the run
        follows : the model that ran just before, which may have left the processor's caches cold
        """

    def draft_s(self, gamma: int, batch: int, context: float, bonus: float) -> float:
        one, two = (self.run_s("draft", tokens, batch, context, "target") for tokens in (1, 2))
        someone_is_behind = 1.0 - (1.0 - bonus) ** batch
        seconds = one + someone_is_behind * (two - one)
        if gamma > 1:
            # Draft run i has i more tokens in the cache; from the second on that is gamma / 2 in
            # the mean, and run times are taken as linear over so few tokens.
            seconds += (gamma - 1) * self.run_s("draft", 1, batch, context + gamma / 2, "draft")
        return seconds

    def verify_s(self, gamma: int, batch: int, context: float) -> float:
        follows: Role = "draft" if gamma else "target"
        return self.run_s("target", gamma + 1, batch, context, follows)

    def loaded_s(self, batch: int, context: float) -> float:
        return 0.0


@runtime_checkable
class TimedLoadCost(LoadCost, Protocol):
    """A cost that was measured at some batches and contexts."""

    @property
    def batches(self) -> tuple[int, ...]:
        """Batches that were timed, rising."""
        ...

    @property
    def contexts(self) -> tuple[int, ...]:
        """Contexts that were timed, rising."""
        ...

    def covers(self, batch: int, context: float) -> bool:
        """Whether the cell lies between timed ones; beyond, the cost extrapolates."""
        ...
