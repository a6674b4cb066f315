"""The whole loop on the embedded models: measure, predict, decide, check."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import ClassVar

from specsim.api.calibrate import calibrate
from specsim.api.models import Measurement, Models
from specsim.api.progress import Progress, quiet
from specsim.api.result import Result, Row
from specsim.api.validate import validate
from specsim.api.validation import SpeedupCheck, Validation
from specsim.files import make_folder

# Greedy text replays exactly, so few requests settle it; sampled text needs more.
_REQUESTS = {0.0: 5, 1.0: 17}
_COLUMNS = (
    *("temperature", "gamma", "predicted_tokens_per_call", "measured_tokens_per_call"),
    *("predicted_calls", "measured_calls", "exact", "predicted_speedup", "formula_speedup"),
    *("measured_speedup", "relative_error"),
)


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
        return [{name: row[name] for name in _COLUMNS} for row in self.rows()]

    def summary(self) -> Row:
        return {
            "profile": str(self.profile),
            "chosen": list(self.chosen),
            "verdict": self.sentences(),
        }

    def sentences(self) -> list[str]:
        return [*(self._verdict(best) for best in self.chosen), self._accuracy()]

    def _verdict(self, best: Row) -> str:
        """The decision at one temperature and how it turned out."""
        at = f"Temperature {best['temperature']:g}"
        if best["gamma"] == 0:
            return f"{at}: leave speculation off, {self.draft} does not pay here."
        found = {(row["temperature"], row["gamma"]): row for row in self.rows()}
        row = found[best["temperature"], best["gamma"]]
        return (
            f"{at}: let {self.draft} draft {best['gamma']}; predicted {best['speedup']:.2f} times "
            f"plain decoding before the check, measured {row['measured_speedup']:.2f} "
            f"({row['measured_low']:.2f} to {row['measured_high']:.2f})."
        )

    def _accuracy(self) -> str:
        """How far off the speedups were, ours and the papers' formula's."""
        rows = self.rows()
        ours = [abs(row["relative_error"]) for row in rows]
        papers = [abs(row["formula_speedup"] / row["measured_speedup"] - 1) for row in rows]
        return (
            f"Predicted speedups were off by {median(ours):.1%} (median) and {max(ours):.1%} "
            f"(worst); the papers' formula by {median(papers):.1%} and {max(papers):.1%}."
        )


def demonstrate(
    out: Path,
    draft: str = "embedded/small",
    seed: int = 0,
    *,
    command: str = "specsim.api.demo.demonstrate",
    progress: Progress = quiet,
) -> Demonstration:
    """Measure the embedded pair, predict the best draft length, and check it by real decoding.

    Takes about three minutes on two cores.  The profile and its traces go to the folder ``out``.
    """
    make_folder(out)
    path = out / "profile.json"
    # Half precision ties at every 200th token; then greedy text is not plain text.
    models = Models(draft=draft, dtype="float32")
    measurement = Measurement(
        temperature=tuple(_REQUESTS),
        requests=tuple(_REQUESTS.values()),
        max_new_tokens=96,
        repeats=5,
        seed=seed,
    )
    calibration = calibrate(path, models, measurement, command=command, progress=progress)
    names = ("temperature", "gamma", "speedup")
    check = SpeedupCheck(requests=max(_REQUESTS.values()), only="calibration", seed=seed)
    return Demonstration(
        draft=draft,
        profile=path,
        chosen=tuple({name: row[name] for name in names} for row in calibration.rows()),
        validation=validate(path, check, progress=progress),
        inputs={"out": str(out), "draft": draft, "seed": seed},
    )
