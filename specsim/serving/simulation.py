"""Requests through one replica of an engine, step by step."""

from __future__ import annotations

from collections.abc import Collection
from typing import TYPE_CHECKING, Any

import numpy as np

from specsim.checks import (
    Floats,
    Ints,
    InvalidArgumentError,
    UnsupportedError,
    check_choice,
    integer,
)
from specsim.serving.acceptance import RoundAcceptance
from specsim.serving.adaptive_steps import CompiledSteps, never
from specsim.serving.drafts import DraftPolicy
from specsim.serving.engines.kv_groups import group_table, most_blocks
from specsim.serving.engines.settings import SGLANG, EngineSettings, ServingEngine
from specsim.serving.requests import Requests
from specsim.serving.result import RoundLog, ServingRun, Steps, queue_grew
from specsim.serving.scatter import factors
from specsim.serving.step_model import StepModel

if TYPE_CHECKING:
    from specsim.serving.loop import Log, Rules
    from specsim.serving.state import State

_ROWS = 1 << 16
_KEEP = ("steps", "rounds")


def run(
    requests: Requests,
    engine: ServingEngine,
    step_model: StepModel,
    drafts: DraftPolicy | None = None,
    acceptance: RoundAcceptance | None = None,
    *,
    concurrency: int | None = None,
    seed: int = 0,
    numbers: Ints | None = None,
    keep: Collection[str] = ("steps",),
) -> ServingRun:
    """What every request sees, and what every step does.

    requests : in the order of their arrival
    engine : a VllmEngine or SglangEngine
    step_model : seconds of a step
    drafts : how many tokens are drafted; None: there is no drafter
    acceptance : what rounds emit; needed where something is drafted
    concurrency : so many requests are there all the time: each comes when one before it is done,
        and ``requests.arrival_s`` counts for nothing; None: they arrive when they do
    seed : of what is random in acceptance and in seconds; the same gives the same result to the
        last bit
    numbers : (N,) of the requests in a workload of which they are a part.  What is random in the
        acceptance belongs to a number, so that a request has the same luck whatever is served
        beside it, and single steps have theirs by the first one; None: 0, 1, 2, ...
    keep : ``steps`` and ``rounds``, what is logged

    Raises InvalidArgumentError where a request can never fit, and UnsupportedError where
    acceptance does not reach the longest draft.  A rate beyond capacity is no error: the requests
    that are there are served, and the result's ``queue_grew`` says so.
    """
    for name in keep:
        check_choice("keep", name, _KEEP)
    if concurrency is not None:
        integer("concurrency", concurrency, low=1)
    drafts = DraftPolicy.off() if drafts is None else drafts
    state, rules, log, label = prepared(
        requests,
        engine,
        step_model,
        drafts,
        acceptance,
        concurrency,
        seed,
        "rounds" in keep,
        numbers,
    )
    from specsim.serving.loop import advance

    settings = rules.settings
    steps, emitted, rounds = [], [], []
    busy = latest_s = latest_end = 0.0
    while state.replica["done"][0] < len(requests):
        advance(state, rules, log, np.inf)
        if state.replica["left_behind"][0]:
            raise UnsupportedError("no request could be scheduled; this is an error of specsim")
        written = log.steps[: log.written[0]]
        busy += float(written[:, 1].sum())
        if written.size:
            latest_s, latest_end = float(written[-1, 1]), float(written[-1, :2].sum())
        if "steps" in keep or rules.keep_rounds:
            steps.append(written.copy())
            emitted.append(log.emitted[: log.written[1]].copy())
            rounds.append(log.rounds[: log.written[2]].copy())
    kept = None
    own = {name: state.requests[name].copy() for name in state.requests.dtype.names}
    # A step may be in flight when the last token comes, which nobody waits for.
    busy -= min(max(latest_end - float(own["last_s"].max()), 0.0), latest_s)
    if steps:
        kept = _steps(np.concatenate(steps), np.concatenate(emitted), settings, step_model)
    return ServingRun(
        requests=requests,
        engine=engine,
        drafts=drafts,
        acceptance=label,
        seed=seed,
        concurrency=concurrency,
        arrival_s=own["arrival"],
        scheduled_s=own["scheduled_s"],
        first_token_s=own["first_s"] + own["frontend_s"],
        last_token_s=own["last_s"] + own["frontend_s"],
        rounds=own["rounds"].astype(np.int64),
        preemptions=own["preemptions"].astype(np.int64),
        cached_tokens=own["cached"].astype(np.int64),
        step_count=int(state.replica["steps"][0]),
        free_blocks=int(state.replica["free_blocks"][0]),
        busy_s=busy,
        queue_grew=concurrency is None
        and queue_grew(own["arrival"], own["scheduled_s"], own["last_s"]),
        steps=kept if "steps" in keep else None,
        round_log=(
            _round_log(np.concatenate(rounds), kept, own["frontend_s"])
            if rules.keep_rounds
            else None
        ),
    )


