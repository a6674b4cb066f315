"""Request logs of engines, and the simulator beside them."""

from __future__ import annotations

import csv
import json
import shlex
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import specsim
from specsim.serving.comparison import (
    LatencySample,
    compare,
    distance,
    mean_interval,
    time_blocks,
)
from specsim.serving.logs import read_log_text
from specsim.serving.requests import WorkloadError
from tests.support.command_line import fail, run

REFERENCE = Path(__file__).parents[2] / "reference" / "serving"
ENGINE = "vllm:num_gpu_blocks=600"
COST = "step_ms=5,token_us=20"
DRAFTS: dict[str, Any] = {"gamma": 3, "alpha": 0.7}


def bench(tmp_path: Path, **drafts: Any) -> Path:
    """What vllm bench would have written of a simulated run."""
    work = specsim.workload(rate=10, prompt="uniform:50,400", output="uniform:1,60", requests=120)
    served = specsim.serve(work, step_model=COST, engine=ENGINE, **drafts).served
    times = served.times
    order = np.argsort(times.itl_request, kind="stable")
    counts = np.bincount(times.itl_request, minlength=120)
    document = {
        "input_lens": served.requests.prompt_tokens.tolist(),
        "output_lens": served.requests.output_tokens.tolist(),
        "start_times": (1000 + times.arrival_s).tolist(),
        "ttfts": times.ttft_s.tolist(),
        "itls": [each.tolist() for each in np.split(times.itl_s[order], counts.cumsum()[:-1])],
    }
    path = tmp_path / "bench.json"
    path.write_text(json.dumps(document))
    return path


def test_its_own_log_is_predicted_without_error(tmp_path: Path) -> None:
    found = specsim.validate_serving(bench(tmp_path), step_model=COST, engine=ENGINE)
    assert found.passed
    assert found.replications == 1
    assert [each.name for each in found.latencies] == ["ttft", "tpot", "itl", "e2e"]
    assert [each.what for each in found.left_out] == ["queue"]
    for each in found.latencies:
        for error in each.errors.values():
            # Times of the log were moved by 1000 s and back.
            assert abs(error.best) < 1e-9
        if each.requests is not None:
            assert each.requests.median_s < 1e-9
            assert each.requests.correlation == pytest.approx(1)
    assert [each.error for each in found.throughput] == pytest.approx([0, 0], abs=1e-9)


def test_steps_that_cost_too_little_are_found_out(tmp_path: Path) -> None:
    path = bench(tmp_path)
    wrong = {"step_model": "step_ms=3,token_us=20", "engine": ENGINE}
    found = specsim.validate_serving(path, **wrong)
    assert not found.passed
    assert any(each.startswith("tpot mean is off by -") for each in found.failures)
    error = next(each for each in found.latencies if each.name == "tpot").errors["mean"]
    assert error.low < error.best < error.high < 0
    assert specsim.validate_serving(path, tolerance="mean=0.9", **wrong).passed
    strict = specsim.validate_serving(path, tolerance={"mean": 0.9, "tpot_mean": 0.1}, **wrong)
    assert len(strict.failures) == 1


def test_other_luck_is_no_failure(tmp_path: Path) -> None:
    found = specsim.validate_serving(
        bench(tmp_path, **DRAFTS), step_model=COST, engine=ENGINE, seed=5, **DRAFTS
    )
    assert found.replications == 20
    assert found.passed
    tpot = next(each for each in found.latencies if each.name == "tpot")
    assert tpot.predicted["mean"].low < tpot.predicted["mean"].best
    assert abs(tpot.errors["mean"].best) < 0.05


