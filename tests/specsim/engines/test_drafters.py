"""What ``export`` makes of a deployment: its drafter, its cards, and what a loaded one costs."""

from __future__ import annotations

import json
import shlex
from dataclasses import replace
from pathlib import Path
from textwrap import dedent
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import specsim
from specsim.acceptance import acceptance_of
from specsim.api.export import EngineConfiguration
from specsim.batching.cost import CellUnavailableError
from specsim.batching.loaded import WithDrafterLoaded
from specsim.batching.tokens_per_block import TokensPerBlock
from specsim.checks import InvalidArgumentError, UnsupportedError
from specsim.deployment.cost import DeployedCost
from specsim.deployment.drafter_words import drafter
from specsim.deployment.drafters import KINDS, Eagle3, Parallel
from specsim.deployment.memory import card_memory
from specsim.engines import ENGINES, Engine, gamma_at
from specsim.engines.schedule import merged, of_group
from specsim.hardware import Parallelism
from specsim.report.configuration import in_lines
from tests.support.command_line import fail, run

TARGET = ("--target", "llama-3.1-8b", "--accelerator", "H100-SXM")
ALPHA = (0.8, 0.7, 0.6)
# A drafter of every method, as it is typed.
TYPED = {
    "draft_model": "draft_model:llama-3.2-1b",
    "eagle": "eagle",
    "eagle3": "eagle3:layers=1,draft_vocab=32000",
    "mtp": "mtp:modules=1",
    "medusa": "medusa:heads=4",
    "p_eagle": "parallel:kind=P-EAGLE,layers=4",
    "pard": "parallel:kind=pard",
    "dflash": "parallel:kind=dflash,layers=5",
    "ngram": "ngram:match=0.5,host_us=20",
    "suffix": "suffix:match=0.5,length=4",
}
CASES = [(name, method) for name, engine in ENGINES.items() for method in engine.methods]


def exported(
    engine: str, drafts: str, most: int = 64, alpha: Any = ALPHA, **more: Any
) -> EngineConfiguration:
    """``more`` is of the deployment."""
    target = more.pop("target", "llama-3.1-8b")
    batch, method = more.pop("batch", None), more.pop("method", None)
    deployed = specsim.deploy(target, more.pop("accelerator", "H100-SXM"), drafts, **more)
    how = drafter(drafts).method if method is None else method
    kind = getattr(drafter(drafts), "kind", None) or how
    needs = ENGINES[engine].methods.get(kind)
    model = "org/drafts" if needs is not None and needs.model == "needed" else None
    return specsim.export(
        engine, deployment=deployed, alpha=alpha, most=most, model=model, batch=batch, method=method
    )


def said(found: EngineConfiguration, words: str) -> str:
    """The one note with these words."""
    (note,) = [line for line in found.warnings if words in line]
    return note


@pytest.mark.parametrize(("name", "method"), CASES)
def test_the_method_is_the_drafters(name: str, method: str) -> None:
    found = exported(name, TYPED[method])
    assert found.method == method
    assert ENGINES[name].drafting(method).word in found.text
    assert ("parallel_drafting" in found.text) == (name == "vllm" and method in ("p_eagle", "pard"))
    # Its own runs are priced, not a draft model's.
    assert "not those of" not in "\n".join(found.warnings)


# vLLM pull request 32887: P-EAGLE is method eagle3 with parallel_drafting, PARD method draft_model.
@pytest.mark.parametrize(("kind", "word"), [("p_eagle", "eagle3"), ("pard", "draft_model")])
def test_vllm_knows_parallel_drafters_by_a_key(kind: str, word: str) -> None:
    content = json.loads(exported("vllm", f"parallel:kind={kind}", most=1).text)
    assert content["method"] == word
    assert content["parallel_drafting"] is True


@pytest.mark.parametrize("name", list(ENGINES))
def test_drafters_that_an_engine_has_not(name: str) -> None:
    engine = ENGINES[name]
    for method, words in TYPED.items():
        if method not in engine.methods:
            with pytest.raises(UnsupportedError, match=f"{engine.title} has no method {method}"):
                exported(name, words)


@pytest.mark.parametrize("kind", KINDS)
def test_the_kind_of_a_parallel_drafter_may_be_the_method(kind: str) -> None:
    found = exported("vllm", "parallel", method=kind)
    assert found.text == exported("vllm", f"parallel:kind={kind}").text
    assert found.method == kind


