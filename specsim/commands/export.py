"""``specsim export``: the best draft lengths by load, in an engine's own words."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from specsim.commands._options import (
    Integer,
    alpha_option,
    machine_options,
    profile_options,
    read_shapes,
)

if TYPE_CHECKING:
    from specsim.profiles import Mode


@click.command(
    epilog="Examples: specsim export vllm --profile profile.json --context 2048; "
    "specsim export llama.cpp --target llama-3.1-8b --draft llama-3.2-1b --accelerator L40S "
    "--alpha 0.8 --model draft.gguf"
)
@click.argument("engine", metavar="vllm|sglang|tensorrt-llm|llama.cpp|transformers")
@profile_options
@machine_options
@alpha_option
@click.option(
    "--context",
    type=Integer(),
    help="Tokens in the cache of each request. [default: the smallest in the profile, or 512]",
)
@click.option(
    "--most", type=Integer(1), default=256, show_default=True, help="Largest batch to plan for."
)
@click.option(
    "--batch",
    type=Integer(1),
    help="Batch of the one draft length that sglang, llama.cpp and transformers take. [default: 1]",
)
@click.option("--gamma-max", type=Integer(1), help="Longest draft. [default: 16, or as measured]")
@click.option(
    "--model", help="The draft's name or path for the engine. [default: as in the profile]"
)
@click.option(
    "--format",
    "output_format",
    type=click.Choice(["engine", "json"]),
    default="engine",
    show_default=True,
    help="What the engine reads, or our document about it.",
)
def command(
    engine: str,
    profile: Path | None,
    temperature: float | None,
    target: str | None,
    draft: str | None,
    accelerator: str | None,
    mode: Mode | None,
    alpha: tuple[float, ...] | None,
    context: int | None,
    most: int,
    batch: int | None,
    gamma_max: int | None,
    model: str | None,
    output_format: str,
) -> int:
    """What ENGINE should draft at every batch, as its configuration wants it.

    On stdout is what the engine reads and nothing else; what it cannot be told is on stderr.
    Drafts are left off where they gain less than 1 %.  Ends with 1 where speculation is better
    left off.
    """
    from specsim import export
    from specsim.report.tables import show_notes

    found = export(
        engine,
        shapes=read_shapes(target, draft, accelerator),
        profile=profile,
        alpha=alpha,
        temperature=temperature,
        mode=mode,
        context=context,
        most=most,
        batch=batch,
        gamma_max=gamma_max,
        model=model,
    )
    if output_format == "json":
        click.echo(found.to_json())
    elif found.text:
        click.echo(found.text)
    show_notes(found)
    return 0 if found.text else 1
