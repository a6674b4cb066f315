"""Engines as they are described: what is taken, what their schedulers go by, and their graphs."""

from __future__ import annotations

from dataclasses import replace

import pytest

from specsim.checks import UnsupportedError
from specsim.hardware.accelerators import accelerator
from specsim.serving import DraftPolicy, SglangEngine, VllmEngine
from specsim.serving.engines.settings import SGLANG, VLLM, EngineSettings
from specsim.serving.engines.sglang import limits_on as sglang_limits
from specsim.serving.engines.vllm import limits_on
from specsim.serving.words import EngineDefaults, engine_of
from tests.support.refusals import refuses

OFF, TWO = DraftPolicy.off(), DraftPolicy.fixed(2)
NO_LIMIT = 2**31 - 1


def vllm(**settings: object) -> VllmEngine:
    return VllmEngine("0.33.0", **({"num_gpu_blocks": 100} | settings))  # type: ignore[arg-type]


def sglang(**settings: object) -> SglangEngine:
    return SglangEngine("0.5.23", **({"max_total_num_tokens": 1000} | settings))  # type: ignore[arg-type]


def test_vllm_goes_by_its_own_defaults() -> None:
    """vLLM 0.33.0, config/scheduler.py and config/cache.py; of the blocks one is the null block."""
    assert vllm().settings(OFF) == EngineSettings(
        kind=VLLM,
        budget=2048,
        draft_slots=0,
        chunk=0,
        chunks_alone=False,
        max_seqs=256,
        block_size=16,
        blocks=99,
        max_model_len=NO_LIMIT,
        chunked=True,
        caching=True,
        full_isl=True,
        watermark_blocks=0,
        asynchronous=True,
        lookahead=0,
        admission_lookahead=0,
        drafts=0,
        drop_last=False,
        new_token_ratio=0.0,
        least_new_token_ratio=0.0,
        new_token_ratio_decay=0.0,
        longest_prefix_first=False,
    )


def test_vllm_does_what_it_is_told() -> None:
    found = vllm(
        max_num_batched_tokens=64,
        max_num_seqs=8,
        block_size=4,
        max_model_len=50,
        enable_chunked_prefill=False,
        long_prefill_token_threshold=7,
        enable_prefix_caching=False,
        scheduler_reserve_full_isl=False,
        watermark=0.055,
        async_scheduling=False,
    ).settings(
        DraftPolicy(
            ((1, 1, 3),),
            drops_last_cached_block=True,
            looks_one_further=True,
            slots_for_drafting=2,
        )
    )
    assert found == vllm().settings(OFF)._replace(
        budget=64,
        draft_slots=2,
        max_seqs=8,
        block_size=4,
        max_model_len=50,
        chunked=False,
        chunk=7,
        caching=False,
        full_isl=False,
        watermark_blocks=5,
        asynchronous=False,
        lookahead=4,
        admission_lookahead=4,
        drafts=3,
        drop_last=True,
    )
    for version in ("0.19.0", "0.28.0", "0.32.0", "0.33.0"):
        usual = VllmEngine(version, 100).settings(TWO)
        assert (usual.full_isl, usual.asynchronous, usual.lookahead) == (True, True, 2)
        # v1/core/sched/scheduler.py, effective_lookahead_tokens, of 0.19.0 and of 0.28.0.
        assert usual.admission_lookahead == (0 if version == "0.19.0" else 2)
        # num_eligible_reqs, of 0.32.0.
        assert usual.chunks_alone == (version in ("0.19.0", "0.28.0"))


