"""Ours beside what was measured: points, errors, where they come from, and every decoder.

A relative error is predicted over measured, less one.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from statistics import median
from typing import Any

from studies.common.measured import Measured
from studies.common.study import Row
from studies.fidelity.formula import BAND, SCHEMES, SPECULATIVE, SPEEDUP, SYNTHETIC, TOKENS

_CLOSE = 0.03
_BUDGET = ("acceptance", "draft", "verify", "overhead")
_DECODERS = (
    *("temperature", "scheme", "setting", "lossless", "requests"),
    *("predicted_tokens_per_call", "measured_tokens_per_call", "exact"),
    *("runs", "approximate", "runs_within_3%", "counts_as_predicted"),
    *("predicted_speedup", "measured_speedup", "measured_low", "measured_high", "relative_error"),
    *("log_loss", "accuracy", "agreement"),
)


def points(measured: Measured) -> Iterator[dict[str, Any]]:
    for row in measured.decoded:
        yield from _pairs(SCHEMES, f"{row['scheme']}: {row['setting']}", row)
    for row in measured.speedups:
        yield from _pairs(SPECULATIVE, f"gamma {row['gamma']}, {row['prompts']} prompts", row)
    for row in measured.synthetic:
        setting = f"batch {row['batch']}, context {row['context']}, gamma {row['gamma']}"
        yield from _pairs(SYNTHETIC, setting, row)


def _pairs(measurement: str, setting: str, row: Row) -> Iterator[dict[str, Any]]:
    """Tokens per call and speedup of one row, as far as it has both sides of them."""
    for quantity, name in ((TOKENS, "tokens_per_call"), (SPEEDUP, "speedup")):
        predicted, found = row.get(f"predicted_{name}"), row.get(f"measured_{name}")
        if predicted is None or found is None:
            continue
        timed = quantity == SPEEDUP
        yield {
            "measurement": measurement,
            "quantity": quantity,
            "temperature": row.get("temperature"),
            "setting": setting,
            "predicted": predicted,
            "measured": found,
            "measured_low": row.get("measured_low") if timed else None,
            "measured_high": row.get("measured_high") if timed else None,
            "relative_error": predicted / found - 1,
        }


def errors(points: Sequence[Row]) -> list[dict[str, Any]]:
    groups: dict[tuple[str, str, Any], list[Row]] = defaultdict(list)
    for row in points:
        groups[row["quantity"], row["measurement"], row["temperature"]].append(row)
    return [
        {"quantity": quantity, "measurement": measurement, "temperature": at, **_far(rows)}
        for (quantity, measurement, at), rows in groups.items()
    ]


def _far(rows: Sequence[Row]) -> dict[str, Any]:
    errors = [row["relative_error"] for row in rows]
    worst = max(rows, key=lambda row: abs(row["relative_error"]))
    bounded = [row for row in rows if row["measured_low"] is not None]
    inside = sum(row["measured_low"] <= row["predicted"] <= row["measured_high"] for row in bounded)
    return {
        "settings": len(rows),
        "median_error": median(errors),
        "median_absolute_error": median(abs(error) for error in errors),
        "within_5%": sum(abs(error) <= BAND for error in errors),
        "inside_95%_interval": inside if bounded else None,
        "worst_error": worst["relative_error"],
        "worst_setting": worst["setting"],
    }


def budget(measured: Measured) -> list[dict[str, Any]]:
    """Parts of the speedup's error, each as what the speedup is off by for it alone.

    Acceptance: tokens per call, predicted over counted.  Cost: what is left, run times and the
    host.  Synthetic acceptance tells draft, verification and host apart, as shares of the error's
    logarithm (``specsim.predict.error_decomposition``).
    """
    parts: dict[tuple[str, str, Any], list[float]] = defaultdict(list)
    for row in measured.decoded:
        acceptance = row["predicted_tokens_per_call"] / row["measured_tokens_per_call"]
        speedup = row["predicted_speedup"] / row["measured_speedup"]
        parts[SCHEMES, "acceptance", row["temperature"]].append(acceptance - 1)
        parts[SCHEMES, "cost", row["temperature"]].append(speedup / acceptance - 1)
    for row in measured.speedups:
        for part in ("acceptance", "cost"):
            parts[SPECULATIVE, part, row["temperature"]].append(row[f"{part}_error"])
    for row in measured.synthetic:
        for part in _BUDGET:
            if row.get(f"error_{part}") is not None:
                parts[SYNTHETIC, part, row.get("temperature")].append(row[f"error_{part}"])
    return [
        {
            "measurement": measurement,
            "temperature": temperature,
            "part": part,
            "settings": len(errors),
            "median_error": median(errors),
            "median_absolute_error": median(abs(error) for error in errors),
            "worst_error": max(errors, key=abs),
        }
        for (measurement, part, temperature), errors in parts.items()
    ]


def laws(measured: Measured) -> Iterator[dict[str, Any]]:
    """Tokens per call by law, by replay and as counted, of every setting that has a law.

    All three are of the same requests; the law is told the mean acceptance of each drafter by each
    verifier over the tokens of their text.
    """
    for row in measured.decoded:
        law, replay = row["law_tokens_per_call"], row["predicted_tokens_per_call"]
        if law is not None:
            counted = row["measured_tokens_per_call"]
            rates = [f"{event} {rate:.3f}" for event, rate in row["acceptance"].items()]
            yield {
                **{name: row[name] for name in ("temperature", "scheme", "setting")},
                "acceptance": ", ".join(rates),
                "law_tokens_per_call": law,
                "replay_tokens_per_call": replay,
                "measured_tokens_per_call": counted,
                "law_over_replay": law / replay - 1,
                "law_error": law / counted - 1,
                "replay_error": replay / counted - 1,
            }


def decoders(measured: Measured) -> Iterator[dict[str, Any]]:
    """Every column of a decoder in one cell each; runs of each model predicted / counted."""
    for row in measured.decoded:
        pairs = [
            (model, expected, row["measured_runs"][model])
            for model, expected in row["predicted_runs"].items()
        ]
        cells = {
            **row,
            "runs": ", ".join(
                f"{model} {expected:.0f} / {counted:.0f}" for model, expected, counted in pairs
            ),
            "runs_within_3%": all(
                abs(expected - counted) <= _CLOSE * counted for _, expected, counted in pairs
            ),
            "approximate": ", ".join(row["approximate"]),
        }
        yield {name: cells.get(name) for name in _DECODERS}
