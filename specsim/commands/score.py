"""``specsim score``: labelled positions of held-out text, for ``specsim defer``."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from specsim.checks import InvalidArgumentError
from specsim.commands._models import load_models, pair_options, progress_bar, typed
from specsim.commands._options import Integer, Number, format_option


@click.command(
    epilog="Example: specsim score --temperature 1 --out positions.parquet && "
    "specsim defer positions.parquet --quality target"
)
@pair_options
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
    text: Path | None,
    temperature: float,
    top_k: int | None,
    top_p: float | None,
    requests: int,
    tokens: int,
    out: Path,
    output_format: str,
    **given: Any,
) -> None:
    """What both models think of text whose every next token is known: the input of defer.

    Both read the text once.  Kept are some numbers per position, never a distribution, so the
    file does not grow with the vocabulary.

    From them every deferral rule (Chow, ChowLog, Diff, DiffLog, Opt, OptLog, BildStar) can be
    judged at every threshold afterwards.  Rules that cut single tokens (TokenV1, TokenV2,
    TokenV3, TopBeta, Lossy, LossyStar; lenience l is Lossy with looseness 1 - l) are measured
    now, at a fixed grid of thresholds, deciding on probabilities at temperature 1.
    """
    from specsim.report.tables import render

    if out.suffix not in (".parquet", ".csv"):
        raise InvalidArgumentError(f"--out {out}: the name must end in .parquet or .csv")
    if not out.parent.is_dir():
        raise InvalidArgumentError(f"--out {out}: no such folder {out.parent}")
    pair = load_models(given)
    from calibrate.measure.score import ScoreError, score, write_positions
    from calibrate.models.prompts import find_prompts
    from calibrate.models.sampling import Sampling
    from specsim.frontier import read_positions

    sampling = Sampling(temperature, top_k, top_p)
    if tokens > pair.context:
        raise InvalidArgumentError(
            f"--tokens must be <= {pair.context}, the context of the models, got {tokens}"
        )
    found = find_prompts(text, pair.target.tokenizer, tokens, requests)
    texts = [words for words in found if len(words) > 1]
    if len(texts) < 2:
        # Intervals are over texts.
        raise ScoreError(f"{text} has {len(texts)} texts of at least two tokens, two are needed")
    if len(texts) < requests:
        click.echo(f"only {len(texts)} texts for {requests} requests", err=True)
    target, draft = pair.cached()
    with progress_bar() as progress:
        task = progress.add_task("score", total=len(texts))
        frame = score(target, draft, texts, sampling, lambda: progress.advance(task))
    about = {
        "target": pair.target.description.name,
        "draft": pair.draft.description.name,
        "target_sha256": pair.target.description.sha256,
        "draft_sha256": pair.draft.description.sha256,
        "temperature": temperature,
        "top_k": top_k,
        "top_p": top_p,
        "command": typed(),
    }
    write_positions(frame, out, about)
    click.echo(f"wrote {out}", err=True)
    click.echo(render(_summary(read_positions(out)), output_format, "scored"))


def _summary(positions: Any) -> dict[str, Any]:
    """Both models on their own."""
    draft, target = positions.losses("0-1")
    return {
        "requests": positions.requests,
        "positions": positions.positions,
        "target_accuracy": 1 - float(target.mean()),
        "draft_accuracy": 1 - float(draft.mean()),
        "mean_tv": float(positions.tv.mean()),
    }
