"""Descriptions made into their replay on a text, and what a replay says of its own exactness."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
import pytest

from specsim import rules
from specsim.acceptance import AcceptanceLaw
from specsim.checks import Floats
from specsim.laws import TARGET
from specsim.predict.replay.build import approximate_runs, drafter_replay, predict
from specsim.predict.replay.drafters import AutoregressiveReplay, DeterministicReplay
from specsim.predict.replay.head import HeadReplay
from specsim.predict.replay.horizontal import HorizontalReplay
from specsim.predict.replay.recorded import RecordedText, agreement
from specsim.predict.replay.vertical import VerticalReplay
from specsim.schemes import (
    BigLittle,
    FullCascade,
    HorizontalCascade,
    Scheme,
    SpecDec,
    SpeculativeDecoding,
    VerticalCascade,
)
from specsim.schemes.drafters import (
    CopyDrafter,
    EagleDrafter,
    HorizontalDrafter,
    MaskDrafter,
    ModelDrafter,
    NgramDrafter,
    VerticalDrafter,
)


@dataclass
class Text:
    """Four tokens; every pair of models and every law has a rate of its own, as asked for."""

    asked: list[tuple[str, str, str]] = field(default_factory=list)
    texts: dict[int | None, list[Text]] = field(default_factory=dict)
    tokens: Sequence[int] = (5, 6, 5, 6)
    limit: int = 9

    def accepted(self, drafter: str, verifier: str, law: AcceptanceLaw = "ratio-test") -> Floats:
        self.asked.append((drafter, verifier, law))
        return np.full(4, 0.1 * len(self.asked))

    def proposals(self, drafter: CopyDrafter | MaskDrafter) -> Sequence[Sequence[int]]:
        return [[5, 6, 7], [], [6, 6], [6, 5]]

    def accepted_by_depth(
        self, drafter: EagleDrafter, verifier: str, law: AcceptanceLaw = "ratio-test"
    ) -> tuple[Floats, np.ndarray]:
        self.asked.append((drafter.name, verifier, law))
        return np.full((4, drafter.tokens), 0.5), np.full(4, drafter.tokens)

    def off_text_samples(
        self, reviewer: str, verifier: str, place: int | None
    ) -> Sequence[RecordedText]:
        return self.texts.get(place, [])


def test_what_drafts_by_itself_is_accepted_by_the_law_that_is_asked_for() -> None:
    text = Text()
    model = drafter_replay(ModelDrafter("small", 3), text, law="exact-match")
    counts = drafter_replay(NgramDrafter("bigram", 2), text, "judge", "greedy-drafts")
    head = drafter_replay(EagleDrafter("eagle", 2), text, law="exact-match")
    assert text.asked == [
        ("small", TARGET, "exact-match"),
        ("bigram", "judge", "greedy-drafts"),
        ("eagle", TARGET, "exact-match"),
    ]
    assert isinstance(model, AutoregressiveReplay)
    assert isinstance(counts, AutoregressiveReplay)
    assert isinstance(head, HeadReplay)
    assert (model.name, model.tokens) == ("small", 3)
    assert (counts.name, counts.tokens) == ("bigram", 2)
    assert (head.name, head.reach) == ("eagle", 2)


@pytest.mark.parametrize("drafter", [CopyDrafter("copy", 3), MaskDrafter("masks", 3)])
def test_what_proposes_from_its_place_agrees_with_the_text_or_not(
    drafter: CopyDrafter | MaskDrafter,
) -> None:
    found = drafter_replay(drafter, Text())
    assert isinstance(found, DeterministicReplay)
    assert found.name == drafter.name
    assert found.accepted.tolist() == [[1, 1, 0], [0, 0, 0], [0, 1, 0], [1, 0, 0]]
    assert found.lengths.tolist() == [3, 0, 2, 2]
    assert agreement(Text(), drafter)[0].shape == (4, 3)


def test_a_reviewer_goes_on_in_texts_of_its_own() -> None:
    anywhere, there = Text(limit=7), Text(limit=8)
    text = Text(texts={None: [anywhere, anywhere], 2: [there]})
    drafter = VerticalDrafter("judge", ModelDrafter("small", 3), 2, None, 5)
    found = drafter_replay(HorizontalDrafter((drafter, CopyDrafter("copy", 3))), text)
    assert isinstance(found, HorizontalReplay)
    reviewer, copies = found.parts
    assert isinstance(reviewer, VerticalReplay)
    assert isinstance(copies, DeterministicReplay)
    # The reviewer's tokens before the target, the inner drafter's before the reviewer.
    assert text.asked == [("judge", TARGET, "ratio-test"), ("small", "judge", "ratio-test")]
    assert (reviewer.gamma, reviewer.steps, reviewer.at_least) == (2, None, 5)
    assert len(reviewer.off_text_samples(None)) == 2
    assert len(reviewer.off_text_samples(2)) == 1
    assert there.asked == [("small", "judge", "ratio-test")]
    # Where nothing is known of a place: anywhere; and nothing is made twice.
    assert reviewer.off_text_samples(1) is reviewer.off_text_samples(None)
    assert len(anywhere.asked) == 2


def test_a_scheme_is_replayed_up_to_the_limit_of_the_text() -> None:
    text = Text(limit=9)
    found = predict(SpeculativeDecoding(3, "small", acceptance_law="greedy-drafts"), text)
    assert text.asked == [("small", TARGET, "greedy-drafts")]
    assert found.tokens == 4
    # Wherever a block begins there is room for all three drafts.
    assert found.runs.runs("small") == pytest.approx(3 * found.calls)


@pytest.mark.parametrize(
    ("scheme", "models"),
    [
        (SpeculativeDecoding(3, "a"), ()),
        (HorizontalCascade(("a", "b"), (2, 3)), ()),
        (VerticalCascade(("a", "b"), gamma=2, steps=(2,)), ("a", "b")),
        (FullCascade(("a", "copy"), ((3, 2), (2,))), ("a", "copy")),
        (FullCascade(("copy",), ((3,),)), ()),
        (SpecDec(5, "masks"), ()),
        (SpecDec(5, "masks", rule=rules.TopBeta(3, 1)), (TARGET, "masks")),
        (BigLittle(3), ()),
    ],
)
def test_runs_that_depend_on_what_is_off_the_text_are_told(
    scheme: Scheme, models: tuple[str, ...]
) -> None:
    assert approximate_runs(scheme) == frozenset(models)
