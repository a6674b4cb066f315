"""How close an engine gets to the peaks: shipped fits, and fits to what a user measured.

A fit says which shares of the data sheet an engine reaches, what a layer and a step cost besides,
and how far off a speedup is that was priced with it.  Shipped ones are rows of
``configs/fits.csv``, written by ``benchmarks/shipped_fits.py`` from data whose source they name.
"""

from __future__ import annotations

import csv
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import median

import numpy as np

from specsim.checks import InvalidArgumentError, UnsupportedError
from specsim.counts.file import AcceptanceFile, is_acceptance, read_acceptance
from specsim.counts.steps import StepTime
from specsim.deployment.deployment import Deployment, HostTime
from specsim.deployment.drafters import Drafter, DraftModel
from specsim.deployment.heads import draft_shapes
from specsim.hardware import (
    ACCELERATORS,
    Accelerator,
    Shape,
    accelerator_of,
    lookup,
    roofline,
)
from specsim.hardware.roofline import Efficiency, Roofline
from specsim.hardware.timed_models import timed_shape
from specsim.profiles import Profile, Role, is_profile, read_profile

# What ``vllm bench forward`` is recognised as, which times runs without the host's work.
_FORWARDS = "vllm bench forward"
# What engines name drafters that draft in one run, which are one kind here.
_PARALLEL = dict.fromkeys(("dflash", "p_eagle", "pard"), "parallel")
# Parameters of a checkpoint and of its shape differ by norms and ties at most.
_SAME = 0.05


@dataclass(frozen=True)
class Fit:
    """How close an engine gets to the peaks, from measurements.

    name : of the row, or of the file
    routing_exponent : as in ``Deployment``; None where the fit tells nothing of it
    error : half of a 95 % interval of a speedup at these costs, as a share of it, from what the fit
        had not seen; None: unknown
    source : what it was fitted to
    note : what to know of it; empty: nothing
    engine : with its version and accelerator; empty where it is the user's own deployment
    accelerator, model : what ran on what; empty likewise
    """

    name: str
    efficiency: Efficiency
    host: HostTime
    routing_exponent: float | None
    error: float | None
    source: str
    note: str = ""
    engine: str = ""
    accelerator: str = ""
    model: str = ""


def shipped_fit(name: str) -> Fit:
    """A row of ``configs/fits.csv``, in any case; raises UnsupportedError with near misses."""
    return lookup.find("fit", name, SHIPPED, {}, "or a profile or an acceptance file")


def fitted(deployment: Deployment, fit: str | Path | Fit) -> Deployment:
    """The deployment as an engine runs it: by a fit, the name of one, or a file to fit to.

    A file is a profile with a grid of batches, or an acceptance file with step times.
    """
    found = fit if isinstance(fit, Fit) else _found(deployment, fit)
    said = "; ".join(filter(None, (found.source, found.note)))
    exponent = found.routing_exponent
    return replace(
        deployment,
        efficiency=found.efficiency,
        host=found.host,
        routing_exponent=deployment.routing_exponent if exponent is None else exponent,
        fit=f"{found.name} ({found.engine})" if found.engine else found.name,
        fitted_on=found.accelerator or deployment.card.name,
        fit_error=found.error,
        fit_doubts=(f"fit {found.name} is {said}",),
    )


def fit_steps(
    deployment: Deployment, drafter: Drafter | None, steps: Sequence[StepTime], whole: bool = True
) -> Fit:
    """To the seconds of an engine's steps with one drafter (``step_fit``).

    whole : whether host time is in them
    Steps with drafts need the drafter; those of unknown draft length are left out.
    """
    from specsim.deployment import step_fit

    used = [each for each in steps if each.gamma == 0 or (each.gamma and drafter)]
    found = step_fit.fit_steps([step_fit.TimedSteps(deployment, drafter, used, whole)])
    notes = [_timed(used)]
    if left_out := len(steps) - len(used):
        notes.append(f"{left_out} steps are left out, whose draft length or drafter is not named")
    if any(each.context is None for each in used):
        notes.append(
            f"steps without a context are taken to have {step_fit.USUAL_CONTEXT} tokens in the "
            "cache"
        )
    if not whole:
        notes.append("only forward runs were timed, so host time is missing (--overhead-us)")
    return Fit(
        name="steps",
        efficiency=found.efficiency,
        host=found.host,
        routing_exponent=None,
        error=found.error,
        source=f"fitted to {len(used)} timed step{'s' * (len(used) > 1)}",
        note="; ".join(notes),
    )


