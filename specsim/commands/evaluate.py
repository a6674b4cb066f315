"""``specsim evaluate``: what one draft length gives."""

from __future__ import annotations

from typing import Any

import click

from specsim.commands._options import Integer, format_option, option
from specsim.commands._question import question_options, read_question
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
@question_options
@option("--gamma", Integer(), "Draft tokens per target call.")
@format_option
@click.pass_context
def command(
    click_context: click.Context, /, gamma: int | None, output_format: str, **given: Any
) -> None:
    """Speedup, tokens per call, operations and memory accesses at one draft length.

    From numbers, from a profile or by load, as specsim optimize.  With SCHEME, of any decoding
    scheme: specsim evaluate SCHEME --help lists its options.
    """
    if click_context.invoked_subcommand:
        refuse_mixture(click_context)
        return
    from specsim.report.progress import progress_bar
    from specsim.report.tables import show

    with progress_bar(vanishes=True, after_s=1.0) as progress:
        result = read_question(given).evaluate(gamma, progress)
    show(result, output_format, f"draft length {gamma}")


def evaluate_scheme(
    kind: Any, candidates: Candidates, knowns: list[Any], output_format: str, **given: Any
) -> None:
    """The long-run figures of one scheme."""
    from specsim import evaluate
    from specsim.report.tables import show

    scheme, known = only(kind, candidates, knowns)
    show(evaluate(scheme=scheme, known=known, **given), output_format, "stationary")