def test_first_tokens_of_a_measured_run(tmp_path: Path) -> None:
    """The run of tests/reference/serving, as LLMServingSim logs it; its later half is cut off, so
    that only the first fifty requests met what they meet here.
    """
    with (REFERENCE / "requests.csv").open(newline="") as stream:
        rows = list(csv.DictReader(stream))
    log, sent = tmp_path / "requests.jsonl", tmp_path / "sent.jsonl"
    with log.open("w") as stream, sent.open("w") as other:
        for n, row in enumerate(rows):
            lengths = int(row["prompt_tokens"]), int(row["output_tokens"])
            arrival, first = float(row["arrival_s"]), float(row["first_token_s"])
            line = {"input_toks": lengths[0], "output_toks": lengths[1], "request_id": f"b-{n}"}
            times = {"arrival_time": 5e8 + arrival, "queued_ts": 9 + arrival + 0.002}
            stream.write(json.dumps({**line, **times, "first_token_ts": 9.002 + first}) + "\n")
            blocks = [16 * [int(each)] for each in row["shared_blocks"].split()]
            shared = [token for each in blocks for token in each]
            own = range(10**6 * (n + 1), 10**6 * (n + 1) + lengths[0] - len(shared))
            ids = {"prompt_token_ids": [*shared, *own], "output_len": lengths[1]}
            other.write(json.dumps(ids) + "\n")
    found = specsim.validate_serving(
        log,
        workload=sent,
        step_model=f"kernels:{REFERENCE},layers=32,between_ms=1.4",
        engine="vllm:version=0.19.0,num_gpu_blocks=30000,max_num_seqs=128,"
        "max_num_batched_tokens=2048",
    )
    (ttft,) = found.latencies
    off = np.abs(ttft.predicted_sample.seconds - ttft.measured_sample.seconds)
    # The figure of test_measured.py.
    assert np.median(off[1:50]) < 0.010
    assert {each.what for each in found.left_out} == {"itl", "queue", "tpot", "e2e", "throughput"}


def test_guidellm() -> None:
    def request(start: float, **more: Any) -> dict[str, Any]:
        return {"request_start_time": start, "prompt_tokens": 9, "output_tokens": 5, **more}

    streamed = {
        "request_latency": 0.5,
        "time_to_first_token_ms": 100.0,
        "inter_token_latency_ms": 20.0,
    }
    groups = {"successful": [request(8.5, **streamed), request(8, **streamed)], "errored": [{}]}
    found = read_log_text(json.dumps({"benchmarks": [{"requests": groups}]}))
    assert found.requests.arrival_s.tolist() == [0, 0.5]
    assert found.samples["tpot"].seconds.tolist() == pytest.approx([0.02, 0.02])
    assert found.samples["e2e"].seconds.tolist() == pytest.approx([0.18, 0.18])
    assert "1 requests without an answer are left out" in found.notes[1]
    groups = {"successful": [request(8, request_latency=0.5)]}
    found = read_log_text(json.dumps({"benchmarks": [{"requests": groups}]}))
    assert set(found.samples) == {"e2e"}
    assert set(found.missing) == {"ttft", "tpot", "itl", "queue"}
    one = json.dumps({"benchmarks": [{"requests": groups}]})
    for several in (f"[{one}, {one}]", f"{one}\n{one}\n"):
        with pytest.raises(WorkloadError, match="2 documents in one file, of other loads each"):
            read_log_text(several)


def test_guidellm_requests_that_tell_too_little_are_left_out() -> None:
    whole = {"request_start_time": 8.0, "prompt_tokens": 9, "output_tokens": 5}
    whole |= {"request_latency": 0.5, "time_to_first_token_ms": 100.0, "inter_token_latency_ms": 20}
    empty, late = whole | {"output_tokens": 0}, whole | {"time_to_first_token_ms": None}
    groups = {"successful": [whole, empty, late, whole]}
    found = read_log_text(json.dumps({"benchmarks": [{"requests": groups}]}))
    assert len(found.requests) == 2
    assert "2 requests without output tokens or the time of their first token" in found.notes[1]
    assert set(found.samples) == {"ttft", "tpot", "e2e"}
    # One that streamed nothing does not tell that the others did.
    groups = {"successful": [empty, late]}
    found = read_log_text(json.dumps({"benchmarks": [{"requests": groups}]}))
    assert len(found.requests) == 1
    assert set(found.samples) == {"e2e"}
    groups = {"successful": [empty]}
    with pytest.raises(WorkloadError, match="no answered request has output tokens"):
        read_log_text(json.dumps({"benchmarks": [{"requests": groups}]}))


BENCH = {
    "input_lens": [3],
    "output_lens": [2],
    "start_times": [1.0],
    "ttfts": [0.5],
    "itls": [[0.1]],
}
QUEUED = {"input_toks": 5, "output_toks": 2, "queued_ts": 3.0}


