"""Who beats whom, according to the papers, and on our models.

Each row is a claim of a paper as a ratio of two speedups, predicted from the calibration's text and
measured by decoding, with what the two settings emit beside it.  A claim holds here if prediction
and measurement both say so, fails if neither does, and is open where they disagree or where what
was measured is equal but for what machines drift.

Rules with a threshold are decoded at one or two of them, and the two sides then differ in quality
too; the row says which table compares them at equal quality.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from math import inf
from typing import Any

from specsim.rules import Chow, TokenV3, TopBeta
from specsim.schemes import (
    BigLittle,
    FullCascade,
    HorizontalCascade,
    Scheme,
    SpecDec,
    SpeculativeCascade,
    SpeculativeDecoding,
    TokenCascade,
    VerticalCascade,
)
from studies.common.decoded import LOSSLESS, by_temperature, row_of
from studies.common.measured import Measured
from studies.common.study import Row

CAPTION = (
    "Who beats whom according to the papers. Ratios of the speedup of the one said to be faster to "
    "the other's."
)
# Speeds of two settings that ran in turns are not told apart below that.
_DRIFT = 0.03


@dataclass(frozen=True)
class Ordering:
    """One setting is said to be faster than another.

    faster, slower : of several settings the one that is predicted fastest, chosen before it is
        measured
    note : where the comparison is not at equal quality, what answers better
    """

    source: str
    says: str
    faster: tuple[Scheme, ...]
    slower: tuple[Scheme, ...]
    note: str = ""


_DRAFT = tuple(SpeculativeDecoding(gamma) for gamma in (2, 4, 8))
_MIDDLE = SpeculativeDecoding(4, "middle")
_ALONE = (*_DRAFT, _MIDDLE)
_BOTH, _COPYING = ("middle", "draft"), ("middle", "max-gram")
FULL = FullCascade((*_BOTH, "max-gram"), ((3, 2, 3), (2, 3), (3,)))
BILD = BigLittle(10, "draft", fallback_threshold=0.4, rollback_threshold=2.0)
_NO_ROLLBACK = BigLittle(10, "draft", fallback_threshold=0.4, rollback_threshold=inf)
_NO_FALLBACK = BigLittle(4, "draft", fallback_threshold=0.0, rollback_threshold=2.0)
_CHOW, _V3 = Chow(0.6, decide_on="unscaled"), TokenV3(0.7, decide_on="unscaled")
_EQUAL_QUALITY = "at one threshold; `cascades-equal_quality.csv` compares at the target's quality"
_EQUAL_ACCURACY = "at one threshold; `bild-fastest.csv` compares at the target's accuracy"

ORDERINGS = (
    Ordering(
        "Chen23 section 3.2",
        "vertical beats its reviewer drafting alone",
        (
            VerticalCascade(_BOTH, gamma=2, steps=(2,)),
            VerticalCascade(_BOTH, gamma=2, at_least=(4,)),
            VerticalCascade(_COPYING, gamma=5, at_least=(4,)),
        ),
        (_MIDDLE,),
    ),
    Ordering(
        "Chen23 section 3.1",
        "horizontal beats the better of its drafters alone",
        (HorizontalCascade(_BOTH, (3, 3)),),
        _ALONE,
    ),
    Ordering(
        "Chen23 section 3.1",
        "horizontal with copied tokens behind beats its model alone",
        (HorizontalCascade(_COPYING, (3, 5)),),
        (_MIDDLE,),
    ),
    Ordering("Chen23 Table 2", "the full cascade beats every single model", (FULL,), _ALONE),
    Ordering(
        "Kim23 section 4.3",
        "BiLD's dynamic window beats a fixed one under the same rollback",
        (BILD,),
        (_NO_FALLBACK,),
        _EQUAL_ACCURACY,
    ),
    Ordering(
        "Kim23 section 4.2",
        "BiLD beats the best lossless fixed gamma",
        (BILD,),
        _DRAFT,
        _EQUAL_ACCURACY,
    ),
    Ordering(
        "Kim23 section 4.3", "no rollback is faster", (_NO_ROLLBACK,), (BILD,), _EQUAL_ACCURACY
    ),
    Ordering(
        "Xia22 section 5.2",
        "SpecDec++ beats SpecDec",
        (SpecDec(8, "masks", rule=TopBeta(3, 1.0)),),
        (SpecDec(8, "masks"),),
    ),
    Ordering(
        "Xia22 section 4",
        "masks filled in at once beat a draft that goes token by token",
        (SpecDec(4, "masks"), SpecDec(8, "masks")),
        _ALONE,
    ),
    Ordering(
        "Narasimhan24 Figure 3",
        "the token rule V3 beats lossless speculation",
        (SpeculativeCascade(4, "draft", rule=_V3),),
        (LOSSLESS,),
        _EQUAL_QUALITY,
    ),
    Ordering(
        "Narasimhan24 Figure 2",
        "a speculative cascade beats the same rule run token by token",
        (SpeculativeCascade(4, "draft", rule=_CHOW),),
        (TokenCascade(10, "draft", _CHOW),),
        _EQUAL_QUALITY,
    ),
)


def compute(measured: Measured, paper: str = "") -> list[dict[str, Any]]:
    """One row per claim, of one paper or of all, and temperature at which both were decoded."""
    return [row for row in ratios(measured.decoded) if row["claimed_in"].startswith(paper)]


def ratios(decoded: Sequence[Row]) -> list[dict[str, Any]]:
    """Of every claim for which both settings were decoded, by temperature."""
    return [row for _, rows in by_temperature(decoded) for row in _at(rows)]


def _at(rows: Sequence[Row]) -> Iterator[dict[str, Any]]:
    for claim in ORDERINGS:
        faster, slower = _best(rows, claim.faster), _best(rows, claim.slower)
        if faster is None or slower is None:
            continue  # its models were not at hand
        predicted = faster["predicted_speedup"] / slower["predicted_speedup"]
        measured = faster["measured_speedup"] / slower["measured_speedup"]
        yield {
            "temperature": faster["temperature"],
            "claimed_in": claim.source,
            "claim": claim.says,
            "faster": faster["setting"],
            "slower": slower["setting"],
            "predicted_ratio": predicted,
            "measured_ratio": measured,
            "verdict": _verdict(predicted, measured),
            **{name: _pair(faster[name], slower[name]) for name in _EMITTED},
            "note": claim.note,
        }


_EMITTED = ("accuracy", "log_loss", "agreement")


def _best(rows: Sequence[Row], settings: Sequence[Scheme]) -> Row | None:
    """The one predicted fastest; None unless all were decoded."""
    found = [row for setting in settings if (row := row_of(rows, setting))]
    if len(found) < len(settings):
        return None
    return max(found, key=lambda row: float(row["predicted_speedup"]))


def _verdict(predicted: float, measured: float) -> str:
    if (predicted > 1) != (measured > 1) or abs(measured - 1) <= _DRIFT:
        return "open"
    return "holds" if measured > 1 else "fails"


def _pair(first: float | None, second: float | None) -> str:
    """Of the one said to be faster, and of the other; a dash where it is not defined."""
    return " / ".join("-" if value is None else f"{value:.3f}" for value in (first, second))
