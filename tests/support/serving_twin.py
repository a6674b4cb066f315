"""The simulator again, as plainly as it can be said: lists, dictionaries and one loop.

Nothing is shared with the compiled loop but the descriptions and the price of a step.
"""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from math import ceil, inf
from typing import Any

import numpy as np

from specsim.serving.acceptance import LAW, TRACE, RoundAcceptance
from specsim.serving.adaptive_steps import StepSlot
from specsim.serving.drafts import DraftPolicy
from specsim.serving.engines.kv_groups import KvGroup
from specsim.serving.engines.settings import SGLANG, EngineSettings, ServingEngine
from specsim.serving.requests import Requests
from specsim.serving.scatter import factors
from specsim.serving.step_model import QUANTITIES, StepModel
from specsim.serving.step_seconds import step_seconds

_MASK = (1 << 64) - 1


def uniform(seed: int, request: int, index: int) -> float:
    """SplitMix64 over three numbers, in whole numbers without end."""
    state = seed
    for word in (request, index):
        state = (state + 0x9E3779B97F4A7C15 + word) & _MASK
        state = ((state ^ (state >> 30)) * 0xBF58476D1CE4E5B9) & _MASK
        state = ((state ^ (state >> 27)) * 0x94D049BB133111EB) & _MASK
        state ^= state >> 31
    return (state >> 11) / 2**53


def drawn(variation: float, draw: float) -> float:
    """One of the factors, which are equally likely."""
    found = factors(variation)
    return float(found[int(draw * found.size)])


def round_tokens(
    law: RoundAcceptance, seed: int, request: int, index: int, position: int, drafts: int
) -> int:
    if not drafts:
        return 1
    if law.kind == LAW:
        draw = uniform(seed, request, index)
        return 1 + sum(draw < stands for stands in law.values[drafts - 1][:drafts])
    assert law.sources is not None
    source = law.sources[request]
    text = law.values[law.starts[source] : law.starts[source + 1]]
    if law.kind == TRACE:
        accepted = 0
        for token in range(position, position + drafts):
            if uniform(seed, request, token) >= text[token % text.size]:
                break
            accepted += 1
        return 1 + accepted
    return min(int(text[position % text.size]), drafts + 1)


@dataclass(eq=False)
class Request:
    number: int
    arrival: float
    prompt: int
    output: int
    contents: list[Any]
    emitted: int = 0
    computed: int = 0
    drafts: int = 0
    placeholders: int = 0
    blocks: list[Any] = field(default_factory=list)
    remembered: int = 0
    status: str = "waiting"
    rounds: int = 0
    preemptions: int = 0
    cached: int = 0
    scheduled: float | None = None
    first: float | None = None
    frontend: float = 0.0
    last: float | None = None

    @property
    def known(self) -> int:
        return self.prompt + self.emitted

    def content(self, block: int) -> Any:
        return self.contents[block] if block < len(self.contents) else (self.number, block)


class Block:
    def __init__(self) -> None:
        self.content: Any = None
        self.references = 0


