"""Exact replay of cascades: expected target calls of drafters nested at will, from one text.

``specsim.predict.replay.fixed_gamma`` does this for one model that drafts a fixed number of tokens.
Here the drafter may give up, copy, review another drafter, or hand over to one, and the same
argument holds at every level: given the output x of a verifier with law v, a draft token of law d
was accepted with probability

    a_t = P(token = x_t and accepted) / P(output = x_t) = min(1, d(x_t) / v(x_t)),

independently of the rest.  In a vertical cascade (Chen23) the reviewer's own tokens are verified by
the target with min(1, r/p)(x_t) and, given that they are x_t, come from its inner drafter with
min(1, d/r)(x_t).  So one pass of each model over one text predicts every cascade of them.  Under
a rule that changes the law (Narasimhan24) the text must be drawn from the emitted law m and
a_t = min(q, pi)(x_t) / m(x_t).

Tokens and target calls are exact, and so are the runs of drafters of fixed length that review
nobody.  What a drafter does behind a token that the target will reject is off the text: a reviewer
of free length goes on there as it does on texts of its own that begin with a rejected token
(``VerticalReplay.off_text_samples``); it is exact where that text is known, at temperature 0, and
what it reviews is drafted token by token.  The approximation concerns its draft runs; with a fixed
number of steps it shows only where the request leaves no room for all of them.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from specsim.checks import integer
from specsim.laws import TARGET
from specsim.predict.replay.drafters import DrafterReplay, Proposal
from specsim.predict.replay.run_counts import RunCounts


@dataclass(frozen=True)
class Expected:
    """What decoding a text of ``tokens`` tokens is expected to run; additive over requests.

    calls : target calls
    runs : of all models, the target's among them
    """

    tokens: int
    calls: float
    runs: RunCounts = field(default_factory=RunCounts)


def replay_blocks(
    drafter: DrafterReplay, tokens: int, limit: int, verdict: bool = True
) -> Expected:
    """Decoding the whole text, block by block.

    tokens : T, of the text
    limit : tokens that were asked for, >= T; more than T where the text ends with end-of-text
    verdict : is every block ended by the target?  In a sequential cascade (Narasimhan24
        Algorithm 2) the draft may end the text by itself
    """
    tokens, limit = integer("tokens", tokens, low=1), integer("limit", limit, low=tokens)
    starts = np.zeros(limit + 2)
    starts[0] = 1.0
    runs, calls = RunCounts(), 0.0
    for start in range(tokens):
        mass = float(starts[start])
        if not mass:
            continue
        room = limit - start - 1 if verdict else limit - start
        found = drafter.propose(start, room)
        runs.merge(found.runs, mass)
        last = 0.0 if verdict else _ended_by_draft(found, tokens - start)
        calls += mass * (1 - last)
        runs.add(TARGET, mass * (1 - last))
        for ends in (found.rejected, found.complete):
            for count, share in ends.items():
                starts[min(start + count + 1, limit + 1)] += mass * share
    return Expected(tokens, calls, runs)


def _ended_by_draft(found: Proposal, left: int) -> float:
    """P(the drafter itself writes the last of the tokens that are left)."""
    return sum(share for count, share in found.complete.items() if count >= left)
