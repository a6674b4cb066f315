"""The settings that ``specsim validate --scheme`` knows: every decoder of the five papers.

A setting is the description of a scheme (specsim.schemes) with all its numbers.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from calibrate.decode.verification import lenient
from calibrate.models.sampling import Sampling
from specsim.rules import (
    Chow,
    Diff,
    Lossy,
    Opt,
    Rule,
    TokenV1,
    TokenV2,
    TokenV3,
    TopBeta,
)
from specsim.schemes import (
    BeamSearch,
    BigLittle,
    FullCascade,
    HorizontalCascade,
    Scheme,
    SequenceCascade,
    SpecDec,
    SpeculativeCascade,
    SpeculativeDecoding,
    TokenCascade,
    VerticalCascade,
)

# Kim23 samples from the nucleus that holds this share.
_NUCLEUS = 0.8

_LOSSLESS: tuple[Scheme, ...] = (
    SpeculativeDecoding(2, "draft"),
    SpeculativeDecoding(4, "draft"),
    SpeculativeDecoding(8, "draft"),
    SpeculativeDecoding(4, "middle"),
    SpeculativeDecoding(4, "eagle"),
    SpeculativeDecoding(2, "early"),
    SpeculativeDecoding(1, "unigram"),
    SpeculativeDecoding(3, "bigram"),
    SpeculativeDecoding(10, "copy"),
    SpeculativeDecoding(10, "max-gram"),
    HorizontalCascade(("middle", "draft"), (3, 3)),
    HorizontalCascade(("middle", "max-gram"), (3, 5)),
    VerticalCascade(("middle", "draft"), gamma=2, steps=(2,)),
    VerticalCascade(("middle", "draft"), gamma=2, at_least=(4,)),
    VerticalCascade(("middle", "max-gram"), gamma=5, at_least=(4,)),
    VerticalCascade(("draft", "max-gram"), gamma=5, at_least=(4,)),
    FullCascade(("middle", "draft", "max-gram"), ((3, 2, 3), (2, 3), (3,))),
)
# What is the ratio test at temperature 0, and another decoder above it.
_LAWS: tuple[Scheme, ...] = (
    SpeculativeDecoding(4, "draft", acceptance_law="greedy-drafts"),
    SpeculativeDecoding(4, "draft", acceptance_law="exact-match"),
)
_GREEDY: tuple[Scheme, ...] = (
    SpecDec(4, "masks"),
    SpecDec(8, "masks"),
    SpecDec(8, "masks", rule=TopBeta(3, 1.0)),
    SpecDec(8, "masks", rule=TopBeta(5, 3.0)),
    BeamSearch(gamma=0, beams=4, draft_beam=4, draft="draft"),
    BeamSearch(gamma=2, beams=4, draft_beam=6, draft="middle"),
)


def _big_little(
    draft: str, fallback: float = 0.4, rollback: float = 2.0, window: int = 10
) -> BigLittle:
    return BigLittle(window, draft, fallback_threshold=fallback, rollback_threshold=rollback)


_BIG_LITTLE: tuple[Scheme, ...] = (
    _big_little("draft"),
    _big_little("aligned"),
    _big_little("early"),
    _big_little("draft", rollback=math.inf),
    _big_little("draft", fallback=0.0, window=4),
)


def settings(sampling: Sampling) -> list[Scheme]:
    """All settings at one sampling, whatever models they need.

    Most draft with the model ``draft``; there are also ``middle`` (a better drafter), ``early``
    (the target's first layers), ``masks``, ``aligned`` and ``eagle`` (a head over its states).
    """
    return [
        *_LOSSLESS,
        *(_GREEDY if sampling.greedy else ()),
        *(SpeculativeCascade(4, "draft", rule=rule) for rule in _rules(sampling)),
        *_BIG_LITTLE,
        TokenCascade(10, "draft", Chow(0.6, decide_on="unscaled")),
        SequenceCascade(draft="draft", confidence="mean", threshold=-1.0),
        *(() if sampling.greedy else _LAWS),
    ]


def drawn_with(scheme: Scheme, sampling: Sampling) -> Sampling:
    """How tokens of a setting are drawn where others are drawn with ``sampling``."""
    if isinstance(scheme, BigLittle) and not sampling.greedy:
        return Sampling(sampling.temperature, top_p=_NUCLEUS)
    return sampling


def _rules(sampling: Sampling) -> Sequence[Rule]:
    """Deciding rules compare unscaled rows, as the authors' code does (errata Narasimhan24 7)."""
    found: list[Rule] = [
        lenient(0.5, sampling),
        Chow(0.6, decide_on="unscaled"),
        Diff(0.1, decide_on="unscaled"),
        Opt(0.1, decide_on="unscaled"),
        TokenV1(0.3, decide_on="unscaled"),
        TokenV2(0.3, decide_on="unscaled"),
        TokenV3(0.7, decide_on="unscaled"),
        TopBeta(3, 1.0, decide_on="unscaled"),
    ]
    return found if sampling.greedy else [*found, Lossy(0.5)]
