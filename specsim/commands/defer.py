"""``specsim defer``: where to defer to the target, from labelled positions."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from specsim.commands._options import (
    PATH,
    Integer,
    Number,
    check_figure,
    figure_option,
    format_option,
    option,
    profile_options,
    report_option,
    verify_options,
    write_report,
)

if TYPE_CHECKING:
    from specsim.frontier.positions import LabelledPositions, Loss


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
@click.argument("positions", type=PATH)
@option(
    "--loss",
    click.Choice(["0-1", "log", "sampled"]),
    "0-1: is the most probable token the label; log: log-probability of the label; "
    "sampled: probability of the label.",
    default="0-1",
)
@option(
    "--quality",
    _Quality(float("-inf")),
    "Least quality: a share of right tokens (with --loss log a mean log-probability, nats), "
    "or the word target. Finds the least rejection.",
)
@option("--speedup", Number(0), "Least speedup. Finds the best quality.")
@option(
    "--decide-on",
    click.Choice(["unscaled", "tempered"]),
    "What deferral rules look at: probabilities at temperature 1, or as sampled from.",
    default="unscaled",
)
@option("--c", Number(0), "Cost of a draft run, in target runs.")
@verify_options
@profile_options
@option("--gamma", Integer(1), "Draft tokens per target call. [default: the best]")
@figure_option
@report_option
@format_option
def command(
    positions: Path,
    loss: Loss,
    figure: Path | None,
    report: Path | None,
    output_format: str,
    **given: Any,
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

    check_figure(figure)
    found = defer(positions, loss, **given)
    table = found.comparison.positions
    if figure is not None:
        from specsim.report.frontier_plots import quality_against_cost
        from specsim.report.plots import write

        write(quality_against_cost(found.comparison, _models(table)), figure)
    title = f"{found.wish} ({loss} loss, {table.positions} positions of {table.requests} requests)"
    show(found, output_format, title)
    write_report(found, report)


def _models(table: LabelledPositions) -> str:
    """What was scored, as a title."""
    about = table.about
    if not {"draft", "target", "temperature"} <= about.keys():
        return "labelled positions"
    return f"{about['draft']} drafts for {about['target']}, temperature {about['temperature']:g}"
