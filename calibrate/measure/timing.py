"""Run times and host time of one sequence, from real decoding.

What a run costs depends on what runs before it, on what the host does in between and on what lies
in the processor's caches, so runs are not timed in a loop of their own: requests are decoded
plainly and with every draft length in turn, in random order, and every run is kept with those of
plain decoding just before and after, since a machine drifts by tens of percent within minutes.
Each pass through all draft lengths is kept apart: how much passes differ says how sure a cost is.
"""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from math import inf
from statistics import fmean
from typing import Any

import numpy as np

from calibrate.decode.drafters.copying import PromptLookup
from calibrate.decode.engine import CachedModel, Decoded, DecodeRequest
from calibrate.decode.plain import plain
from calibrate.decode.speculative import speculative
from calibrate.measure.grid import joined
from calibrate.measure.trace import OVERHEAD, generator
from calibrate.models.collector import models_not_walked
from calibrate.models.sampling import Sampling
from specsim.acceptance import AcceptanceLaw
from specsim.api.progress import Progress
from specsim.checkpoint import Checkpoint

# Tokens that are decoded each time.  The first runs of a request take longer, with what another
# decoder left in the processor's caches, so that few tokens make every run dear, and those of plain
# decoding by another share than those with drafts (benchmarks/runs_in_requests.py).
TOKENS = 64
# Tokens of a first plain decoding, which finds cold caches and is not counted.
_WARM_UP = 8
# Draft lengths between two plain decodings.
_BETWEEN = 2
# What progress says, while a pass is timed and while the next is not due yet.
RUN_TIMES, WAITING = "run times", "waiting for the next pass"
# Contexts that are told apart.
_BIN = 64

# Model, the model that ran just before, new tokens, context.
Kind = tuple[str, str, int, int]


@dataclass(frozen=True)
class TimedText:
    """A text that decoding is timed on.

    prompt : of the calibration
    written : what the target wrote behind it, in the trace
    """

    prompt: Sequence[int]
    written: Sequence[int]

    def begun(self, number: int, tokens: int) -> Sequence[int]:
        """What is written where ``tokens`` more are decoded: by turns at its start and its end."""
        late = max(len(self.written) - tokens, 0) if number % 2 else 0
        return self.written[:late]


