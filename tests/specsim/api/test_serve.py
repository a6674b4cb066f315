"""``specsim.serve`` and ``specsim.workload``: from what a person says to what users see."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import specsim
from specsim import Serving, deploy
from specsim.api.serving_costs import law_rows
from specsim.api.serving_engine import memory_blocks
from specsim.api.serving_setup import mean_context
from specsim.checks import InvalidArgumentError, SpecsimError, UnsupportedError
from specsim.files import file_digest
from specsim.report.page.shown import shown_inputs
from specsim.report.points import latency_values, step_parts
from specsim.serving import RoundAcceptance, VllmEngine
from specsim.serving.acceptance import TRACE
from specsim.serving.arrivals import ClosedLoop, PoissonArrivals
from specsim.serving.drafts import DraftPolicy
from specsim.serving.engines.sglang import SglangEngine
from specsim.serving.requests import Requests
from specsim.serving.workload import DrawnWorkload, RecordedWorkload
from tests.support.profiles import write_grid
from tests.support.refusals import refuses

LLAMAS = deploy("llama-3.1-8b", "H100-SXM", "draft_model:llama-3.2-1b", overhead_us=1500)
SERVING = Path(__file__).parents[3] / "studies" / "measured" / "serving"
STEPS = "step_ms=5,token_us=20"
ENGINE = "vllm:num_gpu_blocks=600,max_num_seqs=32"
WORK = specsim.workload(rate=10, prompt="uniform:50,400", output="uniform:1,60", requests=300)


def serve(**more: Any) -> Serving:
    return specsim.serve(WORK, step_model=STEPS, engine=ENGINE, **more)


def test_the_document_is_a_result() -> None:
    found = serve(gamma=2, alpha=[0.8, 0.6], slo="ttft_p99=1,tpot=0.001", seed=4)
    document = json.loads(found.to_json())
    assert (document["schema"], document["version"]) == ("specsim.serving", 1)
    answer = document["answer"]
    assert set(answer["metrics"]) == {
        *("ttft", "tpot", "itl", "e2e", "output_tokens_per_s", "requests_per_s"),
        *("goodput", "good_share"),
    }
    low, best, high = answer["metrics"]["ttft"]["p99"]
    assert low <= best <= high
    assert answer["levels"] == {
        "ttft_p99": {"limit": 1.0, "value": [low, best, high], "met": True, "sure": high <= 1}
    }
    assert answer["workload"]["requests"] == 300
    assert document["inputs"]["engine"]["num_gpu_blocks"] == 600
    assert document["inputs"]["schedule"] == [[1, 1, 2]]
    # A level of requests alone counts for goodput: no TPOT is below a millisecond but of one token.
    one_token = (found.served.requests.output_tokens == 1).mean()
    assert found.figures["good_share"].best == pytest.approx(one_token)
    assert [row["latency"] for row in found.rows()] == ["ttft", "tpot", "itl", "e2e"]
    assert all("\n" not in line for line in found.sentences())
    assert found.met


def test_frames_have_every_request_and_step() -> None:
    found = serve(replicas=2)
    requests, steps = found.requests_frame, found.steps_frame
    assert len(requests) == 300
    assert (requests["ttft_s"] == requests["first_token_s"] - requests["arrival_s"]).all()
    assert requests["replica"].tolist() == [0, 1] * 150
    assert set(steps["replica"]) == {0, 1}
    assert steps["emitted_tokens"].sum() == requests["output_tokens"].sum()
    assert found.figures["ttft_mean"].best == pytest.approx(requests["ttft_s"].mean())


def test_the_same_seed_is_the_same_to_the_last_bit_with_any_workers() -> None:
    """Another seed is another sample, and another gamma sees the same requests."""
    one, two, other = (
        serve(gamma=2, alpha=0.7, seed=seed, replications=3, workers=workers)
        for seed, workers in ((1, 1), (1, 2), (2, 1))
    )
    assert one.figures == two.figures
    assert one.figures["ttft_mean"] != other.figures["ttft_mean"]
    plain = serve(seed=1)
    assert (plain.served.requests.arrival_s == one.served.requests.arrival_s).all()
    assert (plain.served.requests.output_tokens == one.served.requests.output_tokens).all()


def test_speculation_shortens_what_it_should() -> None:
    """At an acceptance of one with free drafts a round emits gamma + 1 tokens in a step's time."""
    plain, drafted = serve(seed=1), serve(gamma=3, alpha=1.0, seed=1)
    ratio = plain.figures["tpot_mean"].best / drafted.figures["tpot_mean"].best
    assert 2.5 < ratio < 4
    assert drafted.engine["tokens_per_call"] > 3


