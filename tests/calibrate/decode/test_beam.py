"""Speculative beam search finds what transformers' own beam search finds."""

from __future__ import annotations

import copy
from collections import Counter
from pathlib import Path

import numpy as np
import pytest
import torch

from calibrate.decode.beam import beam_search
from calibrate.decode.engine import CachedModel
from calibrate.decode.plain import plain
from specsim.checks import UnsupportedError
from specsim.schemes import BeamSearch
from tests.support.imitations import greedy, prompts, twin
from tests.support.sequences import model_at


@pytest.fixture(scope="module")
def models(tiny_family: dict[str, Path]) -> dict[str, CachedModel]:
    return {name: model_at(folder) for name, folder in tiny_family.items()}


def searched(
    target: CachedModel, prompt: list[int], width: int, wanted: int, end: int | None = None
) -> list[int]:
    """The text that transformers finds."""
    model = target.model
    model.generation_config.eos_token_id = end
    model.generation_config.pad_token_id = 0
    ids = torch.tensor([prompt])
    found = model.generate(
        ids,
        attention_mask=torch.ones_like(ids),
        num_beams=width,
        do_sample=False,
        max_new_tokens=wanted,
    )
    tokens: list[int] = found[0, len(prompt) :].tolist()
    return tokens


def drafter(models: dict[str, CachedModel], name: str) -> CachedModel:
    return twin(models["target"]) if name == "target" else models[name]


@pytest.mark.parametrize("draft", ["draft", "stranger", "target"])
@pytest.mark.parametrize("width", [1, 2, 3, 4])
def test_the_text_is_that_of_plain_beam_search(
    models: dict[str, CachedModel], draft: str, width: int
) -> None:
    target = models["target"]
    for number, prompt in enumerate(prompts(3, seed=width)):
        text = searched(target, prompt, width, 16)
        assert len(text) == 16
        for extra, gamma in ((0, 0), (0, 2), (1, 3), (4, 1), (4, 5))[number % 2 :: 2]:
            beams = BeamSearch(gamma, width, width + extra)
            result = beam_search(target, drafter(models, draft), greedy(prompt, 16), beams).finish()
            assert result.tokens == text
            assert result.calls == len(result.accepted)
            assert sum(result.accepted) + result.calls == 16


def test_texts_end_as_in_plain_beam_search(models: dict[str, CachedModel]) -> None:
    target, random, lengths = models["target"], np.random.default_rng(20), set()
    for prompt in prompts(40, seed=7):
        width, gamma = int(random.integers(1, 5)), int(random.integers(0, 5))
        # A token that greedy decoding meets, so that texts end.
        text = plain(target, greedy(prompt, 8)).finish().tokens
        end = text[int(random.integers(1, 8))]
        draft = drafter(models, "target" if random.random() < 0.5 else "draft")
        scheme = BeamSearch(gamma, width, width + 3)
        result = beam_search(target, draft, greedy(prompt, 20, end), scheme).finish()
        assert result.tokens == searched(target, prompt, width, 20, end)
        lengths.add(len(result.tokens))
    assert min(lengths) < 20


def test_one_beam_is_greedy_decoding_and_agreement_fills_every_block(
    models: dict[str, CachedModel],
) -> None:
    target = models["target"]
    text = plain(target, greedy([5, 6], 25)).finish().tokens
    result = beam_search(target, twin(target), greedy([5, 6], 25), BeamSearch(4, 1, 1)).finish()
    assert result.tokens == text
    assert result.accepted == [4] * 5
    assert result.target.widths == Counter({5: 5})
    # After a bonus step the draft reads two tokens of each beam.
    assert result.draft.widths == Counter({1: 16, 2: 4})
    wide = beam_search(target, twin(target), greedy([5, 6], 25), BeamSearch(4, 3, 3)).finish()
    assert wide.accepted == wide.drafted == [4] * 5


@pytest.mark.parametrize(("width", "draft_width", "gamma"), [(2, 3, 2), (3, 5, 3)])
def test_the_target_scores_its_beams_and_all_candidates(
    models: dict[str, CachedModel], width: int, draft_width: int, gamma: int
) -> None:
    """w + u gamma positions in a run (Leviathan23 A.4); the first has one beam, the prompt."""
    beams = BeamSearch(gamma, width, draft_width)
    result = beam_search(models["target"], models["draft"], greedy([5, 6], 30), beams).finish()
    full = [gamma == steps for steps in result.drafted]
    widths = Counter({1 + draft_width * gamma: 1})
    for steps in result.drafted[1:]:
        widths[width + draft_width * steps] += 1
    assert all(full[:3])
    assert result.target.widths == widths
    # A run of the draft for every step, and at gamma 0 none.
    assert result.draft.count == sum(result.drafted)
    alone = beam_search(
        models["target"], models["draft"], greedy([5], 10), BeamSearch(0, width, width)
    ).finish()
    assert alone.draft.count == 0
    assert alone.target.widths == Counter({1: 1, width: 9})


def test_edges(models: dict[str, CachedModel]) -> None:
    """test_edges.py has those of all decoders."""
    target, draft = models["target"], models["draft"]
    for wanted in (1, 2, 127):
        result = beam_search(target, draft, greedy([7], wanted), BeamSearch(6, 2, 4)).finish()
        assert result.tokens == searched(target, [7], 2, wanted)
    flash = copy.deepcopy(draft.model)
    flash.config._attn_implementation = "flash_attention_2"
    with pytest.raises(UnsupportedError, match="attention"):
        beam_search(target, CachedModel(flash), greedy([7], 4), BeamSearch(1, 1, 1)).finish()
