"""``specsim calibrate``: measure a pair of models and write a profile."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from specsim.commands._models import measuring_options, prepare, progress_bar, typed
from specsim.commands._options import format_option


@click.command(
    epilog="Example: specsim calibrate --target Qwen/Qwen3-8B --draft Qwen/Qwen3-0.6B "
    "--prompts prompts.jsonl --out qwen.json"
)
@measuring_options
@click.option(
    "--out",
    type=click.Path(path_type=Path),
    required=True,
    help="Profile to write; traces go beside it.",
)
@format_option
def command(out: Path, output_format: str, **given: Any) -> None:
    """Measure how often drafts are accepted and what runs cost, and write a profile.

    Text is drawn from the target, the draft reads it in one pass, and both models' run times are
    measured in the rhythm of real decoding.  A calibration that was killed goes on where it was
    when started again with the same arguments.
    """
    from specsim.checks import InvalidArgumentError
    from specsim.predict.choice import Workload
    from specsim.report.tables import render

    if not out.parent.is_dir():
        raise InvalidArgumentError(f"--out {out}: no such folder {out.parent}")
    if out.is_dir():
        raise InvalidArgumentError(
            f"--out {out} is a folder; name the profile, such as {out}/p.json"
        )
    prepared = prepare(given)
    from calibrate.measure import calibrate

    with progress_bar() as progress:
        profile = calibrate(prepared.pair, prepared.settings, out, typed(), progress)
    click.echo(f"wrote {out}", err=True)
    rows = [workload.row(workload.best()) for workload in Workload.all_of(profile, out, None)]
    click.echo(render(rows, output_format, "best draft length, predicted"))
