"""``specsim optimize``: the draft length that pays best."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from specsim.commands._load import ONLY_BY_LOAD, load_options, optimize_by_load
from specsim.commands._options import (
    Integer,
    IntegerRange,
    cost_options,
    format_option,
    from_numbers,
    profile_options,
    refuse_given,
)
from specsim.commands._schemes import (
    Candidates,
    SchemeGroup,
    refuse_mixture,
    scheme_command,
)


class _Optimize(SchemeGroup):
    def make(self, name: str) -> click.Command:
        return scheme_command("optimize", name, optimize_scheme)


@click.group(
    cls=_Optimize,
    invoke_without_command=True,
    subcommand_metavar="[SCHEME ...]",
    epilog="Examples: specsim optimize --alpha 0.8 --c 0.05; "
    "specsim optimize --target llama-3.1-8b --draft llama-3.2-1b --accelerator H100-SXM "
    "--alpha 0.8 --batch 1,8,64 --context 512; "
    "specsim optimize bild --fallback 0.2 --rollback 0.05 --window 1:20 --c 0.1",
)
@cost_options
@profile_options
@click.option(
    "--batch",
    type=IntegerRange(1),
    help="Requests that share iterations: the best length of each. "
    "[default: as in the profile, or 1,2,4,...,256]",
)
@click.option(
    "--context",
    type=IntegerRange(),
    help="Tokens in the cache of each request. [default: as in the profile, or 512,4096]",
)
@load_options
@click.option("--figure", type=click.Path(path_type=Path), help="Heat map to write, a PNG.")
@click.option(
    "--gamma-max",
    type=Integer(),
    default=64,
    help="Longest draft to consider. [default: 64; by load 16, or as far as measured]",
)
@format_option
@click.pass_context
def command(
    context: click.Context,
    /,
    profile: Path | None,
    temperature: float | None,
    gamma_max: int,
    output_format: str,
    **numbers: Any,
) -> None:
    """The draft length gamma that pays best, from numbers or from a profile.

    From numbers: --alpha and --c.  From a profile: the trace is replayed exactly and priced with
    the measured run times; beside it stands what the papers' formula (alpha and c alone) says.

    By load, with --batch or --context: the best length of every batch, and up to which batch
    speculation pays.  Costs come from a profile with a grid of batches, or, with nothing measured,
    from --target, --draft and --accelerator; acceptance from the profile or from --alpha.

    With SCHEME, the best parameters of any decoding scheme: give whole numbers as ranges
    (--window 1:20) and other numbers as lists; specsim optimize SCHEME --help lists them.
    """
    if context.invoked_subcommand:
        refuse_mixture(context)
        return
    by_load = {name: numbers.pop(name) for name in ONLY_BY_LOAD}
    if any(value is not None for value in by_load.values()):
        source = {"profile": profile, "temperature": temperature, "gamma_max": gamma_max}
        optimize_by_load({**numbers, **by_load, **source}, output_format)
        return
    from specsim.report.tables import render

    if profile is not None:
        from specsim.commands._options import workloads

        refuse_given(["gamma_max"], "and --profile exclude each other: the profile has its own")

        rows = [load.row(load.best()) for load in workloads(profile, temperature, numbers)]
        click.echo(render(rows[0] if len(rows) == 1 else rows, output_format, "best draft length"))
        return
    refuse_given(["temperature"], "needs --profile")
    from specsim.optimizers.gamma import optimize
    from specsim.report.tables import show

    result = optimize(**from_numbers(numbers), gamma_max=gamma_max)
    show(result, output_format, "best draft length")


def optimize_scheme(
    kind: Any, candidates: Candidates, knowns: list[Any], output_format: str, **given: Any
) -> None:
    """The fastest of all combinations."""
    from specsim.api import schemes
    from specsim.report.tables import show

    found = schemes.optimize_scheme(kind, candidates, known=knowns, **given)
    show(found, output_format, "fastest, stationary")
