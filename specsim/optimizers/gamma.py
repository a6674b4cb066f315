"""Will it pay?  One draft length evaluated, the best one, and the front of speed and operations.

From numbers alone: acceptance, the draft's cost, and what verification and a block cost.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from specsim.acceptance import (
    Acceptance,
    AlphaLike,
    ConstantAcceptance,
    SurvivalAcceptance,
    acceptance_of,
)
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
from specsim.cost import MeasuredVerify, VerifyCost, block_cost, verify_cost_of
from specsim.optimizers.evaluation import Evaluation, Setting
from specsim.optimizers.search import blockwise, closed_form, effective_cost, search

# Far beyond use; a survival curve of this length is still 80 MB.
_LONGEST = 10**7


def evaluate_numbers(
    alpha: AlphaLike | None = None,
    c: npt.ArrayLike | None = None,
    gamma: npt.ArrayLike | None = None,
    *,
    c_ops: npt.ArrayLike = 0.0,
    c_memory: npt.ArrayLike = 0.0,
    verify_slope: float | None = None,
    verify_cost: npt.ArrayLike | None = None,
    overhead: float = 0.0,
) -> Evaluation:
    """What drafting ``gamma`` tokens per call does; all but the costs of verification broadcast.

    alpha : acceptance rate, i.i.d. at every position, or an array of such rates; a list or tuple
        is one acceptance by position; or what else is known of acceptance (``acceptance_of``)
    c : time of one draft run over time of one target run on one token
    c_ops, c_memory : operations of a draft token, bytes of a draft run, over the target's
    verify_slope : v(n) = 1 + verify_slope (n - 1); or ``verify_cost``, v(1), v(2), ... as measured
    overhead : host time per call, in target runs on one token

    Speedup is E[N] / (gamma c + v(gamma + 1) + o): Leviathan23 Thm 3.8, with E[N] the sum of the
    survival curve.  Raises ``UnsupportedError`` for a gamma beyond what was measured.

    >>> round(evaluate_numbers(alpha=0.8, c=0.05, gamma=5).speedup, 3)
    2.951
    """
    lengths = np.array(integers("gamma", _given("gamma", gamma), high=_LONGEST))
    rates, acceptance = _rates(alpha)
    verify = verify_cost_of(verify_slope, verify_cost)
    longest = max([int(lengths.max()), *_known_lengths(acceptance, verify)])
    setting = _setting(rates, acceptance, c, c_ops, c_memory, verify, overhead, longest)
    asked = _echo(setting, alpha, verify_slope, verify_cost)
    return setting.at(lengths, None, {**asked, "gamma": _scalar(lengths)})


def optimize_numbers(
    alpha: AlphaLike | None = None,
    c: npt.ArrayLike | None = None,
    *,
    c_ops: npt.ArrayLike = 0.0,
    c_memory: npt.ArrayLike = 0.0,
    verify_slope: float | None = None,
    verify_cost: npt.ArrayLike | None = None,
    overhead: float = 0.0,
    gamma_max: int = 64,
) -> Evaluation:
    """The gamma in 0..gamma_max with the best speedup, of equals the smaller.

    Arguments as in ``evaluate_numbers``.  In closed form under i.i.d. acceptance and linear
    verification, else by exhaustive search, which also ends where the measured curves do;
    ``at_gamma_max`` says that the best lies at the end.

    >>> optimize_numbers(alpha=0.8, c=0.05).gamma
    8
    """
    rates, acceptance = _rates(alpha)
    verify = verify_cost_of(verify_slope, verify_cost)
    gamma_max = integer("gamma_max", gamma_max, high=_LONGEST)
    longest = min([gamma_max, *_known_lengths(acceptance, verify)])
    setting = _setting(rates, acceptance, c, c_ops, c_memory, verify, overhead, longest)
    asked = _echo(setting, alpha, verify_slope, verify_cost)
    return setting.at(_best_gamma(setting), longest, {**asked, "gamma_max": gamma_max})


def _rates(alpha: AlphaLike | None) -> tuple[Floats, Acceptance | None]:
    """The i.i.d. rates of ``alpha``, or the one acceptance that it is."""
    if alpha is None:
        raise InvalidArgumentError("alpha is missing; give alpha and c, or a profile")
    if isinstance(alpha, np.ndarray):
        return probabilities("alpha", alpha), None
    acceptance = acceptance_of(alpha)
    if isinstance(acceptance, ConstantAcceptance):
        return np.asarray(acceptance.alpha), None
    return np.zeros(()), acceptance


def _given(name: str, value: npt.ArrayLike | None) -> npt.ArrayLike:
    if value is None:
        remedy = "give alpha and c, or a profile" if name == "c" else "a whole number >= 0"
        raise InvalidArgumentError(f"{name} is missing; {remedy}")
    return value


def _known_lengths(acceptance: Acceptance | None, verify: VerifyCost) -> list[int]:
    """The gamma that the measured curves reach, the shorter of two; empty if none is measured."""
    known = [verify.longest - 1] if isinstance(verify, MeasuredVerify) else []
    if isinstance(acceptance, SurvivalAcceptance):
        known.append(len(acceptance.marginal))
    return [min(known)] if known else []


def _setting(
    rates: Floats,
    acceptance: Acceptance | None,
    c: npt.ArrayLike | None,
    c_ops: npt.ArrayLike,
    c_memory: npt.ArrayLike,
    verify: VerifyCost,
    overhead: float,
    longest: int,
) -> Setting:
    verify(longest + 1)  # raises here, not when a figure is read, if that was not measured
    return Setting(
        # Copies: the figures are read later, and the caller may change an array meanwhile.
        alpha=np.array(rates),
        survival=None if acceptance is None else acceptance.survival(longest),
        c=np.array(numbers("c", _given("c", c), low=0.0)),
        c_ops=np.array(numbers("c_ops", c_ops, low=0.0)),
        c_memory=np.array(numbers("c_memory", c_memory, low=0.0)),
        verify=verify,
        overhead=number("overhead", overhead, low=0.0),
        longest=longest,
    )


def _echo(
    setting: Setting,
    alpha: AlphaLike | None,
    verify_slope: float | None,
    verify_cost: npt.ArrayLike | None,
) -> dict[str, Any]:
    """The inputs as they were checked."""
    slope = 0.0 if verify_slope is None else verify_slope
    verify = {"verify_slope": slope} if verify_cost is None else {"verify_cost": verify_cost}
    return {
        "alpha": _scalar(setting.alpha) if setting.survival is None else alpha,
        "c": _scalar(setting.c),
        "c_ops": _scalar(setting.c_ops),
        "c_memory": _scalar(setting.c_memory),
        **verify,
        "overhead": setting.overhead,
    }


def _scalar(array: Floats | Ints) -> Any:
    """A number where the array is one."""
    return array if array.ndim else array.item()


def _best_gamma(setting: Setting) -> Ints:
    if setting.survival is not None or isinstance(setting.verify, MeasuredVerify):
        undrafted = block_cost(
            np.arange(setting.longest + 1), 0.0, setting.verify, setting.overhead
        )

        def best(alpha: Floats, c: Floats) -> Ints:
            def tokens(gamma: Ints) -> Floats:
                return setting.tokens(alpha, gamma[:, None])

            return search(tokens, c, undrafted)

        return blockwise(best, setting.alpha, setting.c, dtype=np.int64)
    slope, overhead = setting.verify.slope, setting.overhead
    c = effective_cost(setting.c, slope, overhead) if slope or overhead else setting.c
    gamma = closed_form(setting.alpha, c, setting.longest)
    if overhead:
        # The best length that drafts may still lose to plain decoding, which pays no overhead.
        gamma = np.where(setting.figure("speedup", gamma) > 1.0, gamma, 0)
    return gamma