def test_a_rate_beyond_capacity_is_said() -> None:
    found = specsim.serve(
        specsim.workload(rate=500, prompt=400, output=60, requests=400),
        step_model=STEPS,
        engine=ENGINE,
        slo="ttft_p99=0.5",
    )
    assert found.warnings[0].startswith("requests come faster than they are served")
    assert not found.met
    assert found.sentences()[-2].startswith("ttft p99 is")
    assert "above 500 ms" in found.sentences()[-2]


def test_a_latency_that_no_request_has_meets_its_level() -> None:
    work = specsim.workload(rate=5, prompt=100, output=1, requests=60)
    found = specsim.serve(work, step_model=STEPS, engine=ENGINE, slo="tpot_p99=0.05")
    assert found.met
    assert "no request has a tpot, so that 50 ms is kept" in found.sentences()
    assert not any("nan" in each for each in found.sentences())


def test_gaps_that_are_not_kept_meet_no_level(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(import_module("specsim.api.serve"), "_MOST_ROUNDS", 1000)
    assert "itl_p99" not in serve(slo="tpot_p99=1").figures
    with pytest.raises(UnsupportedError, match=r"itl_p99 needs every round of .* at most 1,000"):
        serve(slo="tpot_p99=1,itl_p99=0.1")


@pytest.mark.parametrize(
    ("steps", "free"),
    [(STEPS, True), (f"{STEPS},draft_run_ms=0.5", False), (f"{STEPS},draft_token_us=5", False)],
)
def test_drafts_that_cost_nothing_are_said(steps: str, free: bool) -> None:
    found = specsim.serve(WORK, step_model=steps, engine=ENGINE, gamma=2, alpha=0.7)
    assert any(each.startswith("drafts are free here: ") for each in found.warnings) == free
    assert not specsim.serve(WORK, step_model=steps, engine=ENGINE).warnings


def test_without_a_drafter_nobody_reads_prompts_for_it() -> None:
    """Neither in ``serve`` nor on the plain side of a plan."""
    both = STEPS, f"{STEPS},draft_prefill_token_us=50"
    for drafts in ({}, {"gamma": 2, "alpha": 0.7}):
        cheap, dear = (
            specsim.serve(WORK, step_model=each, engine=ENGINE, **drafts).figures["ttft_mean"].best
            for each in both
        )
        assert (dear > cheap) == bool(drafts)
    given: Any = {"slo": "ttft_p99=1", "alpha": 0.7, "engine": ENGINE, "gammas": [2]}
    plans = [specsim.plan(WORK, step_model=each, simulated=False, **given) for each in both]
    for speculates in (False, True):
        cheap, dear = (
            each.planned.replica.read_s(1)
            for plan in plans
            for each in plan.answers
            if each.planned.speculates == speculates and len(each.planned.drafts.schedule) < 2
        )
        assert (dear > cheap) == speculates


def test_routing_by_prefixes_that_nobody_knows_is_said() -> None:
    for routing, said in (("prefix-aware", True), ("least-outstanding", False)):
        found = serve(replicas=2, routing=routing)
        assert any("prefix-aware routing is least" in each for each in found.warnings) == said


def test_replications_of_the_same_requests_say_so(tmp_path: Path) -> None:
    path = tmp_path / "requests.jsonl"
    rows = ({"timestamp": n / 10, "prompt_len": 50, "output_len": 20} for n in range(300))
    path.write_text("".join(json.dumps(each) + "\n" for each in rows))
    given: Any = {"step_model": STEPS, "engine": ENGINE, "gamma": 2, "alpha": 0.7}
    for work, said in ((specsim.workload(path), True), (WORK, False)):
        found = specsim.serve(work, replications=2, **given)
        assert any("same in every replication" in each for each in found.warnings) == said
        assert any(each.startswith("in the first replication ") for each in found.sentences())
    alone = specsim.serve(specsim.workload(path), **given)
    assert not any("same in every replication" in each for each in alone.warnings)


def test_pictures_are_of_the_requests_that_count() -> None:
    found = serve(warmup=0.5)
    assert latency_values(found, "e2e").size == found.counted == 150
    assert latency_values(serve(), "e2e").size == 300


def test_stages_of_a_pipeline_and_many_cards_are_said_without_drafts_too() -> None:
    deployment = deploy("llama-3.1-405b", "H100", tensor_parallel=8, pipeline_parallel=2)
    work = specsim.workload(rate=1, prompt=100, output=10, requests=20)
    found = specsim.serve(work, deployment=deployment)
    assert any("all 2 stages of the pipeline" in each for each in found.warnings)
    assert any("16 cards are priced as if" in each for each in found.warnings)


def test_a_closed_loop_arrives_as_it_is_served() -> None:
    work = specsim.workload(concurrency=8, prompt=100, output=20, requests=80)
    found = specsim.serve(work, step_model=STEPS, engine=ENGINE)
    assert "8 at any time" in found.title
    assert found.engine["batch_max"] <= 8
    arrivals = np.sort(found.requests_frame["arrival_s"])
    assert (arrivals[:8] == 0).all()
    assert (arrivals[8:] > 0).all()


def test_a_closed_loop_of_two_replicas_arrives_where_one_is_done() -> None:
    """In the one replica requests are done before those of the other, whatever their numbers."""
    work = specsim.workload(concurrency=8, prompt=100, output="uniform:1,40", requests=80)
    found = specsim.serve(work, step_model=STEPS, engine=ENGINE, replicas=2)
    arrived = found.served.arrived
    assert (arrived.arrival_s[:8] == 0).all()
    assert (arrived.arrival_s[8:] > 0).all()
    assert sorted(arrived.output_tokens) == sorted(found.served.requests.output_tokens)


def test_shapes_tell_costs_and_blocks() -> None:
    work = specsim.workload(rate=8, prompt=1000, output=200, requests=100)
    plain = specsim.serve(work, deployment=LLAMAS)
    drafted = specsim.serve(work, deployment=LLAMAS, gamma=3, alpha=0.8)
    assert isinstance(plain.setup.engine, VllmEngine)
    assert isinstance(drafted.setup.engine, VllmEngine)
    # 80 GiB, of which 0.9 less 2 are used; less the weights; 128 KiB a token of the target
    # (32 layers x 2 x 8 heads x 128 x 2 bytes), and 32 KiB of the draft.
    plain_bytes = (0.9 * 80 - 2) * 2**30 - 2 * 8.03e9
    assert plain.setup.engine.num_gpu_blocks == pytest.approx(plain_bytes / 2**17 / 16, rel=0.01)
    assert drafted.setup.engine.num_gpu_blocks < 0.85 * plain.setup.engine.num_gpu_blocks
    assert plain.figures["tpot_mean"].best > 1.5 * drafted.figures["tpot_mean"].best
    assert memory_blocks(LLAMAS, None, 1000, 0) == plain.setup.engine.num_gpu_blocks


def test_a_step_of_equal_requests_is_the_round_that_optimize_prices() -> None:
    """Pure decode steps of a closed loop, against ``evaluate`` by load at their mean context."""
    work = specsim.workload(concurrency=16, prompt=500, output=200, requests=64)
    served = specsim.serve(work, deployment=LLAMAS, gamma=3, alpha=0.7)
    steps = served.steps_frame
    full = steps[(steps["decodes"] == 16) & (steps["prefill_tokens"] == 0)]
    load = specsim.Load([16], [mean_context(served.served.requests)])
    (row,) = specsim.evaluate(0.7, gamma=3, deployment=LLAMAS, load=load).rows()
    round_s = 16 * row["tokens_per_call"] / row["tokens_per_s"]
    assert full["seconds"].mean() == pytest.approx(round_s, rel=0.01)
    assert served.engine["tokens_per_call"] == pytest.approx(row["tokens_per_call"], rel=0.02)


@pytest.mark.parametrize(
    ("drafter", "drops", "further", "slots", "lookahead"),
    [
        ("eagle3", True, False, 0, 3),
        ("parallel:kind=dflash", True, True, 3, 4),
        ("parallel:kind=p_eagle", True, False, 2, 3),
        ("draft_model:llama-3.2-1b", False, False, 1, 3),
        ("medusa", False, False, 0, 0),
        ("ngram", False, False, 0, 0),
    ],
)
def test_engines_do_something_for_some_drafters(
    drafter: str, drops: bool, further: bool, slots: int, lookahead: int
) -> None:
    """vLLM schedules a step ahead where the drafter keeps a cache, and has blocks ready for it."""
    work = specsim.workload(rate=8, prompt=100, output=10, requests=5)
    found = specsim.serve(
        work, deployment=deploy("llama-3.1-8b", "H100-SXM", drafter), gamma=3, alpha=0.7
    )
    drafts = found.setup.drafts
    assert (drafts.drops_last_cached_block, drafts.looks_one_further) == (drops, further)
    assert drafts.slots_for_drafting == slots
    settings = found.setup.engine.settings(drafts)
    assert (settings.lookahead, settings.asynchronous) == (lookahead, lookahead > 0)
    told = replace(found.setup.engine, async_scheduling=True).settings(drafts)
    assert told.asynchronous


def test_a_draft_model_takes_its_slot_with_a_profile_too(tmp_path: Path) -> None:
    work = specsim.workload(rate=8, prompt=60, output=10, requests=5)
    for profile in (write_grid(tmp_path), SERVING / "profile.vllm-0.json"):
        given: Any = {"profile": profile, "engine": "vllm:num_gpu_blocks=512,block_size=32"}
        assert specsim.serve(work, gamma=2, **given).setup.drafts.slots_for_drafting == 1
        assert specsim.serve(work, **given).setup.drafts.slots_for_drafting == 0


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"temperature": 0.5}, "temperature needs a profile"),
        ({"profile": SERVING / "profile.json"}, "and profile exclude each other"),
        ({"gamma": [(1, 16, 300)], "alpha": 0.7}, "gamma must be a whole number in"),
    ],
)
def test_what_has_no_effect_without_drafts_is_refused_too(given: Any, said: str) -> None:
    with pytest.raises(InvalidArgumentError, match=said):
        specsim.serve(WORK, deployment=LLAMAS, **given)


