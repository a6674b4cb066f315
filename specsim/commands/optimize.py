"""``specsim optimize``: the draft length that pays best."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import click

from specsim.checks import InvalidArgumentError
from specsim.commands._options import (
    Integer,
    check_figure,
    figure_option,
    format_option,
    option,
    report_option,
    write_report,
)
from specsim.commands._question import question_options, read_question
from specsim.commands._schemes import Candidates, SchemeGroup, refuse_mixture, scheme_command


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
@question_options
@figure_option
@report_option
@option(
    "--gamma-max",
    Integer(),
    "Longest draft to consider. [default: 64; by load 16, or as far as measured]",
)
@format_option
@click.pass_context
def command(
    click_context: click.Context,
    /,
    figure: Path | None,
    report: Path | None,
    gamma_max: int | None,
    output_format: str,
    **given: Any,
) -> None:
    """The draft length gamma that pays best, from numbers or from a profile.

    From numbers: --alpha and --c.  From a profile: the trace is replayed exactly and priced with
    the measured run times; beside it stands what the papers' formula (alpha and c alone) says.

    By load, with --batch or --context: the best length of every batch, and up to which batch
    speculation pays.  Costs come from a profile with a grid of batches, or, with nothing measured,
    from --target, --drafter and --accelerator; acceptance from the profile or from --alpha.

    With SCHEME, the best parameters of any decoding scheme: give whole numbers as ranges
    (--window 1:20) and other numbers as lists; specsim optimize SCHEME --help lists them.
    """
    if click_context.invoked_subcommand:
        refuse_mixture(click_context)
        return
    from specsim.report.progress import progress_bar
    from specsim.report.tables import show

    check_figure(figure)
    asked = read_question(given)
    if figure is not None and asked.deployment is None and asked.load is None:
        if asked.profile is None:
            raise InvalidArgumentError(
                "--figure draws decisions by load: it needs --profile, or --target, --draft and "
                "--accelerator"
            )
        from specsim import Load

        asked = replace(asked, load=Load())
    if report is not None and asked.deployment is None and asked.profile is None:
        raise InvalidArgumentError(
            "--report needs --profile, or --target, --drafter and --accelerator"
        )
    with progress_bar(vanishes=True, after_s=1.0) as progress:
        result = asked.optimize(gamma_max, progress=progress)
    show(result, output_format, "best draft length")
    write_report(result, report)
    if figure is not None:
        from specsim import LoadPlan
        from specsim.report.load_plots import best_by_load
        from specsim.report.plots import write

        assert isinstance(result, LoadPlan), "refused above without a load"
        write(best_by_load({each.workload.name: each.points for each in result.settings}), figure)


def optimize_scheme(
    kind: Any, candidates: Candidates, knowns: list[Any], output_format: str, **given: Any
) -> None:
    """The fastest of all combinations."""
    from specsim import optimize
    from specsim.report.tables import show

    found = optimize(scheme=kind, candidates=candidates, known=knowns, **given)
    show(found, output_format, "fastest, stationary")
