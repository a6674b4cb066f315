"""The law beside the replay of one text: the same where acceptance is alike everywhere."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import pytest

from specsim.acceptance import ACCEPTANCE_LAWS, AcceptanceLaw
from specsim.checks import Floats, UnsupportedError
from specsim.predict.replay import build
from specsim.predict.replay.rates import (
    DEFERRAL,
    FALLBACK,
    ROLLBACK,
    Tried,
    acceptance_rates,
    law_tokens_per_call,
    named_rates,
    total,
)
from specsim.predict.replay.recorded import RecordedText
from specsim.schemes import (
    AdaptiveHeuristic,
    BigLittle,
    FullCascade,
    HorizontalCascade,
    SequenceCascade,
    SpeculativeDecoding,
    TokenCascade,
    VerticalCascade,
)
from specsim.schemes.base import DraftingScheme
from specsim.schemes.drafters import CopyDrafter, EagleDrafter, MaskDrafter

SIZE = 2000


@dataclass(frozen=True)
class SyntheticText:
    """A text whose acceptances are made up.

    rates : by (drafter, verifier), (T,)
    copied : what a copying drafter proposes before each token
    by_depth : acceptance of a head at each depth, the same from every start
    """

    rates: Mapping[tuple[str, str], Floats]
    copied: Sequence[Sequence[int]] = ()
    tokens: Sequence[int] = field(default_factory=lambda: range(SIZE))
    by_depth: Sequence[float] = ()

    @property
    def limit(self) -> int:
        return len(self.tokens)

    def accepted(self, drafter: str, verifier: str, law: AcceptanceLaw = "ratio-test") -> Floats:
        return self.rates[drafter if law == "ratio-test" else f"{drafter}, {law}", verifier]

    def proposals(self, drafter: CopyDrafter | MaskDrafter) -> Sequence[Sequence[int]]:
        return [tokens[: drafter.tokens] for tokens in self.copied]

    def accepted_by_depth(
        self, drafter: EagleDrafter, verifier: str, law: AcceptanceLaw = "ratio-test"
    ) -> tuple[Floats, np.ndarray]:
        size = len(self.tokens)
        rates = np.tile(self.by_depth[: drafter.tokens], (size, 1))
        behind = np.add.outer(np.arange(size), np.arange(rates.shape[1])) >= size
        return np.where(behind, 0.0, rates), np.full(size, rates.shape[1])

    def off_text_samples(
        self, reviewer: str, verifier: str, place: int | None
    ) -> Sequence[RecordedText]:
        return [] if place is not None else [self]


def both(scheme: DraftingScheme, text: SyntheticText) -> tuple[float, float]:
    """Tokens per call by law and by replay."""
    expected = build.predict(scheme, text)
    rates = acceptance_rates(scheme.drafter, text, law=scheme.acceptance_law)
    law = law_tokens_per_call(scheme, total(rates))
    return law, expected.tokens / expected.calls


ALIKE = SyntheticText(
    {
        ("a", "target"): np.full(SIZE, 0.8),
        ("b", "target"): np.full(SIZE, 0.5),
        ("b", "a"): np.full(SIZE, 0.6),
    }
)


@pytest.mark.parametrize(
    "scheme",
    [
        SpeculativeDecoding(4, "a"),
        HorizontalCascade(("a", "b"), (2, 3)),
        VerticalCascade(("a", "b"), gamma=2, steps=(2,)),
        VerticalCascade(("a", "b"), gamma=2, at_least=(3,)),
    ],
)
def test_law_and_replay_agree_where_acceptance_is_alike(scheme: DraftingScheme) -> None:
    law, replayed = both(scheme, ALIKE)
    # Up to the last block of the text, which its end cuts off.
    assert replayed == pytest.approx(law, rel=3e-3)
    assert law > 2


def test_law_and_replay_read_acceptances_of_the_schemes_own_law() -> None:
    rates = {"a": 0.8, "a, greedy-drafts": 0.5, "a, exact-match": 0.3}
    text = SyntheticText({(name, "target"): np.full(SIZE, rate) for name, rate in rates.items()})
    for law, rate in zip(ACCEPTANCE_LAWS, rates.values(), strict=True):
        found, replayed = both(SpeculativeDecoding(4, "a", acceptance_law=law), text)
        assert found == pytest.approx((1 - rate**5) / (1 - rate))
        assert replayed == pytest.approx(found, rel=3e-3)


def test_law_promises_too_much_where_requests_differ() -> None:
    """The mean over tokens of two requests, an easy and a hard one; by hand from eq. 1."""
    easy, hard = 0.95, 0.35
    rates = np.repeat([easy, hard], SIZE // 2)
    law, replayed = both(SpeculativeDecoding(4, "a"), SyntheticText({("a", "target"): rates}))

    def length(alpha: float) -> float:
        return (1 - alpha**5) / (1 - alpha)

    assert law == pytest.approx(length((easy + hard) / 2))
    assert replayed == pytest.approx(2 / (1 / length(easy) + 1 / length(hard)), rel=5e-3)
    assert law > 1.05 * replayed


def test_copies_are_judged_by_their_first_token() -> None:
    """Of four places one copy is right, one is wrong, and two are empty."""
    text = SyntheticText({}, copied=[[0, 1, 9], [9, 2], [], []], tokens=range(4))
    scheme = FullCascade(("copy",), ((3,),))
    found = total(acceptance_rates(scheme.drafter, text))
    assert found == {("copy", "target"): Tried(1.0, 4)}
    assert law_tokens_per_call(scheme, found) == pytest.approx(1 + 0.25 + 0.25**2 + 0.25**3)


def test_a_head_has_a_rate_for_each_depth() -> None:
    """Tokens per call are 1 + S_1 + S_2 + S_3, the products of the rates."""
    text = SyntheticText({}, by_depth=(0.9, 0.6, 0.5, 0.1))
    law, replayed = both(SpeculativeDecoding(3, "eagle"), text)
    assert law == pytest.approx(1 + 0.9 + 0.9 * 0.6 + 0.9 * 0.6 * 0.5)
    assert replayed == pytest.approx(law, rel=3e-3)
    found = total(acceptance_rates(EagleDrafter("eagle", 3), text))
    names = ["eagle by target at 1", "eagle by target at 2", "eagle by target at 3"]
    assert named_rates(found) == pytest.approx(dict(zip(names, (0.9, 0.6, 0.5), strict=True)))


def test_each_law_takes_what_it_must_know() -> None:
    rates = {FALLBACK: Tried(20, 100), ROLLBACK: Tried(8, 80)}
    # sum of ((1 - r) (1 - f))^i, i = 0..W
    expected = sum(0.72**i for i in range(4))
    assert law_tokens_per_call(BigLittle(3), rates) == pytest.approx(expected)
    deferral = {DEFERRAL: Tried(1, 4)}
    assert law_tokens_per_call(TokenCascade(2), deferral) == pytest.approx(1 + 0.75 + 0.75**2)
    assert law_tokens_per_call(SequenceCascade(), deferral) == 4
    assert law_tokens_per_call(SequenceCascade(), {DEFERRAL: Tried(0, 4)}) == float("inf")
    with pytest.raises(UnsupportedError):
        law_tokens_per_call(AdaptiveHeuristic(), {})


def test_rates_add_up_over_requests_and_have_names() -> None:
    pair = ("draft", "target")
    found = total([(pair, Tried(1.5, 2)), (FALLBACK, Tried(0, 0)), (pair, Tried(0.5, 3))])
    assert named_rates(found) == {"draft by target": 0.4, "fallback": 0.0}
