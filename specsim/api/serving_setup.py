"""What serves, from what a person says of it: an engine, what its steps cost, what is drafted."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from numbers import Integral
from typing import Literal

import numpy as np

from specsim.acceptance import acceptance_of
from specsim.api.model_runner import ModelRunner, with_all_drafts
from specsim.api.result import plain
from specsim.api.serving_costs import costs_with_drafts, law_rows, plain_costs
from specsim.api.serving_doubts import beyond_timed
from specsim.api.serving_engine import place_of, serving_engine, takes_schedules
from specsim.api.serving_error import known_speed
from specsim.batching.source import Source
from specsim.batching.workload import Load, draft_length
from specsim.checks import InvalidArgumentError, UnsupportedError, refuse
from specsim.deployment.drafters import Drafter, DraftModel, Parallel
from specsim.engines.schedule import Schedule, in_words
from specsim.files import short_digest
from specsim.intervals import Interval
from specsim.serving.acceptance import RoundAcceptance
from specsim.serving.adaptive_steps import AdaptiveSteps
from specsim.serving.costs.load_cost import step_model_of
from specsim.serving.costs.words import step_model_of_words
from specsim.serving.drafts import DraftPolicy
from specsim.serving.engines.settings import ServingEngine
from specsim.serving.engines.sglang import SglangEngine
from specsim.serving.requests import Requests
from specsim.serving.service import SetUp
from specsim.serving.step_model import StepModel
from specsim.serving.words import engine_of

Gamma = int | Literal["table"] | Schedule | AdaptiveSteps | None

# Heads that read the target's features, of which the last cached block has none.
_HEADS = ("eagle", "eagle3", "mtp")
# Drafters without a cache of their own.
_WITHOUT_CACHE = ("ngram", "suffix", "medusa")


@dataclass(frozen=True)
class SetUpWords:
    """What is said of a set-up; None is not said.  See ``specsim.serve``."""

    gamma: Gamma
    source: Source
    step_model: StepModel | str | Mapping[str, float] | None = None
    acceptance: RoundAcceptance | None = None
    engine: ServingEngine | str = "vllm"

    def __post_init__(self) -> None:
        if isinstance(self.gamma, str) and self.gamma != "table":
            raise InvalidArgumentError(
                "gamma must be a number of drafts, a schedule of (first batch, last batch, gamma), "
                f"AdaptiveSteps or 'table', got {self.gamma!r}"
            )

    @property
    def said_of_steps(self) -> str | Mapping[str, float] | None:
        """The step model as an answer's inputs name it."""
        if isinstance(self.step_model, StepModel):
            return f"{len(self.step_model.terms)} terms {short_digest([plain(self.step_model)])}"
        return self.step_model


@dataclass(frozen=True, eq=False)
class FoundSetUp:
    """A set-up, what its seconds rest on, and what is taken for granted.

    speed_at : how much faster steps may be with so many requests that decode, as a factor with its
        95 % interval; None where nobody knows
    of_length : the same with always so many drafts, up to its longest: an engine's largest graph,
        and what it keeps for drafts, go by those; steps are priced once
    of_schedule : the same with so many drafts by batch, priced as the engine makes them
    doubts : of so many drafts, and of the engine with them
    by_batch : whether the engine takes a draft length for each batch of what drafts
    """

    setup: SetUp
    basis: str
    of_length: Callable[[int], SetUp]
    of_schedule: Callable[[Schedule], SetUp]
    speed_at: Callable[[float], Interval[float] | None]
    warnings: tuple[str, ...] = ()
    doubts: Callable[[DraftPolicy], Sequence[str]] = lambda drafts: ()
    by_batch: bool = True


