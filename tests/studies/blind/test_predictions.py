"""Profiles of the batteries predict what was written down, and what their tables say."""

from __future__ import annotations

import json

import msgspec
import numpy as np
import pandas as pd
import pytest

from benchmarks.blind_judged import losses_with_plain, measured_rows, summary
from specsim.intervals import Interval
from specsim.optimizers.workload import Workload
from specsim.predict.prediction_file import Predictions, predicted_speedups
from specsim.profiles import read_profile
from tests.support.blind_batteries import (
    AGAIN,
    BLIND,
    BY_LENGTH,
    DRAFTS,
    FIFTH,
    JUDGES,
    LAST,
    LONG,
    MISSED,
    NOON,
    ONCE_MORE,
    ONE_ESTIMATOR,
    OTHER,
    SPREAD,
)

# Of sixteen predictions that were written before a check, those outside of their intervals.
OUTSIDE = {
    (LAST, "prompt-lookup"): 2,
    (AGAIN, "prompt-lookup"): 1,
    (MISSED, "prompt-lookup"): 3,
    (FIFTH, "small"): 7,
    (LONG, "small"): 3,
    (LONG, "middle"): 1,
    (LONG, "prompt-lookup"): 1,
}


@pytest.mark.parametrize(
    ("folder", "draft", "middle", "worst"),
    [
        ("unseen", "small", 0.017, 0.034),
        ("unseen", "middle", 0.015, 0.042),
        ("unseen", "prompt-lookup", 0.030, 0.049),
        ("noon", "small", 0.009, 0.042),
        ("noon", "middle", 0.011, 0.037),
        ("noon", "prompt-lookup", 0.025, 0.067),
        (LAST, "small", 0.012, 0.032),
        (LAST, "middle", 0.012, 0.061),
        (LAST, "prompt-lookup", 0.027, 0.060),
        (AGAIN, "small", 0.011, 0.025),
        (AGAIN, "middle", 0.013, 0.056),
        (AGAIN, "prompt-lookup", 0.014, 0.031),
        (ONCE_MORE, "small", 0.017, 0.043),
        (ONCE_MORE, "middle", 0.026, 0.041),
        (ONCE_MORE, "prompt-lookup", 0.013, 0.025),
        (MISSED, "small", 0.021, 0.036),
        (MISSED, "middle", 0.005, 0.071),
        (MISSED, "prompt-lookup", 0.023, 0.046),
        (FIFTH, "small", 0.027, 0.046),
        (FIFTH, "middle", 0.020, 0.038),
        (FIFTH, "prompt-lookup", 0.026, 0.044),
        (LONG, "small", 0.012, 0.042),
        (LONG, "middle", 0.020, 0.084),
        (LONG, "prompt-lookup", 0.010, 0.026),
        (OTHER, "small", 0.069, 0.109),
        (OTHER, "middle", 0.090, 0.101),
        (OTHER, "prompt-lookup", 0.018, 0.045),
        (SPREAD, "small", 0.015, 0.042),
        (SPREAD, "middle", 0.017, 0.043),
        (SPREAD, "prompt-lookup", 0.015, 0.032),
        (BY_LENGTH, "small", 0.009, 0.033),
        (BY_LENGTH, "middle", 0.007, 0.022),
        (BY_LENGTH, "prompt-lookup", 0.006, 0.020),
    ],
)
def test_what_was_written_before_the_check_is_what_it_judged(
    folder: str, draft: str, middle: float, worst: float
) -> None:
    """The first calibration of each draft of a battery, from the file that was written then."""
    rows = measured_rows(BLIND / folder, draft)
    document = (BLIND / folder / f"{draft}-1.prediction.json").read_bytes()
    for said in msgspec.json.decode(document, type=Predictions).predictions:
        row = rows[said.temperature, said.gamma]
        assert said.at(row["measured_plain_ms"]).best == pytest.approx(row["predicted_speedup"])
    outside = sum(not row["inside"] for row in rows.values())
    assert outside == OUTSIDE.get((folder, draft), 0)
    off = [abs(row["predicted_speedup"] / row["measured_speedup"] - 1) for row in rows.values()]
    assert np.median(off) == pytest.approx(middle, abs=5e-4)
    assert max(off) == pytest.approx(worst, abs=5e-4)


