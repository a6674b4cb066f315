"""``specsim evaluate``: what one draft length gives."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Any

import click

from specsim.commands.options import (
    Whole,
    cost_options,
    format_option,
    from_numbers,
    profile_options,
)


@click.command(epilog="Example: specsim evaluate --alpha 0.8 --c 0.05 --gamma 5")
@cost_options
@profile_options
@click.option("--gamma", type=Whole(), required=True, help="Draft tokens per target call.")
@format_option
def command(
    profile: Path | None,
    temperature: float | None,
    gamma: int,
    output_format: str,
    **numbers: Any,
) -> None:
    """Speedup, tokens per call, operations and memory accesses at one draft length."""
    from specsim.report.tables import render

    title = f"draft length {gamma}"
    if profile is not None:
        from specsim.commands.options import workloads

        loads = workloads(profile, temperature, numbers)
        rows = [load.row(load.predict([gamma])[0]) for load in loads]
        click.echo(render(rows[0] if len(rows) == 1 else rows, output_format, title))
        return
    from specsim.decide import evaluate

    result = evaluate(**from_numbers(numbers), gamma=gamma)
    click.echo(render(asdict(result), output_format, title))
