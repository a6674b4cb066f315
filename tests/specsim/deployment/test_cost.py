"""Rounds of a deployment, against the sum of their runs written out."""

from __future__ import annotations

from dataclasses import replace
from math import ceil
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from specsim import DraftModel, deploy, hardware
from specsim.acceptance import acceptance_of
from specsim.batching.cost import CellUnavailableError
from specsim.batching.tokens_per_block import TokensPerBlock
from specsim.checks import InvalidArgumentError
from specsim.deployment.cost import DeployedCost
from specsim.deployment.drafter_words import drafter
from specsim.deployment.heads import draft_shapes
from tests.support.refusals import refuses

TARGET = "llama-3.1-8b"


def cost(words: str, longest: int = 9, **more: Any) -> DeployedCost:
    deployed = deploy(TARGET, "H100-SXM", words, **more)
    return DeployedCost(deployed, deployed.drafters[0], longest)


def seconds(shape: hardware.Shape, tokens: int, batch: int, context: int, logits: int) -> float:
    card = hardware.accelerator("H100-SXM")
    return hardware.roofline(shape, card, tokens, batch, context, logits=logits).seconds


def test_a_draft_model_runs_once_a_token() -> None:
    found, draft = cost("draft_model:llama-3.2-1b"), hardware.shape("llama-3.2-1b")
    # Four drafts of the last round, its last token, and the one behind them.
    first = seconds(draft, 6, 16, 100, 1)
    later = seconds(draft, 1, 16, 102, 1)
    assert found.draft_s(4, 16, 100, 0.3) == pytest.approx(first + 3 * later, rel=1e-12)
    target = seconds(hardware.shape(TARGET), 5, 16, 100, 5)
    assert found.verify_s(4, 16, 100) == pytest.approx(target, rel=1e-12)
    # With no drafts the drafter still reads what was decoded, and the token behind it.
    assert found.loaded_s(16, 100) == pytest.approx(seconds(draft, 2, 16, 100, 1), rel=1e-12)


def test_tokens_of_a_prompt_choose_experts_for_themselves() -> None:
    """What drafts of one request have in common, prompts have not."""
    one, other = (
        DeployedCost(deploy("qwen3-235b-a22b", "H200", tensor_parallel=8, **more), None, 9)
        for more in ({}, {"routing_exponent": 0.5})
    )
    assert one.run_s("target", 512, 1, 0, 1) == other.run_s("target", 512, 1, 0, 1)
    assert one.verify_s(5, 8, 100) == other.verify_s(5, 8, 100)  # nothing drafts: plain steps
    drafting = [
        replace(each, drafter=drafter("eagle3"), deployment=each.deployment)
        for each in (one, other)
    ]
    assert drafting[1].verify_s(5, 8, 100) < drafting[0].verify_s(5, 8, 100)


def test_groups_that_share_nothing_need_no_link() -> None:
    card = replace(hardware.accelerator("H100-SXM"), interconnect=None)
    deployed = deploy(TARGET, card, "eagle3", data_parallel=2)
    assert DeployedCost(deployed, deployed.drafters[0], 5).verify_s(0, 8, 100) > 0


def test_a_runner_that_follows_no_schedule_makes_all_drafts() -> None:
    found, draft = cost("draft_model:llama-3.2-1b"), hardware.shape("llama-3.2-1b")
    always = replace(found, always=5)
    later = 4 * seconds(draft, 1, 16, 103, 1)
    # One draft was verified, its last token, and the one behind them.
    first = seconds(draft, 3, 16, 100, 1)
    assert always.draft_s(1, 16, 100, 0.3) == pytest.approx(first + later, rel=1e-12)
    nothing = seconds(draft, 2, 16, 100, 1)
    assert always.loaded_s(16, 100) == pytest.approx(nothing + later, rel=1e-12)
    assert always.verify_s(1, 16, 100) == found.verify_s(1, 16, 100)
    block = cost("dflash")
    assert replace(block, always=5).draft_s(1, 16, 100, 0.0) == block.draft_s(5, 16, 100, 0.0)


