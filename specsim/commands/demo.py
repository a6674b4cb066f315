"""``specsim demo``: the whole loop on the embedded models."""

from __future__ import annotations

from pathlib import Path

import click

from specsim.commands._options import (
    PATH,
    format_option,
    option,
    report_option,
    seed_option,
    typed,
    write_report,
)


@click.command(epilog="Example: specsim demo --out demo")
@option("--out", PATH, "Folder for what is written.", default="specsim-demo")
@option("--draft", str, "Member that drafts.", default="embedded/small")
@seed_option
@report_option
@format_option
def command(out: Path, draft: str, seed: int, report: Path | None, output_format: str) -> int:
    """Measure the embedded pair, predict the best draft length, and check it by real decoding.

    Takes five to ten minutes on two cores.  Writes the profile, its traces, a figure and a page,
    which is OUT/page.html unless --report names another.  Exits with 1 where the check fails.
    """
    from specsim.api.demo import demonstrate
    from specsim.files import check_replaceable
    from specsim.report.plots import save, speedup_by_gamma
    from specsim.report.progress import progress_bar
    from specsim.report.tables import show

    figure, page = out / "speedup.png", report or out / "page.html"
    if out.is_dir():
        for path in (figure, page):
            check_replaceable(path)
    with progress_bar() as progress:
        found = demonstrate(out, draft, seed, command=typed(), progress=progress)
    show(found, output_format, "predicted and measured")
    save(speedup_by_gamma(found.rows(), f"{draft} drafts for embedded/target"), figure)
    click.echo(f"figure: {figure}   profile: {found.profile}", err=True)
    write_report(found, page)
    return 0 if found.validation.passed else 1
