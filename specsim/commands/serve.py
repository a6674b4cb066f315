"""``specsim serve``: latency and throughput of one set-up under load."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from specsim.checks import InvalidArgumentError
from specsim.commands._options import (
    PATH,
    Integer,
    Number,
    check_figure,
    figure_option,
    format_option,
    option,
    report_option,
    seed_option,
    write_report,
)
from specsim.commands._setup import read_setup, setup_options
from specsim.commands._workload import read_workload, workload_options


@click.command(
    epilog="Example: specsim serve --rate 4 --prompt lognormal:1155,0.9 --output 211 "
    "--target llama-3.1-8b --draft llama-3.2-1b --accelerator H100 --alpha 0.7 --gamma 3 "
    "--overhead-us 1500 --slo ttft_p99=1,tpot_p99=0.03"
)
@workload_options
@setup_options
@option(
    "--slo",
    str,
    "Limits in seconds, or with their unit, as ttft_p99=1,tpot_p99=60ms.",
    metavar="NAME=SECONDS,...",
)
@option("--warmup", Number(0, 0.9), "Share of the requests that come first and do not count.")
@option("--replications", Integer(1), "Independent repeats, for intervals.", default=1)
@option("--workers", Integer(1), "Processes that share them.", default=1)
@seed_option
@option("--save-requests", PATH, "Times of every request, .parquet or .csv.")
@option("--save-steps", PATH, "Every step, .parquet or .csv.")
@figure_option
@report_option
@format_option
@click.pass_context
def command(
    context: click.Context,
    /,
    figure: Path | None,
    report: Path | None,
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
    from specsim.report.progress import progress_bar
    from specsim.report.tables import show

    check_figure(figure)
    for each in (save_requests, save_steps):
        if each is not None:
            check_frame_path(each)
    if save_requests is not None and save_requests == save_steps:
        raise InvalidArgumentError(
            f"--save-requests and --save-steps must be two files, got {save_steps} for both"
        )
    setting = read_setup(given)
    work = read_workload(given)
    warmup = given.pop("warmup") or 0.0
    with progress_bar(vanishes=True, after_s=1.0) as progress:
        found = serve(work, warmup=warmup, **setting, **given, progress=progress)
    show(found, output_format)
    write_report(found, report)
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
