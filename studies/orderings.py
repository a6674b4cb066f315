"""Who beats whom, according to the papers, and on our models.

Each row is a claim of a paper as a ratio of two speedups, predicted from the calibration's text and
measured by decoding, with what the two settings emit beside it.  A claim holds here if prediction
and measurement both say so, fails if neither does, and is open where they disagree.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

Row = Mapping[str, Any]
# Chooses the row of a setting among those of one temperature.
Choice = Callable[[Sequence[Row]], Row]


@dataclass(frozen=True)
class Claim:
    """One setting is said to be faster than another."""

    source: str
    says: str
    faster: Choice
    slower: Choice


def named(scheme: str, setting: str) -> Choice:
    """The setting of that name."""

    def choose(rows: Sequence[Row]) -> Row:
        for row in rows:
            if (row["scheme"], row["setting"]) == (scheme, setting):
                return row
        raise KeyError(f"{scheme} {setting}")

    return choose


def best(*settings: tuple[str, str]) -> Choice:
    """The one that is predicted fastest: chosen before it is measured."""

    def choose(rows: Sequence[Row]) -> Row:
        found = [named(*setting)(rows) for setting in settings]
        return max(found, key=lambda row: row["predicted_speedup"])

    return choose


_DRAFT = [("speculative", f"draft {gamma}") for gamma in (2, 4, 8)]
_ALONE = [*_DRAFT, ("speculative", "middle 4")]

CLAIMS = (
    Claim(
        "Chen23 section 3.1",
        "vertical beats its reviewer drafting alone",
        best(
            ("vertical", "middle reviews draft 2, twice"),
            ("vertical", "middle reviews draft 2, >= 4"),
            ("vertical", "middle reviews Max-Gram 5, >= 4"),
        ),
        named("speculative", "middle 4"),
    ),
    Claim(
        "Chen23 section 3.2",
        "horizontal beats the better of its drafters alone",
        named("horizontal", "middle 3, draft 3"),
        best(*_ALONE),
    ),
    Claim(
        "Chen23 section 3.2",
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
        "Kim23 section 4.4",
        "BiLD's dynamic window beats a fixed one under the same rollback",
        named("bild", "fallback 0.4, rollback 2"),
        named("bild", "no fallback, window 4"),
    ),
    Claim(
        "Kim23 section 4.2",
        "BiLD beats the best lossless fixed gamma",
        named("bild", "fallback 0.4, rollback 2"),
        best(*_DRAFT),
    ),
    Claim(
        "Kim23 section 4.3",
        "no rollback is faster",
        named("bild", "no rollback"),
        named("bild", "fallback 0.4, rollback 2"),
    ),
    Claim(
        "Xia22 Table 3",
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
        named("speculative", "draft 4"),
    ),
    Claim(
        "Narasimhan24 Figure 2",
        "a speculative cascade beats the same rule run token by token",
        named("cascade", "Chow 0.6"),
        named("token-cascade", "Chow 0.6"),
    ),
)


def compute(rows: Sequence[Row]) -> list[dict[str, Any]]:
    """One row per claim and temperature for which both settings were decoded."""
    return [
        found
        for temperature in sorted({row["temperature"] for row in rows})
        for found in _at([row for row in rows if row["temperature"] == temperature])
    ]


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
            "source": claim.source,
            "claim": claim.says,
            "faster": faster["setting"],
            "slower": slower["setting"],
            "predicted_ratio": predicted,
            "measured_ratio": measured,
            "verdict": _verdict(predicted, measured),
            "accuracy": _pair(faster["accuracy"], slower["accuracy"]),
            "log_loss": _pair(faster["log_loss"], slower["log_loss"]),
            "agreement": _pair(faster["agreement"], slower["agreement"]),
        }


def _verdict(predicted: float, measured: float) -> str:
    if (predicted > 1) != (measured > 1):
        return "open"
    return "holds" if measured > 1 else "fails"


def _pair(first: float | None, second: float | None) -> str:
    """Of the one said to be faster, and of the other; a dash where it is not defined."""
    return " / ".join("-" if value is None else f"{value:.3f}" for value in (first, second))
