"""Rows that were decoded beside a profile, as ``specsim validate --scheme all`` lists them."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

import numpy as np

from specsim.laws import TARGET
from studies.common.study import Row

# Drafts of the settings that ``specsim validate --scheme cascade`` decodes with, and the lossless
# setting that drafts as many.
RULED_GAMMA = 4
LOSSLESS = ("speculative", f"draft {RULED_GAMMA}")
_DRAFTER = re.compile(r"(?P<drafter>.+) (?P<gamma>\d+)")


def by_temperature(rows: Sequence[Row]) -> list[tuple[float, list[Row]]]:
    """Rows of each temperature, from cold to hot."""
    temperatures = sorted({row["temperature"] for row in rows})
    return [(at, [row for row in rows if row["temperature"] == at]) for at in temperatures]


def setting_of(rows: Sequence[Row], scheme: str, name: str) -> Row | None:
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
