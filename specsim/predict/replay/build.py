"""From descriptions to their replay on a recorded text.

The decoder's counterpart is ``calibrate.decode.build``.
"""

from __future__ import annotations

from functools import cache

from specsim.acceptance import AcceptanceLaw
from specsim.laws import TARGET
from specsim.predict.replay.blocks import Expected, replay_blocks
from specsim.predict.replay.drafters import (
    AutoregressiveReplay,
    DeterministicReplay,
    DrafterReplay,
)
from specsim.predict.replay.head import HeadReplay
from specsim.predict.replay.horizontal import HorizontalReplay
from specsim.predict.replay.recorded import RecordedText, agreement
from specsim.predict.replay.vertical import VerticalReplay
from specsim.schemes import Scheme, SpecDec
from specsim.schemes.base import DraftingScheme
from specsim.schemes.drafters import (
    Drafter,
    EagleDrafter,
    HorizontalDrafter,
    ModelDrafter,
    NgramDrafter,
    VerticalDrafter,
)


def drafter_replay(
    drafter: Drafter,
    text: RecordedText,
    verifier: str = TARGET,
    law: AcceptanceLaw = "ratio-test",
) -> DrafterReplay:
    """The drafter on a text, before this verifier.

    law : how a model, a head or counts that draft by themselves are accepted.  What proposes the
        same from one place always, copies and masks, is accepted alike under all; drafters made of
        others are verified by the ratio test
    """
    match drafter:
        case ModelDrafter() | NgramDrafter():
            accepted = text.accepted(drafter.name, verifier, law)
            return AutoregressiveReplay(drafter.name, accepted, drafter.tokens)
        case EagleDrafter():
            return HeadReplay(drafter.name, *text.accepted_by_depth(drafter, verifier, law))
        case VerticalDrafter():
            return _vertical(drafter, text, verifier)
        case HorizontalDrafter():
            parts = (drafter_replay(part, text, verifier) for part in drafter.parts)
            return HorizontalReplay(tuple(parts))
        case _:
            return DeterministicReplay(drafter.name, *agreement(text, drafter))


def _vertical(drafter: VerticalDrafter, text: RecordedText, verifier: str) -> VerticalReplay:
    @cache
    def off_text_samples(place: int | None) -> list[DrafterReplay]:
        texts = text.off_text_samples(drafter.name, verifier, place)
        if place is not None and not texts:
            return off_text_samples(None)
        return [drafter_replay(drafter.inner, each, drafter.name) for each in texts]

    return VerticalReplay(
        drafter.name,
        text.accepted(drafter.name, verifier),
        drafter_replay(drafter.inner, text, drafter.name),
        off_text_samples,
        drafter.gamma,
        drafter.steps,
        drafter.at_least,
    )


def predict(scheme: DraftingScheme, text: RecordedText) -> Expected:
    """What decoding the text with a lossless scheme is expected to run."""
    replay = drafter_replay(scheme.drafter, text, law=scheme.acceptance_law)
    return replay_blocks(replay, len(text.tokens), text.limit)


def approximate_runs(scheme: Scheme) -> frozenset[str]:
    """Models whose number of runs a replay does not predict exactly, the target by its name.

    How long a proposal gets behind a rejected token decides how many steps a reviewer takes, or
    with a fixed number whether the request has room for them, and how much room is left to drafters
    behind it.  The text of SpecDec++ depends on where its blocks begin, so it is no trace.
    """
    if isinstance(scheme, SpecDec):
        return frozenset() if scheme.lossless else frozenset({TARGET, scheme.draft})
    if isinstance(scheme, DraftingScheme) and _reviews(scheme.drafter):
        return frozenset(scheme.models)
    return frozenset()


def _reviews(drafter: Drafter) -> bool:
    if isinstance(drafter, HorizontalDrafter):
        return any(_reviews(part) for part in drafter.parts)
    return isinstance(drafter, VerticalDrafter)
