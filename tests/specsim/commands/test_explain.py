"""``specsim explain`` as typed."""

from __future__ import annotations

import csv
import io
import json
from pathlib import Path

import pytest

from tests.support.command_line import fail, run
from tests.support.profiles import ON_H100

HERE = ["explain", "--target", "qwen3-30b-a3b", "--drafter", "eagle3", "--accelerator", "H100"]
HERE += ["--gamma", "5", "--batch", "4", "--context", "2048", "--alpha", "0.7"]


def test_the_table_and_what_is_said_beside_it(capsys: pytest.CaptureFixture[str]) -> None:
    code, out, err = run(capsys, *HERE)
    assert code == 0
    for words in ("gamma 5 at batch 4", "verification", "plain step", "single changes"):
        assert words in out
    assert "step times at a bound: peak rates, no launch or host time" in " ".join(out.split())
    more, first, why, efficiency, best, *_ = err.splitlines()
    assert " more with --wide" in more
    assert "slower than plain decoding (0.9" in first
    assert "touches 101 of 128 experts of a layer, a plain step 29" in why
    assert efficiency.startswith("target efficiency T(1)/T(6) = 0.3")
    assert best.startswith("best single change: ")


def test_the_document(capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = run(capsys, *HERE, "--overhead-us", "500", "--format", "json")
    assert code == 0
    found = json.loads(out)
    assert (found["schema"], found["version"]) == ("specsim.explanation", 1)
    assert found["inputs"]["deployment"]["drafters"][0]["kind"] == "Eagle3"
    answer = found["answer"]
    assert (answer["gamma"], answer["batch"], answer["context"]) == (5, 4, 2048)
    assert answer["reason"] == "experts"
    assert answer["round_ms"] == pytest.approx(
        sum(row["ms"] for row in answer["rows"] if row["step"] == "round")
    )
    tokens = answer["round_ms"] / answer["plain_ms"]
    assert answer["break_even_tokens_per_call"] == pytest.approx(tokens)
    assert 0.9 < answer["gamma_0_loaded"] < 1
    assert answer["speedup"] == pytest.approx(answer["tokens_per_call"] / tokens)
    assert answer["speedup"] == pytest.approx(answer["plain_ms_per_token"] / answer["ms_per_token"])
    assert all(each["speedup"] > answer["speedup"] for each in answer["changes"])
    assert not answer["bound"]


def test_rows_for_programs(capsys: pytest.CaptureFixture[str]) -> None:
    _, out, _ = run(capsys, *HERE, "--format", "csv")
    rows = list(csv.DictReader(io.StringIO(out)))
    assert [row["part"] for row in rows if row["step"] == "plain step"] == ["target run", "host"]
    assert rows[-1]["experts"] == ""


def test_the_figure(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    path = tmp_path / "parts.png"
    code, _, err = run(capsys, *HERE, "--figure", str(path))
    assert code == 0
    assert f"figure: {path}" in err
    assert path.read_bytes().startswith(b"\x89PNG")


def test_what_a_drafter_of_several_is_compared_with(capsys: pytest.CaptureFixture[str]) -> None:
    _, out, err = run(capsys, *HERE, "--drafter", "ngram:match=0.9")
    assert "gamma 5 with eagle3 at batch 4" in out
    assert "drafter ngram:match=0.9" in out
    assert "as often" not in out + err


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--gamma", "0"], "--gamma must be a whole number >= 1, got 0"),
        (["--batch", "1,2"], "--batch must be"),
        (["--figure", "x.svg"], "--figure x.svg must be a .png"),
        (["--drafter", "eagel"], "did you mean eagle"),
        (["--profile", "p.json"], "p.json: no such file"),
        (["--profile", str(ON_H100)], "exclude each other"),
        (["--temperature", "1"], "temperature needs a profile"),
        (["--batch", "100000"], "room for"),
        (["--tensor-parallel", "3"], "must divide the 32 attention heads"),
    ],
)
def test_bad_input_is_one_line(
    capsys: pytest.CaptureFixture[str], words: list[str], message: str
) -> None:
    assert message in fail(capsys, *HERE, *words)


def test_gamma_is_asked_for(capsys: pytest.CaptureFixture[str]) -> None:
    assert "--gamma" in fail(capsys, "explain", "--alpha", "0.7")


def test_changes_that_were_asked_for_need_not_help(capsys: pytest.CaptureFixture[str]) -> None:
    words = [*HERE, "--drafter", "medusa"]
    _, out, _ = run(capsys, *words)
    assert "single changes, the best first" in out
    _, out, _ = run(capsys, *words, "--format", "json")
    answer = json.loads(out)["answer"]
    assert any(each["speedup"] < answer["speedup"] for each in answer["changes"])