class Pool:
    """Free blocks in the order in which they were freed."""

    def __init__(self, settings: EngineSettings) -> None:
        self.settings = settings
        self.free: OrderedDict[int, Block] = OrderedDict()
        for _ in range(settings.blocks):
            block = Block()
            self.free[id(block)] = block
        self.holder: dict[Any, Block] = {}

    def hits(self, request: Request) -> list[Block]:
        found: list[Block] = []
        if self.settings.caching:
            for at in range((request.known - 1) // self.settings.block_size):
                block = self.holder.get(request.content(at))
                if block is None:
                    break
                found.append(block)
            if self.settings.drop_last:
                found = found[:-1]
        return found

    def needs(self, request: Request, hits: list[Block], tokens: int) -> int:
        wanted = ceil(tokens / self.settings.block_size)
        idle = sum(block.references == 0 for block in hits)
        return max(wanted - len(request.blocks) - len(hits), 0) + idle

    def take(self, request: Request, hits: list[Block], tokens: int) -> None:
        for block in hits:
            if block.references == 0:
                del self.free[id(block)]
            block.references += 1
        request.blocks += hits
        request.remembered += len(hits)
        while len(request.blocks) < ceil(tokens / self.settings.block_size):
            _, block = self.free.popitem(last=False)
            if block.content is not None:
                del self.holder[block.content]
                block.content = None
            block.references = 1
            request.blocks.append(block)

    def remember(self, request: Request, tokens: int) -> None:
        if self.settings.caching:
            for at in range(request.remembered, tokens // self.settings.block_size):
                request.remembered = at + 1
                content = request.content(at)
                if content not in self.holder:
                    self.holder[content] = request.blocks[at]
                    request.blocks[at].content = content

    def release(self, request: Request) -> None:
        for block in reversed(request.blocks):
            block.references -= 1
            if block.references == 0:
                self.free[id(block)] = block
        request.blocks, request.remembered = [], 0


class GroupPool(Pool):
    """Blocks of groups of layers, each in a list of its own, as vLLM has them: what lies behind a
    window is None.
    """

    def __init__(self, settings: EngineSettings, groups: Sequence[KvGroup]) -> None:
        super().__init__(settings)
        self.groups = [
            (group.window, group.spans * settings.block_size)
            for group in groups
            for _ in range(group.number)
        ]

    def tables(self, request: Request) -> list[list[Any]]:
        if not request.blocks:
            request.blocks = [[] for _ in self.groups]
        return request.blocks

    def needs(self, request: Request, hits: list[Block], tokens: int) -> int:
        return sum(
            max(ceil(tokens / size) - len(table), 0)
            for (_, size), table in zip(self.groups, self.tables(request), strict=True)
        )

    def take(self, request: Request, hits: list[Block], tokens: int) -> None:
        for (_, size), table in zip(self.groups, self.tables(request), strict=True):
            while len(table) < ceil(tokens / size):
                table.append(self.free.popitem(last=False)[1])

    def leave_behind(self, request: Request, processed: int) -> None:
        for (window, size), table in zip(self.groups, self.tables(request), strict=True):
            behind = 0 if window is None else max(processed - window + 1, 0) // size
            for at, block in enumerate(table[:behind]):
                if block is not None:
                    self.free[id(block)] = block
                    table[at] = None

    def most(self, tokens: int) -> int:
        s, found = self.settings, 0
        for window, size in self.groups:
            blocks = ceil(tokens / size)
            if window is not None:
                flying = s.budget * (2 if s.asynchronous else 1)
                blocks = min(blocks, ceil(min(window - 1 + flying, s.max_model_len) / size) + 1)
            found += blocks
        return found

    def release(self, request: Request) -> None:
        for block in (each for table in request.blocks for each in table if each is not None):
            self.free[id(block)] = block
        request.blocks = []


class Slot:
    """A slot of SGLang's adaptive steps, as a machine with lists."""

    def __init__(self, what: StepSlot, initial: int) -> None:
        self.what, self.choices = what, list(what.candidate_steps)
        here = initial in self.choices
        self.gamma = initial if here else self.choices[len(self.choices) // 2]
        self.average = self.gamma - 1.0
        self.rounds = 0

    def count(self, accepted: list[int]) -> None:
        w = self.what
        if self.gamma:
            mean = sum(accepted) / len(accepted)
            self.average = (1.0 - w.ema_alpha) * self.average + w.ema_alpha * mean
        self.rounds += 1
        late = self.rounds - w.warmup_batches
        if late <= 0 or late % w.update_interval:
            return
        self.gamma = self.wanted()

    def wanted(self) -> int:
        w, now = self.what, self.gamma
        below = [each for each in self.choices if each < now]
        above = [each for each in self.choices if each > now]
        if now == 0:
            if above and self.average < 0:
                self.average = above[0] - 1.0
            return above[0] if above else 0
        found = now
        while below and self.average <= (below[-1] or 1) - 0.5 + w.down_hysteresis:
            found = below.pop()
        if found == now:
            while above and self.average > found - 0.5 + w.up_hysteresis:
                found = above.pop(0)
        if w.ceiling_coeff:
            ceiling = max(1, ceil(self.average * w.ceiling_coeff))
            if ceiling < found <= now:
                lower = [each for each in self.choices if each <= ceiling]
                found = lower[-1] if lower else self.choices[0]
        return found


class Twin:
    def __init__(
        self,
        requests: Requests,
        engine: ServingEngine,
        model: StepModel,
        drafts: DraftPolicy,
        acceptance: RoundAcceptance | None,
        concurrency: int | None,
        seed: int,
    ) -> None:
        self.settings = engine.settings(drafts)
        self.sizes = engine.capture_sizes(drafts)
        self.model, self.policy = model, drafts
        self.acceptance = acceptance and acceptance.of_requests(len(requests), seed)
        self.seed, self.concurrency = seed, concurrency
        self.requests = []
        for i in range(len(requests)):
            contents: list[Any] = []
            if requests.prefix is not None:
                own, size = requests.prefix.block_tokens, self.settings.block_size
                # Smaller ones are joined: the last of them stands for all before it, too.
                joined, per = max(size // own, 1), max(own // size, 1)
                hashes = requests.prefix.of(i).tolist()[joined - 1 :: joined]
                contents = [(h, j) for h in hashes for j in range(per)]
                contents = [("shared", *content) for content in contents]
            arrival = float(requests.arrival_s[i])
            if concurrency is not None:
                arrival = 0.0 if i < concurrency else inf
            lengths = int(requests.prompt_tokens[i]), int(requests.output_tokens[i])
            self.requests.append(Request(i, arrival, *lengths, contents))
        self.pool = Pool(self.settings)
        if engine.kv_groups:
            self.pool = GroupPool(self.settings, engine.kv_groups)
        self.coming = deque(self.requests)
        self.came = 0
        self.waiting: deque[Request] = deque()
        self.running: list[Request] = []
        self.done = 0
        self.now = self.device_free = 0.0
        self.flying: deque[tuple[float, list[Any]]] = deque()
        self.ratio = self.settings.new_token_ratio
        self.chunked: Request | None = None
        self.batch_is_full = self.has_shrunk = False
        self.reads = False  # of SGLang: whether the step that is planned reads prompts
        self.steps: list[dict[str, Any]] = []
        self.round_log: list[tuple[int, int, int]] = []
        adaptive = drafts.adaptive
        self.slots = (
            [Slot(each, adaptive.initial_steps) for each in adaptive.slots] if adaptive else []
        )

    def run(self) -> Twin:
        while self.done < len(self.requests):
            self.admit()
            if not (self.running or self.waiting or self.flying):
                self.now = self.coming[0].arrival
                self.ratio = self.settings.new_token_ratio
                self.admit()
            plan, preempted = self.schedule()
            if not plan:
                assert preempted or self.flying, "nothing can be scheduled"
                if self.flying:
                    self.land()
                continue
            self.submit(plan, preempted)
            if len(self.flying) == 2 or not self.settings.asynchronous:
                self.land()
        return self

    def admit(self) -> None:
        while self.coming and self.coming[0].arrival <= self.now:
            self.waiting.append(self.coming.popleft())
            self.came += 1

    def schedule(self) -> tuple[list[Any], int]:
        if self.settings.kind == SGLANG:
            plan, preempted = self.prefill_sglang(), 0
            self.reads = bool(plan)
            if not self.reads:
                plan, preempted = self.decode_sglang()
        else:
            plan, preempted = self.schedule_vllm()
        # What SGLang drafts it verifies in the same step.
        gamma = 0 if self.settings.kind == SGLANG else self.gamma(len(plan))
        for entry in plan:
            request, tokens, drafts, _ = entry
            request.computed += tokens
            samples = request.computed >= request.known + request.placeholders
            entry.append(samples)
            if samples:
                request.drafts = gamma
                if self.settings.asynchronous:
                    request.placeholders += 1 + drafts
        return plan, preempted

    def gamma(self, batch: int) -> int:
        if self.policy.adaptive is not None:
            return self.slot(batch).gamma
        found = 0
        for first, _, gamma in self.policy.schedule:
            if batch >= first:
                found = gamma
        return found

    def slot(self, batch: int) -> Slot:
        widths = 1 + self.policy.gamma_max
        for graph in self.sizes.tolist():
            if graph // widths >= batch:
                batch = graph // widths
                break
        begun = [each for each in self.slots if each.what.batch <= batch]
        return begun[-1] if begun else self.slots[0]

    def schedule_vllm(self) -> tuple[list[Any], int]:
        s, plan, preempted = self.settings, [], 0
        budget = s.budget - s.draft_slots  # what the next request may take
        alone = len(self.running) + len(self.waiting) == 1
        chunk = s.chunk or 2**31 - 1
        if alone and not s.chunks_alone:
            chunk = 2**31 - 1
        at = 0
        while at < len(self.running) and budget > 0:
            r = self.running[at]
            tokens = r.known + r.drafts + r.placeholders - r.computed
            tokens = min(tokens, chunk, budget, s.max_model_len - 1 - r.computed)
            last_is_in_flight = r.placeholders > 0 and (
                r.computed - (r.placeholders - 1) + 1 >= r.prompt + r.output
            )
            if tokens <= 0 or last_is_in_flight:
                at += 1
                continue
            slots = min(r.computed + tokens + s.lookahead, s.max_model_len)
            if isinstance(self.pool, GroupPool):
                running = sum(e[1] for _, plan in self.flying for e in plan if e[0] is r)
                self.pool.leave_behind(r, max(r.computed - running, 0))
            while self.pool.needs(r, [], slots) > len(self.pool.free):
                victim = self.running.pop()
                self.pool.release(victim)
                victim.status, victim.computed, victim.drafts = "preempted", 0, 0
                victim.preemptions += 1
                self.waiting.appendleft(victim)
                preempted += 1
                if victim is r:
                    break
            if r.status == "preempted":
                break
            self.pool.take(r, [], slots)
            self.pool.remember(r, min(r.computed + tokens, r.known))
            spec = max(r.computed + tokens - r.known - r.placeholders, 0)
            plan.append([r, tokens, spec, r.computed])
            r.drafts = 0
            budget -= tokens + s.draft_slots
            at += 1
        while self.waiting and not preempted and budget > 0 and len(self.running) < s.max_seqs:
            r = self.waiting[0]
            hits = self.pool.hits(r)
            cached = len(hits) * s.block_size
            tokens = min(r.known - cached, chunk)
            if tokens > budget and not s.chunked:
                break
            tokens = min(tokens, budget)
            free = len(self.pool.free) - (s.watermark_blocks if self.running else 0)
            grouped = isinstance(self.pool, GroupPool)
            whole = self.pool.most(r.known) if grouped else self.pool.needs(r, hits, r.known)
            if s.full_isl and whole > free:
                break
            slots = min(cached + tokens + s.admission_lookahead, s.max_model_len)
            if self.pool.needs(r, hits, slots) > free:
                break
            self.waiting.popleft()
            if r.scheduled is None:
                r.scheduled, r.cached = self.now, cached
            self.running.append(r)
            r.status, r.computed = "running", cached
            self.pool.take(r, hits, slots)
            self.pool.remember(r, cached + tokens)
            plan.append([r, tokens, 0, cached])
            budget -= tokens + s.draft_slots
        return plan, preempted

    def prefill_sglang(self) -> list[Any]:
        s, page, plan = self.settings, self.settings.block_size, []
        if self.has_shrunk or self.chunked or not self.running:
            self.batch_is_full = False
        self.has_shrunk = False
        if self.chunked is None and (self.batch_is_full or not self.waiting):
            return []

        def new(r: Request) -> int:
            return min(r.output - r.emitted, 4096)

        def pages(tokens: int) -> int:
            return ceil(tokens / page) * page

        left = float(len(self.pool.free) * page)
        for r in self.running:
            if r is not self.chunked:
                left -= new(r) * self.ratio
        budget, chunk = s.budget, s.chunk or 2**31 - 1
        if self.chunked is not None:
            r = self.chunked
            rest = r.known - r.computed
            self.pool.remember(r, r.computed)
            tokens = min(rest, chunk)
            if left >= 1:
                tokens = min(tokens, int(left))
            if self.pool.needs(r, [], r.computed + tokens) > len(self.pool.free):
                return []
            self.pool.take(r, [], r.computed + tokens)
            plan.append([r, tokens, 0, r.computed])
            if tokens < rest:
                return plan
            left -= pages(tokens) + page + min(r.output, 4096)
            budget, chunk, self.chunked = budget - pages(tokens), chunk - pages(tokens), None
        if s.longest_prefix_first and s.caching and len(self.waiting) <= 128:
            hits = {r.number: len(self.pool.hits(r)) for r in self.waiting}
            self.waiting = deque(sorted(self.waiting, key=lambda r: -hits[r.number]))
        while self.waiting and budget > 0 and chunk > 0:
            if len(self.running) >= s.max_seqs:
                self.batch_is_full = True
                break
            r = self.waiting[0]
            found = self.pool.hits(r)
            cached = len(found) * page
            rest = r.known - cached
            beside = left - page * sum(block.references == 0 for block in found)
            if rest + new(r) + page >= beside:
                self.batch_is_full = True
                break
            if not s.chunk and plan and pages(rest) >= budget:
                break
            tokens = rest
            if pages(rest) > chunk:
                tokens = chunk // page * page
                if not tokens:
                    break
                self.chunked = r
            self.waiting.popleft()
            if r.scheduled is None:
                r.scheduled, r.cached = self.now, cached
            self.running.append(r)
            r.status, r.computed = "running", cached
            self.pool.take(r, found, cached + tokens)
            plan.append([r, tokens, 0, cached])
            left = beside - pages(tokens) - page
            if self.chunked is not r:
                left -= min(r.output, 4096)
            self.batch_is_full |= left <= 0
            if left <= 0 or self.chunked is r:
                break
            budget, chunk = budget - pages(tokens), chunk - pages(tokens)
        return plan

    def decode_sglang(self) -> tuple[list[Any], int]:
        s, plan, retracted = self.settings, [], 0

        def end(r: Request) -> int:
            return r.known + r.placeholders + r.drafts

        def last_is_in_flight(r: Request) -> bool:
            return r.placeholders > 0 and r.emitted + 1 >= r.output

        def decoding() -> list[Request]:
            return [r for r in self.running if r is not self.chunked and not last_is_in_flight(r)]

        def fits() -> bool:
            return sum(self.pool.needs(r, [], end(r)) for r in decoding()) <= len(self.pool.free)

        def draft() -> None:
            batch = decoding()
            for r in batch:
                r.drafts = self.gamma(len(batch))

        draft()
        ending = any(last_is_in_flight(r) for r in self.running)
        self.batch_is_full &= not ending
        if fits():
            if decoding():
                self.ratio = max(self.ratio - s.new_token_ratio_decay, s.least_new_token_ratio)
        elif ending:
            return [], 0
        else:
            while len(decoding()) > 1 and not (retracted and fits()):
                order = sorted(decoding(), key=lambda r: (r.emitted, -r.prompt), reverse=True)
                victim = order[-1]
                self.running.remove(victim)
                self.pool.release(victim)
                victim.status, victim.computed, victim.drafts = "preempted", 0, 0
                victim.preemptions += 1
                self.waiting.append(victim)
                retracted += 1
                draft()
            decoded = sum(r.emitted + 20 for r in decoding())
            self.ratio = min(decoded / (sum(r.output for r in decoding()) + 1), 1.0)
            self.batch_is_full = False
        for r in decoding():
            if self.pool.needs(r, [], end(r)) > len(self.pool.free):
                continue
            self.pool.take(r, [], end(r))
            plan.append([r, end(r) - r.computed, r.drafts, r.computed])
            r.drafts = 0
        return plan, retracted

    def submit(self, plan: list[Any], preempted: int) -> None:
        decodes = []
        if not self.reads:
            decodes = [e for e in plan if e[4] and e[3] > 0 and e[1] == 1 + e[2]]
        chunks = [e for e in plan if not any(e is d for d in decodes)]
        tokens = sum(e[1] for e in plan)
        eager = self.sizes.size == 0 or tokens > self.sizes[-1]
        eager |= self.reads
        verified, context = sum(e[1] for e in decodes), sum(e[1] + e[3] for e in decodes)
        pairs = sum(sum(range(e[3] + 1, e[3] + e[1] + 1)) for e in chunks)
        read = sum(e[1] for e in chunks)
        gamma, drafting = self.gamma(len(plan)), sum(e[4] for e in plan)
        if self.reads:
            gamma, drafting = min(gamma, 1), len(plan)
        step = {
            "tokens": tokens,
            "padded_tokens": tokens if eager else min(n for n in self.sizes if n >= tokens),
            "verified_tokens": verified,
            "prefill_tokens": read,
            "prefill_chunks": len(chunks),
            "prefill_context": sum(e[3] for e in chunks),
            "prefill_pairs": pairs,
            "decodes": len(decodes),
            "decode_width": verified / len(decodes) if decodes else 0.0,
            "decode_context": context,
            "mean_decode_context": context / len(decodes) if decodes else 0.0,
            "sequences": len(plan),
            "sampled": verified + sum(e[4] for e in chunks),
            "drafting": drafting if self.policy.schedule else 0,
            "gamma": gamma,
            "next_draft_runs": max(gamma - 1, 0),
            "chunk_context": max(pairs / read - 0.5 * (read + 1), 0.0) if read else 0.0,
            "arrivals": self.came,
        }
        self.came = 0
        parts = np.zeros(len(self.model.parts))
        quantities = np.array([float(step[name]) for name in QUANTITIES])
        step_seconds(self.model.compiled, quantities, eager, parts)
        model, own = self.model, self.requests[0].number + 2**62
        variation = model.prompt_step_variation if chunks else model.step_variation
        parts *= drawn(variation, uniform(self.seed, own, len(self.steps)))
        host = parts[self.model.host_part] if self.model.host_part >= 0 else 0.0
        device = 0.0
        for at, seconds in enumerate(parts):
            if at != self.model.host_part:
                device += seconds
        begin = max(self.now, self.device_free)
        self.device_free = max(self.now + host, self.device_free) + device
        self.flying.append((self.device_free, plan))
        self.steps.append(
            {
                **step,
                "start_s": begin,
                "end_s": self.device_free,
                "reads": self.reads,
                "used_blocks": self.settings.blocks - len(self.pool.free),
                "waiting": len(self.waiting),
                "running": len(self.running),
                "preempted": preempted,
            }
        )
        self.now += host

    def land(self) -> None:
        end, plan = self.flying.popleft()
        self.now = max(self.now, end)
        number = len(self.steps) - 1 - len(self.flying)
        accepted = []
        first = [r for r, *_, samples in plan if samples and not r.emitted]
        for r, width, drafts, before, samples in plan:
            if not samples or r.status == "done":
                continue
            assert self.acceptance is not None or not drafts
            tokens = 1
            if self.acceptance is not None:
                place = r.number, r.rounds, r.emitted, drafts
                tokens = round_tokens(self.acceptance, self.seed, *place)
            if before and width == 1 + drafts and not self.steps[number]["reads"]:
                accepted.append(tokens - 1)
            if self.settings.asynchronous:
                r.placeholders -= 1 + drafts
            if r.status == "preempted" and self.settings.kind == SGLANG:
                continue
            if r.status == "running":
                r.computed -= 1 + drafts - tokens
            tokens = min(tokens, r.output - r.emitted)
            if not r.emitted:
                model, beside = self.model, self.steps[number]["decodes"]
                r.frontend = model.frontend_s + model.frontend_decode_s * beside
                r.frontend += model.frontend_prompt_s * (len(first) - 1)
                draw = uniform(self.seed, r.number, 2**62)
                r.frontend *= drawn(model.frontend_variation, draw)
                r.first = self.now + r.frontend
            r.emitted += tokens
            r.rounds += 1
            self.round_log.append((r.number, number, tokens))
            if r.status == "running" and self.settings.kind == SGLANG:
                self.pool.remember(r, r.prompt)
            elif r.status == "running" and self.settings.asynchronous:
                self.pool.remember(r, r.computed - r.placeholders)
            if r.emitted == r.output:
                self.finish(r)
        if self.slots and accepted:
            self.slot(len(accepted)).count(accepted)

    def finish(self, r: Request) -> None:
        if r.status == "running":
            self.pool.release(r)
            self.running.remove(r)
        else:
            self.waiting.remove(r)
        r.status, r.last, self.has_shrunk = "done", self.now + r.frontend, True
        self.done += 1
        if self.concurrency is not None and self.concurrency + self.done <= len(self.requests):
            times = sorted([*(r.arrival for r in self.coming if r.arrival < inf), r.last])
            for follower, time in zip(self.coming, times, strict=False):
                follower.arrival = time
