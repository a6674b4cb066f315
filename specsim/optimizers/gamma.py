"""Will it pay?  ``evaluate`` one draft length, ``optimize`` over it, ``pareto_front`` of it.

The Python calls behind ``specsim evaluate`` and ``specsim optimize``.  Costs are in target runs on
one token, speedup is against plain decoding by the same target, and gamma = 0 is plain decoding:
speedup exactly one, no overhead charged.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, fields
from typing import Any

import numpy as np
import numpy.typing as npt

from specsim import formulas
from specsim.acceptance import Acceptance, ConstantAcceptance, SurvivalAcceptance
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
from specsim.cost import LinearVerify, MeasuredVerify, VerifyCost
from specsim.optimizers import search as optimum


@dataclass(frozen=True)
class Evaluation:
    """What one setting, or an array of settings, does; scalars if every input was a scalar.

    gamma : draft tokens per target call
    speedup : against plain decoding
    tokens_per_call : E[N], the recovered or bonus token counted (plain decoding is 1)
    operations_factor : arithmetic operations per token, against plain decoding
    memory_factor : bytes of weights and cache read per token, against plain decoding
    oracle_speedup : speedup if each block drafted just the tokens that will be accepted.  Under
        i.i.d. acceptance and linear verification this is Leviathan23 section 3.5 in closed form.
        Otherwise it sums over the survival curve, and the oracle drafts no further than the
        measured curves go (in ``optimize`` also no further than ``gamma_max``; in ``evaluate``
        with nothing measured, no further than the largest gamma).  Over ``speedup`` it is what an
        adaptive length could win.
    at_gamma_max : whether the best gamma is the largest that was considered, so that a larger one
        might be better; always false for a gamma that was given
    """

    gamma: Any
    speedup: Any
    tokens_per_call: Any
    operations_factor: Any
    memory_factor: Any
    oracle_speedup: Any
    at_gamma_max: Any


# Far beyond use; a survival curve of this length is still 80 MB.
_LONGEST = 10**7

_FIELDS = tuple(field.name for field in fields(Evaluation))


class _ArrayEvaluation(Evaluation):
    """An evaluation of many settings that works each figure out when it is first read.

    A sweep over 10^7 settings that asks only for gamma then does not pay for five more arrays.
    """

    def __init__(self, setting: _Setting, gamma: Ints, end: int | None) -> None:
        self.__dict__.update(_setting=setting, gamma=gamma, _end=end)

    def __getattr__(self, name: str) -> Any:
        if name not in _FIELDS:
            raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")
        if name == "at_gamma_max":
            value = np.asarray(self.gamma == self._end)
        else:
            value = self._setting.figure(name, self.gamma)
        self.__dict__[name] = value
        return value


@dataclass(frozen=True)
class _Setting:
    """Checked inputs, and the figures as functions of them and of gamma.

    Either ``alpha`` is known (i.i.d. acceptance) or ``survival`` is: S_0, S_1, ... as far as any
    gamma that will be asked for.  ``longest`` bounds the oracle where it has no closed form.
    """

    alpha: Floats
    survival: Floats | None
    c: Floats
    c_ops: float
    c_memory: float
    verify: VerifyCost
    overhead: float
    longest: int

    def tokens(self, alpha: Floats, gamma: Ints) -> Floats:
        """E[N] = S_0 + ... + S_gamma."""
        if self.survival is None:
            return 1.0 + alpha * formulas.geometric_sum(alpha, gamma)
        return np.asarray(np.cumsum(self.survival)[gamma])

    def cost(self, c: Floats, gamma: Ints) -> Floats:
        """gamma c + v(gamma + 1) + o; one for plain decoding."""
        cost = gamma * c
        cost += self.verify(gamma + 1)
        if self.overhead:
            cost += self.overhead * (gamma > 0)
        return np.asarray(cost)

    def oracle(self, alpha: Floats, c: Floats) -> Floats:
        """The oracle's speedup: it drafts J tokens, with P(J >= i) = S_i."""
        if self.survival is None and isinstance(self.verify, LinearVerify):
            slope = self.verify.slope
            return formulas.oracle_speedup(alpha, c, verify_slope=slope, overhead=self.overhead)
        survival = self.survival
        if survival is None:
            survival = np.power.outer(alpha, np.arange(self.longest + 1.0))
        drafts = survival[..., 1 : self.longest + 1]
        steps = np.diff(self.verify(np.arange(1, self.longest + 2)))
        overhead = self.overhead * drafts[..., :1].sum(axis=-1)
        accepted = drafts.sum(axis=-1)
        return np.asarray((1.0 + accepted) / (1.0 + drafts @ steps + c * accepted + overhead))

    def figure(self, name: str, gamma: Ints) -> Any:
        """The named field of ``Evaluation``, in the shape of alpha, c and gamma together."""
        formula: Callable[[Floats, Floats, Ints], Floats] = {
            "speedup": lambda alpha, c, gamma: self.tokens(alpha, gamma) / self.cost(c, gamma),
            "tokens_per_call": lambda alpha, c, gamma: self.tokens(alpha, gamma),
            "operations_factor": lambda alpha, c, gamma: (
                (gamma * (1.0 + self.c_ops) + 1.0) / self.tokens(alpha, gamma)
            ),
            "memory_factor": lambda alpha, c, gamma: (
                (gamma * self.c_memory + 1.0) / self.tokens(alpha, gamma)
            ),
            "oracle_speedup": lambda alpha, c, gamma: self.oracle(alpha, c),
        }[name]
        return optimum.blockwise(formula, self.alpha, self.c, gamma)

    def at(self, gamma: Ints, end: int | None = None) -> Evaluation:
        """The evaluation at ``gamma``; ``end`` is the largest that a search considered."""
        shape = np.broadcast_shapes(self.alpha.shape, self.c.shape, gamma.shape)
        figures = _ArrayEvaluation(self, np.broadcast_to(gamma, shape), end)
        if shape:
            return figures
        return Evaluation(*(getattr(figures, name).item() for name in _FIELDS))


