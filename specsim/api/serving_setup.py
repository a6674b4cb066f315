"""What serves, from what a person says of it: an engine, what its steps cost, what is drafted."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from numbers import Integral
from pathlib import Path
from typing import Literal

import numpy as np

from specsim.acceptance import Acceptance, acceptance_of
from specsim.api.model_runner import ModelRunner, with_all_drafts
from specsim.api.result import plain
from specsim.api.serving_acceptance import profile_trace, trace_behind
from specsim.api.serving_doubts import beyond_timed
from specsim.api.serving_error import known_speed
from specsim.batching.cost import LoadCost
from specsim.batching.measured_cost import MeasuredLoadCost
from specsim.batching.source import Source
from specsim.batching.workload import BatchWorkload, Load, draft_length
from specsim.checks import Floats, InvalidArgumentError, UnsupportedError, refuse
from specsim.counts.file import is_acceptance
from specsim.deployment.cost import DeployedCost
from specsim.deployment.deployment import Deployment, draft_parallelism
from specsim.deployment.drafters import Drafter, DraftModel, Ngram, Parallel
from specsim.deployment.heads import draft_shapes
from specsim.deployment.memory import BLOCK_TOKENS, CardMemory, card_memory
from specsim.engines.schedule import Schedule
from specsim.files import short_digest
from specsim.intervals import Interval
from specsim.profiles import read_profile
from specsim.serving.acceptance import RoundAcceptance
from specsim.serving.adaptive_steps import AdaptiveSteps
from specsim.serving.costs.load_cost import step_model_of
from specsim.serving.costs.words import step_model_of_words
from specsim.serving.drafts import DraftPolicy
from specsim.serving.engines.kv_groups import KvGroup, kv_pool
from specsim.serving.engines.settings import ServingEngine
from specsim.serving.requests import Requests
from specsim.serving.service import SetUp
from specsim.serving.step_model import StepModel
from specsim.serving.words import EngineDefaults, engine_of

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
    doubts : of the engine with such drafts
    """

    setup: SetUp
    basis: str
    of_length: Callable[[int], SetUp]
    of_schedule: Callable[[Schedule], SetUp]
    speed_at: Callable[[float], Interval[float] | None]
    warnings: tuple[str, ...] = ()
    doubts: Callable[[DraftPolicy], Sequence[str]] = lambda drafts: ()


@dataclass(frozen=True, eq=False)
class _Costs:
    """What steps cost at any load, what is accepted, and the words for both.

    method : where drafts come from, as engines call it; None: not known
    longest : tokens of one request that the models take; None: not known
    """

    cost: LoadCost
    basis: str
    survival: Callable[[int], Floats] | None
    trace: RoundAcceptance | None = None
    workload: BatchWorkload | None = None
    drafter: Drafter | None = None
    method: str | None = None
    longest: int | None = None
    warnings: tuple[str, ...] = ()


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
    costs = _with_drafts(source, longest) if drafting else _plain(source)
    place = _place(source, costs.cost)
    engine = _engine(words.engine, place, costs, longest, context)
    limits = DraftPolicy.fixed(longest or 1) if drafting else DraftPolicy.off()
    most = engine.settings(limits).max_seqs
    drafts, acceptance = DraftPolicy.off(), None
    warnings = [*costs.warnings, *beyond_timed(costs.cost, context, most)]
    if requests.prefix is not None and engine.kv_groups:
        warnings.append(
            "some layers see a window: what prompts share is read by every request here, though "
            "vLLM finds some of it in its cache"
        )
    if drafting:
        drafts = _policy(_schedule(gamma, source, most, context), costs.drafter, costs.method)
    if drafts.schedule:
        acceptance = words.acceptance or costs.trace
        if acceptance is None and costs.survival is not None:
            acceptance = RoundAcceptance.law(law_rows(costs.survival, max(drafts.gamma_max, 1)))
        if costs.workload is not None:
            warnings += costs.workload.notes(drafts.gamma_max)
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
        own = _engine(words.engine, place, costs, gamma, context)
        policy = _policy(_as_schedule(gamma), costs.drafter, costs.method)
        return SetUp(own, model_of(None), policy, acceptance)

    def of_policy(policy: DraftPolicy) -> SetUp:
        return SetUp(engine, model_of(runner.always(policy)), policy, acceptance)

    def of_schedule(schedule: Schedule) -> SetUp:
        return of_policy(replace(drafts, schedule=tuple(schedule)))

    def speed_at(batch: float) -> Interval[float] | None:
        decodes = max(round(batch), 1)
        gamma = int(drafts.gammas(decodes)[decodes])
        return known_speed(source.deployment, costs.workload, gamma, decodes, context)

    return FoundSetUp(
        setup=of_policy(drafts),
        basis=costs.basis,
        of_length=of_length,
        of_schedule=of_schedule,
        speed_at=speed_at,
        warnings=tuple(warnings),
        doubts=runner.doubts,
    )


