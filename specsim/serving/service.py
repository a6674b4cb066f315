"""A set-up and the requests that it serves: one engine, or replicas of it behind a router."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, field, replace

import numpy as np

from specsim.checks import Floats, Ints, InvalidArgumentError, check_choice, integer
from specsim.serving.acceptance import RoundAcceptance
from specsim.serving.drafts import DraftPolicy
from specsim.serving.engines.settings import ServingEngine
from specsim.serving.metrics import Figures, RequestTimes
from specsim.serving.requests import Requests
from specsim.serving.result import ServingRun
from specsim.serving.routing import (
    ROUTINGS,
    PrefixAware,
    Routing,
    parts,
    round_robin,
    route,
)
from specsim.serving.simulation import run
from specsim.serving.step_model import StepModel

# Tokens that a simulation takes through steps: some minutes to half an hour.  Prompts are read many
# at once, so that they count as fewer.
_MOST_TOKENS = 10**9
_PROMPT_SHARE = 64


@dataclass(frozen=True, eq=False)
class SetUp:
    """What serves.

    engine : of every replica
    step_model : seconds of its steps
    drafts : how many tokens are drafted; off by default
    acceptance : what rounds emit; None where nothing is drafted
    replicas : engines that share nothing
    routing : who gets a request
    prefix_aware : thresholds of that routing
    """

    engine: ServingEngine
    step_model: StepModel
    drafts: DraftPolicy = field(default_factory=DraftPolicy.off)
    acceptance: RoundAcceptance | None = None
    replicas: int = 1
    routing: Routing = "round-robin"
    prefix_aware: PrefixAware = field(default_factory=PrefixAware)

    def __post_init__(self) -> None:
        integer("replicas", self.replicas, low=1, high=10_000)
        check_choice("routing", self.routing, ROUTINGS)

    @property
    def certain(self) -> bool:
        """Whether the same requests take the same time whatever the seed."""
        rounds = self.acceptance is None or self.acceptance.certain
        return rounds and not self.step_model.scatters


@dataclass(frozen=True, eq=False)
class Served:
    """N requests through the replicas of a set-up.

    split : (N,) the replica of each
    runs : of the replicas that got some
    chosen : of each run, the indices of its requests
    """

    requests: Requests
    split: Ints
    runs: tuple[ServingRun, ...]
    chosen: tuple[Ints, ...]

    def each(self, name: str) -> Floats:
        """(N,) of all requests what the runs say of each, such as ``first_token_s``."""
        values = [np.asarray(getattr(run, name)) for run in self.runs]
        found = np.empty(len(self.requests), values[0].dtype)
        for chosen, value in zip(self.chosen, values, strict=True):
            found[chosen] = value
        return found

    @property
    def times(self) -> RequestTimes:
        """When every request arrived and got its tokens; with the gaps, where rounds were kept."""
        gaps, whose = [np.zeros(0)], [np.zeros(0, np.int64)]
        for run_of, chosen in zip(self.runs, self.chosen, strict=True):
            log = run_of.round_log
            if log is not None:
                order = np.argsort(log.request, kind="stable")
                request, end = log.request[order], log.end_s[order]
                same = request[1:] == request[:-1]
                gaps.append(np.diff(end)[same])
                whose.append(chosen[request[1:][same]])
        return RequestTimes(
            self.each("arrival_s"),
            self.each("first_token_s"),
            self.each("last_token_s"),
            self.requests.output_tokens,
            np.concatenate(gaps),
            np.concatenate(whose),
        )

    @property
    def arrived(self) -> Requests:
        """The requests in the order in which they came, at these times: in a closed loop each comes
        where one of its replica is done.
        """
        times = self.each("arrival_s")
        order = np.argsort(times, kind="stable")
        at_once = replace(self.requests, arrival_s=np.zeros_like(times))
        return replace(at_once.take(order), arrival_s=times[order])

    @property
    def queue_grew(self) -> bool:
        """Whether some replica was asked for more than it can do."""
        return any(each.queue_grew for each in self.runs)


def serve_requests(
    setup: SetUp,
    requests: Requests,
    *,
    concurrency: int | None = None,
    seed: int = 0,
    keep: Collection[str] = ("steps",),
) -> Served:
    """Each request through the replica that it is routed to; how many replicas there are, and which
    has it, changes nothing of which of its drafts are accepted.

    concurrency : of a closed loop, whose requests are shared out in turn: each replica keeps its
        own part of the concurrency
    seed : of what is random in acceptance and in seconds, below 2**53
    keep : ``steps`` and ``rounds``, what runs log
    """
    integer("seed", seed, high=2**53 - 1)
    tokens = int(requests.output_tokens.sum()) + int(requests.prompt_tokens.sum()) // _PROMPT_SHARE
    if tokens > _MOST_TOKENS:
        raise InvalidArgumentError(
            f"requests have {tokens:,} tokens to go through step by step (prompts by the "
            f"{_PROMPT_SHARE}), at most {_MOST_TOKENS:,} are simulated; give fewer requests "
            "(--requests, --duration)"
        )
    if concurrency is not None and setup.replicas > 1:
        if setup.routing != "round-robin":
            raise InvalidArgumentError(
                f"routing {setup.routing} has no meaning in a closed loop, whose requests come "
                "where one is done; take round-robin"
            )
        if concurrency < setup.replicas:
            raise InvalidArgumentError(
                f"concurrency must be >= replicas = {setup.replicas}, got {concurrency}"
            )

    if setup.acceptance is not None:
        setup = replace(setup, acceptance=setup.acceptance.of_requests(len(requests), seed))
    split = _split(setup, requests, seed, concurrency)
    chosen = parts(split, setup.replicas)
    runs = [
        run(
            requests.take(some),
            setup.engine,
            setup.step_model,
            setup.drafts,
            setup.acceptance,
            concurrency=_share(concurrency, replica, setup.replicas),
            seed=seed,
            numbers=some,
            keep=keep,
        )
        for replica, some in enumerate(chosen)
        if some.size
    ]
    return Served(requests, split, tuple(runs), tuple(some for some in chosen if some.size))


def _split(setup: SetUp, requests: Requests, seed: int, concurrency: int | None) -> Ints:
    """(N,) the replica of every request."""
    if concurrency is not None:
        # Of those that each may have at a time, so that all are busy to the end.
        return round_robin(len(requests), concurrency) % setup.replicas
    if setup.routing == "round-robin" or setup.replicas == 1:
        return round_robin(len(requests), setup.replicas)
    from specsim.serving.replica import Replica  # with numba

    servers = [
        Replica(requests, setup.engine, setup.step_model, setup.drafts, setup.acceptance, seed)
        for _ in range(setup.replicas)
    ]
    aware = setup.prefix_aware if setup.routing == "prefix-aware" else None
    return route(requests, servers, aware)


def engine_figures(served: Served, setup: SetUp) -> Figures:
    """What the engine did: requests in a step, its queue, its cache, what a round emitted.

    Means over time are over the time of the steps, of all replicas alike.
    """
    found: Figures = {}
    outputs, rounds = int(served.requests.output_tokens.sum()), int(served.each("rounds").sum())
    decoded, n = rounds - len(served.requests), len(served.requests)
    found["tokens_per_call"] = (outputs - n) / decoded if decoded > 0 else float("nan")
    found["preemptions"] = float(served.each("preemptions").sum())
    prompts = float(served.requests.prompt_tokens.sum())
    found["cached_prompt_share"] = float(served.each("cached_tokens").sum()) / prompts
    found["steps"] = float(sum(each.step_count for each in served.runs))
    spans = sum(each.makespan_s for each in served.runs)
    found["busy"] = sum(each.busy_s for each in served.runs) / spans if spans else float("nan")
    logs = [each.steps for each in served.runs if each.steps is not None]
    if not logs:
        return found
    seconds = np.concatenate([each.seconds for each in logs])
    blocks = setup.engine.settings(setup.drafts).blocks
    for name, column in (("batch", "sequences"), ("queue", "waiting")):
        values = np.concatenate([getattr(each, column) for each in logs])
        found[f"{name}_mean"] = float(np.average(values, weights=seconds))
        found[f"{name}_p99"] = _weighted_percentile(values, seconds, 0.99)
        found[f"{name}_max"] = float(values.max())
    running = np.concatenate([each.running for each in logs])
    found["running_p999"] = _weighted_percentile(running, seconds, 0.999)
    found["cache_peak"] = max(float(each.used_blocks.max()) for each in logs) / blocks
    found["step_s"] = float(seconds.mean())
    total = sum(float(part.sum()) for each in logs for part in each.parts.values())
    for name in logs[0].parts:
        share = sum(float(each.parts[name].sum()) for each in logs) / total
        found[f"share_{name}"] = share
    return found


def _weighted_percentile(values: Ints, weights: Floats, share: float) -> float:
    """The least value that holds for at least this share of the weight."""
    order = np.argsort(values, kind="stable")
    reached = np.cumsum(weights[order])
    return float(values[order][np.searchsorted(reached, share * reached[-1])])


def _share(concurrency: int | None, replica: int, replicas: int) -> int | None:
    if concurrency is None:
        return None
    return concurrency // replicas + (replica < concurrency % replicas)