def test_kinds_read_masked_positions_for_their_drafts() -> None:
    """Four drafts: DFlash reads the five that were verified, P-EAGLE three more, PARD four (vLLM
    0.32.0, vllm/config/speculative.py, max_num_new_slots_for_drafting).
    """
    drafters = [Parallel(kind=kind) for kind in ("dflash", "p_eagle", "pard")]
    assert [each.first_positions(4) for each in drafters] == [5, 8, 9]
    assert [each.first_positions(0) for each in drafters] == [1, 1, 1]
    shapes = specsim.deploy("llama-3.1-8b", "H100-SXM", drafters)
    found = [DeployedCost(shapes, each, 5).draft_s(4, 256, 512, 0.0) for each in drafters]
    # P-EAGLE's layer is EAGLE-3's, which is wider than the others'.
    assert found[0] < found[2] < found[1]


BAD = [
    (("vllm", "--drafter", "eagle3", "--drafter", "mtp"), "drafter must be one"),
    (("vllm", "--drafter", "eagle3", "--method", "ngram"), "leave it out, or give --drafter ngram"),
    (("vllm", "--drafter", "mtp", "--method", "PARD"), "give --drafter parallel:kind=pard"),
    (("vllm", "--draft", "llama-3.2-1b", "--method", "eagle3"), "method must be draft_model"),
    (("vllm", "--method", "eagle3"), "drafter is missing: what drafts, as in --drafter eagle3"),
    (("vllm", "--drafter", "parallel"), "kind is missing: which of p_eagle, pard, dflash"),
    (("vllm", "--drafter", "parallel", "--method", "mtp"), "kind is missing"),
    (("vllm", "--drafter", "parallel:kind=pad"), "kind must be one of p_eagle, pard, dflash"),
    (("vllm", "--drafter", "eagle3:topk=4,slots=8"), "vLLM verifies chains only with eagle3"),
    (("llama.cpp", "--drafter", "eagle3:topk=4,slots=8"), "llama.cpp verifies chains only"),
    (("sglang", "--drafter", "eagle3:slots=8"), "slots must be left out with topk 1"),
    (
        ("sglang", "--drafter", "eagle3:tensor=1", "--tensor-parallel", "4"),
        "tensor of the drafter must be 4 with SGLang, which spreads it as the target, got 1",
    ),
]


@pytest.mark.parametrize(("words", "message"), BAD)
def test_what_contradicts_is_refused_in_one_line(
    capsys: pytest.CaptureFixture[str], words: tuple[str, ...], message: str
) -> None:
    line = fail(
        capsys, "export", *words, *TARGET, "--alpha", "0.7", "--model", "drafts", "--most", "4"
    )
    assert message in line


def test_a_tree_goes_to_sglang(capsys: pytest.CaptureFixture[str]) -> None:
    words = ("--drafter", "eagle3:topk=4,slots=8,alpha=0.8/0.7", "--model", "drafts")
    code, out, err = run(capsys, "export", "sglang", *TARGET, *words, "--most", "8")
    flags = shlex.split(out)
    assert code == 0
    assert flags[flags.index("--speculative-eagle-topk") + 1] == "4"
    assert flags[flags.index("--speculative-num-draft-tokens") + 1] == "8"
    # Eight nodes and no more: seven in a row at most.
    assert int(flags[flags.index("--speculative-num-steps") + 1]) <= 7
    assert "--speculative-adaptive" not in flags
    # SGLang's ratio test is for chains.
    assert "unless told" not in err


def test_trees_are_no_deeper_than_their_nodes() -> None:
    assert Eagle3(topk=4, slots=8).longest == 7
    assert Eagle3().longest is None


def test_heads_that_draft_in_blocks_know_the_first_token_of_one() -> None:
    """huggingface.co/z-lab/Qwen3-8B-DFlash-b16 is started with 15 tokens."""
    assert Parallel(model="qwen3-8b").longest == 15
    assert Parallel(model="qwen3-0.6b").longest is None  # a draft model
    deployed = specsim.deploy("qwen3-8b", "H100-SXM", "parallel:qwen3-8b")
    with pytest.raises(UnsupportedError, match="gamma_max must be <= 15 with parallel:"):
        specsim.optimize(0.8, deployment=deployed, gamma_max=16)


LARGE = {"target": "llama-3.3-70b", "tensor_parallel": 4}