def test_more_requests_than_an_engine_was_timed_with_are_told() -> None:
    given: Any = {"profile": SERVING / "profile.vllm-0.json", "gamma": 2}
    engine = "vllm:num_gpu_blocks=512,block_size=32"
    work = specsim.workload(rate=8, prompt=60, output=10, requests=5)
    beyond = "steps were timed up to 16 requests; with more, up to 256, each adds what it adds from"
    for seqs, told in ((256, True), (16, False)):
        found = specsim.serve(work, engine=f"{engine},max_num_seqs={seqs}", **given)
        assert any(each.startswith(beyond) for each in found.warnings) is told


def test_engines_by_their_own_words() -> None:
    work = specsim.workload(rate=8, prompt=1000, output=100, requests=60)
    found = specsim.serve(work, deployment=LLAMAS, engine="sglang:max_running_requests=16")
    assert isinstance(found.setup.engine, SglangEngine)
    assert found.setup.engine.max_running_requests == 16
    assert found.setup.engine.max_total_num_tokens == 16 * memory_blocks(LLAMAS, None, 1050, 0)
    eager = specsim.serve(
        work, deployment=LLAMAS, engine="vllm:enforce-eager=yes,cudagraph_capture_sizes=1/2/4"
    )
    assert isinstance(eager.setup.engine, VllmEngine)
    assert eager.setup.engine.enforce_eager
    assert eager.setup.engine.cudagraph_capture_sizes == (1, 2, 4)
    blocks = memory_blocks(LLAMAS, None, 1050, 0)
    larger = specsim.serve(work, deployment=LLAMAS, engine="vllm:block_size=64")
    assert isinstance(larger.setup.engine, VllmEngine)
    assert larger.setup.engine.num_gpu_blocks == blocks // 4


