"""Encoder-decoder models go through the decoders of causal ones, and nothing is lost of the source.

The slow twin of every model reads encoder and decoder anew for each text, without any cache.
"""

from __future__ import annotations

import copy
from collections.abc import Callable
from itertools import product
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pytest
import torch
from transformers import (
    BartConfig,
    BartForConditionalGeneration,
    LEDConfig,
    LEDForConditionalGeneration,
    T5Config,
    T5ForConditionalGeneration,
)

from calibrate.decode.beam import beam_search
from calibrate.decode.encoder_decoder import EncoderDecoder
from calibrate.decode.engine import CachedModel, DecodeRequest, DecodingError, Runs
from calibrate.decode.plain import plain
from calibrate.decode.speculative import speculative
from calibrate.measure.trace import generator, record
from specsim.checks import UnsupportedError
from specsim.predict.replay.fixed_gamma import replay
from specsim.schemes import BeamSearch
from specsim.traces import Trace
from tests.support.decoders import DECODERS, Cast, Job
from tests.support.imitations import CPU, GREEDY, ORDINARY, greedy, top, uncached
from tests.support.pair_counts import pair_counts
from tests.support.sequences import check_law, sequence_law

SOURCES = [[7], [5, 6, 9], [9] * 12, [*range(10, 40)]]


def t5(seed: int, encoder: int, decoder: int, words: int = 64, width: int = 32) -> Any:
    torch.manual_seed(seed)
    return T5ForConditionalGeneration(
        T5Config(
            vocab_size=words,
            d_model=width,
            d_kv=width // 2,
            d_ff=2 * width,
            num_layers=encoder,
            num_decoder_layers=decoder,
            num_heads=2,
            relative_attention_num_buckets=8,
            relative_attention_max_distance=16,
            pad_token_id=0,
            eos_token_id=1,
            decoder_start_token_id=0,
        )
    )


def bart(seed: int, encoder: int, decoder: int, words: int = 64, width: int = 32) -> Any:
    torch.manual_seed(seed)
    return BartForConditionalGeneration(
        BartConfig(
            vocab_size=words,
            d_model=width,
            encoder_layers=encoder,
            decoder_layers=decoder,
            encoder_attention_heads=2,
            decoder_attention_heads=2,
            encoder_ffn_dim=2 * width,
            decoder_ffn_dim=2 * width,
            max_position_embeddings=64,
            init_std=0.3,
            pad_token_id=0,
            eos_token_id=1,
            bos_token_id=2,
            decoder_start_token_id=2,
            forced_eos_token_id=None,
        )
    )


FAMILIES: dict[str, Callable[..., Any]] = {"t5": t5, "bart": bart}


def untied(model: Any, spread: float = 1.0) -> Any:
    """With a random head: embeddings that are also the head repeat the last token for ever."""
    model.lm_head.weight = torch.nn.Parameter(spread * torch.randn_like(model.lm_head.weight))
    return model.eval()


def near(model: Any, seed: int, noise: float) -> Any:
    """A draft that often agrees."""
    other = copy.deepcopy(model)
    torch.manual_seed(seed)
    for parameter in other.parameters():
        parameter.data += noise * parameter.data.std() * torch.randn_like(parameter)
    return other


@pytest.fixture(scope="module", params=FAMILIES)
def models(request: pytest.FixtureRequest) -> dict[str, EncoderDecoder]:
    """``stranger`` has a decoder deeper than its encoder."""
    build = FAMILIES[request.param]
    target = untied(build(1, encoder=2, decoder=2))
    found = {
        "target": target,
        "draft": near(target, 2, 0.1),
        "stranger": untied(build(3, encoder=1, decoder=2)),
        "twin": target,
    }
    return {name: EncoderDecoder(model, name=name) for name, model in found.items()}


@pytest.fixture(scope="module", params=FAMILIES)
def four_words(request: pytest.FixtureRequest) -> tuple[EncoderDecoder, EncoderDecoder]:
    """A target and an unlike draft over four words, with one source."""
    build = FAMILIES[request.param]
    pair = tuple(
        EncoderDecoder(untied(build(seed, encoder=1, decoder=1, words=4, width=16), spread=0.5))
        for seed in (12, 13)
    )
    for model in pair:
        model.encode([3, 2, 3])
    return cast(tuple[EncoderDecoder, EncoderDecoder], pair)


def alone(model: EncoderDecoder, source: list[int]) -> CachedModel:
    """The slow twin behind one source, in the form of a causal model without a cache."""

    def read(input_ids: torch.Tensor) -> Any:
        sources = torch.tensor([source] * len(input_ids))
        return model.model(input_ids=sources, decoder_input_ids=input_ids, use_cache=False)

    return cast(CachedModel, SimpleNamespace(model=read, vocabulary=model.vocabulary))


def generated(model: EncoderDecoder, source: list[int], wanted: int, end: int | None) -> list[int]:
    """The greedy text that transformers finds."""
    model.model.generation_config.eos_token_id = end
    ids = torch.tensor([source])
    found = model.model.generate(
        ids, attention_mask=torch.ones_like(ids), max_new_tokens=wanted, do_sample=False
    )
    tokens: list[int] = found[0, 1:].tolist()
    return tokens