def test_vllm_makes_graphs_up_to_what_a_step_may_hold() -> None:
    assert vllm(max_num_seqs=4).capture_sizes(OFF).tolist() == [1, 2, 4, 8]
    few = {"max_num_seqs": 8, "max_num_batched_tokens": 10}
    assert vllm(**few).capture_sizes(OFF).tolist() == [1, 2, 4, 8, 10]
    # Rounds of 1 + 2 tokens: beside them those of 1, 2, 4 and 8 requests, as far as a step holds
    # them, and the most that it holds; before 0.32 multiples of 3 in their place.
    assert vllm(**few).capture_sizes(TWO).tolist() == [1, 2, 3, 4, 6, 8, 10]
    assert vllm(max_num_seqs=2).capture_sizes(TWO).tolist() == [1, 2, 3, 4, 6, 8]
    # 12, the next multiple, is beyond what a step may hold.
    eleven = {"max_num_seqs": 8, "max_num_batched_tokens": 11}
    assert vllm(**eleven).capture_sizes(TWO).tolist() == [1, 2, 3, 4, 6, 8, 11]
    for version, sizes in (("0.19.0", [3, 6, 9]), ("0.28.0", [3, 6, 9])):
        assert VllmEngine(version, 100, **few).capture_sizes(TWO).tolist() == sizes
    large = vllm(max_num_seqs=140).capture_sizes(OFF).tolist()
    assert large == sorted([1, 2, 4, *range(8, 256, 8), 140, 256, 272])
    assert vllm(max_num_seqs=128).capture_sizes(OFF).tolist()[-2:] == [248, 256]
    assert vllm(max_num_seqs=300).capture_sizes(OFF).tolist()[-2:] == [496, 512]
    assert vllm(cudagraph_capture_sizes=(3, 5)).capture_sizes(TWO).tolist() == [3, 5]
    # Of those that are named, too; where a step holds none of them there are none.
    named = {"cudagraph_capture_sizes": (3, 11), "max_cudagraph_capture_size": 3}
    assert vllm(**few, **named).capture_sizes(TWO).tolist() == [3]
    assert vllm(**few, cudagraph_capture_sizes=(11,)).capture_sizes(TWO).tolist() == []
    assert vllm(max_cudagraph_capture_size=16).capture_sizes(OFF).tolist() == [1, 2, 4, 8, 16]
    larger = {"max_cudagraph_capture_size": 1024, "max_num_batched_tokens": 600}
    assert vllm(**larger).capture_sizes(OFF).tolist()[-2:] == [592, 600]
    assert vllm(enforce_eager=True).capture_sizes(TWO).tolist() == []


def test_the_largest_graph_follows_from_the_card_the_requests_and_their_drafts() -> None:
    """vLLM 0.32.0, config/vllm.py, _set_cudagraph_sizes: 512, on Blackwell 1,024."""
    four = DraftPolicy.fixed(4)
    for most, drafts, usual, blackwell in ((256, four, 512, 1024), (64, four, 512, 640)):
        few = vllm(max_num_seqs=most)
        large = replace(few, largest_graph=1024)
        assert few.capture_sizes(drafts)[-1] == usual
        assert large.capture_sizes(drafts)[-1] == blackwell
    # Rounds of 1, 2, 4, 8 and so on requests, 5 tokens each, up to the largest graph.
    sizes = set(vllm(largest_graph=1024).capture_sizes(four).tolist())
    assert {5, 200, 920, 1000} < sizes
    assert 1040 not in sizes
    # Where a largest one is named there are none of these, whatever it is.
    named = vllm(max_cudagraph_capture_size=1024).capture_sizes(four).tolist()
    assert named == [1, 2, 4, *range(8, 256, 8), *range(256, 1025, 16)]
    assert 250 not in vllm(max_cudagraph_capture_size=1024, max_num_seqs=250).capture_sizes(OFF)