@pytest.mark.parametrize(
    ("card", "degree", "chunk", "largest"),
    [
        ("L4", 4, 4096, 160),
        ("L40S", 1, 4096, 32),
        ("H100-SXM", 1, 8192, 256),
        ("B200", 1, 16384, 512),
    ],
)
def test_sglang_has_limits_by_card_and_degree(
    card: str, degree: int, chunk: int, largest: int
) -> None:
    work = specsim.workload(rate=1, prompt=100, output=20, requests=20)
    where = deploy("llama-3.1-8b", card, tensor_parallel=degree)
    engine = specsim.serve(work, deployment=where, engine="sglang").setup.engine
    assert isinstance(engine, SglangEngine)
    assert (engine.chunked_prefill_size, engine.cuda_graph_max_bs_decode) == (chunk, largest)
    paged = specsim.serve(work, deployment=where, engine="sglang:page_size=48").setup.engine
    assert isinstance(paged, SglangEngine)
    assert paged.chunked_prefill_size == chunk // 48 * 48
    told = specsim.serve(work, deployment=where, engine="sglang:chunked_prefill_size=64")
    assert isinstance(told.setup.engine, SglangEngine)
    assert told.setup.engine.chunked_prefill_size == 64
    whole = specsim.serve(work, deployment=where, engine="sglang:chunked_prefill_size=-1")
    assert isinstance(whole.setup.engine, SglangEngine)
    assert whole.setup.engine.chunked_prefill_size == -1
    with pytest.raises(InvalidArgumentError, match=r"chunked_prefill_size must be .* got -2"):
        specsim.serve(work, deployment=where, engine="sglang:chunked_prefill_size=-2")