def greedy_text(model: EncoderDecoder, wanted: int, end: int | None = None) -> list[int]:
    return plain(model, greedy(model.start, wanted, end)).finish().tokens


def tokens_read(runs: Runs) -> int:
    return sum(width * count for width, count in runs.widths.items())


def encode(source: list[int], models: dict[str, EncoderDecoder]) -> None:
    for model in models.values():
        model.encode(source)


def test_plain_text_is_that_of_transformers(models: dict[str, EncoderDecoder]) -> None:
    target, texts = models["target"], []
    # Back to the first source at the end: nothing may be left of those between.
    for source in [*SOURCES, SOURCES[0]]:
        target.encode(source)
        text = greedy_text(target, 30)
        assert text == generated(target, source, 30, None)
        for end in sorted({text[1], text[5], text[12]}):
            cut = text[: text.index(end) + 1]
            assert greedy_text(target, 30, end) == cut == generated(target, source, 30, end)
        texts.append(text)
    assert texts[0] == texts[-1]
    assert len({*map(tuple, texts)}) == len(SOURCES)


def test_a_decoder_may_be_deeper_than_its_encoder(models: dict[str, EncoderDecoder]) -> None:
    stranger = models["stranger"]
    for source in SOURCES:
        stranger.encode(source)
        row, text = uncached(alone(stranger, source)), stranger.start
        for _ in range(20):
            text = [*text, top(row(tuple(text)))]
        assert greedy_text(stranger, 20) == text[1:]


@pytest.mark.parametrize("draft", ["draft", "stranger", "twin"])
@pytest.mark.parametrize("gamma", range(5))
def test_greedy_text_is_plain_text_and_calls_are_the_replayed_ones(
    models: dict[str, EncoderDecoder], draft: str, gamma: int
) -> None:
    target, drafter = models["target"], models[draft]
    kept, offered = 0, 0
    for number, source in enumerate(SOURCES):
        encode(source, models)
        frame = record(target, drafter, number, greedy(target.start, 30))
        result = speculative(target, drafter, greedy(target.start, 30), gamma).finish()
        assert result.tokens == frame["token"].tolist() == generated(target, source, 30, None)
        agreed = frame["argmax_equal"].to_numpy(float)
        replayed = replay(Trace(agreed, np.array([0, 30])), [gamma])[0]
        assert result.calls == len(result.accepted) == replayed.total_calls
        assert tokens_read(result.target) == result.calls + sum(result.drafted)
        assert result.draft.count == sum(result.drafted)
        end = result.tokens[12]
        ended = speculative(target, drafter, greedy(target.start, 30, end), gamma).finish()
        assert ended.tokens == result.tokens[: result.tokens.index(end) + 1]
        kept, offered = kept + sum(result.accepted), offered + sum(result.drafted)
    # Or nothing would have been cut back.
    assert draft != "draft" or gamma == 0 or 0 < kept < offered


# Not those whose drafts are layers of a causal model, nor beam search, which is refused.
CAUSAL = ("early exit", "BiLD, early exit", "EAGLE head", "beam search")
NAMES = [name for name in DECODERS if name not in CAUSAL]


@pytest.mark.parametrize("name", NAMES)
def test_every_decoder_reads_behind_the_source(
    models: dict[str, EncoderDecoder], name: str
) -> None:
    target, decoder = models["target"], DECODERS[name]
    cast = Cast(target, models["draft"], models["stranger"], pair_counts(64))
    for source, wanted in product(SOURCES, (0, 1, 2, 30)):
        encode(source, models)
        for sampling in (GREEDY, ORDINARY) if decoder.sampled else (GREEDY,):
            job = Job(target.start, wanted, 4, sampling)
            result = decoder.start(cast, job).finish()
            decoder.check(result, job)
            if decoder.lossless and sampling.greedy:
                assert result.tokens == greedy_text(target, wanted)


def test_states_are_not_kept(models: dict[str, EncoderDecoder]) -> None:
    target = models["target"]
    encode(SOURCES[0], models)
    target.keeps_states = True
    with pytest.raises(UnsupportedError, match="states of a causal model"):
        target.prefill([*target.start, 5])
    target.keeps_states = False


def test_sampled_sequences_follow_the_target(
    four_words: tuple[EncoderDecoder, EncoderDecoder],
) -> None:
    target, draft = four_words
    law = alone(target, [3, 2, 3])
    # The source matters, or a lost one would not show.
    other = sequence_law(alone(target, [1]), target.start, 3, ORDINARY)
    assert np.abs(sequence_law(law, target.start, 3, ORDINARY) - other).sum() > 0.3
    request = DecodeRequest(target.start, 3, ORDINARY, generator(CPU, 4))
    # False-alarm chance 1e-4 for each of 2 families.  Seeded.  At 800 draws a swap of p and q in
    # the acceptance test, or recovering from p, fails both (tried).
    check_law(
        law,
        target.start,
        lambda: speculative(target, draft, request, 4).finish().tokens,
        ORDINARY,
        draws=800,
    )


