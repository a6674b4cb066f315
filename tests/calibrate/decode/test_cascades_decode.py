"""Cascades of drafters: lossless whatever happens inside, and every run counted."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from functools import partial
from typing import cast

import numpy as np
import pytest
import torch

from calibrate.decode.build import build_drafter
from calibrate.decode.drafters import (
    Bigram,
    Drafter,
    Horizontal,
    MaxGram,
    Neural,
    PairCounts,
    PromptLookup,
    Vertical,
    first_layers,
    read_pair_counts,
)
from calibrate.decode.drawing import Rows
from calibrate.decode.engine import CachedModel, Decoded, DecodeRequest, DecodingError, Runs
from calibrate.decode.plain import plain
from calibrate.decode.speculative import speculative
from calibrate.decode.verification import Block
from calibrate.measure.trace import generator
from calibrate.models.load import FAMILY, load
from calibrate.models.pool import ModelSet
from calibrate.models.prompts import held_out_prompts
from calibrate.models.sampling import Sampling
from specsim import rules
from specsim.checks import InvalidArgumentError
from specsim.schemes import FullCascade
from tests.support.executions import Model, Tokens
from tests.support.imitations import CPU, GREEDY, ORDINARY, drawn_from, greedy
from tests.support.pair_counts import pair_counts

Lengths = tuple[tuple[int, ...], ...]


def full_cascade(
    models: Sequence[CachedModel],
    last: str,
    lengths: Lengths,
    lenience: float = 1.0,
    counts: PairCounts | None = None,
) -> Drafter:
    named = {f"model {number}": model for number, model in enumerate(models)}
    scheme = FullCascade((*named, last), lengths)
    # No drafter is made of the target, so any model stands for it.
    model_set = ModelSet(cast(CachedModel, None), named, counts)
    return build_drafter(scheme.drafter, model_set, lenience)


def test_counts_where_everything_agrees(models: dict[str, CachedModel]) -> None:
    """Two twins of the target: every step accepts all, so all counts are known."""
    target = models["target"]
    first, second = (CachedModel(target.model, name=name) for name in ("first", "second"))

    def decode(drafter: Drafter, tokens: int) -> Decoded:
        return speculative(target, drafter, greedy([5, 6], tokens)).finish()

    # Two steps of 3 + 1 tokens, and one of the target: 9 tokens a block.
    result = decode(Vertical(first, Neural(second), 3, steps=2), 45)
    assert result.accepted == [8] * 5
    assert result.target.widths == Counter({9: 5})
    # The bonus token of the target is read along in the first run after it.
    assert result.drafts["first"].widths == Counter({4: 6, 5: 4})
    assert result.drafts["second"].count == 30
    # At least 5 tokens: two steps of 4 as well, the overshoot kept.
    again = decode(Vertical(first, Neural(second), 3, at_least=5), 45)
    assert again.accepted == [8] * 5
    assert again.drafts["first"].widths == result.drafts["first"].widths
    # At least 4: one step.
    once = decode(Vertical(first, Neural(second), 3, at_least=4), 45)
    assert once.accepted == [4] * 9
    # Horizontal: 2 of the first and 3 of the second, 6 tokens a block; the second then reads all
    # that it has not written in its first run.
    beside = decode(Horizontal([(Neural(first), 2), (Neural(second), 3)]), 60)
    assert beside.accepted == [5] * 10
    assert beside.drafts["first"].count == 20
    assert beside.drafts["second"].count == 30


def test_a_cascade_of_nothing_is_plain_decoding(models: dict[str, CachedModel]) -> None:
    target, draft = models["target"], models["draft"]
    text = plain(target, greedy([8], 12)).finish().tokens
    nothing = (
        Horizontal([]),
        Horizontal([(Neural(draft), 0)]),
        Vertical(draft, PromptLookup(), 3, steps=0),
        Vertical(draft, PromptLookup(), 3, at_least=0),
        full_cascade([draft], "copy", ((0, 0), (5,))),
        full_cascade([], "copy", ((0,),)),
    )
    for drafter in nothing:
        result = speculative(target, drafter, greedy([8], 12)).finish()
        assert result.tokens == text
        assert result.calls == 12
        assert result.draft == Runs()


def test_a_reviewer_of_nothing_drafts_token_by_token(models: dict[str, CachedModel]) -> None:
    target, draft = models["target"], models["draft"]
    for sampling in (GREEDY, ORDINARY):
        alone = speculative(
            target, draft, DecodeRequest([8], 30, sampling, generator(CPU, 4)), 3
        ).finish()
        reviewer = Vertical(draft, PromptLookup(longest=1), 0, steps=3)
        same = speculative(
            target, reviewer, DecodeRequest([8], 30, sampling, generator(CPU, 4))
        ).finish()
        assert alone.tokens == same.tokens
        assert alone.draft.widths == same.draft.widths


def assert_from_its_law(rule: rules.Rule, block: Block) -> None:
    """Every token of a block may come from what the rule makes of its rows."""
    emitted = [*block.drafts[: block.accepted].tolist(), int(block.token)]
    for place, token in enumerate(emitted):
        here = slice(place, place + 1)
        p, q = block.p[here], block.q[here]
        law = p.q  # of the bonus token, where the drafter says nothing of it
        if len(q):
            law = rule.emitted(rules.Distributions(p.q, q.q, p.unscaled, q.unscaled))
        assert law[0, token] > 0


def assert_said(
    found: Rows, model: Model, texts: Sequence[Tokens], sampling: Sampling, lenient: bool = False
) -> None:
    """Rows are what a model says behind the texts.

    lenient : it may have been lenient in its review, so that tokens come from another law
    """
    for number, text in enumerate(texts[: len(found)]):
        if not lenient:
            law = drawn_from(model, sampling)(text)
            np.testing.assert_allclose(found.q[number].numpy(), law, atol=1e-5)
        if found.unscaled is not None:
            np.testing.assert_allclose(found.unscaled[number].numpy(), model(text), atol=1e-5)


def test_lossy_targets_on_top_of_a_cascade(
    models: dict[str, CachedModel], rows: dict[str, Model]
) -> None:
    """Rules that want rows at temperature 0, and unscaled ones, from a cascade.

    The rows of the target, and those of the first tokens of a proposal, which are the draft's, are
    compared with what these models say of the text.
    """
    target, draft, stranger = (models[name] for name in ("target", "draft", "stranger"))
    counts = pair_counts(target.vocabulary)
    lengths = (3, 2, 4), (2, 3), (3,)
    full = partial(full_cascade, [draft, stranger], "max-gram", lengths)
    # How many tokens of a proposal are the draft's at least, and whether its review is lenient.
    makers: tuple[tuple[int, bool, Callable[[], Drafter]], ...] = (
        (6, False, lambda: Vertical(draft, Neural(stranger), 2, steps=2)),
        (6, True, lambda: Vertical(draft, Neural(stranger), 2, steps=2, lenience=0.3)),
        (3, False, lambda: full(1.0, counts)),
        (3, True, lambda: full(0.3, counts)),
        (
            *(2, False),
            lambda: Horizontal([(Neural(draft), 2), (Neural(stranger), 2), (Bigram(counts), 3)]),
        ),
    )
    for own, lenient, make in makers:
        for sampling in (GREEDY, ORDINARY):
            for rule in (rules.Opt(0.1, decide_on="unscaled"), rules.TokenV1(0.2)):
                drafter, seen = make(), list[Block]()
                request = DecodeRequest([4, 5], 20, sampling, generator(CPU, 2))
                decoding = speculative(target, drafter, request, rule=rule, observe=seen.append)
                whole = [4, 5, *decoding.finish().tokens]
                assert len(whole) == 2 + 20
                for block in seen:
                    assert_from_its_law(rule, block)
                    before, drafts = whole[: block.start], block.drafts.tolist()
                    texts = [(*before, *drafts[:place]) for place in range(len(drafts) + 1)]
                    assert_said(block.p, rows["target"], texts, sampling)
                    assert_said(block.q[:own], rows["draft"], texts, sampling, lenient)


def test_what_cannot_be_built(models: dict[str, CachedModel]) -> None:
    target, draft = models["target"], models["draft"]
    with pytest.raises(DecodingError, match="cannot review itself"):
        Vertical(draft, Neural(draft), 1, steps=1)
    twin = CachedModel(draft.model, name="draft")
    both = Horizontal([(Neural(draft), 1), (Neural(twin), 1)])
    inside = Vertical(draft, Neural(target), 1, steps=1)
    for drafter, reason in ((both, "names of their own"), (inside, "cache of its own")):
        with pytest.raises(DecodingError, match=reason):
            speculative(target, drafter, greedy([3], 5))
    with pytest.raises(InvalidArgumentError, match="give one of steps and at_least"):
        Vertical(draft, PromptLookup(), 1)
    with pytest.raises(InvalidArgumentError, match="lenience"):
        Vertical(draft, PromptLookup(), 1, steps=1, lenience=1.5)


@pytest.fixture(scope="module")
def family() -> dict[str, CachedModel]:
    return {
        name: CachedModel(load(f"embedded/{name}", CPU, torch.float32).model, name=name)
        for name in ("target", "middle", "small")
    }


def test_embedded_family_is_lossless_and_agrees_with_assisted_generation(
    family: dict[str, CachedModel],
) -> None:
    target, middle, small = (family[name] for name in ("target", "middle", "small"))
    counts = read_pair_counts(FAMILY / "bigram.safetensors")
    early = CachedModel(first_layers(target.model, 4), name="early")
    drafters = (
        Neural(small),
        Horizontal([(Neural(middle), 2), (Neural(small), 2)]),
        Vertical(middle, MaxGram(counts), 6, at_least=4, lenience=0.5),
        full_cascade([middle, small], "max-gram", ((3, 2, 4), (2, 5), (5,)), 0.5, counts),
        Neural(early),
    )
    tokenizer = load("embedded/target", CPU, torch.float32).tokenizer
    for prompt in held_out_prompts(tokenizer, 48, 2):
        end = tokenizer.eos_token_id
        ids = torch.tensor([prompt])
        assisted = target.model.generate(
            ids,
            attention_mask=torch.ones_like(ids),
            assistant_model=small.model,
            max_new_tokens=40,
            do_sample=False,
        )[0, len(prompt) :].tolist()
        for drafter in drafters:
            result = speculative(target, drafter, greedy(prompt, 40, end), 5)
            assert result.finish().tokens == assisted