def test_a_draft_model_without_graphs_waits_for_the_host() -> None:
    """16 layers, each of which the host needs 100 us for, more than the card."""
    graphs, eager = cost("draft_model:llama-3.2-1b"), cost("draft_model:llama-3.2-1b,eager_us=100")
    assert eager.draft_s(4, 16, 100, 0.3) == pytest.approx(4 * 16 * 100e-6, rel=1e-12)
    assert eager.verify_s(4, 16, 100) == graphs.verify_s(4, 16, 100)
    assert eager.run_s("draft", 100, 1, 0, 1) == pytest.approx(16 * 100e-6, rel=1e-12)
    free = cost("draft_model:llama-3.2-1b,eager_us=0")
    assert free.draft_s(4, 16, 100, 0.3) == graphs.draft_s(4, 16, 100, 0.3)


@pytest.mark.parametrize(("words", "runs"), [("medusa", 1), ("parallel", 1), ("ngram", 0)])
def test_runs_of_a_round(words: str, runs: int) -> None:
    found = cost(words)
    assert sum(each.count for each in found.draft_runs(4, 8, 100)) == runs
    assert drafter(words).runs(4) == runs


def test_rounds_without_a_match_are_plain_steps() -> None:
    never = cost("ngram:match=0,host_us=10")
    assert never.verify_s(5, 8, 100) == never.verify_s(0, 8, 100)
    assert never.draft_s(5, 8, 100, 0.0) == pytest.approx(8 * 10e-6)
    assert never.loaded_s(8, 100) == 0.0  # nothing is looked up where nothing is drafted
    always = cost("ngram")
    assert always.verify_s(5, 8, 100) == cost("eagle").verify_s(5, 8, 100)


def test_caches_of_both_must_fit() -> None:
    found = cost("draft_model:llama-3.2-1b", longest=9)
    memory = found.memory(found.drafter, 4096)
    assert memory.largest_batch < found.memory(None, 4096).largest_batch
    found.verify_s(4, memory.largest_batch, 4096)
    with pytest.raises(CellUnavailableError, match=r"H100-SXM has 80 GiB, of which 70\.0 GiB"):
        found.verify_s(4, memory.largest_batch + 1, 4096)
    found.verify_s(0, memory.largest_batch + 1, 4096)


def test_words_say_what_the_fields_do() -> None:
    assert drafter("draft_model:qwen3-0.6b,alpha=0.5") == DraftModel(model="qwen3-0.6b", alpha=0.5)
    assert drafter("DFlash:qwen3-8b") == drafter("parallel:qwen3-8b,kind=dflash")
    assert drafter("p-eagle:alpha=0.8").label == "parallel:kind=p_eagle"
    for words in ("eagle3:layers=2,draft_vocab=1000", "suffix:match=0.5,length=3.5", "medusa"):
        assert drafter(words).label == words


def test_a_tree_drafts_from_one_position_then_from_its_width() -> None:
    found = cost("eagle:topk=4,slots=16")
    shapes = draft_shapes(drafter("eagle"), hardware.shape(TARGET), 3)
    assert shapes is not None
    # All nodes of the last round's tree.
    first = seconds(shapes.first, 16, 2, 100, 1)
    later = seconds(shapes.later, 4, 2, 102, 4)
    assert found.draft_s(3, 2, 100, 0.0) == pytest.approx(first + 2 * later, rel=1e-3)
    target = hardware.shape(TARGET)
    # One run drafts four nodes; two runs twenty, of which the best are kept.
    assert found.verify_s(1, 2, 100) == seconds(target, 5, 2, 100, 5)
    assert found.verify_s(2, 2, 100) == seconds(target, 16, 2, 100, 16)


