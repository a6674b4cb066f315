"""How long the steps of an engine took, by draft length and batch."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class StepTime:
    """Seconds of one decoding step of a batch: its drafts, its verification and all else.

    gamma : draft tokens of a step; 0 is a plain step
    batch : requests that shared it
    seconds : of a step
    steps : how many were timed; None where the source does not tell
    draft_s : of which the drafts took so much, where the source tells
    drafter_loaded : whether a plain step kept a drafter in memory and in step; None where the
        source does not tell
    context : tokens in the cache of each request, where the source tells
    """

    gamma: int
    batch: float
    seconds: float
    steps: float | None = None
    draft_s: float | None = None
    drafter_loaded: bool | None = None
    context: float | None = None
