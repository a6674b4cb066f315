"""A prediction that is fixed before it is judged: a file with its hash."""

from __future__ import annotations

import datetime
from collections.abc import Mapping, Sequence
from pathlib import Path

import msgspec

from specsim.checks import SpecsimError
from specsim.files import Format, file_digest
from specsim.optimizers.workload import Workload
from specsim.profiles import read_profile

SCHEMA = "specsim-prediction"
VERSION = 1


class PredictionError(SpecsimError):
    """The file of a prediction cannot be used; the message says which and why."""


class PredictedSpeedup(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What a profile says of one draft length at one temperature.

    low, high : 95 % interval of the speedup
    formula_speedup : by the papers' formula, from the profile's alpha and c
    chosen : whether this is the draft length that ``specsim.optimize`` recommends; then the
        speedup is the one printed there, with what being chosen flatters it by taken off
    """

    temperature: float
    gamma: int
    tokens_per_call: float
    speedup: float
    low: float
    high: float
    formula_speedup: float
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
                    workload.formula(each.gamma),
                    chosen,
                )
            )
    now = datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds")
    return Predictions(SCHEMA, VERSION, now, file_digest(profile), predictions)


def fixed(profile: Path) -> tuple[Predictions, Path]:
    """What a profile predicted when this was first asked: ``NAME.prediction.json`` beside it.

    A file that is there is taken as it is, since what was predicted before is what is judged; one
    of another state of the profile is written anew.
    """
    path = profile.with_name(f"{profile.stem}.prediction.json")
    if path.is_file():
        found = _FORMAT.read(path, Predictions)
        if found.profile_sha256 == file_digest(profile):
            return found, path
    workloads = Workload.all_of(read_profile(profile), profile, None)
    _FORMAT.write(predicted_speedups(profile, workloads), path)
    return _FORMAT.read(path, Predictions), path
