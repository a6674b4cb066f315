"""``specsim allocate``: how many tokens each of several drafters should draft."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from specsim.checks import InvalidArgumentError, number, probability
from specsim.commands._options import Integer, format_option, option, verify_options

if TYPE_CHECKING:
    from specsim.optimizers.allocation import PricedDrafter


@click.command(epilog="Example: specsim allocate --drafter base:0.8:0.04 --drafter small:0.75:0.02")
@option(
    "--drafter",
    str,
    "A drafter, its acceptance rate and its cost in target runs; repeat for each.",
    multiple=True,
    required=True,
    metavar="NAME:ALPHA:C",
)
@option("--gamma-max", Integer(), "Most draft tokens per target call; by default 64 at most.")
@verify_options
@format_option
def command(drafter: tuple[str, ...], output_format: str, **given: Any) -> None:
    """The exact optimum of the horizontal cascade: which drafter for which draft position.

    The best drafter goes first, cheaper ones behind it (Chen23).
    """
    from specsim import allocate
    from specsim.report.tables import show

    found = allocate([_drafter(word) for word in drafter], **given)
    show(found, output_format, "best allocation")


def _drafter(word: str) -> PricedDrafter:
    from specsim.optimizers.allocation import PricedDrafter

    parts = word.split(":")
    if len(parts) != 3 or not parts[0]:
        raise InvalidArgumentError(f"--drafter must be NAME:ALPHA:C, got {word}")
    name, alpha, c = parts
    return PricedDrafter(
        name, probability(f"alpha of {name}", alpha), number(f"c of {name}", c, low=0.0)
    )
