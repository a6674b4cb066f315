"""The loop of a replica (compiled): admit, schedule, price, emit, until nothing is left."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from specsim.checks import Floats, Ints
from specsim.serving.acceptance import CompiledAcceptance
from specsim.serving.adaptive_steps import CompiledSteps
from specsim.serving.block_pool import free_blocks, remember_blocks
from specsim.serving.compiled import borrowed, compiled, inlined, inner
from specsim.serving.emitted import FRONTEND, STEPS, emitted_tokens, uniform
from specsim.serving.engines.settings import SGLANG, EngineSettings
from specsim.serving.engines.sglang_schedule import sglang_schedule
from specsim.serving.engines.sglang_steps import follow_acceptance
from specsim.serving.engines.vllm_schedule import vllm_schedule
from specsim.serving.queue import append_waiting, remove_waiting
from specsim.serving.state import FINISHED, PREEMPTED, RUNNING, State
from specsim.serving.step_model import QUANTITIES, CompiledTerms
from specsim.serving.step_seconds import part_seconds

# What the log of steps has in its first columns; seconds of the parts follow.
COLUMNS = (
    "start_s",
    "seconds",
    "sequences",
    "decodes",
    "prefill_tokens",
    "verified_tokens",
    "gamma",
    "used_blocks",
    "running",
    "waiting",
    "preempted",
    "eager",
)
_QUANTITIES = len(QUANTITIES)


class Rules(NamedTuple):
    """What stays as it is while the loop runs.

    host_part : index of the part that is hidden behind the device; -1: none
    frontend_s, frontend_decode_s, frontend_prompt_s : until a client has what came of the engine,
        as of ``StepModel``
    step_factors, prompt_step_factors, frontend_factors : one of which, equally likely, every step
        without a chunk of a prompt, every other one, and what a request spends outside of them
        takes times as long; a single one is 1
    gammas : draft length by the number of scheduled requests, in SGLang of those that decode;
        ``steps`` may change it
    padded : by tokens, the size of the graph that holds them; beyond its end steps are eager
    concurrency : of a closed loop; 0: an open one
    """

    settings: EngineSettings
    terms: CompiledTerms
    host_part: int
    frontend_s: float
    frontend_decode_s: float
    frontend_prompt_s: float
    step_factors: Floats
    prompt_step_factors: Floats
    frontend_factors: Floats
    gammas: Ints
    steps: CompiledSteps
    drafter: bool
    acceptance: CompiledAcceptance
    padded: Ints
    seed: int
    concurrency: int
    keep_rounds: bool


class Log(NamedTuple):
    """Room for some steps; ``written`` says how many rows of each are filled."""

    steps: Floats  # (rows, columns and parts)
    emitted: Ints  # (rows,) in the order of steps, but maybe one behind
    rounds: npt.NDArray[np.int32]  # request, step, tokens
    written: Ints  # (3,)


@compiled
def advance(state: State, rules: Rules, log: Log, until: float) -> None:
    """Go on until all requests are done, a step would begin at ``until`` or later, or the log is
    full.
    """
    state, rules, log = borrowed(state), borrowed(rules), borrowed(log)
    replica = state.replica[0]
    n, most = state.requests.size, state.running.size
    settings = rules.settings
    quantities, parts = np.zeros(_QUANTITIES), np.zeros(log.steps.shape[1] - 12)
    lower, weight = np.zeros(4, dtype=np.int64), np.zeros(4)
    for each in range(3):
        log.written[each] = 0
    while replica.done < n:
        if log.written[0] == log.steps.shape[0] or log.written[1] >= log.emitted.size - 2:
            return
        if rules.keep_rounds and log.rounds.shape[0] - log.written[2] < 2 * most:
            return
        _admit(state)
        if replica.runners + replica.queued + replica.flying == 0:
            if state.requests[replica.arrived].arrival >= until:
                return
            replica.now = state.requests[replica.arrived].arrival
            replica.new_token_ratio = settings.new_token_ratio
            _admit(state)
        now = replica.now
        if now >= until:
            return
        if settings.kind == SGLANG:
            preempted = sglang_schedule(state, settings, rules.gammas)
        else:
            preempted = vllm_schedule(state, settings, rules.gammas)
        turn = replica.turn
        if state.steps[turn].size == 0:
            if replica.flying > 0:
                _land(state, rules, log)
            elif preempted == 0:
                replica.left_behind = 1
                return
            continue
        eager = _measure(state, rules, turn, quantities)
        part_seconds(rules.terms, quantities, eager, parts, lower, weight)
        _scatter(state, rules, quantities[4] > 0.0, parts)
        host = parts[rules.host_part] if rules.host_part >= 0 else 0.0
        device = 0.0
        for part in range(parts.size):
            if part != rules.host_part:
                device += parts[part]
        begin = max(now, replica.device_free)
        end = max(now + host, replica.device_free) + device
        replica.device_free = end
        state.steps[turn].end = end
        state.steps[turn].step = replica.steps
        state.steps[turn].decodes = int(quantities[7])
        replica.steps += 1
        _write_step(state, quantities, parts, log, begin, end, preempted, eager)
        replica.flying += 1
        replica.turn = 1 - turn
        # The host prepares one step after the other.
        replica.now = now + host
        if replica.flying == 2 or not settings.asynchronous:
            _land(state, rules, log)


@inlined
def _admit(state: State) -> None:
    """Let wait all that have arrived by now."""
    replica = state.replica[0]
    n = state.requests.size
    while replica.arrived < n and state.requests[replica.arrived].arrival <= replica.now:
        append_waiting(state, replica.arrived)
        replica.arrived += 1


@inlined
def _scatter(state: State, rules: Rules, reads_prompts: bool, parts: Floats) -> None:
    """Take the seconds of a step times a factor of its own.

    Replicas have their factors by the number of their first request, so that theirs differ.
    """
    factors = rules.prompt_step_factors if reads_prompts else rules.step_factors
    if factors.size > 1:
        owner = state.requests[0].number + STEPS
        draw = uniform(rules.seed, owner, state.replica[0].steps)
        factor = factors[int(draw * factors.size)]
        for part in range(parts.size):
            parts[part] *= factor


@inlined
def _measure(state: State, rules: Rules, turn: int, quantities: Floats) -> bool:
    """Write what the planned step consists of; whether it is eager.  See QUANTITIES."""
    tokens = verified = prefill = chunks = decodes = decode_context = sampled = sampling = 0
    prefill_context = 0
    pairs = 0.0
    size = state.steps[turn].size
    reads = state.steps[turn].reads > 0
    row = state.plan[turn]
    for at in range(size):
        plan = row[at]
        width, before = plan.tokens, plan.before
        samples = plan.samples
        tokens += width
        sampling += samples
        if samples and before > 0 and width == 1 + plan.drafts and not reads:
            decodes += 1
            verified += width
            sampled += width
            decode_context += before + width
        else:
            chunks += 1
            prefill += width
            sampled += samples
            prefill_context += before
            pairs += width * (before + 0.5 * (width + 1))
    gamma, drafting = rules.gammas[size], sampling
    if reads:
        # The drafter reads what the target reads, in one run; drafts come with the decodes.
        gamma, drafting = min(gamma, 1), size
    # SGLang's graphs are of decodes.
    eager = tokens >= rules.padded.size or reads
    quantities[0] = tokens
    quantities[1] = tokens if eager else rules.padded[tokens]
    quantities[2] = verified
    quantities[3] = prefill
    quantities[4] = chunks
    quantities[5] = prefill_context
    quantities[6] = pairs
    quantities[7] = decodes
    quantities[8] = verified / decodes if decodes else 0.0
    quantities[9] = decode_context
    quantities[10] = decode_context / decodes if decodes else 0.0
    quantities[11] = size
    quantities[12] = sampled
    quantities[13] = drafting if rules.drafter else 0
    quantities[14] = gamma
    quantities[15] = max(gamma - 1, 0)
    quantities[16] = max(pairs / prefill - 0.5 * (prefill + 1), 0.0) if prefill else 0.0
    replica = state.replica[0]
    quantities[17] = replica.arrived - replica.arrived_before
    replica.arrived_before = replica.arrived
    return eager


@inlined
def _write_step(
    state: State,
    quantities: Floats,
    parts: Floats,
    log: Log,
    begin: float,
    end: float,
    preempted: int,
    eager: bool,
) -> None:
    replica = state.replica[0]
    row = log.steps[log.written[0]]
    # Whole slices would be shorter, and take ten seconds more to compile.
    row[0] = begin
    row[1] = end - begin
    row[2] = quantities[11]
    row[3] = quantities[7]
    row[4] = quantities[3]
    row[5] = quantities[2]
    row[6] = quantities[14]
    row[7] = replica.free_blocks  # turned into used ones by who reads it
    row[8] = replica.runners
    row[9] = replica.queued
    row[10] = preempted
    row[11] = eager
    for part in range(parts.size):
        row[12 + part] = parts[part]
    log.written[0] += 1


@inlined
def _land(state: State, rules: Rules, log: Log) -> None:
    """End the oldest step: its requests emit, and some are done."""
    replica = state.replica[0]
    settings = rules.settings
    # With one step in flight the plan of the next lies at TURN, whether there is one or not.
    turn = replica.turn if replica.flying == 2 else 1 - replica.turn
    replica.flying -= 1
    replica.now = max(replica.now, state.steps[turn].end)
    now = replica.now
    all_tokens, done_before = 0, replica.done
    decodes = accepted = 0
    reads = state.steps[turn].reads > 0
    planned, requests, acceptance = state.plan[turn], state.requests, rules.acceptance
    frontend_s = rules.frontend_s + rules.frontend_decode_s * state.steps[turn].decodes
    if rules.frontend_prompt_s > 0.0:
        first = 0
        for at in range(state.steps[turn].size):
            if planned[at].samples and requests[planned[at].request].emitted == 0:
                first += 1
        frontend_s += rules.frontend_prompt_s * max(first - 1, 0)
    for at in range(state.steps[turn].size):
        plan = planned[at]
        request = plan.request
        own = requests[request]
        own.in_flight -= plan.tokens
        if not plan.samples or own.status == FINISHED:
            continue
        drafts, emitted = plan.drafts, own.emitted
        tokens = 1
        if drafts > 0:
            tokens = emitted_tokens(acceptance, rules.seed, own.number, own.rounds, emitted, drafts)
        if plan.before > 0 and plan.tokens == 1 + drafts and not reads:
            decodes += 1
            accepted += tokens - 1
        if settings.asynchronous:
            own.placeholders -= 1 + drafts
        if settings.kind == SGLANG and own.status == PREEMPTED:
            continue  # what was in flight of a retracted request is lost
        if own.status == RUNNING:
            own.computed -= 1 + drafts - tokens
        tokens = min(tokens, own.output - emitted)
        if emitted == 0:
            own.first_s = now
            own.frontend_s = frontend_s
            if rules.frontend_factors.size > 1:
                draw = uniform(rules.seed, own.number, FRONTEND)
                own.frontend_s *= rules.frontend_factors[int(draw * rules.frontend_factors.size)]
        own.emitted = emitted + tokens
        own.rounds += 1
        all_tokens += tokens
        if rules.keep_rounds:
            row = log.rounds[log.written[2]]
            row[0], row[1], row[2] = request, state.steps[turn].step, tokens
            log.written[2] += 1
        if own.status == RUNNING:
            if settings.kind == SGLANG:
                remember_blocks(state, settings, request, own.prompt)
            elif settings.asynchronous:
                remember_blocks(state, settings, request, own.computed - own.placeholders)
        if own.emitted == own.output:
            _finish(state, rules, request, now)
    if rules.steps.slots.size > 0 and decodes > 0:
        follow_acceptance(rules.steps, rules.gammas, decodes, accepted)
    log.emitted[log.written[1]] = all_tokens
    log.written[1] += 1
    if replica.done > done_before:
        kept = 0
        for at in range(replica.runners):
            request = state.running[at]
            own = state.requests[request]
            if own.status != FINISHED:
                state.running[kept] = request
                kept += 1
        replica.runners = kept


@inner
def _finish(state: State, rules: Rules, request: int, now: float) -> None:
    """All tokens are there; in a closed loop the next request comes."""
    replica = state.replica[0]
    own = state.requests[request]
    if own.status == RUNNING:
        free_blocks(state, rules.settings, request)
    else:
        remove_waiting(state, request)
    replica.has_shrunk = 1
    own.status = FINISHED
    own.last_s = now
    replica.done += 1
    if rules.concurrency > 0:
        follower = rules.concurrency + replica.done - 1
        if follower < state.requests.size:
            _come(state, follower, now + own.frontend_s)


@inner
def _come(state: State, follower: int, arrival: float) -> None:
    """Let one more request of a closed loop come.

    Clients of requests that are done later may know it earlier, where less passes outside of steps,
    so that times are put in order among those that have not arrived.
    """
    requests, first = state.requests, state.replica[0].arrived
    place = follower
    while place > first and requests[place - 1].arrival > arrival:
        requests[place].arrival = requests[place - 1].arrival
        place -= 1
    requests[place].arrival = arrival
