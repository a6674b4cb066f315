"""The settings that ``specsim validate --scheme`` knows: every decoder of the five papers."""

from __future__ import annotations

from collections.abc import Sequence

from calibrate.decode.beam import Beams
from calibrate.decode.bild import Policy
from calibrate.decode.verification import lenient
from calibrate.models.sampling import Sampling
from calibrate.schemes.base import Setting
from calibrate.schemes.beams import BeamSetting
from calibrate.schemes.lossy import BigLittle, Ruled, Sequential
from calibrate.schemes.nests import Counts, Lossless, Model, Nest, Review, Row, Sure, full_cascade
from calibrate.schemes.whole import Masked, WholeSequence
from specsim.rules import (
    Chow,
    Diff,
    GreedyMatch,
    Lossy,
    Opt,
    Rule,
    TokenV1,
    TokenV2,
    TokenV3,
    TopBeta,
)
from specsim.rules.executions import mean_log_probability

# Kim23 samples from the nucleus that holds this share.
_NUCLEUS = 0.8
_DRAFT = "draft"


def settings(sampling: Sampling) -> list[Setting]:
    """All settings at one sampling, whatever models they need.

    Most draft with the model ``draft``; there are also ``middle`` (a better drafter), ``early``
    (the target's first layers), ``masks`` and ``aligned``.
    """
    draft = _DRAFT
    found: list[Setting] = [
        Lossless(name, scheme, nest, sampling) for name, scheme, nest in _nests()
    ]
    if sampling.greedy:
        found += [
            Masked("masks 4", GreedyMatch(), 4),
            Masked("masks 8", GreedyMatch(), 8),
            Masked("masks 8, top 3 within 1", TopBeta(3, 1.0), 8),
            Masked("masks 8, top 5 within 3", TopBeta(5, 3.0), 8),
            BeamSetting("4 beams, not drafted", Beams(4, 4, 0), draft),
            BeamSetting("4 beams, 2 steps of 6 drafted", Beams(4, 6, 2), "middle"),
        ]
    found += [Ruled(name, rule, draft, 4, sampling) for name, rule in _rules(sampling)]
    writing = sampling if sampling.greedy else Sampling(sampling.temperature, top_p=_NUCLEUS)
    found += [BigLittle(name, policy, small, writing) for name, policy, small in _big_little()]
    chow = Chow(0.6, decide_on="unscaled")
    found.append(Sequential("Chow 0.6", chow, draft, 10, sampling))
    found.append(WholeSequence("mean log q >= -1", mean_log_probability, -1.0, draft, sampling))
    return found


def _nests() -> list[tuple[str, str, Nest]]:
    draft = _DRAFT
    few, gram = Model(draft, 2), Sure("max-gram", 5)
    return [
        (f"{draft} 2", "speculative", Model(draft, 2)),
        (f"{draft} 4", "speculative", Model(draft, 4)),
        (f"{draft} 8", "speculative", Model(draft, 8)),
        ("middle 4", "speculative", Model("middle", 4)),
        ("early exit 2", "speculative", Model("early", 2)),
        ("unigram 1", "speculative", Counts("unigram", 1)),
        ("bigram 3", "speculative", Counts("bigram", 3)),
        ("prompt lookup 10", "speculative", Sure("copy", 10)),
        ("Max-Gram 10", "speculative", Sure("max-gram", 10)),
        (f"middle 3, {draft} 3", "horizontal", Row((Model("middle", 3), Model(draft, 3)))),
        ("middle 3, Max-Gram 5", "horizontal", Row((Model("middle", 3), gram))),
        (f"middle reviews {draft} 2, twice", "vertical", Review("middle", few, 2, steps=2)),
        (f"middle reviews {draft} 2, >= 4", "vertical", Review("middle", few, 2, at_least=4)),
        ("middle reviews Max-Gram 5, >= 4", "vertical", Review("middle", gram, 5, at_least=4)),
        (f"{draft} reviews Max-Gram 5, >= 4", "vertical", Review(draft, gram, 5, at_least=4)),
        (
            f"middle, {draft}, Max-Gram",
            "full",
            full_cascade(["middle", draft], ((3, 2, 3), (2, 3), (3,))),
        ),
    ]


def _rules(sampling: Sampling) -> Sequence[tuple[str, Rule]]:
    """Deciding rules compare unscaled rows, as the authors' code does (errata Narasimhan24 7)."""
    found: list[tuple[str, Rule]] = [
        ("lenience 0.5", lenient(0.5, sampling)),
        ("Chow 0.6", Chow(0.6, decide_on="unscaled")),
        ("Diff 0.1", Diff(0.1, decide_on="unscaled")),
        ("Opt 0.1", Opt(0.1, decide_on="unscaled")),
        ("TokenV1 0.3", TokenV1(0.3, decide_on="unscaled")),
        ("TokenV2 0.3", TokenV2(0.3, decide_on="unscaled")),
        ("TokenV3 0.7", TokenV3(0.7, decide_on="unscaled")),
        ("top 3 within 1", TopBeta(3, 1.0, decide_on="unscaled")),
    ]
    if not sampling.greedy:
        found.append(("Lossy 0.5", Lossy(0.5)))
    return found


def _big_little() -> list[tuple[str, Policy, str]]:
    return [
        ("fallback 0.4, rollback 2", Policy(0.4, 2.0), _DRAFT),
        ("the same, aligned draft", Policy(0.4, 2.0), "aligned"),
        ("the same, early exit", Policy(0.4, 2.0), "early"),
        ("no rollback", Policy(0.4, float("inf")), _DRAFT),
        ("no fallback, window 4", Policy(0.0, 2.0, window=4), _DRAFT),
    ]
