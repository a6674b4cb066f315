"""The batteries of the estimator of today."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

from benchmarks.blind_drift import left_at_check
from benchmarks.blind_judged import mean_error, measured_rows, summary
from specsim.hardware.first_drafts import by_length
from specsim.profiles import read_profile
from tests.support.blind_batteries import (
    AGAIN,
    BLIND,
    BY_LENGTH,
    FIFTH,
    FOLLOWED,
    LAST,
    LONG,
    MISSED,
    ONCE_MORE,
    ONE_ESTIMATOR,
    OTHER,
    SPREAD,
    together_said,
)


@pytest.mark.parametrize("folder", [LAST, AGAIN])
def test_batteries_that_nothing_was_changed_after(folder: str) -> None:
    """All that was wanted: 3 % in the median, 8 % at worst, 1 % in the mean, intervals that hold 90
    to 99 %, 90 % of the recommended lengths within 2 % of the fastest, no promise that is too high.
    """
    cells = pd.read_csv(BLIND / folder / "cells.csv")
    said = summary(cells.to_dict("records"))
    assert said["median"] < 0.03
    assert said["worst"] < 0.08
    assert abs(said["mean"]) < 0.01
    assert 0.9 <= said["inside"] <= 0.99
    assert said["within_2_percent_of_best"] >= 0.9
    assert said["chosen_mean"] < 2 * said["chosen_mean_error"]


def test_the_battery_whose_intervals_are_a_little_wide() -> None:
    """Nothing was changed after it either.  All that was wanted, but that its intervals hold all
    where it was 99 % at most.
    """
    cells = pd.read_csv(BLIND / ONCE_MORE / "cells.csv")
    said = summary(cells.to_dict("records"))
    assert said["median"] < 0.03
    assert said["worst"] < 0.08
    assert abs(said["mean"]) < 0.01
    assert cells["inside"].sum() == 144
    assert len(cells) == 144
    assert said["within_2_percent_of_best"] >= 0.9
    assert said["chosen_mean"] < 2 * said["chosen_mean_error"]


def test_the_battery_that_missed_three_of_the_figures_wanted() -> None:
    """Nothing was changed before or after it.  Median, intervals and recommended lengths are as
    wanted; 8 % at worst, 1 % in the mean and a promise that is not too high are not.
    """
    cells = pd.read_csv(BLIND / MISSED / "cells.csv")
    said = summary(cells.to_dict("records"))
    assert said["median"] == pytest.approx(0.0197, abs=5e-5)
    assert said["worst"] == pytest.approx(0.0863, abs=5e-5)
    assert said["mean"] == pytest.approx(0.0204, abs=5e-5)
    assert mean_error(BLIND / MISSED) == pytest.approx(0.0033, abs=5e-5)
    assert cells["inside"].sum() == 142
    assert said["within_2_percent_of_best"] == 1
    assert said["chosen_mean"] == pytest.approx(0.0183, abs=5e-5)
    assert said["chosen_mean_error"] == pytest.approx(0.0078, abs=5e-5)


def test_what_the_draft_that_was_furthest_off_followed_plain_steps_with() -> None:
    """Of two of its three calibrations passes told nothing."""
    cells = pd.read_csv(BLIND / MISSED / "cells.csv").query("draft == 'small' and temperature == 0")
    far = np.log(cells["measured_plain_ms"] / cells["profile_plain_ms"])
    went = np.log(cells["measured_speedup"] / cells["speedup_at_profile_plain"])
    by_calibration = cells["calibration"]
    followed_with = went.groupby(by_calibration).mean() / far.groupby(by_calibration).mean()
    assert followed_with.tolist() == pytest.approx([0.58, 0.53, 0.65], abs=5e-3)
    told_of_it = cells.groupby("calibration")["elasticity"].mean()
    assert told_of_it.tolist() == pytest.approx([0.19, 0.0, 0.0], abs=5e-3)


def test_the_battery_that_was_announced_and_missed_a_recommendation() -> None:
    """All that was wanted, but that 14 of 16 recommended lengths are within 2 % of the fastest,
    and not 15.
    """
    cells = pd.read_csv(BLIND / FIFTH / "cells.csv")
    said = summary(cells.to_dict("records"))
    assert said["median"] < 0.03
    assert said["worst"] < 0.08
    assert abs(said["mean"]) < 0.01
    assert 0.9 <= said["inside"] <= 0.99
    assert said["within_2_percent_of_best"] == 14 / 16
    assert said["chosen_mean"] < 2 * said["chosen_mean_error"]


def test_long_calibrations_showed_what_repeats_do_not() -> None:
    """Repeats explain less and less of what calibrations are off by; for what else is left
    ``DRIFT_AT_PLAIN`` allows, which is of this battery, too.
    """
    cells = pd.read_csv(BLIND / LONG / "cells.csv")
    said = summary(cells.to_dict("records"))
    assert said["median"] < 0.03
    assert said["worst"] == pytest.approx(0.0835, abs=5e-5)
    assert abs(said["mean"]) < 0.01
    assert said["within_2_percent_of_best"] == 1
    assert said["chosen_mean"] < 2 * said["chosen_mean_error"]
    held = cells.groupby("temperature")["inside"].sum()
    assert held.tolist() == [59, 72]
    assert left_at_check(cells) == pytest.approx((0.01555, 0.0106), abs=5e-5)
    before = [pd.read_csv(BLIND / each / "cells.csv") for each in (LAST, *FOLLOWED[:-1])]
    held = pd.concat(before).groupby("temperature")["inside"].agg(["sum", "count"])
    assert held.to_numpy().tolist() == [[348, 360], [359, 360]]
    knee = pd.read_csv(BLIND / LONG / "knee.csv").query("requests == 16").set_index("repeats")
    held_by_passes = 144 * knee["inside"]
    assert held_by_passes.tolist() == pytest.approx([141, 139, 140, 128, 129])
    assert knee["median"].is_monotonic_decreasing


def test_the_checks_of_six_batteries_drew_the_same_texts() -> None:
    """Above temperature 0 their errors of tokens per call are one draw, and not six: eight drafts
    of middle got 4 % fewer than was predicted, by the same texts each time.
    """
    rows = [measured_rows(BLIND / folder, "middle")[1, 8] for folder in (LAST, *FOLLOWED)]
    assert len({row["measured_tokens_per_call"] for row in rows}) == 1
    for row in rows:
        off = row["predicted_tokens_per_call"] / row["measured_tokens_per_call"] - 1
        assert off == pytest.approx(0.0422, abs=5e-5)
    row = measured_rows(BLIND / OTHER, "middle")[1, 8]
    off = row["predicted_tokens_per_call"] / row["measured_tokens_per_call"] - 1
    assert off == pytest.approx(-0.0043, abs=5e-5)


def test_the_battery_of_other_texts_missed_two_of_the_figures_wanted() -> None:
    """Nothing was changed before or after it.  Wanted were 8 % at worst and intervals that hold at
    most 99 %; the rest is as wanted.
    """
    cells = pd.read_csv(BLIND / OTHER / "cells.csv")
    said = summary(cells.to_dict("records"))
    assert said["median"] < 0.03
    assert said["worst"] == pytest.approx(0.1094, abs=5e-5)
    assert abs(said["mean"]) < 0.01
    assert cells["inside"].sum() == 143
    assert said["within_2_percent_of_best"] >= 0.9
    assert said["chosen_mean"] == pytest.approx(-0.0091, abs=5e-5)
    assert said["chosen_mean"] < 2 * said["chosen_mean_error"]


def test_what_was_calibrated_in_another_state_of_the_machine_is_what_is_furthest_off() -> None:
    """Plain steps took a fifth less time in the first calibrations than in the check, and of small
    and middle passes told no elasticity; all others of both are 7 % off at worst in the mean.
    """
    cells = pd.read_csv(BLIND / OTHER / "cells.csv").query("draft != 'prompt-lookup'")
    far = np.log(cells["measured_plain_ms"] / cells["profile_plain_ms"])
    rows = cells.assign(far=far).groupby(["draft", "calibration", "temperature"])
    means = rows[["far", "relative_error", "elasticity"]].mean().reset_index()
    first, later = (part for _, part in means.groupby(means["calibration"] > 1))
    assert first["far"].min() > 0.2
    assert later["far"].abs().max() < 0.15
    assert first["elasticity"].abs().max() < 0.001
    assert first["relative_error"].between(-0.094, -0.066).all()
    assert later["relative_error"].between(0.004, 0.068).all()
    # Of the other four, three tell it, and one tells nothing and is further off than these.
    tells = later["elasticity"] > 0.15
    assert tells.sum() == 6
    assert later[tells]["elasticity"].between(0.285, 0.365).all()
    assert later[tells]["relative_error"].max() < 0.03
    (silent,) = set(later[~tells]["draft"] + later[~tells]["calibration"].astype(str))
    assert silent == "middle2"
    assert later[~tells]["relative_error"].min() > 0.04


def test_the_battery_of_spread_calibrations_missed_the_recommended_lengths() -> None:
    """Nothing was changed before or after it.  Wanted were 14 of 15 recommended lengths within 2 %
    of the fastest, and no promise of them that is too high; the rest is as wanted.
    """
    cells = pd.read_csv(BLIND / SPREAD / "cells.csv")
    said = summary(cells.to_dict("records"))
    assert said["median"] < 0.03
    assert said["worst"] == pytest.approx(0.0468, abs=5e-5)
    assert abs(said["mean"]) < 0.01
    assert cells["inside"].sum() == 142
    assert said["within_2_percent_of_best"] == 12 / 15
    assert said["chosen_mean"] == pytest.approx(0.0143, abs=5e-5)
    assert said["chosen_mean_error"] == pytest.approx(0.0045, abs=5e-5)
    # All three that are not are of one draft, and one length is named for another.
    middle = cells.query("draft == 'middle' and temperature == 1")
    assert middle[middle["chosen"]]["gamma"].tolist() == [1, 1, 1]
    fast = middle.groupby("gamma")["measured_speedup"].first()
    assert fast.idxmax() == 2
    assert 1 - fast[1] / fast[2] == pytest.approx(0.0228, abs=5e-5)
    rows = measured_rows(BLIND / SPREAD, "middle")
    one, two = (np.array(rows[1, gamma]["measured_by_pass"]) for gamma in (1, 2))
    known = (two - one).std(ddof=1) / np.sqrt(one.size) / fast[2]
    assert known == pytest.approx(0.012, abs=5e-4)


def test_the_battery_of_first_draft_runs_by_draft_length() -> None:
    """Nothing was changed before or after it.  All that was wanted, but that its intervals hold all
    cells, and not at most 99 %.
    """
    cells = pd.read_csv(BLIND / BY_LENGTH / "cells.csv")
    said = summary(cells.to_dict("records"))
    assert said["median"] == pytest.approx(0.0085, abs=5e-5)
    assert said["worst"] == pytest.approx(0.0545, abs=5e-5)
    assert abs(said["mean"]) < 5e-5
    assert cells["inside"].all()
    assert said["within_2_percent_of_best"] == 1
    assert said["chosen_mean"] == pytest.approx(-0.0047, abs=5e-5)
    assert said["chosen_mean_error"] == pytest.approx(0.0033, abs=5e-5)
    estimators = pd.read_csv(BLIND / BY_LENGTH / "estimators.csv").set_index("estimator")
    alike = estimators.loc["draft runs alike"]
    assert alike["worst"] == pytest.approx(0.0609, abs=5e-5)
    assert alike["over_lengths"] > said["over_lengths"]
    # What first draft runs take, over their mean.
    names = [f"{draft}-{number}.json" for draft in ("small", "middle") for number in (1, 2, 3)]
    times = [by_length(read_profile(BLIND / BY_LENGTH / each).run_times) for each in names]
    one = [each[1] for each in times]
    assert (min(one), max(one)) == pytest.approx((1.005, 1.034), abs=5e-4)
    further = [each[gamma] for each in times for gamma in (3, 4, 5)]
    assert np.mean(further) < 1 < min(one)
    assert min(further) == pytest.approx(0.977, abs=5e-4)


@pytest.mark.parametrize(
    ("batteries", "figures", "chosen_error", "inside", "recommended", "far"),
    [
        (
            (LAST, AGAIN, ONCE_MORE, MISSED, FIFTH),
            (0.0159, 0.0863, 0.0028, 0.0059),
            0.00315,
            707 / 720,
            77 / 81,
            1,
        ),
        (
            ONE_ESTIMATOR,
            (0.0148, 0.1094, 0.0022, 0.0032),
            0.00226,
            1267 / 1296,
            132 / 140,
            21,
        ),
    ],
)
def test_batteries_of_one_estimator_together(
    batteries: tuple[str, ...],
    figures: tuple[float, ...],
    chosen_error: float,
    inside: float,
    recommended: float,
    far: int,
) -> None:
    """The first five and all nine: all that was wanted but the worst cells, none of which is of
    calibrations that were spread.

    far : cells above the 8 % that were wanted
    """
    said = together_said(batteries)
    names = "median", "worst", "mean", "chosen_mean"
    assert [said[name] for name in names] == pytest.approx(figures, abs=5e-5)
    assert said["chosen_mean_error"] == pytest.approx(chosen_error, abs=5e-6)
    assert said["inside"] == pytest.approx(inside)
    assert said["within_2_percent_of_best"] == pytest.approx(recommended)
    assert said["chosen_mean"] < 2 * said["chosen_mean_error"]
    off = {each: pd.read_csv(BLIND / each / "cells.csv")["relative_error"] for each in batteries}
    assert sum(int((errors.abs() > 0.08).sum()) for errors in off.values()) == far
    spread = [off[name].abs().max() for name in (SPREAD, BY_LENGTH) if name in off]
    assert max(spread, default=0.0) < 0.08


def test_several_calibrations_as_one_are_nearer() -> None:
    """As the page has it: of sixteen batteries, by how many calibrations are taken as one."""
    table = pd.read_csv(BLIND / "pooled.csv").set_index(["battery", "calibrations"])
    assert len(table) == 3 * (16 + 1)
    every = table.loc["all"]
    assert every["worst"].tolist() == pytest.approx([0.109, 0.090, 0.086], abs=5e-4)
    assert every["inside"].iloc[1:].tolist() == pytest.approx([0.973, 0.979], abs=5e-4)
    worst = table["worst"].xs(3, level="calibrations").drop(["all", LAST])
    assert worst.max() == pytest.approx(0.076, abs=5e-4)
    apart = table.loc[OTHER, ["median", "worst"]].loc[[1, 3]].to_numpy().tolist()
    assert apart == [pytest.approx(each, abs=5e-4) for each in ([0.023, 0.109], [0.009, 0.038])]
    long = table.loc[LONG, "worst"].loc[[1, 3]].tolist()
    assert long == pytest.approx([0.084, 0.055], abs=5e-4)
    # What one calibration alone predicts is what the tables of the batteries hold.
    for folder in ONE_ESTIMATOR:
        off = pd.read_csv(BLIND / folder / "cells.csv")["relative_error"]
        alone = table.loc[(folder, 1)]
        assert alone["worst"] == pytest.approx(off.abs().max(), abs=2e-3)
        assert alone["mean"] == pytest.approx(off.mean(), abs=5e-4)
