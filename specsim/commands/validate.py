"""``specsim validate``: decode for real and compare with the prediction."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
import numpy as np

from specsim.checks import InvalidArgumentError
from specsim.commands.models import find_prompts, load_models, progress_bar
from specsim.commands.options import Number, Whole, WholeRange, format_option

if TYPE_CHECKING:
    from calibrate.models import Pair
    from calibrate.validate import Turns
    from specsim.predict.choice import Workload
    from specsim.profiles import Profile

# Chance that a correct run fails for its counts, over all rows of a table.
_FALSE_ALARM = 1e-4

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
    "acceptance_error",
    "cost_error",
)


@click.command(epilog="Example: specsim validate profile.json --gamma 1:8 --requests 12")
@click.argument("profile", type=click.Path(path_type=Path))
@click.option(
    "--gamma", type=WholeRange(1), help="Draft lengths. [default: 1 to the profile's longest]"
)
@click.option(
    "--temperature", type=Number(0), help="One of the profile's temperatures. [default: all]"
)
@click.option(
    "--requests",
    type=Whole(2),
    default=12,
    show_default=True,
    help="Requests on each set of prompts, at most.",
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
    default=0.05,
    show_default=True,
    help="Largest median relative error of the speedup that passes.",
)
@click.option(
    "--tolerance",
    type=Number(0),
    default=0.12,
    show_default=True,
    help="Largest relative error of the speedup that passes.",
)
@click.option("--device", default=None, help="cpu, cuda, ... [default: the profile's]")
@click.option(
    "--threads", type=Whole(1), default=None, help="CPU threads. [default: the profile's]"
)
@click.option("--trust-remote-code", is_flag=True, help="Run the code that comes with the models.")
@click.option(
    "--seed", type=Whole(), default=0, show_default=True, help="Random seed of the decoders."
)
@format_option
def command(
    profile: Path, output_format: str, median_tolerance: float, tolerance: float, **given: Any
) -> int:
    """Decode plainly and speculatively, in turns, and print predicted beside measured.

    Predictions come from the profile's traces; run times are measured again between the turns,
    since machines drift.  Exits 1 when speedups are further off than the tolerances, or counted
    calls contradict the replay.
    """
    from specsim.report.tables import render

    rows = validate(profile, **given)
    shown = rows
    if output_format in ("table", "markdown"):
        shown = [{name: row[name] for name in _FOR_PEOPLE} for row in rows]
    click.echo(render(shown, output_format, "predicted and measured"))
    failures = [*check_counts(rows), *check_speedups(rows, median_tolerance, tolerance)]
    for failure in failures:
        click.echo(f"failed: {failure}", err=True)
    return 1 if failures else 0


def check_counts(rows: Sequence[Mapping[str, Any]]) -> list[str]:
    """What contradicts the replay: exactly at temperature 0, statistically elsewhere."""
    from scipy.stats import t

    failures = [
        f"temperature 0, {row['prompts']} prompts, gamma {row['gamma']}: text or number of calls "
        "is not what it must be"
        for row in rows
        if row["exact"] is False
    ]
    for row in rows:
        limit = float(t.isf(_FALSE_ALARM / (2 * len(rows)), df=row["requests"] - 1))
        if abs(row["z"]) > limit:
            failures.append(
                f"temperature {row['temperature']:g}, {row['prompts']} prompts, gamma "
                f"{row['gamma']}: counted calls contradict the replay, z {row['z']:.1f} where "
                f"{limit:.1f} is allowed"
            )
    return failures


def check_speedups(
    rows: Sequence[Mapping[str, Any]], median_tolerance: float, tolerance: float
) -> list[str]:
    """Where the speedups were further off than allowed; says how far off they were."""
    errors = [abs(row["relative_error"]) for row in rows]
    worst = rows[int(np.argmax(errors))]
    click.echo(
        f"relative error of the speedup: median {np.median(errors):.1%}, worst {max(errors):.1%} "
        f"(temperature {worst['temperature']:g}, {worst['prompts']} prompts, "
        f"gamma {worst['gamma']})",
        err=True,
    )
    failures = []
    if np.median(errors) > median_tolerance:
        failures.append(f"the median error is over --median-tolerance {median_tolerance:g}")
    if max(errors) > tolerance:
        failures.append(f"the worst error is over --tolerance {tolerance:g}")
    return failures


def validate(
    path: Path,
    gamma: tuple[int, ...] | None,
    temperature: float | None,
    requests: int,
    prompts: Path | None,
    only: str | None,
    seed: int,
    **given: Any,
) -> list[dict[str, Any]]:
    """Rows of predicted beside measured, for the calibration's prompts and for unseen ones."""
    from specsim.predict.choice import Workload
    from specsim.profiles import read_profile

    profile = read_profile(path)
    workloads = Workload.all_of(profile, path, temperature)
    gammas = gamma or tuple(range(1, profile.gamma_max + 1))
    if max(gammas) > profile.gamma_max:
        raise InvalidArgumentError(
            f"--gamma must be in [1, {profile.gamma_max}] with this profile, got {max(gammas)}"
        )
    pair = _load(profile, given)
    seen = max(measured.requests for measured in profile.acceptance)
    sets = [
        (workload, name, _prompts(workload, name, prompts, pair.target.tokenizer, requests, seen))
        for workload in workloads
        for name in ((only,) if only else ("calibration", "unseen"))
    ]
    from calibrate.validate import compare, pooled_run_times

    decoded = []
    with progress_bar() as progress:
        for workload, name, chosen in sets:
            temperature = workload.measured.sampling.temperature
            title = f"temperature {temperature:g}, {name} prompts"
            advance = partial(progress.advance, progress.add_task(title, total=len(chosen)))
            decoded.append(_decode(pair, workload, chosen, gammas, seed, advance))
    run_times = pooled_run_times(decoded)
    rows: list[dict[str, Any]] = []
    for (workload, name, chosen), turns in zip(sets, decoded, strict=True):
        own = name == "calibration"
        trace = workload.trace.take(np.arange(len(chosen))) if own else workload.trace
        rows += compare(workload, trace, turns, run_times, own, name)
    return rows


