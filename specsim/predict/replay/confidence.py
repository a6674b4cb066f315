"""Exact replay of drafts that stop where the drafter is unsure (llama.cpp's p_min).

At every position the drafter looks at its largest probability first: below the threshold it stops
and what it has is verified, so the block ends with a bonus token there.  The chain over positions
is that of ``specsim.predict.replay.fixed_gamma`` with a draft length that the place of the block
decides.

Calls are exact.  Drafts are not quite: behind a rejected token the drafter goes on along another
text, and how far is taken to be as far as it would have gone on the emitted one.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from specsim.checks import Floats, UnsupportedError, integer, probability
from specsim.traces import Trace


@dataclass(frozen=True)
class ConfidenceReplay:
    """What a threshold does on a trace.

    calls : expected target calls of all requests
    lengths : shape (gamma_max + 1,), expected blocks that verify so many drafts
    stopped : expected blocks whose last draft run gave a token that was not drafted
    tokens : of the whole trace
    """

    calls: float
    lengths: Floats
    stopped: float
    tokens: int

    @property
    def tokens_per_call(self) -> float:
        """Tokens over expected calls, over the whole trace."""
        return self.tokens / self.calls


def replay_confidence(trace: Trace, p_min: float, gamma_max: int) -> ConfidenceReplay:
    """Expected calls with drafts of at most ``gamma_max`` tokens, whose drafter's largest
    probability, before temperature and filters, is at least ``p_min`` at each of them.

    Raises UnsupportedError for a trace without the column draft_top.
    """
    p_min, gamma_max = probability("p_min", p_min), integer("gamma_max", gamma_max, low=1)
    trace.require_model("p_min")
    if "draft_top" not in trace.columns:
        raise UnsupportedError(
            "p_min needs the column draft_top in the trace, the draft's largest probability"
        )
    sure = np.asarray(trace.columns["draft_top"]) >= p_min
    lengths, stopped, calls = np.zeros(gamma_max + 1), 0.0, 0.0
    for first, last in zip(trace.starts[:-1], trace.starts[1:], strict=True):
        accepted = trace.acceptance[first:last].tolist()
        drafts = _drafts(sure[first:last], gamma_max)
        starts = np.zeros(len(accepted) + 1)
        starts[0] = 1.0
        for position, count in enumerate(drafts):
            alive = starts[position]
            if not alive:
                continue
            for place in range(position, position + count):
                starts[place + 1] += alive * (1.0 - accepted[place])
                alive *= accepted[place]
            # The bonus token; a block that runs past the end of the text counts as one.
            starts[min(position + count + 1, len(accepted))] += alive
        at = starts[:-1]
        calls += float(at.sum())
        lengths += np.bincount(drafts, weights=at, minlength=gamma_max + 1)
        ends = np.arange(drafts.size) + drafts
        stopped += float(at[(drafts < gamma_max) & (ends < drafts.size)].sum())
    return ConfidenceReplay(calls, lengths, stopped, trace.tokens)


def _drafts(sure: np.ndarray, gamma_max: int) -> np.ndarray:
    """Drafts of a block that starts at each position, shape (T,), cut at the end of the text."""
    run = np.zeros(sure.size + 1, dtype=np.int64)
    for position in range(sure.size - 1, -1, -1):
        run[position] = run[position + 1] + 1 if sure[position] else 0
    return np.minimum(run[:-1], gamma_max)
