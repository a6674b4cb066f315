"""``specsim validate --serving``: an engine's request log beside the simulation."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

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


@click.command(
    epilog="Example: specsim validate --serving requests.jsonl --workload workload.jsonl "
    "--step-cost kernels:FOLDER,layers=32,between_ms=1.4 --engine "
    "vllm:version=0.19.0,num_gpu_blocks=30000,max_num_seqs=128,max_num_batched_tokens=2048"
)
@option(
    "--serving",
    PATH,
    "Log: a result of vllm bench serve --save-result --save-detailed, LLMServingSim's "
    "requests.jsonl, or GuideLLM's benchmarks.json.",
    required=True,
)
@option("--workload", PATH, "File of the requests that were sent: tells what prompts share.")
@setup_options
@option("--warmup", Number(0, 0.9), "Share of the requests that come first and do not count.")
@option("--replications", Integer(1), "Repeats, where anything is drawn. [default: 20]")
@option("--workers", Integer(1), "Processes that share them.", default=1)
@option(
    "--tolerance",
    str,
    "Largest relative errors that pass, as mean=0.05,ttft_p99=0.15. [default: by intervals]",
    metavar="NAME=SHARE,...",
)
@seed_option
@figure_option
@report_option
@format_option
def command(
    serving: Path, figure: Path | None, report: Path | None, output_format: str, **given: Any
) -> int:
    """Send the requests of an engine's log through the simulator, and print both.

    The log has arrivals, lengths and measured times; what served is said as for specsim serve.
    Printed are TTFT, TPOT, ITL, end-to-end latency and time in the queue, as far as the log tells
    them, in figures and request by request, and throughput.  Exits 1 where a figure is further off
    than the intervals of both explain, or than --tolerance.
    """
    from specsim import validate_serving
    from specsim.report.progress import progress_bar
    from specsim.report.tables import show

    check_figure(figure)
    setting = read_setup(given)
    warmup = given.pop("warmup") or 0.0
    with progress_bar(vanishes=True, after_s=1.0) as progress:
        found = validate_serving(serving, warmup=warmup, **setting, **given, progress=progress)
    show(found, output_format)
    write_report(found, report)
    if figure is not None:
        from specsim.report.plots import write
        from specsim.report.serving_check_plots import predicted_and_measured

        write(predicted_and_measured(found), figure)
    return 0 if found.passed else 1
