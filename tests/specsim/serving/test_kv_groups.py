"""Groups of layers that have blocks of their own in vLLM."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import specsim
from specsim.api.serving_engine import memory_blocks, memory_groups
from specsim.checks import InvalidArgumentError
from specsim.deployment.heads import named_shape
from specsim.hardware.parallel import ONE_CARD, Parallelism
from specsim.serving import DraftPolicy, Requests, StepModel, StepTerm, VllmEngine, run
from specsim.serving.analytic.of_setup import replica_of
from specsim.serving.engines.kv_groups import (
    KvGroup,
    group_table,
    kv_pool,
    mean_blocks,
    most_blocks,
)

SECOND = StepModel((StepTerm("target", 1.0),))


def groups_of(*names: str) -> set[KvGroup]:
    found = kv_pool([(named_shape("target", name), ONE_CARD) for name in names])
    assert found is not None
    return set(found.groups)


def test_layers_of_one_kind_are_cut_into_groups_of_one_size() -> None:
    """Gemma-3-27B: 10 of 62 layers see everything, and 52 are six groups of ten, one not full."""
    assert groups_of("gemma-3-27b") == {KvGroup(None, 1, 1), KvGroup(1024, 1, 6)}
    pool = kv_pool([(named_shape("target", "gemma-3-27b"), ONE_CARD)])
    assert pool is not None
    assert pool.token_bytes == 10 * 2 * 16 * 128 * 2  # keys and values of 16 heads, 16 bits


def test_nearly_as_many_of_both_kinds_make_one_group_of_each() -> None:
    """The comment in vLLM's source has gpt-oss-20b with EAGLE: 12 and 13 layers, padded to 13."""
    alone = named_shape("target", "gpt-oss-20b")
    assert groups_of("gpt-oss-20b") == {KvGroup(None, 1, 1), KvGroup(128, 1, 1)}
    layers = [each for each in alone.layers if each.attentions[0].window is None]
    head = replace(alone, layers=tuple(layers[:1]))
    pool = kv_pool([(alone, ONE_CARD), (head, ONE_CARD)])
    assert pool is not None
    assert set(pool.groups) == {KvGroup(None, 1, 1), KvGroup(128, 1, 1)}
    assert pool.token_bytes == 13 * 2 * 8 * 64 * 2


def test_layers_that_keep_less_have_blocks_of_more_tokens() -> None:
    """Gemma-3-1B keeps an eighth of a token of 27B's layers: 4 layers of it see everything."""
    found = groups_of("gemma-3-27b", "gemma-3-1b")
    assert found == {
        KvGroup(None, 1, 3),
        KvGroup(1024, 1, 13),
        KvGroup(None, 8, 1),
        KvGroup(512, 8, 6),
    }


def test_models_whose_layers_are_alike_have_none() -> None:
    assert kv_pool([(named_shape("target", "llama-3.1-8b"), ONE_CARD)]) is None
    assert memory_groups(specsim.deploy("llama-3.1-8b", "H100"), None, 500, 0) == ((), None)


def test_cards_share_the_heads_and_stages_the_layers() -> None:
    shape = named_shape("target", "gemma-3-27b")
    one, two, stages = (
        kv_pool([(shape, each)])
        for each in (ONE_CARD, Parallelism(tensor=2), Parallelism(pipeline=2))
    )
    assert one is not None
    assert two is not None
    assert stages is not None
    assert two.token_bytes == stages.token_bytes == one.token_bytes / 2


def test_most_blocks_are_those_of_vllm() -> None:
    """Its comment: of blocks of 4 tokens a window of 4 tokens and 2 in flight take three."""
    table = group_table([KvGroup(4, 1, 2)], 4)
    assert most_blocks(table, 400, 2, 10_000) == 2 * (2 + 1)
    assert most_blocks(table, 3, 2, 10_000) == 2
    assert most_blocks(group_table([KvGroup(None, 2, 3)], 4), 17, 2, 10_000) == 9


