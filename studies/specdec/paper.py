"""What is left of Xia22's numbers: its tables are lost from its text."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from studies.common.study import Check, Tables, reference


def text() -> Iterator[dict[str, Any]]:
    for row in reference("xia22_text_figures"):
        yield {"source": "Xia22 section 5", **{name: value or None for name, value in row.items()}}


_BLEU = "BLEU of translation models that were trained and never published; nothing to compute from"
_LARGEST = (
    "a property of how well a larger drafter learns; by the law accepted tokens never fall with k"
)


def checks(tables: Tables) -> list[Check]:
    """One per row of the running text; none can be computed, because the tables are lost."""
    one = next(row for row in tables["devices"] if row["batch"] == 1)
    found = []
    for row in reference("xia22_text_figures"):
        setting = row["setting"]
        if row["speedup_over_beam5"]:
            printed, digits = row["speedup_over_beam5"], 0.05
            reason = (
                "the tokens per call behind it stood in tables that are lost from the text; on a "
                f"roofline of the {one['device']} it needs {one[f'needed, {setting}']:.1f}"
            )
        elif row["bleu_dev"]:
            printed, digits, reason = row["bleu_dev"], 0.005, _BLEU
        else:
            printed, digits, reason = row["block_size"], 0.5, _LARGEST
        found.append(Check("Xia22 section 5", setting, float(printed), None, digits, reason))
    return found
