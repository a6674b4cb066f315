"""``specsim defer``: where to defer to the target, from labelled positions."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import click

from specsim.checks import InvalidArgumentError
from specsim.commands._options import (
    Integer,
    Number,
    format_option,
    profile_options,
    verify_options,
)

if TYPE_CHECKING:
    from specsim.frontier.positions import LabelledPositions, Loss
    from specsim.rules import DecideOn


class _Quality(Number):
    """A number, or the word target."""

    name = "number|target"

    def check(self, option: str, word: str) -> Any:
        return word if word == "target" else super().check(option, word)


@click.command(
    epilog="Examples: specsim defer positions.parquet; "
    "specsim defer positions.parquet --quality target --c 0.1 --figure frontier.png; "
    "specsim defer positions.parquet --speedup 2 --profile profile.json"
)
@click.argument("positions", type=click.Path(path_type=Path))
@click.option(
    "--loss",
    type=click.Choice(["0-1", "log", "sampled"]),
    default="0-1",
    show_default=True,
    help="0-1: is the most probable token the label; log: log-probability of the label; "
    "sampled: probability of the label.",
)
@click.option(
    "--quality",
    type=_Quality(float("-inf")),
    help="Least quality: a share of right tokens (with --loss log a mean log-probability, nats), "
    "or the word target. Finds the least rejection.",
)
@click.option("--speedup", type=Number(0), help="Least speedup. Finds the best quality.")
@click.option(
    "--decide-on",
    type=click.Choice(["unscaled", "tempered"]),
    default="unscaled",
    show_default=True,
    help="What deferral rules look at: probabilities at temperature 1, or as sampled from.",
)
@click.option("--c", type=Number(0), help="Cost of a draft run, in target runs.")
@verify_options
@profile_options
@click.option("--gamma", type=Integer(1), help="Draft tokens per target call. [default: the best]")
@click.option("--figure", type=click.Path(path_type=Path), help="Picture to write, a PNG.")
@format_option
def command(
    positions: Path,
    loss: Loss,
    quality: float | Literal["target"] | None,
    speedup: float | None,
    decide_on: DecideOn,
    c: float | None,
    verify_slope: float | None,
    verify_cost: tuple[float, ...] | None,
    overhead: float | None,
    profile: Path | None,
    temperature: float | None,
    gamma: int | None,
    figure: Path | None,
    output_format: str,
) -> None:
    """Which rule buys the most quality for its rejections, and how far it is from the optimum.

    POSITIONS is a file by specsim score.  Deferral rules (Chow, ChowLog, Diff, DiffLog, Opt,
    OptLog, BildStar) are judged at every threshold; rules that cut single tokens (Token, TopBeta,
    Lossy, LossyStar) at the thresholds that score measured.  The optimum knows the label:
    no deferral rule can beat it, and none that does not see labels reaches it.

    With --quality, the setting of least rejection (so the fastest) of every rule; with --speedup,
    the one of best quality; with neither, the regret: the loss above the optimum's, averaged over
    all budgets of rejection, and the quality at a quarter, half and three quarters of the
    target's own rejection.

    Speed takes rejections as independent: every draft token accepted with probability one less
    the mean rejection.  Intervals are 95 %, by bootstrap over requests at the chosen setting.
    """
    from specsim.api.defer import defer
    from specsim.report.tables import show

    if figure is not None and (figure.suffix != ".png" or not figure.parent.is_dir()):
        raise InvalidArgumentError(f"--figure {figure} must be a .png in a folder that exists")
    found = defer(
        positions,
        loss,
        quality,
        speedup,
        decide_on,
        c=c,
        verify_slope=verify_slope,
        verify_cost=verify_cost,
        overhead=overhead,
        profile=profile,
        temperature=temperature,
        gamma=gamma,
    )
    table = found.comparison.positions
    if figure is not None:
        from specsim.report.frontier_plots import quality_against_cost
        from specsim.report.plots import save

        save(quality_against_cost(found.comparison, _models(table)), figure)
        click.echo(f"figure: {figure}", err=True)
    title = f"{found.wish} ({loss} loss, {table.positions} positions of {table.requests} requests)"
    show(found, output_format, title)


def _models(table: LabelledPositions) -> str:
    """What was scored, as a title."""
    about = table.about
    if not {"draft", "target", "temperature"} <= about.keys():
        return "labelled positions"
    return f"{about['draft']} drafts for {about['target']}, temperature {about['temperature']:g}"
