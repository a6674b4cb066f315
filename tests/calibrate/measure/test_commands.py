"""calibrate and validate as a user types them, on models built here."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch

import specsim
from calibrate.decode.engine import DecodeRequest
from calibrate.decode.speculative import speculative
from calibrate.measure.trace import generator
from calibrate.validate import interleave, schemes
from specsim.checks import SpecsimError
from specsim.intervals import Interval, apart
from specsim.profiles import read_profile
from tests.support.command_line import fail, run, succeed
from tests.support.models import build_model
from tests.support.word_texts import write_words

REQUESTS = 12


@pytest.fixture(scope="module")
def prompts(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_words(tmp_path_factory.mktemp("prompts") / "prompts.txt", 40, 6)


def words(family: dict[str, Path], prompts: Path, out: Path) -> list[str]:
    return [
        *("calibrate", "--target", str(family["target"]), "--draft", str(family["draft"])),
        *("--prompts", str(prompts), "--requests", f"{REQUESTS}", "--max-new-tokens", "24"),
        *("--gamma-max", "4", "--repeats", "2", "--device", "cpu", "--out", str(out)),
    ]


@pytest.fixture(scope="module")
def profile(
    tiny_family: dict[str, Path], prompts: Path, tmp_path_factory: pytest.TempPathFactory
) -> Path:
    out = tmp_path_factory.mktemp("profile") / "tiny.json"
    succeed(*words(tiny_family, prompts, out))
    return out


def test_passes_are_spread_over_minutes(
    tiny_family: dict[str, Path],
    prompts: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Two passes 90 seconds apart, and the same trace as without; nothing is slept in truth."""
    slept = list[float]()
    monkeypatch.setattr("calibrate.measure.timing.time.sleep", slept.append)
    spread = words(tiny_family, prompts, tmp_path / "spread.json")
    succeed(*spread, "--spread-minutes", "1.5")
    # Beside it, the watch over other programs looks twice.
    (waited,) = (each for each in slept if each > 1)
    assert 80 < waited < 90
    at_once = words(tiny_family, prompts, tmp_path / "at-once.json")
    succeed(*at_once)
    found, usual = (read_profile(tmp_path / f"{name}.json") for name in ("spread", "at-once"))
    assert [each.trace.sha256 for each in found.acceptance] == [
        each.trace.sha256 for each in usual.acceptance
    ]
    assert {each for row in found.run_times for each in row.passes} == {0, 1, 2, 3}
    note = "run times: passes were due evenly over 1.5 minutes"
    assert note in found.notes
    assert note not in usual.notes
    capsys.readouterr()
    assert "spread_minutes must be in [0, 10080], got 20000" in fail(
        capsys, *spread, "--spread-minutes", "20000"
    )
    assert "--spread-minutes and --cost-only exclude each other" in fail(
        capsys, *spread[:5], "--cost-only", "--spread-minutes", "1", "--out", str(tmp_path / "c")
    )


def test_profile_says_what_was_measured(profile: Path) -> None:
    content = read_profile(profile)
    assert [a.sampling.temperature for a in content.acceptance] == [0, 1]
    for measured in content.acceptance:
        curve = [rate.best for rate in measured.survival]
        assert len(curve) == 4
        assert curve == sorted(curve, reverse=True)
        assert all(r.low <= r.best <= r.high for r in [measured.alpha, *measured.survival])
        trace = content.trace(profile, measured)
        assert trace.requests == REQUESTS
        assert trace.acceptance.mean() == pytest.approx(measured.alpha.best)
        assert (np.diff(trace.columns["context"][:5]) == 1).all()
    widths = {(r.model, r.follows, r.tokens) for r in content.run_times}
    assert widths >= {
        *(("target", "draft", n) for n in range(2, 6)),
        *(("target", "target", 1), ("draft", "target", 1), ("draft", "draft", 1)),
    }
    lengths = {
        follows: {
            gamma
            for r in content.run_times
            if (r.model, r.follows) == ("draft", follows)
            for gamma in r.gammas
        }
        for follows in ("target", "draft")
    }
    assert lengths == {"target": {1, 2, 3, 4}, "draft": {2, 3, 4}}
    assert {row.gamma for row in content.overhead} == set(range(5))
    assert all(set(row.passes) <= {0, 1, 2, 3} for row in (*content.run_times, *content.overhead))
    assert not list(profile.parent.glob(".*"))