def set_up(words: SetUpWords, requests: Requests) -> FoundSetUp:
    """The set-up that is meant, for requests like these."""
    if words.step_model is not None:
        return _of_step_model(words)
    source = words.source
    gamma: Gamma = words.gamma
    if isinstance(gamma, Integral):
        gamma = draft_length("gamma", gamma)
    drafting = gamma not in (None, 0)
    longest = draft_length("gamma", _longest(gamma))
    context = mean_context(requests)
    costs = costs_with_drafts(source, longest) if drafting else plain_costs(source)
    place = place_of(source, costs.cost)
    engine = serving_engine(words.engine, place, costs, longest, context)
    limits = DraftPolicy.fixed(longest or 1) if drafting else DraftPolicy.off()
    most = engine.settings(limits).max_seqs
    asked: Schedule | AdaptiveSteps = []
    if drafting:
        asked = _schedule(gamma, source, most, context)
        if longest is None:
            # The engine of a table is that of its longest drafts.
            engine = serving_engine(words.engine, place, costs, _longest(asked), context)
            most = engine.settings(DraftPolicy.fixed(_longest(asked) or 1)).max_seqs
    by_batch = takes_schedules(engine, place, costs.drafter, costs.method)
    if not by_batch and _changes(asked):
        drafter = costs.drafter.label if costs.drafter else costs.method
        title = "SGLang" if isinstance(engine, SglangEngine) else "vLLM"
        raise UnsupportedError(
            f"{title} takes no draft lengths by batch with {drafter} here: gamma must be one "
            f"number, got {in_words(asked) if isinstance(asked, list) else 'adaptive'}"
        )
    drafts, acceptance = DraftPolicy.off(), None
    warnings = [*costs.warnings, *beyond_timed(costs.cost, context, most)]
    if place is not None and place.parallel.pipeline > 1:
        warnings.append(
            f"a prompt goes through all {place.parallel.pipeline} stages of the pipeline before "
            "the next step, where engines keep them busy with other batches: prompts take too long "
            "here"
        )
    if requests.prefix is not None and engine.kv_groups:
        warnings.append(
            "some layers see a window: what prompts share is read by every request here, though "
            "vLLM finds some of it in its cache"
        )
    if drafting:
        drafts = _policy(asked, costs.drafter, costs.method)
    if drafts.schedule:
        acceptance = words.acceptance or costs.trace
        if acceptance is None and costs.survival is not None:
            acceptance = RoundAcceptance.law(law_rows(costs.survival, max(drafts.gamma_max, 1)))
    bonus = np.ones(1)
    if drafts.gamma_max and costs.workload is not None:
        bonus = costs.workload.gains.bonus
    context_max = int((requests.prompt_tokens + requests.output_tokens).max())
    graphs = source.deployment and source.deployment.efficiency.graph_tokens
    runner = ModelRunner.of(engine, costs.cost, costs.drafter)

    @cache
    def model_of(always: int | None) -> StepModel:
        cost = with_all_drafts(costs.cost, always)
        return step_model_of(cost, drafts.gamma_max, bonus, most, context_max, graphs or None)

    def of_length(gamma: int) -> SetUp:
        own = serving_engine(words.engine, place, costs, gamma, context)
        policy = _policy(_as_schedule(gamma), costs.drafter, costs.method)
        return SetUp(own, model_of(None), policy, acceptance)

    def of_policy(policy: DraftPolicy) -> SetUp:
        return SetUp(engine, model_of(runner.always(policy)), policy, acceptance)

    def of_schedule(schedule: Schedule) -> SetUp:
        return of_policy(replace(drafts, schedule=tuple(schedule)))

    def speed_at(batch: float) -> Interval[float] | None:
        decodes = max(round(batch), 1)
        gamma = int(drafts.gammas(decodes)[decodes])
        chosen = words.gamma == "table"
        return known_speed(
            source.deployment, costs.workload, gamma, decodes, context, chosen=chosen
        )

    def doubts(policy: DraftPolicy) -> Sequence[str]:
        notes = costs.workload.notes(policy.gamma_max) if costs.workload and policy.schedule else ()
        return (*notes, *runner.doubts(policy))

    return FoundSetUp(
        setup=of_policy(drafts),
        basis=costs.basis,
        of_length=of_length,
        of_schedule=of_schedule,
        speed_at=speed_at,
        warnings=tuple(warnings),
        doubts=doubts,
        by_batch=by_batch,
    )


def _policy(
    asked: Schedule | AdaptiveSteps, drafter: Drafter | None = None, method: str | None = None
) -> DraftPolicy:
    """With what the engine does for this kind of drafter."""
    adaptive = asked if isinstance(asked, AdaptiveSteps) else None
    schedule = tuple(asked.schedule if isinstance(asked, AdaptiveSteps) else asked)
    return DraftPolicy(
        schedule,
        drops_last_cached_block=method in _HEADS or _reads_features(drafter),
        looks_one_further=isinstance(drafter, Parallel) and drafter.kind == "dflash",
        slots_for_drafting=_slots_for_drafting(drafter, method, DraftPolicy(schedule).gamma_max),
        keeps_no_cache=method in _WITHOUT_CACHE,
        adaptive=adaptive,
    )


