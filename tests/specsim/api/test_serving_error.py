"""What costs and acceptance leave open of what ``specsim.serve`` says."""

from __future__ import annotations

import json
from dataclasses import replace
from math import hypot
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import specsim
from specsim import Serving, deploy
from specsim.api.serving_error import known_speed
from specsim.api.serving_setup import mean_context
from specsim.batching.source import Source
from specsim.checks import InvalidArgumentError
from specsim.intervals import Interval
from specsim.serving.costs.words import step_model_of_words
from specsim.serving.spread import widened
from tests.support.profiles import ON_H200, write_grid

TIMED = Path(__file__).parents[3] / "studies" / "measured" / "serving" / "profile.vllm-0.json"
FITTED = deploy("llama-3.1-8b", "H100", "eagle3:alpha=0.7", fit="vllm-h100")
ALONE = specsim.workload(concurrency=1, prompt=100, output=50, requests=260)


@pytest.fixture(scope="module")
def served() -> Serving:
    """By the step times of an engine, and drafts as the text behind them has them."""
    work = specsim.workload(rate=12, prompt="uniform:20,120", output=40, requests=400)
    engine = "vllm:num_gpu_blocks=2000,max_num_seqs=16"
    return specsim.serve(work, profile=TIMED, gamma=2, engine=engine, slo="tpot_p99=1")


def test_steps_of_another_length_make_latencies_of_another_length() -> None:
    """One request at a time waits for nobody, so that everything is as long as steps are."""
    found = specsim.serve(ALONE, deployment=FITTED)
    error = FITTED.error
    assert error is not None
    assert found.speed == Interval(1 / (1 + error), 1.0, 1 + error)
    for name in ("ttft_mean", "tpot_p99", "e2e_mean"):
        value = found.figures[name]
        assert value.high == pytest.approx(value.best * (1 + error), rel=1e-3)
        assert value.low == pytest.approx(value.best / (1 + error), rel=1e-3)
    assert found.sentences()[-1].endswith(" times this speed open, which intervals have, too")


@pytest.mark.parametrize("gamma", [None, 3])
def test_intervals_hold_chance_and_what_is_not_known(gamma: int | None) -> None:
    work = specsim.workload(rate=10, prompt="uniform:50,900", output="uniform:1,80", requests=300)
    known, unknown = (
        specsim.serve(work, deployment=replace(FITTED, fit_error=error), gamma=gamma)
        for error in (0.2, None)
    )
    assert unknown.speed is None
    assert known.speed is not None
    for name, value in known.figures.items():
        other = unknown.figures[name]
        assert value.best == other.best
        assert value.low <= other.low <= other.high <= value.high
    # Steps are not all that a request takes where it waits for them.
    wider, other = known.figures["tpot_mean"], unknown.figures["tpot_mean"]
    assert wider.high >= hypot(other.high - other.best, 0.15 * other.best) + other.best


def test_the_speed_is_as_sure_as_the_speedup_by_load(served: Serving) -> None:
    assert served.speed is not None
    batch = max(round(served.engine["batch_mean"]), 1)
    load = specsim.Load([batch], [mean_context(served.served.requests)])
    (row,) = specsim.evaluate(profile=TIMED, gamma=2, load=load).rows()
    assert served.speed.low == pytest.approx(row["low"] / row["speedup"])
    assert served.speed.high == pytest.approx(row["high"] / row["speedup"])
    assert served.speed.low < 1 < served.speed.high


def test_the_speed_of_a_chosen_length_is_less_sure(tmp_path: Path) -> None:
    """It was taken as the best by the costs that price it, one that is asked for was not."""
    path = write_grid(tmp_path)
    (workload,) = Source(None, None, path).workloads()
    load = specsim.Load([4], [64])
    (row,) = specsim.optimize(profile=path, load=load).rows()
    chosen, asked = (known_speed(None, workload, 2, 4, 64, chosen=each) for each in (True, False))
    assert chosen is not None
    assert asked is not None
    assert row["gamma"] == 2
    assert chosen.low == pytest.approx(row["low"] / row["speedup"])
    assert chosen.low < asked.low
    assert chosen.high == asked.high
    # Another length than the best was flattered by nothing.
    assert known_speed(None, workload, 3, 4, 64, chosen=True) == known_speed(
        None, workload, 3, 4, 64, chosen=False
    )


