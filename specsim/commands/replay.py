"""``specsim replay``: a trace, replayed exactly for every draft length."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from specsim.acceptance import ACCEPTANCE_LAWS
from specsim.commands._options import (
    PATH,
    IntegerRange,
    Number,
    Numbers,
    format_option,
    option,
    verify_options,
)


@click.command(
    epilog="Example: specsim replay trace.parquet --gamma 1:8 --c 0.1 --verify-slope 0.05"
)
@click.argument("trace", type=PATH)
@option("--gamma", IntegerRange(), "Draft lengths.", default="1:16")
@click.option(
    "--greedy",
    is_flag=True,
    help="The text was decoded at temperature 0: the column argmax_equal decides acceptance.",
)
@option(
    "--acceptance-law",
    click.Choice(ACCEPTANCE_LAWS),
    "How drafts are accepted; greedy-drafts needs the column draft_rank. [default: ratio-test]",
)
@click.option(
    "--policy",
    "policies",
    type=click.Choice(("grow-shrink", "estimate")),
    multiple=True,
    help="Also an adaptive draft length: transformers' +2/-1, or the best gamma for an estimated "
    "alpha (needs --c).",
)
@option(
    "--p-min",
    Numbers(0, 1),
    "Also drafts that stop where the draft's largest probability is below this.",
)
@option("--c", Number(0), "Cost of a draft run in target runs; adds the speedup.")
@verify_options
@format_option
def command(
    trace: Path,
    gamma: tuple[int, ...],
    p_min: tuple[float, ...] | None,
    output_format: str,
    **given: Any,
) -> None:
    """Expected target calls for every draft length, exactly, from one trace.

    The trace has one row per token of text drawn from the target (columns request, position,
    logp_target, logp_draft).  Calls are counted for requests exactly as long as the trace's.
    """
    from specsim import replay
    from specsim.report.tables import show

    found = replay(trace, gamma, p_min=p_min or (), **given)
    show(found, output_format, f"replay of {trace.name}")
