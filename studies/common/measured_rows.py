"""What more than one study asks of a profile and of the rows that were decoded beside it."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

import calibrate
from specsim.checks import Floats, Ints
from specsim.intervals import Bootstrap, Interval, around
from specsim.laws import TARGET
from specsim.optimizers.workload import Workload
from studies.common.study import Measured, Row

# Drafts of the settings that ``specsim validate --scheme cascade`` decodes with, and the lossless
# setting that drafts as many.
RULED_GAMMA = 4
LOSSLESS = ("speculative", f"draft {RULED_GAMMA}")
_DRAFTER = re.compile(r"(?P<drafter>.+) (?P<gamma>\d+)")


# --- the profile ---------------------------------------------------------------------------------


def greedy(measured: Measured) -> Workload | None:
    """The workload at temperature 0, if the profile has one."""
    found = [each for each in measured.workloads if each.measured.sampling.temperature == 0]
    return found[0] if found else None


def verify_curve(workload: Workload) -> list[float]:
    """v(1), v(2), ... at the mean context, as far as target runs were timed."""
    where = np.array([workload.context])
    widths = range(1, int(workload.cost.target.tokens[-1]) + 1)
    seconds = [float(workload.cost.target(width, where)[0]) for width in widths]
    return [each / seconds[0] for each in seconds]


def family_file(measured: Measured, name: str) -> dict[str, Any]:
    """A file of the embedded family's, if that is what was measured; else nothing."""
    if not measured.profile.target.name.startswith("embedded/"):
        return {}
    file = Path(calibrate.__file__).parent / "family" / name
    found: dict[str, Any] = json.loads(file.read_text())
    return found


# --- rows that were decoded ----------------------------------------------------------------------


def by_temperature(rows: Sequence[Row]) -> list[tuple[float, list[Row]]]:
    """Rows of each temperature, from cold to hot."""
    temperatures = sorted({row["temperature"] for row in rows})
    return [(at, [row for row in rows if row["temperature"] == at]) for at in temperatures]


def setting(rows: Sequence[Row], scheme: str, name: str) -> Row | None:
    """The row of that setting; ``rows`` of one temperature."""
    found = [row for row in rows if (row["scheme"], row["setting"]) == (scheme, name)]
    return found[0] if found else None


def drafters(decoded: Sequence[Row]) -> Iterator[tuple[str, int, Row]]:
    """Lossless rows of one drafter and one gamma: its name, gamma, the row.

    ``specdec`` drafts with masks, all at once: the non-autoregressive drafter of Leviathan23 3.6.
    """
    for row in decoded:
        match = _DRAFTER.fullmatch(row["setting"])
        if match and row["lossless"] and row["scheme"] in ("speculative", "specdec"):
            yield match["drafter"], int(match["gamma"]), row


def costs_as_decoded(decoded: Sequence[Row]) -> dict[str, float]:
    """What a run of each model took while decoding, in steps of plain decoding, host time included.

    The c of time per token = sum_i c_i runs_i per token over all lossless settings: least squares
    of the relative error, none below zero.  Empty with fewer settings than models.
    """
    from scipy.optimize import nnls

    rows = [row for row in decoded if row["lossless"] and row["measured_runs"][TARGET]]
    models = sorted({model for row in rows for model in row["measured_runs"]})
    if not rows or len(rows) < len(models):
        return {}
    speed = np.array([row["measured_speedup"] for row in rows])
    runs = np.array([[row["measured_runs"].get(model, 0.0) for model in models] for row in rows])
    found, _ = nnls(runs / 100 * speed[:, None], np.ones(len(rows)))
    return dict(zip(models, found.tolist(), strict=True))


# --- intervals, and what holds -------------------------------------------------------------------


def mean_over_positions(values: Floats, starts: Ints) -> Interval[float]:
    """The mean with its 95 % interval, by bootstrap over the requests that begin at ``starts``."""
    sums, counts = np.add.reduceat(values, starts[:-1]), np.diff(starts)
    return around(float(values.mean()), Bootstrap(len(sums)).ratios(sums, counts))


def beyond(low: float, high: float, mark: float) -> bool | None:
    """Whether an interval lies above a mark; None, which is open, where it holds the mark."""
    return None if low <= mark <= high else low > mark


def claim(source: str, says: str, cases: Iterable[tuple[bool | None, str]]) -> list[dict[str, Any]]:
    """What a paper says, in how many cases it holds here, and the cases; nothing without any.

    cases : whether it holds, None where that is open, and what was found
    """
    listed = list(cases)
    if not listed:
        return []
    held = sum(verdict is True for verdict, _ in listed)
    unsure = sum(verdict is None for verdict, _ in listed)
    return [
        {
            "claim": says,
            "holds": f"{held} of {len(listed)}" + (f", {unsure} open" if unsure else ""),
            "here": "; ".join(text for _, text in listed),
            "source": source,
        }
    ]
