"""``specsim defer``: where to defer to the target, from labelled positions."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from specsim.checks import InvalidArgumentError, SpecsimError
from specsim.commands._options import (
    Integer,
    Number,
    format_option,
    profile_options,
    read_verify,
    refuse_given,
    verify_options,
)

if TYPE_CHECKING:
    from specsim.frontier import BlockPrices, Choice, Comparison, LabelledPositions

# Budgets of the table without a wish, as shares of the target's own rejection.
_SHARES = (0.25, 0.5, 0.75)


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
    loss: Any,
    quality: Any,
    speedup: float | None,
    decide_on: Any,
    figure: Path | None,
    output_format: str,
    **price: Any,
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
    from specsim.frontier import Comparison, read_positions
    from specsim.report.tables import render, to_json

    if quality is not None and speedup is not None:
        raise InvalidArgumentError("--quality and --speedup exclude each other")
    if figure is not None and (figure.suffix != ".png" or not figure.parent.is_dir()):
        raise InvalidArgumentError(f"--figure {figure} must be a .png in a folder that exists")
    table = read_positions(positions)
    comparison = Comparison.of(table, loss, decide_on, _prices(price, table))
    if quality is not None:
        if quality == "target":
            quality = float(comparison.quality(comparison.target_loss))
        title = f"least rejection with quality >= {quality:.4g}"
        rows = _least_rejection(comparison, quality)
    elif speedup is not None:
        title = f"best quality with speedup >= {speedup:.4g}"
        rows = _best_quality(comparison, speedup)
    else:
        title = "regret, and quality within a share of the target's rejection"
        rows = _summary(comparison)
    notes = _notes(comparison)
    if figure is not None:
        from specsim.report.frontier_plots import quality_against_cost
        from specsim.report.plots import save

        save(quality_against_cost(comparison, _models(table)), figure)
        click.echo(f"figure: {figure}", err=True)
    if output_format == "json":
        click.echo(to_json({"rows": [_flat(row) for row in rows], **notes}))
    elif output_format == "csv":
        click.echo(render([_flat(row) for row in rows], output_format))
    else:
        title += f" ({loss} loss, {table.positions} positions of {table.requests} requests)"
        click.echo(render([_for_people(row) for row in rows], output_format, title))
        for line in _sentences(notes):
            click.echo(line, err=output_format != "table")


def _prices(given: dict[str, Any], table: LabelledPositions) -> BlockPrices | None:
    """What blocks cost, from --c or from a profile; None where neither is given."""
    from specsim.cost import Cost
    from specsim.frontier import BlockPrices
    from specsim.frontier.latency import DRAFT

    gamma, profile = given["gamma"], given["profile"]
    if profile is None and given["c"] is None:
        refuse_given(
            [name for name in given if name not in ("c", "profile")], "needs --c or --profile"
        )
        return None
    if profile is None:
        refuse_given(["temperature"], "needs --profile")
        return BlockPrices.of_cost(
            Cost({DRAFT: given["c"]}, read_verify(given), given["overhead"] or 0.0), gamma
        )
    from specsim.optimizers.workload import Workload
    from specsim.profiles import read_profile

    refuse_given(
        ["c", "verify_slope", "verify_cost", "overhead"], "and --profile exclude each other"
    )
    temperature = given["temperature"]
    if temperature is None:
        temperature = table.about.get("temperature")
    loads = Workload.all_of(read_profile(profile), profile, temperature)
    if len(loads) > 1:
        raise InvalidArgumentError("--temperature must say which setting of the profile is meant")
    return BlockPrices.of_workload(loads[0], gamma)


def _least_rejection(comparison: Comparison, quality: float) -> list[dict[str, Any]]:
    """The optimum's row, then the rules' by rising rejection."""
    choices = comparison.least_rejection(quality)
    if not any(choices.values()):
        losses = [rule.curve().loss.min() for rule in comparison.rules.values()]
        raise SpecsimError(
            f"no rule reaches a quality of {quality:g}; "
            f"the best reaches {float(comparison.quality(min(losses))):.4g}"
        )
    found = sorted(
        (choice for choice in choices.values() if choice),
        key=lambda choice: choice.rejection.best,
    )
    rejection = comparison.optimum_rejection(quality)
    return _chosen(comparison, quality, rejection, found, choices)


def _best_quality(comparison: Comparison, speedup: float) -> list[dict[str, Any]]:
    """The optimum's row, then the rules' by falling quality."""
    choices = comparison.best_quality(speedup)
    rejection = comparison.prices.allowed_rejection(speedup) if comparison.prices else None
    if rejection is None:
        raise SpecsimError(
            f"no rule is {speedup:g} times as fast as plain decoding at this cost, not even "
            "without any rejection"
        )
    found = sorted(
        (choice for choice in choices.values() if choice),
        key=lambda choice: -choice.quality.best,
    )
    return _chosen(comparison, comparison.optimum_quality(rejection), rejection, found, choices)


def _chosen(
    comparison: Comparison,
    quality: float,
    rejection: float | None,
    found: list[Choice],
    choices: dict[str, Choice | None],
) -> list[dict[str, Any]]:
    """Rows of the optimum, of the rules that grant the wish, and of those that do not."""
    from specsim.frontier import OPTIMUM

    rows: list[dict[str, Any]] = [
        {"rule": OPTIMUM, "setting": None, "quality": quality, "rejection": rejection}
    ]
    for choice in found:
        row = {name: getattr(choice, name) for name in ("rule", "setting", "quality", "rejection")}
        rows.append(row)
    if comparison.prices is not None:
        if rejection is not None:
            speed, gamma = comparison.prices.speedup(rejection)
            rows[0] |= {"speedup": float(speed), "gamma": int(gamma)}
        for row, choice in zip(rows[1:], found, strict=True):
            row |= {"speedup": choice.speedup, "gamma": choice.gamma}
    return rows + [{"rule": name} for name, choice in choices.items() if choice is None]


def _summary(comparison: Comparison) -> list[dict[str, Any]]:
    """Every rule by rising regret, the optimum first."""
    rows = []
    for rule, figures in comparison.summary(_SHARES).items():
        row: dict[str, Any] = {"rule": rule, "regret": figures.regret}
        for share, quality in zip(_SHARES, figures.within, strict=True):
            row[f"quality_within_{share:.0%}"] = quality
        rows.append(row)
    return rows[:1] + sorted(rows[1:], key=lambda row: float(row["regret"].best))


def _flat(row: dict[str, Any]) -> dict[str, Any]:
    """Intervals as three columns: name, name_low, name_high."""
    flat: dict[str, Any] = {}
    for name, value in row.items():
        if hasattr(value, "low"):
            flat |= {name: value.best, f"{name}_low": value.low, f"{name}_high": value.high}
        else:
            flat[name] = value
    return flat


def _for_people(row: dict[str, Any]) -> dict[str, Any]:
    """Intervals in one cell."""
    from specsim.report.tables import text

    return {
        name: f"{text(value.best)} ({text(value.low)} to {text(value.high)})"
        if hasattr(value, "low")
        else value
        for name, value in row.items()
    }


def _notes(comparison: Comparison) -> dict[str, Any]:
    """The two models alone, and how the plug-in rule stands to its bound."""
    from specsim.checks import UnsupportedError
    from specsim.frontier import plug_in_regret

    try:
        bound = asdict(plug_in_regret(comparison.positions, comparison.loss))
    except UnsupportedError:  # not the loss of a lemma, or columns that the file lacks
        bound = None
    return {
        "draft_quality": float(comparison.quality(comparison.draft_loss)),
        "target_quality": float(comparison.quality(comparison.target_loss)),
        "target_rejection": float(comparison.positions.tv.mean()),
        "plug_in_regret": bound,
    }


def _sentences(notes: dict[str, Any]) -> list[str]:
    lines = [
        f"Quality of the draft alone {notes['draft_quality']:.4g}, of the target "
        f"{notes['target_quality']:.4g} at rejection {notes['target_rejection']:.4g}."
    ]
    bound = notes["plug_in_regret"]
    if bound:
        lemma = "7" if bound["rule"] == "Opt" else "8"
        line = (
            f"{bound['rule']}, deciding on tempered probabilities, loses at most "
            f"{bound['regret']:.4g} of risk to Lemma 6, at a cost of {bound['cost']:.4g} per "
            f"rejection; its confidence is off by {bound['miscalibration']:.4g}"
        )
        if bound["bound"] is not None:
            line += f", and Lemma {lemma} allows {bound['bound']:.4g}"
        lines.append(line + ".")
    return lines


def _models(table: LabelledPositions) -> str:
    """What was scored, as a title."""
    about = table.about
    if not {"draft", "target", "temperature"} <= about.keys():
        return "labelled positions"
    return f"{about['draft']} drafts for {about['target']}, temperature {about['temperature']:g}"