@pytest.mark.parametrize("name", ["vllm", "sglang", "tensorrt-llm", "llama.cpp"])
def test_engines_spread_a_drafter_as_the_target(name: str) -> None:
    """vLLM's ``draft_tensor_parallel_size`` is read for draft models alone, whose layers ask the
    target's group of cards for its degree all the same (``vllm/v1/spec_decode/draft_model.py``).
    """
    for drafts in ("eagle3:tensor=1", "eagle3:tensor=2", "draft_model:llama-3.2-1b,tensor=1"):
        with pytest.raises(UnsupportedError, match="tensor of the drafter must be 4"):
            exported(name, drafts, most=8, **LARGE)
    found = exported(name, "eagle3:tensor=4", most=8, **LARGE)
    assert found.text == exported(name, "eagle3", most=8, **LARGE).text
    assert "tensor" not in found.text


def test_vllm_drafts_multiples_of_the_modules_of_a_target() -> None:
    """Of the same number beyond them (``vllm/config/speculative.py``)."""
    vllm = ENGINES["vllm"]
    order = specsim.engines.Order([(1, 8, 3)], vllm.drafting("mtp"), modules=2)
    for refused in (order, replace(order, drafting=replace(order.drafting, by_batch=False))):
        with pytest.raises(UnsupportedError, match=r"a multiple of 2 .* plan with gamma_max 2"):
            vllm.write(refused)
    for modules, length in ((2, 4), (4, 3), (1, 3)):
        one = replace(order, schedule=[(1, 8, length)], modules=modules)
        assert json.loads(vllm.write(one).text)["num_speculative_tokens"] == length
    by_batch = replace(order, schedule=[(1, 4, 2), (5, 8, 1)])
    assert "drafts 2 tokens at every batch with 2 modules" in "\n".join(vllm.write(by_batch).notes)
    alone = replace(by_batch, modules=1)
    assert "model runner" not in "\n".join(vllm.write(alone).notes)


# As the documentation names them: docs.vllm.ai (vllm serve), docs.sglang.io
# (advanced_features/server_arguments), and TensorRT-LLM's LLM API, whose keys its YAML has.
DEGREES: list[tuple[str, Parallelism, str]] = [
    ("vllm", Parallelism(4, pipeline=2), "--tensor-parallel-size 4 --pipeline-parallel-size 2"),
    ("vllm", Parallelism(2, data=4, expert=8), "--tensor-parallel-size 2 --data-parallel-size 4 "
     "--enable-expert-parallel"),
    ("sglang", Parallelism(4, data=2), "--tp-size 4 --dp-size 2"),
    ("sglang", Parallelism(8, expert=8), "--tp-size 8 --ep-size 8"),
    ("sglang", Parallelism(2, data=4, expert=8), "--tp-size 8 --attn-dp-size 4 "
     "--ep-size 8"),
    ("tensorrt-llm", Parallelism(4, 2), "tensor_parallel_size: 4, pipeline_parallel_size: 2"),
    ("tensorrt-llm", Parallelism(data=8, expert=8), "tensor_parallel_size: 8, "
     "moe_expert_parallel_size: 8, enable_attention_dp: true"),
]  # fmt: skip


@pytest.mark.parametrize(("name", "parallel", "words"), DEGREES)
def test_degrees_of_the_target_in_the_engines_words(
    name: str, parallel: Parallelism, words: str
) -> None:
    assert ENGINES[name].degrees(parallel) == words


def test_sglang_drafts_over_stages_with_few_methods_and_one_length() -> None:
    found = exported("sglang", "mtp", pipeline_parallel=2, target="deepseek-v3", tensor_parallel=8)
    assert "--speculative-adaptive" not in found.text
    assert said(found, "SGLANG_ENABLE_PP_SPEC=1")
    assert said(found, "one draft length with NEXTN over pipeline stages")
    with pytest.raises(UnsupportedError, match="over pipeline stages with EAGLE and NEXTN alone"):
        exported("sglang", "eagle3", pipeline_parallel=2)


def test_what_sglang_does_not_draft_where_groups_share_experts() -> None:
    wide = {"target": "qwen3-30b-a3b", "data_parallel": 4, "expert_parallel": 4}
    for drafts in ("draft_model:qwen3-0.6b", "parallel:kind=dflash,layers=5", "ngram:match=0.5"):
        with pytest.raises(UnsupportedError, match="under attention data parallelism"):
            exported("sglang", drafts, **wide)


