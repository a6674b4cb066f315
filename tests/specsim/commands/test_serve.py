"""``specsim serve`` as it is typed."""

from __future__ import annotations

import json
import shlex
from pathlib import Path

import pandas as pd
import pytest

from specsim.commands._workload import read_gamma
from tests.support.command_line import fail, run

WORDS = shlex.split(
    "serve --rate 10 --prompt uniform:50,400 --output uniform:1,60 --requests 120 "
    "--step-cost step_ms=5,token_us=20 --engine vllm:num_gpu_blocks=600"
)


def test_levels_decide_the_exit_code(capsys: pytest.CaptureFixture[str]) -> None:
    code, out, err = run(capsys, *WORDS, "--slo", "ttft_p99=1")
    assert code == 0
    assert "120 requests at" in out
    assert "ttft p99 is" in err
    assert ", within 1,000 ms" in err
    assert "no warm-up is cut" in err
    code, _, err = run(capsys, *WORDS, "--slo", "ttft_p99=0.001", "--warmup", "0.25")
    assert code == 1
    assert ", above 1 ms" in err
    assert "the first 25% of the requests are warm-up" in err


def test_files_and_picture(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    requests, steps, figure = (tmp_path / name for name in ("r.parquet", "s.csv", "f.png"))
    code, out, err = run(
        capsys,
        *(*WORDS, "--gamma", "1-4=2,5-256=0", "--alpha", "0.8", "--replicas", "2"),
        *("--routing", "least-outstanding", "--format", "json", "--figure", str(figure)),
        *("--save-requests", str(requests), "--save-steps", str(steps)),
    )
    assert code == 0, err
    answer = json.loads(out)["answer"]
    assert len(pd.read_parquet(requests)) == 120
    assert len(pd.read_csv(steps)) == answer["engine"]["steps"]
    assert figure.read_bytes().startswith(b"\x89PNG")
    assert answer["title"].endswith("2 replicas, least-outstanding, steps as given")


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ("--gamma x", "--gamma must be a number"),
        ("--gamma 1-4:2=3", "--gamma must be N, table, adaptive"),
        ("--window 4", "--window must be first,last, got 1 numbers"),
        ("--save-steps x.txt", "must be a .parquet or .csv in a folder that exists"),
        ("--rate 0", "rate must be > 0 requests per second"),
        ("--rate -1", "rate must be > 0 requests per second, got -1"),
        ("--workload none.csv", "prompt has no meaning beside a file"),
        ("--slo ttft", "slo must be NAME=SECONDS"),
        ("--figure f.txt", "--figure f.txt must be a .png"),
    ],
)
def test_bad_input_is_one_line(capsys: pytest.CaptureFixture[str], words: str, said: str) -> None:
    assert said in fail(capsys, *WORDS, *shlex.split(words))


def test_a_workload_in_figures(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    file = tmp_path / "w.csv"
    file.write_text("arrival_s,prompt_len,output_len\n0,100,10\n1,200,20\n4,300,60\n")
    code, out, err = run(capsys, "workload", "--workload", str(file), "--format", "json")
    assert (code, err) == (0, "")
    document = json.loads(out)
    assert document["schema"] == "specsim.workload"
    (row,) = document["answer"]["rows"]
    assert (row["requests"], row["rate"], row["prompt_mean"], row["output_p50"]) == (
        3,
        0.5,
        200,
        20,
    )
    assert row["interval_cv"] == pytest.approx(0.5)
    assert "shared" not in row


def test_gamma_in_words() -> None:
    assert read_gamma(None) is None
    assert read_gamma("table") == "table"
    assert read_gamma("3") == 3
    assert read_gamma("1=5, 2-64=3") == [(1, 1, 5), (2, 64, 3)]


def test_two_tables_do_not_go_to_one_file(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    path = str(tmp_path / "both.csv")
    said = fail(capsys, *WORDS, "--save-requests", path, "--save-steps", path)
    assert "--save-requests and --save-steps must be two files" in said