def prepared(
    requests: Requests,
    engine: ServingEngine,
    step_model: StepModel,
    drafts: DraftPolicy,
    acceptance: RoundAcceptance | None,
    concurrency: int | None,
    seed: int,
    keep_rounds: bool,
    numbers: Ints | None = None,
) -> tuple[State, Rules, Log, str]:
    """What the loop needs to begin, and what the acceptance is called; arguments as of ``run``."""
    integer("seed", seed, high=2**53)
    settings = engine.settings(drafts)
    groups = group_table(engine.kv_groups, settings.block_size)
    check_fit(requests, engine, drafts)
    acceptance = _checked_acceptance(acceptance, drafts)
    # Importing numba takes a third of a second.
    from specsim.serving.loop import COLUMNS, Log, Rules
    from specsim.serving.state import fresh_state

    numbers = np.arange(len(requests)) if numbers is None else numbers
    state = fresh_state(requests, settings, concurrency, groups, numbers)
    most = state.running.size
    rules = Rules(
        settings=settings,
        terms=step_model.compiled,
        host_part=step_model.host_part,
        frontend_s=float(step_model.frontend_s),
        frontend_decode_s=float(step_model.frontend_decode_s),
        frontend_prompt_s=float(step_model.frontend_prompt_s),
        step_factors=factors(step_model.step_variation),
        prompt_step_factors=factors(step_model.prompt_step_variation),
        frontend_factors=factors(step_model.frontend_variation),
        gammas=drafts.gammas(most),
        steps=_steps_of(drafts, engine, settings, most),
        drafter=bool(drafts.schedule),
        acceptance=acceptance.compiled(int(numbers.max()) + 1, seed),
        padded=_padding(engine.capture_sizes(drafts)),
        seed=seed,
        concurrency=concurrency or 0,
        keep_rounds=keep_rounds,
    )
    rows = min(_ROWS, 64 + int(requests.output_tokens.sum()))
    columns = len(COLUMNS) + len(step_model.parts)
    log = Log(
        np.empty((rows, columns)),
        np.empty(rows + 4, dtype=np.int64),
        np.empty((2 * most + rows if keep_rounds else 0, 3), dtype=np.int32),
        np.zeros(3, dtype=np.int64),
    )
    return state, rules, log, acceptance.label


def check_fit(requests: Requests, engine: ServingEngine, drafts: DraftPolicy) -> None:
    """Refuse what could never be served; raises InvalidArgumentError."""
    from specsim.serving.state import most_beyond

    settings = engine.settings(drafts)
    total = requests.prompt_tokens + requests.output_tokens
    slots = np.minimum(total - 1 + most_beyond(settings), settings.max_model_len)
    held, beside = settings.blocks * settings.block_size, ""
    if settings.kind == SGLANG:
        # It admits a request where a page is free beside it and tokens are left over, and keeps
        # room for drafts beyond the longest that the model takes, too.
        kept = max(most_beyond(settings) - 1, settings.block_size)
        slots, held = total + kept, held - 1
        beside = f" with the {kept:,} that it keeps free beside a request"
    limits = [(settings.max_model_len, total, "the longest that the model takes", "")]
    if engine.kv_groups:
        _check_groups(total, slots, settings, group_table(engine.kv_groups, settings.block_size))
    else:
        limits.append((held, slots, "all that the KV cache holds", beside))
    for limit, found, remedy, more in limits:
        beyond = np.flatnonzero(found > limit)
        if beyond.size:
            at = int(beyond[0])
            raise InvalidArgumentError(
                f"prompt_tokens and output_tokens must take <= {limit:,} tokens together, "
                f"{remedy}, got {found[at]:,} at index {at}{more}"
            )
    room = settings.budget - settings.draft_slots
    if room < 1:
        raise InvalidArgumentError(
            f"max_num_batched_tokens must be > {settings.draft_slots}, the slots that drafting "
            f"takes for each request, got {settings.budget}"
        )
    if not settings.chunked and (total > room).any():
        at = int(np.flatnonzero(total > room)[0])
        raise InvalidArgumentError(
            f"prompt_tokens and output_tokens must be <= {room:,} together without "
            f"chunked prefill, got {total[at]:,} at index {at}"
        )
    prefix = requests.prefix
    if prefix is not None and settings.caching:
        sizes = prefix.block_tokens, settings.block_size
        if max(sizes) % min(sizes):
            raise InvalidArgumentError(
                f"prefix.block_tokens must be a multiple of block_size, {settings.block_size}, or "
                f"go into it, got {prefix.block_tokens}"
            )