def test_the_first_run_drafts_at_every_position_only_where_it_is_the_last() -> None:
    for words, logits in (("eagle3", 1), ("parallel", 5), ("mtp", 1)):
        found, shapes = cost(words), draft_shapes(drafter(words), hardware.shape(TARGET), 5)
        assert shapes is not None
        (first, *_) = found.draft_runs(5, 256, 100)
        run = hardware.roofline(
            shapes.first, hardware.accelerator("H100-SXM"), 6, 256, 100, logits=logits
        )
        assert first.run.flops == run.flops


# Lengths and matches drawn for each request; a wrong mean of a tenth of a token is seen, and four
# standard errors are exceeded once in 16,000.
@pytest.mark.parametrize("words", ["ngram:match=0.3", "suffix:match=0.6,length=2.5"])
def test_found_drafts_against_draws(words: str) -> None:
    found, alpha, gamma, draws = cost(words), 0.7, 6, 20_000
    random = np.random.default_rng(0)
    said: Any = found.drafter
    there = random.random(draws) < said.match
    lengths = np.full(draws, gamma)
    if said.method == "suffix":
        lengths = np.minimum(random.geometric(1 / said.length, draws), gamma)
    lengths = np.where(there, lengths, 0)
    accepted = np.minimum(random.geometric(1 - alpha, draws) - 1, lengths)
    known = TokensPerBlock.of_acceptance(acceptance_of(alpha), gamma)
    expected = float(found.gains(known).tokens[gamma])
    assert abs(1 + accepted.mean() - expected) < 4 * accepted.std() / draws**0.5
    # Positions that the target reads for a request, in the mean, at any batch.
    batch = 4
    flops = [
        hardware.roofline(
            hardware.shape(TARGET), hardware.accelerator("H100-SXM"), n, batch, 0
        ).flops
        for n in range(1, gamma + 2)
    ]
    cases = found.target_runs(gamma, batch, 0)
    read = sum(case.count * np.interp(case.run.flops, flops, np.arange(1, 8)) for case in cases)
    assert sum(case.count for case in cases) == pytest.approx(1.0)
    assert abs(read - 1 - lengths.mean()) < 4 * lengths.std() / draws**0.5


def test_rounds_without_any_draft_are_of_one_group() -> None:
    one = cost("ngram:match=0.2", data_parallel=1)
    four = cost("ngram:match=0.2,host_us=10", data_parallel=4)
    assert [case.count for case in four.target_runs(3, 8, 10)] == [
        case.count for case in one.target_runs(3, 2, 10)
    ]
    assert four.lookup_s(8) == pytest.approx(2 * 10e-6)


@pytest.mark.parametrize(("batch", "parts"), [(8, 4), (9, 4), (3, 2), (1, 1)])
def test_a_drafter_behind_a_pipeline_drafts_for_one_part_after_the_other(
    batch: int, parts: int
) -> None:
    piped = cost("eagle3", pipeline_parallel=4, data_parallel=2)
    each = ceil(ceil(batch / 2) / parts)
    alone = cost("eagle3")
    for turn, once in zip(
        piped.draft_runs(4, batch, 100), alone.draft_runs(4, each, 100), strict=True
    ):
        assert turn.turns == parts
        assert turn.run.flops == once.run.flops


REFUSED = ["draft_model:llama-3.2-1b,tensor=3", "eagle3:tensor=4", "eagle3:qwen3-8b"]


@pytest.mark.parametrize("words", REFUSED)
def test_a_drafter_that_does_not_fit_its_target_is_refused(words: str) -> None:
    with pytest.raises(InvalidArgumentError, match=r"must divide|is for a"):
        deploy(TARGET, "H100", words, tensor_parallel=2)


