"""How batteries are measured and judged."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from benchmarks import blind_accuracy
from benchmarks.blind_judged import loss_by_halves, losses_with_plain, summary
from benchmarks.blind_pooled import pooled
from specsim.profiles import Profile, read_profile
from tests.support.blind_batteries import BLIND, OTHER


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


def test_plain_decoding_may_be_recommended_and_the_fastest() -> None:
    columns = ["draft", "temperature", "calibration", "gamma", "measured_speedup", "chosen"]
    slow = [("a", 0, 1, 1, 0.8, False), ("a", 0, 1, 2, 0.9, True)]
    plain = [("b", 0, 1, 1, 1.25, False), ("b", 0, 1, 2, 0.9, False)]
    cells = pd.DataFrame([*slow, *plain], columns=columns)
    assert losses_with_plain(cells) == pytest.approx([0.1, 0.2])
    # Recommended throughout, there is no draft length to judge, and nothing to warn of.
    nothing = cells.query("draft == 'b'").assign(relative_error=0.0, inside=True)
    assert np.isnan(summary(nothing.to_dict("records"))["within_2_percent_of_best"])


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
