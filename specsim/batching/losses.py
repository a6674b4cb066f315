"""What a round loses by, and why its dearest part is dear.

A round with K drafts could yield K + 1 tokens in the time of a plain step.  Its speedup is N / R
with N tokens in the time of R plain steps, so the loss is

    log((K + 1) / speedup) = log((K + 1) / N) + log R

The first is what acceptance loses.  The second is shared out over the parts of the round in
proportion to what each takes more than in a plain step, as errors are in
``specsim.predict.error_decomposition``; the shares add up exactly.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import log
from typing import Literal

from specsim.batching.parts import Kind, Part, Step
from specsim.batching.point import BatchPoint
from specsim.checks import significant

Loss = Literal["acceptance", "draft", "target", "graph", "communication", "host", "step"]
# Why a round is no faster; of the target's run what makes it longer than a plain one.
Reason = Literal[
    "acceptance",
    "drafts",
    "experts",
    "compute",
    "memory",
    "verification",
    "graph",
    "communication",
    "host",
    "round",
]

# A first draft that is accepted less often is a bad guess.
_ACCEPTED = 0.5


@dataclass(frozen=True)
class Diagnosis:
    """What a round loses by.

    losses : log of the factor that each part costs; their sum is log((K + 1) / speedup)
    reason : why the largest of them is there, as ``diagnose`` says
    words : the same as a sentence
    """

    losses: Mapping[Loss, float]
    reason: Reason
    words: str


def losses(point: BatchPoint, here: Step, plain: Step) -> dict[Loss, float]:
    """Of a round against a plain step, by part; what neither has is left out."""
    more: dict[Loss, float] = {}
    for step, sign in ((here, 1.0), (plain, -1.0)):
        for part in step.parts:
            more[part.kind] = more.get(part.kind, 0.0) + sign * (part.seconds - part.eager_s)
            if part.eager_s:
                more["graph"] = more.get("graph", 0.0) + sign * part.eager_s
    excess, base = here.seconds - plain.seconds, plain.seconds
    # Where they cancel, the rate of the logarithm itself, which is the limit of the quotient.
    rate = log(here.seconds / base) / excess if abs(excess) > 1e-9 * base else 1.0 / base
    shared: dict[Loss, float] = {name: seconds * rate for name, seconds in more.items()}
    return {"acceptance": log((point.gamma + 1) / point.tokens_per_call), **shared}


def diagnose(
    point: BatchPoint,
    here: Step,
    plain: Step,
    first: float,
    graph_tokens: int | None = None,
) -> Diagnosis:
    """The largest loss, and why it is there.

    first : chance that the first draft of a round is accepted
    graph_tokens : of the largest CUDA graph, to be named

    ``reason`` is acceptance where the first draft is accepted in less than half of all rounds and
    that loses more than any cost; every other acceptance is a reason to draft fewer tokens, not to
    look for more.  Else it is the cost that loses most:

    drafts : what drafts
    graph : the host, behind runs that are wider than the largest CUDA graph
    communication, host : what the cards send each other; the host, outside the runs
    round : an engine timed the step as a whole
    and where the target's run, which verifies, loses most,
    compute : its arithmetic takes longer than its memory traffic
    experts : its memory traffic does, and it touches at least one expert more than a plain step
    memory : its memory traffic does, for something else
    verification : neither was measured
    """
    found = losses(point, here, plain)
    worst = max(found, key=lambda name: found[name])
    if worst == "acceptance" and first >= _ACCEPTED:
        worst = max((name for name in found if name != worst), key=lambda name: found[name])
    reason, words = _why(worst, point, here, plain, graph_tokens)
    return Diagnosis(found, reason, words)


def _why(
    worst: Loss, point: BatchPoint, here: Step, plain: Step, graph_tokens: int | None
) -> tuple[Reason, str]:
    match worst:
        case "acceptance":
            return "acceptance", (
                f"acceptance: a round yields {point.tokens_per_call:.3g} of the {point.gamma + 1} "
                f"tokens that it could"
            )
        case "draft":
            share = here.seconds_of("draft") / plain.seconds
            return "drafts", f"drafts: drafting takes {share:.3g} plain steps{_mostly(here)}"
        case "target":
            return _why_verification(point, here.target, plain.target)
        case "graph":
            limit = "" if graph_tokens is None else f", the largest CUDA graph {graph_tokens:,}"
            return "graph", (
                f"CUDA graphs: runs of a round have up to {here.widest:,.0f} tokens{limit}; the "
                f"host starts their kernels one by one, which adds {_ms(here.eager_s)}"
            )
        case "communication":
            spent = _against("communication", here, plain)
            return "communication", f"communication: the cards send each other states for {spent}"
        case "host":
            return "host", f"host: the cards wait for the host for {_against('host', here, plain)}"
        case _:
            return "round", "the whole round: the engine does not tell its parts"


def _why_verification(point: BatchPoint, run: Part | None, one: Part | None) -> tuple[Reason, str]:
    assert run is not None, "asked for where the target's run is known"
    assert one is not None, "asked for where the target's run is known"
    took = f"verification takes {run.seconds / one.seconds:.3g} plain target runs"
    what = "one request" if point.batch == 1 else f"each of {point.batch:,} requests"
    # Those of a tree are more than the draft length and one, and those of a lookup fewer.
    verified = point.gamma + 1.0
    if run.tokens is not None and one.tokens is not None:
        verified = run.tokens / one.tokens
    what = f"{verified:.3g} tokens of {what}"
    if run.compute_s is None or run.memory_s is None:
        return "verification", f"{took}; what it waits for was not measured"
    if run.compute_s > run.memory_s:
        return "compute", f"{took}: the arithmetic of {what} takes longer than reading the weights"
    if run.experts is not None and one.experts is not None and run.experts - one.experts >= 1.0:
        return "experts", (
            f"{took}: verifying {what} touches {run.experts:.0f} of {run.of_experts} experts of a "
            f"layer, a plain step {one.experts:.0f}"
        )
    moved = f"{1e-9 * (run.bytes or 0.0):.3g} GB, a plain step {1e-9 * (one.bytes or 0.0):.3g}"
    return "memory", f"{took}: for {what} memory moves {moved}"


def _mostly(here: Step) -> str:
    """Which of several drafting parts takes longest, and what it waits for."""
    part = max((part for part in here.parts if part.kind == "draft"), key=lambda p: p.seconds)
    if part.bound is None:
        return ""
    runs = f"{part.runs:g} " if part.runs is not None and part.runs > 1 else ""
    return f", most of it in the {runs}{part.name} (waiting for {_WAITS[part.bound]})"


_WAITS = {
    "compute": "arithmetic",
    "memory": "memory",
    "launch": "kernels to start",
    "communication": "other cards",
    "host": "the host",
}


def _against(kind: Kind, here: Step, plain: Step) -> str:
    spent, before = here.seconds_of(kind), plain.seconds_of(kind)
    return f"{_ms(spent)} of a round, {_ms(before)} of a plain step"


def _ms(seconds: float) -> str:
    return f"{significant(1e3 * seconds, 3)} ms"