def _place(source: Source, cost: LoadCost) -> Deployment | None:
    """What serves: as named, or as a profile was timed on, where that is known."""
    if isinstance(cost, MeasuredLoadCost) and cost.deployed is not None:
        return cost.deployed.deployment
    return source.deployment


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


def law_rows(survival: Callable[[int], Floats], longest: int) -> Floats:
    """(K, K) P(the first j drafts stand) by draft length and j, from curves S_0..S_gamma."""
    rows = np.zeros((longest, longest))
    for gamma in range(1, longest + 1):
        rows[gamma - 1, :gamma] = survival(gamma)[1:]
    return rows


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


def _plain(source: Source) -> _Costs:
    """Costs of plain decoding, whatever is known of drafts."""
    source.check()
    if source.deployment is not None:
        deployment = replace(source.deployment, drafters=())
        return _Costs(
            DeployedCost(deployment, None, 1),
            _basis_of(deployment),
            None,
            longest=deployment.shape.longest_context or None,
            warnings=deployment.doubts,
        )
    if source.alpha is None and source.profile and _is_of_costs_alone(Path(source.profile)):
        source = replace(source, alpha=0.0)  # nothing is drafted, whatever would be accepted
    workload = _one(source, None)
    return _Costs(
        workload.cost,
        workload.basis.of_times,
        None,
        longest=workload.context,
        warnings=workload.doubts,
    )


def _is_of_costs_alone(path: Path) -> bool:
    return not is_acceptance(path) and not read_profile(path).acceptance


def _with_drafts(source: Source, gamma_max: int | None) -> _Costs:
    workload = _one(source, gamma_max)
    drafter = source.deployment.drafters[0] if source.deployment is not None else None
    trace: RoundAcceptance | None = None
    doubts: tuple[str, ...] = ()
    survival: Callable[[int], Floats] | None = None
    alpha = source.alpha
    if alpha is None and drafter is not None:
        alpha = drafter.alpha
    if alpha is not None:
        survival = acceptance_of(alpha).survival
    elif source.profile is not None:
        path = Path(source.profile)
        if is_acceptance(path):
            from specsim.extrapolation.from_file import counted_acceptance

            counted: Acceptance = acceptance_of(counted_acceptance(path, source.temperature))
            survival = counted.survival
            trace, doubts = trace_behind(path)
        else:
            trace = profile_trace(path, workload.temperature, source.acceptance_law)
    if isinstance(drafter, Ngram) and survival is not None:
        survival = _found(drafter, survival)
    method: str | None = workload.method if drafter is None else drafter.method
    if method is None and source.profile is not None and not is_acceptance(Path(source.profile)):
        method = DraftModel.method  # a profile is of two models
    if isinstance(workload.cost, MeasuredLoadCost) and workload.cost.deployed is not None:
        drafter = workload.cost.deployed.drafter
    return _Costs(
        workload.cost,
        workload.basis.of_times,
        survival,
        trace,
        workload,
        drafter,
        method,
        workload.context,
        (*workload.doubts, *doubts),
    )


