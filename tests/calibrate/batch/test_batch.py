"""Batches: every row is read and decoded as it would be alone, and synthetic blocks count right."""

from __future__ import annotations

import shutil
from functools import cache
from itertools import product
from typing import Any

import numpy as np
import pytest
import torch
import transformers
from scipy.stats import chisquare

from calibrate.batch import synthetic
from calibrate.batch.ragged import CompileError, RaggedModel
from calibrate.batch.synthetic import Timed, decode_synthetic, draw_accepted, speculate
from calibrate.decode.engine import CachedModel
from calibrate.decode.plain import plain
from calibrate.measure.trace import generator
from calibrate.models.load import load
from calibrate.models.sampling import Sampling
from specsim.acceptance import AcceptanceLaw
from specsim.checks import InvalidArgumentError, UnsupportedError
from tests.support.imitations import CPU, greedy
from tests.support.sequences import check_law

WORDS = 64
SPARSE = {"num_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 32, "head_dim": 16}
LATENT = {
    "q_lora_rank": 16,
    "kv_lora_rank": 16,
    "qk_nope_head_dim": 8,
    "qk_rope_head_dim": 8,
    "v_head_dim": 8,
    "first_k_dense_replace": 2,
    "num_key_value_heads": 4,
}
DYNAMIC = {"rope_type": "dynamic", "factor": 4.0, "rope_theta": 10_000.0}


@cache
def build(family: str, layers: int = 2, seed: int = 0, **options: Any) -> Any:
    """A small random model of a family; two query heads to every key."""
    shape = {
        "vocab_size": WORDS,
        "hidden_size": 32,
        "intermediate_size": 64,
        "num_hidden_layers": layers,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "max_position_embeddings": 512,
        "initializer_range": 0.3,
    }
    config = getattr(transformers, f"{family}Config")(**(shape | options))
    torch.manual_seed(seed)
    return getattr(transformers, f"{family}ForCausalLM")(config).eval()


def tokens(rows: int, width: int, seed: int) -> torch.Tensor:
    return torch.randint(WORDS, (rows, width), generator=generator(CPU, seed))


def ready(model: Any, batch: int, slots: int, context: int = 3) -> RaggedModel:
    ragged = RaggedModel(model, batch, slots)
    ragged.fill(context, generator(CPU, 1))
    return ragged


def assert_read_as_alone(model: Any, slots: int, widths: tuple[int, ...], longest: int = 7) -> None:
    """Rows of different lengths, read in blocks with rewinds between, beside each row alone."""
    prompts = [[1, 2, 3], [4], [number % WORDS for number in range(longest)]]
    together = RaggedModel(model, 3, slots)
    together.prefill(prompts)
    alone = [CachedModel(model) for _ in prompts]
    for row, prompt in zip(alone, prompts, strict=True):
        row.prefill(prompt)
    for number, width in enumerate(widths):
        ids = tokens(3, width, number)
        logits = together.read(ids)
        dropped = torch.randint(width + 1, (3,), generator=generator(CPU, number, 1))
        together.rewind(dropped)
        for index, row in enumerate(alone):
            torch.testing.assert_close(
                logits[index], row.read(ids[index : index + 1]), atol=1e-4, rtol=0
            )
            row.forget(int(dropped[index]))
    lengths = [row.cache.get_seq_length() for row in alone]
    assert len(set(lengths)) == 3
    assert together.lengths.tolist() == lengths == together.known_lengths


@pytest.mark.parametrize(
    ("family", "options"),
    [
        ("Llama", {}),
        ("Qwen3", {"head_dim": 16}),
        ("Mixtral", {"num_local_experts": 4}),
        ("Qwen3Moe", SPARSE),
    ],
)
def test_every_row_is_read_as_it_is_alone(family: str, options: dict[str, Any]) -> None:
    # Past 64 tokens another bucket begins.
    assert_read_as_alone(build(family, **options), 120, (1, 4, 9, 40, 2, 30))


def test_a_long_prompt_is_read_piece_by_piece() -> None:
    assert_read_as_alone(build("Llama"), 400, (1, 4, 9), longest=300)


def test_a_window_that_never_bites_is_no_window() -> None:
    assert_read_as_alone(build("Mistral", sliding_window=64), 48, (1, 4, 9, 2))


def test_the_model_keeps_its_own_attention() -> None:
    model = build("Llama")
    before = model.config._attn_implementation
    ready(model, 1, 8).read(tokens(1, 1, 0))
    assert model.config._attn_implementation == before


@pytest.mark.parametrize(
    ("family", "options", "message"),
    [
        ("Mistral", {"sliding_window": 8}, "sliding window of 8 tokens"),
        ("Gemma2", {"sliding_window": 128, "head_dim": 8}, "softcap"),
        ("DeepseekV3", LATENT, "as latent attention does"),
        ("Mamba", {}, "cannot be read in a batch"),
        ("Bloom", {}, "cannot be read in a batch"),
        ("Llama", {"max_position_embeddings": 99, "rope_parameters": DYNAMIC}, "beyond 24 tokens"),
    ],
)
def test_caches_that_rows_cannot_share_are_refused(
    family: str, options: dict[str, Any], message: str
) -> None:
    # Not kept: a config in a dict cannot be a key.
    model = build.__wrapped__(family, **options)
    if "rope_parameters" in options:
        model.config.rope_parameters["original_max_position_embeddings"] = 24
    with pytest.raises(UnsupportedError, match=message):
        RaggedModel(model, 2, 64)


def test_what_does_not_fit_is_refused() -> None:
    model = build("Llama")
    with pytest.raises(InvalidArgumentError, match=r"slots must be .* in \[1, 512\], got 513"):
        RaggedModel(model, 1, 513)
    ragged = ready(model, 2, 8)
    with pytest.raises(InvalidArgumentError, match=r"slots \(8\) are too few for 6 new tokens"):
        ragged.read(tokens(2, 6, 0))
    with pytest.raises(InvalidArgumentError, match=r"got \[4, 4\]"):
        ragged.rewind(4)
    with pytest.raises(InvalidArgumentError, match=r"got \[1, -1\]"):
        ragged.rewind(torch.tensor([1, -1]))
    with pytest.raises(InvalidArgumentError, match="ids must have 2 rows, got 1"):
        ragged.read(tokens(1, 2, 0))
    with pytest.raises(InvalidArgumentError, match="prompts must be 2, got 1"):
        ragged.prefill([[1]])
    with pytest.raises(InvalidArgumentError, match="prompt is empty"):
        ragged.prefill([[1], []])
    assert ragged.lengths.tolist() == [3, 3]


def test_preparing_a_run_changes_nothing() -> None:
    ragged, other = (ready(build("Llama"), 2, 200) for _ in range(2))
    ragged.prepare(5, 200)
    assert ragged.known_lengths == [3, 3]
    for seed in range(2):
        ids = tokens(2, 40, seed)
        assert torch.equal(ragged.read(ids), other.read(ids))


@pytest.mark.long
@pytest.mark.skipif(not shutil.which("g++"), reason="torch compiles for the CPU with g++")
def test_a_compiled_run_says_the_same() -> None:
    # 22 to 34 s where nothing was compiled before, on one busy core: the only slow test here.
    model = build("Llama", layers=1)
    compiled, eager = RaggedModel(model, 2, 64, compiled=True), RaggedModel(model, 2, 64)
    for ragged in (compiled, eager):
        ragged.prefill([[1, 2, 3], [4]])
    for seed in range(3):
        ids = tokens(2, 3, seed)
        torch.testing.assert_close(compiled.read(ids), eager.read(ids), atol=1e-4, rtol=0)
        for ragged in (compiled, eager):
            ragged.rewind(torch.tensor([seed, 1]))


def test_a_run_that_cannot_be_compiled_says_why(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: Any, **__: Any) -> None:
        raise RuntimeError("no compiler found\nand much more")

    monkeypatch.setattr(torch, "compile", fail)
    model = RaggedModel(build("Llama"), 2, 8, compiled=True)
    with pytest.raises(CompileError, match=r"2 x 1 tokens cannot be compiled: no compiler found$"):
        model.read(tokens(2, 1, 0))


def test_memory_that_is_short_before_a_recording_breaks_nothing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It fails as an ordinary run does, so that a grid goes on."""

    def short(*_: Any) -> None:
        raise torch.OutOfMemoryError("CUDA out of memory")

    monkeypatch.setattr("calibrate.batch.ragged._warm_up", short)
    model = ready(build("Llama"), 2, 20)
    model.compiled, model.device = True, torch.device("cuda")
    with pytest.raises(torch.OutOfMemoryError):
        model.read(tokens(2, 1, seed=0))


def pair(batch: int, slots: int = 200) -> tuple[RaggedModel, RaggedModel]:
    target, draft = (build("Llama", layers=1, seed=seed) for seed in (0, 1))
    return ready(target, batch, slots), ready(draft, batch, slots)


def stretch(
    batch: int, gamma: int, survival: list[float], blocks: int, temperature: float = 1.0
) -> tuple[Timed, RaggedModel, RaggedModel]:
    target, draft = pair(batch)
    random = np.random.default_rng(5)
    return (
        decode_synthetic(target, draft, gamma, survival, blocks, temperature, random),
        target,
        draft,
    )


@pytest.mark.parametrize("temperature", [0.0, 1.0])
@pytest.mark.parametrize("batch", [1, 4])
@pytest.mark.parametrize("gamma", [0, 1, 3])
def test_all_runs_and_tokens_are_counted(batch: int, gamma: int, temperature: float) -> None:
    curve = [0.8**i for i in range(1, gamma + 1)]
    spent, target, draft = stretch(batch, gamma, curve, 12, temperature)
    assert (spent.batch, spent.context, spent.gamma, spent.blocks) == (batch, 3, gamma, 12)
    assert spent.draft_runs == 12 * gamma
    # The caches have grown by what was gained, and the draft's of a row lacks two tokens at most.
    assert spent.tokens == int(target.lengths.sum()) - 3 * batch
    assert 12 * batch <= spent.tokens <= 12 * batch * (gamma + 1)
    assert spent.overhead_s > 0
    assert spent.target_s > 0
    if gamma:
        behind = target.lengths - draft.lengths
        assert behind.tolist() in ([0] * batch, [1] * batch)
        assert 0 < spent.wide_first_runs <= 12
        assert spent.draft_s > 0
    else:
        assert spent.tokens == 12 * batch
        assert draft.known_lengths == [3] * batch


@pytest.mark.parametrize("batch", [1, 4])
def test_all_or_nothing_is_accepted(batch: int) -> None:
    everything = stretch(batch, 3, [1.0] * 3, 10)[0]
    assert everything.tokens == 10 * 4 * batch
    # The block before the stretch was all accepted too.
    assert everything.wide_first_runs == 10
    nothing = stretch(batch, 3, [0.0] * 3, 10)[0]
    assert nothing.tokens == 10 * batch
    assert nothing.wide_first_runs == 0


def test_plain_decoding_needs_no_draft() -> None:
    target, _ = pair(2)
    spent = decode_synthetic(target, None, 4, [], 7, 0.0, np.random.default_rng(0))
    assert (spent.gamma, spent.tokens, spent.draft_runs, spent.draft_s) == (0, 14, 0, 0.0)
    assert 0 < spent.target_s < spent.seconds


def test_acceptance_follows_the_survival_curve() -> None:
    curve = np.array([1.0, 0.9, 0.5, 0.45, 0.1, 0.0])
    drawn = draw_accepted(curve[1:].tolist(), 5, (400, 25), np.random.default_rng(0))
    counted = np.bincount(drawn.flatten(), minlength=6)
    expected = -np.diff([*curve, 0.0]) * drawn.size
    assert counted[-1] == 0
    # Chi-square, seeded, false-alarm chance 1e-6; a shift of one place in the curve fails at once.
    assert chisquare(counted[:-1], expected[:-1]).pvalue > 1e-6
    # A row's tokens in a block are 1 + J: five standard deviations, false-alarm chance 6e-7.
    spent = stretch(4, 3, curve[1:4].tolist(), 40)[0]
    steps = np.arange(4)
    law = -np.diff([*curve[:4], 0.0])
    mean = law @ steps
    deviation = np.sqrt((law @ steps**2 - mean**2) * 160)
    assert abs(spent.tokens - 160 * (1 + mean)) < 5 * deviation


def test_what_cannot_be_decoded_is_refused() -> None:
    target, draft = pair(2, slots=40)
    random = np.random.default_rng(0)
    # Texts of 3 tokens become texts of 15.
    assert decode_synthetic(target, draft, 2, [0.0, 0.0], 12, 0.0, random).tokens == 24
    with pytest.raises(InvalidArgumentError, match=r"slots \(40\) .* may grow to 42 tokens"):
        decode_synthetic(target, draft, 2, [0.5, 0.4], 9, 0.0, random)
    with pytest.raises(InvalidArgumentError, match="survival must be non-increasing"):
        decode_synthetic(target, draft, 2, [0.5, 0.6], 2, 0.0, random)
    with pytest.raises(UnsupportedError, match="ends at position 1"):
        decode_synthetic(target, draft, 2, [0.5], 2, 0.0, random)
    with pytest.raises(InvalidArgumentError, match="caches of its own"):
        decode_synthetic(target, target, 2, [0.5, 0.4], 2, 0.0, random)
    law: Any = "typical"
    with pytest.raises(InvalidArgumentError, match="acceptance_law must be one of"):
        decode_synthetic(target, draft, 2, [0.5, 0.4], 2, 0.0, random, acceptance_law=law)
    draft.rewind(1)
    with pytest.raises(InvalidArgumentError, match="draft must have the known_lengths"):
        decode_synthetic(target, draft, 2, [0.5, 0.4], 2, 0.0, random)


@pytest.mark.parametrize(
    ("gamma", "temperature", "law"),
    [
        *product((1, 3), (1.0, 0.7), ("ratio-test",)),
        (3, 0.7, "exact-match"),
        (3, 0.7, "greedy-drafts"),
    ],
)
def test_sampled_rows_follow_the_target(
    four_words: tuple[CachedModel, CachedModel], gamma: int, temperature: float, law: AcceptanceLaw
) -> None:
    # Rows start from texts of different lengths and end at different times.
    prompts = [[1], [2, 3, 1, 0]] * 750
    models = (RaggedModel(model.model, len(prompts), 16) for model in four_words)
    random = np.random.default_rng(gamma)
    decoded = speculate(*models, prompts, gamma, 3, temperature, random, law)
    assert all(len(text) == 3 for text in decoded)
    # False-alarm chance 1e-4 for each of 12 laws.  Seeded.
    for prompt, texts in ((prompts[0], decoded[::2]), (prompts[1], decoded[1::2])):
        turns = iter(texts)
        check_law(four_words[0], prompt, lambda t=turns: next(t), Sampling(temperature), draws=750)


@pytest.mark.parametrize(
    ("law", "name", "drafted"),
    [
        ("ratio-test", "verify_lossless", 5),
        ("greedy-drafts", "verify_lossless", 1),
        ("exact-match", "verify_exact", None),
    ],
)
def test_blocks_are_drawn_and_verified_as_is_asked(
    monkeypatch: pytest.MonkeyPatch, law: AcceptanceLaw, name: str, drafted: int | None
) -> None:
    """Host times are of that.  Of 64 words five may come, and of greedy drafts one."""
    verify, kept = getattr(synthetic, name), list[tuple[torch.Tensor, ...]]()

    def seen(*rows: Any) -> Any:
        kept.append(rows[:2])
        return verify(*rows)

    monkeypatch.setattr(synthetic, name, seen)
    target, draft = pair(2)
    random = np.random.default_rng(0)
    asked: Any = {"top_k": 5, "acceptance_law": law}
    decode_synthetic(target, draft, 3, [0.5] * 3, 4, 0.8, random, **asked)
    assert len(kept) == 4
    for p, q in kept:
        assert set((p > 0).sum(-1).flatten().tolist()) == {5}
        if drafted is not None:
            assert set((q > 0).sum(-1).flatten().tolist()) == {drafted}


def test_as_many_slots_as_are_asked_for_are_enough(
    four_words: tuple[CachedModel, CachedModel],
) -> None:
    """The longer row is read on, with all its tokens, until the other one has all of its own."""
    prompts, gamma, wanted = [[1, 2, 3, 0], [2]], 3, 12
    needed = 3 + wanted + gamma + 1
    reached = list[int]()

    def decode(slots: int, seed: int) -> None:
        target, draft = (RaggedModel(model.model, 2, slots) for model in four_words)
        read = target.read

        def told(ids: torch.Tensor) -> torch.Tensor:
            reached.append(target.longest + ids.shape[1])
            return read(ids)

        target.read = told  # type: ignore[method-assign]
        speculate(target, draft, prompts, gamma, wanted, 1.0, np.random.default_rng(seed))

    for seed in range(10):
        decode(needed, seed)
    assert max(reached) == needed
    with pytest.raises(InvalidArgumentError, match=f"may grow to {needed} tokens"):
        decode(needed - 1, 0)


@pytest.mark.parametrize("gamma", [1, 2, 4])
def test_caches_hold_the_text(models: dict[str, CachedModel], gamma: int) -> None:
    """A wrong token in a draft's cache would cost acceptance only, and no text would show it."""
    prompts = [[5], [6, 7], [8, 9, 10], [11, 12, 13, 14], [15] * 9]
    target, draft = (RaggedModel(models[name].model, 5, 60) for name in ("target", "draft"))
    decoded = speculate(target, draft, prompts, gamma, 30, 0.0, np.random.default_rng(0))
    for ragged in (target, draft):
        texts = [[*prompt, *text] for prompt, text in zip(prompts, decoded, strict=True)]
        ends = ragged.known_lengths
        ids = torch.tensor([text[end : end + 1] for text, end in zip(texts, ends, strict=True)])
        logits = ragged.read(ids)
        for row, text, end in zip(logits, texts, ends, strict=True):
            alone = ragged.model(torch.tensor([text[: end + 1]])).logits[0, -1:]
            torch.testing.assert_close(row, alone, atol=1e-4, rtol=0)


def test_greedy_rows_are_decoded_as_they_are_alone() -> None:
    target, small = (
        load(f"embedded/{name}", CPU, torch.float32).model for name in ("target", "small")
    )
    random = np.random.default_rng(11)
    prompts = [random.integers(2, 2000, size=size).tolist() for size in (1, 2, 9, 30, 62)]
    alone = CachedModel(target)
    expected = [plain(alone, greedy(prompt, 24)).finish().tokens for prompt in prompts]
    for gamma in (0, 1, 4):
        models = (RaggedModel(model, 5, 100) for model in (target, small))
        assert speculate(*models, prompts, gamma, 24, 0.0, random) == expected