def test_vllm_drafts_with_a_draft_model_as_many_at_every_batch() -> None:
    work = specsim.workload(rate=8, prompt=100, output=50, requests=40)

    def drafted(gamma: Any, at: int) -> tuple[Any, bool]:
        found = specsim.serve(work, deployment=LLAMAS, gamma=gamma, alpha=0.7)
        terms = found.setup.step_model.terms
        (term,) = (each for each in terms if each.part == "draft" and "gamma" in each.axes)
        told = any("drafts 5 tokens at every batch" in each for each in found.warnings)
        assert any("has no CUDA graphs for a draft model" in each for each in found.warnings)
        return np.asarray(term.values)[at], told

    short, told = drafted(1, 1)
    assert not told
    longest, told = drafted(5, 5)
    assert not told
    scheduled, told = drafted([(1, 2, 5), (3, 64, 1)], 1)
    assert told
    # Five runs, of which the first reads four positions less; beside few requests that is nothing.
    assert (scheduled[1:4] > 4.9 * short[1:4]).all()
    assert (scheduled[1:] > short[1:]).all()
    assert (scheduled <= longest).all()


@pytest.mark.parametrize(
    ("card", "engine", "told"),
    [
        ("H100-SXM", "vllm", True),
        ("H100-SXM", "vllm:version=0.28.0", False),  # which was not read
        ("TPU-v6e", "vllm", False),
        ("H100-SXM", "sglang", False),
    ],
)
def test_the_v2_model_runner_is_that_of_vllm_on_gpus(card: str, engine: str, told: bool) -> None:
    work = specsim.workload(rate=1, prompt=100, output=20, requests=10)
    deployment = deploy("llama-3.2-3b", card, "draft_model:llama-3.2-1b")
    found = specsim.serve(work, deployment=deployment, gamma=2, alpha=0.7, engine=engine)
    assert any("V2 model runner" in each for each in found.warnings) == told
    eager = deploy("llama-3.2-3b", card, "draft_model:llama-3.2-1b,eager_us=20")
    found = specsim.serve(work, deployment=eager, gamma=2, alpha=0.7, engine=engine)
    assert not any("V2 model runner" in each for each in found.warnings)


@pytest.mark.parametrize(
    ("drafter", "told"), [("ngram:match=0.5", True), ("ngram", False), ("suffix:match=0.5", False)]
)
def test_look_ups_that_find_nothing_are_verified_by_the_v2_runner(drafter: str, told: bool) -> None:
    work = specsim.workload(rate=1, prompt=100, output=20, requests=10)
    deployment = deploy("llama-3.2-3b", "H100-SXM", drafter)
    found = specsim.serve(work, deployment=deployment, gamma=2, alpha=0.7, engine="vllm")
    assert any("whether anything was found or not" in each for each in found.warnings) == told


def test_graphs_of_a_deployment_are_those_of_its_engine() -> None:
    """Unless the engine is told otherwise."""
    slow = replace(LLAMAS.efficiency, graph_tokens=64, eager_layer_s=1e-3)
    deployment = replace(LLAMAS, efficiency=slow)
    work = specsim.workload(rate=8, prompt=1000, output=200, requests=40)

    def setup(engine: str) -> Any:
        served = specsim.serve(work, deployment=deployment, gamma=3, alpha=0.7, engine=engine)
        assert served.setup.step_model.eager_s == 1e-3 * len(deployment.shape.layers)
        return served.setup

    for engine, largest in (("vllm", 64), ("vllm:max_cudagraph_capture_size=32", 32)):
        found = setup(engine)
        assert found.engine.capture_sizes(found.drafts).max() == largest
    assert setup("sglang").engine.cuda_graph_max_bs_decode == 16
    assert setup("sglang:cuda_graph_max_bs_decode=8").engine.cuda_graph_max_bs_decode == 8
    eager = setup("sglang:disable_decode_cuda_graph=yes").engine
    assert not eager.capture_sizes(DraftPolicy.off()).size


