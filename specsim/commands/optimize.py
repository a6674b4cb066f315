"""``specsim optimize``: the draft length that pays best."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from specsim.checks import InvalidArgumentError
from specsim.commands._options import (
    Integer,
    check_figure,
    cost_options,
    format_option,
    load_options,
    profile_options,
    read_load,
    read_shapes,
)
from specsim.commands._schemes import (
    Candidates,
    SchemeGroup,
    refuse_mixture,
    scheme_command,
)

if TYPE_CHECKING:
    from specsim.profiles import Mode


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
@load_options
@click.option("--figure", type=click.Path(path_type=Path), help="Heat map to write, a PNG.")
@click.option(
    "--gamma-max",
    type=Integer(),
    help="Longest draft to consider. [default: 64; by load 16, or as far as measured]",
)
@format_option
@click.pass_context
def command(
    click_context: click.Context,
    /,
    alpha: tuple[float, ...] | None,
    c: float | None,
    c_ops: float | None,
    c_memory: float | None,
    verify_slope: float | None,
    verify_cost: tuple[float, ...] | None,
    overhead: float | None,
    profile: Path | None,
    temperature: float | None,
    batch: tuple[int, ...] | None,
    context: tuple[int, ...] | None,
    target: str | None,
    draft: str | None,
    accelerator: str | None,
    mode: Mode | None,
    figure: Path | None,
    gamma_max: int | None,
    output_format: str,
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
    if click_context.invoked_subcommand:
        refuse_mixture(click_context)
        return
    from specsim import Load, LoadPlan, optimize
    from specsim.report.tables import show

    check_figure(figure)
    shapes, load = read_shapes(target, draft, accelerator), read_load(batch, context)
    if figure is not None and shapes is None and load is None:
        if profile is None:
            raise InvalidArgumentError(
                "--figure draws decisions by load: it needs --profile, or --target, --draft and "
                "--accelerator"
            )
        load = Load()
    result = optimize(
        alpha,
        c,
        c_ops=c_ops,
        c_memory=c_memory,
        verify_slope=verify_slope,
        verify_cost=verify_cost,
        overhead=overhead,
        gamma_max=gamma_max,
        profile=profile,
        temperature=temperature,
        shapes=shapes,
        load=load,
        mode=mode,
    )
    by_load = isinstance(result, LoadPlan)
    show(result, output_format, "best draft length" + (" by load" if by_load else ""))
    if figure is not None and isinstance(result, LoadPlan):
        from specsim.report.load_plots import best_by_load
        from specsim.report.plots import save

        save(best_by_load({each.workload.name: each.points for each in result.settings}), figure)
        click.echo(f"figure: {figure}", err=True)


def optimize_scheme(
    kind: Any, candidates: Candidates, knowns: list[Any], output_format: str, **given: Any
) -> None:
    """The fastest of all combinations."""
    from specsim.api import schemes
    from specsim.report.tables import show

    found = schemes.optimize_scheme(kind, candidates, known=knowns, **given)
    show(found, output_format, "fastest, stationary")
