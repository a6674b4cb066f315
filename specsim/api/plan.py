"""``specsim.plan``: how many cards a workload needs within service levels, drafts or not."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from math import nan
from os import PathLike

import numpy as np

from specsim.acceptance import AcceptanceLaw, AlphaLike
from specsim.api.plan_doubts import (
    error_budget,
    reason_at,
    replicas_interval,
    sequences_of,
    speed_of,
    stops_paying,
    too_short,
    warnings_of,
)
from specsim.api.plan_ranking import (
    analytic_answer,
    at_both_ends,
    by_rate,
    cheapest,
    fitting,
    longest_stay,
    order,
    plain_beside,
    prices_of,
    settling,
    with_simulated,
)
from specsim.api.plan_result import CapacityPlan
from specsim.api.plan_setups import planned_setups
from specsim.api.plan_words import other_cards
from specsim.api.progress import Progress, quiet, steps
from specsim.api.result import LeftOut
from specsim.api.serving_doubts import routing_doubts
from specsim.api.serving_setup import SetUpWords, mean_context
from specsim.api.workload import workload as workload_of
from specsim.batching.deployed import check_alpha
from specsim.batching.point import DEFAULT_MARGIN
from specsim.batching.source import Source
from specsim.batching.workload import draft_length
from specsim.checks import (
    InvalidArgumentError,
    UnsupportedError,
    integers,
    number,
    refuse,
)
from specsim.deployment.deployment import Deployment
from specsim.intervals import Interval
from specsim.profiles import Mode
from specsim.serving.analytic.offered import Offered
from specsim.serving.arrivals import (
    ConstantArrivals,
    GammaArrivals,
    PoissonArrivals,
    ScheduledArrivals,
)
from specsim.serving.engines.settings import ServingEngine
from specsim.serving.levels import ServiceLevel, doubts_of, levels_of
from specsim.serving.planning.crossing import gains_from
from specsim.serving.planning.span import LEAST, MOST, requests_wanted
from specsim.serving.routing import Routing
from specsim.serving.step_model import StepModel
from specsim.serving.workload import DrawnWorkload, ServingWorkload
from specsim.serving.workload_summary import WorkloadSummary

# Draft lengths and degrees that are tried where none are named.
GAMMAS = (1, 2, 3, 4, 5, 7)
DEGREES = (1, 2, 4, 8)


def plan(
    workload: ServingWorkload | str | PathLike[str],
    *,
    slo: str | Mapping[str, float] | Sequence[ServiceLevel],
    alpha: AlphaLike | None = None,
    deployment: Deployment | Sequence[Deployment] | None = None,
    profile: str | PathLike[str] | None = None,
    temperature: float | None = None,
    mode: Mode | None = None,
    acceptance_law: AcceptanceLaw | None = None,
    step_model: StepModel | str | Mapping[str, float] | None = None,
    gammas: Sequence[int] | None = None,
    degrees: Sequence[int] | None = None,
    engine: ServingEngine | str = "vllm",
    routing: Routing = "round-robin",
    price: float | Mapping[str, float] | None = None,
    margin: float | None = None,
    simulated: bool = True,
    seed: int = 0,
    progress: Progress = quiet,
) -> CapacityPlan:
    """The cheapest set-up that keeps the service levels, with and without speculation.

    workload : of ``specsim.workload``, with a rate, or a file of requests with times; where it does
        not say how many requests, as many are simulated as come in ten stays of one, from 4,000 up
        to 60,000
    slo : limits in seconds or with their unit, such as ``"ttft_p99=1,tpot_p99=60ms"``, of means or
        percentiles
    deployment : the target and its drafters on cards; several are compared, one for each kind of
        cards
    alpha, profile, temperature, mode, acceptance_law, step_model, engine, routing : as of
        ``serve``
    gammas : draft lengths that are tried, and the best schedule of them by batch; None: 1, 2, 3, 4,
        5 and 7, as far as a drafter goes
    degrees : tensor parallel degrees; None: 1, 2, 4 and 8, unless a deployment names one above 1
    price : of an accelerator for an hour, or by the name of the accelerator; None: the fewest cards
        are the cheapest
    margin : what drafts must gain to be worth it; None: 0.05
    simulated : whether the best set-ups are simulated; else all is analytic, and ``routing`` must
        be round-robin
    seed : of the simulation: every set-up sees the same requests and the same luck
    progress : called with what is going on, how much of it is done and how much there is

    The analytic mode ranks all set-ups, and the simulator settles how many replicas the cheapest
    with drafts and without need: two of either kind, and more until the first that meets the levels
    was itself simulated, so that the answer always was.  Raises UnsupportedError where nothing at
    all can be planned; a plan that meets no level is a result, with the nearest set-up.
    """
    levels = levels_of(slo)
    if not levels:
        raise InvalidArgumentError("slo must have a level, such as ttft_p99=1,tpot_p99=0.06")
    for level in levels:
        if level.statistic is None:
            raise InvalidArgumentError(
                f"slo {level.name} is a limit of single requests, which a plan cannot promise: "
                f"give {level.name}_p99 or {level.name}_mean"
            )
    if not simulated and routing != "round-robin":
        raise InvalidArgumentError(
            f"routing must be round-robin where nothing is simulated (--analytic), got {routing}: "
            "there every replica has its share of the rate"
        )
    margin = DEFAULT_MARGIN if margin is None else number("margin", margin, low=0.0)
    asked_gammas = GAMMAS if gammas is None else gammas
    lengths = sorted({int(each) for each in np.atleast_1d(integers("gammas", asked_gammas, low=0))})
    draft_length("gammas", lengths[-1])
    if isinstance(workload, (str, PathLike)):
        workload = workload_of(workload)
    if workload.concurrency is not None:
        raise UnsupportedError(
            "a closed loop has no rate to plan for, as its requests wait for each other: give rate"
        )
    asked = workload.inputs
    drawn = workload if isinstance(workload, DrawnWorkload) else None
    if drawn is not None and not (drawn.requests is None and drawn.duration_s is None):
        drawn = None
    if drawn is not None and isinstance(drawn.arrivals, ScheduledArrivals):
        raise InvalidArgumentError(
            "duration_s (--duration) must say for how many seconds a schedule of rates is planned, "
            "whose last rate holds for ever"
        )
    if drawn is not None:
        workload = replace(drawn, requests=LEAST)
    requests = workload.draw(seed)
    summary = WorkloadSummary.of(requests)
    rate, cv = _rate_and_cv(workload, summary)
    offered = Offered.of(requests, cv)
    deployments = _deployments(deployment)
    if deployments:
        refuse(
            {"step_model": step_model}, "and deployment exclude each other: each prices every step"
        )
    else:
        refuse({"degrees": degrees}, "needs a deployment, whose cards it puts together")
    source = Source(alpha, None, profile, temperature, mode, acceptance_law)
    for deployed in deployments:
        replace(source, deployment=deployed).check()
        check_alpha(deployed, alpha)
    setups, left_out = planned_setups(
        deployments,
        source,
        lengths,
        _degrees(degrees, deployments),
        engine,
        requests,
        offered,
        margin,
        step_model,
        gammas is not None,
        progress,
    )
    _check_any(setups, left_out)
    prices = prices_of(price, setups)
    answers, advance = [], steps(progress, "ranking", len(setups))
    for each in setups:
        answers.append(analytic_answer(each, rate, levels, prices))
        advance()
    answers.sort(key=order)
    stays_s = {id(each.planned): each.figures["e2e_mean"] for each in answers if each.sustained}
    if simulated:
        more = requests_wanted(rate, longest_stay(answers))
        if drawn is not None and more > LEAST:
            workload = replace(drawn, requests=min(more, MOST))
            longer = workload.draw(seed)
            summary = WorkloadSummary.of(longer)
            answers, beyond = fitting(answers, longer)
            left_out += beyond
            _check_any(answers, left_out)
        settled = settling(workload, summary, levels, routing, rate, seed)
        answers = with_simulated(answers, levels, settled, progress)
    met = [each for each in answers if each.met(levels)]
    without = next((each for each in met if not each.planned.speculates), None)
    drafting = next((each for each in met if each.planned.speculates), None)
    best = cheapest(answers, without, drafting, margin, levels)
    told = [each for each in (best, drafting, without) if each is not None]
    told += other_cards(answers, told, levels)
    stay_s = max(stays_s.get(id(each.planned), 0.0) for each in told)
    context = mean_context(requests)
    sampling = best  # with intervals of chance alone
    own = speed_of(best.planned, best, rate, context)
    if best.settled is not None and own is not None:
        best = replace(best, settled=at_both_ends(best, own, workload, levels, routing, seed))
        drafting = best if drafting is sampling else drafting
        without = best if without is sampling else without
    gain = stops = starts = reason = None
    why = ""
    if drafting is not None:
        plain = plain_beside(drafting, answers)
        if plain is not None:
            speed = speed_of(drafting.planned, drafting, rate, context)
            if plain.per_card > 0 and drafting.per_card > 0:
                ratio = drafting.per_card / plain.per_card
                low, high = (speed.low, speed.high) if speed else (nan, nan)
                gain = Interval(ratio * low, ratio, ratio * high)
            pair = drafting.planned.replica, plain.planned.replica
            stops = stops_paying(*pair, speed, margin)
            starts = gains_from(*pair, 1.0 / (1.0 + margin))
            reason, why = reason_at(drafting, plain, stops[1], context, margin)
    return CapacityPlan(
        best=best,
        with_drafts=drafting,
        without=without,
        answers=tuple(answers),
        levels=levels,
        workload=summary,
        rate=rate,
        tokens_per_s=rate * offered.mean_output,
        stops=stops,
        starts=starts,
        reason=reason,
        why=why,
        replicas=replicas_interval(best, rate, levels, own),
        gain=gain,
        by_rate=by_rate(answers, rate, margin),
        sequences=sequences_of(best, rate) if best.replicas else None,
        context=context,
        error_budget=error_budget(sampling, rate, context, levels),
        inputs={
            "workload": asked,
            "slo": {each.name: each.limit_s for each in levels},
            **vars(source),
            "step_model": SetUpWords(None, source, step_model).said_of_steps,
            "deployment": list(deployments) or None,
            "gammas": lengths,
            "degrees": degrees,
            "engine": engine,
            "routing": routing,
            "price": price,
            "margin": margin,
            "simulated": simulated,
            "seed": seed,
        },
        warnings=(
            *doubts_of(levels),
            *warnings_of(workload, told, rate),
            *routing_doubts(routing, max(each.replicas for each in told), requests),
            *(too_short(summary, rate, stay_s) if simulated else ()),
        ),
        left_out=tuple(left_out),
    )


def _check_any(found: Sequence[object], left_out: Sequence[LeftOut]) -> None:
    if not found:
        raise UnsupportedError(
            "nothing can be planned: " + "; ".join(f"{each.what}: {each.why}" for each in left_out)
        )


def _rate_and_cv(workload: ServingWorkload, summary: WorkloadSummary) -> tuple[float, float]:
    """As it was asked for, or else of what was drawn."""
    match getattr(workload, "arrivals", None):
        case PoissonArrivals(rate=rate):
            return rate, 1.0
        case GammaArrivals(rate=rate, burstiness=burstiness):
            return rate, burstiness**-0.5
        case ConstantArrivals(rate=rate):
            return rate, 0.0
    if not np.isfinite(summary.rate):
        raise UnsupportedError("the workload has no rate: give rate")
    return summary.rate, summary.interval_cv


def _deployments(given: Deployment | Sequence[Deployment] | None) -> tuple[Deployment, ...]:
    if given is None:
        return ()
    return (given,) if isinstance(given, Deployment) else tuple(given)


def _degrees(
    asked: Sequence[int] | None, deployments: Sequence[Deployment]
) -> Sequence[int] | None:
    if asked is not None:
        return sorted({int(each) for each in np.atleast_1d(integers("degrees", asked, low=1))})
    return None if any(each.parallel.tensor > 1 for each in deployments) else DEGREES