def test_a_table_is_the_schedule_of_optimize() -> None:
    work = specsim.workload(rate=8, prompt=1000, output=200, requests=40)
    found = specsim.serve(
        work, deployment=LLAMAS, gamma="table", alpha=0.7, engine="vllm:max_num_seqs=128"
    )
    load = specsim.Load(range(1, 129), [1100])
    planned = specsim.optimize(0.7, deployment=LLAMAS, load=load)
    assert list(found.setup.drafts.schedule) == planned.settings[0].plans[0].schedule


def test_a_profile_replays_its_trace(tmp_path: Path) -> None:
    work = specsim.workload(rate=5, prompt=30, output=40, requests=60)
    path = write_grid(tmp_path)
    found = specsim.serve(work, profile=path, gamma=3, engine="vllm:num_gpu_blocks=1000")
    acceptance = found.setup.acceptance
    assert acceptance is not None
    assert acceptance.kind == TRACE
    assert found.inputs["acceptance"] == "trace of the profile"
    assert "measured run times" in found.title
    law = specsim.serve(work, alpha=0.6, profile=path, gamma=3, engine="vllm:num_gpu_blocks=1000")
    assert law.inputs["acceptance"] == "law"


def test_rates_that_do_not_say_what_drafted_are_of_what_drafts() -> None:
    """A draft model holds on beyond the drafts that were counted, as it does in ``optimize``."""
    counted = specsim.Marginal([0.8, 0.62])
    found = {
        heads: specsim.serve(
            WORK, deployment=LLAMAS, alpha=replace(counted, heads=heads), gamma=5, seed=1
        ).engine["tokens_per_call"]
        for heads in (None, False, True)
    }
    assert found[None] == found[False] > found[True]


def test_a_table_has_the_engine_of_its_longest_drafts() -> None:
    """Graphs of 64 tokens hold 64 / (1 + K) requests in SGLang."""
    deployment = deploy(
        *("llama-3.1-8b", "L40S", "eagle3:alpha=0.8"),
        efficiency=0.6,
        layer_us=10,
        graph_tokens=64,
        eager_layer_us=100,
    )
    engine = "sglang:max_running_requests=256"
    given: Any = {"deployment": deployment, "engine": engine, "seed": 1}
    table = specsim.serve(WORK, gamma="table", **given)
    schedule = [tuple(each) for each in table.inputs["schedule"]]
    assert len(schedule) > 1
    typed = specsim.serve(WORK, gamma=schedule, **given)
    assert table.inputs["engine"] == typed.inputs["engine"]
    assert table.figures == typed.figures


def test_lengths_are_numbers_of_any_kind() -> None:
    for tokens in (np.int64(50), 50.0):
        drawn = specsim.workload(rate=1, prompt=tokens, output=5, requests=3).draw(0)
        assert drawn.prompt_tokens.tolist() == [50] * 3
    with pytest.raises(InvalidArgumentError, match="prompt tokens must be a whole number"):
        specsim.workload(rate=1, prompt=50.5, output=5, requests=3)


def test_drafts_that_are_looked_up_must_be_found() -> None:
    ngram = deploy("llama-3.1-8b", "H100-SXM", "ngram:match=0.5,alpha=1.0")
    found = specsim.serve(WORK, deployment=ngram, gamma=3)
    # Half of the rounds emit four tokens, the other half one.
    assert found.engine["tokens_per_call"] == pytest.approx(2.5, abs=0.25)


def test_rows_of_a_law_are_curves_by_length() -> None:
    rows = law_rows(lambda gamma: np.power(0.5, np.arange(gamma + 1.0)), 3)
    assert rows.tolist() == [[0.5, 0, 0], [0.5, 0.25, 0], [0.5, 0.25, 0.125]]
    RoundAcceptance.law(rows)


def test_the_mean_context_is_over_tokens() -> None:
    requests = Requests(np.zeros(2), np.array([100, 1000]), np.array([30, 10]))
    assert mean_context(requests) == round((30 * 115 + 10 * 1005) / 40)


def test_workloads_from_words(tmp_path: Path) -> None:
    file = tmp_path / "w.jsonl"
    file.write_text("\n".join(json.dumps({"prompt_len": n, "output_len": n}) for n in range(1, 6)))
    drawn = specsim.workload(
        arrivals="gamma:0.5", rate=2, prompt=f"file:{file}", output="lognormal:50,1,90", requests=50
    )
    assert isinstance(drawn, DrawnWorkload)
    requests = drawn.draw(0)
    assert set(requests.prompt_tokens.tolist()) == {1, 2, 3, 4, 5}
    assert requests.output_tokens.max() <= 90
    recorded = specsim.workload(file, rate=3)
    assert isinstance(recorded, RecordedWorkload)
    assert recorded.arrivals == PoissonArrivals(3)
    closed = specsim.workload(file, concurrency=4)
    assert isinstance(closed, RecordedWorkload)
    assert closed.concurrency == 4
    assert isinstance(closed.arrivals, ClosedLoop)


