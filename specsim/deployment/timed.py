"""The deployment that a profile was measured on."""

from __future__ import annotations

from specsim.deployment.deployment import Deployment
from specsim.deployment.drafters import DraftModel
from specsim.hardware.timed_models import timed_card, timed_shape
from specsim.profiles import Profile


def timed_deployment(profile: Profile) -> Deployment | None:
    """The profile's models on one card of the kind that they were timed on; None where it holds no
    config.json of them, or no data sheet is known of the card.
    """
    card, target = timed_card(profile), timed_shape(profile, "target")
    draft = timed_shape(profile, "draft")
    if card is None or target is None or draft is None:
        return None
    return Deployment(target=target, accelerator=card, drafters=(DraftModel(model=draft),))