def _setting(
    alpha: npt.ArrayLike | None,
    c: npt.ArrayLike | None,
    acceptance: Acceptance | None,
    verify: VerifyCost,
    longest: int,
    c_ops: float,
    c_memory: float,
    overhead: float,
) -> _Setting:
    if (alpha is None) == (acceptance is None):
        found = "neither" if alpha is None else "both"
        raise InvalidArgumentError(f"give one of alpha and acceptance, got {found}")
    if isinstance(acceptance, ConstantAcceptance):
        alpha, acceptance = acceptance.alpha, None
    verify(longest + 1)  # raises here, not when a figure is read, if that was not measured
    return _Setting(
        # Copies: the figures are read later, and the caller may change an array meanwhile.
        alpha=np.array(0.0 if alpha is None else probabilities("alpha", alpha)),
        survival=None if acceptance is None else acceptance.survival(longest),
        c=np.array(numbers("c", _given("c", c), low=0.0)),
        c_ops=number("c_ops", c_ops, low=0.0),
        c_memory=number("c_memory", c_memory, low=0.0),
        verify=verify,
        overhead=number("overhead", overhead, low=0.0),
        longest=longest,
    )


def _given(name: str, value: npt.ArrayLike | None) -> npt.ArrayLike:
    if value is None:
        raise InvalidArgumentError(f"{name} must be given, a number >= 0")
    return value


def _verify(slope: float, curve: npt.ArrayLike | None) -> VerifyCost:
    if curve is None:
        return LinearVerify(slope)
    if slope:
        raise InvalidArgumentError("give one of verify_slope and verify_cost, got both")
    return MeasuredVerify(tuple(np.ravel(numbers("verify cost", curve)).tolist()))


def _known_lengths(acceptance: Acceptance | None, verify: VerifyCost) -> list[int]:
    """The gamma that the measured curves reach, the shorter of two; empty if none is measured."""
    known = [verify.longest - 1] if isinstance(verify, MeasuredVerify) else []
    if isinstance(acceptance, SurvivalAcceptance):
        known.append(len(acceptance.marginal))
    return [min(known)] if known else []


