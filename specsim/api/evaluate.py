"""``specsim.evaluate``: what one draft length gives, or any scheme."""

from __future__ import annotations

from collections.abc import Mapping
from os import PathLike
from typing import TYPE_CHECKING, Any, Unpack, overload

import numpy.typing as npt

from specsim.acceptance import AlphaLike
from specsim.api.question import (
    NumberArguments,
    ProfileArguments,
    Question,
    SchemeArguments,
)
from specsim.cost import Prices

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
    alpha: AlphaLike, c: npt.ArrayLike, gamma: npt.ArrayLike, **prices: Unpack[NumberArguments]
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
    **setting: Unpack[ProfileArguments],
) -> LoadPlan: ...
@overload
def evaluate(
    alpha: AlphaLike | None = ...,
    c: float | None = ...,
    *,
    scheme: Scheme,
    **known: Unpack[SchemeArguments],
) -> SchemeEvaluation: ...
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
    prices = Prices(c, c_ops, c_memory, verify_slope, verify_cost, overhead)
    asked = Question(alpha, prices, profile, temperature, shapes, load, mode, scheme, known, costs)
    return asked.evaluate(gamma)
