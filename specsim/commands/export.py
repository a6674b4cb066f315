"""``specsim export``: the best draft lengths by load, in an engine's own words."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from specsim.checks import InvalidArgumentError
from specsim.commands._load import Load, load_options, loads
from specsim.commands._options import Integer, Numbers, profile_options, refuse_given
from specsim.engines import ENGINES, Engine, Schedule, gamma_at, largest, merged

if TYPE_CHECKING:
    from specsim.batching.point import BatchPoint


@click.command(
    epilog="Examples: specsim export vllm --profile profile.json --context 2048; "
    "specsim export llama.cpp --target llama-3.1-8b --draft llama-3.2-1b --accelerator L40S "
    "--alpha 0.8 --model draft.gguf"
)
@click.argument("engine", type=click.Choice(list(ENGINES)))
@profile_options
@load_options
@click.option(
    "--alpha",
    type=Numbers(0, 1),
    help="Acceptance rate, or alpha_1,alpha_2,... by position (the last one holds on). "
    "[default: as in the profile]",
)
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
    default=1,
    show_default=True,
    help="Batch of the one draft length that sglang and llama.cpp take.",
)
@click.option("--gamma-max", type=Integer(1), help="Longest draft. [default: 16, or as measured]")
@click.option(
    "--model", help="The draft's name or path for the engine. [default: as in the profile]"
)
def command(
    engine: str, model: str | None, context: int | None, most: int, batch: int, **given: Any
) -> int:
    """What ENGINE should draft at every batch, as its configuration wants it.

    On stdout is what the engine reads and nothing else; what it cannot be told is on stderr.
    Ends with 1 where speculation is better left off.
    """
    chosen = ENGINES[engine]
    if not chosen.one_batch:
        refuse_given(["batch"], f"has no meaning for {engine}, which takes a length for each batch")
    load = _one(loads(given))
    draft = _draft_name(engine, chosen, model, load)
    asked = None if context is None else [context]
    schedule = _schedule(load, load.contexts(asked)[0], most)
    if not largest(schedule):
        click.echo("speculation never pays here: leave it off", err=True)
        return 1
    if chosen.one_batch and not gamma_at(schedule, batch):
        click.echo(f"speculation does not pay at batch {batch}: leave it off", err=True)
        return 1
    configuration = chosen.write(schedule, draft, batch)
    click.echo(configuration.text)
    for note in configuration.notes:
        click.echo(note, err=True)
    return 0


def _one(found: list[Load]) -> Load:
    """The only setting, as an engine is configured once."""
    if len(found) > 1:
        known = ", ".join(f"{load.temperature:g}" for load in found)
        raise InvalidArgumentError(f"--temperature is missing, one of {known}")
    return found[0]


def _draft_name(engine: str, chosen: Engine, model: str | None, load: Load) -> str:
    if not chosen.names_draft:
        refuse_given(["model"], f"has no meaning for {engine}, whose assistant is an object")
        return ""
    name = model or load.draft_name
    if not name:
        raise InvalidArgumentError(f"--model is missing: what {engine} should load as the draft")
    return name


def _schedule(load: Load, context: int, most: int) -> Schedule:
    """The best gamma of every batch, as far as batches can be priced."""
    from specsim.batching.cost import CellUnavailableError
    from specsim.batching.point import best_of_cell

    cells: list[BatchPoint] = []
    for batch in range(1, most + 1):
        try:
            cells.append(best_of_cell(load.gains, load.cost, batch, context, load.gamma_max))
        except CellUnavailableError as error:
            if not cells:
                raise
            click.echo(f"not planned from batch {batch} on: {error}", err=True)
            break
    click.echo(f"planned for batch 1 to {len(cells)} at context {context}", err=True)
    outside = [cell.batch for cell in load.extrapolated(cells)]
    if outside:
        click.echo(
            f"extrapolated beyond the measured grid: batch {outside[0]} to {outside[-1]}", err=True
        )
    return merged([cell.gamma for cell in cells])
