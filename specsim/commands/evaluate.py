"""``specsim evaluate``: what one draft length gives."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from specsim.checks import InvalidArgumentError
from specsim.commands._options import (
    Integer,
    cost_options,
    format_option,
    from_numbers,
    profile_options,
    refuse_given,
)
from specsim.commands._schemes import (
    Candidates,
    SchemeGroup,
    only,
    refuse_mixture,
    scheme_command,
)


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
@click.option("--gamma", type=Integer(), help="Draft tokens per target call.")
@format_option
@click.pass_context
def command(
    context: click.Context,
    /,
    profile: Path | None,
    temperature: float | None,
    gamma: int | None,
    output_format: str,
    **numbers: Any,
) -> None:
    """Speedup, tokens per call, operations and memory accesses at one draft length.

    With SCHEME, of any decoding scheme: specsim evaluate SCHEME --help lists its options.
    """
    if context.invoked_subcommand:
        refuse_mixture(context)
        return
    from specsim.report.tables import render

    if gamma is None:
        raise InvalidArgumentError("--gamma is missing, a whole number >= 0")

    title = f"draft length {gamma}"
    if profile is not None:
        from specsim.commands._options import workloads

        loads = workloads(profile, temperature, numbers)
        rows = [load.row(load.predict([gamma])[0]) for load in loads]
        click.echo(render(rows[0] if len(rows) == 1 else rows, output_format, title))
        return
    refuse_given(["temperature"], "needs --profile")
    from specsim.optimizers.gamma import evaluate
    from specsim.report.tables import show

    result = evaluate(**from_numbers(numbers), gamma=gamma)
    show(result, output_format, title)


def evaluate_scheme(
    kind: Any, candidates: Candidates, knowns: list[Any], output_format: str, **given: Any
) -> None:
    """The long-run figures of one scheme."""
    from specsim.api import schemes
    from specsim.report.tables import show

    scheme, known = only(kind, candidates, knowns)
    show(schemes.evaluate_scheme(scheme, known=known, **given), output_format, "stationary")
