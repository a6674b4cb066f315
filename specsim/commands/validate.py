"""``specsim validate``: decode for real and compare with the prediction."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import median
from typing import Any

import click

from specsim.checks import InvalidArgumentError
from specsim.commands import _load_check, _scheme_check
from specsim.commands._models import load_models, progress_bar, resumable
from specsim.commands._options import (
    Integer,
    IntegerRange,
    Number,
    Numbers,
    format_option,
    refuse_given,
)

# What a person reads; json and csv have every column.
_FOR_PEOPLE = (
    "temperature",
    "prompts",
    "gamma",
    "predicted_tokens_per_call",
    "measured_tokens_per_call",
    "exact",
    "z",
    "predicted_speedup",
    "formula_speedup",
    "measured_speedup",
    "relative_error",
    "error_acceptance",
    "error_draft",
    "error_verify",
    "error_overhead",
)


# Requests where none are asked for; a turn of all schemes is long.
_REQUESTS, _SCHEME_REQUESTS = 12, 6
# Turns of each cell.
_TURNS = 8
# Relative errors that pass where nothing is said.
_MEDIAN, _WORST, _SCHEME_MEDIAN = 0.05, 0.12, 0.08


@click.command(epilog="Example: specsim validate profile.json --gamma 1:8 --requests 12")
@click.argument("profile", type=click.Path(path_type=Path))
@click.option(
    "--gamma", type=IntegerRange(1), help="Draft lengths. [default: 1 to the profile's longest]"
)
@click.option(
    "--temperature", type=Number(0), help="One of the profile's temperatures. [default: all]"
)
@click.option(
    "--requests",
    type=Integer(2),
    help="Requests on each set of prompts, at most. [default: 12, with --scheme 6; with "
    "--synthetic segments of each cell, 8; draft lengths that are clearly slower have fewer]",
)
@click.option(
    "--prompts",
    type=click.Path(path_type=Path),
    help="The prompt file given to calibrate. [default: held-out modules]",
)
@click.option(
    "--only",
    type=click.Choice(["calibration", "unseen"]),
    help="Only the prompts of the calibration, or only unseen ones.",
)
@click.option(
    "--median-tolerance",
    type=Number(0),
    help="Largest median relative error of the speedup that passes. "
    "[default: 0.05, with --scheme 0.08]",
)
@click.option(
    "--tolerance",
    type=Number(0),
    help="Largest relative error of the speedup that passes. [default: 0.12, with --scheme none]",
)
@click.option(
    "--scheme",
    "schemes",
    help="Check decoding schemes instead: all, or names such as vertical-cascade,bild.",
)
@click.option(
    "--with",
    "others",
    multiple=True,
    metavar="ROLE=MODEL",
    help="Another model for --scheme: middle (a better drafter), masks, aligned. "
    "[default: the embedded family's, for its target]",
)
@click.option(
    "--synthetic",
    is_flag=True,
    help="Check what batches cost instead: decode them with acceptance drawn, not tested.",
)
@click.option(
    "--batch", type=IntegerRange(1), help="Batches for --synthetic. [default: as in the profile]"
)
@click.option(
    "--context", type=IntegerRange(1), help="Contexts for --synthetic. [default: as in the profile]"
)
@click.option(
    "--alpha",
    type=Numbers(0, 1),
    help="Acceptance for --synthetic, one rate or one by position. [default: as in the profile]",
)
@click.option(
    "--mode",
    type=click.Choice(["eager", "compiled"]),
    help="How models run with --synthetic. [default: compiled, if measured]",
)
@click.option("--device", default=None, help="cpu, cuda, ... [default: the profile's]")
@click.option(
    "--threads", type=Integer(1), default=None, help="CPU threads. [default: the profile's]"
)
@click.option("--trust-remote-code", is_flag=True, help="Run the code that comes with the models.")
@click.option(
    "--seed", type=Integer(), default=0, show_default=True, help="Random seed of the decoders."
)
@format_option
def command(
    profile: Path,
    output_format: str,
    median_tolerance: float | None,
    tolerance: float | None,
    schemes: str | None,
    others: tuple[str, ...],
    synthetic: bool,
    **given: Any,
) -> int:
    """Decode plainly and speculatively, interleaved, and print predicted beside measured.

    Predictions come from the profile's traces; run times are measured again meanwhile,
    since machines drift.  Exits 1 when speedups are further off than the tolerances, or counted
    calls contradict the replay.  Few requests accept more or less than predicted by chance alone:
    z says how likely that is, and more requests make it smaller.

    With --scheme, the decoders of all papers go side by side on the calibration's prompts, each
    predicted from the profile's text: runs of every model, speedup, and quality where it is not
    the target's.

    With --synthetic, batches decode with so many tokens accepted as the profile's acceptance (or
    --alpha) says, which judges the run times alone; the profile must have a grid of them
    (specsim calibrate --batch).  Then --requests is how often each cell is decoded at most.

    A run that was killed goes on where it was if it is started again with the same arguments.
    """
    from specsim.report.tables import render

    if synthetic:
        rows = _check_load(profile, schemes, others, **given)
        _load_check.show(rows, output_format)
        return _end(_load_check.judge(rows, _or(median_tolerance, _MEDIAN), _or(tolerance, _WORST)))
    refuse_given(["batch", "context", "alpha", "mode"], "goes with --synthetic")
    for name in ("batch", "context", "alpha", "mode"):
        del given[name]
    if schemes is not None:
        rows = _check_schemes(profile, schemes, others, **given)
        _scheme_check.show(rows, output_format)
        median_tolerance = _or(median_tolerance, _SCHEME_MEDIAN)
        return _end(_scheme_check.judge(rows, median_tolerance, tolerance))
    if others:
        raise InvalidArgumentError("--with goes with --scheme")
    rows = run(profile, **{**given, "requests": given["requests"] or _REQUESTS})
    shown = rows
    if output_format in ("table", "markdown"):
        shown = [{name: row[name] for name in _FOR_PEOPLE} for row in rows]
    click.echo(render(shown, output_format, "predicted and measured"))
    from calibrate.validate.speedups import check_counts

    judged = check_speedups(rows, _or(median_tolerance, _MEDIAN), _or(tolerance, _WORST))
    return _end([*check_counts(rows), *judged])


def _end(failures: Sequence[str]) -> int:
    """The exit code, once every failure is named."""
    for failure in failures:
        click.echo(f"failed: {failure}", err=True)
    return 1 if failures else 0


def _or(given: float | None, default: float) -> float:
    return default if given is None else given


def _check_load(
    path: Path,
    schemes: str | None,
    others: tuple[str, ...],
    requests: int | None,
    prompts: Path | None,
    only: str | None,
    **given: Any,
) -> list[dict[str, Any]]:
    """Rows of predicted beside measured, one per batch, context and draft length."""
    if schemes or others or prompts or only:
        raise InvalidArgumentError(
            "--scheme, --with, --prompts and --only do not go with --synthetic"
        )
    return _load_check.run(path, turns=requests or _TURNS, **given)


def _check_schemes(
    path: Path,
    schemes: str,
    others: tuple[str, ...],
    gamma: tuple[int, ...] | None,
    only: str | None,
    requests: int | None,
    **given: Any,
) -> list[dict[str, Any]]:
    """Rows of predicted beside measured, one per setting."""
    if gamma or only:
        raise InvalidArgumentError("--gamma and --only do not go with --scheme")
    from calibrate.models.pool import ROLES

    roles = dict(pair.partition("=")[::2] for pair in others)
    if not all(roles.values()) or set(roles) - set(ROLES):
        raise InvalidArgumentError(
            f"--with must be ROLE=MODEL with a role of {', '.join(ROLES)}, got {' '.join(others)}"
        )
    requests = requests or _SCHEME_REQUESTS
    return _scheme_check.run(path, schemes.split(","), roles, requests=requests, **given)


def check_speedups(
    rows: Sequence[Mapping[str, Any]], median_tolerance: float, tolerance: float
) -> list[str]:
    """Where the speedups were further off than allowed; says how far, and the cost's share of it.

    A handful of sampled or unseen requests accepts more or less than predicted by chance; that is
    part of the error of a speedup, and no reason to pass.
    """
    for name, what in (("relative_error", "the speedup"), ("cost_error", "its cost")):
        worst = max(rows, key=lambda row: abs(row[name]))
        middle = median(abs(row[name]) for row in rows)
        click.echo(
            f"relative error of {what}: median {middle:.1%}, worst {abs(worst[name]):.1%} "
            f"(temperature {worst['temperature']:g}, {worst['prompts']} prompts, "
            f"gamma {worst['gamma']})",
            err=True,
        )
    errors = [abs(row["relative_error"]) for row in rows]
    failures = []
    if median(errors) > median_tolerance:
        failures.append(f"the median error is over --median-tolerance {median_tolerance:g}")
    if max(errors) > tolerance:
        failures.append(f"the worst error is over --tolerance {tolerance:g}")
    return failures


def run(
    path: Path,
    gamma: tuple[int, ...] | None,
    temperature: float | None,
    requests: int,
    prompts: Path | None,
    only: str | None,
    seed: int,
    **given: Any,
) -> list[dict[str, Any]]:
    """Rows of predicted beside measured, for the calibration's prompts and for unseen ones.

    Requests that were decoded are kept until all are: a run that was killed goes on where it was.
    """
    from specsim.optimizers.workload import Workload
    from specsim.profiles import read_profile

    profile = read_profile(path)
    workloads = Workload.all_of(profile, path, temperature)
    gammas = gamma or tuple(range(1, profile.gamma_max + 1))
    if max(gammas) > profile.gamma_max:
        raise InvalidArgumentError(
            f"--gamma must be in [1, {profile.gamma_max}] with this profile, got {max(gammas)}"
        )
    pair = load_models(
        {
            "target": profile.target.name,
            "draft": profile.draft.name,
            "dtype": profile.software.dtype,
            **given,
            "device": given["device"] or profile.hardware.device,
            "threads": given["threads"] or profile.hardware.threads,
        }
    )
    from calibrate.validate.speedups import Check, validate

    checks = [
        Check.find(workload, name == "calibration", prompts, pair.target.tokenizer, requests)
        for workload in workloads
        for name in ((only,) if only else ("calibration", "unseen"))
    ]
    asked = ["speedups", gammas, temperature, requests, [each.prompts for each in checks], seed]
    with resumable(path, *asked, given) as folder, progress_bar() as progress:
        task = progress.add_task("decoding", total=sum(len(check.prompts) for check in checks))
        return validate(
            profile, pair, checks, gammas, seed, folder, advance=lambda: progress.advance(task)
        )
