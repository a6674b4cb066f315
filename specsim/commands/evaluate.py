"""``specsim evaluate``: what one draft length gives."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from specsim.commands._options import (
    Integer,
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
    only,
    refuse_mixture,
    scheme_command,
)

if TYPE_CHECKING:
    from specsim.profiles import Mode


class _Evaluate(SchemeGroup):
    def make(self, name: str) -> click.Command:
        return scheme_command("evaluate", name, evaluate_scheme)


@click.group(
    cls=_Evaluate,
    invoke_without_command=True,
    subcommand_metavar="[SCHEME ...]",
    epilog="Examples: specsim evaluate --alpha 0.8 --c 0.05 --gamma 5; "
    "specsim evaluate bild --fallback 0.2 --rollback 0.05 --c 0.1",
)
@cost_options
@profile_options
@load_options
@click.option("--gamma", type=Integer(), help="Draft tokens per target call.")
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
    gamma: int | None,
    output_format: str,
) -> None:
    """Speedup, tokens per call, operations and memory accesses at one draft length.

    From numbers, from a profile or by load, as specsim optimize.  With SCHEME, of any decoding
    scheme: specsim evaluate SCHEME --help lists its options.
    """
    if click_context.invoked_subcommand:
        refuse_mixture(click_context)
        return
    from specsim import evaluate
    from specsim.report.tables import show

    result = evaluate(
        alpha,
        c,
        gamma,
        c_ops=c_ops,
        c_memory=c_memory,
        verify_slope=verify_slope,
        verify_cost=verify_cost,
        overhead=overhead,
        profile=profile,
        temperature=temperature,
        shapes=read_shapes(target, draft, accelerator),
        load=read_load(batch, context),
        mode=mode,
    )
    show(result, output_format, f"draft length {gamma}")


def evaluate_scheme(
    kind: Any, candidates: Candidates, knowns: list[Any], output_format: str, **given: Any
) -> None:
    """The long-run figures of one scheme."""
    from specsim.api import schemes
    from specsim.report.tables import show

    scheme, known = only(kind, candidates, knowns)
    show(schemes.evaluate_scheme(scheme, known=known, **given), output_format, "stationary")