def test_every_length_of_a_schedule_has_graphs_of_its_own_batches() -> None:
    """Up to 2 requests draft 2 tokens, up to 5 one, 6 none: of each 1, 2, 4 and the most."""
    by_batch = DraftPolicy(((1, 2, 2), (3, 5, 1), (6, 6, 0)))
    asked = vllm(max_num_seqs=6, max_num_batched_tokens=100, max_cudagraph_capture_size=None)
    decodes = {3, 6} | {2, 4, 8, 10} | {1, 2, 4, 6}
    assert asked.capture_sizes(by_batch).tolist() == sorted({1, 2, 4, 8, 16, 24, 32} | decodes)
    given = vllm(max_num_seqs=6, max_num_batched_tokens=100, max_cudagraph_capture_size=32)
    assert given.capture_sizes(by_batch).tolist() == [1, 2, 4, 8, 16, 24, 32]


def test_limits_of_vllm_change_with_the_memory_of_the_card() -> None:
    card = accelerator("H100-SXM")

    def limits(gib: float, version: str = "0.32.0", name: str = card.name) -> tuple[int, ...]:
        found = limits_on(replace(card, memory=gib * 2.0**30, name=name), version)
        assert list(found) == ["max_num_batched_tokens", "max_num_seqs"]
        return tuple(found.values())

    assert [limits(gib) for gib in (69.9, 70, 159.9, 160)] == [
        (2048, 256),
        (8192, 1024),
        (8192, 1024),
        (16384, 1024),
    ]
    assert [limits(160, version) for version in ("0.19.0", "0.28.0", "0.33.0")] == [
        (8192, 1024),
        (16384, 1024),
        (16384, 1024),
    ]
    assert limits(95, name="TPU-v5p") == limits(192, name="TPU-v7") == (2048, 256)
    assert limits(80, name="A100-80GB-SXM") == (2048, 256)


@pytest.mark.parametrize(
    ("card", "words", "largest"),
    [
        (None, "vllm:max_num_seqs=256", 512),
        ("H100-SXM", "vllm:max_num_seqs=256", 512),
        ("B200", "vllm:max_num_seqs=256", 1024),
        ("B200", "vllm:max_num_seqs=64", 640),
        ("B200", "vllm:max_num_seqs=256,version=0.28.0", 500),
        ("B200", "vllm:max_num_seqs=256,max_cudagraph_capture_size=256", 256),
    ],
)
def test_words_have_the_largest_graph_of_the_card(
    card: str | None, words: str, largest: int
) -> None:
    """With four drafts; 496, rounded up to a multiple of 5, is the last that 0.28.0 has to 512."""
    known = None if card is None else accelerator(card)
    defaults = EngineDefaults(cache_tokens=160_000, card=known)
    assert engine_of(words, defaults).capture_sizes(DraftPolicy.fixed(4))[-1] == largest


@pytest.mark.parametrize(
    ("card", "words", "budget"),
    [
        (None, "vllm", 2048),
        (None, "vllm:enable_chunked_prefill=no", 40_000),
        ("H100-SXM", "vllm", 8192),
        ("H100-SXM", "vllm:enable_chunked_prefill=no", 40_000),
        ("H100-SXM", "vllm:enable_chunked_prefill=no,max_model_len=5000", 8192),
        ("H100-SXM", "vllm:enable_chunked_prefill=no,max_num_batched_tokens=50000", 50_000),
    ],
)
def test_without_chunks_a_step_holds_the_longest_prompt(
    card: str | None, words: str, budget: int
) -> None:
    """vLLM 0.32.0, engine/arg_utils.py, _set_default_max_num_seqs_and_batched_tokens_args."""
    known = None if card is None else accelerator(card)
    defaults = EngineDefaults(cache_tokens=160_000, longest=40_000, card=known)
    engine = engine_of(words, defaults)
    assert isinstance(engine, VllmEngine)
    assert engine.max_num_batched_tokens == budget