CASES: list[tuple[Callable[[], object], str]] = [
    (lambda: specsim.workload(rate=1, prompt=5), "output is missing: tokens, such as 512"),
    (lambda: specsim.workload(prompt=5, output=5), "rate is missing: requests per second, or conc"),
    (lambda: specsim.workload(rate=1, prompt="normal:5,1", output=5), "prompt must be TOKENS, uni"),
    (lambda: specsim.workload(rate=1, concurrency=2, prompt=5, output=5), "rate has no meaning in"),
    (lambda: specsim.workload(rate=1, prompt=5, output=5, scale=2), "scale needs a file"),
    (lambda: specsim.workload(arrivals="burst", prompt=5, output=5), "arrivals must be one of"),
    (
        lambda: specsim.workload(arrivals="schedule:4", prompt=5, output=5),
        "arrivals must be schedule:SECONDS=RATE",
    ),
    (
        lambda: specsim.workload(arrivals="schedule:0=4", rate=2, prompt=5, output=5),
        "rate has no meaning beside a schedule",
    ),
    (lambda: serve(gamma=3), "alpha is missing: how often drafts are accepted"),
    (lambda: serve(gamma="table", alpha=0.5), "gamma table needs a deployment or profile"),
    (lambda: serve(gamma=[(2, 4, 1)], alpha=0.5), "schedule must go from batch 1 on"),
    (lambda: serve(deployment=LLAMAS), "deployment and step_model exclude each other"),
    (lambda: serve(slo="ttft_p99=-1"), "must be > 0 seconds"),
    (lambda: serve(warmup=0.95), "warmup must be in"),
    (lambda: serve(routing="random"), "routing must be one of round-robin"),
    (lambda: specsim.serve(WORK, engine=ENGINE), "profile is missing, or a deployment"),
    (
        lambda: specsim.serve(WORK, step_model=STEPS),
        "num_gpu_blocks is missing: what the KV cache holds",
    ),
    (
        lambda: specsim.serve(WORK, step_model=STEPS, engine="vlm"),
        "engine must be one of vllm, sglang.*did you mean vllm",
    ),
    (
        lambda: specsim.serve(WORK, step_model=STEPS, engine="vllm:max_seqs=4"),
        "engine vllm takes NAME=VALUE of version, num_gpu_blocks",
    ),
    (
        lambda: specsim.serve(WORK, step_model=STEPS, engine=f"{ENGINE},version=0.5.0"),
        "the scheduler of vLLM 0.5.0 is not known",
    ),
    (
        lambda: specsim.serve(WORK, step_model=STEPS, engine="vllm:num_gpu_blocks=20"),
        "prompt_tokens and output_tokens must take <=",
    ),
    (
        lambda: specsim.serve(
            specsim.workload(rate=1, prompt=131_000, output=100), deployment=LLAMAS
        ),
        "must take <= 131,072 tokens together, the longest that the model takes, got 131,100",
    ),
    (
        lambda: specsim.serve(
            WORK, deployment=deploy("llama-3.1-8b", "H100", data_parallel=2), gamma=0
        ),
        "data_parallel has no meaning for one replica",
    ),
]
test_one_line = refuses(*CASES, error=SpecsimError)


def test_nothing_random_needs_no_replications() -> None:
    work = specsim.workload(rate=5, arrivals="constant", prompt=30, output=40, requests=20)
    with pytest.raises(InvalidArgumentError, match="replications must be 1, got 3: nothing in"):
        specsim.serve(work, step_model=STEPS, engine=ENGINE, replications=3)
    scattered = f"{STEPS},step_variation=0.2"
    found = specsim.serve(work, step_model=scattered, engine=ENGINE, replications=3)
    tpot = found.figures["tpot_mean"]
    assert tpot.low < tpot.best < tpot.high


