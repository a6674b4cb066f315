"""``specsim.validate_engine``: speedups of an engine, predicted before and measured afterwards."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from os import PathLike
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, ClassVar, Literal

import msgspec

from specsim.api.checked_profile import draft_lengths, resumed_warnings
from specsim.api.engine_question import asked_of, engine_check, engine_context, engine_file
from specsim.api.models import need_torch
from specsim.api.progress import Progress, quiet, steps
from specsim.api.result import Result, Row, plain
from specsim.api.validation import Tolerance
from specsim.checkpoint import Checkpoint
from specsim.checks import InvalidArgumentError, check_rising, integer
from specsim.counts.file import AcceptanceFile, read_acceptance
from specsim.extrapolation.from_file import check_temperature
from specsim.files import FileError, file_digest, write_atomically
from specsim.intervals import Interval
from specsim.predict.engine_sets import SetSpeedup
from specsim.profiles import read_profile

if TYPE_CHECKING:
    from calibrate.engine.client import Client

_TABLE = (
    *("batch", "gamma", "predicted_speedup", "predicted_low", "predicted_high"),
    *("measured_speedup", "relative_error", "inside", "measured_error"),
)


@dataclass(frozen=True)
class EngineBlindCheck:
    """Predict sets of requests from step times that were taken before, then let servers decode.

    engine : vllm
    api : its server, ``vllm serve``, or ``LLM.generate``
    temperature : one of the profile's, at which steps were timed; above 0 texts are drawn, and
        every pass asks the next requests
    gamma : draft lengths; None is 1 to the profile's longest
    batch : requests that are sent at once; None is as they were timed
    passes : over all draft lengths and batches
    starts : of the servers, each for a share of the passes: servers of one configuration that are
        started again are not equally fast
    requests : of the profile, at most; the sets begin half a set behind their middle, where timing
        began with the first
    timed : the acceptance file of ``specsim.calibrate_engine``; None is the one beside the profile
    prompts : the file that was calibrated with; None is the held-out modules
    engine_bin : the program to start; None is as in ``EngineCheck``
    engine_args : further words of ``vllm serve``: those with which steps were timed
    """

    engine: Literal["vllm"] = "vllm"
    api: Literal["serve", "generate"] = "serve"
    temperature: float = 0.0
    gamma: tuple[int, ...] | None = None
    batch: tuple[int, ...] | None = None
    passes: int = 6
    starts: int = 2
    requests: int = 32
    timed: Path | None = None
    prompts: Path | None = None
    engine_bin: Path | None = None
    drafts: Literal["greedy", "probabilistic"] = "greedy"
    engine_args: tuple[str, ...] = ()
    seed: int = 0

    def __post_init__(self) -> None:
        _ = engine_check(self)  # which refuses what no engine is started with
        integer("passes", self.passes, low=2)
        integer("starts", self.starts, low=1, high=self.passes)
        integer("requests", self.requests, low=1)
        check_rising("batch", self.batch)


@dataclass(frozen=True, kw_only=True)
class EngineVerdict(Result):
    """The prediction beside what the servers took.

    prediction : the file that it was written to before a server was started
    sha256 : of that file
    failures : what did not pass
    """

    schema: ClassVar[str] = "specsim.validate_engine"

    prediction: Path
    sha256: str
    measured: tuple[Row, ...]
    failures: tuple[str, ...]

    @property
    def passed(self) -> bool:
        return not self.failures

    @property
    def title(self) -> str:
        return "predicted before, and measured on the engine"

    def rows(self) -> list[Row]:
        return list(self.measured)

    def table(self) -> list[Row]:
        return [{name: row[name] for name in _TABLE} for row in self.measured]

    @property
    def essential(self) -> tuple[str, ...]:
        return _TABLE

    def summary(self) -> Row:
        return {
            "passed": self.passed,
            "failures": list(self.failures),
            "prediction": str(self.prediction),
            "sha256": self.sha256,
        }

    def sentences(self) -> list[str]:
        errors = [row["relative_error"] for row in self.measured]
        worst = max(self.measured, key=lambda row: abs(row["relative_error"]))
        inside = sum(row["inside"] for row in self.measured)
        own = [row["measured_error"] / row["measured_speedup"] for row in self.measured]
        counts = [(row["counted_rounds"], row["replayed_rounds"]) for row in self.measured]
        rounds = f"rounds are as replayed in {sum(a == b for a, b in counts)} of {len(counts)}"
        if self.measured[0]["temperature"]:
            off = [counted / replayed - 1 for counted, replayed in counts]
            rounds = f"rounds are {median(off):+.1%} from the replayed ones in the median of all"
        return [
            f"relative error of the speedup: median {median(map(abs, errors)):.1%}, worst "
            f"{abs(worst['relative_error']):.1%} (batch {worst['batch']}, gamma {worst['gamma']}), "
            f"mean signed {sum(errors) / len(errors):+.1%}; the measurement's own standard error "
            f"is {median(own):.1%} in the median",
            f"95 % intervals hold {inside} of {len(errors)} speedups",
            f"{rounds} settings",
            f"the prediction was fixed in {self.prediction} (sha256 {self.sha256[:12]})",
            *(f"failed: {each}" for each in self.failures),
        ]


def _check_timed(
    timed: Path, of_engine: AcceptanceFile, profile: Path, check: EngineBlindCheck
) -> None:
    """Refuse step times of other models, or of drafts that were chosen otherwise."""
    from calibrate.engine.rates import LAWS

    if file_digest(profile) not in {each.sha256 for each in of_engine.sources}:
        raise InvalidArgumentError(
            f"timed {timed} is of another profile than {profile} as it is now; time the engine "
            "again (specsim calibrate --engine)"
        )
    # At temperature 0 all of them accept alike.
    if check.temperature and of_engine.acceptance_law != LAWS[check.drafts]:
        raise InvalidArgumentError(
            f"drafts must be as in {timed}, whose acceptance law is {of_engine.acceptance_law}, "
            f"got {check.drafts}"
        )


class _Speedup(msgspec.Struct, frozen=True):
    gamma: int
    batch: int
    speedup: tuple[float, float, float]


class _Prediction(msgspec.Struct, frozen=True):
    """The file of a prediction.

    requests : that it is of, of the profile's
    starts : of the servers, over which speedups are means; None in files of before, whose speedups
        are of servers that are started once
    """

    created: str
    profile_sha256: str
    timed_sha256: str
    requests: int
    speedups: list[_Speedup]
    starts: int | None = None

    @classmethod
    def of(
        cls,
        predictions: Sequence[SetSpeedup],
        profile_sha256: str,
        timed_sha256: str,
        requests: int,
        starts: int,
        created: str,
    ) -> _Prediction:
        speedups = [
            _Speedup(each.gamma, each.batch, (*vars(each.speedup).values(),))
            for each in predictions
        ]
        return cls(created, profile_sha256, timed_sha256, requests, speedups, starts)

    def fixed(self, file: Path) -> list[SetSpeedup]:
        """What was predicted when this was first asked, of the same profile, step times and
        requests: what was said before is what is judged, and what was not said is added.

        Raises FileError where it was of another number of starts.
        """
        told: dict[tuple[int, int], _Speedup] = {}
        created = self.created
        if file.is_file():
            try:
                before = msgspec.json.decode(file.read_bytes(), type=_Prediction)
            except (OSError, ValueError, RecursionError) as error:
                raise FileError(
                    f"{file}: what was predicted before cannot be read ({error}); move it away "
                    "and predict anew"
                ) from None
            if before._asked() == self._asked():
                if before.starts not in (None, self.starts):
                    raise FileError(
                        f"{file}: what was predicted before is of {before.starts} starts, got "
                        f"{self.starts}; ask for as many, or move it away and predict anew"
                    )
                told = {(each.gamma, each.batch): each for each in before.speedups}
                created = before.created
        found = {(each.gamma, each.batch): each for each in self.speedups} | told
        if found.keys() != told.keys():
            every = msgspec.structs.replace(self, created=created, speedups=[*found.values()])
            text = msgspec.json.format(msgspec.json.encode(every), indent=2)
            write_atomically(file, text + b"\n")
        kept = [found[each.gamma, each.batch] for each in self.speedups]
        return [SetSpeedup(each.gamma, each.batch, Interval(*each.speedup)) for each in kept]

    def _asked(self) -> tuple[str, str, int]:
        return self.profile_sha256, self.timed_sha256, self.requests


def validate_engine(
    profile: str | PathLike[str],
    check: EngineBlindCheck = EngineBlindCheck(),
    tolerance: Tolerance | None = None,
    *,
    trust_remote_code: bool = False,
    progress: Progress = quiet,
) -> EngineVerdict:
    """Fix the prediction of an engine's speedups, then start its servers and measure.

    The prediction is of the profile's trace and of step times (``specsim.calibrate_engine``), and
    is written beside the profile before a server is started; one that is there, of the same
    profile, step times and requests, is judged as it stands if it is of as many starts.  One server
    for each draft length and one without run side by side, and are started anew between passes; a
    speedup is of seconds from sending a set of requests to the last answer, in ratios of one pass.
    A run that was killed goes on with the passes that are done.

    tolerance : largest errors that pass; by default a setting fails where prediction and
        measurement are further apart than the intervals of both explain
    trust_remote_code : run the code that comes with the models here
    """
    path = Path(profile)
    timed = check.timed or engine_file(path, check)
    if not timed.is_file():
        raise InvalidArgumentError(
            f"timed {timed}: no such file; measure the engine's step times first "
            "(specsim calibrate --engine, with the same api and temperature)"
        )
    need_torch()
    content, of_engine = read_profile(path), read_acceptance(timed)
    check_temperature(timed, of_engine, check.temperature)
    _check_timed(timed, of_engine, path, check)
    steps_of = of_engine.step_times()
    known = sorted({round(each.batch) for each in steps_of})
    batches = check.batch or tuple(known)
    for batch in batches:
        integer(f"batch (with {timed})", batch, low=known[0], high=known[-1])
    gammas = draft_lengths(check.gamma, content.gamma_max)
    asked = asked_of(content, path, check, trust_remote_code)[0].first(check.requests)
    _ = engine_context(asked, content, check)
    from calibrate.engine.rounds import drawn_rounds
    from calibrate.engine.server import engine_told_apart_by, find_program
    from calibrate.engine.servers import Servers
    from calibrate.engine.sets import begun_seed, timed_by_starts
    from calibrate.models.busy import Watch
    from calibrate.validate.engine_blind import (
        checked_sets,
        judged,
        predicted,
        predicted_of_draws,
        sets_of_pass,
    )
    from calibrate.validate.findings import beyond

    start = len(asked.requests) // 2
    streamed = tuple(of_engine.streamed_steps())
    if asked.check.sampling.greedy:
        sets = checked_sets(asked, batches, start)
        predictions = predicted(steps_of, asked, sets, gammas, streamed, check.starts)
    else:
        predictions = predicted_of_draws(
            steps_of, asked, batches, gammas, check.seed, streamed, check.starts
        )
    file = engine_file(path, check, ".predicted")
    now = datetime.now(UTC).isoformat(timespec="seconds")
    found = _Prediction.of(
        predictions, file_digest(path), file_digest(timed), len(asked.requests), check.starts, now
    )
    predictions = found.fixed(file)
    sha256 = file_digest(file)
    here = engine_told_apart_by(find_program(check.engine_bin))
    # Not of the whole file, to which a check of other draft lengths adds.
    read = file_digest(path), file_digest(timed), plain(predictions)
    checkpoint = Checkpoint.temporary("validate_engine", plain(check), *read, here)
    resumed = resumed_warnings(checkpoint)
    watch = Watch(checkpoint, progress, threads=1)
    advance = steps(watch.progress, "decoding", check.passes)

    def clients() -> AbstractContextManager[Mapping[int, Client]]:
        seed = begun_seed(check.seed, check.passes, checkpoint, check=True)
        watch.progress("starting engines", 0, len(gammas) + 1)
        servers = Servers.of(content, engine_check(check), (0, *gammas), max(batches), seed)
        return servers.clients()

    passes = timed_by_starts(
        clients,
        asked,
        partial(sets_of_pass, asked, batches, start),
        check.passes,
        check.starts,
        check.seed,
        checkpoint,
        lambda repeat: advance(),
        watch.look_if_due,
    )
    warnings = (*resumed, *watch.warnings())
    rounds = {gamma: drawn_rounds(asked, gamma, check.seed).mean(axis=0) for gamma in gammas}
    rows = [
        {"temperature": check.temperature, **row} for row in judged(predictions, passes, rounds)
    ]
    checkpoint.done()
    return EngineVerdict(
        prediction=file,
        sha256=sha256,
        measured=tuple(rows),
        failures=tuple(beyond(rows, tolerance)),
        inputs={"profile": str(path), "check": check, "tolerance": tolerance},
        warnings=warnings,
    )