def test_a_cut_cache_reads_on_as_a_fresh_one(models: dict[str, EncoderDecoder]) -> None:
    """With this, decoders of causal models do with these what their own tests say they do."""
    target, source = models["target"], SOURCES[1]
    target.encode(source)
    fresh = alone(target, source).model
    random = np.random.default_rng(4)
    target.prefill(target.start)
    text: list[int] = []
    unread = target.start
    for _ in range(12):
        draft = random.integers(2, 64, size=random.integers(1, 6)).tolist()
        logits = target.read(torch.tensor([[*unread, *draft]]))
        with torch.inference_mode():
            whole = fresh(torch.tensor([[*target.start, *text, *draft]])).logits[0]
        assert torch.allclose(logits, whole[-len(draft) - len(unread) :], rtol=0, atol=1e-5)
        kept = int(random.integers(0, len(draft)))
        # All of the draft is read; the token that replaces the first rejected one is not.
        target.forget(len(draft) - kept)
        unread = [int(random.integers(2, 64))]
        text += [*draft[:kept], *unread]
        assert target.cache.get_seq_length() == len(text)


def test_the_source_is_read_once(models: dict[str, EncoderDecoder]) -> None:
    target, draft = models["target"], models["stranger"]
    encode(SOURCES[2], models)
    runs = []
    hook = target.model.get_encoder().register_forward_hook(lambda *_: runs.append(1))
    target.encode(SOURCES[2])
    held = [(layer.keys, layer.values) for layer in target.cache.cross_attention_cache.layers]
    # The first run counted has nothing of the source left to do.
    assert [keys.shape[2] for keys, _ in held] == [len(SOURCES[2])] * 2
    assert target.cache.get_seq_length() == 0
    for _ in range(2):
        result = speculative(target, draft, greedy(target.start, 20), 3).finish()
        assert sum(result.accepted) < sum(result.drafted)
        layers = target.cache.cross_attention_cache.layers
        assert len(layers) == len(held)
        for layer, (keys, values) in zip(layers, held, strict=True):
            assert layer.keys is keys
            assert layer.values is values
    hook.remove()
    assert runs == [1]


def test_a_prompt_may_go_on_behind_the_start(models: dict[str, EncoderDecoder]) -> None:
    """As where a language token is forced."""
    encode(SOURCES[3], models)
    target = models["target"]
    text = greedy_text(target, 20)
    prompt = [*target.start, *text[:4]]
    result = speculative(target, models["draft"], greedy(prompt, 16), 3).finish()
    assert result.tokens == text[4:]
    # The prompt's other tokens are read before anything is counted.
    assert tokens_read(result.target) == result.calls + sum(result.drafted)


def test_relative_positions_have_no_end_and_learned_ones_do() -> None:
    far, near_by = EncoderDecoder(untied(t5(1, 1, 1))), EncoderDecoder(untied(bart(1, 1, 1)))
    source = [5] * 100
    far.encode(source)
    row = uncached(alone(far, source))
    text = greedy_text(far, 150)
    assert text[-1] == top(row((*far.start, *text[:-1])))
    with pytest.raises(DecodingError, match="1 to 64"):
        near_by.encode(source)
    near_by.encode(source[:64])
    assert len(greedy_text(near_by, 63)) == 63
    with pytest.raises(DecodingError, match="context"):
        greedy_text(near_by, 64)


def test_what_cannot_be_done_is_said() -> None:
    model = untied(t5(1, 1, 1))
    target, draft = EncoderDecoder(model), EncoderDecoder(copy.deepcopy(model))
    with pytest.raises(DecodingError, match="no source"):
        greedy_text(target, 4)
    with pytest.raises(DecodingError, match="source must have"):
        target.encode([])
    for each in (target, draft):
        each.encode([5, 6])
    with pytest.raises(UnsupportedError, match="encoder-decoder"):
        beam_search(target, draft, greedy(target.start, 4), BeamSearch(2, 2, 3)).finish()
    with pytest.raises(UnsupportedError, match="position_ids"):
        target.read(torch.tensor([[5]]), position_ids=torch.tensor([[3]]))
    draft.model.generation_config.decoder_start_token_id = None
    with pytest.raises(DecodingError, match="decoder_start_token_id"):
        _ = draft.start
    sizes = dict.fromkeys(("vocab_size", "d_model", "encoder_ffn_dim", "decoder_ffn_dim"), 8)
    for side in ("encoder", "decoder"):
        sizes |= {f"{side}_layers": 1, f"{side}_attention_heads": 1}
        sizes |= {f"max_{side}_position_embeddings": 16}
    led = LEDConfig(attention_window=2, **sizes)
    with pytest.raises(UnsupportedError, match="LEDForConditionalGeneration"):
        EncoderDecoder(LEDForConditionalGeneration(led))
