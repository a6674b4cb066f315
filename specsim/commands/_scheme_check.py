"""``specsim validate --scheme``: which settings, and the table of what became of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import median
from typing import Any

import click

from specsim.checks import InvalidArgumentError
from specsim.commands._models import load_models, progress_bar, resumable

# What a person reads; json and csv have every column.
_FOR_PEOPLE = (
    "temperature",
    "scheme",
    "setting",
    "law_tokens_per_call",
    "predicted_tokens_per_call",
    "measured_tokens_per_call",
    "exact",
    "runs",
    "predicted_speedup",
    "measured_speedup",
    "relative_error",
    "log_loss",
    "accuracy",
    "agreement",
)


def run(
    path: Path,
    schemes: Sequence[str],
    others: Mapping[str, str],
    temperature: float | None,
    requests: int,
    prompts: Path | None,
    seed: int,
    **given: Any,
) -> list[dict[str, Any]]:
    """Rows of predicted beside measured, one per setting, on the calibration's prompts.

    Requests that were decoded are kept until all are: a run that was killed goes on where it was.
    """
    from specsim.optimizers.workload import Workload
    from specsim.profiles import read_profile
    from specsim.schemes import SCHEMES, scheme_name

    unknown = sorted(set(schemes) - {*SCHEMES, "all"})
    if unknown:
        raise InvalidArgumentError(
            f"--scheme must be all or some of {', '.join(SCHEMES)}, got {', '.join(unknown)}"
        )
    profile = read_profile(path)
    workloads = Workload.all_of(profile, path, temperature)
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
    from calibrate.models.pool import load_pool
    from calibrate.validate.catalogue import settings
    from calibrate.validate.schemes import validate_schemes
    from calibrate.validate.speedups import Check, check_models

    check_models(profile, pair)
    pool = load_pool(pair, others, given["trust_remote_code"])
    checks = []
    for workload in workloads:
        check = Check.find(workload, True, prompts, pair.target.tokenizer, requests)
        listed = settings(check.sampling)
        chosen = [each for each in listed if "all" in schemes or scheme_name(each) in schemes]
        lacking = sorted({name for each in chosen for name in each.models} - pool.names)
        if lacking:
            click.echo(f"left out: settings that need {', '.join(lacking)}; see --with", err=True)
        checks.append((check, [each for each in chosen if pool.names.issuperset(each.models)]))
    if not any(chosen for _, chosen in checks):
        raise InvalidArgumentError(
            f"--scheme {','.join(schemes)}: nothing of it runs at these temperatures with the "
            "models at hand; see --with"
        )
    contexts = sorted({row.context for row in profile.run_times})
    asked = ["schemes", schemes, pool.digests, temperature, requests, seed, given]
    with resumable(path, *asked) as folder, progress_bar() as progress:
        tasks = {
            "predicting": progress.add_task("predicting", total=sum(len(c) for _, c in checks)),
            "decoding": progress.add_task(
                "decoding", total=sum(len(check.prompts) for check, _ in checks)
            ),
        }
        return validate_schemes(
            pool,
            checks,
            contexts,
            pair.target.end_of_text,
            seed,
            folder,
            advance=lambda stage: progress.advance(tasks[stage]),
        )


def show(rows: Sequence[Mapping[str, Any]], output_format: str) -> None:
    """The table on stdout."""
    from specsim.report.tables import render

    if output_format in ("table", "markdown"):
        shown = [{**row, "runs": _runs(row)} for row in rows]
        rows = [{name: row[name] for name in _FOR_PEOPLE} for row in shown]
    elif output_format == "csv":
        rows = [_flat(row) for row in rows]
    click.echo(render(rows, output_format, "predicted and measured; runs are per 100 tokens"))


def _runs(row: Mapping[str, Any]) -> str:
    """Runs of each model, predicted / measured."""
    pairs = zip(row["predicted_runs"].items(), row["measured_runs"].values(), strict=True)
    return ", ".join(
        f"{model} {expected:.0f} / {counted:.0f}" for (model, expected), counted in pairs
    )


def _flat(row: Mapping[str, Any]) -> dict[str, Any]:
    """Runs by model as columns' text, since a CSV cell holds one value."""
    return {
        name: " ".join(f"{model}={number:.6g}" for model, number in value.items())
        if isinstance(value, Mapping)
        else value
        for name, value in row.items()
    }


def judge(
    rows: Sequence[Mapping[str, Any]], median_tolerance: float, tolerance: float | None
) -> list[str]:
    """What failed; says on stderr how close the predictions were."""
    from calibrate.validate.schemes import contradictions

    errors = [abs(row["relative_error"]) for row in rows]
    kept = sum(row["counts_as_predicted"] for row in rows)
    exact = [row["exact"] for row in rows if row["exact"] is not None]
    click.echo(
        f"runs as predicted, within 3 % or two standard errors: {kept} of {len(rows)} settings; "
        f"at temperature 0 every target call as predicted: {sum(exact)} of {len(exact)}; "
        f"relative error of the speedup: median {median(errors):.1%}, worst {max(errors):.1%}",
        err=True,
    )
    failures = contradictions(rows)
    if median(errors) > median_tolerance:
        failures.append(f"the median error is over --median-tolerance {median_tolerance:g}")
    if tolerance is not None and max(errors) > tolerance:
        failures.append(f"the worst error is over --tolerance {tolerance:g}")
    return failures