def time_decoding(
    target: CachedModel,
    draft: CachedModel | PromptLookup,
    texts: Sequence[Sequence[TimedText]],
    samplings: Sequence[Sampling],
    gamma_max: int,
    tokens: int,
    passes: int,
    seed: int,
    checkpoint: Checkpoint,
    advance: Callable[[], None] = lambda: None,
    acceptance_law: AcceptanceLaw = "ratio-test",
    wait: Callable[[int], None] = lambda number: None,
) -> dict[str, list[dict[str, Any]]]:
    """The rows ``run_times`` and ``overhead`` of a profile.

    texts : of each sampling; every two passes take the next one of each, at its start and its end
    tokens : decoded each time, at most
    advance : called after every pass, which is through all temperatures
    wait : called with the number of each pass before it is begun, unless it is kept
    """

    def measured(number: int, index: int) -> dict[str, list[dict[str, Any]]]:
        sampling, text = samplings[index], texts[index][number // 2 % len(texts[index])]
        # Behind its end a text says other things, which neither a trace nor a check has.
        room = min(tokens, max(len(text.written), gamma_max + 1))
        begun = text.begun(number, room)
        context = len(text.prompt) + len(begun)
        random = np.random.default_rng([OVERHEAD, seed, number, index])

        def decode(gamma: int, limit: int = room) -> Decoded:
            draws = generator(target.device, OVERHEAD, seed, number, index, gamma)
            request = DecodeRequest(text.prompt, limit, sampling, draws, written=begun)
            if gamma:
                decoding = speculative(target, draft, request, gamma, acceptance_law=acceptance_law)
            else:
                decoding = plain(target, request)
            return decoding.finish()

        decode(0, min(_WARM_UP, room))
        # Each temperature of a pass is a stretch of time of its own.
        turn = number * len(samplings) + index
        order = random.permutation(range(1, gamma_max + 1)).tolist()
        beside = [decode(0)]
        rows = TimedRows(sampling.temperature)
        for first in range(0, gamma_max, _BETWEEN):
            found = [(gamma, decode(gamma)) for gamma in order[first : first + _BETWEEN]]
            beside.append(decode(0))
            for gamma, decoded in found:
                rows.add(turn, context, gamma, decoded, beside[-2:])
        for decoded in beside:
            rows.add(turn, context, 0, decoded, [decoded])
        return rows.found

    parts = []
    with models_not_walked():
        for number in range(passes):
            names = [f"times-{number}-{index}.json" for index in range(len(samplings))]
            if names[0] not in checkpoint:
                wait(number)
            for index, name in enumerate(names):
                parts.append(checkpoint.keep_json(name, partial(measured, number, index)))
            advance()
    return {
        name: joined([row for part in parts for row in part[name]])
        for name in ("run_times", "overhead")
    }


def spread_evenly(over_s: float, passes: int, progress: Progress) -> Callable[[int], None]:
    """A function that waits until a pass is due, where so many begin evenly over ``over_s`` >= 0
    seconds; the first that it is called with is due at once, also in a run that goes on.
    """
    due = -inf

    def wait(number: int) -> None:
        nonlocal due
        if (left := due - time.monotonic()) > 0:
            progress(WAITING, number, passes)
            time.sleep(left)
            # What other programs do from now on is beside a measurement.
            progress(RUN_TIMES, number, passes)
        due = time.monotonic() + over_s / max(passes - 1, 1)

    return wait


class TimedRows:
    """What decoding at one temperature took, as rows of a profile.

    found : the rows ``run_times`` and ``overhead``, one for each time they are added to
    """

    def __init__(self, temperature: float) -> None:
        self.temperature = temperature
        self.found: dict[str, list[dict[str, Any]]] = {"run_times": [], "overhead": []}

    def add(
        self,
        number: int,
        prompt_tokens: int,
        gamma: int,
        decoded: Decoded,
        beside: Sequence[Decoded],
    ) -> None:
        """What was decoded in a pass, and what was plainly decoded of the same text beside it."""
        plain: dict[int, list[float]] = defaultdict(list)
        for each in beside:
            for (*_, context), seconds in runs(each, 0, prompt_tokens):
                plain[context].append(seconds)
        everywhere = fmean(seconds for found in plain.values() for seconds in found)
        found: dict[Kind, list[float]] = defaultdict(list)
        for kind, seconds in runs(decoded, gamma, prompt_tokens):
            found[kind].append(seconds)

        def usual(context: int) -> float:
            return fmean(plain[context]) if plain.get(context) else everywhere

        alone = {"batch": 1, "mode": "eager"}
        for (model, follows, tokens, context), took in found.items():
            where = {"model": model, "follows": follows, "tokens": tokens, "context": context}
            counted = {"passes": number, "runs": len(took)}
            if model == "draft":
                counted["gammas"] = gamma
            self._keep("run_times", where | alone, fmean(took), usual(context), **counted)
        host_s = fmean(host_seconds(decoded, gamma, prompt_tokens, usual))
        where = {"temperature": self.temperature, "gamma": gamma, "context": 0}
        self._keep("overhead", where | alone, host_s, everywhere, passes=number)

    def _keep(
        self, name: str, where: dict[str, Any], seconds: float, plain: float, **counted: int
    ) -> None:
        # Clocks give nanoseconds; more digits are noise that profiles would have to carry.
        lists = {"seconds": [round(seconds, 9)], "plain": [round(plain, 9)]}
        self.found[name].append({**where, **lists, **{each: [n] for each, n in counted.items()}})


def runs(decoded: Decoded, gamma: int, prompt_tokens: int) -> Iterator[tuple[Kind, float]]:
    """Every run of whole blocks, with its seconds; contexts to the middle of their bin.

    Where a lookup drafts, without runs of its own, every block that drafts something is whole: the
    target reads what was found, right after itself.  One that drafts nothing is priced as a run of
    plain decoding; what it takes longer is host time (``host_seconds``).
    """
    for block in _blocks(decoded, prompt_tokens):
        if block.drafted == gamma or (block.drafted and not decoded.drafts):
            for number, (tokens, draft_s) in enumerate(block.draft_runs):
                yield ("draft", "draft" if number else "target", tokens, block.context), draft_s
            verified, seconds = block.target_run
            follows = "draft" if block.draft_runs else "target"
            yield ("target", follows, verified, block.context), seconds


def host_seconds(
    decoded: Decoded, gamma: int, prompt_tokens: int, usual: Callable[[int], float]
) -> Iterator[float]:
    """Seconds outside the model runs of every block that has room for ``gamma`` drafts; of all
    where none has.

    Short blocks at the end draw fewer tokens, and are more of a timed text than of a whole request.
    Where a block drafts nothing, the target's run takes longer between wider ones than in plain
    decoding (benchmarks/runs_in_requests.py), and most blocks of a lookup at temperature 1 are such
    ones.

    usual : seconds of a plain run at a context
    """
    blocks = list(_blocks(decoded, prompt_tokens))
    for block in [each for each in blocks if each.room >= gamma] or blocks:
        host_s = block.seconds - block.target_run[1] - sum(took for _, took in block.draft_runs)
        if not block.drafted:
            host_s += block.target_run[1] - usual(block.context)
        yield host_s


@dataclass(frozen=True)
class _Block:
    """One block of a request, runs as new tokens and seconds.

    context : in the cache, to the middle of its bin
    room : tokens that could be drafted before the end of the request
    """

    context: int
    room: int
    drafted: int
    draft_runs: list[tuple[int, float]]
    target_run: tuple[int, float]
    seconds: float


def _blocks(decoded: Decoded, prompt_tokens: int) -> Iterator[_Block]:
    draft, target = iter(decoded.draft.each), iter(decoded.target.each)
    context, to_go = prompt_tokens - 1, len(decoded.tokens)
    for drafted, accepted, seconds in zip(
        decoded.drafted, decoded.accepted, decoded.block_s, strict=True
    ):
        drafts = [next(draft) for _ in range(drafted if decoded.drafts else 0)]
        middle = context // _BIN * _BIN + _BIN // 2
        yield _Block(middle, to_go - 1, drafted, drafts, next(target), seconds)
        context += accepted + 1
        to_go -= accepted + 1