def test_trace_rows_are_consistent(profile: Path) -> None:
    content = read_profile(profile)
    frame = pd.read_parquet(profile.parent / content.acceptance[1].trace.file)
    # beta is at least the chance that the emitted token is drafted and accepted.
    joint = np.exp(np.minimum(frame["logp_target"], frame["logp_draft"]))
    assert (frame["beta"] >= joint - 1e-6).all()
    assert (frame["beta"] <= 1).all()
    assert (frame["target_top"] >= np.exp(frame["logp_target"]) - 1e-6).all()
    assert frame["target_entropy"].between(0, np.log(64) + 1e-6).all()


def test_validate_counts_what_the_replay_says(
    capsys: pytest.CaptureFixture[str], profile: Path, prompts: Path
) -> None:
    code, out, err = run(
        capsys,
        *("validate", str(profile), "--prompts", str(prompts), "--requests", "4"),
        # Wall-clock is not judged here: tiny models on a busy machine.
        *("--gamma", "1,3", "--tolerance", "100", "--median-tolerance", "100"),
        *("--format", "json"),
    )
    rows = json.loads(out)["answer"]["rows"]
    assert code == 0, err
    assert {(r["temperature"], r["prompts"], r["gamma"]) for r in rows} == {
        (t, p, g) for t in (0, 1) for p in ("calibration", "unseen") for g in (1, 3)
    }
    for row in rows:
        if row["temperature"] == 0 and row["prompts"] == "calibration":
            assert row["predicted_calls"] == row["measured_calls"]
            assert row["z"] == 0
        assert row["exact"] is (True if row["temperature"] == 0 else None)
        parts = {name: value for name, value in row.items() if name.startswith("error_")}
        drift = parts.pop("error_drift")
        assert sum(parts.values()) == pytest.approx(np.log1p(row["relative_error"]))
        assert drift == pytest.approx(np.log(row["profile_speedup"] / row["predicted_speedup"]))
        product = (1 + row["acceptance_error"]) * (1 + row["cost_error"])
        assert product == pytest.approx(1 + row["relative_error"])
    assert "relative error" in err


def test_what_is_predicted_is_fixed_before_it_is_judged(
    capsys: pytest.CaptureFixture[str], profile: Path, prompts: Path
) -> None:
    """Intervals of tiny models on a busy machine are wide; counts are held all the same."""
    asked = ("validate", str(profile), "--prompts", str(prompts), "--requests", "3", "--blind")
    figure = profile.with_name("blind.png")
    code, out, err = run(
        capsys,
        *(*asked, "--gamma", "1,3", "--passes", "2", "--tolerance", "100", "--format", "json"),
        *("--figure", str(figure)),
    )
    assert code == 0, err
    assert figure.read_bytes().startswith(b"\x89PNG")
    figure.unlink()
    rows = json.loads(out)["answer"]["rows"]
    assert [(r["temperature"], r["gamma"], r["passes"]) for r in rows] == [
        (t, g, 2) for t in (0, 1) for g in (1, 3)
    ]
    file = profile.with_name(f"{profile.stem}.prediction.json")
    predictions = json.loads(file.read_text())["predictions"]
    assert {(p["temperature"], p["gamma"]) for p in predictions} == {
        (t, g) for t in (0, 1) for g in range(1, 5)
    }
    for row in rows:
        (before,) = (
            p
            for p in predictions
            if (p["temperature"], p["gamma"]) == (row["temperature"], row["gamma"])
        )
        assert row["speedup_at_profile_plain"] == before["speedup"]
        assert row["profile_plain_ms"] == before["plain_ms"]
        moved = (row["measured_plain_ms"] / before["plain_ms"]) ** before["elasticity"]
        assert row["predicted_speedup"] == pytest.approx(moved * before["speedup"])
        assert row["exact"] is (True if row["temperature"] == 0 else None)
        assert row["measured_low"] < row["measured_speedup"] < row["measured_high"]
        assert len(row["measured_by_pass"]) == 2
        assert np.mean(row["measured_by_pass"]) == pytest.approx(row["measured_speedup"])
        promised, seen = (
            Interval(each[f"{name}low"], each[f"{name}speedup"], each[f"{name}high"])
            for each, name in ((before, ""), (row, "measured_"))
        )
        assert row["inside_at_profile_plain"] is (apart(promised, seen) <= 1)
    file.unlink()


