"""A prediction that is fixed before it is judged: a file with its hash."""

from __future__ import annotations

import datetime
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Annotated

import msgspec
import numpy as np
from msgspec import Meta

from specsim.checks import InvalidArgumentError, SpecsimError
from specsim.files import Format, file_digest
from specsim.intervals import Interval, around
from specsim.optimizers.workload import Workload
from specsim.predict.elasticity import Elasticity
from specsim.profiles import Profile, read_profile

Above = Annotated[float, Meta(gt=0)]

SCHEMA = "specsim-prediction"
VERSION = 2


class PredictionError(SpecsimError):
    """The file of a prediction cannot be used; the message says which and why."""


class PredictedSpeedup(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What a profile says of one draft length at one temperature.

    At temperature 0 of the first of its requests, whose texts are known; above, where texts are
    drawn anew, of requests like all of them.

    low, high : 95 % interval of the speedup, from what the repeats of the run times and the drift
        of the machine leave open; above temperature 0 from how requests differ too
    plain_ms : of a token of plain decoding, as the profile has it
    known_low, known_high : the same interval where plain decoding takes that long, which leaves
        less of the drift open
    elasticity, elasticity_error : by how many per cent the speedup is higher where plain decoding
        takes 1 % longer, and its standard error (``specsim.predict.elasticity``)
    formula_speedup : by the papers' formula, from the profile's alpha and c
    chosen : whether this is the draft length that ``specsim.optimize`` recommends; then what being
        chosen flatters it by is taken off the speedup, as there
    """

    temperature: Annotated[float, Meta(ge=0)]
    gamma: Annotated[int, Meta(ge=0)]
    tokens_per_call: Above
    speedup: Above
    low: Above
    high: Above
    plain_ms: Above
    known_low: Above
    known_high: Above
    elasticity: float
    elasticity_error: Annotated[float, Meta(ge=0)]
    formula_speedup: Above
    chosen: bool

    def __post_init__(self) -> None:
        for name in ("", "known_"):
            low, high = (getattr(self, f"{name}{end}") for end in ("low", "high"))
            if low > high:
                raise InvalidArgumentError(
                    f"{name}low must be <= {name}high = {high:g}, got {low:g}"
                )

    def at(self, plain_ms: float) -> Interval[float]:
        """The speedup where a token of plain decoding takes so long."""
        known = Interval(self.known_low, self.speedup, self.known_high)
        moves = Elasticity(self.elasticity, self.elasticity_error)
        return moves.moved(known, plain_ms / self.plain_ms)


class Predictions(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Everything that a profile predicts.

    profile_sha256 : of the profile's file
    requests : how many of its requests, at most, are predicted at temperature 0
    created : when it was written, UTC
    """

    schema: str
    version: int
    created: str
    profile_sha256: str
    requests: Annotated[int, Meta(ge=1)]
    predictions: list[PredictedSpeedup]

    def __post_init__(self) -> None:
        seen = set()
        for at, each in enumerate(self.predictions):
            if (each.temperature, each.gamma) in seen:
                raise InvalidArgumentError(
                    f"predictions[{at}] is of temperature {each.temperature:g} and gamma "
                    f"{each.gamma}, as one before"
                )
            seen.add((each.temperature, each.gamma))

    def by_temperature(self) -> Mapping[float, Mapping[int, PredictedSpeedup]]:
        found: dict[float, dict[int, PredictedSpeedup]] = {}
        for each in self.predictions:
            found.setdefault(each.temperature, {})[each.gamma] = each
        return found

    def check_complete(self, path: Path, profile: Profile) -> None:
        """Refuse what lacks a draft length of the profile."""
        there = {(each.temperature, each.gamma) for each in self.predictions}
        for each in profile.acceptance:
            temperature = each.sampling.temperature
            for gamma in range(1, profile.gamma_max + 1):
                if (temperature, gamma) not in there:
                    raise PredictionError(
                        f"{path}: lacks temperature {temperature:g} and gamma {gamma} of its "
                        "profile; remove it to predict anew"
                    )


_FORMAT = Format(
    "prediction",
    "a specsim prediction",
    SCHEMA,
    VERSION,
    "remove it",
    error=PredictionError,
)


def predicted_speedups(profile: Path, workloads: Sequence[Workload], requests: int) -> Predictions:
    """What the profile says now, of every draft length at every temperature of ``workloads``."""
    predictions = []
    for workload in workloads:
        gammas = range(1, workload.profile.gamma_max + 1)
        best = workload.best()
        known = {each.gamma: each.speedup for each in workload.predict(range(gammas.stop))}
        greedy = workload.measured.sampling.temperature == 0
        # In half precision ties are broken otherwise, and texts differ from those of the trace.
        certain = greedy and workload.profile.software.dtype == "float32"
        count = min(requests, workload.trace.requests) if greedy else workload.trace.requests
        taken = workload.trace.take(np.arange(count))
        asked = replace(workload, trace=taken)
        drift = at_plain = workload.profile.drift
        if workload.cost.drawn is not None:  # where nothing was repeated, nothing more is known
            at_plain = workload.profile.drift_at_plain
        found = asked.predict(gammas, drift), asked.predict(gammas, at_plain)
        for each, known_plain in zip(*found, strict=True):
            chosen = each.gamma == best.gamma
            open_, known_ = (
                around(one.speedup, one.drawn_costs)
                if certain
                else Interval(one.low, one.speedup, one.high)
                for one in (each, known_plain)
            )
            left = best.speedup / known[best.gamma] if chosen else 1.0
            moves = asked.elasticity(each.gamma)
            predictions.append(
                PredictedSpeedup(
                    temperature=workload.measured.sampling.temperature,
                    gamma=each.gamma,
                    tokens_per_call=each.tokens_per_call,
                    speedup=left * each.speedup,
                    low=left * open_.low,
                    high=left * open_.high,
                    plain_ms=1e3 * asked.plain_s,
                    known_low=left * known_.low,
                    known_high=left * known_.high,
                    elasticity=moves.best,
                    elasticity_error=moves.error,
                    formula_speedup=workload.formula(each.gamma),
                    chosen=chosen,
                )
            )
    now = datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds")
    return Predictions(SCHEMA, VERSION, now, file_digest(profile), requests, predictions)


def fixed(profile: Path, requests: int) -> tuple[Predictions, Path]:
    """What a profile predicted when this was first asked: ``NAME.prediction.json`` beside it, or
    ``NAME.prediction-REQUESTS.json`` where that is of other requests.

    requests : the first so many of the profile's, at most, at temperature 0

    A file that is there is taken as it is, since what was predicted before is what is judged; one
    of another state of the profile is written anew.
    """
    digest = file_digest(profile)
    names = (f"{profile.stem}.prediction.json", f"{profile.stem}.prediction-{requests}.json")
    paths = [profile.with_name(name) for name in names]
    free = []
    for path in paths:
        found = _FORMAT.read(path, Predictions) if path.is_file() else None
        if found is None or found.profile_sha256 != digest:
            free.append(path)
        elif found.requests == requests:
            found.check_complete(path, read_profile(profile))
            return found, path
    path = free[0] if free else paths[-1]
    workloads = Workload.all_of(read_profile(profile), profile, None)
    _FORMAT.write(predicted_speedups(profile, workloads, requests), path)
    return _FORMAT.read(path, Predictions), path