def test_the_ends_of_what_vllm_takes_are_taken() -> None:
    vllm(num_gpu_blocks=2, max_num_batched_tokens=1, max_num_seqs=1, block_size=1, max_model_len=2)
    vllm(num_gpu_blocks=NO_LIMIT, watermark=0.999, max_model_len=NO_LIMIT)
    vllm(max_num_batched_tokens=256, max_model_len=256, enable_chunked_prefill=False)
    vllm(max_num_batched_tokens=NO_LIMIT, max_num_seqs=NO_LIMIT, block_size=NO_LIMIT)
    vllm(max_model_len=4096)
    vllm(cudagraph_capture_sizes=(1,))
    vllm(cudagraph_capture_sizes=(1, 4), max_cudagraph_capture_size=4)
    vllm(cudagraph_capture_sizes=(2**20,))
    assert vllm(max_model_len=50).longest == 50
    assert vllm().longest == NO_LIMIT


test_vllm_refuses = refuses(
    (lambda: vllm(num_gpu_blocks=1), r"num_gpu_blocks must be .* in \[2, 2147483647\], got 1"),
    (lambda: vllm(num_gpu_blocks=NO_LIMIT + 1), "num_gpu_blocks must be .*, got 2147483648"),
    (lambda: vllm(max_num_batched_tokens=0), "max_num_batched_tokens must be"),
    (lambda: vllm(max_num_seqs=0), "max_num_seqs must be"),
    (lambda: vllm(block_size=0), "block_size must be"),
    (lambda: vllm(block_size=NO_LIMIT + 1), "block_size must be"),
    (lambda: vllm(max_num_batched_tokens=NO_LIMIT + 1), "max_num_batched_tokens must be"),
    (lambda: vllm(long_prefill_token_threshold=-1), "long_prefill_token_threshold must be"),
    (lambda: vllm(watermark=-0.1), r"watermark must be in \[0, 0\.999\], got -0\.1"),
    (lambda: vllm(watermark=1.0), r"watermark must be in \[0, 0\.999\], got 1"),
    (lambda: vllm(max_model_len=1), "max_model_len must be"),
    (lambda: vllm(max_model_len=NO_LIMIT + 1), "max_model_len must be"),
    (
        lambda: vllm(max_num_batched_tokens=256, max_model_len=257, enable_chunked_prefill=False),
        "max_num_batched_tokens must be >= max_model_len, 257, without chunked prefill, got 256",
    ),
    (
        lambda: vllm(max_num_batched_tokens=255),
        "max_num_batched_tokens must be >= max_num_seqs, 256, got 255",
    ),
    (lambda: vllm(cudagraph_capture_sizes=()), "cudagraph_capture_sizes must rise from 1"),
    (lambda: vllm(cudagraph_capture_sizes=(0, 1)), "cudagraph_capture_sizes must rise from 1"),
    (lambda: vllm(cudagraph_capture_sizes=(1, 4, 4)), "cudagraph_capture_sizes must rise from 1"),
    (lambda: vllm(max_cudagraph_capture_size=0), "max_cudagraph_capture_size must be .* got 0"),
    (
        lambda: vllm(cudagraph_capture_sizes=(1, 10**11)),
        r"cudagraph_capture_sizes must be a whole number in \[1, 1048576\], got 1e\+11",
    ),
    (
        lambda: vllm(max_cudagraph_capture_size=2**20 + 1),
        r"max_cudagraph_capture_size must be a whole number in \[1, 1048576\], got 1\.04858e\+06",
    ),
    (lambda: vllm(largest_graph=0), "largest_graph must be .* got 0"),
    (
        lambda: vllm(cudagraph_capture_sizes=(1, 4), max_cudagraph_capture_size=8),
        "the last of cudagraph_capture_sizes that a step may hold, 4, got 8",
    ),
)


