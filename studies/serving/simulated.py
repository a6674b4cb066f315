"""Every setting that was measured, simulated from what was timed before its pass."""

from __future__ import annotations

import json
from dataclasses import dataclass
from functools import cached_property, partial
from pathlib import Path
from statistics import fmean
from typing import Any

import numpy as np

import specsim
from specsim.api.serving_acceptance import trace_behind
from specsim.api.serving_verdict import ServingVerdict
from specsim.checkpoint import Checkpoint
from specsim.counts.file import write_acceptance
from specsim.files import file_digest
from specsim.serving import RoundAcceptance
from specsim.serving.logs import read_log
from specsim.serving.service import Served, serve_requests
from specsim.serving.workload import serving_seed
from studies.common.study import Row
from studies.serving import settings
from studies.serving.files import LoadFiles
from studies.serving.settings import Setting
from studies.serving.steps import own_steps

# Simulations of a setting, whose acceptance is drawn.
_REPLICATIONS = 20


@dataclass(frozen=True)
class ServedPass:
    """A setting that was served once, with its simulation.

    number : of the pass
    timed : file of the steps that were timed before it
    said : what the benchmark and the server's counters say
    fitted : the simulation with steps and prompts as the load itself had them, which is no
        prediction; None where that is not known
    """

    number: int
    timed: Path
    verdict: ServingVerdict
    said: dict[str, Any]
    fitted: ServingVerdict | None

    @cached_property
    def _replications(self) -> list[Served]:
        """The same requests, each time with other luck of their drafts."""
        log = read_log(Path(self.verdict.inputs["log"]))
        return [
            serve_requests(self.verdict.setup, log.requests, seed=serving_seed(0, number), keep=())
            for number in range(_REPLICATIONS)
        ]

    @property
    def preemptions(self) -> float:
        """Predicted, in the mean over the replications."""
        return float(np.mean([each.each("preemptions").sum() for each in self._replications]))

    @property
    def rounds(self) -> tuple[float, float]:
        """Predicted and seen, without the first of each request, which comes with its prompt."""
        rounds = np.mean([(each.each("rounds") - 1).sum() for each in self._replications])
        return float(rounds), float(sum(map(len, self.said["itls"])))

    @property
    def tokens(self) -> int:
        """Behind the first of each request."""
        return sum(each - 1 for each in self.said["output_lens"])


@dataclass(frozen=True)
class ServedSetting:
    """A setting that was measured, in one pass or more."""

    setting: Setting
    passes: tuple[ServedPass, ...]

    @property
    def verdicts(self) -> list[ServingVerdict]:
        return [each.verdict for each in self.passes]

    @property
    def fitted(self) -> list[ServingVerdict]:
        """The simulations that are no predictions."""
        return [each.fitted for each in self.passes if each.fitted]

    @property
    def names(self) -> Row:
        """The columns that say which setting a row is of."""
        return {
            "setting": self.setting.name,
            "drafts": self.setting.drafting.words,
            "cache": "small" if self.setting.drafting.blocks else "large",
            "load": self.setting.rate,
            "rate": fmean(each.said["request_rate"] for each in self.passes),
        }


def served(files: LoadFiles) -> list[ServedSetting]:
    """Every setting that was measured, simulated."""
    timed = [path for path in map(files.timed, range(settings.PASSES)) if path.is_file()]
    runs = [files.run(each, number) for each in settings.SETTINGS for number in files.passes(each)]
    # A folder of temporary files that is found again, and removed, where this was killed.
    where = str(files.profile.absolute())
    checkpoint = Checkpoint.temporary("served", where, *map(file_digest, (*timed, *runs)))
    own = {
        (rate, number): _own_file(files, rate, number, checkpoint)
        for rate in settings.RATES
        for number in range(settings.PASSES)
    }
    found = [
        ServedSetting(
            setting,
            tuple(_served(files, setting, number, own[setting.rate, number]) for number in passes),
        )
        for setting in settings.SETTINGS
        if (passes := files.passes(setting))
    ]
    checkpoint.done()
    return found


def _own_file(files: LoadFiles, rate: str, number: int, checkpoint: Checkpoint) -> Path | None:
    """Where the steps of a pass's load at a rate are written to, if they are known."""
    own = own_steps(files, rate, number) if files.timed(number).is_file() else None
    if own is None:
        return None
    name = f"{rate}-{files.timed(number).name}"
    return checkpoint.keep(name, partial(write_acceptance, own))


def _served(files: LoadFiles, setting: Setting, number: int, own: Path | None) -> ServedPass:
    run, timed = files.run(setting, number), files.timed(number)
    said = json.loads(run.read_text())
    # What the load's own steps are written to has no profile beside it.
    acceptance, _ = trace_behind(timed)
    verdict, *fitted = (
        _verdict(setting, run, said, each, acceptance) for each in (timed, own) if each
    )
    return ServedPass(number, timed, verdict, said, fitted[0] if fitted else None)


def _verdict(
    setting: Setting,
    run: Path,
    said: dict[str, Any],
    timed: Path,
    acceptance: RoundAcceptance | None,
) -> ServingVerdict:
    schedule = list(setting.drafting.schedule)
    return specsim.validate_serving(
        run,
        profile=timed,
        gamma=schedule or None,
        acceptance=acceptance if schedule else None,
        engine=settings.engine(said["specsim"]["num_gpu_blocks"]),
        replications=_REPLICATIONS if schedule else None,
    )