@pytest.mark.parametrize("tokens", [500, 2000, 20_000])
def test_as_many_requests_fit_as_their_bytes_do(tokens: int) -> None:
    """Blocks in groups against the bytes that layers keep; half-empty blocks and layers that fill
    up a group take the rest.
    """
    deployment = specsim.deploy("gemma-3-27b", "H100")
    groups, held = memory_groups(deployment, None, tokens, 0)
    assert held is not None
    by_groups = held / 16 / mean_blocks(group_table(groups, 16), tokens)
    by_bytes = memory_blocks(deployment, None, tokens, 0) / -(-tokens // 16)
    assert 0.85 < by_groups / by_bytes < 1.0


def test_a_setup_has_the_groups_of_its_models() -> None:
    deployment = specsim.deploy("gemma-3-27b", "H100")
    found = specsim.serve(
        specsim.workload(rate=1.0, prompt="2000", output="200", requests=20),
        deployment=deployment,
        engine="vllm:max_num_seqs=64",
        replications=1,
    )
    engine = found.setup.engine
    assert isinstance(engine, VllmEngine)
    assert set(engine.kv_groups) == {KvGroup(None, 1, 1), KvGroup(1024, 1, 6)}
    assert engine.num_gpu_blocks > 3 * memory_blocks(deployment, None, 2100, 0)


def test_windows_let_go_what_is_behind_them() -> None:
    """One request of 8 + 60 tokens, a window of 16, blocks of 4, one step at a time: at the end the
    whole group holds 17 blocks, and the other those of the 15 tokens that the last one sees.
    """
    engine = VllmEngine(
        "0.33.0",
        100,
        block_size=4,
        async_scheduling=False,
        kv_groups=(KvGroup(None, 1, 1), KvGroup(16, 1, 1)),
    )
    requests = Requests(np.zeros(1), np.array([8]), np.array([60]))
    steps = run(requests, engine, SECOND).steps
    assert steps is not None
    used = steps.used_blocks
    assert used[0] == 2 + 2
    assert used[-1] == 17 + (17 - (66 - 16 + 1) // 4)


def test_a_request_that_no_pool_holds_is_refused() -> None:
    engine = VllmEngine("0.33.0", 20, kv_groups=(KvGroup(None, 1, 1), KvGroup(64, 1, 3)))
    requests = Requests(np.zeros(1), np.array([200]), np.array([20]))
    with pytest.raises(InvalidArgumentError, match="num_gpu_blocks must be > 56"):
        run(requests, engine, SECOND)


def test_the_analytic_cap_is_of_all_groups() -> None:
    engine = VllmEngine("0.33.0", 1001, kv_groups=(KvGroup(None, 1, 1), KvGroup(65, 1, 3)))
    requests = Requests(np.arange(50.0), np.full(50, 300), np.full(50, 40))
    replica = replica_of(requests, engine, SECOND, DraftPolicy.off())
    plain = replica_of(requests, replace(engine, kv_groups=()), SECOND, DraftPolicy.off())
    assert replica.binds == plain.binds == "cache"
    mean = 300 + 40 / 2
    whole, windows = mean / 16 + 0.5, 3 * (64 / 16 + 1.0)
    ratio = (whole + windows) / whole
    assert plain.times.cap / replica.times.cap == pytest.approx(ratio, rel=0.1)


def test_prompts_that_share_something_are_said_to_find_nothing(tmp_path: Path) -> None:
    file = tmp_path / "shared.jsonl"
    record = '{{"timestamp": {}, "input_length": 1024, "output_length": 8, "hash_ids": [0, {}]}}\n'
    file.write_text("".join(record.format(1000 * at, 1 + at) for at in range(4)))
    for name, said in (("gemma-3-27b", True), ("llama-3.1-8b", False)):
        found = specsim.serve(
            specsim.workload(file), deployment=specsim.deploy(name, "H100"), replications=1
        )
        assert any("some layers see a window" in line for line in found.warnings) is said
