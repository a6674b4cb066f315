"""What is planned by load: acceptance and costs of one setting, at any batch and context."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np

from specsim.acceptance import AcceptanceLaw
from specsim.batching.acceptance_error import Ends, tokens_at_rates_off
from specsim.batching.cost import LoadCost, TimedLoadCost
from specsim.batching.point import BatchPoint
from specsim.batching.tokens_per_block import TokensPerBlock
from specsim.checks import Floats, InvalidArgumentError, integer, integers

if TYPE_CHECKING:
    from specsim.engines.drafting import Method

# Asked for where only contexts, or only batches, are.
_BATCHES = tuple(2**power for power in range(9))
_CONTEXTS = (512, 4096)

# How far off an acceptance rate may easily be: what regret is told for.
_OFF = 0.05

# More than anyone means: of many batches some are looked at, of contexts all are.
_MOST = {"batches": 1_000_000, "contexts": 256}

# Longest draft that is asked for by load.
LONGEST = 256


@dataclass(frozen=True)
class Load:
    """What is planned for.

    batches : requests that share iterations; None: those measured, or 1, 2, 4, ..., 256
    contexts : tokens in the cache of each request, at most 256 of them; None: those measured, or
        512 and 4096
    prompt : tokens of a prompt, for the time of reading it; None: not asked
    """

    batches: Sequence[int] | None = None
    contexts: Sequence[int] | None = None
    prompt: int | None = None

    def __post_init__(self) -> None:
        if self.prompt is not None:
            object.__setattr__(self, "prompt", integer("prompt", self.prompt, low=1))
        for name, low in (("batches", 1), ("contexts", 0)):
            asked = getattr(self, name)
            if asked is None:
                continue
            if len(asked) > _MOST[name]:
                raise InvalidArgumentError(
                    f"{name} must be at most {_MOST[name]:,} numbers, got {len(asked):,}"
                )
            checked = np.unique(np.atleast_1d(integers(name, asked, low=low)))
            object.__setattr__(self, name, tuple(checked.tolist()))


def draft_length(name: str, value: int | None, low: int = 0) -> int | None:
    """A draft length that is asked for by load, at most 256; None where none is.

    Refused before anything is worked out for it: there is an array entry for every length.
    """
    return None if value is None else integer(name, value, low=low, high=LONGEST)


def _no_ends() -> Ends | None:
    """Nobody knows how far off the acceptance is."""
    return None


def no_notes(gamma: int) -> tuple[str, ...]:
    """Nothing to know: acceptance is exact at every draft length."""
    return ()


def no_draws() -> LoadCost | None:
    """Nothing was repeated."""
    return None


def unknown_error(batch: int, context: float) -> float | None:
    """Nobody knows how far off the costs are."""
    return None


@dataclass(frozen=True)
class Basis:
    """What the costs of a setting rest on.

    words : for the title of a table
    is_bound : whether no engine is as fast
    error : half of the 95 % interval that they leave a speedup, as a share of it, at a batch and
        context, beside what is drawn; None where it is not known
    drawn : makes the costs as far as repeats leave them open, with prices of shape (D,) in the
        place of numbers; None where nothing was repeated, or ``error`` has what repeats tell
    """

    words: str = "costs as given"
    is_bound: bool = False
    error: Callable[[int, float], float | None] = unknown_error
    drawn: Callable[[], LoadCost | None] = no_draws

    @property
    def of_times(self) -> str:
        """The words, and of a bound what it bounds: a speedup is a ratio and has none."""
        return f"step times at {self.words}" if self.is_bound else self.words


@dataclass(frozen=True)
class BatchWorkload:
    """One sampling setting, ready to be asked at any batch and context.

    survival : S_1.., over all of the text
    replay : makes ``gains``, what a block gains; of a profile from its trace, so where blocks start
    gamma_max : longest draft that is considered
    longest : that the drafter can make; None: any
    temperature : of what was measured; None where nothing was, or where it is not known
    context : longest that both models take; None where it is not known
    draft_name : as in the profile
    drafter : which of several drafters of a deployment; None where there is one
    doubts : what to know about the models, one line each
    acceptance_law : what the acceptance is of; None where it was given as numbers
    method : where drafts came from, as an acceptance file says, or ngram of a profile of prompt
        lookup; else None
    longest_match : of prompt lookup as measured, the most tokens that are matched
    notes : what to know of the acceptance at a draft length, one line each
    ends : makes ``gains_interval``
    basis : what the costs rest on
    """

    survival: Floats
    replay: Callable[[], TokensPerBlock]
    cost: LoadCost
    gamma_max: int
    temperature: float | None = None
    context: int | None = None
    draft_name: str | None = None
    drafter: str | None = None
    doubts: tuple[str, ...] = ()
    acceptance_law: AcceptanceLaw | None = None
    method: Method | None = None
    longest_match: int | None = None
    notes: Callable[[int], tuple[str, ...]] = no_notes
    ends: Callable[[], Ends | None] = _no_ends
    basis: Basis = Basis()
    longest: int | None = None

    @cached_property
    def gains(self) -> TokensPerBlock:
        """By draft length, up to ``gamma_max``."""
        return self.replay()

    @cached_property
    def gains_interval(self) -> Ends | None:
        """What is gained at the ends of the acceptance's 95 % interval; None where it has none."""
        return self.ends()

    @cached_property
    def drawn_cost(self) -> LoadCost | None:
        """The costs in draws of their repeats."""
        return self.basis.drawn()

    @cached_property
    def rates_off(self) -> tuple[Floats, Floats]:
        """Tokens by draft length if the acceptance rate were 0.05 lower, and higher; (K + 1,)."""
        low, high = (tokens_at_rates_off(self.gains.tokens, by) for by in (-_OFF, _OFF))
        return low, high

    @property
    def name(self) -> str:
        """What tells settings apart."""
        words = [self.drafter] if self.drafter else []
        if self.temperature is not None:
            words.append(f"temperature {self.temperature:g}")
        return ", ".join(words)

    def extrapolated(self, points: Iterable[BatchPoint]) -> list[BatchPoint]:
        """Those outside what was measured."""
        cost = self.cost
        if not isinstance(cost, TimedLoadCost):
            return []
        return [point for point in points if not cost.covers(point.batch, point.context)]

    def batches(self, asked: Sequence[int] | None) -> Sequence[int]:
        """The batches asked for, or else those that were measured, or the usual ones; rising."""
        if asked is not None:
            return asked
        return self.cost.batches if isinstance(self.cost, TimedLoadCost) else _BATCHES

    def contexts(self, asked: Sequence[int] | None) -> Sequence[int]:
        """The contexts asked for, or else those that were measured, or the usual ones; rising."""
        if asked is None:
            if isinstance(self.cost, TimedLoadCost):
                return self.cost.contexts
            limit = self.context or max(_CONTEXTS)
            return [context for context in _CONTEXTS if context <= limit] or [limit]
        if self.context is not None and max(asked) > self.context:
            of_drafter = f" with {self.drafter}" if self.drafter else ""
            raise InvalidArgumentError(
                f"context must be <= {self.context:,}{of_drafter}, which is all that the models "
                f"take, got {max(asked):,}"
            )
        return asked
