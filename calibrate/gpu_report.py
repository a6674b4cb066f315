"""Profiles, rows and a summary from the raw files of ``calibrate.gpu_suite``.

    python -m calibrate.gpu_report results/raw --out studies/results/gpu-h200

Runs anywhere that specsim is installed with all it needs; no accelerator.  Whatever is missing
from the raw files is missing here too, and named in summary.md.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from calibrate.suite.judge import (
    Row,
    break_even_rows,
    forced_rows,
    median_and_worst,
    overhead_rows,
    profile,
)
from calibrate.suite.judge_pair import alpha_rows, call_rows, pair_profile
from specsim.checks import SpecsimError, UnsupportedError
from specsim.files import make_folder, write_atomically
from specsim.hardware import Accelerator, Shape, accelerator, shape_from_config
from specsim.hardware.roofline_fit import roofline_rows
from specsim.profiles import Profile, Role, write_profile
from specsim.report.tables import render, to_json

ALPHAS = (0.5, 0.6, 0.7, 0.8)
# What is claimed of the speedup: median and worst relative error; and of the break-even batch.
MEDIAN_ERROR, WORST_ERROR, STEPS = 0.03, 0.08, 1
# And of the calls at temperature 0: a tie of two tokens may fall differently in another batch.
CALLS_ERROR = 0.01
# Rows of a table in the summary; the JSON beside it has all.
_SHOWN = 40


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("raw", type=Path, help="folder of the raw files")
    parser.add_argument("--out", type=Path, required=True, help="folder to write")
    parser.add_argument("--accelerator", help="row of the data sheets [default: by its name]")
    arguments = parser.parse_args()
    try:
        report(arguments.raw, arguments.out, arguments.accelerator)
    except SpecsimError as error:
        print(f"gpu_report: error: {error}", file=sys.stderr)
        sys.exit(2)


def report(raw: Path, out: Path, accelerator_name: str | None = None) -> None:
    """Write everything that the raw files allow."""
    files = {file.stem: json.loads(file.read_text()) for file in sorted(raw.glob("*.json"))}
    if "machine" not in files:
        raise UnsupportedError(f"{raw} holds no machine.json, so no results of the battery")
    make_folder(out)
    machine, pair = files["machine"], files.get("pair", {})
    forced = _forced(files)
    profiles = {
        name.removeprefix("costs-"): profile(content, machine)
        for name, content in files.items()
        if name.startswith("costs-")
        and any("times" in c for c in content.get("cells", {}).values())
    }
    tables: dict[str, list[Row]] = {"roofline": [], "forced": [], "break_even": [], "overhead": []}
    notes: list[str] = []
    for name, costs in profiles.items():
        write_profile(costs, out / f"costs-{name}.json")
        cells = forced.get(name, {})
        tables["forced"] += _of(name, forced_rows(costs, cells))
        tables["break_even"] += _of(name, break_even_rows(costs, cells, ALPHAS))
        tables["overhead"] += _of(name, overhead_rows(costs, cells))
    tables |= _pair_tables(pair, files.get("trace", {}))
    if any(grid["times"] for grid in pair.get("grid", {}).values()):
        profiles["pair"] = pair_profile(pair, machine)
        write_profile(profiles["pair"], out / "costs-pair.json")
        tables["pair_forced"] = forced_rows(profiles["pair"], pair.get("forced", {}))
    for name, costs in profiles.items():
        try:
            sheet = _sheet(costs, accelerator_name)
            shapes: dict[Role, Shape] = {
                "target": shape_from_config(costs.target.config or {}),
                "draft": shape_from_config(costs.draft.config or {}),
            }
            tables["roofline"] += _of(name, roofline_rows(costs, sheet, shapes))
        except UnsupportedError as error:
            notes.append(f"no roofline of {name}: {error}")
    for table in ("forced", "pair", "break_even", "overhead", "roofline"):
        rows: Any = (
            {key.removeprefix("pair_"): tables[key] for key in tables if key.startswith("pair_")}
            if table == "pair"
            else tables[table]
        )
        write_atomically(out / f"{table}.json", (to_json(rows) + "\n").encode())
    notes += _missing(files)
    write_atomically(out / "summary.md", _summary(machine, pair, tables, notes).encode())


def _pair_tables(pair: Any, traces: Any) -> dict[str, list[Row]]:
    return {
        "pair_alpha": alpha_rows(traces),
        "pair_calls": call_rows(pair, traces),
        "pair_forced": [],
    }


def _of(name: str, rows: Sequence[Row]) -> list[Row]:
    return [{"pair": name, **row} for row in rows]


def _sheet(costs: Profile, name: str | None) -> Accelerator:
    """The data sheet of the device: drivers say "NVIDIA H200" where the table says H200."""
    device = costs.hardware.device_name
    return accelerator(name or device.removeprefix("NVIDIA ").replace(" ", "-"))


def _missing(files: dict[str, Any]) -> list[str]:
    """What the raw files say that is not there, and what failed."""
    notes = []
    for name, content in files.items():
        for kind in ("errors", "missing"):
            notes += [f"{name}: {what}: {why}" for what, why in content.get(kind, {}).items()]
    cells = {
        name: content.get("cells", {})
        for name, content in files.items()
        if name.startswith("costs-")
    }
    cells |= {f"forced {name}": found for name, found in _forced(files).items()}
    for name, found in cells.items():
        reasons: dict[str, list[str]] = {}
        for key, cell in found.items():
            if "reason" in cell:
                reasons.setdefault(cell["reason"], []).append(key)
        notes += [f"{name}: {', '.join(keys)}: {why}" for why, keys in reasons.items()]
    return notes


def _forced(files: dict[str, Any]) -> dict[str, Any]:
    """Cells of forced decoding, by pair."""
    return {name: cells for name, cells in files.get("forced", {}).items() if name != "errors"}


def _claims(tables: dict[str, list[Row]]) -> list[Row]:
    """What was claimed before the measurement, and whether it holds."""
    claims = []
    tolerance = f"median within {MEDIAN_ERROR:.0%}, worst within {WORST_ERROR:.0%}"
    for what, rows in (
        ("speedup of shapes at a forced acceptance", tables["forced"]),
        ("speedup of the trained pair at its own acceptance", tables["pair_forced"]),
    ):
        if rows:
            middle, worst = median_and_worst(rows)
            claims.append(
                {
                    "claim": f"{what}: {tolerance}",
                    "holds": middle <= MEDIAN_ERROR and worst <= WORST_ERROR,
                    "here": f"median {middle:.1%}, worst {worst:.1%}, {len(rows)} settings",
                }
            )
    if tables["break_even"]:
        steps = [row["steps"] for row in tables["break_even"]]
        claims.append(
            {
                "claim": "break-even batch within one step of the measured batches",
                "holds": max(steps) <= STEPS,
                "here": f"{sum(step <= STEPS for step in steps)} of {len(steps)}, "
                f"{max(steps)} steps at worst",
            }
        )
    greedy = [row for row in tables["pair_calls"] if row["temperature"] == 0]
    if greedy:
        equal, requests, counted, replayed = (
            sum(row[key] for row in greedy)
            for key in ("equal_requests", "requests", "counted_calls", "replayed_calls")
        )
        claims.append(
            {
                "claim": f"calls at temperature 0 as the replay says, within {CALLS_ERROR:.0%}",
                "holds": abs(replayed / counted - 1) <= CALLS_ERROR,
                "here": f"{replayed:.0f} replayed, {counted} counted, equal in {equal} of "
                f"{requests} requests and draft lengths",
            }
        )
    return claims


_TITLES = {
    "pair_alpha": "Acceptance of the trained pair beside Leviathan23 Table 3",
    "pair_calls": "Calls of real decoding beside the replay",
    "pair_forced": "Wall-clock of the trained pair at its own acceptance, batch 1",
    "forced": "Wall-clock of shapes at acceptance 0.8",
    "break_even": "From which batch on speculation does not pay",
    "roofline": "Data sheets against the grid",
    "overhead": "Time of a block outside the runs",
}
_COLUMNS = {
    "forced": (
        *("pair", "mode", "temperature", "batch", "context", "gamma"),
        *("predicted_speedup", "measured_speedup", "relative_error"),
    ),
    "pair_forced": (
        *("mode", "temperature", "gamma", "predicted_speedup", "measured_speedup"),
        *("measured_low", "measured_high", "relative_error"),
    ),
    "break_even": (
        *("pair", "mode", "context", "alpha", "measured_break_even", "predicted_break_even"),
        "steps",
    ),
}


def _summary(machine: Any, pair: Any, tables: dict[str, list[Row]], notes: list[str]) -> str:
    visit = machine["visits"][-1]
    parts = [
        "# A visit to an accelerator",
        f"{visit['gpu'] or 'No GPU'}; torch {visit['torch']}, transformers "
        f"{visit['transformers']}, Python {visit['python']}; {visit['date']}; commit "
        f"{visit['commit']}; `{visit['command']}`.",
    ]
    if any(each["tiny"] for each in machine["visits"]):
        parts.append("**Sizes for trying it out (`--tiny`): no result here means anything.**")
    for which, found in pair.get("training", {}).items():
        parts.append(
            f"Trained {which}: {found['parameters']:,} parameters, {found['tokens_seen']:,} tokens "
            f"in {found['seconds']:.0f} s, held-out loss {found['held_out_loss_nats']:.3f} nats."
        )
    claims = _claims(tables)
    parts.append("## Claims\n\n" + (render(claims, "markdown") if claims else "Nothing to judge."))
    for name, title in _TITLES.items():
        rows = tables[name]
        if not rows:
            continue
        columns = _COLUMNS.get(name) or tuple(dict.fromkeys(key for row in rows for key in row))
        shown = [{key: row.get(key) for key in columns} for row in rows[:_SHOWN]]
        text = render(shown, "markdown")
        if len(rows) > _SHOWN:
            text += f"\n\nThe first {_SHOWN} of {len(rows)} rows; the JSON has all."
        parts.append(f"## {title}\n\n{text}")
    if notes:
        parts.append("## What is missing\n\n" + "\n".join(f"- {note}" for note in notes))
    return "\n\n".join(parts) + "\n"


if __name__ == "__main__":
    main()
