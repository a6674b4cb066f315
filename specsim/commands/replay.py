"""``specsim replay``: a trace, replayed exactly for every draft length."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import click

from specsim.checks import InvalidArgumentError
from specsim.commands.options import Number, WholeRange, format_option, read_verify, verify_options


@click.command(
    epilog="Example: specsim replay trace.parquet --gamma 1:8 --c 0.1 --verify-slope 0.05"
)
@click.argument("trace", type=click.Path(path_type=Path))
@click.option(
    "--gamma", type=WholeRange(), default="1:16", show_default=True, help="Draft lengths."
)
@click.option(
    "--temperature", type=Number(0), help="0: the column argmax_equal decides acceptance."
)
@click.option("--c", type=Number(0), help="Cost of a draft run in target runs; adds the speedup.")
@verify_options
@format_option
def command(
    trace: Path,
    gamma: tuple[int, ...],
    temperature: float | None,
    output_format: str,
    **cost: Any,
) -> None:
    """Expected target calls for every draft length, exactly, from one trace.

    The trace has one row per token of text drawn from the target (columns request, position,
    logp_target, logp_draft).  Calls are counted for requests exactly as long as the trace's.
    """
    from specsim.predict.replay import replay
    from specsim.report.tables import render
    from specsim.traces import read_trace

    price = _price(cost)
    rows = []
    for replayed in replay(read_trace(trace, greedy=temperature == 0), gamma):
        row: dict[str, Any] = {
            "gamma": replayed.gamma,
            "tokens": int(replayed.lengths.sum()),
            "calls": replayed.total_calls,
            "tokens_per_call": replayed.tokens_per_call,
        }
        if price is not None:
            row["speedup"] = replayed.tokens_per_call / price(replayed.gamma)
        rows.append(row)
    click.echo(render(rows, output_format, f"replay of {trace.name}"))


def _price(given: dict[str, Any]) -> Callable[[int], float] | None:
    """Cost of a whole block by gamma, or None where no cost is given; gamma 0 costs 1."""
    from specsim.cost import Cost
    from specsim.laws import TARGET, Run

    if given["c"] is None:
        for name, value in given.items():
            if value:
                option = "--" + name.replace("_", "-")
                raise InvalidArgumentError(f"{option} needs --c, the cost of a draft run")
        return None
    c: float = given["c"]
    cost = Cost({"draft": c}, read_verify(given), given["overhead"])

    def block(gamma: int) -> float:
        if gamma == 0:
            return cost.plain_step
        return gamma * c + cost.price(Run(TARGET, gamma + 1)) + cost.overhead

    return block