def test_ranks_of_tensorrt_llm_that_wait_for_each_other_have_one_length() -> None:
    wide = {"target": "qwen3-30b-a3b", "data_parallel": 4, "expert_parallel": 4}
    found = exported("tensorrt-llm", "draft_model:qwen3-0.6b", **wide)
    assert "draft_len_schedule" not in found.text
    assert said(found, "one draft length with Draft_Target under attention data parallelism")
    assert said(found, "max_batch_size is of each rank")
    # max_concurrency becomes a schedule, by which each rank would choose for itself.
    trt, off = ENGINES["tensorrt-llm"], [(1, 8, 3), (9, 64, 0)]
    looked_up = specsim.engines.Order(off, trt.drafting("ngram"))
    assert "max_concurrency: 8" in trt.write(looked_up).text
    ranks = specsim.engines.Deployed(Parallelism(data=4, expert=4), "H100-SXM")
    found_there = trt.write(replace(looked_up, deployed=ranks))
    assert "max_concurrency" not in found_there.text
    assert "nothing switches drafts off by batch there" in found_there.notes


def test_sglang_has_no_rejection_sampling_for_heads_with_a_vocabulary_of_their_own() -> None:
    flag = "--speculative-use-rejection-sampling"
    assert ENGINES["sglang"].drafting("eagle").ratio_test == flag
    assert not ENGINES["sglang"].drafting("eagle3").ratio_test
    assert not any(flag in note for note in exported("sglang", "eagle3").warnings)


def test_what_was_priced_is_what_is_started() -> None:
    found = exported("vllm", "eagle3", most=8, **LARGE)
    assert said(found, "planned for 4 cards").endswith("start vLLM with --tensor-parallel-size 4")
    other = exported("llama.cpp", "eagle3", most=8, **LARGE)
    assert "(tensor 4), degrees that llama.cpp does not take" in said(other, "4 cards")
    assert not any(" cards" in line for line in exported("vllm", "eagle3", most=8).warnings)


def test_vllm_has_one_length_with_groups() -> None:
    """With data parallelism it ignores lengths by batch, so one is planned: that of --batch."""
    one = exported("vllm", "eagle3", most=64, data_parallel=2, batch=32)
    assert "per_batch_size" not in one.text
    assert json.loads(one.text)["num_speculative_tokens"] == gamma_at(list(one.schedule), 32)
    assert "one draft length with data parallelism, here the best at batch 32" in (
        said(one, "by batch, in few ranges")
    )
    with pytest.raises(InvalidArgumentError, match="takes a length for each batch"):
        exported("vllm", "eagle3", most=64, batch=32)


def test_sglang_has_one_length_where_groups_share_experts() -> None:
    """srt/speculative/adaptive_spec_params.py, adaptive_unsupported_reason: attention DP."""
    cards = {"target": "qwen3-30b-a3b", "tensor_parallel": 2, "data_parallel": 2}
    shared = exported("sglang", "eagle3", most=16, expert_parallel=4, **cards)
    assert "--speculative-adaptive" not in shared.text
    assert "EAGLE3 under attention data parallelism" in said(shared, "takes one draft length")
    apart = exported("sglang", "eagle3", most=16, **cards)
    assert len(apart.schedule) > 1
    assert "--speculative-adaptive" in apart.text


def test_servers_that_share_requests_are_told_their_own_batches() -> None:
    """Of two that share 2 b requests each has b."""
    cards = {"target": "qwen3-30b-a3b", "tensor_parallel": 2, "data_parallel": 2}
    one = exported("sglang", "eagle3", most=64, **cards)
    schedule, file = list(one.schedule), json.loads(one.text.splitlines()[1])
    assert f"--max-running-requests {-(-schedule[-1][1] // 2)}" in one.text
    assert "each of the 2 groups of cards" in said(one, "--max-running-requests and batches")
    firsts = sorted(int(each) for each in file)
    for own in range(1, 33):
        (gamma,) = file[str(max(first for first in firsts if first <= own))]["candidate_steps"]
        assert gamma == gamma_at(schedule, 2 * own)