def _one(source: Source, gamma_max: int | None) -> BatchWorkload:
    found = source.workloads(gamma_max)
    if len(found) > 1:
        names = "; ".join(each.name for each in found)
        raise InvalidArgumentError(
            f"one setting is served, and here are {len(found)}: {names}; name one drafter, or one "
            "temperature"
        )
    return found[0]


def _found(drafter: Ngram, survival: Callable[[int], Floats]) -> Callable[[int], Floats]:
    """Drafts that must be found: in a round that has none, none stands."""

    def curve(gamma: int) -> Floats:
        found = survival(gamma).copy()
        found[1:] *= drafter.match * drafter.lengths(gamma)
        return found

    return curve


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


def _longest(gamma: Gamma) -> int | None:
    if isinstance(gamma, AdaptiveSteps):
        return gamma.gamma_max
    schedule = [] if gamma == "table" else _as_schedule(gamma)
    return _policy(schedule).gamma_max if schedule else None


def _basis_of(deployment: Deployment) -> str:
    return f"step times at {deployment.words}" if deployment.is_bound else deployment.words


def _engine(
    engine: ServingEngine | str,
    deployment: Deployment | None,
    costs: _Costs,
    gamma: int | None,
    context: int,
) -> ServingEngine:
    """The engine that is meant; a deployment tells its card, how many blocks its memory has, and
    how large its CUDA graphs are.
    """
    if not isinstance(engine, str):
        return engine
    defaults = EngineDefaults(longest=costs.longest)
    if deployment is not None:
        if deployment.parallel.data > 1:
            raise UnsupportedError(
                "data_parallel has no meaning for one replica: give tensor_parallel, and replicas"
            )
        blocks = memory_blocks(deployment, costs.drafter, context, gamma or 0)
        groups, group_tokens = memory_groups(deployment, costs.drafter, context, gamma or 0)
        defaults = EngineDefaults(
            cache_tokens=blocks * BLOCK_TOKENS,
            kv_groups=groups,
            group_tokens=group_tokens,
            longest=costs.longest,
            card=deployment.card,
            tensor_parallel=deployment.parallel.tensor,
            graph_tokens=deployment.efficiency.graph_tokens,
            gamma_max=gamma or 0,
        )
    return engine_of(engine, defaults)


def memory_blocks(deployment: Deployment, drafter: Drafter | None, context: int, gamma: int) -> int:
    """KV blocks of 16 tokens that the memory of the cards holds beside the weights.

    context : tokens of a request, where what it keeps is not in proportion to them
    """
    memory = card_memory(deployment, drafter, context, gamma)
    per_request = -(-(context + gamma + 1) // BLOCK_TOKENS)
    return int(_left(memory, deployment, context) / memory.request * per_request)


def memory_groups(
    deployment: Deployment, drafter: Drafter | None, context: int, gamma: int
) -> tuple[tuple[KvGroup, ...], int | None]:
    """Groups of layers that have blocks of their own in vLLM, and the tokens that all blocks hold
    of one group; none where all layers have theirs together.
    """
    models = [(deployment.shape, deployment.parallel)]
    shapes = None if drafter is None else draft_shapes(drafter, deployment.shape, gamma)
    if drafter is not None and shapes is not None:
        models.append((shapes.loaded, draft_parallelism(deployment, drafter)))
    pool = kv_pool(models)
    if pool is None:
        return (), None
    left = _left(card_memory(deployment, drafter, context, gamma), deployment, context)
    return pool.groups, int(left / pool.token_bytes)


def _left(memory: CardMemory, deployment: Deployment, context: int) -> float:
    """Bytes beside the weights; InvalidArgumentError where not one request fits."""
    left = memory.usable - memory.target - memory.draft
    if left < memory.request:
        raise InvalidArgumentError(
            f"{deployment.name} leaves no room for a request of {context:,} tokens on "
            f"{deployment.card.name}; it may fit on more cards, or in another dtype"
        )
    return left
