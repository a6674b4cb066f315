"""``specsim optimize``: the draft length that pays best."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Any

import click

from specsim.commands.options import (
    Number,
    Whole,
    cost_options,
    format_option,
    from_numbers,
    profile_options,
)


@click.command(epilog="Example: specsim optimize --alpha 0.8 --c 0.05")
@cost_options
@profile_options
@click.option("--gamma-max", type=Whole(), default=64, show_default=True, help="Longest draft to consider.")
@format_option
def command(
    profile: Path | None,
    temperature: float | None,
    gamma_max: int,
    output_format: str,
    **numbers: Any,
) -> None:
    """The draft length gamma that pays best, from numbers or from a profile.

    From numbers: --alpha and --c.  From a profile: the trace is replayed exactly and priced with
    the measured run times; beside it stands what the papers' formula (alpha and c alone) says.
    """
    from specsim.report.tables import render

    if profile is not None:
        from specsim.commands.options import workloads

        rows = [load.row(load.best()) for load in workloads(profile, temperature, numbers)]
        click.echo(render(rows[0] if len(rows) == 1 else rows, output_format, "best draft length"))
        return
    from specsim.decide import optimize

    result = optimize(**from_numbers(numbers), gamma_max=gamma_max)
    click.echo(render(asdict(result), output_format, "best draft length"))
    if result.at_gamma_max and output_format == "table":
        click.echo(
            f"gamma is bounded by --gamma-max {gamma_max} only: a longer draft may pay more.",
            err=True,
        )
