"""A study as files: CSV and Markdown of every table, PNG of every figure, one page over all."""

from __future__ import annotations

import os
import subprocess
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import asdict
from functools import cache
from importlib import import_module
from pathlib import Path

from specsim import __version__
from specsim.files import write_atomically
from specsim.report.plots import save
from specsim.report.tables import render
from studies.common.measured import Measured
from studies.common.study import Check, Row, Study, Tables

# A page shows the first rows of a long table, and the first items of many that share a reason;
# the CSV has all.
_SHOWN, _ITEMS = 60, 12


def load(name: str) -> Study:
    found = import_module(f"studies.{name}.page").STUDY
    assert isinstance(found, Study)
    return found


def write(name: str, measured: Measured, out: Path, command: str) -> list[Check]:
    """Compute one study and write it to ``out``; the paper's numbers against ours."""
    commit = _commit()
    study = load(name)
    tables = study.tables(measured)
    checks = list(study.checks(tables))
    figures = study.draw(tables)
    for figure, drawn in figures.items():
        save(drawn, out / f"{name}-{figure}.png")
    shown: Tables = {table: _source_last(rows) for table, rows in tables.items()}
    everything: Tables = {**shown, "checks": [_check_row(check) for check in checks]}
    for table, rows in everything.items():
        write_atomically(out / f"{name}-{table}.csv", (render(rows, "csv") + "\n").encode())
    parts = [f"# {study.title}", *study.opening(tables)]
    parts.append(_header(measured, command, commit))
    parts += [
        f"![{figure}]({name}-{figure}.png)\n\n*{study.pictures[figure].caption}*"
        for figure in figures
    ]
    parts += [
        _section(caption, f"{name}-{table}.csv", shown[table])
        for table, caption in study.captions.items()
    ]
    points = [f"`{name}-{table}.csv`" for table in shown if table not in study.captions]
    if points:
        parts.append(f"## Behind the figures\n\nTheir points: {', '.join(points)}.")
    parts.append(_differences(checks, f"{name}-checks.csv"))
    write_atomically(out / f"{name}.md", ("\n\n".join(parts) + "\n").encode())
    return checks


def counts(checks: Sequence[Check]) -> dict[str, int]:
    """How a paper's printed numbers stand against ours.

    printed : those that are checked
    computable : those that follow from what the paper prints
    reproduced : of those, within the rounding of what is printed
    consistent : the same, where ours is made of other printed numbers alone: the paper agrees
        with itself
    differ_with_reason : of those, further off for a reason that the page states
    unexplained : of those, further off for no known reason; also without a value and a reason
    """
    computable = [check for check in checks if check.ours is not None]
    unexplained = sum(not check.matches and not check.reason for check in checks)
    differ = sum(not check.matches and bool(check.reason) for check in computable)
    return {
        "printed": len(checks),
        "computable": len(computable),
        "reproduced": sum(check.matches and not check.printed_twice for check in computable),
        "consistent": sum(check.matches and check.printed_twice for check in computable),
        "differ_with_reason": differ,
        "unexplained": unexplained,
    }


def _source_last(rows: Sequence[Row]) -> list[dict[str, object]]:
    """In every table of every study the source is the last column."""
    columns = dict.fromkeys(column for row in rows for column in row)
    ordered = sorted(columns, key=lambda column: column == "source")
    return [{column: row.get(column) for column in ordered} for row in rows]


def _section(caption: str, file: str, rows: Sequence[Row]) -> str:
    heading, _, more = caption.removesuffix(".").partition(". ")
    parts = [f"## {heading}"]
    if more:
        parts.append(_sentence(more))
    parts.append(render(rows[:_SHOWN], "markdown") if rows else "Not measured with this profile.")
    if len(rows) > _SHOWN:
        parts.append(f"The first {_SHOWN} of {len(rows)} rows; all are in `{file}`.")
    return "\n\n".join(parts)


def _check_row(check: Check) -> dict[str, object]:
    row = {**asdict(check), "matches": check.matches}
    order = ("where", "item", "printed", "ours", "tolerance", "matches", "printed_twice", "reason")
    return {name: row[name] for name in order}


def _differences(checks: Sequence[Check], file: str) -> str:
    """What is not as printed, and why: one line a reason."""
    heading = "## The paper's numbers"
    if not checks:
        return f"{heading}\n\nThe paper prints none that can be computed."
    counted = counts(checks)
    parts = [
        heading,
        f"The paper prints {counted['printed']} numbers that are checked here. "
        f"{counted['computable']} of them can be computed from what it prints: "
        f"{counted['reproduced']} of those match ours within their rounding, "
        f"{counted['consistent']} match other printed numbers, and "
        f"{counted['differ_with_reason']} differ for the reasons below. All are in `{file}`.",
    ]
    missing = [check for check in checks if check.ours is None]
    off = [check for check in checks if check.ours is not None and not check.matches]
    for title, listed in (("Different (printed, ours)", off), ("Not computed", missing)):
        if listed:
            parts.append(f"### {title}\n\n{_by_reason(listed)}")
    return "\n\n".join(parts)


def _by_reason(checks: Sequence[Check]) -> str:
    groups: dict[str, list[Check]] = defaultdict(list)
    for check in checks:
        groups[check.reason].append(check)
    return "\n".join(
        f"- **{_sentence(reason or 'no reason is known')}** {len(group)}: {_items(group)}."
        for reason, group in groups.items()
    )


def _sentence(words: str) -> str:
    return f"{words[0].upper()}{words[1:].removesuffix('.')}."


def _items(checks: Sequence[Check]) -> str:
    """The first ones by paper and table."""
    by_place: dict[str, list[str]] = defaultdict(list)
    for check in checks[:_ITEMS]:
        ours = "" if check.ours is None else f", {check.ours:.4g}"
        by_place[check.where].append(f"{check.item} ({check.printed:g}{ours})")
    text = "; ".join(f"{place}: {'; '.join(items)}" for place, items in by_place.items())
    more = len(checks) - _ITEMS
    return f"{text}; and {more} more" if more > 0 else text


def _header(measured: Measured, command: str, commit: str) -> str:
    profile = measured.profile
    software = profile.software
    lines = [
        f"command: `{command}`",
        f"specsim {__version__}, commit {commit}",
        f"measured: {measured.source}, {profile.created}, target {profile.target.name} "
        f"({profile.target.parameters:,} parameters), draft {profile.draft.name} "
        f"({profile.draft.parameters:,})",
        f"on: {profile.hardware.processor}, {profile.hardware.device_name}, "
        f"{profile.hardware.threads} threads, {software.dtype}; Python {software.python}, "
        f"torch {software.torch}, transformers {software.transformers}",
        "seed: " + ", ".join(sorted({str(each.seed) for each in profile.acceptance})),
    ]
    return "\n".join(f"- {line}" for line in lines)


@cache
def _commit() -> str:
    """The commit of the source that runs, where it is a checkout; as it was before the first file
    was written, since pages lie in the checkout, too.
    """
    here = Path(__file__).parent
    quiet = {"GIT_OPTIONAL_LOCKS": "0", **os.environ}
    command = ["git", "-C", str(here), "describe", "--always", "--dirty"]
    try:
        found = subprocess.run(command, capture_output=True, text=True, env=quiet, check=True)
    except (OSError, subprocess.CalledProcessError):
        return "unknown (not a checkout)"
    return found.stdout.strip()
