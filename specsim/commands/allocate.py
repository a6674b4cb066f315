"""``specsim allocate``: how many tokens each of several drafters should draft."""

from __future__ import annotations

from typing import Any

import click

from specsim.checks import InvalidArgumentError, number, probability
from specsim.commands.options import Number, Numbers, Whole, format_option


@click.command(
    epilog="Example: specsim allocate --drafter base:0.8:0.04 --drafter small:0.75:0.02"
)
@click.option("--drafter", multiple=True, required=True, metavar="NAME:ALPHA:C", help="A drafter, its acceptance rate and its cost in target runs; repeat for each.")
@click.option("--max-length", type=Whole(), default=64, show_default=True, help="Most draft tokens per target call.")
@click.option("--verify-slope", type=Number(0), help="v(n) = 1 + SLOPE (n - 1). [default: 0]")
@click.option("--verify-cost", type=Numbers(0), help="v(1),v(2),... instead of a slope.")
@click.option("--overhead", type=Number(0), default=0.0, help="Host time of a block in target runs. [default: 0]")
@format_option
def command(
    drafter: tuple[str, ...],
    max_length: int,
    verify_slope: float | None,
    verify_cost: tuple[float, ...] | None,
    overhead: float,
    output_format: str,
) -> None:
    """The exact optimum of the horizontal cascade: which drafter for which draft position.

    The best drafter goes first, cheaper ones behind it (Chen23).
    """
    from specsim.allocation import allocate
    from specsim.cost import LinearVerify, MeasuredVerify
    from specsim.report.tables import render

    if verify_slope is not None and verify_cost is not None:
        raise InvalidArgumentError("--verify-slope and --verify-cost exclude each other")
    verify = (
        MeasuredVerify(verify_cost) if verify_cost is not None else LinearVerify(verify_slope or 0.0)
    )
    found = allocate([_drafter(word) for word in drafter], max_length, verify, overhead)
    parts = [{"drafter": name, "tokens": tokens} for name, tokens in found.allocation]
    row: dict[str, Any] = {
        "allocation": parts,
        "speedup": found.speedup,
        "tokens_per_call": found.tokens_per_call,
        "at_max_length": found.at_max_length,
    }
    if output_format != "json":
        words = [f"{part['drafter']} {part['tokens']}" for part in parts]
        row["allocation"] = " + ".join(words) or "none: plain decoding"
    click.echo(render(row, output_format, "best allocation"))


def _drafter(word: str) -> Any:
    from specsim.allocation import Drafter

    parts = word.split(":")
    if len(parts) != 3 or not parts[0]:
        raise InvalidArgumentError(f"--drafter must be NAME:ALPHA:C, got {word}")
    name, alpha, c = parts
    return Drafter(
        name, probability(f"alpha of {name}", alpha), number(f"c of {name}", c, low=0.0)
    )
