"""What the verdict on a request log knows of the error of its steps, and what it leaves out."""

from __future__ import annotations

import json
from dataclasses import replace
from math import hypot
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import specsim
from specsim import deploy
from specsim.api.validate_serving import _with_prefix
from specsim.checks import InvalidArgumentError
from specsim.intervals import Interval
from specsim.serving.comparison import LatencySample, compare, of_replications
from specsim.serving.logs import read_log
from specsim.serving.metrics import STATISTICS
from specsim.serving.requests import WorkloadError
from specsim.serving.service import Served, serve_requests
from tests.support.bench_log import bench_log

TIMED = Path(__file__).parents[3] / "studies" / "measured" / "serving" / "profile.vllm-0.json"
ERROR = 0.2
FITTED = replace(
    deploy("llama-3.1-8b", "H100", "eagle3:alpha=0.7", fit="vllm-h100"), fit_error=ERROR
)


def test_a_fit_that_may_be_so_far_off_explains_steps_that_are(tmp_path: Path) -> None:
    """An engine whose steps take a tenth longer, and whose requests hardly ever meet."""
    work = specsim.workload(rate=0.5, prompt=100, output=50, requests=100)
    setup = specsim.serve(work, deployment=FITTED).setup
    longer = replace(setup, step_model=setup.step_model.at_speed(1 / 1.1))
    path = bench_log(serve_requests(longer, work.draw(0), keep=("steps", "rounds")), tmp_path)
    known = specsim.validate_serving(path, deployment=FITTED)
    unknown = specsim.validate_serving(path, deployment=replace(FITTED, fit_error=None))

    assert unknown.speed is None
    assert any(each.startswith("tpot mean is off by -") for each in unknown.failures)
    assert unknown.warnings[-1].endswith("is not known, and in none of the intervals")
    assert "predicted_ms_low" not in unknown.table()[0]

    assert known.speed == Interval(1 / (1 + ERROR), 1.0, 1 + ERROR)
    own, other = (
        next(each for each in verdict.latencies if each.name == "tpot")
        for verdict in (known, unknown)
    )
    for statistic in STATISTICS:
        value = own.predicted[statistic]
        assert value.best == other.predicted[statistic].best
        assert value.low == pytest.approx(value.best / (1 + ERROR), rel=0.03)
        assert value.high == pytest.approx(value.best * (1 + ERROR), rel=0.03)
        assert own.explained(statistic)
        # How far off the prediction is, is as well known as before.
        assert own.errors[statistic] == other.errors[statistic]
    for total in known.throughput:
        assert total.predicted.low < total.predicted.best < total.predicted.high
    assert "hold what is known of costs and acceptance" in known.warnings[-1]
    assert known.warnings[-1].endswith("than when steps were timed is in none of the intervals")
    assert any("with steps at 0.833 and 1.2 times their speed" in s for s in known.sentences())
    assert "predicted_ms_low" in known.table()[0]
    answer: Any = json.loads(known.to_json())["answer"]
    assert answer["speed"] == [known.speed.low, 1.0, known.speed.high]


