"""``specsim.serve``: one set-up under load, simulated step by step."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from math import isnan
from os import PathLike

import numpy as np

from specsim.acceptance import AcceptanceLaw, AlphaLike
from specsim.api.progress import Progress, quiet, steps
from specsim.api.result import LeftOut, Row
from specsim.api.serving_doubts import beyond_graphs, routing_doubts, undrafted
from specsim.api.serving_result import LevelOutcome, Serving
from specsim.api.serving_setup import Gamma, SetUpWords, set_up
from specsim.api.workload import workload as workload_of
from specsim.batching.source import Source
from specsim.checks import InvalidArgumentError, UnsupportedError, integer, significant
from specsim.deployment.deployment import Deployment
from specsim.profiles import Mode
from specsim.serving.acceptance import RoundAcceptance
from specsim.serving.engines.settings import ServingEngine
from specsim.serving.levels import ServiceLevel, doubts_of, levels_of
from specsim.serving.metrics import (
    LONGEST_TAIL,
    SHORT_SPAN_STAYS,
    Measured,
    RequestTimes,
    measure,
    short_span,
    tail_share,
)
from specsim.serving.requests import Requests
from specsim.serving.routing import PrefixAware, Routing
from specsim.serving.service import Served, SetUp, engine_figures, serve_requests
from specsim.serving.spread import MOST_WORKERS, intervals, replicate, widened
from specsim.serving.step_model import StepModel
from specsim.serving.workload import ServingWorkload, serving_seed
from specsim.serving.workload_summary import WorkloadSummary

# More tokens than this make no log of every round; gaps between tokens are then left out.
_MOST_ROUNDS = 20_000_000


def serve(
    workload: ServingWorkload | str | PathLike[str],
    *,
    gamma: Gamma = None,
    alpha: AlphaLike | None = None,
    deployment: Deployment | None = None,
    profile: str | PathLike[str] | None = None,
    temperature: float | None = None,
    mode: Mode | None = None,
    acceptance_law: AcceptanceLaw | None = None,
    step_model: StepModel | str | Mapping[str, float] | None = None,
    acceptance: RoundAcceptance | None = None,
    engine: ServingEngine | str = "vllm",
    replicas: int = 1,
    routing: Routing = "round-robin",
    prefix_aware: PrefixAware | None = None,
    slo: str | Mapping[str, float] | Sequence[ServiceLevel] | None = None,
    warmup: float = 0.0,
    replications: int = 1,
    workers: int = 1,
    seed: int = 0,
    progress: Progress = quiet,
) -> Serving:
    """Latency, throughput and goodput of a set-up under load, and what its engine does.

    workload : of ``specsim.workload``, or a file of requests with times
    gamma : drafts of a round; a schedule of (first batch, last batch, gamma); AdaptiveSteps, which
        follow what was accepted as SGLang's do; ``"table"``, the one
        that ``optimize`` finds by load at the workload's mean context; None or 0: plain decoding,
        and no drafter is loaded
    alpha, deployment, profile, temperature, mode, acceptance_law : acceptance and costs, as of
        ``optimize`` by load; a profile's trace is replayed by request and position
    step_model : seconds of a step, in place of a deployment or profile: a StepModel, or
        coefficients such as ``"step_ms=5,token_us=20"`` (specsim.serving.costs.coefficients), or
        tables of kernels such as ``"kernels:FOLDER,layers=32"``
    acceptance : what rounds emit, in place of alpha
    engine : a VllmEngine, or words such as ``"vllm:max_num_seqs=128"``.  A deployment tells
        ``num_gpu_blocks`` where they do not.
    replicas, routing : engines behind a router: ``round-robin``, ``least-outstanding`` or
        ``prefix-aware``, whose thresholds are ``prefix_aware``
    slo : limits in seconds, such as ``"ttft_p99=1,tpot_p99=0.06"``: percentiles and means are met
        or not, and a request counts for goodput if it keeps the limits of its ttft, tpot and e2e
    warmup : share of the requests, the first to arrive, that are not counted
    replications : independent repeats, for intervals; of one, batches of requests give them
    workers : processes that share the replications; the result is the same for any number
    seed : of all that is random: the same seed sees the same requests, and the same luck of their
        drafts, at every gamma
    progress : called with what is going on, how much of it is done and how much there is

    Where costs and acceptance come with an error (drafts of a profile or of an engine's step times,
    a fit on its own card), the first replication is simulated at both ends of what that leaves of
    the speed, too, and intervals hold both.  It is the error of a speedup, taken for one of all
    steps, those that read prompts among them; how long a plain step takes at another time is not in
    it.
    """
    integer("workers", workers, low=1, high=MOST_WORKERS)
    if isinstance(workload, (str, PathLike)):
        workload = workload_of(workload)
    levels = levels_of(slo)
    first = workload.draw(seed)
    source = Source(alpha, deployment, profile, temperature, mode, acceptance_law)
    words = SetUpWords(gamma, source, step_model, acceptance, engine)
    found = set_up(words, first)
    setup = replace(
        found.setup,
        replicas=replicas,
        routing=routing,
        prefix_aware=prefix_aware or PrefixAware(),
    )
    count = integer("replications", replications, low=1, high=10_000)
    if count > 1 and _is_certain(workload, setup, first, workload.draw(seed, 1)):
        raise InvalidArgumentError(
            f"replications must be 1, got {count}: nothing in these runs is random"
        )
    rounds = int(first.output_tokens.sum()) <= _MOST_ROUNDS
    if not rounds and (gaps := [each.name for each in levels if each.latency == "itl"]):
        raise UnsupportedError(
            f"slo {gaps[0]} needs every round of {int(first.output_tokens.sum()):,} tokens, and at "
            f"most {_MOST_ROUNDS:,} are kept: take fewer requests, or a level of tpot"
        )
    repeat = _Replication(workload, setup, levels, warmup, rounds, seed)
    served = repeat.serve(0)
    runs = [measure(served.times, levels, warmup, resample=count == 1)]
    if count > 1:
        advance = steps(progress, "replications", count)
        advance()  # the first is done
        runs += replicate(repeat.measure_after_first, count - 1, workers, advance)
    figures, engine_did = intervals(runs), engine_figures(served, setup)
    speed = found.speed_at(engine_did["batch_mean"])
    if speed is not None and not isnan(figures["ttft_mean"].low):
        ends = [repeat.at_speed(each).measure() for each in (speed.low, speed.high)]
        figures = widened(figures, runs[0].figures, [each.figures for each in ends])
    left_out: tuple[LeftOut, ...] = ()
    if not rounds:
        figures = {name: each for name, each in figures.items() if not name.startswith("itl")}
        why = f"there are more than {_MOST_ROUNDS:,} tokens, whose rounds are not kept"
        left_out = (LeftOut("itl", why),)
    return Serving(
        setup=setup,
        workload=WorkloadSummary.of(served.arrived),
        figures=figures,
        engine=engine_did,
        levels=tuple(
            LevelOutcome(each, figures[each.name])
            for each in levels
            if each.statistic and each.name in figures
        ),
        counted=runs[0].counted,
        warmup=warmup,
        replications=count,
        basis=found.basis,
        speed=speed,
        served=served,
        inputs=_inputs(workload, words, setup, levels) | {"warmup": warmup, "seed": seed},
        warnings=(
            *doubts_of(levels),
            *workload.notes,
            *found.warnings,
            *found.doubts(setup.drafts),
            *routing_doubts(routing, replicas, first),
            *beyond_graphs(setup, deployment, engine_did["batch_mean"]),
            *(
                _of_same_requests()
                if count > 1 and _are_same(first, workload.draw(seed, 1))
                else ()
            ),
            *(undrafted(source, acceptance) if gamma is None else ()),
            *_warnings(served),
            *(_of_few_stays(served.times, warmup) if runs[0].batches and count == 1 else ()),
        ),
        left_out=left_out,
    )


@dataclass(frozen=True, eq=False)
class _Replication:
    """One set-up and workload, which can go to other processes."""

    workload: ServingWorkload
    setup: SetUp
    levels: tuple[ServiceLevel, ...]
    warmup: float
    rounds: bool
    seed: int

    def serve(self, replication: int) -> Served:
        return serve_requests(
            self.setup,
            self.workload.draw(self.seed, replication),
            concurrency=self.workload.concurrency,
            seed=serving_seed(self.seed, replication),
            keep=("steps", "rounds") if self.rounds else ("steps",),
        )

    def measure(self, replication: int = 0) -> Measured:
        return measure(self.serve(replication).times, self.levels, self.warmup)

    def measure_after_first(self, number: int) -> Measured:
        """Of replication ``number`` + 1."""
        return self.measure(number + 1)

    def at_speed(self, speed: float) -> _Replication:
        """The same with steps that are so much faster."""
        step_model = self.setup.step_model.at_speed(speed)
        return replace(self, setup=replace(self.setup, step_model=step_model))


def _is_certain(workload: ServingWorkload, setup: SetUp, one: Requests, two: Requests) -> bool:
    """Whether another replication would be the same to the last bit."""
    return setup.certain and _are_same(one, two)


def _are_same(one: Requests, two: Requests) -> bool:
    """Whether two replications have the same requests, to the last bit."""
    if len(one) != len(two):
        return False
    columns = [
        [each.arrival_s, each.prompt_tokens, each.output_tokens]
        + ([] if each.prefix is None else [each.prefix.hashes, each.prefix.starts])
        for each in (one, two)
    ]
    return all(np.array_equal(*pair) for pair in zip(*columns, strict=True))


def _of_same_requests() -> tuple[str, ...]:
    """What replications of a file at its own times do not tell."""
    return (
        "requests are the same in every replication, so that intervals are of drafts and single "
        "steps alone: those of a single run have what other requests would change, too",
    )


def _warnings(served: Served) -> list[str]:
    if served.queue_grew:
        capacity = sum(each.requests_per_s for each in served.runs)
        return [
            "requests come faster than they are served: the queue grew until the last of them, so "
            "that latencies tell how many there were and not what a server gives; about "
            f"{significant(capacity, 3)} requests/s were served"
        ]
    if (tail := tail_share(served.times)) > LONGEST_TAIL:
        return [
            f"{tail:.0%} of the time is behind the last arrival, while the engine empties: tokens "
            "and requests per second are those of so short a run; take more requests"
        ]
    return []


def _of_few_stays(times: RequestTimes, warmup: float) -> list[str]:
    """That batches of requests are too short to be independent."""
    short = short_span(times, warmup)
    if short is None:
        return []
    come, stays = (significant(each, 3) for each in short)
    return [
        f"requests arrive within {come} s, less than {SHORT_SPAN_STAYS} times the mean end-to-end "
        f"latency of {stays} s: intervals may be too narrow; take more requests, or replications"
    ]


def _inputs(
    workload: ServingWorkload,
    words: SetUpWords,
    setup: SetUp,
    levels: Sequence[ServiceLevel],
) -> Row:
    return {
        "workload": workload.inputs,
        **vars(words.source),
        "step_model": words.said_of_steps,
        "gamma": words.gamma,
        "schedule": setup.drafts.schedule,
        "engine": setup.engine,
        "acceptance": None if setup.acceptance is None else setup.acceptance.label,
        "replicas": setup.replicas,
        "routing": setup.routing,
        "prefix_aware": setup.prefix_aware if setup.routing == "prefix-aware" else None,
        "slo": {each.name: each.limit_s for each in levels},
        "concurrency": workload.concurrency,
    }
