"""Narasimhan24's printed numbers, none of which can be computed from what it prints."""

from __future__ import annotations

from studies.common.study import Check, Tables, reference

# What Table 2 needs that the paper does not print.
_NO_MODELS = (
    "needs the authors' fine-tuned T5 models and data: the paper prints no deferral rates, "
    "run times or responses to compute it from"
)


def checks(tables: Tables) -> list[Check]:
    """Table 2 as far as its text survives (errata: Narasimhan24 8), and two numbers of E.4."""
    found = []
    for row in reference("narasimhan24_table2_partial"):
        item = f"{row['method']}, small to {row['large_model']}, {row['dataset']}"
        for column in ("latency_reduction", "best_quality"):
            what = f"{item}, {column.replace('_', ' ')}"
            # Half a unit of the last printed digit.
            found.append(
                Check("Narasimhan24 Table 2", what, float(row[column]), None, 0.005, _NO_MODELS)
            )
    for model, printed in (("small", 0.64), ("large", 0.85)):
        item = f"XSum, Lossy, gamma 3, relative latency at the {model} model's quality"
        found.append(Check("Narasimhan24 E.4", item, printed, None, 0.005, _NO_MODELS))
    return found
