"""``specsim read``: what inference engines counted of their drafts."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from specsim.commands._options import PATH, Number, format_option, option
from specsim.engines.drafting import METHODS


@click.command(
    epilog="Examples: specsim read before.txt after.txt --out acceptance.json, two scrapes as "
    "curl -s localhost:8000/metrics gives them; vllm serve ... | tee log, then "
    "specsim read log --temperature 0; specsim read k0.json k3.json, of vllm bench serve"
)
@click.argument("files", nargs=-1, required=True, metavar="FILE...")
@option("--engine", str, "What wrote the files. [default: by their content]")
@option("--temperature", Number(0), "Temperature of the requests; engines do not print it.")
@option(
    "--method",
    click.Choice(METHODS),
    "Where the drafts came from, which tells how acceptance goes on at other draft lengths: "
    f"{', '.join(METHODS)}.",
    metavar="METHOD",
)
@option("--out", PATH, "Acceptance file to write, for optimize, evaluate and validate.")
@option("--speculation-profile", PATH, "speculation_profile.json to write, NVIDIA's; of one K.")
@format_option
def command(
    files: tuple[str, ...],
    out: Path | None,
    speculation_profile: Path | None,
    output_format: str,
    **given: Any,
) -> None:
    """Rounds, draft tokens and acceptance by position, from what an engine prints.

    FILE is a log, a scrape of /metrics, the result of a benchmark, or counts of requests; - is
    standard input.  Which engine and which form is told by the content.  Several files are pooled
    by what was counted, draft lengths apart; two scrapes of one server are differenced.

    Marginal: the share of all rounds whose first drafts were accepted up to there.  Conditional:
    of the rounds that got to the position before.  Intervals are 95 %, rounds taken as
    independent.  What the numbers cannot tell is on stderr.
    """
    from specsim import read
    from specsim.report.tables import show

    found = read(*files, out=out, speculation_profile=speculation_profile, **given)
    show(found, output_format, f"{found.engine}: what was counted")
    for written in (out, speculation_profile):
        if written is not None:
            click.echo(f"wrote {written}", err=True)
