"""From descriptions to decoders: who drafts, who reviews, by which rule, on real models.

The replay's counterpart is ``specsim.predict.replay.build``.
"""

from __future__ import annotations

from calibrate.decode.beam import beam_search
from calibrate.decode.bild import bild
from calibrate.decode.drafters import (
    Bigram,
    Drafter,
    EagleHead,
    Horizontal,
    MaskFiller,
    MaxGram,
    Neural,
    PromptLookup,
    Unigram,
    Vertical,
)
from calibrate.decode.engine import DecodeRequest, Decoding
from calibrate.decode.plain import plain
from calibrate.decode.sequence_cascade import sequence_cascade
from calibrate.decode.specdec import specdec
from calibrate.decode.speculative import speculative
from calibrate.decode.token_cascade import token_cascade
from calibrate.models.pool import ModelSet
from specsim.checks import InvalidArgumentError, UnsupportedError
from specsim.rules import GreedyMatch, Lossless
from specsim.rules.confidence import CONFIDENCES
from specsim.schemes import (
    BeamSearch,
    BigLittle,
    PlainDecoding,
    Scheme,
    SequenceCascade,
    SpecDec,
    SpeculativeDecoding,
    TokenCascade,
    scheme_name,
)
from specsim.schemes import drafters as described
from specsim.schemes.base import DraftingScheme


def start(scheme: Scheme, model_set: ModelSet, request: DecodeRequest) -> Decoding:
    """The decoder of a scheme at the start of a request.

    Raises UnsupportedError, naming the scheme, where there is no decoder of it.
    """
    target = model_set.target
    match scheme:
        case PlainDecoding():
            return plain(target, request)
        case SpecDec():
            drafter = build_drafter(scheme.drafter, model_set)
            rule = scheme.rule or GreedyMatch()
            return specdec(target, drafter, request, scheme.block_size, rule, scheme.bonus)
        case DraftingScheme(bonus=True):
            drafter = build_drafter(scheme.drafter, model_set)
            changed = scheme.rule if isinstance(scheme, SpeculativeDecoding) else None
            gamma = longest_proposal(scheme.drafter)
            return speculative(
                target,
                drafter,
                request,
                gamma,
                changed or Lossless(),
                acceptance_law=scheme.acceptance_law,
            )
        case BigLittle():
            return bild(target, model_set[scheme.draft], request, scheme)
        case TokenCascade():
            return token_cascade(target, model_set[scheme.draft], request, scheme)
        case SequenceCascade():
            confidence = CONFIDENCES[scheme.confidence]
            small = model_set[scheme.draft]
            return sequence_cascade(target, small, request, confidence, scheme.threshold)
        case BeamSearch():
            return beam_search(target, model_set[scheme.draft], request, scheme)
    raise UnsupportedError(f"there is no decoder of {scheme_name(scheme)}: {scheme.label}")


def build_drafter(
    drafter: described.Drafter, model_set: ModelSet, lenience: float = 1.0
) -> Drafter:
    """The drafter on these models.

    lenience : of every reviewing model towards what it reviews, l in [0, 1], 1 for none; the
        text is the target's whatever it is
    """
    match drafter:
        case described.ModelDrafter(name=name):
            return Neural(model_set[name])
        case described.EagleDrafter(name=name):
            return EagleHead(model_set.head(name))
        case described.VerticalDrafter():
            return Vertical(
                model_set[drafter.name],
                build_drafter(drafter.inner, model_set, lenience),
                drafter.gamma,
                drafter.steps,
                drafter.at_least,
                lenience,
            )
        case described.HorizontalDrafter(parts=parts):
            built = [build_drafter(part, model_set, lenience) for part in parts]
            return Horizontal(list(zip(built, map(longest_proposal, parts), strict=True)))
        case _:
            # One drafter of a name in a model set: it is counted under that name.
            if drafter.name not in model_set.shared:
                model_set.shared[drafter.name] = _shared(drafter, model_set)
            return model_set.shared[drafter.name]


def longest_proposal(drafter: described.Drafter) -> int | None:
    """The most tokens that a drafter is asked for, None where its parts decide."""
    if isinstance(drafter, described.VerticalDrafter | described.HorizontalDrafter):
        return None
    return drafter.tokens


def _shared(
    drafter: described.NgramDrafter | described.CopyDrafter | described.MaskDrafter,
    model_set: ModelSet,
) -> Drafter:
    """A drafter that several parts may have in common."""
    name = drafter.name
    if isinstance(drafter, described.NgramDrafter):
        kind = {"bigram": Bigram, "unigram": Unigram}[name]
        return kind(model_set.pair_counts(name))
    if isinstance(drafter, described.MaskDrafter):
        return MaskFiller(model_set[name], model_set.mask_token(name))
    if name == "copy":
        return PromptLookup()
    if name == "max-gram":
        return MaxGram(model_set.pair_counts(name))
    raise InvalidArgumentError(f"what copies must be copy or max-gram, got {name!r}")
