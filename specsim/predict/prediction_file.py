"""A prediction that is fixed before it is judged: a file with its hash."""

from __future__ import annotations

import datetime
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from specsim.checks import SpecsimError
from specsim.files import Format, file_digest

if TYPE_CHECKING:
    from specsim.optimizers.workload import Workload

SCHEMA = "specsim-prediction"
VERSION = 1


class PredictionError(SpecsimError):
    """The file of a prediction cannot be used; the message says which and why."""


class PredictedSpeedup(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What a profile says of one draft length at one temperature.

    low, high : 95 % interval of the speedup
    chosen : whether this is the draft length that ``specsim.optimize`` recommends; then the
        speedup is the one printed there, with what being chosen flatters it by taken off
    """

    temperature: float
    gamma: int
    tokens_per_call: float
    speedup: float
    low: float
    high: float
    chosen: bool


class Predictions(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Everything that a profile predictions.

    profile_sha256 : of the profile's file
    created : when it was written, UTC
    """

    schema: str
    version: int
    created: str
    profile_sha256: str
    predictions: list[PredictedSpeedup]

    def by_temperature(self) -> Mapping[float, Mapping[int, PredictedSpeedup]]:
        found: dict[float, dict[int, PredictedSpeedup]] = {}
        for each in self.predictions:
            found.setdefault(each.temperature, {})[each.gamma] = each
        return found


_FORMAT = Format(
    "prediction",
    "a specsim prediction",
    SCHEMA,
    VERSION,
    "remove it",
    error=PredictionError,
)


def predicted_speedups(profile: Path, workloads: Sequence[Workload]) -> Predictions:
    """What the profile says now, of every draft length at every temperature of ``workloads``."""
    predictions = []
    for workload in workloads:
        best = workload.best()
        for each in workload.predict(range(1, workload.profile.gamma_max + 1)):
            chosen = each.gamma == best.gamma
            shown = best if chosen else each
            predictions.append(
                PredictedSpeedup(
                    workload.measured.sampling.temperature,
                    each.gamma,
                    each.tokens_per_call,
                    shown.speedup,
                    shown.low,
                    shown.high,
                    chosen,
                )
            )
    now = datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds")
    return Predictions(SCHEMA, VERSION, now, file_digest(profile), predictions)


def fixed(profile: Path, workloads: Sequence[Workload]) -> tuple[Predictions, Path]:
    """The prediction of a profile as it was first written, beside it: ``NAME.prediction.json``.

    One that is there is taken as it is: what was predicted before is what is judged.  Raises
    PredictionError where it is of another profile, or lacks a temperature.
    """
    path = profile.with_name(f"{profile.stem}.prediction.json")
    if not path.exists():
        _FORMAT.write(predicted_speedups(profile, workloads), path)
    found = _FORMAT.read(path, Predictions)
    known = found.by_temperature()
    if found.profile_sha256 != file_digest(profile) or any(
        workload.measured.sampling.temperature not in known for workload in workloads
    ):
        raise PredictionError(
            f"prediction {path}: is of another state of {profile}; remove it to predict anew"
        )
    return found, path
