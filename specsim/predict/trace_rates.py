"""Rates of acceptance with their intervals, as a trace shows them, under any law of acceptance."""

from __future__ import annotations

from itertools import accumulate, pairwise
from pathlib import Path

import msgspec
import numpy as np

from specsim.acceptance import ACCEPTANCE_LAWS, AcceptanceLaw
from specsim.checks import Floats, Ints, InvalidArgumentError, check_choice
from specsim.intervals import Bootstrap
from specsim.profiles import MeasuredAcceptance, Profile, Rate
from specsim.traces import Trace


def acceptance_rates(
    trace: Trace, gamma_max: int, seed: int
) -> tuple[Rate, list[Rate], list[Rate]]:
    """alpha, S_1..S_gamma_max and alpha_1..alpha_gamma_max with 95 % intervals.

    S_i is the mean of a_t ... a_{t+i-1} over the positions t with gamma_max tokens left in their
    request, alpha the mean of a_t over all positions.  A request is the unit of the bootstrap,
    since its positions are not independent; those that do not get to a position tell nothing of
    the rate there, and one alone does not tell how far requests differ.
    """
    survived = trace.survived(gamma_max)
    accepted = np.array([row.sum() for row in trace.rows()])
    if not survived[:, 0].sum():
        raise InvalidArgumentError(
            f"no request of the trace has gamma_max = {gamma_max} tokens; "
            "ask for more new tokens or a smaller gamma_max"
        )

    def rate(above: Floats | Ints, below: Floats | Ints) -> Rate:
        told = below > 0
        count, total = int(told.sum()), float(below.sum())
        best = float(above.sum()) / total if total else 0.0
        if count < 2:
            return Rate(0.0, best, 1.0)
        bootstrap = Bootstrap(count, seed)
        drawn = bootstrap.ratios(above[told], below[told])
        found = bootstrap.around(best, drawn, 0.0, 1.0)
        return Rate(found.low, found.best, found.high)

    alpha = rate(accepted, trace.lengths)
    found = [rate(column, survived[:, 0]) for column in survived.T[1:]]
    # What survives further does not survive more often, at either end.
    lows, highs = (accumulate([getattr(r, end) for r in found], min) for end in ("low", "high"))
    survival = [Rate(low, r.best, high) for low, r, high in zip(lows, found, highs, strict=True)]
    conditional = [rate(column, before) for before, column in pairwise(survived.T)]
    return alpha, survival, conditional


def measured_under(
    profile: Profile, path: Path, measured: MeasuredAcceptance, law: AcceptanceLaw | None
) -> MeasuredAcceptance:
    """What the profile at ``path`` measured, under another law of acceptance; None is its own.

    The text is the target's whatever the law, so the trace tells what any of them accepts.
    """
    if law is None:
        return measured
    check_choice("acceptance_law", law, ACCEPTANCE_LAWS)
    if law == measured.acceptance_law:
        return measured
    asked = msgspec.structs.replace(measured, acceptance_law=law)
    if measured.sampling.temperature == 0:
        return asked
    trace = profile.trace(path, asked)
    alpha, survival, conditional = acceptance_rates(trace, profile.gamma_max, measured.seed)
    return msgspec.structs.replace(asked, alpha=alpha, survival=survival, conditional=conditional)
