"""``specsim replay``: a trace, replayed exactly for every draft length."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from specsim.checks import InvalidArgumentError
from specsim.commands._options import (
    IntegerRange,
    Number,
    format_option,
    read_verify,
    verify_options,
)

if TYPE_CHECKING:
    from specsim.traces import Trace

# Where an adaptive length starts in each request, unless the largest is smaller.
_FIRST_GAMMA = 5


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
    policies: tuple[str, ...],
    output_format: str,
    **cost: Any,
) -> None:
    """Expected target calls for every draft length, exactly, from one trace.

    The trace has one row per token of text drawn from the target (columns request, position,
    logp_target, logp_draft).  Calls are counted for requests exactly as long as the trace's.
    """
    from specsim.predict.replay.fixed_gamma import replay
    from specsim.report.tables import render
    from specsim.traces import read_trace

    price = _price(cost)
    text = read_trace(trace, greedy=greedy)
    rows = []
    for replayed in replay(text, gamma):
        row: dict[str, Any] = {
            "gamma": replayed.gamma,
            "tokens": int(replayed.lengths.sum()),
            "calls": replayed.total_calls,
            "tokens_per_call": replayed.tokens_per_call,
        }
        if price is not None:
            row["speedup"] = replayed.tokens_per_call / price(replayed.gamma)
        rows.append(row)
    rows += [_adaptive_row(text, name, max(gamma), cost["c"], price) for name in policies]
    click.echo(render(rows, output_format, f"replay of {trace.name}"))


def _adaptive_row(
    trace: Trace,
    name: str,
    gamma_max: int,
    c: float | None,
    price: Callable[[int], float] | None,
) -> dict[str, Any]:
    """The row of a policy whose draft lengths stay in 1..gamma_max."""
    from specsim.predict.replay.policy import replay_policy
    from specsim.schemes.policies import EstimateAlpha, GrowShrink

    if name == "estimate" and c is None:
        raise InvalidArgumentError("--policy estimate needs --c, the cost of a draft run")
    policy = (
        GrowShrink(min(_FIRST_GAMMA, gamma_max), gamma_max)
        if name == "grow-shrink"
        else EstimateAlpha(c or 0.0, gamma_max=gamma_max)
    )
    replayed = replay_policy(trace, policy)
    row: dict[str, Any] = {
        "gamma": name,
        "tokens": replayed.tokens,
        "calls": float(replayed.calls.sum()),
        "tokens_per_call": replayed.tokens_per_call,
    }
    if price is not None:
        spent = sum(count * price(gamma) for gamma, count in enumerate(replayed.blocks))
        row["speedup"] = replayed.tokens / spent
    return row


def _price(given: dict[str, Any]) -> Callable[[int], float] | None:
    """Cost of a whole block by gamma, or None where no cost is given; gamma 0 costs 1."""
    from specsim.cost import Cost

    if given["c"] is None:
        for name, value in given.items():
            if value:
                option = "--" + name.replace("_", "-")
                raise InvalidArgumentError(f"{option} needs --c, the cost of a draft run")
        return None
    c: float = given["c"]
    cost = Cost({"draft": c}, read_verify(given), given["overhead"])
    return lambda gamma: float(cost.blocks(gamma)[gamma])