@pytest.mark.parametrize(
    ("folder", "draft", "requests"),
    [
        *(("quiet", draft, 8) for draft in DRAFTS),
        *(("quiet-16", draft, 16) for draft in DRAFTS),
        *(("quiet-64", draft, 16) for draft in DRAFTS),
        *(("quiet-spread", draft, 16) for draft in DRAFTS),
        *(
            (folder, draft, 16)
            for folder in (*JUDGES, "unseen", *NOON, *ONE_ESTIMATOR[1:])
            for draft in DRAFTS
        ),
        ("busy", "small", 8),
    ],
)
def test_profiles_predict_what_the_table_says(folder: str, draft: str, requests: int) -> None:
    cells = pd.read_csv(BLIND / folder / "cells.csv").query(
        f"calibration == 2 and draft == {draft!r}"
    )
    path = BLIND / folder / f"{draft}-2.json"
    said = predicted_speedups(path, Workload.all_of(read_profile(path), path, None), requests)
    known = cells["measured_plain_ms"]
    expected = [
        Interval(each.low, each.speedup, each.high) if np.isnan(plain_ms) else each.at(plain_ms)
        for each, plain_ms in zip(said.predictions, known, strict=True)
    ]
    for name, column in (("low", "low"), ("best", "predicted_speedup"), ("high", "high")):
        # Hosts add up in another order, and quantiles of draws lie between two of them.
        np.testing.assert_allclose(
            [getattr(each, name) for each in expected], cells[column], rtol=1e-6
        )


@pytest.mark.parametrize(
    ("folder", "figures", "inside", "lost"),
    [
        ("t5", (0.0237, 0.0574, 0.0231), 16, 0.0),
        ("t5-again", (0.0505, 0.1087, 0.0493), 11, 0.0166),
        ("t5-spread", (0.0152, 0.0554, -0.0166), 15, 0.0),
    ],
)
def test_a_pair_of_encoder_decoders_is_predicted_as_others_are(
    folder: str, figures: tuple[float, float, float], inside: int, lost: float
) -> None:
    """Wanted are 3 % in the median, 8 % at worst, 1 % in the mean and intervals that hold: the
    first and the last, which was spread, miss the mean, and the second, of another hour, all four.
    """
    cells = pd.read_csv(BLIND / folder / "cells.csv")
    said = summary(cells.to_dict("records"))
    assert len(cells) == 16
    assert [said[name] for name in ("median", "worst", "mean")] == pytest.approx(figures, abs=5e-5)
    assert cells["inside"].sum() == inside
    assert max(losses_with_plain(cells)) == pytest.approx(lost, abs=5e-4)
    path = BLIND / folder / "t5-1.json"
    said_now = predicted_speedups(path, Workload.all_of(read_profile(path), path, None), 16)
    found = [
        each.at(ms).best
        for each, ms in zip(said_now.predictions, cells["measured_plain_ms"], strict=True)
    ]
    np.testing.assert_allclose(found, cells["predicted_speedup"], rtol=1e-6)


@pytest.mark.parametrize(
    ("draft", "middle", "worst", "by_cost"),
    [("small", 0.017, 0.048, 0.009), ("middle", 0.009, 0.033, 0.007)],
)
def test_side_by_side_over_all_texts_of_a_profile(
    draft: str, middle: float, worst: float, by_cost: float
) -> None:
    """2 % in the median was wanted."""
    document = json.loads((BLIND / LAST / f"{draft}-side.json").read_text())
    rows = document["answer"]["rows"]
    assert [(row["temperature"], row["requests"]) for row in rows] == 8 * [(0, 16)] + 8 * [(1, 48)]
    assert all(row["exact"] for row in rows if not row["temperature"])
    off = [abs(row["predicted_speedup"] / row["measured_speedup"] - 1) for row in rows]
    assert np.median(off) == pytest.approx(middle, abs=5e-4)
    assert max(off) == pytest.approx(worst, abs=5e-4)
    assert np.median(off) < 0.02
    cost = [abs(row["cost_error"]) for row in rows]
    assert np.median(cost) == pytest.approx(by_cost, abs=5e-4)
