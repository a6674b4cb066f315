"""The committed blind checks: what the pages say of them is what the tables hold."""

from __future__ import annotations

import json
import re
from pathlib import Path

import msgspec
import numpy as np
import pandas as pd
import pytest

from benchmarks import blind_accuracy
from benchmarks.blind_drift import (
    around_one,
    followed,
    left_at_check,
    left_at_plain,
    likely_together,
    moved,
    over_explained,
    slopes,
    states,
    together,
    told,
)
from benchmarks.blind_judged import (
    loss_by_halves,
    losses_with_plain,
    mean_error,
    measured_rows,
    recommended_losses,
    summary,
)
from benchmarks.blind_pooled import pooled
from specsim.intervals import Interval
from specsim.optimizers.workload import Workload
from specsim.predict.elasticity import PRIOR
from specsim.predict.prediction_file import Predictions, predicted_speedups
from specsim.profiles import BUSY, DRIFT, DRIFT_AT_PLAIN, Profile, read_profile

BLIND = Path(__file__).parents[2] / "studies" / "measured" / "blind"
DRAFTS = ("small", "middle", "prompt-lookup")
# What the drift is of; another battery judges it.
BEFORE = ("quiet", "quiet-16", "quiet-64", "quiet-spread")
QUICK = ("quiet-plain", "quiet-runs", "quiet-blocks")
JUDGES = (*QUICK, "quiet-slow")
# Judged by one check.
NOON = ("noon", "defaults")
# Of the estimator of today, which nothing was changed after.
LAST = "afternoon"
AGAIN, ONCE_MORE, MISSED, FIFTH = "evening", "morning", "night", "forenoon"
# Of the same estimator, with three times as many passes in a calibration.
LONG = "three-times"
FOLLOWED = (AGAIN, ONCE_MORE, MISSED, FIFTH, LONG)
# Of the same speedups with what is left at a plain step in the intervals, and of other texts.
OTHER = "other-texts"
# Of calibrations whose passes were spread, of other texts again.
SPREAD = "spread"
# None of their speedups was changed after the first of them.
ONE_ESTIMATOR = (LAST, *FOLLOWED, OTHER, SPREAD)
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


def test_docs_say_what_a_calibration_has_to_cost() -> None:
    """Every row of the table is of the files."""
    page = (BLIND.parents[2] / "docs" / "sure.md").read_text()
    several = [
        pd.read_csv(BLIND / folder / "knee.csv").set_index(["requests", "repeats"])
        for folder in ("quiet-blocks", LAST, AGAIN)
    ]
    for requests, repeats in several[0].index:
        cells = [requests, repeats]
        for knee in several:
            row = knee.loc[(requests, repeats)]
            cells += [f"{row['seconds']:.0f}", f"{row['median']:.1%}", f"{row['worst']:.1%}"]
        assert f"| {' | '.join(str(each).rstrip('%') for each in cells)} |\n" in page