def fit_profile(deployment: Deployment, profile: Profile) -> Fit:
    """To the batch grid of a profile: run times of its target, of its draft where its shape is
    known, and the host time of its blocks.

    The profile may be of other models than the deployment's if it holds their config.json, as one
    of shapes does.  Raises UnsupportedError where it does not, and for one that was measured on a
    CPU where the deployment is not on that one.
    """
    from specsim.hardware.roofline_fit import fit_efficiency

    runs, measured, layers = _grid(deployment, profile)
    efficiency = fit_efficiency(runs, measured, layers)
    mode = min(row.mode for row in profile.grid)
    timed = [row for row in profile.batch_overhead if row.mode == mode]
    plain = [each for row in timed if not row.gamma for each in row.seconds]
    drafted = [each for row in timed if row.gamma for each in row.seconds]
    step_s = median(plain) if plain else 0.0
    round_s = max(median(drafted) - step_s, 0.0) if drafted else 0.0
    device = profile.hardware.device_name
    timed_on = accelerator_of(device)
    rows = [row for row in profile.grid if row.mode == mode]
    cells = {
        "batch": sorted({row.batch for row in rows}),
        "context": sorted({row.context for row in rows}),
    }
    notes = [_within("runs", cells)]
    if not timed:
        notes.append("the profile has no host time of batches")
    if timed_on is None:
        notes.append(
            f"no data sheet is known of {device}, which is taken for {deployment.card.name}"
        )
    return Fit(
        name="profile",
        efficiency=efficiency,
        host=HostTime(step_s, round_s),
        routing_exponent=None,
        error=_grid_error(runs, measured, layers),
        source=f"fitted to {len(runs)} runs of {profile.target.name} on {device}, {mode}",
        note="; ".join(notes),
        accelerator="" if timed_on is None else timed_on.name,
    )


def _found(deployment: Deployment, fit: str | Path) -> Fit:
    path = Path(fit)
    if not path.is_file() and not lookup.is_file_name(str(fit)):
        return shipped_fit(str(fit))
    if is_acceptance(path):
        file = read_acceptance(path)
        steps = file.step_times()
        if not steps:
            raise UnsupportedError(
                f"fit {path} has no step times; read benchmarks of the engine with and without "
                "drafts"
            )
        with_host = not all(
            _FORWARDS in what for source in file.sources for what in source.recognised
        )
        found = fit_steps(deployment, _drafter_of(deployment, file), steps, with_host)
        return replace(found, source=f"{found.source} of {file.engine}", name=str(path))
    if path.is_file() and not is_profile(path):
        raise InvalidArgumentError(
            f"fit {path} is neither a profile of specsim calibrate nor an acceptance file of "
            "specsim read"
        )
    return replace(fit_profile(deployment, read_profile(path)), name=str(path))


def _drafter_of(deployment: Deployment, file: AcceptanceFile) -> Drafter | None:
    """The one that was read of: where the file does not tell, the first; where it tells another,
    none, whose steps with drafts say nothing here.
    """
    if file.method is None:
        return next(iter(deployment.drafters), None)
    method = _PARALLEL.get(file.method, file.method)
    return next((each for each in deployment.drafters if each.method == method), None)


def _timed(steps: Sequence[StepTime]) -> str:
    """Between which sizes steps were timed."""
    batches = sorted({each.batch for each in steps})
    gammas = sorted({each.gamma or 0 for each in steps})
    if not batches:
        return "no steps"
    return _within("steps", {"batch": batches, "draft length": gammas})


def _within(what: str, sizes: Mapping[str, Sequence[float]]) -> str:
    """Between which sizes something was timed; those rise."""
    said = [
        f"{name} {each[0]:g}" if each[0] == each[-1] else f"{name} {each[0]:g} to {each[-1]:g}"
        for name, each in sizes.items()
    ]
    return f"{what} were timed at {' and '.join(said)}, beyond which it extrapolates"


