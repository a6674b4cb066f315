"""``specsim.validate`` of an acceptance file: counts at one draft length predicted from others.

No model is run: the judge is what the engine itself counted.
"""

from __future__ import annotations

from pathlib import Path
from statistics import median
from typing import Any

import numpy as np

from specsim.api.result import Row
from specsim.api.validation import CountsCheck, Tolerance, Validation
from specsim.checks import InvalidArgumentError, UnsupportedError
from specsim.counts.drafts import DraftCounts
from specsim.counts.file import read_acceptance
from specsim.extrapolation import AcceptanceOverGamma
from specsim.extrapolation.curve import INTERVAL_LEVEL
from specsim.extrapolation.from_file import counted_acceptance
from specsim.files import file_digest
from specsim.intervals import FALSE_ALARM, Interval, apart, chance_limit, normal_quantile


def _check_alike(path: Path, other: Path) -> None:
    """Refuse a file that cannot judge another one."""
    if file_digest(path) == file_digest(other):
        raise InvalidArgumentError(
            f"counted {other} has the same content as {path}, which says nothing of itself"
        )
    known, judged = read_acceptance(path), read_acceptance(other)
    for name in ("temperature", "acceptance_law", "method"):
        one, two = getattr(known, name), getattr(judged, name)
        if None not in (one, two) and one != two:
            raise InvalidArgumentError(
                f"counted {other} is of another {name.replace('_', ' ')} than {path}: {two}, not "
                f"{one}"
            )


def validate_counts(path: Path, check: CountsCheck, tolerance: Tolerance | None) -> Validation:
    """Tokens per call at every draft length that was counted, from the counts at others.

    From all of ``path`` for the lengths of ``check.counted``; without that, for each length of
    ``path`` from its other lengths.  Beside it stands what cutting the counted curve, or holding
    its last rate, would have said.
    """
    known = counted_acceptance(path)
    if check.counted is not None:
        _check_alike(path, check.counted)
        judged = counted_acceptance(check.counted)
        rows = [_row(known, count) for count in judged.counts]
    else:
        if len(known.counts) < 2:
            raise UnsupportedError(
                f"{path} has counts at one draft length, {known.measured[0]}, and nothing to judge "
                "a prediction by; read counts of another length into the same file, or name a file "
                "with them (counted)"
            )
        rows = [
            _row(
                AcceptanceOverGamma(
                    tuple(each for each in known.counts if each is not count), known.heads
                ),
                count,
            )
            for count in known.counts
        ]
    errors = [abs(row["relative_error"]) for row in rows]
    worst = max(rows, key=lambda row: abs(row["relative_error"]))
    if tolerance is not None:
        failures = tolerance.exceeded([row["relative_error"] for row in rows])
    else:
        # Limits are of 95 % intervals, and carried counts have those of another level.
        limit = chance_limit(len(rows), 1 - FALSE_ALARM)
        limit *= normal_quantile(0.95) / normal_quantile(INTERVAL_LEVEL)
        failures = [
            f"gamma {row['gamma']}: predicted {predicted.best:.3f} ({predicted.low:.3f} to "
            f"{predicted.high:.3f}) tokens per call, counted {counted.best:.3f} "
            f"({counted.low:.3f} to {counted.high:.3f})"
            for row in rows
            for predicted, counted in [_intervals(row)]
            if apart(predicted, counted) > limit
        ]
    return Validation(
        check=check,
        measured=tuple(rows),
        errors=(
            f"relative error of tokens per call: median {median(errors):.1%}, worst "
            f"{max(errors):.1%} (gamma {worst['gamma']}); {INTERVAL_LEVEL:.0%} intervals of both "
            f"explain "
            f"{sum(row['inside'] for row in rows)} of {len(rows)}",
        ),
        failures=tuple(failures),
        inputs={"profile": str(path), "check": check, "tolerance": tolerance},
    )


def _row(known: AcceptanceOverGamma, count: DraftCounts) -> Row:
    gamma = count.gamma
    assert gamma is not None, "counts of a varying length are left out"
    predicted, measured = known.interval(gamma), count.length(INTERVAL_LEVEL)
    assert measured is not None, "of a draft length that is known"
    row: dict[str, Any] = {
        "gamma": gamma,
        "predicted_from": ", ".join(map(str, known.measured)),
        "model": known.model(gamma),
        "rounds": count.rounds,
        **predicted.columns("predicted_tokens_per_call"),
        "cut_or_held_tokens_per_call": _cut_or_held(known, gamma),
        **measured.columns("measured_tokens_per_call"),
        "level": INTERVAL_LEVEL,
    }
    row["inside"] = apart(*_intervals(row)) <= 1
    for name in ("predicted", "cut_or_held"):
        error = row[f"{name}_tokens_per_call"] / measured.best - 1
        row["relative_error" if name == "predicted" else f"{name}_error"] = error
    return row


def _intervals(row: Row) -> tuple[Interval[float], Interval[float]]:
    """Tokens per call, predicted and counted."""
    ends = ("_low", "", "_high")
    predicted, counted = (
        Interval(*(row[f"{name}_tokens_per_call{end}"] for end in ends))
        for name in ("predicted", "measured")
    )
    return predicted, counted


def _cut_or_held(known: AcceptanceOverGamma, gamma: int) -> float:
    """The next longer curve cut, or the last rate of the longest held on."""
    longer = [each for each in known.measured if each >= gamma]
    curve = known.survival(longer[0] if longer else known.measured[-1])
    if longer:
        return float(curve[: gamma + 1].sum())
    rate = curve[-1] / curve[-2] if curve[-2] else 0.0
    beyond = curve[-1] * np.cumprod(np.full(gamma + 1 - curve.size, rate))
    return float(curve.sum() + beyond.sum())