def test_a_blind_check_that_is_cut_short_is_of_the_passes_that_are_whole(
    profile: Path, prompts: Path
) -> None:
    """3 requests at 2 temperatures, each plainly twice and with each of 2 draft lengths."""
    in_pass = 3 * 2 * (2 + 2)
    check = specsim.BlindCheck(gamma=(1, 3), requests=3, passes=3, prompts=prompts)
    asked: list[int] = []

    def more_time() -> bool:
        asked.append(1)
        return len(asked) <= 2 * in_pass - 1

    # What was decoded is kept: the next run needs one more for its second pass.
    with pytest.raises(SpecsimError, match="there was time for 1 of the two passes"):
        specsim.validate(profile, check, more_time=more_time)
    asked[:] = [1] * (2 * in_pass - 3)
    found = specsim.validate(profile, check, more_time=more_time)
    assert len(asked) == 2 * in_pass
    assert [row["passes"] for row in found.measured] == [2] * 4
    assert all(len(row["measured_by_pass"]) == 2 for row in found.measured)
    profile.with_name(f"{profile.stem}.prediction.json").unlink()


def test_validate_predicts_every_scheme_that_the_pair_can_run(
    capsys: pytest.CaptureFixture[str], profile: Path, prompts: Path, tiny_family: dict[str, Path]
) -> None:
    code, out, err = run(
        capsys,
        *("validate", str(profile), "--prompts", str(prompts), "--requests", "3"),
        *("--scheme", "speculative,vertical-cascade,bild,beam-search", "--temperature", "0"),
        *("--with", f"middle={tiny_family['draft']}"),
        # Wall-clock is not judged here: tiny models on a busy machine.
        *("--median-tolerance", "100", "--format", "json"),
    )
    rows = json.loads(out)["answer"]["rows"]
    assert code == 0, err
    assert {row["scheme"] for row in rows} == {
        "speculative",
        "vertical-cascade",
        "bild",
        "beam-search",
    }
    # Those that were timed are others.
    assert all(row["requests"] == 3 for row in rows)
    assert all(row["exact"] for row in rows)
    assert all(row["agreement"] == 1 for row in rows if row["lossless"])
    for row in rows:
        assert row["predicted_runs"].keys() == row["measured_runs"].keys()
        assert row["predicted_runs"]["target"] == pytest.approx(row["measured_runs"]["target"])
    assert "is left out: no such model" in err
    assert "every target call as predicted" in err


def test_a_scheme_that_one_temperature_has_no_setting_of_is_left_out_there(
    capsys: pytest.CaptureFixture[str], profile: Path, prompts: Path
) -> None:
    code, out, err = run(
        capsys,
        *("validate", str(profile), "--prompts", str(prompts), "--requests", "2"),
        *("--scheme", "beam-search", "--median-tolerance", "100", "--format", "json"),
    )
    found = json.loads(out)
    assert {(row["scheme"], row["temperature"]) for row in found["answer"]["rows"]} == {
        ("beam-search", 0.0)
    }
    why = "no setting of it is decoded at temperature 1"
    assert {"what": "beam-search", "why": why} in found["left_out"]
    assert f"beam-search is left out: {why}" in err
    assert code == 0


def test_a_profile_of_another_law_is_decoded_by_it(
    capsys: pytest.CaptureFixture[str],
    prompts: Path,
    tiny_family: dict[str, Path],
    profile: Path,
    tmp_path: Path,
) -> None:
    out = tmp_path / "greedy.json"
    law = "--temperature", "1", "--acceptance-law", "greedy-drafts"
    code, _, err = run(capsys, *words(tiny_family, prompts, out), *law)
    assert code == 0, err
    (measured,) = read_profile(out).acceptance
    assert measured.acceptance_law == "greedy-drafts"
    # The text is the target's whatever the law: the other profile's trace says as much.
    (sampled,) = specsim.optimize(profile=profile, temperature=1.0).rows()
    usual = specsim.optimize(profile=profile, temperature=1.0, acceptance_law="greedy-drafts")
    assert usual.rows()[0]["acceptance_law"] == "greedy-drafts"
    assert sampled["acceptance_law"] == "ratio-test"
    ranks = pd.read_parquet(out.parent / measured.trace.file)["draft_rank"]
    assert measured.alpha.best == pytest.approx((ranks == 1).mean())
    code, found, err = run(
        capsys,
        *("validate", str(out), "--prompts", str(prompts), "--requests", "4", "--gamma", "3"),
        *("--tolerance", "100", "--median-tolerance", "100", "--format", "json"),
    )
    # It would exit 1 if counted calls contradicted the replay: false-alarm chance 1e-4.
    assert code == 0, err
    rows = json.loads(found)["answer"]["rows"]
    assert {row["acceptance_law"] for row in rows} == {"greedy-drafts"}


