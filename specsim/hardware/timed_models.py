"""The models that a profile timed, and the card: shapes, and a data sheet."""

from __future__ import annotations

from dataclasses import replace

from specsim.checks import SpecsimError
from specsim.hardware.accelerators import Accelerator, accelerator_of
from specsim.hardware.config import shape_from_config
from specsim.hardware.shapes import Precision, Shape
from specsim.profiles import Profile, Role


def timed_card(profile: Profile) -> Accelerator | None:
    """What the profile was timed on; None where no data sheet is known of it."""
    return accelerator_of(profile.hardware.device_name)


def timed_shape(profile: Profile, role: Role) -> Shape | None:
    """A model in the type that it was timed in, whatever its checkpoint is quantised to; None where
    the profile holds no config.json, or one that cannot be counted.
    """
    model = profile.target if role == "target" else profile.draft
    if model.config is None:
        return None
    try:
        shape = shape_from_config(model.config)
        precision = Precision(profile.software.dtype)
    except SpecsimError:  # what runs take is known all the same
        return None
    return replace(shape.at(precision), name=model.name)