def _grid(deployment: Deployment, profile: Profile) -> tuple[list[Roofline], np.ndarray, list[int]]:
    """Runs of the grid at the peaks, their measured seconds, and layers of their models."""
    from specsim.hardware.run_time_fit import fits

    if not profile.grid:
        raise UnsupportedError(
            "fit: the profile has no run times of batches (its grid is empty): measure them with "
            "specsim calibrate --batch"
        )
    mode = min(row.mode for row in profile.grid)  # "compiled" sorts before "eager"
    # As published: what a checkpoint was timed in is not what it is deployed in.
    published = replace(deployment, dtype=None, kv_dtype=None).shape
    draft = next((each for each in deployment.drafters if isinstance(each, DraftModel)), None)
    drafts = None if draft is None else draft_shapes(draft, published, 1)
    shapes = {
        "target": _timed_shape(profile, "target", published),
        "draft": _timed_shape(profile, "draft", None if drafts is None else drafts.first),
    }
    if shapes["target"] is None:
        raise UnsupportedError(
            f"fit: the profile has run times of {profile.target.name} "
            f"({profile.target.parameters:,} parameters), and the deployment's target has "
            f"{deployment.shape.parameters:,}: a profile that does not hold the config.json of its "
            "models is a fit of those alone"
        )
    card = _timed_card(deployment, profile)
    runs, seconds, layers = [], [], []
    for (_, kind), times in fits(row for row in profile.grid if row.mode == mode).items():
        shape = shapes["target" if kind == "target" else "draft"]
        if shape is None:
            continue
        for point in times.points:
            runs.append(roofline(shape, card, point.tokens, point.batch, point.context))
            seconds.append(point.seconds)
            layers.append(len(shape.layers))
    return runs, np.array(seconds), layers


def _timed_card(deployment: Deployment, profile: Profile) -> Accelerator:
    """What the profile was timed on; one whose data sheet nobody knows is taken for the deployed
    card, unless it is no accelerator at all.
    """
    timed = profile.hardware
    card = accelerator_of(timed.device_name)
    if card is None and timed.device == "cpu" and deployment.card.name in ACCELERATORS:
        raise UnsupportedError(
            f"fit: the profile was measured on a CPU ({timed.device_name}), which says nothing of "
            f"{deployment.card.name}; measure on that, or describe the CPU in a file of its own "
            "(--accelerator FILE)"
        )
    return card or deployment.card


def _timed_shape(profile: Profile, role: Role, published: Shape | None) -> Shape | None:
    """The shape of a model that was timed: its own, or the deployed one where that is the same.

    A profile of a checkpoint holds no config.json, and tells its model by the parameters.
    """
    timed = profile.target if role == "target" else profile.draft
    if timed.config is not None:
        return timed_shape(profile, role)
    if published is None or abs(published.parameters / timed.parameters - 1) > _SAME:
        return None
    return published.at(replace(published.precision, dtype=profile.software.dtype))


def _grid_error(
    runs: Sequence[Roofline], measured: np.ndarray, layers: Sequence[int]
) -> float | None:
    """Half of a 95 % interval of a ratio of two runs, each priced by a fit to four fifths."""
    from specsim.hardware.roofline_fit import fit_efficiency, roofline_s

    folds = 5
    if len(runs) < 2 * folds:
        return None
    off = np.zeros(len(runs))
    for fold in range(folds):
        held = np.arange(len(runs)) % folds == fold
        known = [at for at in range(len(runs)) if not held[at]]
        found = fit_efficiency(
            [runs[at] for at in known], measured[known], [layers[at] for at in known]
        )
        off += np.where(held, np.log(roofline_s(runs, found, layers) / measured), 0.0)
    return float(np.expm1(1.96 * np.sqrt(2.0 * np.mean(off**2))))


def _table() -> dict[str, Fit]:
    """The rows of ``configs/fits.csv``."""

    def figure(word: str) -> float | None:
        return float(word) if word else None

    found = {}
    for row in csv.DictReader(lookup.table_text("fits.csv").splitlines()):
        efficiency = Efficiency(
            compute=float(row["compute"]),
            memory=float(row["memory"]),
            layer_s=1e-6 * float(row["layer_us"]),
            graph_tokens=int(row["graph_tokens"]) if row["graph_tokens"] else None,
            eager_layer_s=1e-6 * float(row["eager_layer_us"] or 0),
        )
        host = HostTime(1e-6 * float(row["overhead_us"]), 1e-6 * float(row["round_us"]))
        found[row["name"]] = Fit(
            name=row["name"],
            efficiency=efficiency,
            host=host,
            routing_exponent=figure(row["routing_exponent"]),
            error=figure(row["error"]),
            source=f"of {row['model']}, {row['source']}",
            note=row["note"],
            engine=f"{row['engine']} {row['version']} on {row['accelerator']}",
            accelerator=row["accelerator"],
            model=row["model"],
        )
    return found


SHIPPED = _table()