def evaluate(
    alpha: npt.ArrayLike | None = None,
    c: npt.ArrayLike | None = None,
    gamma: npt.ArrayLike | None = None,
    *,
    acceptance: Acceptance | None = None,
    c_ops: float = 0.0,
    c_memory: float = 0.0,
    verify_slope: float = 0.0,
    verify_cost: npt.ArrayLike | None = None,
    overhead: float = 0.0,
) -> Evaluation:
    """What drafting ``gamma`` tokens per call does; alpha, c and gamma broadcast.

    alpha : acceptance rate, i.i.d. at every position; or ``acceptance``, what else is known of it
    c : time of one draft run over time of one target run on one token
    c_ops, c_memory : operations of a draft token, bytes of a draft run, over the target's
    verify_slope : v(n) = 1 + verify_slope (n - 1); or ``verify_cost``, v(1), v(2), ... as measured
    overhead : host time per call, in target runs on one token

    Speedup is E[N] / (gamma c + v(gamma + 1) + o): Leviathan23 Thm 3.8, with E[N] the sum of the
    survival curve.  Raises ``UnsupportedError`` for a gamma beyond what was measured.

    >>> round(evaluate(alpha=0.8, c=0.05, gamma=5).speedup, 3)
    2.951
    """
    lengths = np.array(integers("gamma", _given("gamma", gamma), high=_LONGEST))
    verify = _verify(verify_slope, verify_cost)
    longest = max([int(lengths.max()), *_known_lengths(acceptance, verify)])
    setting = _setting(alpha, c, acceptance, verify, longest, c_ops, c_memory, overhead)
    return setting.at(lengths)


def optimize(
    alpha: npt.ArrayLike | None = None,
    c: npt.ArrayLike | None = None,
    *,
    acceptance: Acceptance | None = None,
    c_ops: float = 0.0,
    c_memory: float = 0.0,
    verify_slope: float = 0.0,
    verify_cost: npt.ArrayLike | None = None,
    overhead: float = 0.0,
    gamma_max: int = 64,
) -> Evaluation:
    """The gamma in 0..gamma_max with the best speedup, of equals the smaller.

    Arguments as in ``evaluate``.  In closed form under i.i.d. acceptance and linear verification,
    else by exhaustive search, which also ends where the measured curves do; ``at_gamma_max`` says
    that the best lies at the end.

    >>> optimize(alpha=0.8, c=0.05).gamma
    8
    """
    verify = _verify(verify_slope, verify_cost)
    gamma_max = integer("gamma_max", gamma_max, high=_LONGEST)
    longest = min([gamma_max, *_known_lengths(acceptance, verify)])
    setting = _setting(alpha, c, acceptance, verify, longest, c_ops, c_memory, overhead)
    gamma = _best_gamma(setting)
    return setting.at(gamma, longest)


def _best_gamma(setting: _Setting) -> Ints:
    if setting.survival is not None or isinstance(setting.verify, MeasuredVerify):
        reads = setting.verify(np.arange(1, setting.longest + 2))

        def best(alpha: Floats, c: Floats) -> Ints:
            def tokens(gamma: Ints) -> Floats:
                return setting.tokens(alpha, gamma[:, None])

            return optimum.search(tokens, c, reads, setting.overhead)

        return optimum.blockwise(best, setting.alpha, setting.c, dtype=np.int64)
    slope, overhead = setting.verify.slope, setting.overhead
    c = optimum.effective_cost(setting.c, slope, overhead) if slope or overhead else setting.c
    gamma = optimum.closed_form(setting.alpha, c, setting.longest)
    if overhead:
        # The best length that drafts may still lose to plain decoding, which pays no overhead.
        gamma = np.where(setting.figure("speedup", gamma) > 1.0, gamma, 0)
    return gamma


def pareto_front(evaluation: Evaluation) -> Evaluation:
    """The settings that no other one beats on both speed and operations: Leviathan23 Figure 4.

    ``pareto_front(evaluate(alpha, c, np.arange(65)))`` is the front over gamma.  The fields are
    rows, from the fewest operations to the highest speedup.
    """
    speed, operations = np.ravel(evaluation.speedup), np.ravel(evaluation.operations_factor)
    order = np.lexsort((-speed, operations))
    fastest_before = np.concatenate([[-np.inf], np.maximum.accumulate(speed[order])[:-1]])
    kept = order[speed[order] > fastest_before]
    shape = np.shape(evaluation.speedup)
    rows = (np.broadcast_to(getattr(evaluation, name), shape).ravel() for name in _FIELDS)
    return Evaluation(*(row[kept] for row in rows))