def _reads_features(drafter: Drafter | None) -> bool:
    """Of those that draft in parallel: P-EAGLE and DFlash (vllm/config/speculative.py,
    use_eagle).
    """
    return isinstance(drafter, Parallel) and drafter.kind in ("p_eagle", "dflash")


def _slots_for_drafting(drafter: Drafter | None, method: str | None, longest: int) -> int:
    """vllm/config/speculative.py, max_num_new_slots_for_drafting."""
    if isinstance(drafter, Parallel):
        # The other kinds draft from the last token's own slot.
        return longest if drafter.kind in ("pard", "dflash") else max(longest - 1, 0)
    return int(method == DraftModel.method)


def mean_context(requests: Requests) -> int:
    """Tokens in the cache of a request in the mean over the tokens that are emitted."""
    weights = requests.output_tokens.astype(np.float64)
    return round(float(np.average(requests.prompt_tokens + weights / 2, weights=weights)))


def _of_step_model(words: SetUpWords) -> FoundSetUp:
    source = words.source
    refuse(
        {"deployment": source.deployment, "profile": source.profile},
        "and step_model exclude each other: each says what steps cost",
    )
    source.check()
    if words.gamma == "table":
        raise UnsupportedError(
            "gamma table needs a deployment or profile, whose best draft lengths optimize finds"
        )
    model = words.step_model
    assert model is not None, "asked for where it is said"
    if not isinstance(model, StepModel):
        model = step_model_of_words(model)
    engine = words.engine
    if isinstance(engine, str):
        engine = engine_of(engine)
    asked = _as_schedule(words.gamma)
    if not asked:
        plain = SetUp(engine, model.without_drafter())
        return FoundSetUp(
            plain, "steps as given", lambda gamma: plain, lambda schedule: plain, _not_known
        )
    warnings: tuple[str, ...] = ()
    if not model.prices_drafts:
        warnings = (
            "drafts are free here: nothing that a step costs is of the drafter (draft_run_ms, "
            "draft_token_us), so that what they gain is a bound",
        )
    drafts, acceptance = _policy(asked), words.acceptance
    if acceptance is None:
        if source.alpha is None:
            raise InvalidArgumentError("alpha is missing: how often drafts are accepted")
        curve = acceptance_of(source.alpha).survival
        acceptance = RoundAcceptance.law(law_rows(curve, max(drafts.gamma_max, 1)))
    setup = SetUp(engine, model, drafts, acceptance)

    def of_length(gamma: int) -> SetUp:
        return replace(setup, drafts=_policy(_as_schedule(gamma)))

    def of_schedule(schedule: Schedule) -> SetUp:
        return replace(setup, drafts=replace(drafts, schedule=tuple(schedule)))

    return FoundSetUp(setup, "steps as given", of_length, of_schedule, _not_known, warnings)


def _not_known(batch: float) -> None:
    """How far off steps are that somebody gave."""


def _schedule(gamma: Gamma, source: Source, most: int, context: int) -> Schedule | AdaptiveSteps:
    if gamma != "table":
        return _as_schedule(gamma)
    from specsim.api.by_load import plan_load

    found = plan_load(Load(range(1, most + 1), [context]), source)
    return found.settings[0].plans[0].schedule


def _as_schedule(gamma: Gamma) -> Schedule | AdaptiveSteps:
    if isinstance(gamma, AdaptiveSteps):
        return gamma
    if gamma in (None, 0):
        return []
    if isinstance(gamma, Integral):
        return [(1, 1, int(gamma))]
    assert not isinstance(gamma, (int, str, type(None))), "a schedule"
    return list(gamma)


def _changes(asked: Schedule | AdaptiveSteps) -> bool:
    """Whether draft lengths are not one for all batches."""
    return isinstance(asked, AdaptiveSteps) or len({gamma for *_, gamma in asked}) > 1


def _longest(gamma: Gamma) -> int | None:
    if isinstance(gamma, AdaptiveSteps):
        return gamma.gamma_max
    schedule = [] if gamma == "table" else _as_schedule(gamma)
    return _policy(schedule).gamma_max if schedule else None
