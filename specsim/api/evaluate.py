"""``specsim.evaluate``: what one draft length gives, or any scheme."""

from __future__ import annotations

from collections.abc import Mapping
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any, overload

import numpy.typing as npt

from specsim.acceptance import AlphaLike
from specsim.api.arguments import refuse
from specsim.checks import InvalidArgumentError, integer, number
from specsim.optimizers.gamma import evaluate_numbers

if TYPE_CHECKING:
    from specsim.api.by_load import LoadPlan
    from specsim.api.by_profile import ProfileForecast
    from specsim.api.result import Result
    from specsim.api.schemes import SchemeEvaluation
    from specsim.batching.workload import Load, Shapes
    from specsim.optimizers.evaluation import Evaluation
    from specsim.profiles import Mode
    from specsim.schemes import Scheme


@overload
def evaluate(
    alpha: AlphaLike,
    c: npt.ArrayLike,
    gamma: npt.ArrayLike,
    *,
    c_ops: npt.ArrayLike | None = ...,
    c_memory: npt.ArrayLike | None = ...,
    verify_slope: float | None = ...,
    verify_cost: npt.ArrayLike | None = ...,
    overhead: float | None = ...,
) -> Evaluation: ...
@overload
def evaluate(
    *, gamma: int, profile: str | PathLike[str], temperature: float | None = ...
) -> ProfileForecast: ...
@overload
def evaluate(
    alpha: AlphaLike, *, gamma: int, shapes: Shapes, load: Load | None = ...
) -> LoadPlan: ...
@overload
def evaluate(
    alpha: AlphaLike | None = ...,
    *,
    gamma: int,
    profile: str | PathLike[str],
    load: Load,
    temperature: float | None = ...,
    mode: Mode | None = ...,
) -> LoadPlan: ...
@overload
def evaluate(
    alpha: AlphaLike | None = ...,
    c: float | None = ...,
    *,
    scheme: Scheme,
    known: Any = ...,
    costs: Mapping[str, float] | None = ...,
    verify_slope: float | None = ...,
    verify_cost: npt.ArrayLike | None = ...,
    overhead: float | None = ...,
) -> SchemeEvaluation: ...
@overload
def evaluate(
    alpha: AlphaLike | None = ...,
    c: npt.ArrayLike | None = ...,
    gamma: npt.ArrayLike | None = ...,
    *,
    c_ops: npt.ArrayLike | None = ...,
    c_memory: npt.ArrayLike | None = ...,
    verify_slope: float | None = ...,
    verify_cost: npt.ArrayLike | None = ...,
    overhead: float | None = ...,
    profile: str | PathLike[str] | None = ...,
    temperature: float | None = ...,
    shapes: Shapes | None = ...,
    load: Load | None = ...,
    mode: Mode | None = ...,
) -> Result: ...
def evaluate(
    alpha: AlphaLike | None = None,
    c: npt.ArrayLike | None = None,
    gamma: npt.ArrayLike | None = None,
    *,
    c_ops: npt.ArrayLike | None = None,
    c_memory: npt.ArrayLike | None = None,
    verify_slope: float | None = None,
    verify_cost: npt.ArrayLike | None = None,
    overhead: float | None = None,
    profile: str | PathLike[str] | None = None,
    temperature: float | None = None,
    shapes: Shapes | None = None,
    load: Load | None = None,
    mode: Mode | None = None,
    scheme: Scheme | None = None,
    known: Any = None,
    costs: Mapping[str, float] | None = None,
) -> Result:
    """What drafting ``gamma`` tokens per target call gives, or what a scheme does.

    Arguments and results are those of ``optimize``: from numbers, where ``gamma`` broadcasts, too;
    from a profile; by load; or of one ``scheme``, which says itself how long it drafts.

    >>> round(evaluate(alpha=0.8, c=0.05, gamma=5).speedup, 3)
    2.951
    """
    by_load = {"shapes": shapes, "load": load, "mode": mode}
    from_profile = {"profile": profile, "temperature": temperature}
    rates = {"c": c, "c_ops": c_ops, "c_memory": c_memory}
    prices = {"verify_slope": verify_slope, "verify_cost": verify_cost, "overhead": overhead}
    path = None if profile is None else Path(profile)
    if scheme is not None:
        others = {**by_load, **from_profile, "c_ops": c_ops, "c_memory": c_memory}
        refuse({**others, "gamma": gamma}, "has no meaning for a scheme")
        from specsim.api.schemes import evaluate_scheme

        return evaluate_scheme(
            scheme,
            alpha,
            known=known,
            c=None if c is None else number("c", c, low=0.0),
            costs=costs,
            verify_slope=verify_slope,
            verify_cost=verify_cost,
            overhead=overhead or 0.0,
        )
    refuse({"known": known, "costs": costs}, "needs a scheme")
    if gamma is None:
        raise InvalidArgumentError("gamma is missing, a whole number >= 0")
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
            gamma=integer("gamma", gamma),
        )
    if path is not None:
        refuse({"alpha": alpha}, "and profile exclude each other, unless a load (--batch) is given")
        refuse({**rates, **prices}, "and profile exclude each other")
        from specsim.api.by_profile import evaluate_profile

        return evaluate_profile(path, integer("gamma", gamma), temperature)
    refuse(from_profile, "needs a profile")
    return evaluate_numbers(
        alpha,
        c,
        gamma,
        c_ops=0.0 if c_ops is None else c_ops,
        c_memory=0.0 if c_memory is None else c_memory,
        verify_slope=verify_slope,
        verify_cost=verify_cost,
        overhead=overhead or 0.0,
    )
