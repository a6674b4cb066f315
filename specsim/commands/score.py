"""``specsim score``: labelled positions of held-out text, for ``specsim defer``."""

from __future__ import annotations

from pathlib import Path

import click

from specsim.api.models import Models
from specsim.commands._models import models_options, typed
from specsim.commands._options import Integer, Number, format_option


@click.command(
    epilog="Example: specsim score --temperature 1 --out positions.parquet && "
    "specsim defer positions.parquet --quality target"
)
@models_options
@click.option(
    "--text",
    type=click.Path(path_type=Path),
    help="Text to score: one a line, or .jsonl with the key prompt. [default: held-out modules]",
)
@click.option("--temperature", type=Number(0), default=1.0, show_default=True, help="Temperature.")
@click.option("--top-k", type=Integer(1), help="Keep the k most probable tokens.")
@click.option("--top-p", type=Number(0, 1), help="Keep the most probable tokens up to p.")
@click.option("--requests", type=Integer(1), default=128, show_default=True, help="Texts, at most.")
@click.option(
    "--tokens", type=Integer(2), default=128, show_default=True, help="Tokens of a text, at most."
)
@click.option(
    "--out",
    type=click.Path(path_type=Path),
    required=True,
    help="File to write, .parquet or .csv.",
)
@format_option
def command(
    models: Models,
    text: Path | None,
    temperature: float,
    top_k: int | None,
    top_p: float | None,
    requests: int,
    tokens: int,
    out: Path,
    output_format: str,
) -> None:
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
        found = score(
            out,
            models,
            text,
            temperature,
            top_k,
            top_p,
            requests,
            tokens,
            command=typed(),
            progress=progress,
        )
    click.echo(f"wrote {out}", err=True)
    show(found, output_format, "scored")
