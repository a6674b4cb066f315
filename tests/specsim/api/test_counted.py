"""An acceptance file of ``specsim read`` wherever a profile is taken."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

import specsim
from specsim.acceptance import SurvivalAcceptance
from specsim.api.validation import CountsCheck, SpeedupCheck, Tolerance
from specsim.batching.source import Source
from specsim.checks import InvalidArgumentError, UnsupportedError
from specsim.counts.file import read_acceptance
from specsim.extrapolation import acceptance_from_counts
from specsim.intervals import Interval, apart
from tests.support.command_line import SHAPES, fail, rows, run
from tests.support.engine_files import bench, scrape
from tests.support.profiles import write

PAIR = specsim.deploy("llama-3.1-8b", "H100-SXM", "draft_model:llama-3.2-1b")
SAMPLES = Path(__file__).parents[2] / "reference" / "engines"


@pytest.fixture
def counted(tmp_path: Path) -> Path:
    """Counts of a draft model at K = 4, i.i.d. at 0.7, without step times."""
    (tmp_path / "metrics.txt").write_text(scrape(0.7, 4))
    specsim.read(
        tmp_path / "metrics.txt",
        method="draft_model",
        temperature=0,
        out=tmp_path / "acceptance.json",
    )
    return tmp_path / "acceptance.json"


@pytest.fixture
def timed(tmp_path: Path) -> Path:
    """Benchmarks at K = 0 and K = 4: a step of 10 ms, and with drafts of 16, at batch 8 of 28."""
    names = []
    for batch, more in ((1, 0.0), (8, 12.0)):
        for gamma, step in ((0, 10.0), (4, 16.0)):
            name = tmp_path / f"k{gamma}-b{batch}.json"
            name.write_text(bench(step + more * (gamma > 0), batch, gamma))
            names.append(name)
    out = tmp_path / "timed.json"
    specsim.read(*names, method="draft_model", out=out)
    return out


def test_counts_are_an_acceptance_beside_a_price(counted: Path) -> None:
    """The formula of i.i.d. acceptance at every draft length, from counts at one (Leviathan23)."""
    for gamma in (1, 2, 4, 8):
        found = specsim.evaluate(profile=counted, c=0.05, gamma=gamma)
        assert found.speedup == pytest.approx(
            specsim.evaluate(0.7, 0.05, gamma).speedup, rel=0.01
        ), gamma
    inputs = json.loads(specsim.optimize(profile=counted, c=0.05).to_json())["inputs"]
    assert inputs["profile"] == str(counted)
    assert specsim.optimize(profile=counted, c=0.05).gamma == specsim.optimize(0.7, 0.05).gamma
    with_verify = specsim.optimize(profile=counted, c=0.05, verify_slope=0.1)
    assert with_verify.gamma == specsim.optimize(0.7, 0.05, verify_slope=0.1).gamma


def test_what_was_not_counted_is_said(counted: Path) -> None:
    (warning,) = specsim.evaluate(profile=counted, c=0.05, gamma=2).warnings
    assert "measured at gamma 4; gamma 2 was not measured" in warning
    assert not specsim.evaluate(profile=counted, c=0.05, gamma=4).warnings
    (beyond,) = specsim.evaluate(profile=counted, c=0.05, gamma=7).warnings
    assert "gamma 7 is 3 beyond what was measured" in beyond


def test_counts_are_priced_by_shapes(counted: Path) -> None:
    shapes = specsim.deploy("llama-3.1-8b", "H100-SXM", "draft_model:llama-3.2-1b")
    load = specsim.Load((1, 64), (512,))
    found = specsim.optimize(profile=counted, deployment=shapes, load=load).rows()
    iid = specsim.optimize(0.7, deployment=shapes, load=load).rows()
    assert [row["gamma"] for row in found] == [row["gamma"] for row in iid]
    assert [row["speedup"] for row in found] == pytest.approx(
        [row["speedup"] for row in iid], rel=0.01
    )


def test_step_times_are_costs_at_the_batches_that_were_timed(timed: Path) -> None:
    tokens = (1 - 0.7**5) / 0.3
    found = specsim.evaluate(profile=timed, gamma=4).rows()
    assert [(row["batch"], row["gamma"]) for row in found] == [(1, 4), (8, 4)]
    assert found[0]["speedup"] == pytest.approx(tokens * 10 / 16, rel=1e-3)
    assert found[1]["speedup"] == pytest.approx(tokens * 10 / 28, rel=1e-3)
    best = specsim.optimize(profile=timed)
    assert [row["gamma"] > 0 for row in best.rows()] == [True, False]
    assert any("steps were timed with 0, 4 draft tokens" in line for line in best.warnings)


def test_larger_batches_than_were_timed_are_left_out(timed: Path) -> None:
    found = specsim.optimize(profile=timed, load=specsim.Load((1, 8, 9)))
    assert [row["batch"] for row in found.rows()] == [1, 8]
    assert [each.what for each in found.left_out] == ["batch 9 at context 0"]


def test_heads_are_taken_for_granted_with_a_word(counted: Path, tmp_path: Path) -> None:
    (tmp_path / "two.txt").write_text(scrape(0.7, 2))
    said = specsim.read(tmp_path / "two.txt", out=tmp_path / "two.json").warnings
    assert "where the drafts came from is not told" in said[-1]
    heads = specsim.evaluate(profile=tmp_path / "two.json", c=0.05, gamma=8)
    draft_model = specsim.evaluate(profile=counted, c=0.05, gamma=8)
    assert heads.tokens_per_call < 0.97 * draft_model.tokens_per_call
    told = specsim.read(tmp_path / "two.txt", method="mtp", out=tmp_path / "two.json").warnings
    assert len(told) == len(said) - 1


def test_export_from_counts_and_times(timed: Path) -> None:
    found = specsim.export("vllm", profile=timed, model="draft", most=8)
    content = json.loads(found.text)
    assert content["model"] == "draft"
    assert content["num_speculative_tokens_per_batch_size"][-1][2] == 0


def test_export_takes_the_method_that_was_counted(timed: Path, tmp_path: Path) -> None:
    found = specsim.export("vllm", profile=timed, method="eagle3", model="heads", most=8)
    assert any(
        "acceptance and step times of draft_model, which are not those of eagle3" in line
        for line in found.warnings
    )
    heads = specsim.deploy("llama-3.1-8b", "H100-SXM", "eagle3")
    found = specsim.export("vllm", profile=timed, deployment=heads, model="x", most=8)
    assert found.method == "eagle3"
    assert any("planned with the acceptance of draft_model" in line for line in found.warnings)
    assert not any("costs of a draft model" in line for line in found.warnings)
    names = [tmp_path / f"k{gamma}-b1.json" for gamma in (0, 4)]
    specsim.read(*names, method="eagle3", out=tmp_path / "heads.json")
    found = specsim.export("vllm", profile=tmp_path / "heads.json", model="heads", most=1)
    assert json.loads(found.text)["method"] == found.method == "eagle3"
    assert not any("costs of a draft model" in line for line in found.warnings)


def test_a_file_that_names_no_drafter_is_of_what_drafts(tmp_path: Path) -> None:
    """Carried to another length as ``--marginal`` with the same rates is."""
    (tmp_path / "scrape.txt").write_text(scrape(0.7, 4))
    path = tmp_path / "unsaid.json"
    specsim.read(tmp_path / "scrape.txt", out=path)
    for drafter, heads in (("draft_model:llama-3.2-1b", False), ("eagle3", True)):
        deployment = specsim.deploy("llama-3.1-8b", "H100", drafter)
        acceptance = acceptance_from_counts(read_acceptance(path).draft_counts(), heads)
        gains = [
            Source(alpha, deployment, profile).workloads(8)[0].gains.tokens
            for alpha, profile in ((None, path), (acceptance, None))
        ]
        np.testing.assert_array_equal(*gains)


def test_counts_at_one_length_are_predicted_from_others(tmp_path: Path) -> None:
    """vllm-project/vllm pull request 48892: one MTP model counted at K = 1 and at K = 8.

    1.834 tokens per call at K = 1, where the curve of K = 8 cut says 1.762.
    """
    specsim.read(SAMPLES / "vllm-bench-serve-mtp1-mtp8.txt", out=tmp_path / "counted.json")
    found = specsim.validate(tmp_path / "counted.json")
    one, eight = found.rows()
    assert (one["gamma"], one["predicted_from"], eight["predicted_from"]) == (1, "8", "1")
    assert one["measured_tokens_per_call"] == pytest.approx(1 + 22021 / 26407)
    assert one["cut_or_held_tokens_per_call"] == pytest.approx(1.762, abs=1e-3)
    assert abs(one["relative_error"]) < 0.015 < abs(one["cut_or_held_error"])
    assert isinstance(found.check, CountsCheck)


def test_counts_are_predicted_from_another_file(counted: Path, tmp_path: Path) -> None:
    (tmp_path / "two.txt").write_text(scrape(0.7, 2))
    specsim.read(tmp_path / "two.txt", out=tmp_path / "two.json")
    (row,) = specsim.validate(counted, CountsCheck(tmp_path / "two.json")).rows()
    assert abs(row["relative_error"]) < 0.01
    with pytest.raises(InvalidArgumentError, match="which says nothing of itself"):
        specsim.validate(counted, CountsCheck(counted))
    specsim.read(tmp_path / "two.txt", out=tmp_path / "heads.json", method="eagle3")
    with pytest.raises(InvalidArgumentError, match=r"is of another method than .*eagle3, not"):
        specsim.validate(counted, CountsCheck(tmp_path / "heads.json"))
    with pytest.raises(UnsupportedError, match="counts at one draft length, 4"):
        specsim.validate(counted)
    with pytest.raises(InvalidArgumentError, match="names no models"):
        specsim.validate(counted, SpeedupCheck())


def judged(folder: Path, alpha: float, rounds: int = 100_000) -> CountsCheck:
    """Against counts of a draft model at K = 2, i.i.d. at ``alpha``."""
    (folder / "two.txt").write_text(scrape(alpha, 2, rounds))
    specsim.read(folder / "two.txt", method="draft_model", out=folder / "two.json")
    return CountsCheck(folder / "two.json")


def test_counts_that_contradict_the_others_fail(
    counted: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """1 + 0.4 + 0.16 tokens per call were counted, where 1 + 0.7 + 0.49 are expected."""
    check = judged(tmp_path, 0.4)
    found = specsim.validate(counted, check)
    assert not found.passed
    (failure,) = found.failures
    assert failure.startswith("gamma 2: predicted 2.19")
    assert "tokens per call, counted 1.560 (" in failure
    assert not found.rows()[0]["inside"]
    code, _, err = run(capsys, "validate", str(counted), "--counted", str(check.counted))
    assert code == 1
    assert f"failed: {failure}" in err
    # A tolerance judges in the place of intervals: 2.19 is 40 % more than 1.56.
    found = specsim.validate(counted, check, Tolerance(median=0.3, worst=0.5))
    assert found.failures == ("the median error is over the tolerance of 0.3",)
    found = specsim.validate(counted, check, Tolerance(worst=0.3))
    assert found.failures == ("the worst error is over the tolerance of 0.3",)
    assert specsim.validate(counted, check, Tolerance(median=0.5, worst=0.5)).passed
    # Of one file with both lengths, each from the other.
    names = [tmp_path / f"k{gamma}.json" for gamma in (2, 4)]
    for name, gamma, alpha in zip(names, (2, 4), (0.4, 0.7), strict=True):
        name.write_text(bench(10.0, 1, gamma, alpha))
    specsim.read(*names, method="draft_model", out=tmp_path / "both.json")
    found = specsim.validate(tmp_path / "both.json")
    assert [each.split(":")[0] for each in found.failures] == ["gamma 2", "gamma 4"]


def test_counts_may_be_as_far_off_as_chance_explains(counted: Path, tmp_path: Path) -> None:
    """Once in 10,000 a normal figure is 3.890592 standard errors off; the ends of 90 % intervals
    are 1.644854 of them away.
    """
    limit = 3.890592 / 1.644854
    off = []
    for alpha in (0.69, 0.67, 0.66, 0.65, 0.63):
        found = specsim.validate(counted, judged(tmp_path, alpha, rounds=1000))
        (row,) = found.rows()
        predicted, measured = (
            Interval(*(row[f"{name}_tokens_per_call{end}"] for end in ("_low", "", "_high")))
            for name in ("predicted", "measured")
        )
        off.append(apart(predicted, measured))
        assert found.passed == (off[-1] <= limit)
        assert row["inside"] == (off[-1] <= 1)
    assert off == sorted(off)
    assert off[0] < 1 < off[1] < off[2] < limit < off[3]


def test_the_commands_take_an_acceptance_file(
    counted: Path, timed: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    json_words = ("--format", "json")
    code, out, _ = run(
        capsys,
        "optimize",
        "--profile",
        str(counted),
        "--c",
        "0.05",
        "--gamma-max",
        "8",
        *json_words,
    )
    assert code == 0
    assert rows(out)[0]["gamma"] == specsim.optimize(0.7, 0.05).gamma
    code, out, _ = run(
        capsys, "optimize", "--profile", str(counted), *SHAPES, "--batch", "1", *json_words
    )
    assert (code, rows(out)[0]["batch"]) == (0, 1)
    code, out, _ = run(
        capsys, "evaluate", "--profile", str(timed), "--gamma", "4", "--batch", "1:8", *json_words
    )
    assert (code, len(rows(out))) == (0, 8)
    (tmp_path / "two.txt").write_text(scrape(0.7, 2))
    two = tmp_path / "two.json"
    assert run(capsys, "read", str(tmp_path / "two.txt"), "--out", str(two))[0] == 0
    code, out, _ = run(capsys, "validate", str(counted), "--counted", str(two), *json_words)
    assert (code, rows(out)[0]["gamma"]) == (0, 2)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["optimize"], "has no step times"),
        (["optimize", "--c", "0.05", "--alpha", "0.7"], "alpha and profile exclude each other"),
        (["optimize", "--c", "0.05", "--temperature", "1"], "temperature must be that of"),
        (["optimize", "--alpha", "0.6", "--temperature", "1"], "temperature must be that of"),
        (["optimize", "--mode", "eager"], "mode has no meaning"),
        (["optimize", "--c", "0.05", "--acceptance-law", "exact-match"], "acceptance_law has no"),
        (["evaluate", "--c", "0.05", "--gamma", "2000"], "1,000 drafts at most"),
    ],
)
def test_what_does_not_go_with_an_acceptance_file(
    counted: Path, capsys: pytest.CaptureFixture[str], words: list[str], said: str
) -> None:
    assert said in fail(capsys, words[0], "--profile", str(counted), *words[1:])


def test_beside_prices_a_file_that_is_cut_or_missing_is_named(
    counted: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    cut, none, profile = tmp_path / "cut.json", tmp_path / "none.json", write(tmp_path)
    cut.write_bytes(counted.read_bytes()[:300])
    for words in (("optimize", "--c", "0.05"), ("evaluate", "--c", "0.05", "--gamma", "3")):
        assert f"{cut}: not complete JSON" in fail(capsys, *words, "--profile", str(cut))
        assert f"{none}: no such file" in fail(capsys, *words, "--profile", str(none))
        assert "c and profile exclude" in fail(capsys, *words, "--profile", str(profile))


def test_validate_refuses_what_decodes(counted: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(InvalidArgumentError, match="trust_remote_code has no meaning"):
        specsim.validate(counted, trust_remote_code=True)
    assert "no model is run" in fail(capsys, "validate", str(counted), "--gamma", "2")
    assert "--counted goes with" in fail(
        capsys, "validate", str(SAMPLES / "vllm-log-current.txt"), "--counted", str(counted)
    )


def test_step_times_of_no_known_draft_length_are_left_out_and_said(timed: Path) -> None:
    document = json.loads(timed.read_text())
    wanted = specsim.optimize(profile=timed)
    document["steps"].append({"batch": 8, "seconds": 1.0})
    timed.write_text(json.dumps(document))
    found = specsim.optimize(profile=timed)
    assert found.rows() == wanted.rows()
    left_out = set(found.warnings) - set(wanted.warnings)
    assert left_out == {"left out: step times whose draft length is not known, 1 of them"}
    document["steps"] = document["steps"][-1:]
    timed.write_text(json.dumps(document))
    with pytest.raises(UnsupportedError, match="has no step times of a known draft length: give"):
        specsim.optimize(profile=timed)


def test_mean_batches_of_steps_are_taken_as_whole_ones(timed: Path) -> None:
    document = json.loads(timed.read_text())
    wanted = specsim.optimize(profile=timed)
    for step, batch in zip(document["steps"], (1, 1.2, 7.6, 8.3), strict=True):
        step["batch"] = batch
    timed.write_text(json.dumps(document))
    found = specsim.optimize(profile=timed)
    assert found.rows() == wanted.rows()
    assert set(found.warnings) - set(wanted.warnings) == {
        "mean batches of steps are taken as whole ones, 1.2 as 1, 7.6 as 8, 8.3 as 8"
    }


def test_curves_are_planned_as_far_as_they_go(timed: Path) -> None:
    curve = specsim.extrapolate([0.7, 0.5], 3)
    for alpha in (curve, SurvivalAcceptance(tuple(curve.survival.tolist()))):
        for where in ({"profile": timed, "load": specsim.Load([8])}, {"deployment": PAIR}):
            assert specsim.optimize(alpha, **where).inputs["gamma_max"] == [3]
