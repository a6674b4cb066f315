"""``specsim.validate_serving``: an engine's request log beside the simulation of its requests."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from math import nan
from os import PathLike
from pathlib import Path

import numpy as np

from specsim.acceptance import AcceptanceLaw, AlphaLike
from specsim.api.progress import Progress, quiet, steps
from specsim.api.result import LeftOut
from specsim.api.serving_doubts import beyond_graphs, routing_doubts, undrafted
from specsim.api.serving_setup import Gamma, SetUpWords, set_up
from specsim.api.serving_verdict import THROUGHPUT, ServingVerdict, Throughput, tolerances_of
from specsim.batching.source import Source
from specsim.checks import Floats, Ints, InvalidArgumentError, integer, number, significant
from specsim.deployment.deployment import Deployment
from specsim.intervals import Interval
from specsim.profiles import Mode
from specsim.serving.acceptance import RoundAcceptance
from specsim.serving.comparison import (
    COMPARED,
    LatencySample,
    compare,
    of_replications,
    samples_of,
    time_blocks,
)
from specsim.serving.engines.settings import ServingEngine
from specsim.serving.logs import read_log
from specsim.serving.logs.request_log import RequestLog
from specsim.serving.readers import read_workload
from specsim.serving.requests import Requests, WorkloadError
from specsim.serving.routing import PrefixAware, Routing
from specsim.serving.service import SetUp, engine_figures, serve_requests
from specsim.serving.spread import replicate, widened
from specsim.serving.step_model import StepModel
from specsim.serving.workload import serving_seed

# Of what is random, where nobody says how many.
_REPLICATIONS = 20


def validate_serving(
    log: str | PathLike[str],
    *,
    workload: str | PathLike[str] | None = None,
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
    warmup: float = 0.0,
    replications: int | None = None,
    workers: int = 1,
    tolerance: str | Mapping[str, float] | None = None,
    seed: int = 0,
    progress: Progress = quiet,
) -> ServingVerdict:
    """Send the requests of a log through a set-up at the log's own times, and compare.

    log : a result of ``vllm bench serve --save-detailed``, LLMServingSim's ``requests.jsonl`` or
        GuideLLM's ``benchmarks.json`` of one benchmark
    workload : file of the requests that were sent, whose token ids or hashes tell what prompts
        share; without it nothing is shared
    gamma ... prefix_aware : the set-up, as of ``serve``
    warmup : share of the requests, the first to arrive, that are simulated and not counted
    replications : repeats of what is random; None: 20, or 1 where nothing is
    workers : processes that share them
    tolerance : largest relative errors that pass, such as ``"mean=0.05,ttft_p99=0.15"``; by default
        a figure fails where prediction and measurement are further apart than the 95 % intervals of
        both explain.  As the requests are the same, a simulator that is right is nearer than that.
    progress : called with what is going on, how much of it is done and how much there is

    Where costs and acceptance come with an error, the first replication is simulated at both ends
    of what that leaves of the speed of steps, too, and predicted intervals hold both, as those of
    ``serve`` do.
    """
    path = Path(log)
    seen = read_log(path)
    requests = seen.requests
    if workload is not None:
        requests = _with_prefix(seen, Path(workload))
    source = Source(alpha, deployment, profile, temperature, mode, acceptance_law)
    words = SetUpWords(gamma, source, step_model, acceptance, engine)
    found = set_up(words, requests)
    setup = replace(
        found.setup,
        replicas=replicas,
        routing=routing,
        prefix_aware=prefix_aware or PrefixAware(),
    )
    measured = seen.samples
    total = len(requests)
    counted = np.arange(int(number("warmup", warmup, low=0.0, high=0.9) * total), total)
    blocks, count = _blocks(seen, measured, counted)
    of_counted = {name: measured[name].of(counted) for name in COMPARED if name in measured}
    compared = {name: each for name, each in of_counted.items() if each.seconds.size}
    told = (*compared, *(THROUGHPUT if seen.last_token_s is not None else ()))
    if not compared:
        raise WorkloadError(
            f"log {path}: tells no latency of a request that counts, so that nothing is compared"
        )
    allowed = tolerances_of(tolerance, told)
    if not count and not allowed:
        raise WorkloadError(
            f"log {path}: intervals need 40 requests or more, and {counted.size} are counted; say "
            "what passes with tolerance, such as mean=0.05,p99=0.15"
        )
    runs = integer("replications", replications or (1 if setup.certain else _REPLICATIONS), low=1)
    if setup.certain and runs > 1:
        raise InvalidArgumentError(
            f"replications must be 1, got {runs}: nothing in these runs is random"
        )
    begin_s = float(seen.requests.arrival_s[counted[0]])
    repeat = _Repeat(setup, requests, begin_s, "itl" in compared, step_model is None, seed)
    advance = steps(progress, "replications", runs)
    repeats = replicate(repeat.outcome, runs, workers, advance)
    # Nobody knows how far off steps are that somebody gave.
    speed = found.speed_at(repeats[0].batch) if repeat.batch else None
    at_ends: tuple[float, ...] = () if speed is None else (speed.low, speed.high)
    ends = [repeat.at_speed(each).outcome(0) for each in at_ends]
    return ServingVerdict(
        setup=setup,
        log_format=seen.format,
        requests=total,
        counted=counted.size,
        replications=runs,
        blocks=count,
        block_s=_span(requests, counted) / count if count else float("nan"),
        latencies=tuple(
            compare(
                name,
                [each.samples[name].of(counted) for each in repeats],
                sample,
                blocks,
                count,
                [each.samples[name].of(counted) for each in ends],
            )
            for name, sample in compared.items()
        ),
        throughput=_throughput(seen, begin_s, repeats, ends),
        speed=speed,
        tolerance=allowed,
        basis=found.basis,
        names=seen.names,
        inputs={
            "log": str(path),
            "workload": None if workload is None else str(workload),
            **vars(source),
            "step_model": words.said_of_steps,
            "gamma": gamma,
            "schedule": setup.drafts.schedule,
            "engine": setup.engine,
            "acceptance": None if setup.acceptance is None else setup.acceptance.label,
            "replicas": replicas,
            "routing": routing,
            "warmup": warmup,
            "seed": seed,
        },
        warnings=(
            *seen.notes,
            *found.warnings,
            *found.doubts(setup.drafts),
            *_warnings(measured, requests, counted, count),
            *routing_doubts(routing, replicas, requests),
            # Steps that were given are of no deployment, and their batch is not asked for.
            *beyond_graphs(setup, deployment, repeats[0].batch),
            *(undrafted(source, acceptance) if gamma is None else ()),
            _of_speed(speed),
        ),
        left_out=_left_out(seen, [name for name in of_counted if name not in compared]),
    )


@dataclass(frozen=True, eq=False)
class _Outcome:
    """Of one replication.

    batch : requests in a step, in the mean, where that is asked for
    """

    samples: dict[str, LatencySample]
    throughput: dict[str, float]
    batch: float = nan


@dataclass(frozen=True, eq=False)
class _Repeat:
    """The requests through the set-up, which can go to other processes.

    begin_s : when the first that counts arrives
    rounds : whether gaps between tokens are wanted
    batch : whether it is asked how many requests are in a step, of the first replication
    """

    setup: SetUp
    requests: Requests
    begin_s: float
    rounds: bool
    batch: bool
    seed: int

    def outcome(self, replication: int) -> _Outcome:
        batch = self.batch and not replication
        served = serve_requests(
            self.setup,
            self.requests,
            seed=serving_seed(self.seed, replication),
            keep=[name for name, kept in (("steps", batch), ("rounds", self.rounds)) if kept],
        )
        times = served.times
        return _Outcome(
            samples_of(times, served.each("scheduled_s")),
            _per_second(times.last_token_s, times.output_tokens, self.begin_s),
            engine_figures(served, self.setup)["batch_mean"] if batch else nan,
        )

    def at_speed(self, speed: float) -> _Repeat:
        """The same with steps that are so much faster."""
        step_model = self.setup.step_model.at_speed(speed)
        return replace(self, setup=replace(self.setup, step_model=step_model), batch=False)


def _with_prefix(seen: RequestLog, path: Path) -> Requests:
    """The requests of a log with what the file says that the prompts share."""
    sent, requests = read_workload(path), seen.requests
    if sent.prefix is None:
        raise WorkloadError(
            f"workload {path}: has no token ids or hashes, so that it tells nothing"
        )
    count, places = len(requests), np.arange(len(requests))
    if seen.places is not None:
        count, places = seen.sent, seen.places
    if sent.prompt_tokens.size != count:
        raise WorkloadError(
            f"workload {path}: {sent.prompt_tokens.size} requests, and the log has {count}"
        )
    prompts = sent.prompt_tokens[places]
    other = np.flatnonzero(prompts != requests.prompt_tokens)
    if other.size:
        at = int(other[0])
        raise WorkloadError(
            f"workload {path}: request {places[at] + 1} has a prompt of {prompts[at]} tokens, in "
            f"the log it is {requests.prompt_tokens[at]}: not the same requests"
        )
    return replace(requests, prefix=sent.prefix.take(places))


def _blocks(
    seen: RequestLog, measured: Mapping[str, LatencySample], counted: Ints
) -> tuple[Ints, int]:
    """(N,) blocks of the counted requests."""
    arrival = seen.requests.arrival_s
    whose, count = time_blocks(arrival[counted], _stay(measured, counted))
    blocks = np.zeros(arrival.size, np.int64)
    blocks[counted] = whose
    return blocks, count


def _stay(measured: Mapping[str, LatencySample], counted: Ints) -> float:
    """Seconds that a request stays in the mean, as far as the log tells."""
    for name in ("e2e", "ttft"):
        if name in measured:
            return measured[name].of(counted).statistic("mean")
    return 0.0


def _span(requests: Requests, counted: Ints) -> float:
    return float(requests.arrival_s[counted[-1]] - requests.arrival_s[counted[0]])


def _per_second(last_token_s: Floats, output_tokens: Ints, begin_s: float) -> dict[str, float]:
    """Tokens and requests of what ends after ``begin_s``, until the last does."""
    ended = last_token_s > begin_s
    totals = float(output_tokens[ended].sum()), float(ended.sum())
    seconds = float(last_token_s.max()) - begin_s
    return {name: total / seconds for name, total in zip(THROUGHPUT, totals, strict=True)}


def _throughput(
    seen: RequestLog, begin_s: float, repeats: list[_Outcome], ends: list[_Outcome]
) -> tuple[Throughput, ...]:
    """ends : the first replication at the ends of what is known of the speed of steps"""
    if seen.last_token_s is None:
        return ()
    measured = _per_second(seen.last_token_s, seen.requests.output_tokens, begin_s)
    runs, others = ([each.throughput for each in outcomes] for outcomes in (repeats, ends))
    predicted = {
        name: of_replications(np.array([run[name] for run in runs])) for name in THROUGHPUT
    }
    if others:
        predicted = widened(predicted, runs[0], others)
    return tuple(Throughput(name, predicted[name], measured[name]) for name in THROUGHPUT)


def _of_speed(speed: Interval[float] | None) -> str:
    """What intervals hold of the error of step times."""
    if speed is None:
        return "how far off the time of a step may be is not known, and in none of the intervals"
    low, high = (significant(each, 3) for each in (speed.low, speed.high))
    return (
        f"predicted intervals hold what is known of costs and acceptance, steps at {low} to {high} "
        "times their speed; that a machine is slower or faster than when steps were timed is in "
        "none of the intervals"
    )


def _warnings(
    measured: Mapping[str, LatencySample],
    requests: Requests,
    counted: Ints,
    count: int,
) -> list[str]:
    stay = _stay(measured, counted)
    if count and (block_s := _span(requests, counted) / count) < stay:
        return [
            f"a block is {block_s:.3g} s long and a request stays {stay:.3g} s in the mean: "
            "neighbouring blocks share a queue, and intervals are too narrow rather than too wide"
        ]
    return []


def _left_out(seen: RequestLog, empty: list[str]) -> tuple[LeftOut, ...]:
    """empty : latencies that the log tells of requests that do not count alone"""
    found = [LeftOut(name, why) for name, why in seen.missing.items()]
    found += [LeftOut(name, "no request that counts has one") for name in empty]
    if seen.last_token_s is None:
        found.append(LeftOut("throughput", "the log does not tell when the last token came"))
    return tuple(found)