def test_validate_refuses_what_does_not_go_with_schemes(
    capsys: pytest.CaptureFixture[str], profile: Path, prompts: Path, tmp_path: Path
) -> None:
    words = "validate", str(profile), "--prompts", str(prompts)
    assert "got vertikal" in fail(capsys, *words, "--scheme", "vertikal")
    assert "--only" in fail(capsys, *words, "--scheme", "all", "--only", "unseen")
    assert "others must be of" in fail(capsys, *words, "--scheme", "all", "--with", "draft=x")
    assert "--scheme" in fail(capsys, *words, "--with", "middle=x")
    head = fail(capsys, *words, "--scheme", "all", "--with", "eagle=embedded/eagle")
    assert "was trained over another target" in head
    middle = fail(capsys, *words, "--scheme", "all", "--with", "middle=embedded/eagle")
    assert "a head over its target's states" in middle
    text = "--temperature", "0", "--requests", "2"
    assert (
        "nothing of it runs at these temperatures"
        in run(capsys, *words, "--scheme", "specdec", *text)[2].splitlines()[-1]
    )


def test_validate_needs_the_text_of_a_trace(
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    profile: Path,
    prompts: Path,
    tmp_path: Path,
) -> None:
    content = json.loads(profile.read_text())
    for measured in content["acceptance"]:
        frame = pd.read_parquet(profile.parent / measured["trace"]["file"])
        file = tmp_path / measured["trace"]["file"]
        frame.drop(columns="token").to_parquet(file, index=False)
        measured["trace"]["sha256"] = hashlib.sha256(file.read_bytes()).hexdigest()
    path = tmp_path / "old.json"
    path.write_text(json.dumps(content))
    words = "validate", str(path), "--prompts", str(prompts), "--scheme", "speculative"
    (tmp_path / "temporary").mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "temporary"))
    code, out, err = run(capsys, *words, "--requests", "2")
    assert (code, out) == (2, "")
    assert "no column token" in err.splitlines()[-1]
    assert not list((tmp_path / "temporary").iterdir())


def test_validate_refuses_other_prompts(
    capsys: pytest.CaptureFixture[str], profile: Path, prompts: Path, tmp_path: Path
) -> None:
    other = tmp_path / "other.txt"
    other.write_text("\n".join(reversed(prompts.read_text().splitlines())))
    words = ["validate", str(profile), "--prompts", str(other), "--only", "calibration"]
    assert "the prompts are not those of the calibration" in fail(capsys, *words)


def test_padded_vocabularies_are_one_tokenizer(
    tiny_family: dict[str, Path], prompts: Path, tmp_path: Path
) -> None:
    """Models of one tokenizer may be padded to different sizes; only shared tokens are used."""
    from transformers import AutoModelForCausalLM

    from calibrate.measure.trace import record
    from calibrate.models.load import load_pair
    from calibrate.models.sampling import Sampling

    padded = tmp_path / "padded"
    shutil.copytree(tiny_family["draft"], padded)
    model = AutoModelForCausalLM.from_pretrained(padded)
    model.resize_token_embeddings(80)
    model.save_pretrained(padded)
    pair = load_pair(str(tiny_family["target"]), str(padded), torch.device("cpu"))
    target, draft = pair.cached()
    random = generator(torch.device("cpu"), 5)
    frame = record(target, draft, 0, DecodeRequest([3, 4], 20, Sampling(1.0), random))
    assert len(frame) == 20
    decoded = speculative(
        target, draft, DecodeRequest([3, 4], 20, Sampling(1.0), random), 3
    ).finish()
    assert len(decoded.tokens) == 20
    assert max(decoded.tokens) < 64


