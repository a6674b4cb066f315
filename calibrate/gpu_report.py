"""What the files say that ``calibrate.gpu_suite`` wrote, in Markdown; nothing is measured here.

python -m calibrate.gpu_report results
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import specsim
from specsim.hardware import accelerator_of, shape_from_config
from specsim.hardware.roofline_fit import roofline_rows
from specsim.hardware.run_time_error import fit_rows
from specsim.profiles import Profile, read_profile
from specsim.report.tables import render

# What a person reads of the rows of a validation.
_SHOWN = (
    *("temperature", "batch", "context", "gamma", "exact", "predicted_speedup"),
    *("predicted_low", "predicted_high", "measured_speedup", "measured_low", "measured_high"),
    *("relative_error", "inside", "chosen"),
    *("predicted_best", "measured_best"),
)
# Digits behind the point of what a fit leaves open; others have twelve.
_DIGITS = {"layer_us": 1, "median_error": 4}

Row = dict[str, Any]


def report(out: Path) -> str:
    """What the files of ``out`` say, in Markdown; nothing is measured."""
    machine = json.loads((out / "machine.json").read_text())
    visit = machine["visits"][-1]
    parts = ["# A visit to an accelerator", ", ".join(f"{k} {v}" for k, v in visit.items())]
    if visit["tiny"]:
        parts.append("**Sizes for trying it out (`--tiny`): no result here means anything.**")
    missing = [f"{name}: {why}" for name, why in machine["errors"].items()]
    for name in ("target", "draft"):
        file = out.with_name(f"{out.name}.work") / "pair" / f"{name}.json"
        if file.is_file():
            facts = json.loads(file.read_text()).items()
            parts.append(f"Trained {name}: " + ", ".join(f"{k} {v:g}" for k, v in facts))
    for file in sorted([*out.glob("pair.json"), *out.glob("costs-*.json")]):
        profile = read_profile(file)
        rows = fit_rows(profile)
        if profile.acceptance:
            rows = specsim.optimize(profile=file).rows()
        parts.append(f"## {file.stem}")
        tables = map(_determined, (rows, _roofline(profile)))
        parts += [render(table, "markdown") for table in tables if table]
        missing += [
            f"{file.stem}: {m.mode}-{m.batch}-{m.context}: {m.reason}" for m in profile.missing
        ]
    for file in sorted(out.glob("checks-*.json")):
        answers = json.loads(file.read_text())
        parts.append(f"## {file.stem}")
        for name, document in answers.items():
            if "why" in document:
                missing.append(f"{file.stem}: {name}: {document['why']}")
                continue
            answer = document["answer"]
            rows = [{key: row[key] for key in _SHOWN if key in row} for row in answer["rows"]]
            said = [*answer["errors"], *(f"failed: {each}" for each in answer["failures"])]
            lines = "\n".join(f"- {line}" for line in said)
            parts.append(f"### {name}\n\n{render(rows, 'markdown')}\n\n{lines}")
        parts += [f"- {line}" for line in _break_even(answers.values())]
    if missing:
        parts.append("## What is missing\n\n" + "\n".join(f"- {line}" for line in missing))
    return "\n\n".join(parts) + "\n"


def _roofline(profile: Profile) -> list[Row]:
    """The data sheet's roofline against the grid; nothing where there is no sheet or no shape."""
    if profile.target.config is None or profile.draft.config is None:
        return []
    sheet = accelerator_of(profile.hardware.device_name)
    if sheet is None:
        return []
    return roofline_rows(
        profile,
        sheet,
        {
            "target": shape_from_config(profile.target.config),
            "draft": shape_from_config(profile.draft.config),
        },
    )


def _determined(rows: Iterable[Row]) -> list[Row]:
    """Figures as far as processors agree: rounding leaves another rest of nothing on each, and fits
    are flat where a layer takes next to no time of its own.
    """

    def one(name: str, value: Any) -> Any:
        if not isinstance(value, float):
            return value
        return round(value, _DIGITS.get(name, 12))

    return [{name: one(name, value) for name, value in row.items()} for row in rows]


def _break_even(documents: Iterable[Row]) -> list[str]:
    """The largest batch that speculation pays at, measured and predicted, by context."""
    lines = []
    found = [row for each in documents for row in each.get("answer", {}).get("rows", ())]
    found = [row for row in found if "batch" in row]
    for context in sorted({row["context"] for row in found}):
        rows = [row for row in found if row["context"] == context]
        batches = sorted({row["batch"] for row in rows})
        measured, predicted = (
            max([row["batch"] for row in rows if row[f"{name}_speedup"] > 1], default=0)
            for name in ("measured", "predicted")
        )
        if len(batches) > 1:
            lines.append(
                f"context {context}, batches {', '.join(map(str, batches))}: speculation pays up "
                f"to batch {measured} as measured, {predicted} as predicted"
            )
    return lines


if __name__ == "__main__":
    print(report(Path(sys.argv[1])))
