"""``specsim.optimize`` and ``specsim.evaluate``: what to draft, and what one draft length gives.

From numbers, from a profile, by load, or for any scheme.
"""

from __future__ import annotations

from collections.abc import Mapping
from os import PathLike
from typing import TYPE_CHECKING, Any, TypedDict, Unpack, overload

import numpy.typing as npt

from specsim.acceptance import AcceptanceLaw, AlphaLike
from specsim.api.progress import Progress, quiet
from specsim.api.question import Question
from specsim.cost import Prices

if TYPE_CHECKING:
    from specsim.api.by_load import LoadPlan
    from specsim.api.by_profile import ProfileForecast
    from specsim.api.result import Result
    from specsim.api.schemes import SchemeEvaluation, SchemeOptimum
    from specsim.batching.workload import Load
    from specsim.deployment.deployment import Deployment
    from specsim.optimizers.evaluation import Evaluation
    from specsim.profiles import Mode
    from specsim.schemes import Scheme


class VerifyArguments(TypedDict, total=False):
    """What a block costs beside its drafts, as ``optimize`` describes it."""

    verify_slope: float | None
    verify_cost: npt.ArrayLike | None
    overhead: float | None


class NumberArguments(VerifyArguments, total=False):
    """What broadcasts, too, where all is numbers."""

    c_ops: npt.ArrayLike | None
    c_memory: npt.ArrayLike | None


class SchemeArguments(VerifyArguments, total=False):
    """What the law of a scheme must know, and what runs of its models cost."""

    known: Any
    costs: Mapping[str, float] | None


@overload
def optimize(
    alpha: AlphaLike,
    c: npt.ArrayLike,
    *,
    gamma_max: int | None = ...,
    **prices: Unpack[NumberArguments],
) -> Evaluation: ...
@overload
def optimize(
    *,
    profile: str | PathLike[str],
    temperature: float | None = ...,
    acceptance_law: AcceptanceLaw | None = ...,
) -> ProfileForecast: ...
@overload
def optimize(
    alpha: AlphaLike,
    *,
    deployment: Deployment,
    load: Load | None = ...,
    gamma_max: int | None = ...,
    margin: float | None = ...,
    progress: Progress = ...,
) -> LoadPlan: ...
@overload
def optimize(
    alpha: AlphaLike | None = ...,
    *,
    profile: str | PathLike[str],
    load: Load,
    gamma_max: int | None = ...,
    temperature: float | None = ...,
    mode: Mode | None = ...,
    acceptance_law: AcceptanceLaw | None = ...,
    margin: float | None = ...,
    progress: Progress = ...,
) -> LoadPlan: ...
@overload
def optimize(
    alpha: AlphaLike | None = ...,
    c: float | None = ...,
    *,
    scheme: str | type[Scheme],
    candidates: Mapping[str, Any],
    **known: Unpack[SchemeArguments],
) -> SchemeOptimum: ...
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
    acceptance_law: AcceptanceLaw | None = None,
    deployment: Deployment | None = None,
    load: Load | None = None,
    mode: Mode | None = None,
    margin: float | None = None,
    scheme: str | type[Scheme] | None = None,
    candidates: Mapping[str, Any] | None = None,
    known: Any = None,
    costs: Mapping[str, float] | None = None,
    progress: Progress = quiet,
) -> Result:
    """The draft length that pays best, or the best fields of a scheme.

    From numbers, ``optimize(alpha, c)`` is an ``Evaluation``:

    alpha : a rate; a numpy array of rates, one for each setting; a list of conditional rates by
        position, assumed at every draft length (the last one holds on); ``Marginal(...)`` or
        ``Conditional(...)``, rates measured at one draft length and carried to others (``warnings``
        says how far, and with which interval); what ``acceptance_from_counts`` makes of an
        engine's counts; the curve of ``extrapolate``; an acceptance of specsim.acceptance
    c : time of a draft run over time of a target run on one token; broadcasts with ``alpha``
    c_ops, c_memory : operations of a draft token and bytes of a draft run, over the target's
    verify_slope : v(n) = 1 + verify_slope (n - 1), the cost of a target run on n tokens (free by
        default, as in the papers); or ``verify_cost``, v(1), v(2), ... as measured
    overhead : host time of a block, in target runs
    gamma_max : longest draft that is considered (64; by load 16, or as far as is measured)

    From a profile, ``optimize(profile=path)`` is a ``ProfileForecast``: the trace is replayed
    exactly, priced with measured run times, at every ``temperature`` or at one; drafts are accepted
    as in the profile's rates, or under another ``acceptance_law`` (specsim.acceptance).

    By load, ``optimize(alpha, deployment=Deployment(...), load=Load(...))`` or
    ``optimize(profile=path, load=Load(...))`` is a ``LoadPlan``: the best length of every batch and
    context.  A profile must have run times of batches; ``alpha`` replaces its acceptance, and
    ``mode`` says how its models ran.  Drafts that gain less than ``margin`` over plain decoding,
    by default 0.05, are left off.  ``progress`` is called with what is going on, how much of it is
    done and how much there is.

    For any scheme, ``optimize(alpha, c, scheme="bild", candidates={"window": range(1, 21)})`` is a
    ``SchemeOptimum`` over all combinations; ``known`` in place of ``alpha`` where its law must
    know something else (specsim.schemes.known), ``costs`` of draft models by name.

    >>> optimize(0.8, 0.05).gamma
    8
    """
    prices = Prices(c, c_ops, c_memory, verify_slope, verify_cost, overhead)
    asked = Question(
        alpha,
        prices,
        profile,
        temperature,
        deployment,
        load,
        mode,
        scheme,
        known,
        costs,
        acceptance_law,
        margin,
    )
    return asked.optimize(gamma_max, candidates, progress)


@overload
def evaluate(
    alpha: AlphaLike, c: npt.ArrayLike, gamma: npt.ArrayLike, **prices: Unpack[NumberArguments]
) -> Evaluation: ...
@overload
def evaluate(
    *,
    gamma: int,
    profile: str | PathLike[str],
    temperature: float | None = ...,
    acceptance_law: AcceptanceLaw | None = ...,
) -> ProfileForecast: ...
@overload
def evaluate(
    alpha: AlphaLike,
    *,
    gamma: int,
    deployment: Deployment,
    load: Load | None = ...,
    margin: float | None = ...,
    progress: Progress = ...,
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
    acceptance_law: AcceptanceLaw | None = ...,
    margin: float | None = ...,
    progress: Progress = ...,
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
    acceptance_law: AcceptanceLaw | None = None,
    deployment: Deployment | None = None,
    load: Load | None = None,
    mode: Mode | None = None,
    margin: float | None = None,
    scheme: Scheme | None = None,
    known: Any = None,
    costs: Mapping[str, float] | None = None,
    progress: Progress = quiet,
) -> Result:
    """What drafting ``gamma`` tokens per target call gives, or what a scheme does.

    Arguments and results are those of ``optimize``: from numbers, where ``gamma`` broadcasts, too;
    from a profile; by load; or of one ``scheme``, which says itself how long it drafts.

    >>> round(evaluate(alpha=0.8, c=0.05, gamma=5).speedup, 3)
    2.951
    """
    prices = Prices(c, c_ops, c_memory, verify_slope, verify_cost, overhead)
    asked = Question(
        alpha,
        prices,
        profile,
        temperature,
        deployment,
        load,
        mode,
        scheme,
        known,
        costs,
        acceptance_law,
        margin,
    )
    return asked.evaluate(gamma, progress)