def test_sglang_goes_by_its_own_defaults() -> None:
    """SGLang 0.5.23, server_args.py and environ.py: from 0.7 to 0.14 of it in 600 decodes."""
    found = sglang().settings(TWO)
    assert found._replace(new_token_ratio_decay=0.0) == EngineSettings(
        kind=SGLANG,
        budget=16384,
        draft_slots=0,
        chunk=8192,
        chunks_alone=True,
        max_seqs=48,
        block_size=1,
        blocks=1000,
        max_model_len=NO_LIMIT,
        chunked=True,
        caching=True,
        full_isl=True,
        watermark_blocks=0,
        asynchronous=True,
        lookahead=2,
        admission_lookahead=0,
        drafts=2,
        drop_last=False,
        new_token_ratio=0.7,
        least_new_token_ratio=pytest.approx(0.098),
        new_token_ratio_decay=0.0,
        longest_prefix_first=False,
    )
    assert found.new_token_ratio_decay == pytest.approx(0.602 / 600)


def test_sglang_does_what_it_is_told() -> None:
    found = sglang(
        max_total_num_tokens=1007,
        max_running_requests=5,
        chunked_prefill_size=-1,
        max_prefill_tokens=100,
        page_size=8,
        context_length=70,
        schedule_conservativeness=2.0,
        schedule_policy="lpm",
        disable_radix_cache=True,
        disable_overlap_schedule=True,
    ).settings(DraftPolicy.fixed(0, drops_last_cached_block=True))
    assert found == sglang().settings(OFF)._replace(
        blocks=125,
        block_size=8,
        max_seqs=5,
        chunk=0,
        budget=100,
        max_model_len=70,
        longest_prefix_first=True,
        caching=False,
        asynchronous=False,
        drop_last=True,
        new_token_ratio=1.0,
        least_new_token_ratio=0.14,
        new_token_ratio_decay=pytest.approx(0.86 / 600),
    )
    assert sglang(schedule_conservativeness=0.5).settings(OFF).new_token_ratio == 0.35


def test_sglang_runs_fewer_requests_with_a_drafter() -> None:
    """512 of each that the cache holds at full length, from 2,048 to 4,096."""
    usual = {"max_total_num_tokens": 60_000, "context_length": 10_000}
    for drafts, told, expected in (
        (TWO, usual, 48),
        (OFF, usual, 3072),
        (OFF, usual | {"context_length": 20_000}, 2048),
        (OFF, usual | {"context_length": 5_000}, 4096),
        (OFF, usual | {"max_running_requests": 7}, 7),
        # No more than half the tokens of the cache.
        (OFF, {"max_total_num_tokens": 1001, "context_length": 100}, 500),
        (OFF, {"max_total_num_tokens": 1001, "max_running_requests": 501}, 500),
        (TWO, {"max_total_num_tokens": 81}, 40),
        (OFF, {"max_total_num_tokens": 1}, 1),
        (TWO, usual | {"max_running_requests": 70}, 70),
    ):
        assert sglang(**told).settings(drafts).max_seqs == expected


def test_sglang_makes_graphs_of_decodes() -> None:
    """As its server prints them: cuda_graph_config[decode].bs of 0.5.23."""
    few = [1, 2, 4, 8, 12, *range(16, 257, 8)]
    assert sglang().capture_sizes(OFF).tolist() == few
    many = sglang(cuda_graph_max_bs_decode=576).capture_sizes(OFF).tolist()
    assert many == [*few, *range(272, 513, 16), 544, 576]
    assert sglang(cuda_graph_max_bs_decode=3).capture_sizes(OFF).tolist() == [1, 2, 3]
    assert sglang(cuda_graph_max_bs_decode=1).capture_sizes(OFF).tolist() == [1]
    assert sglang(cuda_graph_bs_decode=(1, 5)).capture_sizes(TWO).tolist() == [3, 15]
    assert sglang(disable_decode_cuda_graph=True).capture_sizes(TWO).tolist() == []


