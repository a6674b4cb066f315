"""``specsim compare``: two results, profiles or acceptance files side by side."""

from __future__ import annotations

from pathlib import Path

import click

from specsim.commands._options import (
    PATH,
    Number,
    format_option,
    option,
    report_option,
    write_report,
)


@click.command(
    epilog="Examples: specsim compare before.json after.json; "
    "specsim compare monday/profile.json today/profile.json --format markdown"
)
@click.argument("first", type=PATH)
@click.argument("second", type=PATH)
@option(
    "--level",
    Number(0, 1),
    "Probability that nothing is found where nothing changed, over all figures together.",
    default=0.95,
)
@report_option
@format_option
def command(
    first: Path, second: Path, level: float, report: Path | None, output_format: str
) -> int:
    """What changed from FIRST to SECOND, and whether it is more than chance.

    Both are results of one command (--format json), profiles, acceptance files of specsim read, or
    folders of specsim sweep.
    A figure with an interval on both sides is judged by them; a figure without one is shown where
    it differs, and counts only where no figure of the two can be judged.

    Exits 1 where something differs by more than chance.
    """
    from specsim import compare
    from specsim.report.tables import show

    found = compare(first, second, level=level)
    show(found, output_format)
    write_report(found, report)
    return 1 if found.differs else 0
