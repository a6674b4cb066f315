"""``specsim demo``: the whole loop on the embedded models."""

from __future__ import annotations

from pathlib import Path

import click

from specsim.commands._models import typed
from specsim.commands._options import PATH, format_option, option, seed_option


@click.command(epilog="Example: specsim demo --out demo")
@option("--out", PATH, "Folder for the profile, its traces and the figure.", default="specsim-demo")
@option("--draft", str, "Member that drafts.", default="embedded/small")
@seed_option
@format_option
def command(out: Path, draft: str, seed: int, output_format: str) -> None:
    """Measure the embedded pair, predict the best draft length, and check it by real decoding.

    Takes five to ten minutes on two cores.  Writes the profile, its traces and a figure.
    """
    from specsim.api.demo import demonstrate
    from specsim.report.plots import save, speedup_by_gamma
    from specsim.report.progress import progress_bar
    from specsim.report.tables import show

    with progress_bar() as progress:
        found = demonstrate(out, draft, seed, command=typed(), progress=progress)
    figure = out / "speedup.png"
    save(speedup_by_gamma(found.rows(), f"{draft} drafts for embedded/target"), figure)
    show(found, output_format, "predicted and measured")
    click.echo(f"figure: {figure}   profile: {found.profile}", err=True)
