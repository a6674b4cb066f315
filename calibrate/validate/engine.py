"""What a real inference engine counts of its drafts, beside the replay of the same text."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import ExitStack
from functools import cache, partial, reduce
from operator import add
from typing import Any

from calibrate.decode.drafters.copying import continuation
from calibrate.engine.asked import Asked as Asked
from calibrate.engine.client import Client, Completed, counted
from calibrate.engine.rates import LAWS, acceptance_rates
from calibrate.engine.servers import Servers as Servers
from calibrate.measure.trace import DECODING, generator
from calibrate.models.load import Pair
from specsim.acceptance import AcceptanceLaw
from specsim.api.validation import EngineCheck
from specsim.checkpoint import Checkpoint
from specsim.checks import UnsupportedError
from specsim.counts.drafts import DraftCounts
from specsim.predict.replay.engine_rounds import (
    ExpectedRounds,
    engine_rounds,
    engine_rounds_of_proposals,
)

# Requests that are decoded together; counts do not depend on it.
_TOGETHER = 8


def validate(
    pair: Pair,
    servers: Servers,
    asked: Sequence[Asked],
    check: EngineCheck,
    checkpoint: Checkpoint,
    advance: Callable[[], None] = lambda: None,
) -> list[dict[str, Any]]:
    """Rows of counted beside replayed, one per draft length and workload.

    checkpoint : keeps what a server answered to a workload, and its counters; no server is asked,
        and none is started, where all of that is there
    """
    rows: list[dict[str, Any]] = []
    for gamma in servers.gammas:
        with ExitStack() as stack:
            client = cache(partial(stack.enter_context, servers.client(gamma)))
            for number, each in enumerate(asked):
                name = f"{gamma}-{number}.json"
                for _ in each.prompts if name in checkpoint else ():
                    advance()
                complete = partial(_complete, client, each, check.seed, advance)
                done = checkpoint.keep_json(name, complete, Completed)
                where = servers.url or f"the server with draft length {gamma}"
                rows.append(_row(where, pair, each, check, gamma, done))
    return rows


def _complete(
    client: Callable[[], Client], asked: Asked, seed: int, advance: Callable[[], None]
) -> Completed:
    """Texts that are the same again, whoever is decoded beside."""
    sampling = asked.check.workload.measured.sampling
    own = None if asked.check.sampling.greedy else seed
    return client().complete(asked.prompts, asked.tokens, sampling, _TOGETHER, advance, own)


def _row(
    url: str, pair: Pair, asked: Asked, check: EngineCheck, gamma: int, done: Completed
) -> dict[str, Any]:
    counts = counted(done.before, done.after, url)
    greedy = asked.check.sampling.greedy
    law, other = LAWS[check.drafts], next(o for o in LAWS.values() if o != LAWS[check.drafts])
    others: ExpectedRounds | None = None
    same_text = None
    if check.method == "ngram":
        expected = _of_copies(asked, check, gamma)
    elif greedy:
        expected = _of_trace(asked, gamma)
    else:
        expected = _of_texts(pair, asked, done.texts, gamma, law, check.seed)
        others = _of_texts(pair, asked, done.texts, gamma, other, check.seed)
    if greedy:
        same_text = all(
            text == recorded[: len(text)]
            for text, recorded in zip(done.texts, asked.recorded, strict=True)
        )
    return {
        "temperature": asked.check.sampling.temperature,
        "method": check.method,
        "drafts": check.drafts,
        "gamma": gamma,
        "requests": len(asked.requests),
        "tokens": sum(asked.tokens),
        "same_text": same_text,
        **_compared(expected, counts),
        "other_law_rounds": others and others.counts.rounds,
        "other_law_tokens_per_call": others and _tokens_per_call(others.counts),
        "other_law_z": others and _largest_z(others, counts),
    }


def _compared(expected: ExpectedRounds, counts: DraftCounts) -> dict[str, Any]:
    """Counted beside replayed, and their standard scores.

    ``exact`` says whether all are equal, where the text leaves nothing to chance.
    """
    positions = range(1, expected.gamma + 1)
    replayed = expected.counts

    def by_position(values: Sequence[float]) -> dict[str, float]:
        return {str(i): float(value) for i, value in zip(positions, values, strict=True)}

    return {
        "replayed_rounds": replayed.rounds,
        "counted_rounds": counts.rounds,
        "replayed_drafted": replayed.drafted,
        "counted_drafted": counts.drafted,
        "replayed_accepted": by_position(replayed.reached),
        "counted_accepted": by_position(counts.reached),
        "replayed_tokens_per_call": _tokens_per_call(replayed),
        "counted_tokens_per_call": _tokens_per_call(counts),
        "exact": _largest_z(expected, counts) == 0 if expected.certain else None,
        "z_rounds": expected.z_rounds(counts),
        "z_accepted": by_position(expected.z_reached(counts).tolist()),
        "largest_z": _largest_z(expected, counts),
    }


def _tokens_per_call(counts: DraftCounts) -> float | None:
    return counts.tokens_per_call if counts.rounds else None


def _largest_z(expected: ExpectedRounds, counts: DraftCounts) -> float:
    totals = expected.z_rounds(counts), expected.z_drafted(counts)
    scores = [*totals, *expected.z_reached(counts)]
    return float(max(map(abs, scores)))


def _of_trace(asked: Asked, gamma: int) -> ExpectedRounds:
    trace = asked.check.trace
    found = [
        engine_rounds(trace.acceptance[trace.starts[number] : trace.starts[number + 1]], n, gamma)
        for number, n in zip(asked.requests, asked.tokens, strict=True)
    ]
    return reduce(add, found)


def _of_copies(asked: Asked, check: EngineCheck, gamma: int) -> ExpectedRounds:
    """Prompt lookup as vLLM 0.32.0 has it (``v1/spec_decode/ngram_proposer.py``).

    What followed the longest match of the text's last tokens, of ``lookup_max`` to
    ``lookup_min`` many, at its earliest occurrence; as many tokens as there are, and none without
    a match.
    """
    if not asked.check.sampling.greedy:
        raise UnsupportedError(
            "method ngram is replayed at temperature 0, where the trace says what the engine "
            "writes behind the end; give temperature=0"
        )
    found = []
    for prompt, text, n in zip(asked.prompts, asked.recorded, asked.tokens, strict=True):
        proposals = [
            continuation([*prompt, *text[:place]], gamma, *check.lookups) for place in range(n)
        ]
        found.append(engine_rounds_of_proposals(text, proposals, n, gamma))
    return reduce(add, found)


def _of_texts(
    pair: Pair,
    asked: Asked,
    texts: Sequence[Sequence[int]],
    gamma: int,
    law: AcceptanceLaw,
    seed: int,
) -> ExpectedRounds:
    """The engine's own texts, read by both models."""
    target, draft = pair.cached(timed=False)
    found = []
    for number, (prompt, text) in enumerate(zip(asked.prompts, texts, strict=True)):
        random = generator(target.device, DECODING, seed, number)
        rates = acceptance_rates(
            *(target, draft, prompt, text, gamma - 1, asked.check.sampling, law, random)
        )
        found.append(engine_rounds(rates, len(text), gamma))
    return reduce(add, found)
