"""Run times of a profile's grid, fitted with what is known of its models without timing them.

A profile of shapes holds their config.json.  Together with the card's data sheet that says about
how much longer a run takes with more requests, and longer ones, wherever too little was timed to
tell: the drafts of a grid are one or two tokens wide, and the largest batch may still be one that
takes hardly longer than the smallest.
"""

from __future__ import annotations

from dataclasses import replace
from math import nan
from typing import get_args

import numpy as np

from specsim.checks import SpecsimError
from specsim.hardware.roofline import USUAL, Roofline, roofline
from specsim.hardware.routing import Experts
from specsim.hardware.run_time_fit import FittedRunTimes, Kind, grid_points
from specsim.hardware.run_time_law import Growth
from specsim.hardware.shapes import Shape
from specsim.hardware.timed_models import timed_card, timed_shape
from specsim.profiles import Mode, Profile, Role

# Room for every request: only the growth of a run is asked for.
_ENDLESS_MEMORY = 1e18


def grid_fits(
    profile: Profile, mode: Mode | None = None
) -> dict[tuple[Mode, Kind], FittedRunTimes]:
    """Run times of the profile's grid, by mode and kind of run.

    mode : the only one that is asked for

    Growth that no run tells of is as the data sheet says.  Where none is known of the card, or no
    shape, a draft's is taken to be the target's in the ratio of their parameters, since drafts were
    timed over too few tokens to tell.
    """
    known = {role: _growth(profile, role) for role in get_args(Role)}
    experts = {role: _experts(timed_shape(profile, role)) for role in get_args(Role)}
    share = profile.draft.parameters / max(profile.target.parameters, 1)
    found: dict[tuple[Mode, Kind], FittedRunTimes] = {}
    rows = [row for row in profile.grid if mode in (None, row.mode)]
    # Targets first, since drafts follow them.
    points = sorted(grid_points(rows).items(), key=lambda each: each[0][1] != "target")
    for (each, kind), measured in points:
        role: Role = "target" if kind == "target" else "draft"
        growth = known[role]
        target = found.get((each, "target"))
        if kind != "target" and growth is None and target is not None:
            growth = target.growth.times(share)
        found[each, kind] = FittedRunTimes.of(measured, growth, experts[role])
    return found


def _experts(shape: Shape | None) -> Experts | None:
    """Of the layers that have more of them than a token takes, so that more tokens touch more; None
    where there are none, or no shape is known.
    """
    layers = () if shape is None else shape.layers
    several = (e for e in layers if e.experts > e.experts_per_token)
    return next((Experts(e.experts, e.experts_per_token) for e in several), None)


def _growth(profile: Profile, role: Role) -> Growth | None:
    """By the data sheet, from one token without a cache to the most that were timed."""
    shape, card = timed_shape(profile, role), timed_card(profile)
    if shape is None or card is None:
        return None
    roomy = replace(card, memory=_ENDLESS_MEMORY)
    rows = [row for row in profile.grid if row.model == role]
    context = max((row.context for row in rows), default=0) or 1
    tokens = max((row.tokens * row.batch for row in rows), default=0)
    tokens = max(tokens, 2)

    def run(batch: int, context: int) -> Roofline:
        return roofline(shape, roomy, 1, batch, context, efficiency=USUAL)

    try:
        one, more, longer = run(1, 0), run(tokens, 0), run(1, context)
    except SpecsimError:  # no rate for the type that it was timed in
        return None
    arithmetic, traffic = more.compute_s - one.compute_s, more.memory_s - one.memory_s
    experts, expert_s = _experts(shape), nan
    if experts is not None:
        # Without a cache all traffic that grows is of experts.
        expert_s = traffic / float(experts.beyond_one(np.array([float(tokens)]))[0])
        traffic = 0.0
    return Growth(
        cache_s=(longer.memory_s - one.memory_s) / context,
        token_s=max(arithmetic, traffic) / (tokens - 1),
        attention_s=(longer.compute_s - one.compute_s) / context,
        expert_s=expert_s,
    )