test_deployments_are_refused = refuses(
    (lambda: deploy(TARGET, "H100", imbalance=1.5), "imbalance must be 1 where experts are not"),
    (lambda: deploy(TARGET, "H100", imbalance=0.5), "imbalance must be >= 1, got 0.5"),
    (lambda: deploy(TARGET, "H100", memory_utilisation=0), "utilisation must be > 0"),
    (lambda: deploy(TARGET, "H100", memory_utilisation=1.1), r"utilisation must be in \[0, 1\]"),
    (lambda: deploy(TARGET, "H100", reserve_gb=-1), "reserve must be >= 0"),
    (lambda: deploy(TARGET, "H100", tensor_parallel=3), "must divide the 32 attention heads"),
    (lambda: deploy(TARGET, "H100", efficiency=0), "efficiency must be > 0"),
    (lambda: deploy(TARGET, "H100", efficiency=[1, 1, 1]), "one number or compute,memory, got 3"),
    (lambda: deploy("llama-3.1-9b", "H100"), "did you mean llama-3.1-70b or llama-3.1-8b"),
    (lambda: drafter("eagel3"), "drafter must be one of .*, did you mean eagle or eagle3"),
    (lambda: drafter("eagle3:draftvocab=3"), "did you mean draft_vocab"),
    (lambda: drafter("eagle3:draft_vocab=many"), "draft_vocab must be a number, got 'many'"),
    (lambda: drafter("eagle3:layers=2,layers=3"), "layers is given twice"),
    (lambda: drafter("eagle:topk=4"), "slots is missing"),
    (lambda: drafter("eagle3:llama-3.1-8b,layers=2"), "layers must be left out where a model is"),
    (lambda: drafter("draft_model"), "needs a model, as draft_model:llama-3.2-1b"),
    (lambda: drafter("suffix:length=0.5"), "length must be >= 1"),
    (lambda: drafter("ngram:match=2"), r"match must be in \[0, 1\]"),
)


def test_prices_without_what_the_engine_loses_are_bounds() -> None:
    assert deploy(TARGET, "H100").is_bound
    assert deploy(TARGET, "H100", graph_tokens=512).is_bound
    for said in ({"efficiency": 0.9}, {"layer_us": 1}, {"overhead_us": 1}, {"round_us": 1}):
        assert not deploy(TARGET, "H100", **said).is_bound


kinds = st.sampled_from(
    ["eagle3", "mtp", "medusa:heads=9", "parallel", "ngram:match=0.4", "suffix:length=3", "eagle"]
)


@given(kinds, st.integers(1, 8), st.integers(1, 50), st.integers(0, 8000))
@settings(max_examples=60, deadline=None)
def test_more_is_never_cheaper(words: str, gamma: int, batch: int, context: int) -> None:
    found = cost(words, longest=10)
    price = found.verify_s(gamma, batch, context)
    assert price >= found.verify_s(0, batch, context) * (1 - 1e-12)
    for more in (
        (gamma + 1, batch, context),
        (gamma, batch + 1, context),
        (gamma, batch, context + 9),
    ):
        assert found.verify_s(*more) >= price * (1 - 1e-12)
        assert found.draft_s(*more, 0.0) >= found.draft_s(gamma, batch, context, 0.0) * (1 - 1e-12)
    loaded = found.loaded_s(batch, context)
    assert 0 <= loaded <= found.draft_s(1, batch, context, 0.0)
    memory = found.memory(found.drafter, context, gamma)
    assert memory.largest_batch <= found.memory(None, context).largest_batch


def test_experts_that_are_dealt_out_to_groups_draft_too() -> None:
    deployed = deploy("deepseek-v3", "H200", "mtp", data_parallel=8, expert_parallel=8)
    found = DeployedCost(deployed, deployed.drafters[0], 4)
    (first, later) = found.draft_runs(3, 64, 1000)
    # All groups' tokens reach the experts: 4 of 64 requests, then 1.
    assert first.run.experts == hardware.expected_experts(256, 8, 256)
    assert later.run.experts == hardware.expected_experts(256, 8, 64)
