"""``specsim.optimize``: what to draft, from numbers, from a profile, by load, or for any scheme."""

from __future__ import annotations

from collections.abc import Mapping
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any, overload

import numpy.typing as npt

from specsim.acceptance import AlphaLike
from specsim.api.arguments import refuse
from specsim.checks import number
from specsim.optimizers.gamma import optimize_numbers

if TYPE_CHECKING:
    from specsim.api.by_load import LoadPlan
    from specsim.api.by_profile import ProfileForecast
    from specsim.api.result import Result
    from specsim.api.schemes import SchemeOptimum
    from specsim.batching.workload import Load, Shapes
    from specsim.optimizers.evaluation import Evaluation
    from specsim.profiles import Mode
    from specsim.schemes import Scheme

_GAMMA_MAX = 64


@overload
def optimize(
    alpha: AlphaLike,
    c: npt.ArrayLike,
    *,
    c_ops: npt.ArrayLike | None = ...,
    c_memory: npt.ArrayLike | None = ...,
    verify_slope: float | None = ...,
    verify_cost: npt.ArrayLike | None = ...,
    overhead: float | None = ...,
    gamma_max: int | None = ...,
) -> Evaluation: ...
@overload
def optimize(
    *, profile: str | PathLike[str], temperature: float | None = ...
) -> ProfileForecast: ...
@overload
def optimize(
    alpha: AlphaLike, *, shapes: Shapes, load: Load | None = ..., gamma_max: int | None = ...
) -> LoadPlan: ...
@overload
def optimize(
    alpha: AlphaLike | None = ...,
    *,
    profile: str | PathLike[str],
    load: Load,
    temperature: float | None = ...,
    mode: Mode | None = ...,
    gamma_max: int | None = ...,
) -> LoadPlan: ...
@overload
def optimize(
    alpha: AlphaLike | None = ...,
    c: float | None = ...,
    *,
    scheme: str | type[Scheme],
    candidates: Mapping[str, Any],
    known: Any = ...,
    costs: Mapping[str, float] | None = ...,
    verify_slope: float | None = ...,
    verify_cost: npt.ArrayLike | None = ...,
    overhead: float | None = ...,
) -> SchemeOptimum: ...
@overload
def optimize(
    alpha: AlphaLike | None = ...,
    c: npt.ArrayLike | None = ...,
    *,
    c_ops: npt.ArrayLike | None = ...,
    c_memory: npt.ArrayLike | None = ...,
    verify_slope: float | None = ...,
    verify_cost: npt.ArrayLike | None = ...,
    overhead: float | None = ...,
    gamma_max: int | None = ...,
    profile: str | PathLike[str] | None = ...,
    temperature: float | None = ...,
    shapes: Shapes | None = ...,
    load: Load | None = ...,
    mode: Mode | None = ...,
) -> Result: ...
def optimize(
    alpha: AlphaLike | None = None,
    c: npt.ArrayLike | None = None,
    *,
    c_ops: npt.ArrayLike | None = None,
    c_memory: npt.ArrayLike | None = None,
    verify_slope: float | None = None,
    verify_cost: npt.ArrayLike | None = None,
    overhead: float | None = None,
    gamma_max: int | None = None,
    profile: str | PathLike[str] | None = None,
    temperature: float | None = None,
    shapes: Shapes | None = None,
    load: Load | None = None,
    mode: Mode | None = None,
    scheme: str | type[Scheme] | None = None,
    candidates: Mapping[str, Any] | None = None,
    known: Any = None,
    costs: Mapping[str, float] | None = None,
) -> Result:
    """The draft length that pays best, or the best fields of a scheme.

    From numbers, ``optimize(alpha, c)`` is an ``Evaluation``:

    alpha : a rate; a numpy array of rates, one for each setting; a list of rates by position (the
        last one holds on); the curve of ``extrapolate``; an acceptance of specsim.acceptance
    c : time of a draft run over time of a target run on one token; broadcasts with ``alpha``
    c_ops, c_memory : operations of a draft token and bytes of a draft run, over the target's
    verify_slope : v(n) = 1 + verify_slope (n - 1), the cost of a target run on n tokens (free by
        default, as in the papers); or ``verify_cost``, v(1), v(2), ... as measured
    overhead : host time of a block, in target runs
    gamma_max : longest draft that is considered (64; by load 16, or as far as is measured)

    From a profile, ``optimize(profile=path)`` is a ``ProfileForecast``: the trace is replayed
    exactly, priced with measured run times, at every ``temperature`` or at one.

    By load, ``optimize(alpha, shapes=Shapes(...), load=Load(...))`` or
    ``optimize(profile=path, load=Load(...))`` is a ``LoadPlan``: the best length of every batch and
    context.  A profile must have run times of batches; ``alpha`` replaces its acceptance, and
    ``mode`` says how its models ran.

    For any scheme, ``optimize(alpha, c, scheme="bild", candidates={"window": range(1, 21)})`` is a
    ``SchemeOptimum`` over all combinations; ``known`` in place of ``alpha`` where its law must
    know something else (specsim.schemes.known), ``costs`` of draft models by name.

    >>> optimize(0.8, 0.05).gamma
    8
    """
    by_load = {"shapes": shapes, "load": load, "mode": mode}
    from_profile = {"profile": profile, "temperature": temperature}
    of_scheme = {"scheme": scheme, "candidates": candidates, "known": known, "costs": costs}
    rates = {"c": c, "c_ops": c_ops, "c_memory": c_memory}
    prices = {"verify_slope": verify_slope, "verify_cost": verify_cost, "overhead": overhead}
    path = None if profile is None else Path(profile)
    if scheme is not None:
        others = {**by_load, **from_profile, "c_ops": c_ops, "c_memory": c_memory}
        refuse({**others, "gamma_max": gamma_max}, "has no meaning for a scheme")
        from specsim.api.schemes import optimize_scheme

        return optimize_scheme(
            scheme,
            candidates or {},
            alpha,
            known=known,
            c=None if c is None else number("c", c, low=0.0),
            costs=costs,
            verify_slope=verify_slope,
            verify_cost=verify_cost,
            overhead=overhead or 0.0,
        )
    refuse(of_scheme, "needs a scheme")
    if any(value is not None for value in by_load.values()):
        reason = "has no meaning by load: costs come from a profile, or from shapes"
        refuse({**rates, **prices}, reason)
        from specsim.api.by_load import plan_load
        from specsim.batching.workload import Load

        return plan_load(
            load or Load(),
            alpha=alpha,
            shapes=shapes,
            profile=path,
            temperature=temperature,
            mode=mode,
            gamma_max=gamma_max,
        )
    if path is not None:
        refuse({"alpha": alpha}, "and profile exclude each other, unless a load (--batch) is given")
        refuse({**rates, **prices, "gamma_max": gamma_max}, "and profile exclude each other")
        from specsim.api.by_profile import optimize_profile

        return optimize_profile(path, temperature)
    refuse(from_profile, "needs a profile")
    return optimize_numbers(
        alpha,
        c,
        c_ops=0.0 if c_ops is None else c_ops,
        c_memory=0.0 if c_memory is None else c_memory,
        verify_slope=verify_slope,
        verify_cost=verify_cost,
        overhead=overhead or 0.0,
        gamma_max=_GAMMA_MAX if gamma_max is None else gamma_max,
    )
