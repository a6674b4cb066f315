"""Who beats whom, according to the papers, and on our models.

Each row is a claim of a paper as a ratio of two speedups, predicted from the calibration's text and
measured by decoding, with what the two settings emit beside it.  A claim holds here if prediction
and measurement both say so, fails if neither does, and is open where they disagree or where what
was measured is equal but for what machines drift.

Rules with a threshold are decoded at one or two of them, and the two sides then differ in quality
too; the row says which table compares them at equal quality.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from studies.common.decoded import LOSSLESS, by_temperature, setting_of
from studies.common.measured import Measured
from studies.common.study import Row

CAPTION = (
    "Who beats whom according to the papers. Ratios of the speedup of the one said to be faster to "
    "the other's."
)
# Chooses the row of a setting among those of one temperature.
Choice = Callable[[Sequence[Row]], Row]

# Speeds of two settings that ran in turns are not told apart below that.
_DRIFT = 0.03


@dataclass(frozen=True)
class Claim:
    """One setting is said to be faster than another.

    note : where the comparison is not at equal quality, what answers better
    """

    source: str
    says: str
    faster: Choice
    slower: Choice
    note: str = ""


def named(scheme: str, setting: str) -> Choice:
    """The setting of that name."""

    def choose(rows: Sequence[Row]) -> Row:
        row = setting_of(rows, scheme, setting)
        if row is None:
            raise KeyError(f"{scheme} {setting}")
        return row

    return choose


def best(*settings: tuple[str, str]) -> Choice:
    """The one that is predicted fastest: chosen before it is measured."""

    def choose(rows: Sequence[Row]) -> Row:
        found = [named(*setting)(rows) for setting in settings]
        return max(found, key=lambda row: row["predicted_speedup"])

    return choose


_DRAFT = [("speculative", f"draft {gamma}") for gamma in (2, 4, 8)]
_ALONE = [*_DRAFT, ("speculative", "middle 4")]
_EQUAL_QUALITY = "at one threshold; `cascades-equal_quality.csv` compares at the target's quality"
_EQUAL_ACCURACY = "at one threshold; `bild-fastest.csv` compares at the target's accuracy"

CLAIMS = (
    Claim(
        "Chen23 section 3.2",
        "vertical beats its reviewer drafting alone",
        best(
            ("vertical", "middle reviews draft 2, twice"),
            ("vertical", "middle reviews draft 2, >= 4"),
            ("vertical", "middle reviews Max-Gram 5, >= 4"),
        ),
        named("speculative", "middle 4"),
    ),
    Claim(
        "Chen23 section 3.1",
        "horizontal beats the better of its drafters alone",
        named("horizontal", "middle 3, draft 3"),
        best(*_ALONE),
    ),
    Claim(
        "Chen23 section 3.1",
        "horizontal with copied tokens behind beats its model alone",
        named("horizontal", "middle 3, Max-Gram 5"),
        named("speculative", "middle 4"),
    ),
    Claim(
        "Chen23 Table 2",
        "the full cascade beats every single model",
        named("full", "middle, draft, Max-Gram"),
        best(*_ALONE),
    ),
    Claim(
        "Kim23 section 4.3",
        "BiLD's dynamic window beats a fixed one under the same rollback",
        named("bild", "fallback 0.4, rollback 2"),
        named("bild", "no fallback, window 4"),
        _EQUAL_ACCURACY,
    ),
    Claim(
        "Kim23 section 4.2",
        "BiLD beats the best lossless fixed gamma",
        named("bild", "fallback 0.4, rollback 2"),
        best(*_DRAFT),
        _EQUAL_ACCURACY,
    ),
    Claim(
        "Kim23 section 4.3",
        "no rollback is faster",
        named("bild", "no rollback"),
        named("bild", "fallback 0.4, rollback 2"),
        _EQUAL_ACCURACY,
    ),
    Claim(
        "Xia22 section 5.2",
        "SpecDec++ beats SpecDec",
        named("specdec", "masks 8, top 3 within 1"),
        named("specdec", "masks 8"),
    ),
    Claim(
        "Xia22 section 4",
        "masks filled in at once beat a draft that goes token by token",
        best(("specdec", "masks 4"), ("specdec", "masks 8")),
        best(*_ALONE),
    ),
    Claim(
        "Narasimhan24 Figure 3",
        "the token rule V3 beats lossless speculation",
        named("cascade", "TokenV3 0.7"),
        named(*LOSSLESS),
        _EQUAL_QUALITY,
    ),
    Claim(
        "Narasimhan24 Figure 2",
        "a speculative cascade beats the same rule run token by token",
        named("cascade", "Chow 0.6"),
        named("token-cascade", "Chow 0.6"),
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
    for claim in CLAIMS:
        try:
            faster, slower = claim.faster(rows), claim.slower(rows)
        except KeyError:
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
            "accuracy": _pair(faster["accuracy"], slower["accuracy"]),
            "log_loss": _pair(faster["log_loss"], slower["log_loss"]),
            "agreement": _pair(faster["agreement"], slower["agreement"]),
            "note": claim.note,
        }


def _verdict(predicted: float, measured: float) -> str:
    if (predicted > 1) != (measured > 1) or abs(measured - 1) <= _DRIFT:
        return "open"
    return "holds" if measured > 1 else "fails"


def _pair(first: float | None, second: float | None) -> str:
    """Of the one said to be faster, and of the other; a dash where it is not defined."""
    return " / ".join("-" if value is None else f"{value:.3f}" for value in (first, second))
