"""``specsim.replay``: a trace, replayed exactly for every draft length, and for adaptive ones."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from os import PathLike
from pathlib import Path
from typing import Any, ClassVar, Literal

import numpy as np
import numpy.typing as npt

from specsim.acceptance import ACCEPTANCE_LAWS, AcceptanceLaw
from specsim.api.result import Result, Row
from specsim.checks import (
    Floats,
    InvalidArgumentError,
    check_choice,
    integer,
    number,
    refuse,
)
from specsim.cost import Prices
from specsim.predict.replay import fixed_gamma
from specsim.predict.replay.confidence import replay_confidence
from specsim.predict.replay.policy import (
    PolicyReplay,
    draw_policy,
    exact_work,
    replay_policy,
)
from specsim.predict.replay.streamed import StreamedReplay, WorkError, replay_streamed
from specsim.schemes.policies import EstimateAlpha, GrowShrink
from specsim.traces import Trace, read_trace

# Where an adaptive length starts in each request, unless the largest is smaller.
_FIRST_GAMMA = 5

Policy = Literal["grow-shrink", "estimate"]

# Draft lengths far beyond use.  A length costs as many multiplications a token as it is long, and
# so many of them take about half an hour.
_LONGEST = 10**6
_MOST_WORK = 10**11
# Places of a chain that an exact replay of a policy goes through, in some ten seconds.
_MOST_EXACT = 2e7


@dataclass(frozen=True)
class Replayed:
    """One draft length, or one policy, on the whole trace.

    gamma : the length, or the name of the policy, or the confidence below which drafts stop
    tokens : of the trace
    calls : expected target calls until all of them are there
    speedup : against plain decoding; None where no cost is known
    """

    gamma: int | str
    tokens: int
    calls: float
    tokens_per_call: float
    speedup: float | None


@dataclass(frozen=True, kw_only=True)
class TraceReplay(Result):
    """A trace, replayed.

    lengths : one for each draft length, then one for each policy and each p_min
    """

    schema: ClassVar[str] = "specsim.replay"

    lengths: tuple[Replayed, ...]

    def rows(self) -> list[Row]:
        rows = [dict(vars(each)) for each in self.lengths]
        return [{key: value for key, value in row.items() if value is not None} for row in rows]


def replay(
    trace: Trace | str | PathLike[str],
    gammas: Sequence[int] = range(1, 17),
    *,
    greedy: bool = False,
    acceptance_law: AcceptanceLaw | None = None,
    policies: Sequence[Policy] = (),
    p_min: Sequence[float] = (),
    c: float | None = None,
    verify_slope: float | None = None,
    verify_cost: npt.ArrayLike | None = None,
    overhead: float | None = None,
) -> TraceReplay:
    """Expected target calls for every draft length, exactly, from one trace.

    trace : or its file, a row per token of text drawn from the target (specsim.traces)
    greedy : the text of a file was decoded at temperature 0: ``argmax_equal`` decides acceptance
    acceptance_law : how drafts of a file are accepted, None is by the ratio test; at temperature 0
        (``greedy``) all laws agree
    policies : also an adaptive length, at most the largest of ``gammas``: transformers' +2/-1
        ("grow-shrink"), or the best for an estimated alpha ("estimate", needs ``c``); on long
        traces they are drawn, and ``warnings`` says how far that may be off
    p_min : also drafts of at most the largest of ``gammas`` that stop where the draft's largest
        probability is below one of these (llama.cpp's --spec-draft-p-min); needs draft_top
    c : cost of a draft run in target runs, for speedups; with verification and overhead as in
        ``optimize``

    Calls are counted for requests exactly as long as the trace's.  The trace of prompt lookup has
    no draft runs, so its ``c`` is 0, and a block verifies as many tokens as were found.
    """
    prices = Prices(c, None, None, verify_slope, verify_cost, overhead)
    inputs: dict[str, Any] = {
        "trace": None,
        "gammas": list(gammas),
        "greedy": greedy,
        "acceptance_law": None,
        "policies": list(policies),
        "p_min": list(p_min),
        **prices.said(),
    }
    if c is None:
        refuse(prices.said(), "needs c, the cost of a draft run")
        if "estimate" in policies:
            raise InvalidArgumentError("the policy estimate needs c, the cost of a draft run")
    if not len(gammas):
        raise InvalidArgumentError("gammas is empty, expected at least one draft length")
    longest = max(integer("gamma", gamma, high=_LONGEST) for gamma in gammas)
    law: AcceptanceLaw | None = None
    if isinstance(trace, Trace):
        refuse({"acceptance_law": acceptance_law}, "needs a file: a Trace holds its acceptance")
        text = trace
    else:
        law = acceptance_law or "ratio-test"
        check_choice("acceptance_law", law, ACCEPTANCE_LAWS)
        inputs |= {"trace": trace, "acceptance_law": law}
        if not (policies or p_min):
            check = partial(_check_work, gammas, longest)
            streamed = replay_streamed(Path(trace), gammas, greedy, law, check)
            if streamed is not None:
                costs = None if c is None else _blocks(prices, c, longest)
                lengths = tuple(_of_calls(gamma, streamed, costs) for gamma in gammas)
                return TraceReplay(lengths=lengths, inputs=inputs)
        text = read_trace(Path(trace), greedy, law)
    if not text.by_lookup:
        _check_work(gammas, int(text.lengths.max()), text.tokens)
    blocks = None
    if c and text.by_lookup:
        raise InvalidArgumentError(
            f"c must be 0 with a trace of prompt lookup, which has no draft runs, got {c:g}; "
            "searching is overhead"
        )
    if c is not None:
        blocks = _blocks(prices, c, longest)
    found = [
        Replayed(
            gamma=each.gamma,
            tokens=int(each.lengths.sum()),
            calls=each.total_calls,
            tokens_per_call=each.tokens_per_call,
            speedup=None if blocks is None else _speedup(text, each, blocks, prices),
        )
        for each in fixed_gamma.replay(text, gammas)
    ]
    doubts: list[str] = []
    for name in policies:
        policy = (
            GrowShrink(min(_FIRST_GAMMA, longest), longest)
            if name == "grow-shrink"
            else EstimateAlpha(c or 0.0, gamma_max=longest)
        )
        adaptive = _adaptive(text, policy)
        if adaptive.error:
            doubts.append(
                f"policy {name} is drawn, as its exact replay would take too long: its calls are "
                f"known to {1.96 * adaptive.error:.2%} (95 %)"
            )
        counts = np.asarray(adaptive.blocks)
        spent = None if blocks is None else float(counts @ blocks[: counts.size])
        found.append(
            Replayed(
                gamma=name,
                tokens=adaptive.tokens,
                calls=float(adaptive.calls.sum()),
                tokens_per_call=adaptive.tokens_per_call,
                speedup=None if spent is None else adaptive.tokens / spent,
            )
        )
    for threshold in p_min:
        sure, spent = replay_confidence(text, threshold, longest), None
        if blocks is not None:
            # The run that was not sure enough is paid for as well.
            spent = float(sure.lengths @ blocks[: longest + 1]) + sure.stopped * (c or 0.0)
        found.append(
            Replayed(
                gamma=f"p_min {threshold:g}",
                tokens=sure.tokens,
                calls=sure.calls,
                tokens_per_call=sure.tokens_per_call,
                speedup=None if spent is None else sure.tokens / spent,
            )
        )
    guessed = (
        "with p_min, how far a draft goes on behind a rejected token is taken from the emitted "
        "text: calls are exact, draft runs are not"
    )
    return TraceReplay(
        lengths=tuple(found),
        warnings=(*doubts, *((guessed,) if p_min and c is not None else ())),
        inputs=inputs,
    )


def _adaptive(trace: Trace, policy: GrowShrink | EstimateAlpha) -> PolicyReplay:
    """Exactly where that is a matter of seconds, else from drawn chains."""
    if int(trace.lengths.max()) > _LONGEST:
        raise InvalidArgumentError(
            f"policies go through requests block by block: they must have at most {_LONGEST:,} "
            f"tokens, got {int(trace.lengths.max()):,}"
        )
    if isinstance(policy, EstimateAlpha):
        work = exact_work(trace)
    else:
        work = float(trace.tokens) * policy.gamma_max**2
    exact = trace.by_lookup or work <= _MOST_EXACT  # a lookup is refused there
    return replay_policy(trace, policy) if exact else draw_policy(trace, policy)


def _check_work(gammas: Sequence[int], reach: int, tokens: int) -> None:
    """Refuse so many, so long draft lengths that a replay would take hours.

    reach : no block reaches past its request, so that a longer draft than that changes nothing
    """
    wanted = {min(gamma, reach) for gamma in gammas}
    work = tokens * (sum(wanted) + len(wanted))
    if work > _MOST_WORK:
        raise WorkError(
            f"gamma: {len(wanted):,} draft lengths up to {max(wanted):,}, of {tokens:,} tokens, "
            f"take {work:.1e} steps, at most {_MOST_WORK:.0e} are done; ask for fewer or shorter "
            "ones, or give a part of the trace"
        )


def _blocks(prices: Prices, c: float, longest: int) -> Floats:
    """Cost of a block by how many tokens it drafts."""
    return prices.cost({"draft": number("c", c, low=0.0)}).blocks(longest)


def _of_calls(gamma: int, streamed: StreamedReplay, blocks: Floats | None) -> Replayed:
    """One draft length of a trace whose every block drafts as many."""
    calls = streamed.calls[gamma]
    return Replayed(
        gamma=gamma,
        tokens=streamed.tokens,
        calls=calls,
        tokens_per_call=streamed.tokens / calls,
        speedup=None if blocks is None else streamed.tokens / (calls * float(blocks[gamma])),
    )


def _speedup(trace: Trace, replayed: fixed_gamma.Replay, blocks: Floats, prices: Prices) -> float:
    """Against plain decoding; ``blocks`` by how many tokens they draft, in target runs."""
    drafted = fixed_gamma.drafted_tokens(trace, replayed.gamma)
    cost = blocks[drafted]
    if trace.by_lookup and replayed.gamma:
        # A search that finds nothing takes its time, too.
        searched = prices.cost({})
        cost = cost + (drafted == 0) * (searched.overhead - searched.plain_overhead)
    return float(trace.tokens / (replayed.starts @ cost))
