"""What a step of one draft length takes an engine under load: the fit of ``streamed_costs``."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from specsim.checks import Floats, integer
from specsim.counts.steps import StreamedStep

# Of a step, what empty caches leave at the least: weights are read anyway.
EMPTY = 0.1
# Weight, as a share of all steps', of P and Q being none.
_SHRUNK = 1e-9


def batch_levels(most: int) -> list[int]:
    """1, 2, 3, 4, 6, 8, 12, ... up to ``most``: batches between which steps are on a line."""
    found, level = [], 1
    while level < most:
        found.append(level)
        if level >= 2 and 3 * level // 2 < most:
            found.append(3 * level // 2)
        level *= 2
    return [*found, integer("most", most, low=1)]


@dataclass(frozen=True)
class StreamedLaw:
    """Of one draft length.

    batches : rising, (J,)
    step_s : S there, seconds, (J,)
    steps : how many were timed of about each batch, (J,)
    reading_s, per_request_s, per_prompt_s, per_token_s : P, Q, a and b, seconds
    context_token_s : e, seconds; 0 where nobody tells what is in the caches
    """

    batches: tuple[int, ...]
    step_s: Floats
    steps: Floats
    reading_s: float
    per_request_s: float
    per_prompt_s: float
    per_token_s: float
    context_token_s: float = 0.0

    def seconds(self, requests: int, prompts: int = 0, prompt_tokens: int = 0) -> float:
        """What a step of so many requests takes, some of which have their prompts read, at the mean
        context.
        """
        plain = float(np.interp(requests, self.batches, self.step_s))
        if not prompts:
            return plain
        # A step never takes less than nothing.
        longer = max(self.reading_s + self.per_request_s * requests, -plain)
        return plain + longer + self.per_prompt_s * prompts + self.per_token_s * prompt_tokens


def fitted_law(
    steps: Sequence[StreamedStep], most: int, context: float | None, arrival_s: float
) -> StreamedLaw:
    """Of one draft length.

    context : of a request, in the mean; None where nobody tells what is in the caches
    arrival_s : what each request makes a step longer by that was sent while it ran
    """
    from scipy.optimize import lsq_linear, nnls

    plain = [each for each in steps if not each.prompts]
    requests, seconds, weights = _columns(plain, arrival_s)
    batches = batch_levels(most)
    seen = weights @ _shares(requests, batches)
    # Nobody knows S where nothing was seen.
    batches = [each for each, count in zip(batches, seen, strict=True) if count]
    shares, root = _shares(requests, batches), np.sqrt(weights)
    timed = weights @ shares
    more = beyond(plain, context)
    size = max(np.abs(more).max(), 1.0)
    columns = np.column_stack([shares, more / size])
    (*levels, longer), _ = nnls(columns * root[:, None], seconds * root)
    step_s = np.array(levels)
    token_s = longer / size
    if context is not None:
        # Levels of few steps may be none.
        most_s = (step_s / (context * np.array(batches)))[step_s > 0]
        token_s = min(token_s, (1.0 - EMPTY) * float(most_s.min(initial=np.inf)))

    mixed = [each for each in steps if each.prompts]
    requests, seconds, weights = _columns(mixed, arrival_s)
    longer_s = seconds - np.interp(requests, batches, step_s) - token_s * beyond(mixed, context)
    prompts = np.array([[each.prompts, each.prompt_tokens] for each in mixed], dtype=float)
    columns = np.column_stack([np.ones(len(mixed)), requests, prompts])
    sizes = columns.max(axis=0)
    root = np.sqrt(weights)
    # P and Q are none where few batches do not tell them.
    shrunk = np.sqrt(_SHRUNK * weights.sum()) * np.eye(4)[:2]
    fit = lsq_linear(
        np.vstack([columns / sizes * root[:, None], shrunk]),
        np.concatenate([longer_s * root, np.zeros(2)]),
        bounds=([-np.inf, -np.inf, 0.0, 0.0], np.inf),
        method="bvls",
    )
    reading_s, per_request_s, per_prompt_s, per_token_s = (fit.x / sizes).tolist()
    return StreamedLaw(
        tuple(batches), step_s, timed, reading_s, per_request_s, per_prompt_s, per_token_s, token_s
    )


def beyond(steps: Sequence[StreamedStep], context: float | None) -> Floats:
    """Tokens in the caches beyond those of as many requests of the mean context; (steps,)."""
    if context is None:
        return np.zeros(len(steps))
    return np.array([each.decode_context - each.decodes * context for each in steps])


def _columns(steps: Sequence[StreamedStep], arrival_s: float) -> tuple[Floats, Floats, Floats]:
    """Requests, seconds without those that arrivals take, and how many, of each."""
    rows = [(each.requests, each.seconds, each.steps, each.arrivals or 0) for each in steps]
    requests, seconds, weights, arrivals = np.array(rows, dtype=float).T
    return requests, seconds - arrival_s * arrivals, weights


def _shares(requests: Floats, batches: Sequence[int]) -> Floats:
    """How far each step is at each batch, (steps, J): what is linear between them is a sum."""
    return np.array([np.interp(requests, batches, row) for row in np.eye(len(batches))]).T
