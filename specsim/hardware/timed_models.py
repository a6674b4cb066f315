"""What a profile tells of the models that it timed, and of the card: shapes, and a data sheet.

A profile of shapes holds their config.json.  Together with the card's data sheet that says about
how much longer a run takes with more requests, and longer ones, wherever too little was timed to
tell: the drafts of a grid are one or two tokens wide, and the largest batch may still be one that
takes hardly longer than the smallest.
"""

from __future__ import annotations

from dataclasses import replace
from typing import get_args

from specsim.hardware.accelerators import Accelerator, accelerator_of
from specsim.hardware.config import shape_from_config
from specsim.hardware.roofline import USUAL, Roofline, roofline
from specsim.hardware.run_time_fit import FittedRunTimes, Kind, grid_points
from specsim.hardware.run_time_law import Growth
from specsim.hardware.shapes import Shape
from specsim.profiles import Mode, Profile, Role

# Room for every request: only the growth of a run is asked for.
_ENDLESS_MEMORY = 1e18


def timed_card(profile: Profile) -> Accelerator | None:
    """What the profile was timed on; None where no data sheet is known of it."""
    return accelerator_of(profile.hardware.device_name)


def timed_shape(profile: Profile, role: Role) -> Shape | None:
    """A model in the type that it was timed in; None where the profile holds no config.json."""
    model = profile.target if role == "target" else profile.draft
    if model.config is None:
        return None
    shape = shape_from_config(model.config)
    return shape.at(replace(shape.precision, dtype=profile.software.dtype))


def grid_fits(profile: Profile) -> dict[tuple[Mode, Kind], FittedRunTimes]:
    """Run times of the profile's grid, by mode and kind of run.

    Growth that no run tells of is as the data sheet says.  Where none is known of the card, or no
    shape, a draft's is taken to be the target's in the ratio of their parameters, since drafts were
    timed over too few tokens to tell.
    """
    known = {role: _growth(profile, role) for role in get_args(Role)}
    share = profile.draft.parameters / max(profile.target.parameters, 1)
    found: dict[tuple[Mode, Kind], FittedRunTimes] = {}
    # Targets first, since drafts follow them.
    points = sorted(grid_points(profile.grid).items(), key=lambda each: each[0][1] != "target")
    for (mode, kind), measured in points:
        growth = known["target" if kind == "target" else "draft"]
        target = found.get((mode, "target"))
        if kind != "target" and growth is None and target is not None:
            growth = target.growth.times(share)
        found[mode, kind] = FittedRunTimes.of(measured, growth)
    return found


def _growth(profile: Profile, role: Role) -> Growth | None:
    """By the data sheet, in the mean over the contexts that were timed."""
    shape, card = timed_shape(profile, role), timed_card(profile)
    if shape is None or card is None:
        return None
    context = max(1, *(row.context for row in profile.grid))

    def run(batch: int, context: int) -> Roofline:
        roomy = replace(card, memory=_ENDLESS_MEMORY)
        return roofline(shape, roomy, 1, batch, context, efficiency=USUAL)

    one, more, longer = run(1, 0), run(2, 0), run(1, context)
    return Growth(
        cache_s=(longer.memory_s - one.memory_s) / context,
        token_s=more.compute_s - one.compute_s,
        attention_s=(longer.compute_s - one.compute_s) / context,
    )
