"""``specsim sweep``: one command for many settings of its inputs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from specsim.commands._options import (
    PATH,
    Integer,
    format_option,
    option,
    report_option,
    write_report,
)


@click.command(
    epilog="Examples: specsim sweep settings.toml --out results; "
    "specsim sweep settings.toml --out results --backend dask --address tcp://host:8786"
)
@click.argument("file", type=PATH)
@option("--out", PATH, "Folder to make, of Parquet.", required=True)
@option(
    "--backend",
    click.Choice(["processes", "dask", "ray"]),
    "Who works: processes of this machine, or a cluster.",
    default="processes",
)
@option("--address", str, "Of the dask scheduler or the ray cluster.")
@option("--workers", Integer(1), "Processes. [default: one for each core]")
@option(
    "--chunk",
    Integer(1),
    "Settings of a part, which one worker answers at a time. [default: a 200th of all, <= 1,000]",
)
@report_option
@format_option
def command(file: Path, out: Path, report: Path | None, output_format: str, **given: Any) -> int:
    """Ask a command for every setting of its inputs; a row of Parquet for each.

    FILE is TOML or YAML: the command, its inputs by the names of its options, each with one value,
    a list or a range, and cases of inputs that go together (docs/sweep.md).  Rows have the inputs,
    the answer with its intervals, and the version; a setting that fails is a row with the reason.

    A sweep that was killed goes on where it was when started again.  Results are the same bytes for
    any number of workers.  Exits 1 if some settings failed; the others are kept.
    """
    from specsim import sweep
    from specsim.report.progress import progress_bar
    from specsim.report.tables import show

    with progress_bar() as progress:
        found = sweep(file, out, **given, progress=progress)
    show(found, output_format)
    write_report(found, report)
    return 1 if found.failed else 0
