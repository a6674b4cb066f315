"""A study as files: CSV and Markdown of every table, PNG of every figure, one page over all."""

from __future__ import annotations

import os
import subprocess
from importlib import import_module
from pathlib import Path
from typing import cast

from specsim import __version__
from specsim.files import write_atomically
from specsim.report.plots import save
from specsim.report.tables import render
from studies import STUDIES
from studies.study import Check, Measured, Row, Study, Tables

# A page shows the first rows of a long table; its CSV has all.
_SHOWN = 60


def load(name: str) -> Study:
    return cast(Study, import_module(f"studies.{name}"))


def write(name: str, measured: Measured, out: Path, command: str) -> list[Check]:
    """Compute one study and write it to ``out``; the paper's numbers against ours."""
    study = load(name)
    tables = study.compute(measured)
    checks = list(study.checks(tables))
    figures = study.draw(tables)
    for figure, drawn in figures.items():
        save(drawn, out / f"{name}-{figure}.png")
    everything: Tables = {**tables, "checks": [_check_row(check) for check in checks]}
    for table, rows in everything.items():
        write_atomically(out / f"{name}-{table}.csv", (render(rows, "csv") + "\n").encode())
    parts = [f"# {study.TITLE}", study.opening(tables), _header(measured, command)]
    parts += [f"![{figure}]({name}-{figure}.png)" for figure in figures]
    for table, rows in tables.items():
        parts.append(f"## {study.CAPTIONS[table]}\n\n{_shown(name, table, rows)}")
    parts.append(_differences(checks))
    write_atomically(out / f"{name}.md", ("\n\n".join(parts) + "\n").encode())
    return checks


def _shown(name: str, table: str, rows: list[Row] | list[dict[str, object]]) -> str:
    if not rows:
        return "Not measured with this profile."
    shown = render(rows[:_SHOWN], "markdown")
    if len(rows) > _SHOWN:
        shown += f"\n\nThe first {_SHOWN} of {len(rows)} rows; all are in `{name}-{table}.csv`."
    return shown


def _check_row(check: Check) -> dict[str, object]:
    return {
        "where": check.where,
        "item": check.item,
        "printed": check.printed,
        "ours": check.ours,
        "tolerance": check.tolerance,
        "matches": check.matches,
        "reason": check.reason,
    }


def _differences(checks: list[Check]) -> str:
    if not checks:
        return "## The paper's numbers\n\nThe paper prints none that can be computed."
    matching = sum(check.matches for check in checks)
    text = (
        f"## The paper's numbers\n\n{matching} of {len(checks)} printed numbers are reproduced "
        "within their tolerance"
    )
    differing = [_check_row(check) for check in checks if not check.matches]
    if not differing:
        return text + "."
    for row in differing:
        del row["matches"]
    return f"{text}; the others:\n\n{render(differing, 'markdown')}"


def _header(measured: Measured, command: str) -> str:
    profile = measured.profile
    software = profile.software
    lines = [
        f"command: `{command}`",
        f"specsim {__version__}, commit {_commit()}",
        f"measured: {measured.source}, {profile.created}, target {profile.target.name} "
        f"({profile.target.parameters:,} parameters), draft {profile.draft.name} "
        f"({profile.draft.parameters:,})",
        f"on: {profile.hardware.processor}, {profile.hardware.device_name}, "
        f"{profile.hardware.threads} threads, {software.dtype}; Python {software.python}, "
        f"torch {software.torch}, transformers {software.transformers}",
        "seed: " + ", ".join(sorted({str(each.seed) for each in profile.acceptance})),
    ]
    return "\n".join(f"- {line}" for line in lines)


def _commit() -> str:
    """The commit of the source that runs, where it is a checkout."""
    here = Path(__file__).parent
    quiet = {"GIT_OPTIONAL_LOCKS": "0", **os.environ}
    command = ["git", "-C", str(here), "describe", "--always", "--dirty"]
    try:
        found = subprocess.run(command, capture_output=True, text=True, env=quiet, check=True)
    except (OSError, subprocess.CalledProcessError):
        return "unknown (not a checkout)"
    return found.stdout.strip()


__all__ = ["STUDIES", "load", "write"]
