"""``specsim defer`` as a user types it."""

from __future__ import annotations

import csv
import io
import json
from pathlib import Path

import pytest

from tests.support.command_line import fail, run
from tests.support.positions import write_positions
from tests.support.profiles import write


@pytest.fixture
def positions(tmp_path: Path) -> str:
    return str(write_positions(tmp_path))


def test_regret_of_every_rule(capsys: pytest.CaptureFixture[str], positions: str) -> None:
    code, out, _ = run(capsys, "defer", positions, "--format", "json")
    result = json.loads(out)
    assert code == 0
    assert result["schema"] == "specsim.defer"
    result = result["answer"]
    rows = result["rows"]
    assert rows[0]["rule"] == "optimum"
    assert {row["rule"] for row in rows[1:]} == {"Chow", "Diff", "Opt", "Lossy", "Lossless"}
    regrets = [row["regret"] for row in rows]
    assert regrets[1:] == sorted(regrets[1:])
    assert set(rows[1]) >= {"regret_low", "regret_high", "quality_within_50%"}
    assert result["draft_quality"] < result["target_quality"]
    # The file has no tempered statistics, on which the lemmas' rule decides.
    assert result["plug_in_regret"] is None


def test_wish_for_the_targets_quality(capsys: pytest.CaptureFixture[str], positions: str) -> None:
    words = ["defer", positions, "--quality", "target", "--c", "0.1", "--format", "json"]
    _, out, _ = run(capsys, *words)
    result = json.loads(out)["answer"]
    best, *rows = result["rows"]
    granted = [row for row in rows if "rejection" in row]
    assert [row["rejection"] for row in granted] == sorted(row["rejection"] for row in granted)
    for row in granted:
        assert row["quality"] >= result["target_quality"] - 1e-9
        assert row["speedup_low"] <= row["speedup"] <= row["speedup_high"]
        assert row["gamma"] >= 1
    assert best["rejection_low"] <= best["rejection"] <= best["rejection_high"]
    assert best["speedup_low"] <= best["speedup"] <= best["speedup_high"]
    # Lossy is no deferral rule, and may beat them all.
    assert best["rejection"] <= min(r["rejection"] for r in granted if r["rule"] != "Lossy")
    chosen = next(row for row in granted if row["rule"] == "Lossless")
    assert chosen["rejection"] == pytest.approx(result["target_rejection"])


def test_wish_for_a_speed(capsys: pytest.CaptureFixture[str], positions: str) -> None:
    words = ["defer", positions, "--speedup", "2", "--c", "0.1", "--verify-slope", "0.02"]
    _, out, _ = run(capsys, *words, "--gamma", "4", "--format", "csv")
    rows = list(csv.DictReader(io.StringIO(out)))
    granted = [row for row in rows if row["quality"]]
    assert all(float(row["speedup"]) >= 2 - 1e-9 for row in granted)
    assert {row["gamma"] for row in granted} == {"4"}
    assert rows[0]["rule"] == "optimum"
    # Blocks of this price are known, and so is the rejection that they allow.
    assert rows[0]["speedup_low"] == rows[0]["speedup_high"] == rows[0]["speedup"]
    assert float(rows[0]["quality_low"]) < float(rows[0]["quality_high"])


def test_profile_prices_blocks(
    capsys: pytest.CaptureFixture[str], positions: str, tmp_path: Path
) -> None:
    """v(n) = 1 + 0.1 (n - 1); the first draft run costs 0.2, the others 0.1."""
    words = ["--profile", str(write(tmp_path)), "--gamma", "3", "--format", "json"]
    _, out, _ = run(capsys, "defer", positions, "--quality", "0", *words)
    best = json.loads(out)["answer"]["rows"][0]
    assert best["rejection"] == 0
    assert best["speedup"] == pytest.approx(4 / (0.2 + 2 * 0.1 + 1.3))


def test_figure_and_table(
    capsys: pytest.CaptureFixture[str], positions: str, tmp_path: Path
) -> None:
    figure = tmp_path / "frontier.png"
    _, out, err = run(capsys, "defer", positions, "--c", "0.1", "--figure", str(figure))
    assert figure.read_bytes().startswith(b"\x89PNG")
    assert "600 positions of 20 requests" in " ".join(out.split())
    assert "Quality of the draft alone" in err
    assert str(figure) in err


def test_wrong_words(capsys: pytest.CaptureFixture[str], positions: str, tmp_path: Path) -> None:
    profile = f"--profile {write(tmp_path)}"
    for words, message in (
        ("--quality 0.5 --speedup 2", "exclude each other"),
        ("--quality good", "--quality must be a number"),
        ("--speedup 2", "needs a price"),
        ("--quality 0.5 --gamma 3", "gamma needs c or a profile"),
        ("--quality 0.5 --c 0.1 --gamma 0", "--gamma must be a whole number >= 1"),
        ("--quality 1.5", "no rule reaches a quality of 1.5"),
        ("--speedup 90 --c 0.1", "no rule is 90 times as fast"),
        (f"--quality 0.5 {profile} --c 0.1", "c and profile exclude each other"),
        (f"--quality 0.5 {profile} --temperature 0", "temperature 0 is not in the profile"),
        ("--figure a.pdf", "must be a .png"),
    ):
        assert message in fail(capsys, "defer", positions, *words.split())
    assert "no such file" in fail(capsys, "defer", str(tmp_path / "none.parquet"))