@pytest.mark.parametrize(
    ("document", "said"),
    [
        ({"mean_ttft_ms": 3.0}, "input_lens is missing: times of every request"),
        ({k: v for k, v in BENCH.items() if k != "start_times"}, "does not write when requests"),
        ({**BENCH, "ttfts": [0.5, 1.0]}, "the lists must be of equal length, got 1 input_lens"),
        ({**BENCH, "itls": [["x"]]}, "request 1, gap 1: itl must be a number, got 'x'"),
        ({**BENCH, "ttfts": [-1]}, "request 1: ttfts must be >= 0"),
        ({**BENCH, "output_lens": [0]}, "no request was answered"),
        ({**QUEUED, "first_token_ts": 2.5}, "its first token is 0.5 s before its arrival"),
        ({**QUEUED, "last_token_ts": "x"}, "last_token_ts must be a number"),
        ({"benchmarks": []}, "0 benchmarks in one file"),
        ({"benchmarks": [{"requests": []}]}, "benchmark 1: requests must be a JSON object"),
        ({"benchmarks": [{"requests": {}}]}, "no request was answered"),
        ({"a": 1}, "no format is recognised by its keys (a)"),
    ],
)
def test_broken_logs(document: dict[str, Any], said: str) -> None:
    with pytest.raises(WorkloadError) as error:
        read_log_text(json.dumps(document))
    assert said in str(error.value)
    assert "\n" not in str(error.value)


def test_as_it_is_typed(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    words = ["validate", "--serving", str(bench(tmp_path)), "--engine", ENGINE]
    words += ["--step-cost", COST]
    figure = tmp_path / "f.png"
    code, out, err = run(capsys, *words, "--format", "json", "--figure", str(figure))
    assert code == 0, err
    document = json.loads(out)
    assert document["schema"] == "specsim.serving_verdict"
    assert document["answer"]["passed"]
    assert figure.read_bytes().startswith(b"\x89PNG")
    code, out, err = run(capsys, *words[:-1], "step_ms=9")
    assert code == 1
    assert "tpot request by request: median error" in err
    assert "failed: tpot mean is off by +" in err
    for more, said in (
        ("--tolerance mean", "tolerance must be NAME=SHARE"),
        ("--tolerance men=0.1", "did you mean"),
        ("--tolerance queue_p99=0.1", "which the log does not tell"),
        ("--warmup 0.8", "intervals need 40 requests or more, and 24 are counted"),
        ("--replications 3", "replications must be 1, got 3"),
        (f"--workload {words[2]}", "has no token ids or hashes"),
    ):
        assert said in fail(capsys, *words, *shlex.split(more))
    assert "nothing.json: no such file" in fail(
        capsys, "validate", "--serving", str(tmp_path / "nothing.json"), "--step-cost", COST
    )


def test_distance_of_two_samples() -> None:
    assert distance(np.array([1.0, 2, 3]), np.array([1.0, 2, 3])) == 0
    assert distance(np.array([1.0, 2]), np.array([3.0])) == 1
    assert distance(np.array([1.0, 2, 3, 4]), np.array([3.0, 4])) == 0.5
    alike = np.full(50, 0.01)
    assert distance(alike, alike + np.linspace(-3e-13, 3e-13, 50)) == 0


def test_what_differs_by_rounding_alone_has_no_correlation() -> None:
    requests = np.arange(50)
    noise = np.linspace(-3e-13, 3e-13, 50)
    ours, seen = (LatencySample(0.01 + each, requests) for each in (noise, noise[::-1]))
    found = compare("tpot", [ours], seen, np.zeros(50, np.int64), 0)
    assert found.requests is not None
    assert np.isnan(found.requests.correlation)


def test_intervals_of_independent_requests_hold() -> None:
    """95 % of 400 intervals over blocks hold the mean of exponential latencies, whose blocks of 15
    are skew: fewer than 358 come once in 10,000 tests where 94 % is true.
    """
    random = np.random.default_rng(3)
    held = 0
    for _ in range(400):
        seconds = random.exponential(size=300)
        block, blocks = time_blocks(np.arange(300.0), 1.0)
        assert blocks == 20
        mean = mean_interval(seconds, block, blocks)
        held += mean.low <= 1 <= mean.high
    assert held >= 358


def test_few_requests_have_no_blocks() -> None:
    assert time_blocks(np.arange(39.0), 1.0)[1] == 0
    assert time_blocks(np.arange(40.0), 1.0)[1] == 8
    # As long as requests stay.
    assert time_blocks(np.arange(1000.0), 100.0)[1] == 9
