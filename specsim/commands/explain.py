"""``specsim explain``: where the time of a round goes, and why it is no faster."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from specsim.commands._deployment import deployment_options, read_deployment
from specsim.commands._options import (
    Integer,
    acceptance_law_option,
    alpha_option,
    check_figure,
    figure_option,
    format_option,
    mode_option,
    option,
    profile_options,
    read_alpha,
    report_option,
    write_report,
)


@click.command(
    epilog="Examples: specsim explain --target qwen3-30b-a3b --drafter eagle3 --accelerator H100 "
    "--gamma 5 --batch 32 --context 2048 --alpha 0.7; "
    "specsim explain --profile costs.json --alpha 0.7 --temperature 0 --gamma 3 --batch 16",
)
@option("--gamma", Integer(1), "Draft tokens of a round.", required=True)
@option("--batch", Integer(1), "Requests that share iterations. [default: 1, or as measured]")
@option("--context", Integer(), "Tokens in the cache of each. [default: 512, or as measured]")
@alpha_option
@profile_options
@acceptance_law_option
@mode_option
@deployment_options
@figure_option
@report_option
@format_option
def command(figure: Path | None, report: Path | None, output_format: str, **given: Any) -> None:
    """Why is my speculation no faster, or slower than plain decoding, at this batch?

    For one draft length, batch and context: milliseconds of every part of a round and what it
    waits for, a plain step beside it, what most is lost by, and which single change would help
    most.  The first --drafter is explained; others are tried in its place.
    """
    from specsim import explain
    from specsim.report.tables import show, show_table

    check_figure(figure)
    found = explain(read_alpha(given), deployment=read_deployment(given), **given)
    show(found, output_format)
    if found.changes and output_format == "table":
        show_table(found.change_rows(), "single changes, the best first", told="assumes")
    write_report(found, report)
    if figure is not None:
        from specsim.report.explain_plots import parts_per_token
        from specsim.report.plots import write

        write(parts_per_token(found), figure)