@pytest.mark.parametrize("what", [["--only", "calibration"], ["--scheme", "speculative"]])
def test_validate_goes_on_where_it_was_killed(
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    profile: Path,
    prompts: Path,
    what: list[str],
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    decode, decoded, kills = interleave._decode_side_by_side, list[int](), [3]
    predict, predicted = schemes._predicted, list[int]()

    def counted(*given: Any) -> Any:
        predicted.append(1)
        return predict(*given)

    monkeypatch.setattr(schemes, "_predicted", counted)

    def killed(*given: Any) -> Any:
        if [len(decoded)] == kills:
            kills.clear()
            decoded.clear()
            raise KeyboardInterrupt
        decoded.append(1)
        return decode(*given)

    monkeypatch.setattr(interleave, "_decode_side_by_side", killed)
    words = ["validate", str(profile), "--prompts", str(prompts), "--temperature", "0", *what]
    words += ["--requests", "4", "--tolerance", "100", "--median-tolerance", "100"]
    assert run(capsys, *words)[0] == 130
    before = len(predicted)
    assert (before > 0) is ("--scheme" in what)
    code, _, err = run(capsys, *words)
    assert code == 0
    assert "went on with what was decoded before" in err
    # Of schemes each request is decoded twice more, to be timed.
    assert len(decoded) == (12 if "--scheme" in what else 4) - 3
    assert len(predicted) == before, "what was predicted is read back"
    assert not list(tmp_path.iterdir())


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="no device that is full")
def test_an_answer_that_a_full_disk_did_not_take_is_had_again(
    profile: Path, prompts: Path, tmp_path: Path
) -> None:
    """Nothing is decoded twice for it."""
    typed = [
        *(sys.executable, "-m", "specsim", "validate", str(profile), "--prompts", str(prompts)),
        *("--requests", "2", "--gamma", "1", "--only", "calibration", "--tolerance", "1000"),
    ]

    def validate(stdout: Any) -> tuple[int, str, str]:
        found = subprocess.run(
            typed,
            env={**os.environ, "TMPDIR": str(tmp_path)},
            stdout=stdout,
            stderr=subprocess.PIPE,
            text=True,
            check=False,
        )
        return found.returncode, found.stdout or "", found.stderr

    with open("/dev/full", "w") as full:
        code, _, err = validate(full)
    assert (code, err.splitlines()[-1].partition(": ")[2]) == (
        2,
        "error: standard output: No space left on device",
    )
    (kept,) = (each for each in tmp_path.iterdir() if each.is_dir())
    code, out, err = validate(subprocess.PIPE)
    assert code == 0
    assert "measured" in out
    assert f"went on with what was decoded before, in {kept}" in out + err
    assert not list(tmp_path.iterdir())