@pytest.mark.parametrize("gamma", [None, 3])
def test_the_parts_of_a_step_add_up_to_it(gamma: int | None) -> None:
    hidden = specsim.serve(
        WORK,
        step_model="step_ms=5,token_us=20,host_ms=6,draft_run_ms=0.5",
        engine="vllm:num_gpu_blocks=600,max_num_seqs=32,async_scheduling=true",
        gamma=gamma,
        alpha=None if gamma is None else 0.7,
    )
    for found in (hidden, serve(gamma=gamma, alpha=None if gamma is None else 0.7)):
        (log,) = (each.steps for each in found.served.runs)
        assert log is not None
        ranges = step_parts(found)
        assert sum(steps for _, steps, _ in ranges) == len(log)
        together = sum(steps * sum(parts.values()) for _, steps, parts in ranges)
        assert together == pytest.approx(log.seconds.sum(), rel=1e-12)
        assert ranges[0][0] == "1"
    # The host's 6 ms are hidden behind the device's 5 and more, but for what is over.
    waited = [parts["host"] for _, _, parts in step_parts(hidden)]
    assert max(waited) < 0.0061
    assert min(waited) >= 0


def test_a_synthetic_length_is_its_rates() -> None:
    """As docs/serving.md gives them: a mean of 3.4 tokens of a round of up to 4 drafts."""
    found = serve(gamma=4, alpha=[1, 1, 0.4, 0])
    acceptance = found.setup.acceptance
    assert acceptance is not None
    expected = RoundAcceptance.synthetic_length(3.4, 4).values[-1]
    assert acceptance.values[-1] == pytest.approx(expected)


@pytest.mark.parametrize(
    ("card", "words", "gamma", "largest"),
    [
        ("H100-SXM", "vllm", None, 512),
        ("B200", "vllm", None, 1024),
        ("B200", "vllm:version=0.28.0", None, 512),
        ("GB300", "vllm:max_num_seqs=64", None, 128),
        ("GB300", "vllm:max_num_seqs=64", 3, 512),
        ("B200", "vllm:max_cudagraph_capture_size=256", None, 256),
    ],
)
def test_a_card_tells_the_largest_graph_of_vllm(
    card: str, words: str, gamma: int | None, largest: int
) -> None:
    work = specsim.workload(rate=1, prompt=100, output=10, requests=5)
    deployment = deploy("llama-3.1-8b", card, "draft_model:llama-3.2-1b")
    drafts = {} if gamma is None else {"gamma": gamma, "alpha": 0.7}
    found = specsim.serve(work, deployment=deployment, engine=words, **drafts).setup
    assert found.engine.capture_sizes(found.drafts)[-1] == largest


@pytest.mark.parametrize(
    ("card", "version", "limits"),
    [
        ("H100-SXM", "0.32.0", (8192, 1024)),
        ("MI300X", "0.32.0", (16384, 1024)),
        ("MI300X", "0.19.0", (8192, 1024)),
        ("A100-80GB-SXM", "0.32.0", (2048, 256)),
        ("L40S", "0.32.0", (2048, 256)),
    ],
)
def test_a_card_tells_the_limits_of_vllm(card: str, version: str, limits: tuple[int, int]) -> None:
    """vllm/engine/arg_utils.py, get_batch_defaults, of the API server."""
    work = specsim.workload(rate=1, prompt=100, output=10, requests=5)
    deployment = deploy("llama-3.1-8b", card, dtype="bfloat16")
    engine: Any = specsim.serve(
        work, deployment=deployment, engine=f"vllm:version={version}"
    ).setup.engine
    assert (engine.max_num_batched_tokens, engine.max_num_seqs) == limits
    told: Any = specsim.serve(
        work, deployment=deployment, engine="vllm:max_num_batched_tokens=200"
    ).setup.engine
    assert (told.max_num_batched_tokens, told.max_num_seqs) == (200, 200)


def test_files_of_a_workload_are_among_the_inputs(tmp_path: Path) -> None:
    """By their names and digests, in place of every length."""
    file = tmp_path / "w.jsonl"
    rows = ({"prompt_len": tokens, "output_len": tokens} for tokens in range(1, 61))
    file.write_text("".join(json.dumps(each) + "\n" for each in rows))
    named = {"file": str(file), "sha256": file_digest(file)}

    def asked(work: Any) -> dict[str, Any]:
        return json.loads(specsim.describe_workload(work).to_json())["inputs"]["workload"]

    drawn = asked(specsim.workload(rate=4, prompt=f"file:{file}", output=20, requests=50))
    assert drawn["prompt"] == {"kind": "EmpiricalLength", **named}
    assert drawn["output"] == {"kind": "FixedLength", "tokens": 20}
    recorded = asked(specsim.workload(file, rate=4))
    assert recorded == {**recorded, **named, "recorded": "token-counts"}
    shown = dict(shown_inputs(drawn, "workload"))
    assert (shown["workload.prompt"], shown["workload.prompt.file"]) == ("empirical", str(file))
