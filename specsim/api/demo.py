"""The whole loop on the embedded models: measure, predict, decide, check."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

from specsim.api.answering import once_answered
from specsim.api.by_profile import optimize_profile
from specsim.api.calibrate import calibrate
from specsim.api.models import Measurement, Models
from specsim.api.progress import Progress, quiet
from specsim.api.result import Result, Row, plain
from specsim.api.validate import validate
from specsim.api.validation import BlindCheck, Validation
from specsim.checkpoint import Checkpoint
from specsim.files import file_digest, make_folder

# Greedy text replays exactly, so few requests settle it; sampled text needs more.
_REQUESTS = {0.0: 4, 1.0: 10}
# Decoded alone, beside the recommended ones: enough to see where the best one lies.
_GAMMAS, _PASSES, _REPEATS = (1, 2, 3, 4, 6, 8), 5, 10
# Of the checkpoint: the digest of the profile that is checked.
_CALIBRATED = "profile"


@dataclass(frozen=True, kw_only=True)
class Demonstration(Result):
    """What was predicted before the check, and how it turned out.

    profile : where the measurements are
    chosen : by temperature the draft length that pays best and its speedup, as first predicted
    """

    schema: ClassVar[str] = "specsim.demo"

    draft: str
    profile: Path
    chosen: tuple[Row, ...]
    validation: Validation

    def rows(self) -> list[Row]:
        return self.validation.rows()

    def table(self) -> list[Row]:
        return self.validation.table()

    @property
    def essential(self) -> tuple[str, ...]:
        return self.validation.essential

    def summary(self) -> Row:
        return {
            "profile": str(self.profile),
            "chosen": list(self.chosen),
            "verdict": self.sentences(),
        }

    def sentences(self) -> list[str]:
        return [*(self._verdict(best) for best in self.chosen), *self.validation.sentences()]

    def _verdict(self, best: Row) -> str:
        """The decision at one temperature and how it turned out."""
        at = f"Temperature {best['temperature']:g}"
        if best["gamma"] == 0:
            return f"{at}: leave speculation off, {self.draft} does not pay here."
        found = {(row["temperature"], row["gamma"]): row for row in self.rows()}
        row = found[best["temperature"], best["gamma"]]
        return (
            f"{at}: let {self.draft} draft {best['gamma']}; predicted {best['speedup']:.2f} times "
            f"plain decoding ({best['speedup_low']:.2f} to {best['speedup_high']:.2f}) before the "
            f"check, measured {row['measured_speedup']:.2f} ({row['measured_low']:.2f} to "
            f"{row['measured_high']:.2f})."
        )


def demonstrate(
    out: Path,
    draft: str = "embedded/small",
    seed: int = 0,
    *,
    command: str = "specsim.api.demo.demonstrate",
    progress: Progress = quiet,
) -> Demonstration:
    """Measure the embedded pair, predict the best draft length, and let every decoder run alone.

    Takes five to ten minutes on two cores.  The profile and its traces go to the folder ``out``.
    A demonstration that was killed goes on where it was when it is started again.
    """
    make_folder(out)
    path = out / "profile.json"
    # Half precision ties at every 200th token; then greedy text is not plain text.
    models = Models(draft=draft, dtype="float32")
    measurement = Measurement(
        temperature=tuple(_REQUESTS),
        requests=tuple(_REQUESTS.values()),
        max_new_tokens=96,
        repeats=_REPEATS,
        seed=seed,
    )
    checkpoint = Checkpoint.beside(out / "demo", plain(models), plain(measurement))
    warnings: tuple[str, ...] = ()
    if _is_calibrated(path, checkpoint):
        warnings = (f"went on with the profile that was measured before, {path}",)
    else:
        calibrate(path, models, measurement, command=command, progress=progress)
        checkpoint.replace_json(_CALIBRATED, file_digest(path))
    recommended = optimize_profile(path)
    best = recommended.rows()
    gammas = {row["gamma"] for row in best} - {0}
    check = BlindCheck(
        tuple(sorted(gammas.union(_GAMMAS))),
        requests=max(_REQUESTS.values()),
        passes=_PASSES,
        seed=seed,
    )
    validation = validate(path, check, progress=progress)
    once_answered(checkpoint.done)
    names = ("temperature", "gamma", "speedup", "speedup_low", "speedup_high")
    return Demonstration(
        draft=draft,
        profile=path,
        chosen=tuple({name: row[name] for name in names} for row in best),
        validation=validation,
        inputs={"out": str(out), "draft": draft, "seed": seed},
        warnings=tuple(dict.fromkeys((*warnings, *recommended.warnings, *validation.warnings))),
    )


def _is_calibrated(path: Path, checkpoint: Checkpoint) -> bool:
    """Whether the profile is the one whose check was begun, and not a later one."""
    if _CALIBRATED not in checkpoint or not path.is_file():
        return False
    return bool(file_digest(path) == checkpoint.keep_json(_CALIBRATED, str, str))
