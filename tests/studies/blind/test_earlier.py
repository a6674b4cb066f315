"""The batteries that the estimator of today came of."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

from benchmarks.blind_judged import mean_error, recommended_losses, summary
from specsim.profiles import BUSY, read_profile
from tests.support.blind_batteries import (
    BEFORE,
    BLIND,
    JUDGES,
    NOON,
    ONE_ESTIMATOR,
    QUICK,
    together_said,
)


@pytest.mark.parametrize(
    ("folder", "drafts"),
    [
        *((folder, 3) for folder in (*BEFORE, *JUDGES, "unseen", *NOON, *ONE_ESTIMATOR)),
        ("busy", 1),
    ],
)
def test_errors_and_intervals_of_the_embedded_pairs(folder: str, drafts: int) -> None:
    cells = pd.read_csv(BLIND / folder / "cells.csv")
    found = cells["predicted_speedup"] / cells["measured_speedup"] - 1
    np.testing.assert_allclose(cells["relative_error"], found, atol=1e-12)
    assert set(cells["gamma"]) == set(range(1, 9))
    assert len(cells) == drafts * 3 * 2 * 8
    estimators = pd.read_csv(BLIND / folder / "estimators.csv").set_index("estimator")
    smoothed = estimators.loc["smoothed"]
    np.testing.assert_allclose(smoothed["median"], cells["relative_error"].abs().median())
    np.testing.assert_allclose(smoothed["inside"], cells["inside"].mean())


def test_the_first_battery_was_as_predicted() -> None:
    """Later ones, of other hours and machines, are 1.1, 2.5 and 5.9 % off in the mean."""
    cells = pd.read_csv(BLIND / "quiet" / "cells.csv")
    assert cells["relative_error"].abs().median() < 0.03
    assert cells["relative_error"].abs().max() < 0.08
    assert abs(cells["relative_error"].mean()) < 0.01
    assert cells["inside"].sum() == 144
    first = cells[cells["calibration"] == 1]
    assert first["inside"].all()


def test_the_battery_whose_plain_decoding_is_known() -> None:
    """Nearer than without knowing, and within what was to be reached."""
    cells = pd.read_csv(BLIND / "quiet-plain" / "cells.csv")
    off = cells["relative_error"]
    still = cells["speedup_at_profile_plain"] / cells["measured_speedup"] - 1
    assert off.abs().median() < 0.03
    assert off.abs().median() < 0.8 * still.abs().median()
    assert off.abs().max() < still.abs().max()
    assert off.abs().max() < 0.08
    assert abs(off.mean()) < 0.01
    assert 0.9 < cells["inside"].mean() < 0.99


@pytest.mark.parametrize(
    ("folder", "worst", "inside"), [("quiet-runs", 0.0739, 142), ("quiet-blocks", 0.0596, 144)]
)
def test_the_batteries_whose_repeats_count_as_often_as_they_ran(
    folder: str, worst: float, inside: int
) -> None:
    """Within the 8 % at worst that were wanted."""
    cells = pd.read_csv(BLIND / folder / "cells.csv")
    off = cells["relative_error"]
    assert off.abs().median() < 0.03
    assert off.abs().max() == pytest.approx(worst, abs=1e-4)
    assert off.abs().max() < 0.08
    assert abs(off.mean()) < 0.01
    assert cells["inside"].sum() == inside


def test_batteries_of_a_quick_machine_are_within_what_was_to_be_reached() -> None:
    said = together_said(QUICK)
    assert said["median"] < 0.03
    assert said["worst"] == pytest.approx(0.0739, abs=1e-4)
    assert said["worst"] < 0.08
    assert abs(said["mean"]) < 0.01
    assert 0.9 <= said["inside"] <= 0.99
    assert said["within_2_percent_of_best"] >= 0.9
    assert abs(said["chosen_mean"]) < 2 * said["chosen_mean_error"]


def test_draft_runs_by_their_place_do_not_flatter_the_recommended_length() -> None:
    """Within two standard errors of what was predicted, and the best or within 2 % of it."""
    found = pd.read_csv(BLIND / "quiet-blocks" / "estimators.csv").set_index("estimator")
    smoothed = found.loc["smoothed"]
    assert abs(smoothed["chosen_mean"]) < 2 * smoothed["chosen_mean_error"]
    assert smoothed["within_2_percent_of_best"] >= 0.9
    alike = found.loc["draft runs alike"]
    assert smoothed["chosen_mean"] < alike["chosen_mean"]
    assert smoothed["over_lengths"] < 0.95 * alike["over_lengths"]


def test_the_battery_of_a_slow_machine_is_near_by_the_estimator_that_it_led_to() -> None:
    """It led to elasticities that ask what lasts, so that it does not judge them: before, it was
    4.1 % off in the median.  Its recommended lengths were not, and are not, what was wanted.
    """
    cells = pd.read_csv(BLIND / "quiet-slow" / "cells.csv")
    off = cells["relative_error"]
    assert off.abs().median() == pytest.approx(0.021, abs=5e-4)
    assert off.abs().max() < 0.08
    assert abs(off.mean()) < 0.01
    assert cells["inside"].all()
    said = summary(cells.to_dict("records"))
    assert said["within_2_percent_of_best"] == pytest.approx(0.6875)


def test_a_battery_of_a_restless_machine() -> None:
    """By an estimator that was mended afterwards, for reasons that are not of it; what was
    predicted before it is judged below.  Wanted were 3 % in the median, 8 % at worst, intervals
    that hold 90 to 99 %, and no length that is promised more than it has; and 1 % in the mean and
    90 % of the recommended lengths within 2 % of the best of all that were measured, both of which
    it misses.
    """
    cells = pd.read_csv(BLIND / "unseen" / "cells.csv")
    said = summary(cells.to_dict("records"))
    assert said["median"] < 0.03
    assert said["worst"] < 0.08
    assert said["mean"] == pytest.approx(-0.0147, abs=5e-5)
    assert mean_error(BLIND / "unseen") == pytest.approx(0.0062, abs=5e-5)
    assert mean_error(BLIND / "quiet-slow") is None
    assert said["within_2_percent_of_best"] == pytest.approx(13 / 17)
    assert 0.9 <= said["inside"] <= 0.99
    assert said["chosen_mean"] == pytest.approx(-0.0144, abs=5e-5)
    assert said["chosen_mean"] < 2 * said["chosen_mean_error"]
    losses = recommended_losses(BLIND / "unseen", cells)
    assert len(losses) == 17
    assert np.mean(losses) < 0.001
    assert np.mean(np.array(losses) <= 0.02) >= 0.9


@pytest.mark.parametrize(
    ("folder", "worst", "mean", "recommended"),
    [("noon", 0.0922, -0.0029, 14 / 15), ("defaults", 0.1032, 0.0026, 1.0)],
)
def test_the_batteries_that_the_rest_of_the_estimator_was_there_before(
    folder: str, worst: float, mean: float, recommended: float
) -> None:
    """By an estimator of host times that was mended afterwards.  Wanted are as above: worst misses
    it, and intervals hold all; what was predicted before is judged below.
    """
    cells = pd.read_csv(BLIND / folder / "cells.csv")
    said = summary(cells.to_dict("records"))
    assert said["median"] < 0.03
    assert said["worst"] == pytest.approx(worst, abs=5e-5)
    assert said["mean"] == pytest.approx(mean, abs=5e-5)
    assert abs(said["mean"]) < 0.01
    assert said["inside"] == 1
    assert said["within_2_percent_of_best"] == pytest.approx(recommended)
    assert abs(said["chosen_mean"]) < 2 * said["chosen_mean_error"]


def test_what_other_programs_do_to_a_prediction() -> None:
    """Intervals that do not know of them hold 46 of 48, and those that do all."""
    estimators = pd.read_csv(BLIND / "busy" / "estimators.csv").set_index("estimator")
    assert estimators.loc["smoothed, as if alone", "inside"] == 46 / 48
    assert estimators.loc["smoothed", "inside"] == 1.0


def test_a_calibration_beside_programs_on_both_cores_says_so_and_allows_for_it() -> None:
    notes = read_profile(BLIND / "both-cores" / "small-1.json").notes
    assert any(note.startswith(BUSY) for note in notes)
    cells = pd.read_csv(BLIND / "both-cores" / "cells.csv")
    assert len(cells) == 16
    assert cells["inside"].all()
    low, high = (cells[name] / cells["predicted_speedup"] for name in ("low", "high"))
    assert low.median() == pytest.approx(0.73, abs=0.005)
    assert high.median() == pytest.approx(1.37, abs=0.005)
