"""The pair that is trained where there is no network: its sizes and its text."""

from __future__ import annotations

import torch

from calibrate.train import corpus
from calibrate.train.pair import PairRecipe


def test_the_sizes_are_those_of_the_paper() -> None:
    # Leviathan23 section 4.2: 97M and 6M with 8k tokens.
    recipe = PairRecipe()
    with torch.device("meta"):
        models = [shape.build(recipe.vocabulary) for shape in (recipe.target, recipe.draft)]
    sizes = [sum(each.numel() for each in model.parameters()) for model in models]
    assert [97e6 <= sizes[0] < 98e6, 5.5e6 <= sizes[1] < 6.5e6] == [True, True]


def test_a_sample_of_text_has_no_copies_and_nothing_held_out() -> None:
    texts = corpus.sampled_texts(600_000)
    size = sum(map(len, texts.values()))
    assert size >= 600_000
    assert size - len(list(texts.values())[-1]) < 600_000
    assert len(set(texts.values())) == len(texts)
    assert not set(texts.values()) & set(corpus.held_out_texts().values())
    assert not set(texts) & set(corpus.HELD_OUT)
    assert corpus.sampled_texts(600_000) == texts
