"""How many independent drafts counted rates are worth, from the requests that they were counted in.

Chance does to S_1..S_K what it would do to so many independent drafts.  Those of one request are
not independent, least of all where a text repeats itself, as greedy texts do; and rates that are
averages of probabilities of acceptance, as those of a trace at a temperature are, vary less than
counts of acceptances.  So the rises of the log odds from position to position, which is what a
trend is read from, are found again without each request (jackknife, Efron and Stein 1981), and half
their variance is that of each of the two positions.  Read by acceptance_evidence.py.
"""

from __future__ import annotations

import numpy as np

from specsim.acceptance import conditional_rates
from specsim.checks import Floats
from specsim.extrapolation import GapLaw
from specsim.traces import Trace


def of_every_place(trace: Trace, longest: int) -> Floats:
    """Drafts by position that S_1..S_longest from every place of the texts are worth."""
    places = trace.tokens - longest + 1
    within = np.zeros(trace.tokens, dtype=bool)
    for start, end in zip(trace.starts[:-1], trace.starts[1:], strict=True):
        within[start : max(start, end - longest + 1)] = True
    accepted = within.astype(float)
    reached = [accepted.copy()]
    for position in range(longest):
        later = np.zeros(trace.tokens)
        later[:places] = trace.acceptance[position : position + places]
        accepted = accepted * later
        reached.append(accepted)
    by_request = np.add.reduceat(np.stack(reached, axis=1), trace.starts[:-1], axis=0)
    left = by_request.sum(axis=0) - by_request
    whole = by_request.sum(axis=0)
    return _worth(whole[1:] / whole[0], left[:, 1:] / left[:, :1])


def of_blocks(trace: Trace, longest: int) -> Floats:
    """The same of S_1..S_longest of blocks, which start where blocks end."""
    lengths, left = trace.lengths, []
    for request, (start, end) in enumerate(zip(trace.starts[:-1], trace.starts[1:], strict=True)):
        acceptance = np.delete(trace.acceptance, slice(start, end))
        starts = np.concatenate([[0], np.delete(lengths, request).cumsum()])
        left.append(GapLaw.of_trace(Trace(acceptance, starts)).survival(longest)[1:])
    return _worth(GapLaw.of_trace(trace).survival(longest)[1:], np.array(left))


def _worth(curve: Floats, left_out: Floats) -> Floats:
    """Trials m with 1 / (m S_{i-1} alpha_i (1 - alpha_i)) the variance of logit alpha_i.

    left_out : the curve without each request, shape (R, K)
    """
    rates = np.array([conditional_rates(np.append(1.0, one)) for one in [curve, *left_out]])
    rates = rates.clip(1e-9, 1 - 1e-9)
    rises = np.diff(np.log(rates[1:] / (1 - rates[1:])), axis=1)
    requests = len(rises)
    variance = (requests - 1) * rises.var(axis=0) / 2
    at_positions = np.concatenate([variance[:1], (variance[1:] + variance[:-1]) / 2, variance[-1:]])
    reached = np.append(1.0, curve[:-1])
    return np.asarray(1 / (at_positions * reached * rates[0] * (1 - rates[0])))