def _prompts(
    workload: Workload, name: str, path: Path | None, tokenizer: Any, requests: int, seen: int
) -> list[list[int]]:
    """The calibration's own prompts, or some that it did not see (the first ``seen`` it did)."""
    from specsim.profiles import prompts_digest

    measured = workload.measured
    if name == "calibration":
        own = find_prompts(path, tokenizer, measured.prompt_tokens, measured.requests)
        if prompts_digest(own) != measured.prompts_sha256:
            raise InvalidArgumentError(
                "the prompts are not those of the calibration: give the same --prompts, "
                "or use --only unseen"
            )
        return own[:requests]
    unseen = find_prompts(path, tokenizer, measured.prompt_tokens, requests, skip=seen)
    if len(unseen) < 2:
        raise InvalidArgumentError(
            f"--prompts {path} has fewer than two prompts that calibration did not see; "
            "add some or use --only calibration"
        )
    return unseen


def _load(profile: Profile, given: dict[str, Any]) -> Pair:
    """The profile's models, refused where they are not the measured ones any more."""
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
    for measured, loaded in ((profile.target, pair.target), (profile.draft, pair.draft)):
        if measured.sha256 != loaded.description.sha256:
            raise InvalidArgumentError(f"the model {measured.name} is not the one in the profile")
    return pair


def _decode(
    pair: Pair,
    workload: Workload,
    chosen: Sequence[Sequence[int]],
    gammas: Sequence[int],
    seed: int,
    advance: Callable[[], None],
) -> Turns:
    """Decode one set of prompts under one sampling setting."""
    from calibrate.sampling import Sampling
    from calibrate.validate import decode_in_turns

    profile, sampling = workload.profile, workload.measured.sampling
    return decode_in_turns(
        pair,
        chosen,
        workload.measured.max_new_tokens,
        Sampling(sampling.temperature, sampling.top_k, sampling.top_p),
        gammas,
        sorted({row.context for row in profile.run_times}),
        profile.gamma_max,
        seed,
        advance,
    )