def test_graphs_of_sglang_lie_closer_with_a_drafter() -> None:
    sizes = [*range(1, 9), *range(10, 33, 2), *range(40, 65, 4), *range(72, 257, 8)]

    def decodes(**settings: int) -> list[int]:
        return (sglang(**settings).capture_sizes(TWO) // 3).tolist()

    assert decodes() == sizes
    assert decodes(cuda_graph_max_bs_decode=300) == [*sizes, 272, 288, 300]
    assert decodes(cuda_graph_max_bs_decode=11) == [*range(1, 9), 10, 11]
    # There are none for more requests than run together.
    assert decodes(max_running_requests=9) == [*range(1, 10)]
    assert decodes(max_running_requests=500) == sizes


def test_limits_of_sglang_change_with_the_memory_of_the_card() -> None:
    card = accelerator("H100-SXM")

    def limits(gib: float, degree: int = 1) -> tuple[int, ...]:
        found = sglang_limits(replace(card, memory=gib * 2.0**30), degree)
        assert list(found) == ["chunked_prefill_size", "cuda_graph_max_bs_decode"]
        return tuple(found.values())

    assert [limits(gib) for gib in (19.9, 20, 35, 60, 159.9, 160)] == [
        (2048, 8),
        (4096, 48),
        (4096, 32),
        (8192, 256),
        (8192, 256),
        (16384, 512),
    ]
    assert [limits(gib, 4)[1] for gib in (19.9, 20, 35, 60, 160)] == [8, 160, 160, 512, 512]
    assert limits(80, 3) == limits(80)


def test_the_ends_of_what_sglang_takes_are_taken() -> None:
    least = ("max_total_num_tokens", "max_running_requests", "chunked_prefill_size")
    least += ("max_prefill_tokens", "page_size")
    sglang(**dict.fromkeys(least, 1), context_length=2, schedule_conservativeness=0.0)
    sglang(**dict.fromkeys(least, NO_LIMIT), context_length=NO_LIMIT)
    sglang(cuda_graph_max_bs_decode=1)
    sglang(cuda_graph_max_bs_decode=2**16)
    sglang(cuda_graph_bs_decode=(1,))
    assert sglang(context_length=70).longest == 70
    assert sglang().longest == NO_LIMIT


test_sglang_refuses = refuses(
    *(
        (lambda name=name, value=value: sglang(**{name: value}), f"^{name} must be a whole number")
        for name, low in (
            ("max_total_num_tokens", 1),
            ("max_running_requests", 1),
            ("max_prefill_tokens", 1),
            ("page_size", 1),
            ("chunked_prefill_size", 1),
            ("context_length", 2),
        )
        for value in (low - 1, NO_LIMIT + 1)
    ),
    *(
        (
            lambda most=most: sglang(cuda_graph_max_bs_decode=most),
            "cuda_graph_max_bs_decode must be a whole number",
        )
        for most in (0, 2**16 + 1)
    ),
    (lambda: sglang(chunked_prefill_size=-2), "chunked_prefill_size must be a whole number"),
    (lambda: sglang(schedule_conservativeness=-0.1), "schedule_conservativeness must be >= 0"),
    (lambda: sglang(schedule_policy="sjf"), "schedule_policy must be one of fcfs, lpm, got 'sjf'"),
    (lambda: sglang(cuda_graph_bs_decode=()), "cuda_graph_bs_decode must rise from 1 or more"),
    (lambda: sglang(cuda_graph_bs_decode=(0, 1)), "cuda_graph_bs_decode must rise from 1 or more"),
    (lambda: sglang(cuda_graph_bs_decode=(2, 2)), "cuda_graph_bs_decode must rise from 1 or more"),
    (
        lambda: sglang(cuda_graph_bs_decode=(1, 10**11)),
        r"cuda_graph_bs_decode must be a whole number in \[1, 65536\], got 1e\+11",
    ),
)


def test_versions_that_are_not_known_are_refused() -> None:
    with pytest.raises(UnsupportedError, match=r"known: 0\.19\.0, 0\.28\.0, 0\.32\.0, 0\.33\.0\)"):
        VllmEngine("0.33", 100)
    with pytest.raises(UnsupportedError, match=r"known: 0\.5\.23\)"):
        SglangEngine("0.5", 1000)
