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
    notes_on,
    tokens_per_call,
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
from specsim.cost import MeasuredVerify, Prices, VerifyCost, block_cost
from specsim.optimizers.evaluation import Evaluation, Setting
from specsim.optimizers.search import blockwise, closed_form, effective_cost, search

_GAMMA_MAX = 64
# Far beyond use; a survival curve of this length is still 80 MB.
_LONGEST = 10**7


def evaluate_numbers(
    alpha: AlphaLike | None, prices: Prices, gamma: npt.ArrayLike | None
) -> Evaluation:
    """What drafting ``gamma`` tokens per call does; all but the costs of verification broadcast.

    alpha : acceptance rate, i.i.d. at every position, or an array of such rates; a list or tuple
        is one acceptance by position; or what else is known of acceptance (``acceptance_of``),
        measured at one draft length, too: ``warnings`` then says how far it was carried, how, and
        with which interval

    Speedup is E[N] / (gamma c + v(gamma + 1) + o): Leviathan23 Thm 3.8, with E[N] the sum of the
    survival curve.  Raises ``UnsupportedError`` for a gamma beyond what was measured.

    >>> round(evaluate_numbers(0.8, Prices(0.05), gamma=5).speedup, 3)
    2.951
    """
    lengths = np.array(integers("gamma", _given("gamma", gamma), high=_LONGEST))
    rates, acceptance = _rates(alpha)
    verify = prices.verify
    longest = max([int(lengths.max()), *_known_lengths(acceptance, verify)])
    setting = _setting(rates, acceptance, prices, verify, longest)
    _check_shapes(setting, gamma=lengths)
    asked = {**_echo(setting, alpha, prices), "gamma": _scalar(lengths)}
    return setting.at(lengths, None, asked, _notes(alpha, acceptance, lengths))


def optimize_numbers(
    alpha: AlphaLike | None, prices: Prices, gamma_max: int | None = None
) -> Evaluation:
    """The gamma in 0..gamma_max (64 by default) with the best speedup, of equals the smaller.

    Arguments as in ``evaluate_numbers``.  In closed form under i.i.d. acceptance and linear
    verification, else by exhaustive search, which also ends where the measured curves do;
    ``at_gamma_max`` says that the best lies at the end.

    >>> optimize_numbers(0.8, Prices(0.05)).gamma
    8
    """
    rates, acceptance = _rates(alpha)
    verify = prices.verify
    gamma_max = integer("gamma_max", _GAMMA_MAX if gamma_max is None else gamma_max, high=_LONGEST)
    longest = min([gamma_max, *_known_lengths(acceptance, verify)])
    if gamma_max and isinstance(verify, MeasuredVerify):
        verify.check_drafts()
    setting = _setting(rates, acceptance, prices, verify, longest)
    _check_shapes(setting)
    asked = {**_echo(setting, alpha, prices), "gamma_max": gamma_max}
    best = _best_gamma(setting)
    return setting.at(best, longest, asked, _notes(alpha, acceptance, best))


def _notes(
    alpha: AlphaLike | None, acceptance: Acceptance | None, lengths: Ints
) -> tuple[str, ...]:
    """On the shortest and on the longest of the draft lengths that are answered for."""
    if alpha is None or acceptance is None:
        return ()
    ends = (int(lengths.min()), int(lengths.max()))
    return tuple(dict.fromkeys(line for end in ends for line in notes_on(alpha, acceptance, end)))


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
    rates: Floats, acceptance: Acceptance | None, prices: Prices, verify: VerifyCost, longest: int
) -> Setting:
    verify(longest + 1)  # raises here, not when a figure is read, if that was not measured

    def checked(name: str, value: npt.ArrayLike) -> Floats:
        # A copy: the figures are read later, and the caller may change an array meanwhile.
        return np.array(numbers(name, value, low=0.0))

    return Setting(
        alpha=np.array(rates),
        survival=None if acceptance is None else acceptance.survival(longest),
        gains=None if acceptance is None else tokens_per_call(acceptance, longest),
        c=checked("c", _given("c", prices.c)),
        c_ops=checked("c_ops", 0.0 if prices.c_ops is None else prices.c_ops),
        c_memory=checked("c_memory", 0.0 if prices.c_memory is None else prices.c_memory),
        verify=verify,
        overhead=number("overhead", prices.overhead or 0.0, low=0.0),
        longest=longest,
    )


def _check_shapes(setting: Setting, **more: Ints) -> None:
    known = {"alpha": setting.alpha, "c": setting.c, "c_ops": setting.c_ops}
    arrays = {**known, "c_memory": setting.c_memory, **more}
    try:
        np.broadcast_shapes(*(each.shape for each in arrays.values()))
    except ValueError:
        given = {name: each.shape for name, each in arrays.items() if each.ndim}
        shapes = " and ".join(f"{name} {shape}" for name, shape in given.items())
        raise InvalidArgumentError(f"arrays must broadcast, got {shapes}") from None


def _echo(setting: Setting, alpha: AlphaLike | None, prices: Prices) -> dict[str, Any]:
    """The inputs as they were checked."""
    verify: dict[str, Any] = {"verify_slope": prices.verify_slope or 0.0}
    if prices.verify_cost is not None:
        verify = {"verify_cost": prices.verify_cost}
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
    if setting.gains is not None or isinstance(setting.verify, MeasuredVerify):
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
