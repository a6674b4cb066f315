"""``specsim serve``: latency and throughput of one set-up under load."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from specsim.commands._deployment import deployment_options, read_deployment
from specsim.commands._options import (
    PATH,
    Integer,
    Number,
    acceptance_law_option,
    alpha_option,
    check_figure,
    figure_option,
    format_option,
    mode_option,
    option,
    profile_options,
    read_alpha,
    seed_option,
)
from specsim.commands._workload import read_gamma, read_workload, workload_options

_ROUTINGS = ("round-robin", "least-outstanding", "prefix-aware")


@click.command(
    epilog="Example: specsim serve --rate 4 --prompt lognormal:1155,0.9 --output 211 "
    "--target llama-3.1-8b --draft llama-3.2-1b --accelerator H100 --alpha 0.7 --gamma 3 "
    "--overhead-us 1500 --slo ttft_p99=1,tpot_p99=0.03"
)
@workload_options
@click.option(
    "--gamma",
    metavar="N|table|RANGES",
    help="Drafts of a round: a number, 'table' for what optimize finds by load, or ranges of "
    "batches as 1-16=5,17-64=3. [default: plain decoding, no drafter]",
)
@alpha_option
@profile_options
@acceptance_law_option
@mode_option
@deployment_options
@option(
    "--step-cost",
    str,
    "Coefficients of a step, or tables of kernels (kernels:FOLDER,layers=N), in place of a profile "
    "or deployment: docs/serving.md.",
    metavar="NAME=VALUE,...",
)
@option(
    "--engine",
    str,
    "Engine and its own settings: docs/serving.md.",
    default="vllm",
    metavar="NAME[:SETTING=VALUE,...]",
)
@option("--replicas", Integer(1), "Engines behind a router.", default=1)
@option("--routing", click.Choice(_ROUTINGS), "Who gets a request.", default="round-robin")
@option("--slo", str, "Limits in seconds, as ttft_p99=1,tpot_p99=0.06.", metavar="NAME=SECONDS,...")
@option("--warmup", Number(0, 0.9), "Share of the requests that come first and do not count.")
@option("--replications", Integer(1), "Independent repeats, for intervals.", default=1)
@option("--workers", Integer(1), "Processes that share them.", default=1)
@seed_option
@option("--save-requests", PATH, "Times of every request, .parquet or .csv.")
@option("--save-steps", PATH, "Every step, .parquet or .csv.")
@figure_option
@format_option
@click.pass_context
def command(
    context: click.Context,
    /,
    figure: Path | None,
    save_requests: Path | None,
    save_steps: Path | None,
    output_format: str,
    **given: Any,
) -> None:
    """What users see of one set-up under load, simulated step by step.

    Requests arrive at --rate, or as a file says (--workload); the engine's own scheduler makes
    steps of them; costs of steps and acceptance come from a profile or from shapes on a card, as
    for optimize by load.  Printed are TTFT, TPOT, ITL and end-to-end latency, throughput and, with
    --slo, goodput.  Exits 1 where a level is not met.
    """
    from specsim import serve
    from specsim.files import check_frame_path, write_frame
    from specsim.report.tables import show

    check_figure(figure)
    for each in (save_requests, save_steps):
        if each is not None:
            check_frame_path(each)
    found = serve(
        read_workload(given),
        gamma=read_gamma(given.pop("gamma")),
        alpha=read_alpha(given),
        deployment=read_deployment(given),
        step_model=given.pop("step_cost"),
        warmup=given.pop("warmup") or 0.0,
        **given,
    )
    show(found, output_format)
    for path, frame in ((save_requests, "requests_frame"), (save_steps, "steps_frame")):
        if path is not None:
            write_frame(getattr(found, frame), path)
            click.echo(f"written: {path}", err=True)
    if figure is not None:
        from specsim.report.plots import save
        from specsim.report.serving_plots import over_time

        save(over_time(found), figure)
        click.echo(f"figure: {figure}", err=True)
    context.exit(0 if found.met else 1)
