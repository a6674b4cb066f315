"""``specsim study``: a paper's tables and figures, ours beside them."""

from __future__ import annotations

from pathlib import Path

import click

from specsim.checks import InvalidArgumentError
from specsim.commands._options import (
    PATH,
    format_option,
    option,
    report_option,
    typed,
    write_report,
)
from specsim.files import make_folder


@click.command(
    epilog="Examples: specsim study leviathan --out results; "
    "specsim study all --profile mine.json --measure --out results"
)
@click.argument("name")
@option("--out", PATH, "Folder for the results.", required=True)
@option("--profile", PATH, "Measurements to show. [default: the embedded family's, as shipped]")
@click.option(
    "--measure",
    is_flag=True,
    help="Measure again first: beside the profile that is given, or else in the folder.",
)
@report_option
@format_option
def command(
    name: str,
    out: Path,
    profile: Path | None,
    measure: bool,
    report: Path | None,
    output_format: str,
) -> int:
    """Write the tables and figures of a study: CSV, Markdown and PNG.

    NAME is leviathan, csdrafting, cascades, bild, specdec, fidelity, serving, or all.  Exits 1 if a
    printed number of a paper is neither matched nor in the list of known differences.
    """
    from specsim.profiles import read_profile
    from specsim.report.progress import progress_bar
    from specsim.report.tables import show
    from studies import STUDIES
    from studies.common.reproduce import reproduce
    from studies.common.write import load

    if name not in (*STUDIES, "all"):
        raise InvalidArgumentError(f"NAME must be one of {', '.join(STUDIES)} or all, got {name}")
    if profile is not None and not measure:
        read_profile(profile)  # before a folder is made for nothing
    make_folder(out)
    studies = {each: load(each) for each in (STUDIES if name == "all" else [name])}
    if measure:
        with progress_bar() as progress:
            profiles = {
                each: study.measure(profile, out, progress) for each, study in studies.items()
            }
    else:
        profiles = {each: profile or study.shipped for each, study in studies.items()}
    found = reproduce(profiles, out, typed())
    show(found, output_format, "numbers that the papers print, and ours")
    write_report(found, report)
    return 1 if found.unexplained else 0