def test_servers_of_tensorrt_llm_are_told_their_own_batches() -> None:
    alone, two = (exported("tensorrt-llm", "eagle3", most=512, data_parallel=n) for n in (1, 2))
    assert "each of the 2 servers" in said(two, "batches are of")
    assert not any("servers" in each for each in alone.warnings)
    lines = two.text.split("draft_len_schedule:\n")[1].splitlines()
    lasts = [int(line.split(":")[0]) for line in lines]
    assert lasts == sorted(lasts)
    for last in lasts:
        assert gamma_at(list(two.schedule), 2 * last) > 0
    assert lasts[-1] <= 256
    # The engine starts with the longest draft at the smallest batches alone.
    longest = json.loads(two.text.split("max_draft_len:")[1].splitlines()[0])
    assert longest == gamma_at(list(two.schedule), 2) == int(lines[0].split(":")[1])


@given(
    st.lists(st.tuples(st.integers(1, 40), st.integers(0, 8)), min_size=1, max_size=5),
    st.integers(1, 6),
)
def test_what_a_group_is_told_is_best_where_all_have_as_many(
    ranges: list[tuple[int, int]], groups: int
) -> None:
    schedule = merged([gamma for count, gamma in ranges for _ in range(count)])
    own = of_group(schedule, groups)
    last = schedule[-1][1]
    assert own[-1][1] == -(-last // groups)
    for batch in range(1, own[-1][1] + 1):
        assert gamma_at(own, batch) == gamma_at(schedule, min(batch * groups, last))
    if groups == 1:
        assert own == schedule


@pytest.fixture(scope="module")
def experts() -> EngineConfiguration:
    """A mixture of experts with few drafts accepted: nothing is drafted at a few small batches."""
    return exported(
        "vllm", "draft_model:qwen3-0.6b", alpha=0.4, target="qwen3-30b-a3b", layer_us=20.0,
        overhead_us=1000.0,
    )  # fmt: skip


def loaded_cost() -> tuple[DeployedCost, TokensPerBlock]:
    deployed = specsim.deploy(
        "qwen3-30b-a3b", "H100-SXM", "draft_model:qwen3-0.6b", layer_us=20.0, overhead_us=1000.0
    )
    gains = TokensPerBlock.of_acceptance(acceptance_of(0.4), 16)
    return DeployedCost(deployed, deployed.drafters[0], 17), gains


def test_no_drafts_are_priced_with_the_drafter_loaded(experts: EngineConfiguration) -> None:
    """Every batch again, by hand: a step without drafts takes the target's and the drafter's run.

    Whether a length gains 5 % is against that step, as is the hundredth that ranges may lose.
    """
    cost, gains = loaded_cost()
    zeros = 0
    for batch in range(1, 65):
        host = cost.overhead_s(0, batch)
        plain = cost.verify_s(0, batch, 512) + cost.loaded_s(batch, 512) + host
        speedups = [1.0]
        for gamma in range(1, 17):
            bonus = float(gains.bonus[gamma])
            block = cost.draft_s(gamma, batch, 512, bonus) + cost.verify_s(gamma, batch, 512)
            block += cost.overhead_s(gamma, batch)
            speedups.append(plain * float(gains.tokens[gamma]) / block)
        chosen = gamma_at(list(experts.schedule), batch)
        assert (chosen > 0) == (max(speedups) >= 1.05)
        if chosen:
            assert speedups[chosen] >= 0.99 * max(speedups)
        zeros += chosen == 0
    assert zeros


def test_the_note_at_zero_says_what_it_costs(experts: EngineConfiguration) -> None:
    cost, _ = loaded_cost()
    shares = {
        batch: cost.loaded_s(batch, 512)
        / (cost.verify_s(0, batch, 512) + cost.overhead_s(0, batch))
        for first, last, gamma in experts.schedule
        if not gamma
        for batch in range(first, last + 1)
    }
    worst = max(shares, key=lambda batch: shares[batch])
    note = said(experts, "still runs the drafter")
    assert f"{shares[worst]:.1%} of a plain step at batch {worst}, as planned" in note
    assert "a second server without speculation would spare that at batch" in note


def test_engines_that_let_the_drafter_rest() -> None:
    cost, _ = loaded_cost()
    rests, runs = (WithDrafterLoaded(cost, in_step=in_step) for in_step in (False, True))
    assert rests.verify_s(0, 4, 512) == cost.verify_s(0, 4, 512)
    assert runs.verify_s(0, 4, 512) == cost.verify_s(0, 4, 512) + cost.loaded_s(4, 512)
    assert runs.verify_s(3, 4, 512) == cost.verify_s(3, 4, 512)


def test_a_loaded_drafter_takes_its_room() -> None:
    cost, _ = loaded_cost()
    room = card_memory(cost.deployment, cost.drafter, 512, 1).largest_batch
    alone = card_memory(cost.deployment, None, 512).largest_batch
    served = WithDrafterLoaded(cost, in_step=False)
    assert room < alone
    assert cost.verify_s(0, alone, 512) > 0
    assert served.verify_s(0, room, 512) > 0
    with pytest.raises(CellUnavailableError, match=f"room for {room}$"):
        served.verify_s(0, room + 1, 512)
    found = exported(
        "vllm", "draft_model:qwen3-0.6b", most=room + 4, alpha=0.8, target="qwen3-30b-a3b"
    )
    assert f"room for {room}, without the drafter for {alone}" in said(found, "not planned")
    assert found.schedule[-1][1] == room


def test_what_gains_only_over_a_loaded_drafter_is_left_off() -> None:
    """Drafts that make up for the drafter's own step, and not for having one."""
    found = exported("vllm", "draft_model:llama-3.2-1b", alpha=0.12, most=8)
    assert (found.text, found.schedule) == ("", ((1, 8, 0),))
    assert said(found, "leave it off")


def test_batches_that_draft_only_with_the_drafter_loaded_are_named() -> None:
    found = exported("vllm", "eagle3", most=16, alpha=0.7, target="gpt-oss-120b")
    deployed = specsim.deploy("gpt-oss-120b", "H100-SXM", "eagle3")
    load = specsim.Load(range(1, 17), [512])
    rows = specsim.optimize(0.7, deployment=deployed, load=load).rows()
    off = [row["batch"] for row in rows if not row["gamma"]]
    drafts = [batch for batch in off if gamma_at(list(found.schedule), batch)]
    assert (drafts[0], drafts[-1]) == (3, 10)
    assert drafts == list(range(3, 11))
    worst = max(1 / row["gamma_0_loaded"] - 1 for row in rows if row["batch"] in drafts)
    note = said(found, "a drafter that is loaded anyway")
    assert f"up to {worst:.1%} of a plain step at draft length 0" in note
    assert "at batch 3-10 they gain less than 5% over a server without a drafter" in note
    resting = exported("llama.cpp", "eagle3", most=16, alpha=0.7, target="gpt-oss-120b")
    assert not any("loaded anyway" in line for line in resting.warnings)


@pytest.mark.parametrize(("engine", "more"), [("llama.cpp", {}), ("vllm", {"data_parallel": 2})])
def test_one_length_is_priced_at_the_largest_batch(engine: str, more: dict[str, Any]) -> None:
    draft, most = "draft_model:llama-3.2-1b", 512
    found = exported(engine, draft, most=most, alpha=0.8, **more)
    deployed = specsim.deploy("llama-3.1-8b", "H100-SXM", draft, **more)
    load = specsim.Load([most], [512])

    def speedup(gamma: int) -> float:
        (row,) = specsim.evaluate(0.8, gamma=gamma, deployment=deployed, load=load).rows()
        return float(row["speedup"])

    one, best = (gamma_at(list(found.schedule), batch) for batch in (1, most))
    assert one > best > 0
    assert said(found, "--batch says for which") == (
        f"at batch 512 draft length {one} gives {speedup(one):.2f}x, where {best} would give "
        f"{speedup(best):.2f}x; --batch says for which batch"
    )
    alone = exported(engine, draft, most=most, alpha=0.8, batch=most, **more)
    assert not any("--batch says for which" in line for line in alone.warnings)


def test_transformers_has_no_larger_batch() -> None:
    found = exported("transformers", "draft_model:llama-3.2-1b", most=512, alpha=0.8)
    assert len(found.schedule) > 1
    assert not any("--batch says for which" in line for line in found.warnings)


# vLLM 0.33.0, vllm/config/compilation.py: max_cudagraph_capture_size; unasked, config/vllm.py takes
# 2 max_num_seqs (1 + K) and 512 at most.
def test_rounds_wider_than_the_largest_graph() -> None:
    wide = exported("vllm", "eagle3", most=256)
    tokens = {last: last * (gamma + 1) for _, last, gamma in wide.schedule}
    note = said(wide, "CUDA graph;")
    assert max(tokens.values()) > 512
    assert f"'{json.dumps({'max_cudagraph_capture_size': max(tokens.values())})}'" in note
    (first,) = [int(word) for word in note.split("from batch ")[1].split()[:1]]
    schedule = list(wide.schedule)
    assert first * (gamma_at(schedule, first) + 1) > 512
    assert (first - 1) * (gamma_at(schedule, first - 1) + 1) <= 512
    assert not any("CUDA graph;" in line for line in exported("vllm", "eagle3", most=64).warnings)


def test_graphs_that_were_priced_are_named() -> None:
    found = exported("vllm", "eagle3", most=128, graph_tokens=256, layer_us=5.0)
    assert "than the largest CUDA graph, 256, and is planned without one" in said(
        found, "from batch"
    )
    every = exported("vllm", "eagle3", most=128, graph_tokens=4096)
    assert not any("from batch" in line for line in every.warnings)
    # SGLang counts requests, not tokens.
    other = exported("sglang", "eagle3", most=256)
    assert not any("capture_size" in line for line in other.warnings)


def test_groups_share_no_graph() -> None:
    """Each of two groups has half of the requests, so a graph reaches twice as many."""
    writes = ENGINES["vllm"].write
    order = specsim.engines.Order(
        [(1, 256, 3)], replace(ENGINES["vllm"].drafting("ngram"), by_batch=False)
    )
    for groups, first in ((1, 129), (2, None)):
        deployed = specsim.engines.Deployed(Parallelism(data=groups), "H100-SXM")
        notes = "\n".join(writes(replace(order, deployed=deployed)).notes)
        assert (f"from batch {first}" in notes) == (first is not None)
        assert ("CUDA graph" in notes) == (first is not None)


def test_the_drafters_costs_and_the_files_acceptance(
    capsys: pytest.CaptureFixture[str], tmp_path: Any
) -> None:
    """An engine's counts are of one method; a drafter of another is priced by them and says so."""
    path = tmp_path / "metrics.txt"
    path.write_text(
        "vllm:spec_decode_num_drafts_total 100.0\n"
        "vllm:spec_decode_num_draft_tokens_total 200.0\n"
        "vllm:spec_decode_num_accepted_tokens_total 130.0\n"
        'vllm:spec_decode_num_accepted_tokens_per_pos_total{position="0"} 80.0\n'
        'vllm:spec_decode_num_accepted_tokens_per_pos_total{position="1"} 50.0\n'
    )
    file = tmp_path / "acceptance.json"
    assert run(capsys, "read", str(path), "--method", "eagle", "--out", str(file))[0] == 0
    words = ("export", "vllm", "--profile", str(file), *TARGET, "--model", "drafts", "--most", "8")
    code, out, err = run(capsys, *words, "--drafter", "eagle")
    assert (code, json.loads(out)["method"]) == (0, "eagle")
    assert "planned with" not in err
    code, out, err = run(capsys, *words, "--drafter", "eagle3")
    assert (code, json.loads(out)["method"]) == (0, "eagle3")
    assert "planned with the acceptance of eagle, which is not that of eagle3" in err


def test_engines_say_which_drafters_stay_in_step() -> None:
    """vLLM and SGLang run a model at draft length 0; nothing else does."""

    def in_step(engine: Engine) -> set[str]:
        return {method for method, drafting in engine.methods.items() if drafting.in_step}

    # Those that draft in parallel have one length, above 0.
    without = {"ngram", "suffix", "medusa", "p_eagle", "pard"}
    assert in_step(ENGINES["vllm"]) == set(ENGINES["vllm"].methods) - without
    assert in_step(ENGINES["sglang"]) == {"eagle", "eagle3", "mtp"}
    assert not any(in_step(ENGINES[name]) for name in ("tensorrt-llm", "llama.cpp", "transformers"))


def test_the_page_prints_what_is_exported(capsys: pytest.CaptureFixture[str]) -> None:
    page = (Path(__file__).parents[3] / "docs" / "vllm.md").read_text("utf-8")
    _, _, section = page.partition("## Heads on several cards")
    command, _, rest = section[section.index("specsim export") :].partition("\n\n")
    printed = rest[rest.index("    {\n") : rest.index("    }\n") + len("    }")]
    code, out, err = run(capsys, *shlex.split(command.replace("\\\n", " "))[1:])
    assert code == 0
    assert in_lines(out.rstrip("\n"), 80) == dedent(printed)
    assert "start vLLM with --tensor-parallel-size 4" in err
    assert "from batch 257 on a round has more tokens than the largest CUDA graph" in err
