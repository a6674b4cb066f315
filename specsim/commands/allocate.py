"""``specsim allocate``: how many tokens each of several drafters should draft."""

from __future__ import annotations

from typing import Any

import click

from specsim.checks import InvalidArgumentError, number, probability
from specsim.commands._options import Integer, format_option, read_verify, verify_options


@click.command(epilog="Example: specsim allocate --drafter base:0.8:0.04 --drafter small:0.75:0.02")
@click.option(
    "--drafter",
    multiple=True,
    required=True,
    metavar="NAME:ALPHA:C",
    help="A drafter, its acceptance rate and its cost in target runs; repeat for each.",
)
@click.option(
    "--max-length",
    type=Integer(),
    default=64,
    show_default=True,
    help="Most draft tokens per target call.",
)
@verify_options
@format_option
def command(
    drafter: tuple[str, ...],
    max_length: int,
    overhead: float,
    output_format: str,
    **verify: Any,
) -> None:
    """The exact optimum of the horizontal cascade: which drafter for which draft position.

    The best drafter goes first, cheaper ones behind it (Chen23).
    """
    from specsim.optimizers.allocation import allocate
    from specsim.report.tables import render

    found = allocate(
        [_drafter(word) for word in drafter], max_length, read_verify(verify), overhead
    )
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
    from specsim.optimizers.allocation import Drafter

    parts = word.split(":")
    if len(parts) != 3 or not parts[0]:
        raise InvalidArgumentError(f"--drafter must be NAME:ALPHA:C, got {word}")
    name, alpha, c = parts
    return Drafter(name, probability(f"alpha of {name}", alpha), number(f"c of {name}", c, low=0.0))
