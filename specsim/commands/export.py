"""``specsim export``: the best draft lengths by load, in an engine's own words."""

from __future__ import annotations

import sys
from typing import Any

import click

from specsim.commands._deployment import deployment_options, read_deployment
from specsim.commands._options import (
    PATH,
    Integer,
    acceptance_law_option,
    alpha_option,
    margin_option,
    mode_option,
    option,
    profile_options,
    read_alpha,
)


@click.command(
    epilog="Examples: specsim export vllm --profile profile.json --temperature 1 --context 2048; "
    "specsim export llama.cpp --target llama-3.1-8b --draft llama-3.2-1b --accelerator L40S "
    "--alpha 0.8 --model draft.gguf; specsim export vllm --target llama-3.1-8b "
    "--drafter eagle3:alpha=0.7/0.6 --accelerator L40S --model HEADS"
)
@click.argument("engine", metavar="vllm|sglang|tensorrt-llm|llama.cpp|transformers")
@profile_options
@acceptance_law_option
@deployment_options
@mode_option
@alpha_option
@option(
    "--context",
    Integer(),
    "Tokens in the cache of each request. [default: the smallest in the profile; beside models "
    "those of --capacity-plan, or 512]",
)
@margin_option
@option("--most", Integer(1), "Largest batch to plan for. [default: 256]")
@option(
    "--batch",
    Integer(1),
    "Batch of the one draft length of engines that take no length by batch. [default: 1]",
)
@option(
    "--capacity-plan",
    PATH,
    "JSON of specsim plan, whose schedule is written in place of the best one by batch.",
)
@option("--gamma-max", Integer(1), "Longest draft. [default: 16, or as measured]")
@option(
    "--method",
    str,
    "Where drafts come from, with costs of a profile: draft_model, eagle, eagle3, mtp, p_eagle, "
    "pard, dflash, ngram or suffix. [default: as the drafter or an acceptance file, draft_model]",
)
@option("--model", str, "The draft's name or path for the engine. [default: as in the profile]")
@option("--lookup-max", Integer(1), "Longest run of tokens that ngram looks up.")
@option("--lookup-min", Integer(1), "Shortest run of tokens that ngram looks up; vllm only.")
@click.option(
    "--format",
    "output_format",
    type=click.Choice(["engine", "json"]),
    default="engine",
    show_default=True,
    help="What the engine reads, or our document about it.",
)
def command(engine: str, output_format: str, **given: Any) -> int:
    """What ENGINE should draft at every batch, as its configuration wants it.

    On stdout is what the engine reads and nothing else, broken into lines on a terminal; what it
    cannot be told is on stderr.
    Drafts are left off where they gain less than the margin over a step with the drafter loaded,
    which an engine may run there too (specsim optimize: over a step without one), and batches share
    a length where that loses none of them more than a fifth of it.  Ends with 1 where speculation
    is better left off.
    """
    from specsim import export
    from specsim.report.configuration import in_lines
    from specsim.report.tables import show_notes
    from specsim.report.terminal import line_width

    alpha = read_alpha(given)
    found = export(engine, deployment=read_deployment(given), alpha=alpha, **given)
    if output_format == "json":
        click.echo(found.to_json())
    elif found.text:
        click.echo(in_lines(found.text, line_width(sys.stdout)))
    show_notes(found)
    return 0 if found.text else 1