@pytest.mark.parametrize(
    ("folder", "drafts"),
    [
        *((folder, 3) for folder in (*BEFORE, *JUDGES, "unseen", *NOON, LAST, *FOLLOWED)),
        *((folder, 3) for folder in (OTHER, SPREAD)),
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


def together_said(batteries: tuple[str, ...]) -> dict[str, float]:
    """Each draft of each battery with a check of its own."""
    every = []
    for name in batteries:
        cells = pd.read_csv(BLIND / name / "cells.csv")
        every.append(cells.assign(draft=cells["draft"] + name))
    said: dict[str, float] = summary(pd.concat(every).to_dict("records"))
    return said


def test_docs_say_what_the_batteries_of_one_estimator_came_to() -> None:
    """Every row of the table is of the files."""
    page = (BLIND.parents[2] / "docs" / "sure.md").read_text()
    rows = re.findall(r"^\| (`[a-z-]+/`|all [a-z]+) \|(.*)\|$", page, re.MULTILINE)
    assert [name.strip("`/") for name, _ in rows[:-1]] == [*ONE_ESTIMATOR]
    for name, row in rows:
        said = together_said(ONE_ESTIMATOR if name[0] == "a" else (name.strip("`/"),))
        errors = f"{said['median']:.1%}|{said['worst']:.1%}|{said['mean']:+.1%}"
        shares = f"{said['inside']:.1%}|{said['within_2_percent_of_best']:.0%}"
        promised = f"{said['chosen_mean']:+.1%}({100 * said['chosen_mean_error']:.1f})"
        expected = f"{errors}|{shares}|{promised}".replace("100.0%", "100%")
        assert row.replace(" ", "") == expected, name


def test_batteries_of_a_quick_machine_are_within_what_was_to_be_reached() -> None:
    said = together_said(QUICK)
    assert said["median"] < 0.03
    assert said["worst"] == pytest.approx(0.0739, abs=1e-4)
    assert said["worst"] < 0.08
    assert abs(said["mean"]) < 0.01
    assert 0.9 <= said["inside"] <= 0.99
    assert said["within_2_percent_of_best"] >= 0.9
    assert abs(said["chosen_mean"]) < 2 * said["chosen_mean_error"]


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
            (LAST, *FOLLOWED, OTHER, SPREAD),
            (0.0158, 0.1094, 0.0025, 0.0041),
            0.00246,
            1123 / 1152,
            118 / 126,
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
    """The first five and all eight: all that was wanted but the worst cells, none of which is of
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
    assert SPREAD not in off or off[SPREAD].abs().max() < 0.08


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


def test_calibrations_go_on_by_turns(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of two drafts, which need two turns and one, in rounds ten minutes apart."""
    slept, turns = list[float](), list[tuple[str, float | None]]()
    needed = {"small": 2, "middle": 1}

    def pretended(*words: str, turn_s: float | None = None) -> str | None:
        out = Path(words[words.index("--out") + 1])
        draft = out.stem.removesuffix("-1")
        turns.append((draft, turn_s))
        needed[draft] -= 1
        if needed[draft]:
            return None
        out.touch()
        return "done"

    monkeypatch.setattr(blind_accuracy, "specsim", pretended)
    monkeypatch.setattr(blind_accuracy.time, "sleep", slept.append)
    asked = tmp_path, ("small", "middle"), "2,2", 1, 1, 0
    blind_accuracy.calibrate(*asked, turn_s=30.0)
    assert turns == [("small", 30.0), ("middle", 30.0), ("small", 30.0)]
    assert slept == [pytest.approx(600, abs=1)]
    # All are there.
    blind_accuracy.calibrate(*asked)
    assert len(turns) == 3


def test_several_calibrations_as_one_are_nearer() -> None:
    """As the page has it: of fifteen batteries, by how many calibrations are taken as one."""
    table = pd.read_csv(BLIND / "pooled.csv").set_index(["battery", "calibrations"])
    assert len(table) == 3 * (15 + 1)
    every = table.loc["all"]
    assert every["worst"].tolist() == pytest.approx([0.109, 0.090, 0.086], abs=5e-4)
    assert every["inside"].iloc[1:].tolist() == pytest.approx([0.971, 0.978], abs=5e-4)
    worst = table["worst"].xs(3, level="calibrations").drop(["all", LAST])
    assert worst.max() == pytest.approx(0.076, abs=5e-4)
    apart = table.loc[OTHER, ["median", "worst"]].loc[[1, 3]].to_numpy().tolist()
    assert apart == [pytest.approx(each, abs=5e-4) for each in ([0.023, 0.109], [0.009, 0.038])]
    long = table.loc[LONG, "worst"].loc[[1, 3]].tolist()
    assert long == pytest.approx([0.084, 0.055], abs=5e-4)
    # What one calibration alone predicts is what the tables of the batteries hold.
    for folder in (LAST, *FOLLOWED, OTHER, SPREAD):
        off = pd.read_csv(BLIND / folder / "cells.csv")["relative_error"]
        alone = table.loc[(folder, 1)]
        assert alone["worst"] == pytest.approx(off.abs().max(), abs=2e-3)
        assert alone["mean"] == pytest.approx(off.mean(), abs=5e-4)


def test_passes_of_several_calibrations_are_nobody_elses_neighbours() -> None:
    profiles = [read_profile(BLIND / OTHER / f"small-{number}.json") for number in (1, 2)]
    first, second = profiles
    assert pooled([first]).acceptance == first.acceptance
    together_ = pooled(profiles)
    passes = {each for row in together_.run_times for each in row.passes}
    assert passes == {*range(16), *range(17, 33)}
    for rows, parts in (
        (together_.run_times, [each.run_times for each in profiles]),
        (together_.overhead, [each.overhead for each in profiles]),
    ):
        for name in ("seconds", "plain", "passes"):
            counted = sum(len(getattr(row, name)) for row in rows)
            assert counted == sum(len(getattr(row, name)) for part in parts for row in part)

    # Of one kind of run, the first calibration's and then the second's.
    def seconds(profile: Profile) -> list[float]:
        (row,) = (row for row in profile.run_times if row.tokens == 3 and row.context == context)
        return row.seconds

    context = next(row.context for row in first.run_times if row.tokens == 3)
    assert seconds(together_) == seconds(first) + seconds(second)


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


def test_recommendations_of_plain_decoding_count_as_the_page_says() -> None:
    """Of all fifteen batteries: by what was measured, and by halves of the passes."""
    page = (BLIND / "README.md").read_text()
    rows = re.findall(r"^\| `([a-z-]+)/` \|(.*)\|$", page, re.MULTILINE)
    assert len(rows) == 15
    for folder, row in rows:
        cells = pd.read_csv(BLIND / folder / "cells.csv")
        every = losses_with_plain(cells), recommended_losses(BLIND / folder, cells, plain=True)
        first, *halves = [f"{np.mean(np.array(each) <= 0.02):.0%}" for each in every if each]
        words = " ".join([first, *(f"({each})" for each in halves)])
        assert row.split("|")[6].strip() == words.replace("%", " %")
        assert all(len(each) == 18 for each in every if each)


def test_plain_decoding_may_be_recommended_and_the_fastest() -> None:
    columns = ["draft", "temperature", "calibration", "gamma", "measured_speedup", "chosen"]
    slow = [("a", 0, 1, 1, 0.8, False), ("a", 0, 1, 2, 0.9, True)]
    plain = [("b", 0, 1, 1, 1.25, False), ("b", 0, 1, 2, 0.9, False)]
    cells = pd.DataFrame([*slow, *plain], columns=columns)
    assert losses_with_plain(cells) == pytest.approx([0.1, 0.2])
    # Recommended throughout, there is no draft length to judge, and nothing to warn of.
    nothing = cells.query("draft == 'b'").assign(relative_error=0.0, inside=True)
    assert np.isnan(summary(nothing.to_dict("records"))["within_2_percent_of_best"])


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


def test_a_calibration_beside_programs_on_both_cores_says_so_and_allows_for_it() -> None:
    notes = read_profile(BLIND / "both-cores" / "small-1.json").notes
    assert any(note.startswith(BUSY) for note in notes)
    cells = pd.read_csv(BLIND / "both-cores" / "cells.csv")
    assert len(cells) == 16
    assert cells["inside"].all()
    low, high = (cells[name] / cells["predicted_speedup"] for name in ("low", "high"))
    assert low.median() == pytest.approx(0.73, abs=0.005)
    assert high.median() == pytest.approx(1.37, abs=0.005)


def test_predictions_are_as_far_off_as_is_explained() -> None:
    """Of twelve drafts in four batteries, moved by elasticities that know how sure they are."""
    found = moved(BLIND)
    assert 0.5 < over_explained(found[found["battery"].isin(JUDGES)]) < 1.2
    rows = pd.DataFrame({"off": [0.03, 0.01], "explained": [1e-4, 1e-4]})
    assert over_explained(rows) == pytest.approx(5**0.5)


def test_speedups_follow_plain_steps_as_calibrations_tell(tmp_path: Path) -> None:
    """Beside other programs nothing is told of states that last."""
    found = followed(BLIND, ("both-cores",))
    off, off_moved = (np.sqrt((found[name] ** 2).mean()) for name in ("off", "off_moved"))
    assert len(found) == 52
    assert off_moved < 0.65 * off
    seen, said = slopes(found)
    assert seen == pytest.approx(said, abs=0.03)
    rows = [
        {
            "draft": "x",
            "calibration": number,
            "profile_plain_ms": 1.0,
            "measured_plain_ms": plain_ms,
            "measured_speedup": plain_ms**0.5,
            "speedup_at_profile_plain": 1.0,
            "predicted_speedup": plain_ms**elasticity,
            "elasticity": elasticity,
        }
        for number, plain_ms, elasticity in ((1, 1.1, 0.3), (2, 1.2, 0.3), (3, 0.8, 0.1))
    ]
    (tmp_path / "quiet").mkdir()
    pd.DataFrame(rows).to_csv(tmp_path / "quiet" / "cells.csv", index=False)
    found = followed(tmp_path)
    assert found["calibration"].tolist() == [1, 2]
    assert slopes(found) == pytest.approx((0.5, 0.3))
    np.testing.assert_allclose(found["off_moved"], -0.2 * found["far"])


def test_elasticities_lie_about_one_as_intervals_take_them_to() -> None:
    assert around_one(told(BLIND)) == pytest.approx(PRIOR, abs=0.02)


def test_draft_runs_by_their_place_do_not_flatter_the_recommended_length() -> None:
    """Within two standard errors of what was predicted, and the best or within 2 % of it."""
    found = pd.read_csv(BLIND / "quiet-blocks" / "estimators.csv").set_index("estimator")
    smoothed = found.loc["smoothed"]
    assert abs(smoothed["chosen_mean"]) < 2 * smoothed["chosen_mean_error"]
    assert smoothed["within_2_percent_of_best"] >= 0.9
    alike = found.loc["draft runs alike"]
    assert smoothed["chosen_mean"] < alike["chosen_mean"]
    assert smoothed["over_lengths"] < 0.95 * alike["over_lengths"]


@pytest.mark.parametrize(
    ("folder", "draft", "requests"),
    [
        *(("quiet", draft, 8) for draft in DRAFTS),
        *(("quiet-16", draft, 16) for draft in DRAFTS),
        *(("quiet-64", draft, 16) for draft in DRAFTS),
        *(("quiet-spread", draft, 16) for draft in DRAFTS),
        *(
            (folder, draft, 16)
            for folder in (*JUDGES, "unseen", *NOON, *FOLLOWED, OTHER, SPREAD)
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


def test_intervals_allow_for_what_predictions_were_off_together() -> None:
    squares = [together(pd.read_csv(BLIND / each / "cells.csv")) for each in BEFORE]
    assert np.sqrt(pd.concat(squares).mean()) == pytest.approx(DRIFT, abs=0.001)
    # The same for a draft whose nine predictions are 3 % off, with a check that is known exactly.
    cells = pd.DataFrame(
        {
            "draft": "x",
            "temperature": 0.0,
            "speedup_at_profile_plain": 1.03,
            "measured_speedup": [1.0] * 9,
        }
    )
    (square,) = together(cells.assign(measured_error=0.0))
    assert square == pytest.approx(np.log(1.03) ** 2)


def test_intervals_allow_for_what_is_left_where_plain_decoding_is_known() -> None:
    """What calibrations of a draft differ by goes with how long a plain step took meanwhile."""
    every = states(BLIND)
    found = every[every["battery"].isin(BEFORE)]
    # Repeats and elasticities explain all of it.
    assert left_at_plain(found) == 0
    # Of 36 calibrations of twelve drafts, as docs/sure.md has it.
    apart, at_plain = (
        np.sqrt((found[name] ** 2).sum() / (36 - 12)) for name in ("apart", "apart_at_plain")
    )
    assert apart == pytest.approx(0.0237, abs=5e-5)
    assert at_plain == pytest.approx(0.0150, abs=5e-5)


def test_intervals_allow_for_what_is_likeliest_left_at_the_plain_step_of_the_check() -> None:
    """Rounded to a tenth of a per cent; none of these tables' columns rests on it.  What was
    measured since lies within it.
    """
    found = likely_together(BLIND, ("both-cores", SPREAD, "t5-spread"))
    assert found.best == pytest.approx(DRIFT_AT_PLAIN, abs=5e-4)
    assert (found.low, found.high) == pytest.approx((0.0059, 0.0122), abs=5e-4)
    found = likely_together(BLIND, ("both-cores",))
    assert (found.low, found.high) == pytest.approx((0.0055, 0.0114), abs=5e-4)
    assert found.best == pytest.approx(0.0082, abs=5e-5)


def test_what_is_likeliest_left_is_what_was_put_in(tmp_path: Path) -> None:
    """Forty drafts of three calibrations whose predictions are 2 % off together, judged by checks
    that are known to 1 %.  The interval misses 2 % by chance in 5 % of seeds; this is one seed.
    """
    random = np.random.default_rng(5)
    rows = []
    for draft in range(40):
        check = random.normal(0.0, 0.01)
        for calibration in (1, 2, 3):
            off = check + random.normal(0.0, 0.02) + random.normal(0.0, 0.01)
            rows.append({"draft": draft, "calibration": calibration, "predicted_speedup": off})
    cells = pd.DataFrame(rows).assign(
        temperature=0.0,
        predicted_speedup=lambda table: np.exp(table["predicted_speedup"]),
        measured_speedup=1.0,
        measured_error=0.01,
        repeats_error=0.01,
        elasticity_error=0.3,
        measured_plain_ms=2.0,
        profile_plain_ms=2.0,
    )
    (tmp_path / "any").mkdir()
    cells.to_csv(tmp_path / "any" / "cells.csv")
    found = likely_together(tmp_path)
    assert found.low < 0.02 < found.high
    assert found.high - found.low < 0.008
    # Repeats that explain all of it leave nothing.
    cells.assign(repeats_error=0.04).to_csv(tmp_path / "any" / "cells.csv")
    assert likely_together(tmp_path).best == 0


def test_calibrations_are_compared_at_one_plain_step(tmp_path: Path) -> None:
    """Of a draft that gains 0.5 % where plain decoding takes 1 % longer, and one that does not."""
    plain_ms = np.array([3.0, 4.0, 5.0])
    (tmp_path / "quiet").mkdir()
    rows = [
        pd.DataFrame(
            {
                "draft": draft,
                "calibration": [1, 2, 3],
                "temperature": 0.0,
                "profile_plain_ms": plain_ms,
                "speedup_at_profile_plain": plain_ms**elasticity,
                "elasticity": elasticity,
                "elasticity_error": 0.0,
                "repeats_error": 0.01,
            }
        )
        for draft, elasticity in (("x", 0.5), ("y", 0.0))
    ]
    pd.concat(rows).to_csv(tmp_path / "quiet" / "cells.csv")
    found = states(tmp_path)
    np.testing.assert_allclose(found["apart_at_plain"], 0.0, atol=1e-12)
    np.testing.assert_allclose(np.ptp(found.query("draft == 'x'")["apart"]), 0.5 * np.log(5 / 3))
    np.testing.assert_allclose(found.query("draft == 'y'")["apart"], 0.0, atol=1e-12)
    # Repeats would explain more than that.
    assert left_at_plain(found) == 0
    known = found.assign(repeats_error=0.0, apart_at_plain=found["apart"])
    # A third of the draft that moves lies at each of three places; each draft's mean is fitted.
    spread = np.var(0.5 * np.log(plain_ms)) * 3 / 4
    assert left_at_plain(known) == pytest.approx(np.sqrt(2 * spread))
    explained = known.assign(repeats_error=np.sqrt(spread / 2))
    assert left_at_plain(explained) == pytest.approx(np.sqrt(spread))


def test_what_other_programs_do_to_a_prediction() -> None:
    """Intervals that do not know of them hold 46 of 48, and those that do all."""
    estimators = pd.read_csv(BLIND / "busy" / "estimators.csv").set_index("estimator")
    assert estimators.loc["smoothed, as if alone", "inside"] == 46 / 48
    assert estimators.loc["smoothed", "inside"] == 1.0


def test_the_best_of_many_does_not_flatter_itself() -> None:
    """Eight lengths that are equally fast, measured with 2 % of noise a pass: the best of the means
    looks 1 % faster than one that was chosen before, and is not.
    """
    random = np.random.default_rng(3)
    by_halves, flattered = [], []
    for _ in range(200):
        by_pass = 1.5 * np.exp(random.normal(0.0, 0.02, (8, 8)))
        by_halves.append(loss_by_halves(by_pass, 0))
        means = by_pass.mean(axis=1)
        flattered.append(1 - means[0] / means.max())
    assert np.mean(flattered) > 0.008
    # The standard error of the mean of 200 is 0.0007.
    assert abs(np.mean(by_halves)) < 0.002
    # One that is 3 % slower than all the others.
    slower = np.ones((8, 8))
    slower[2] = 0.97
    assert loss_by_halves(slower, 2) == pytest.approx(0.03)
    assert loss_by_halves(slower, 0) == 0
