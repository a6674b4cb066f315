"""Everything that the studies read of a pair of models, measured by specsim's own calls."""

from __future__ import annotations

from pathlib import Path

import specsim
from specsim.api.answering import answering
from specsim.api.progress import Progress, quiet
from specsim.api.validation import AnyCheck
from specsim.checkpoint import Checkpoint
from specsim.files import check_replaceable, write_atomically
from specsim.profiles import Profile
from studies.common.measured import SCORED, Measured

# The embedded family, batches included: 448 tokens of context are what it can read.
_BATCHES = specsim.Batches(context=(112, 448))
_MEASUREMENT = specsim.Measurement(repeats=60)
# Requests decoded, and rounds of a batch: a cell's best draft lengths are a few percent apart.
_REQUESTS, _ROUNDS = 12, 100

# Texts that are scored; each is 90 kB above temperature 0.
_TEXTS = 32


def measure_all(profile: Path | None, out: Path, progress: Progress = quiet) -> Path:
    """Measure what is not there yet beside ``profile``, or of the embedded family in ``out``.

    What was measured is kept: a run that was killed goes on where it was.
    """
    path = profile or out / "profile.json"
    for file in Measured.files(path):
        if not file.is_file():
            check_replaceable(file)
    if not path.is_file():
        specsim.calibrate(path, measurement=_MEASUREMENT, batches=_BATCHES, progress=progress)
    elif profile is None:
        Checkpoint.remove_behind(path)
    measured = Measured.at(path)
    if measured.profile.grid:
        # Before the rest: it rests on run times of the calibration, and machines drift.
        _keep(measured, "synthetic", _synthetic(measured.profile), progress)
    models = specsim.Models.of(measured.profile)
    for temperature in SCORED:
        file = measured.positions_file(temperature)
        if not file.is_file():
            specsim.score(file, models, temperature=temperature, requests=_TEXTS, progress=progress)
    _keep(measured, "decoders", specsim.SchemeCheck(requests=_REQUESTS), progress)
    _keep(measured, "speedups", specsim.SpeedupCheck(requests=_REQUESTS), progress)
    return path


def _synthetic(profile: Profile) -> AnyCheck:
    # Runs cost the same at every temperature; the host's draws are dearest at the highest.
    hottest = max(row.temperature for row in profile.batch_overhead)
    return specsim.SyntheticCheck(temperature=hottest, rounds=_ROUNDS)


def _keep(measured: Measured, what: str, check: AnyCheck, progress: Progress) -> None:
    """What the check finds, beside the profile, unless it is there."""
    file = measured.beside(what)
    if not file.is_file():
        with answering():  # by the file
            found = specsim.validate(measured.path, check, progress=progress)
            write_atomically(file, found.to_json().encode())
