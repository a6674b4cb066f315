"""Descriptions of drafters, nested at will: their laws against the mechanism, pairs and labels."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from specsim.checks import InvalidArgumentError, UnsupportedError
from specsim.laws import TARGET, Run
from specsim.schemes import Acceptances, FullCascade, SpeculativeDecoding, VerticalCascade
from specsim.schemes.base import DraftingScheme
from specsim.schemes.drafters import (
    CopyDrafter,
    Drafter,
    EagleDrafter,
    HorizontalDrafter,
    MaskDrafter,
    ModelDrafter,
    NgramDrafter,
    VerticalDrafter,
    single_drafter,
)
from specsim.schemes.proposals import acceptance_pairs, block_law
from tests.support.contract import check_histories, coin_acceptances
from tests.support.mechanisms import Block, Coin, Runs, play, read

NAMES = ("a", "b", "c")


@dataclass(frozen=True)
class AnyNest(DraftingScheme):
    """A description by itself as a scheme."""

    nest: Drafter

    @property
    def drafter(self) -> Drafter:
        return self.nest


@play.register
def _(scheme: AnyNest, known: Acceptances, coin: Coin) -> Block:
    runs: Runs = Counter()
    rates = known.by_pair(scheme.pairs)

    def reads(producers: list[str], verifier: str) -> int:
        heard = {name: rates[name, verifier] for name in producers}
        return read(producers, heard, verifier, coin, runs)

    def proposes(drafter: Drafter) -> list[str]:
        """The producers of a proposal, token by token."""
        if isinstance(drafter, HorizontalDrafter):
            return [name for part in drafter.parts for name in proposes(part)]
        if isinstance(drafter, VerticalDrafter):
            written = steps = 0
            while steps != drafter.steps and (drafter.steps or written < drafter.at_least):
                written += reads(proposes(drafter.inner), drafter.name)
                steps += 1
            return [drafter.name] * written
        if isinstance(drafter, ModelDrafter | EagleDrafter | NgramDrafter):
            runs[Run(drafter.name, 1)] += drafter.tokens
        elif drafter.tokens:
            runs[Run(drafter.name, drafter.tokens)] += 1
        return [drafter.name] * drafter.tokens

    return reads(proposes(scheme.nest), TARGET), runs


@st.composite
def nests(draw: st.DrawFn, reviewers: int = 2) -> Drafter:
    """At most two reviewers deep, at most two parts wide, with few tokens."""
    kind = draw(st.sampled_from(["single", "row", "review"] if reviewers else ["single"]))
    if kind == "row":
        return HorizontalDrafter((draw(nests(0)), draw(nests(reviewers - 1))))
    if kind == "review":
        name, inner = f"reviewer {reviewers}", draw(nests(reviewers - 1))
        if draw(st.booleans()):
            return VerticalDrafter(name, inner, steps=draw(st.integers(0, 2)))
        return VerticalDrafter(name, inner, at_least=draw(st.integers(0, 2)))
    kinds = [ModelDrafter, EagleDrafter, NgramDrafter, CopyDrafter, MaskDrafter]
    drafter = draw(st.sampled_from(kinds))
    return drafter(draw(st.sampled_from(NAMES)), draw(st.integers(0, 2)))


@settings(max_examples=60)
@given(nests(), st.data())
def test_any_nest_follows_its_mechanism(nest: Drafter, data: st.DataObject) -> None:
    """The law against all sequences of tosses, whatever is nested in what."""
    scheme = AnyNest(nest)
    known = {pair: data.draw(coin_acceptances) for pair in scheme.pairs}
    check_histories(scheme, Acceptances(known))


def test_pairs_are_the_outermost_verifiers_first() -> None:
    nest = HorizontalDrafter(
        (VerticalDrafter("a", ModelDrafter("b", 2), steps=1), ModelDrafter("b", 3))
    )
    assert acceptance_pairs(nest) == (("a", TARGET), ("b", TARGET), ("b", "a"))
    # Row by row of the matrix, whether or not a share is used.
    cascade = FullCascade(NAMES, ((2, 0, 1), (1, 1), (1,)))
    rows = [("a", TARGET), ("b", TARGET), ("c", TARGET), ("b", "a"), ("c", "a"), ("c", "b")]
    assert list(cascade.pairs) == rows
    assert set(acceptance_pairs(cascade.drafter)) == set(rows) - {("b", TARGET)}


def test_reserved_names_have_no_model() -> None:
    assert SpeculativeDecoding(3, "bigram").drafter == NgramDrafter("bigram", 3)
    assert SpeculativeDecoding(3, "copy").drafter == CopyDrafter("copy", 3)
    assert SpeculativeDecoding(3, "eagle").drafter == EagleDrafter("eagle", 3)
    assert SpeculativeDecoding(3, "large", one_run=True).drafter == MaskDrafter("large", 3)
    assert single_drafter("large", 3) == ModelDrafter("large", 3)
    inner = VerticalDrafter("b", CopyDrafter("max-gram", 5), 5, at_least=2)
    cascade = VerticalCascade(("a", "b", "max-gram"), 5, at_least=(4, 2))
    assert cascade.drafter == VerticalDrafter("a", inner, at_least=4)


def test_labels_say_who_reviews_whom() -> None:
    assert VerticalCascade(("a", "b"), 2, steps=(3,)).label == "a reviews b 2, 3 steps"
    nested = VerticalCascade(("a", "b", "copy"), 2, at_least=(4, 1))
    assert nested.label == "a reviews (b reviews copy 2, >= 1), >= 4"
    assert nested.row_fields() == {"drafters": "a, b, copy", "gamma": 2, "at_least": "4, 1"}


def test_a_cut_proposal_has_no_law() -> None:
    cut = VerticalDrafter("a", ModelDrafter("b", 4), gamma=3, steps=2)
    with pytest.raises(UnsupportedError, match="gamma = 3 would cut it"):
        block_law(cut, {("a", TARGET): 0.5, ("b", "a"): 0.5})
    with pytest.raises(InvalidArgumentError, match="give one of steps and at_least"):
        VerticalCascade(("a", "b"), 2, steps=(1,), at_least=(2,))
