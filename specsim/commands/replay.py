"""``specsim replay``: a trace, replayed exactly for every draft length."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from specsim.commands._options import IntegerRange, Number, format_option, verify_options

if TYPE_CHECKING:
    from specsim.api.replay import Policy


@click.command(
    epilog="Example: specsim replay trace.parquet --gamma 1:8 --c 0.1 --verify-slope 0.05"
)
@click.argument("trace", type=click.Path(path_type=Path))
@click.option(
    "--gamma", type=IntegerRange(), default="1:16", show_default=True, help="Draft lengths."
)
@click.option(
    "--greedy",
    is_flag=True,
    help="The text was decoded at temperature 0: the column argmax_equal decides acceptance.",
)
@click.option(
    "--policy",
    "policies",
    type=click.Choice(("grow-shrink", "estimate")),
    multiple=True,
    help="Also an adaptive draft length: transformers' +2/-1, or the best gamma for an estimated "
    "alpha (needs --c).",
)
@click.option("--c", type=Number(0), help="Cost of a draft run in target runs; adds the speedup.")
@verify_options
@format_option
def command(
    trace: Path,
    gamma: tuple[int, ...],
    greedy: bool,
    policies: tuple[Policy, ...],
    c: float | None,
    verify_slope: float | None,
    verify_cost: tuple[float, ...] | None,
    overhead: float | None,
    output_format: str,
) -> None:
    """Expected target calls for every draft length, exactly, from one trace.

    The trace has one row per token of text drawn from the target (columns request, position,
    logp_target, logp_draft).  Calls are counted for requests exactly as long as the trace's.
    """
    from specsim import replay
    from specsim.report.tables import show

    found = replay(
        trace,
        gamma,
        greedy=greedy,
        policies=policies,
        c=c,
        verify_slope=verify_slope,
        verify_cost=verify_cost,
        overhead=overhead,
    )
    show(found, output_format, f"replay of {trace.name}")
