"""``specsim score``: labelled positions of held-out text, for ``specsim defer``."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from specsim.api.models import Models
from specsim.commands._models import models_options, sampling_options
from specsim.commands._options import PATH, Integer, Number, format_option, option, typed


@click.command(
    epilog="Example: specsim score --temperature 1 --out positions.parquet && "
    "specsim defer positions.parquet --quality target"
)
@models_options
@option(
    "--text",
    PATH,
    "Text to score: one a line, or .jsonl with the key prompt. [default: held-out modules]",
)
@option("--temperature", Number(0), "Temperature.", default=1.0)
@sampling_options
@option("--requests", Integer(2), "Texts, at most.", default=128)
@option("--tokens", Integer(2), "Tokens of a text, at most.", default=128)
@option("--out", PATH, "File to write, .parquet or .csv.", required=True)
@format_option
def command(out: Path, models: Models, output_format: str, **given: Any) -> None:
    """What both models think of text whose every next token is known: the input of defer.

    Both read the text once.  Kept are some numbers per position, never a distribution, so the
    file does not grow with the vocabulary.

    From them every deferral rule (Chow, ChowLog, Diff, DiffLog, Opt, OptLog, BildStar) can be
    judged at every threshold afterwards.  Rules that cut single tokens (TokenV1, TokenV2,
    TokenV3, TopBeta, Lossy, LossyStar; lenience l is Lossy with looseness 1 - l) are measured
    now, at a fixed grid of thresholds, deciding on probabilities at temperature 1.
    """
    from specsim.api.score import score
    from specsim.report.progress import progress_bar
    from specsim.report.tables import show

    with progress_bar() as progress:
        found = score(out, models, **given, command=typed(), progress=progress)
    click.echo(f"wrote {out}", err=True)
    show(found, output_format, "scored")