def test_drafts_are_simulated_twice_more_at_the_ends_of_what_is_known(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    work = specsim.workload(rate=12, prompt="uniform:20,120", output=40, requests=100)
    words: dict[str, Any] = {
        "profile": TIMED,
        "gamma": 2,
        "engine": "vllm:num_gpu_blocks=2000,max_num_seqs=16",
    }
    serving = specsim.serve(work, **words)
    path = bench_log(serving.served, tmp_path)
    seeds: list[int] = []

    def seen(*given: Any, **more: Any) -> Served:
        seeds.append(more["seed"])
        return serve_requests(*given, **more)

    monkeypatch.setattr("specsim.api.validate_serving.serve_requests", seen)
    found = specsim.validate_serving(path, replications=3, **words)
    assert len(set(seeds)) == 3
    assert seeds[3:] == [seeds[0]] * 2
    # As the same requests are served with it.
    assert found.speed is not None
    assert serving.speed is not None
    assert found.speed.low == pytest.approx(serving.speed.low)
    assert found.speed.high == pytest.approx(serving.speed.high)
    tpot = next(each for each in found.latencies if each.name == "tpot")
    alone = of_replications(tpot.predicted_sample.seconds.reshape(3, -1).mean(axis=1))
    value = tpot.predicted["mean"]
    assert value.best == pytest.approx(alone.best)
    assert value.low < alone.low
    assert value.high > alone.high


def test_half_widths_of_chance_and_of_what_is_known_add_up_in_squares() -> None:
    def sample(*seconds: float) -> LatencySample:
        return LatencySample(np.array(seconds), np.arange(len(seconds)))

    ends = [sample(0.5, 1.0, 1.5), sample(2.0, 4.0, 6.0)]
    runs = [sample(1.0, 2.0, 3.0), sample(1.1, 2.2, 3.3)]
    blocks = np.zeros(3, np.int64)
    once = compare("ttft", runs[:1], runs[0], blocks, 0, ends)
    assert once.predicted["mean"] == Interval(1.0, 2.0, 4.0)
    assert once.predicted["p50"] == Interval(1.0, 2.0, 4.0)
    assert compare("ttft", runs[:1], runs[0], blocks, 0).predicted["mean"] == Interval(2, 2, 2)
    both = compare("ttft", runs, runs[0], blocks, 0, ends).predicted["mean"]
    chance = of_replications(np.array([2.0, 2.2]))
    assert both.best == pytest.approx(2.1)
    assert both.low == pytest.approx(2.1 - hypot(2.1 - chance.low, 1.0))
    assert both.high == pytest.approx(2.1 + hypot(chance.high - 2.1, 2.0))


def test_a_latency_that_no_counted_request_has_is_left_out(tmp_path: Path) -> None:
    """All that have a second token are warm-up."""
    outputs = [5] * 30 + [1] * 50
    document = {
        "input_lens": [20] * 80,
        "output_lens": outputs,
        "start_times": [0.1 * number for number in range(80)],
        "ttfts": [0.01] * 80,
        "itls": [[0.005] * (tokens - 1) for tokens in outputs],
    }
    path = tmp_path / "bench.json"
    path.write_text(json.dumps(document))
    words: dict[str, Any] = {
        "step_model": "step_ms=5,token_us=20",
        "engine": "vllm:num_gpu_blocks=600",
        "warmup": 0.4,
    }
    found = specsim.validate_serving(path, **words)
    assert [each.name for each in found.latencies] == ["ttft", "e2e"]
    left_out = {each.what: each.why for each in found.left_out}
    assert left_out.keys() == {"queue", "tpot", "itl"}
    assert left_out["tpot"] == left_out["itl"] == "no request that counts has one"
    for name in ("tpot_mean", "itl_p99"):
        with pytest.raises(InvalidArgumentError, match=f"{name}, which the log does not tell of"):
            specsim.validate_serving(path, tolerance=f"{name}=0.05", **words)
    whole = specsim.validate_serving(path, tolerance="tpot_mean=0.9", **words | {"warmup": 0.0})
    assert [each.what for each in whole.left_out] == ["queue"]


@pytest.mark.parametrize("warmup", [0.0, 0.5, 0.9])
def test_throughput_is_of_what_counts(warmup: float, tmp_path: Path) -> None:
    """Of a log that the simulator wrote: as ``serve`` has it, predicted and measured."""
    work = specsim.workload(rate=30, prompt=100, output="uniform:1,80", requests=200)
    words: dict[str, Any] = {"step_model": "step_ms=5", "engine": "vllm:num_gpu_blocks=2000"}
    path = bench_log(specsim.serve(work, **words).served, tmp_path)
    served = specsim.serve(work, warmup=warmup, **words).figures
    found = specsim.validate_serving(path, warmup=warmup, tolerance="mean=0.05", **words)
    for each in found.throughput:
        assert each.measured == pytest.approx(served[each.name].best)
        assert each.predicted.best == pytest.approx(served[each.name].best)


def test_a_log_knows_which_request_is_which(tmp_path: Path) -> None:
    """Two that were sent in another order than they stand in the file, and one that failed."""
    prompts = [[2, *range(100 * number, 100 * number + 20 + number)] for number in range(50)]
    prompts[7] = [*prompts[4][:16], *prompts[7][16:]]
    starts = [0.1 * number for number in range(50)]
    starts[4], starts[5] = starts[5], starts[4]
    outputs = [4] * 50
    outputs[2] = 0
    document = {
        "input_lens": [len(each) for each in prompts],
        "output_lens": outputs,
        "start_times": starts,
        "ttfts": [0.01] * 50,
        "itls": [[0.005] * (tokens - 1) for tokens in outputs],
    }
    log, sent = tmp_path / "bench.json", tmp_path / "sent.jsonl"
    log.write_text(json.dumps(document))
    rows = [{"prompt_token_ids": each, "output_len": 4} for each in prompts]
    sent.write_text("".join(json.dumps(each) + "\n" for each in rows))
    requests = _with_prefix(read_log(log), sent)
    prefix = requests.prefix
    assert prefix is not None
    assert requests.prompt_tokens[[3, 4]].tolist() == [26, 25]  # those of places 5 and 4
    assert prefix.of(4)[0] == prefix.of(6)[0]  # places 4 and 7
    assert len(requests) == 49
    sent.write_text("".join(json.dumps(each) + "\n" for each in rows[:-1]))
    with pytest.raises(WorkloadError, match="49 requests, and the log has 50"):
        _with_prefix(read_log(log), sent)
    rows[5], rows[4] = rows[4], rows[5]
    sent.write_text("".join(json.dumps(each) + "\n" for each in rows))
    with pytest.raises(WorkloadError, match="request 6 has a prompt of 25 tokens, in the log it "):
        _with_prefix(read_log(log), sent)


def test_one_draw_of_what_is_random_is_no_certainty(tmp_path: Path) -> None:
    work = specsim.workload(rate=12, prompt=100, output=40, requests=100)
    words: dict[str, Any] = {
        "step_model": "step_ms=5,draft_run_ms=1",
        "engine": "vllm:num_gpu_blocks=2000",
    }
    drafted = {**words, "gamma": 2, "alpha": 0.7}
    path = bench_log(specsim.serve(work, **drafted).served, tmp_path)
    found = specsim.validate_serving(path, replications=1, **drafted)
    assert "predicted_ms_low" in found.table()[0]
    (line,) = (each for each in found.sentences() if each.startswith("intervals: "))
    assert "predicted once, without what chance leaves to acceptance and steps (" in line
    plain = specsim.validate_serving(path, **words)
    (line,) = (each for each in plain.sentences() if each.startswith("intervals: "))
    assert "predictions are certain" in line
    scattered = words | {"step_model": "step_ms=5,step_variation=0.2,prompt_step_variation=0.2"}
    found = specsim.validate_serving(path, **scattered)
    assert found.replications == 20
    assert found.latencies[0].predicted["mean"].low < found.latencies[0].predicted["mean"].high


def test_a_log_without_latencies_passes_nothing(tmp_path: Path) -> None:
    path = tmp_path / "log.jsonl"
    row = json.dumps({"input_toks": 5, "output_toks": 2, "queued_ts": 3.0})
    path.write_text(f"{row}\n" * 40)
    for tolerance in (None, "mean=0.05"):
        with pytest.raises(WorkloadError, match="tells no latency of a request that counts"):
            specsim.validate_serving(
                path,
                step_model="step_ms=5",
                engine="vllm:num_gpu_blocks=2000",
                tolerance=tolerance,
            )


def test_a_drafter_that_drafts_nothing_is_said_as_serve_says_it(tmp_path: Path) -> None:
    work = specsim.workload(rate=12, prompt=100, output=40, requests=100)
    plain: dict[str, Any] = {"step_model": "step_ms=5", "engine": "vllm:num_gpu_blocks=2000"}
    path = bench_log(specsim.serve(work, **plain).served, tmp_path)
    for given, said in (({"alpha": 0.7}, True), ({"alpha": 0.7, "gamma": 0}, False), ({}, False)):
        words = {**plain, **given}
        for found in (specsim.serve(work, **words), specsim.validate_serving(path, **words)):
            assert any(each.startswith("nothing is drafted") for each in found.warnings) == said


@pytest.mark.parametrize(("sizes", "told"), [("1/2", True), ("1/2/512", False)])
def test_steps_beyond_the_largest_graph_are_said_as_serve_says_it(
    tmp_path: Path, sizes: str, told: bool
) -> None:
    work = specsim.workload(rate=100, prompt=100, output=50, requests=100)
    words: dict[str, Any] = {
        "deployment": deploy("llama-3.1-8b", "H100-SXM"),
        "engine": f"vllm:cudagraph_capture_sizes={sizes}",
    }
    serving = specsim.serve(work, **words)
    assert serving.engine["batch_mean"] > 3
    path = bench_log(serving.served, tmp_path)
    for found in (serving, specsim.validate_serving(path, **words)):
        assert any("engine's largest CUDA graph, 2," in each for each in found.warnings) == told
