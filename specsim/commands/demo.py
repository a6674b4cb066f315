"""``specsim demo``: the whole loop on the embedded models."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Any

import click

from specsim.commands._options import Integer, format_option
from specsim.files import make_folder

if TYPE_CHECKING:
    from specsim.predict.measured import MeasuredPrediction

# Greedy text replays exactly, so few requests settle it; sampled text needs more.
_REQUESTS = {0.0: 5, 1.0: 17}
_MAX_NEW_TOKENS = 96

_SHOWN = (
    "temperature",
    "gamma",
    "predicted_tokens_per_call",
    "measured_tokens_per_call",
    "predicted_calls",
    "measured_calls",
    "exact",
    "predicted_speedup",
    "formula_speedup",
    "measured_speedup",
    "relative_error",
)


@click.command(epilog="Example: specsim demo --out demo")
@click.option(
    "--out",
    type=click.Path(path_type=Path),
    default="specsim-demo",
    show_default=True,
    help="Folder for the profile, its traces and the figure.",
)
@click.option("--draft", default="embedded/small", show_default=True, help="Member that drafts.")
@click.option("--seed", type=Integer(), default=0, show_default=True, help="Random seed.")
@format_option
def command(out: Path, draft: str, seed: int, output_format: str) -> None:
    """Measure the embedded pair, predict the best draft length, and check it by real decoding.

    Takes about three minutes on two cores.  Writes the profile, its traces and a figure.
    """
    from specsim.commands._models import prepare, progress_bar, typed
    from specsim.commands.validate import run
    from specsim.optimizers.workload import Workload
    from specsim.report.plots import save, speedup_by_gamma
    from specsim.report.tables import render, to_json

    make_folder(out)
    path = out / "profile.json"
    prepared = prepare(
        {
            "target": "embedded/target",
            "draft": draft,
            "device": None,
            # Half precision ties at every 200th token; then greedy text is not plain text.
            "dtype": "float32",
            "threads": None,
            "trust_remote_code": False,
            "prompts": None,
            "temperature": tuple(_REQUESTS),
            "top_k": None,
            "top_p": None,
            "requests": tuple(_REQUESTS.values()),
            "prompt_tokens": 64,
            "max_new_tokens": _MAX_NEW_TOKENS,
            "gamma_max": 8,
            "repeats": 5,
            "seed": seed,
        }
    )
    from calibrate.measure.calibration import calibrate

    with progress_bar() as progress:
        profile = calibrate(prepared.pair, prepared.settings, path, typed(), progress)
    chosen = {
        workload.measured.sampling.temperature: workload.best()
        for workload in Workload.all_of(profile, path, None)
    }
    rows = run(
        path,
        gamma=None,
        temperature=None,
        requests=max(_REQUESTS.values()),
        prompts=None,
        only="calibration",
        seed=seed,
        device=None,
        threads=None,
        trust_remote_code=False,
    )
    figure = out / "speedup.png"
    save(speedup_by_gamma(rows, f"{draft} drafts for embedded/target"), figure)
    verdicts = [_verdict(draft, *choice, rows) for choice in chosen.items()]
    verdicts.append(_accuracy(rows))
    if output_format == "json":
        gammas = [
            {"temperature": temperature, "gamma": best.gamma, "predicted_speedup": best.speedup}
            for temperature, best in chosen.items()
        ]
        click.echo(to_json({"rows": rows, "chosen_gamma": gammas, "verdict": verdicts}))
        return
    shown = [{name: row[name] for name in _SHOWN} for row in rows]
    click.echo(render(shown, output_format, "predicted and measured"))
    for verdict in verdicts:
        click.echo(verdict, err=output_format != "table")
    click.echo(f"figure: {figure}   profile: {path}", err=True)


def _accuracy(rows: Sequence[Mapping[str, Any]]) -> str:
    """How far off the speedups were, ours and the papers' formula's."""
    ours = [abs(row["relative_error"]) for row in rows]
    papers = [abs(row["formula_speedup"] / row["measured_speedup"] - 1) for row in rows]
    return (
        f"Predicted speedups were off by {median(ours):.1%} (median) and {max(ours):.1%} (worst); "
        f"the papers' formula by {median(papers):.1%} and {max(papers):.1%}."
    )


def _verdict(
    draft: str,
    temperature: float,
    best: MeasuredPrediction,
    rows: Sequence[Mapping[str, Any]],
) -> str:
    """The decision and how it turned out, in a sentence."""
    if best.gamma == 0:
        return f"Temperature {temperature:g}: leave speculation off, {draft} does not pay here."
    row = next(
        row for row in rows if (row["temperature"], row["gamma"]) == (temperature, best.gamma)
    )
    return (
        f"Temperature {temperature:g}: let {draft} draft {best.gamma}; predicted "
        f"{best.speedup:.2f} times plain decoding before the check, measured "
        f"{row['measured_speedup']:.2f} ({row['measured_low']:.2f} to {row['measured_high']:.2f})."
    )
