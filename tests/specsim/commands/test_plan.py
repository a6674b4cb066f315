"""``specsim plan`` as it is typed, and what its answer says."""

from __future__ import annotations

import json
import shlex
from pathlib import Path

import pytest

import specsim
from tests.support.command_line import fail, run

# Steps as of nothing in particular: 5 ms, and 30 us for each token that is read.
WORDS = shlex.split(
    "plan --rate 60 --prompt uniform:50,400 --output uniform:20,120 --requests 600 --alpha 0.8 "
    "--step-cost step_ms=5,token_us=30,draft_run_ms=0.5 --engine vllm:num_gpu_blocks=6000 "
    "--gamma 1:3"
)


def test_the_cheapest_is_simulated(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    figure = tmp_path / "plan.png"
    code, out, err = run(
        capsys,
        *WORDS,
        "--slo",
        "tpot_p99=0.02,ttft_p99=1",
        "--price",
        "2",
        "--format",
        "json",
        "--figure",
        str(figure),
    )
    assert code == 0, err
    document = json.loads(out)
    assert (document["schema"], document["version"]) == ("specsim.serving", 1)
    answer = document["answer"]
    assert answer["plan"]["met"]
    level = answer["levels"]["tpot_p99"]
    assert level["met"]
    assert level["value"][0] <= level["value"][1] <= level["value"][2]
    cards, cost = answer["plan"]["cards"], answer["plan"]["cost_per_million_tokens"]
    assert cost == pytest.approx(1e6 * 2 * cards / (3600 * 60 * 70), rel=0.05)
    assert answer["plan"]["schedule"][0][0] == 1
    rates = [row["rate"] for row in answer["by_rate"]]
    needed = [row["cards"] for row in answer["by_rate"]]
    assert rates == sorted(rates)
    assert needed == sorted(needed)
    assert any(row["by"] == "simulated" for row in answer["rows"])
    assert figure.read_bytes().startswith(b"\x89PNG")


def test_no_set_up_meets_an_impossible_level(capsys: pytest.CaptureFixture[str]) -> None:
    code, _, err = run(capsys, *WORDS, "--slo", "tpot_mean=0.0001", "--analytic")
    assert code == 1
    assert "no set-up meets the levels; nearest:" in err
    assert "at no load" in err


def test_several_cards_with_prices(capsys: pytest.CaptureFixture[str]) -> None:
    words = shlex.split(
        "plan --rate 4 --prompt 500 --output 150 --target llama-3.1-8b --accelerator H100,L40S "
        "--drafter eagle3:alpha=0.7 --gamma 2 --degrees 1,3 --slo tpot_p99=0.05 --analytic "
        "--price H100=2.5,L40S=0.5"
    )
    code, out, err = run(capsys, *words)
    assert code == 0, err
    assert out.partition("─\n")[2].startswith("L40S")  # the cheaper cards come first
    assert "per million tokens in the unit of the price, 0.5 for an hour of a card" in err
    assert "with H100-SXM, none of them cheaper: 1 replica of 1 H100-SXM" in err
    assert err.count("(analytic)") >= 3  # nothing was simulated, and every line says so
    assert "tensor parallel degree must divide" in err


def test_cards_on_which_nothing_fits_have_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    words = shlex.split(
        "plan --rate 2 --prompt 500 --output 150 --target llama-3.3-70b --dtype fp8 --degrees 1 "
        "--accelerator H200,L40S --drafter eagle3:alpha=0.7 --gamma 2 --slo tpot_p99=0.1 --analytic"
    )
    code, _, err = run(capsys, *words)
    assert code == 0, err
    (line,) = [each for each in err.splitlines() if "L40S" in each]
    assert line.startswith("L40S is left out: ")


def test_of_what_costs_the_same_it_is_said(capsys: pytest.CaptureFixture[str]) -> None:
    words = [*WORDS, "--rate", "4", "--slo", "tpot_p99=0.05,ttft_p99=1", "--analytic"]
    code, out, err = run(capsys, *words, "--format", "json")
    assert code == 0, err
    found = json.loads(out)["answer"]["alternatives"]
    with_drafts, without = (found[name] for name in ("with_drafts", "without"))
    assert with_drafts["replicas"] == without["replicas"] == 1
    room = with_drafts["sustained_rate_per_card"] / without["sustained_rate_per_card"]
    assert f"1 replica either way, drafts sustain {room:.3g} times the rate (analytic)" in err


def test_it_says_how_far_it_is() -> None:
    heard: list[tuple[str, int, int]] = []
    found = specsim.plan(
        specsim.workload(rate=5, requests=100, prompt=100, output=50),
        slo="tpot_p99=0.05",
        alpha=0.8,
        step_model="step_ms=5,token_us=30,draft_run_ms=0.5",
        engine="vllm:num_gpu_blocks=6000",
        gammas=(1, 2),
        progress=lambda *each: heard.append(each),
    )
    assert found.best.settled is not None
    assert list(dict.fromkeys(name for name, _, _ in heard)) == ["set-ups", "ranking", "simulating"]
    for name in ("set-ups", "ranking", "simulating"):
        last = [each for each in heard if each[0] == name][-1]
        assert last[1] == last[2] > 0


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ("--slo tpot=0.1", "slo tpot is a limit of single requests, which a plan cannot promise"),
        ("--slo ttft_p99=1 --price A=1,B=2,A=3", "--price names one accelerator twice"),
        ("--slo ttft_p99=1 --price A=", "--price A must be a number"),
        ("--slo tpot_p99=0.1 --price 1,2=3", "--price must be PRICE or NAME=PRICE"),
        ("--slo tpot_p99=0.1 --figure f.txt", "--figure f.txt must be a .png"),
    ],
)
def test_bad_input_has_one_line(words: str, said: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert said in fail(capsys, *WORDS, *shlex.split(words))


def test_a_closed_loop_has_no_rate(capsys: pytest.CaptureFixture[str]) -> None:
    words = shlex.split("plan --concurrency 4 --prompt 100 --output 100 --slo tpot_p99=0.1")
    said = fail(capsys, *words, *WORDS[9:])
    assert "closed loop has no rate" in said


@pytest.mark.parametrize("degree", [1, 2])
def test_cards_that_share_every_layer_are_the_only_degree(
    degree: int, capsys: pytest.CaptureFixture[str]
) -> None:
    words = "plan --rate 1 --prompt 100 --output 50 --target llama-3.1-8b --accelerator H100"
    more = f"--tensor-parallel {degree} --slo ttft_p99=1 --analytic --format json"
    code, out, err = run(capsys, *shlex.split(words), *shlex.split(more))
    assert code == 0, err
    assert [row["cards"] for row in json.loads(out)["answer"]["rows"]] == [degree]


def test_a_plan_with_longer_drafts_than_are_priced_is_refused(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    path = tmp_path / "plan.json"
    plan = {"met": True, "schedule": [[1, 8, 5], [9, 64, 4]]}
    path.write_text(json.dumps({"schema": "specsim.serving", "answer": {"plan": plan}}))
    models = "--target llama-3.1-8b --accelerator H100 --draft llama-3.2-1b --alpha 0.8 --model M"
    for engine in ("llama.cpp", "vllm"):
        words = ["export", engine, *shlex.split(models), "--capacity-plan", str(path)]
        said = fail(capsys, *words, "--gamma-max", "2")
        assert "gamma_max must be >= 5, which the plan drafts, got 2" in said
        code, _, err = run(capsys, *words)
        assert code == 0, err


def test_its_schedule_is_exported(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    models = shlex.split(
        "--target llama-3.1-8b --accelerator H100 --drafter eagle3:alpha=0.7 --overhead-us 1500"
    )
    words = shlex.split("--rate 10 --prompt 300 --output 150 --gamma 2,4 --degrees 1 --analytic")
    level = ["--slo", "tpot_p99=0.005", "--format", "json"]  # too short without drafts
    code, out, err = run(capsys, "plan", *models, *words, *level)
    assert code == 0, err
    schedule = json.loads(out)["answer"]["plan"]["schedule"]
    path = tmp_path / "plan.json"
    path.write_text(out)
    given = ["--capacity-plan", str(path), "--model", "HEADS", "--format", "json"]
    code, out, err = run(capsys, "export", "vllm", *models, *given)
    assert code == 0, err
    rows = json.loads(out)["answer"]["rows"]
    assert [list(row.values()) for row in rows] == schedule
    path.write_text("{}")
    assert "is no plan" in fail(capsys, "export", "vllm", *models, *given)
