"""Experts that a run touches, and those of the busiest card, against draws."""

from __future__ import annotations

import numpy as np
import pytest

from specsim.hardware.routing import expected_experts, load_over_mean, most_touched


def drawn(experts: int, k: int, tokens: int, cards: int) -> tuple[float, float, float]:
    """Means of 4,000 draws: experts touched, those on the busiest card, its products over the mean.

    The standard error of each mean is under 1 % at these sizes.
    """
    rng = np.random.default_rng(7)
    order = rng.random((4000, tokens, experts)).argsort(axis=-1)[..., :k]
    chosen = np.zeros((4000, experts))
    for token in range(tokens):
        np.add.at(chosen, (np.arange(4000)[:, None], order[:, token]), 1.0)
    by_card = chosen.reshape(4000, cards, experts // cards)
    touched = (by_card > 0).sum(axis=-1)
    products = by_card.sum(axis=-1)
    return (
        float(touched.sum(axis=-1).mean()),
        float(touched.max(axis=-1).mean()),
        float(products.max(axis=-1).mean() / (tokens * k / cards)),
    )


@pytest.mark.parametrize(("experts", "k"), [(128, 8), (32, 4)])
@pytest.mark.parametrize("tokens", [1, 4, 32])
@pytest.mark.parametrize("cards", [2, 8])
def test_the_busiest_card(experts: int, k: int, tokens: int, cards: int) -> None:
    touched, busiest, products = drawn(experts, k, tokens, cards)
    expected = expected_experts(experts, k, tokens)
    assert expected == pytest.approx(touched, rel=0.02)
    # Numbers of experts are whole, and taken as normal: worst where one token chooses a few.
    most = 0.06 if tokens == 1 else 0.04
    assert most_touched(experts, expected, cards) == pytest.approx(busiest, rel=most)
    assert load_over_mean(experts, k, tokens, cards) == pytest.approx(products, rel=most)


def test_one_card_has_everything() -> None:
    assert most_touched(128, 30.0, 1) == 30.0
    assert load_over_mean(128, 8, 4, 1) == 1.0
    assert most_touched(128, 128.0, 8) == 16.0