def _check_groups(total: Ints, slots: Ints, settings: EngineSettings, groups: Ints) -> None:
    """Whether the longest request finds blocks in all groups of layers."""
    at = int(np.argmax(slots))
    in_flight = settings.budget * (1 + settings.asynchronous)
    needed = most_blocks(groups, int(slots[at]), in_flight, settings.max_model_len)
    if needed > settings.blocks:
        raise InvalidArgumentError(
            f"num_gpu_blocks must be > {needed:,}, which the {total[at]:,} tokens of prompt and "
            f"output at index {at} take of all groups of layers, got {settings.blocks + 1:,}"
        )


def _checked_acceptance(acceptance: RoundAcceptance | None, drafts: DraftPolicy) -> RoundAcceptance:
    if acceptance is None:
        if drafts.gamma_max:
            raise InvalidArgumentError(
                f"acceptance is needed to draft {drafts.gamma_max} tokens, got None"
            )
        return RoundAcceptance.law([0.0], "none")
    if drafts.gamma_max > acceptance.gamma_max:
        raise UnsupportedError(
            f"acceptance is known up to gamma {acceptance.gamma_max}, gamma {drafts.gamma_max} "
            "asked for; extend a survival curve with specsim.extrapolate, or replay a trace"
        )
    return acceptance


def _steps_of(
    drafts: DraftPolicy, engine: ServingEngine, settings: EngineSettings, most: int
) -> CompiledSteps:
    """How draft lengths change while it runs."""
    if drafts.adaptive is None:
        return never(most)
    if settings.kind != SGLANG:
        raise UnsupportedError("draft lengths that follow acceptance are SGLang's: take its engine")
    graphs = engine.capture_sizes(drafts) // (1 + drafts.gamma_max)
    return drafts.adaptive.compiled(most, graphs)


def _padding(sizes: Ints) -> Ints:
    """By tokens, the smallest size that holds them; as long as the largest reaches."""
    if not sizes.size:
        return np.zeros(0, dtype=np.int64)
    return sizes[np.searchsorted(sizes, np.arange(sizes[-1] + 1))]


def _steps(table: Any, emitted: Ints, settings: EngineSettings, model: StepModel) -> Steps:
    from specsim.serving.loop import COLUMNS

    columns = dict(zip(COLUMNS, table.T, strict=False))
    whole = {
        name: column.astype(np.int64)
        for name, column in columns.items()
        if name not in ("start_s", "seconds")
    }
    whole["used_blocks"] = settings.blocks - whole["used_blocks"]
    return Steps(
        start_s=columns["start_s"].copy(),
        seconds=columns["seconds"].copy(),
        parts={name: table[:, len(COLUMNS) + at].copy() for at, name in enumerate(model.parts)},
        # With asynchronous scheduling a step may be left whose requests were all done before.
        emitted_tokens=np.pad(emitted, (0, table.shape[0] - emitted.size)),
        **whole,
    )


def _round_log(table: Any, steps: Steps | None, frontend_s: Floats) -> RoundLog:
    assert steps is not None
    request, step, tokens = table.T.astype(np.int64)
    return RoundLog(request, step, tokens, steps.end_s[step] + frontend_s[request])