def test_a_draft_as_long_as_a_text_is_refused_before_anything_is_decoded(
    tiny_family: dict[str, Path], prompts: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """No decoder drafts all that it may write, so that no such block is ever timed."""
    out = tmp_path / "short.json"
    succeed(*words(tiny_family, prompts, out), "--gamma-max", "2", "--max-new-tokens", "2")
    _ = capsys.readouterr()
    validated = ("validate", str(out), "--prompts", str(prompts), "--requests", "2")
    said = fail(capsys, *validated, "--gamma", "2")
    assert "gamma must be a whole number in [1, 1], got 2" in said


def test_validate_out_of_tolerance_exits_1(
    capsys: pytest.CaptureFixture[str], profile: Path, prompts: Path
) -> None:
    code, _, _ = run(
        capsys,
        *("validate", str(profile), "--prompts", str(prompts), "--requests", "2"),
        *("--gamma", "2", "--only", "calibration", "--temperature", "0", "--tolerance", "0"),
    )
    assert code == 1


def test_a_call_that_was_not_replayed_fails_the_check(
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    profile: Path,
    prompts: Path,
) -> None:
    """With three drafts every request is counted a call more than it has."""
    counted = interleave.Interleaved.calls
    monkeypatch.setattr(
        interleave.Interleaved, "calls", lambda self, name: counted(self, name) + (name == 3)
    )
    code, out, err = run(
        capsys,
        *("validate", str(profile), "--prompts", str(prompts), "--requests", "3"),
        *("--gamma", "1,3", "--temperature", "0", "--format", "json"),
        *("--tolerance", "100", "--median-tolerance", "100"),
    )
    rows = json.loads(out)["answer"]["rows"]
    assert {(row["prompts"], row["gamma"]): row["exact"] for row in rows} == {
        ("calibration", 1): True,
        ("calibration", 3): False,
        ("unseen", 1): True,
        ("unseen", 3): True,
    }
    assert code == 1
    said = "calibration prompts, gamma 3: text or number of calls is not what it must be"
    assert f"failed: temperature 0, {said}" in err
    assert err.count("text or number of calls") == 1


@pytest.mark.long
def test_killed_and_started_again_gives_the_same_trace(
    tiny_family: dict[str, Path], prompts: Path, profile: Path, tmp_path: Path
) -> None:
    out = tmp_path / "tiny.json"
    asked = words(tiny_family, prompts, out)
    command = [sys.executable, "-m", "specsim.cli", *asked]
    running = subprocess.Popen(command, stderr=subprocess.DEVNULL, stdout=subprocess.DEVNULL)
    deadline = time.monotonic() + 120
    while len(list(tmp_path.glob(".*.work/*.parquet"))) < 3 and time.monotonic() < deadline:
        time.sleep(0.002)
    running.send_signal(signal.SIGKILL)
    assert running.wait() == -signal.SIGKILL
    assert not out.exists()
    (work,) = tmp_path.glob(".*.work")
    for leftover in work.glob(".*"):
        leftover.unlink()
    copy = tmp_path / "copy"
    shutil.copytree(work, copy / work.name)
    succeed(*asked)
    whole, resumed = read_profile(profile), read_profile(out)
    assert [a.trace for a in resumed.acceptance] == [a.trace for a in whole.acceptance]
    assert not list(tmp_path.glob(".*"))

    # It went on where it was: a mark in a part that was there is in the trace at the end.
    part = copy / work.name / "0-0.parquet"
    pd.read_parquet(part).assign(beta=0.125).to_parquet(part, index=False)
    succeed(*asked[:-1], str(copy / out.name))
    marked = read_profile(copy / out.name)
    frame = pd.read_parquet(copy / marked.acceptance[0].trace.file)
    assert (frame.loc[frame["request"] == 0, "beta"] == 0.125).all()
    assert (frame.loc[frame["request"] == 1, "beta"] != 0.125).any()


def test_wrong_pairs_and_files_are_refused(
    capsys: pytest.CaptureFixture[str], tiny_family: dict[str, Path], prompts: Path, tmp_path: Path
) -> None:
    usual = words(tiny_family, prompts, tmp_path / "p.json")

    def change(option: str, value: str) -> list[str]:
        at = usual.index(option) + 1
        return [*usual[:at], value, *usual[at + 1 :]]

    other = build_model(tmp_path / "other", layers=1, width=16, seed=0, words=65)
    assert "different tokenizers" in fail(capsys, *change("--draft", str(other)))
    assert "no such folder" in fail(capsys, *change("--target", str(tmp_path / "none")))
    empty = tmp_path / "empty.txt"
    empty.write_text("\n \n")
    assert "is empty" in fail(capsys, *change("--prompts", str(empty)))
    one = tmp_path / "one.txt"
    one.write_text("w5 w6\n")
    assert "one.txt has one prompt, at least two" in fail(capsys, *change("--prompts", str(one)))
    # Before models are loaded.
    single = change("--requests", "1")
    single[single.index("--target") + 1] = str(tmp_path / "none")
    assert "requests must be a whole number >= 2, got 1" in fail(capsys, *single)
    assert "no such file" in fail(capsys, *change("--prompts", str(tmp_path / "none.txt")))
    assert "must be <= 128, the context" in fail(capsys, *change("--max-new-tokens", "120"))
    assert "--gamma-max must be a whole number >= 1" in fail(capsys, *change("--gamma-max", "0"))
    assert "no such folder" in fail(capsys, *change("--out", str(tmp_path / "none" / "p.json")))
    assert "embedded/target" in fail(capsys, *change("--target", "embedded/giant"))
    assert {path.name for path in tmp_path.iterdir()} == {"empty.txt", "one.txt", "other"}


def test_same_vocabulary_size_is_not_the_same_tokenizer(tmp_path: Path) -> None:
    from transformers import AutoTokenizer

    from calibrate.models.load import tokenizer_difference

    folders = [build_model(tmp_path / name, 1, 16, 0) for name in ("a", "b")]
    file = folders[1] / "tokenizer.json"
    content = json.loads(file.read_text())
    vocabulary = content["model"]["vocab"]
    vocabulary["w2"], vocabulary["w3"] = vocabulary["w3"], vocabulary["w2"]
    file.write_text(json.dumps(content))
    first, second = (AutoTokenizer.from_pretrained(folder) for folder in folders)
    assert tokenizer_difference(first, first) is None
    assert tokenizer_difference(first, second) == "their model differs"