def test_a_plan_knows_as_much_of_costs() -> None:
    work = specsim.workload(rate=30, prompt="uniform:20,120", output=40, requests=400)
    engine = "vllm:num_gpu_blocks=2000,max_num_seqs=16"
    words: Any = {"profile": ON_H200, "alpha": 0.8, "gammas": [2], "engine": engine}
    found = specsim.plan(work, slo="tpot_p99=1", **words)
    best = found.best
    assert best.planned.speculates
    batch = round(best.planned.replica.shared(30 / best.replicas).mean)
    context = mean_context(work.draw(0))
    (workload,) = best.planned.source.workloads(2)
    assert batch > 1
    assert found.error_budget["cost"] == workload.basis.error(batch, context)
    assert found.error_budget["acceptance"] is None  # it was given


def test_it_is_printed_and_in_the_document(served: Serving) -> None:
    answer: Any = json.loads(served.to_json())["answer"]
    assert served.speed is not None
    assert answer["speed"] == [served.speed.low, 1.0, served.speed.high]
    assert "leaves 0." in served.sentences()[-1]
    assert answer["levels"]["tpot_p99"]["value"] == answer["metrics"]["tpot"]["p99"]


def test_nothing_is_known_of_steps_that_somebody_gave() -> None:
    found = specsim.serve(ALONE, step_model="step_ms=5", engine="vllm:num_gpu_blocks=600")
    assert found.speed is None
    assert "speed" not in json.loads(found.to_json())["answer"]
    assert found.sentences()[-1].startswith("intervals: ")


def test_replications_share_their_intervals_with_it() -> None:
    work = specsim.workload(rate=10, prompt=200, output=40, requests=60)
    same: dict[str, Any] = {"deployment": FITTED, "gamma": 3, "replications": 3}
    one, two = (specsim.serve(work, workers=workers, **same) for workers in (1, 2))
    assert one.figures == two.figures
    without = specsim.serve(work, **same | {"deployment": replace(FITTED, fit_error=None)})
    assert without.figures["tpot_mean"].low > one.figures["tpot_mean"].low


def test_few_requests_have_no_interval_that_could_hold_it() -> None:
    work = specsim.workload(rate=10, prompt=200, output=40, requests=60)
    found = specsim.serve(work, deployment=FITTED, gamma=3)
    assert found.speed is not None
    assert np.isnan(found.figures["ttft_mean"].low)
    assert found.sentences()[-2].startswith("intervals: none")
    assert found.sentences()[-1].endswith(" times this speed open")


def test_half_widths_add_up_in_squares() -> None:
    figures = {"a": Interval(7.0, 10.0, 14.0), "b": Interval(1.0, 1.0, 1.0)}
    run, slow, fast = {"a": 9.0, "b": 1.0}, {"a": 12.0, "b": 3.0}, {"a": 5.0, "b": 0.5}
    found = widened(figures, run, [slow, fast])
    assert found["a"] == Interval(5.0, 10.0, 15.0)
    assert found["b"] == Interval(0.5, 1.0, 3.0)
    share = widened(
        {"good_share": Interval(0.9, 0.98, 1.0)}, {"good_share": 0.98}, [{"good_share": 1.0}]
    )
    assert share["good_share"].high == 1.0
    # What is longer at either end has no less on the other side for that.
    assert widened(figures, run, [slow, slow])["a"] == Interval(7.0, 10.0, 15.0)


def test_a_speed_is_above_zero() -> None:
    model = step_model_of_words("step_ms=5,token_us=20")
    assert model.at_speed(2.0).at_speed(0.5).compiled.values.tolist() == (
        model.compiled.values.tolist()
    )
    with pytest.raises(InvalidArgumentError, match="speed must be"):
        model.at_speed(0.0)
