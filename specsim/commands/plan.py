"""``specsim plan``: how many cards a workload needs, with drafts and without."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import click

from specsim.checks import InvalidArgumentError, number
from specsim.commands._deployment import deployment_options, read_deployment
from specsim.commands._options import (
    IntegerRange,
    acceptance_law_option,
    alpha_option,
    check_figure,
    figure_option,
    format_option,
    margin_option,
    mode_option,
    option,
    profile_options,
    read_alpha,
    refuse_given,
    report_option,
    seed_option,
    write_report,
)
from specsim.commands._setup import engine_option, routing_option
from specsim.commands._workload import read_workload, workload_options


@click.command(
    epilog="Example: specsim plan --rate 20 --prompt lognormal:1155,0.9 --output 211 "
    "--target llama-3.1-8b --drafter eagle3:alpha=0.7 --accelerator H100 --overhead-us 1500 "
    "--slo ttft_p99=1,tpot_p99=0.03 --price 2.5"
)
@workload_options
@click.option(
    "--slo",
    metavar="NAME=SECONDS,...",
    required=True,
    help="Service levels in seconds, or with their unit, as ttft_p99=1,tpot_p99=60ms.",
)
@option("--gamma", IntegerRange(), "Draft lengths that are tried. [default: 1,2,3,4,5,7]")
@option(
    "--degrees",
    IntegerRange(1),
    "Tensor parallel degrees that are tried. [default: 1,2,4,8, or --tensor-parallel]",
)
@alpha_option
@profile_options
@acceptance_law_option
@mode_option
@deployment_options
@option(
    "--step-cost",
    str,
    "Coefficients of a step in place of a profile or deployment.",
    metavar="NAME=VALUE,...",
)
@engine_option
@routing_option
@option(
    "--price",
    str,
    "Of an accelerator for an hour; of several kinds NAME=PRICE,... Without it the fewest cards "
    "are the answer.",
    metavar="PRICE|NAME=PRICE,...",
)
@margin_option
@click.option("--analytic", is_flag=True, help="Simulate nothing.")
@seed_option
@figure_option
@report_option
@format_option
@click.pass_context
def command(
    context: click.Context,
    /,
    figure: Path | None,
    report: Path | None,
    price: str | None,
    analytic: bool,
    output_format: str,
    **given: Any,
) -> None:
    """The cheapest set-up that keeps service levels under load, with drafts and without.

    Tried are all --drafter, --gamma and schedules by batch, --degrees and, with a comma list, kinds
    of --accelerator.  A fast analytic mode ranks them, and simulation settles the best, until what
    is the answer was itself simulated.  Printed
    are replicas, cards and, with --price, the cost of a million output tokens; up to which load
    drafts pay and what binds there; and from which rate on the answer is another.  Exits 1 where no
    set-up meets the levels, with the nearest.
    """
    from specsim import plan
    from specsim.report.progress import progress_bar
    from specsim.report.tables import show

    check_figure(figure)
    if (gammas := given.pop("gamma")) is not None:
        given["gammas"] = gammas
    with progress_bar(vanishes=True) as progress:
        found = plan(
            read_workload(given),
            alpha=read_alpha(given),
            deployment=_deployments(given),
            step_model=given.pop("step_cost"),
            price=_price(price),
            simulated=not analytic,
            **given,
            progress=progress,
        )
    show(found, output_format)
    write_report(found, report)
    if figure is not None:
        from specsim.report.plan_plots import plan_figure
        from specsim.report.plots import save

        save(plan_figure(found), figure)
        click.echo(f"figure: {figure}", err=True)
    context.exit(0 if found.met else 1)


def _deployments(given: dict[str, Any]) -> Any:
    """One for each kind of cards; None where no deployment is named."""
    if given["tensor_parallel"] is not None:
        refuse_given(("degrees",), "and --tensor-parallel exclude each other")
        given["degrees"] = [given["tensor_parallel"]]
    elif least := _least_degree(given):
        from specsim.api.plan import DEGREES

        given["degrees"] = given["degrees"] or sorted({*DEGREES, least})
        given["tensor_parallel"] = least
    first, *others = (given["accelerator"] or "").split(",")
    given["accelerator"] = first or None
    deployment = read_deployment(given)
    if deployment is None or not others:
        return deployment
    return [deployment, *(replace(deployment, accelerator=each) for each in others)]


def _least_degree(given: dict[str, Any]) -> int:
    """Cards that drafters and experts are said to be on, at least; 0: nothing is said."""
    parts = [part for each in given["drafter"] for part in each.split(",")]
    of_drafters = [part.partition("tensor=")[2] for part in parts if "tensor=" in part]
    found = [int(each) for each in of_drafters if each.isdecimal()]
    if given["expert_parallel"]:
        found.append(given["expert_parallel"])
    return max(found, default=0)


def _price(words: str | None) -> float | dict[str, float] | None:
    if words is None:
        return None
    if "=" not in words:
        return number("--price", words, low=0.0)
    pairs = [part.partition("=") for part in words.split(",")]
    if not all(equals for _, equals, _ in pairs):
        raise InvalidArgumentError(f"--price must be PRICE or NAME=PRICE,..., got {words!r}")
    named = [name.strip() for name, *_ in pairs]
    if len(set(named)) < len(named):
        raise InvalidArgumentError(f"--price names one accelerator twice, got {words!r}")
    return {name.strip(): number(f"--price {name}", each.strip()) for name, _, each in pairs}
