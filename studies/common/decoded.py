"""Rows that were decoded beside a profile, as ``specsim validate --scheme all`` lists them.

A row is found by the description of its setting (``specsim.schemes``), or by its fields: drafters,
gamma, steps, at_least, rule, threshold.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from specsim.laws import TARGET
from specsim.schemes import Scheme, SpeculativeDecoding, scheme_name
from studies.common.study import Row, where

# Plain speculative decoding that drafts as many tokens as the settings with a rule.
LOSSLESS = SpeculativeDecoding(4)
# Drafters that count or copy: a run is a look into a table.
WITHOUT_MODEL = ("unigram", "bigram", "copy", "max-gram")
# Columns of a row that say how fast it was.
TIMED = ("predicted_speedup", "measured_speedup", "measured_low", "measured_high")


def by_temperature(rows: Sequence[Row]) -> list[tuple[float, list[Row]]]:
    """Rows of each temperature, from cold to hot."""
    temperatures = sorted({row["temperature"] for row in rows})
    return [(at, where(rows, temperature=at)) for at in temperatures]


def is_of(row: Row, scheme: Scheme) -> bool:
    """Whether that very setting was decoded."""
    return bool((row["scheme"], row["setting"]) == (scheme_name(scheme), scheme.label))


def row_of(rows: Sequence[Row], scheme: Scheme) -> Row | None:
    """The row of that setting, if it was decoded; ``rows`` of one temperature."""
    return next((row for row in rows if is_of(row, scheme)), None)


def single_drafters(decoded: Sequence[Row]) -> Iterator[tuple[str, int, Row]]:
    """Lossless rows of one drafter and one gamma: its name, gamma, the row.

    ``specdec`` drafts with masks, all at once: the non-autoregressive drafter of Leviathan23 3.6.
    """
    for row in decoded:
        if row["lossless"] and row["scheme"] in ("speculative", "specdec"):
            yield row["drafters"], row["gamma"], row


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
