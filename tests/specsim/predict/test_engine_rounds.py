"""What an engine counts: equal to a step-by-step count, and to the sum over all outcomes."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from specsim.checks import Floats
from specsim.counts.drafts import DraftCounts
from specsim.predict.replay.engine_rounds import engine_rounds, engine_rounds_of_proposals
from tests.support.engine_server import count_rounds
from tests.support.refusals import refuses

WORDS = st.integers(0, 2)


@given(st.data())
def test_a_certain_text_is_counted_step_by_step(data: st.DataObject) -> None:
    tokens, gamma = data.draw(st.integers(1, 12)), data.draw(st.integers(1, 4))
    size = tokens + gamma
    text = data.draw(st.lists(WORDS, min_size=size, max_size=size))
    draft = data.draw(st.lists(WORDS, min_size=size, max_size=size))
    agrees = np.array([a == b for a, b in zip(draft, text, strict=True)], float)
    drafts = {place: draft[place : place + gamma] for place in range(tokens)}
    rounds, drafted, accepted = count_rounds(text, drafts, tokens)

    found = engine_rounds(agrees, tokens, gamma)

    counts = DraftCounts(gamma, rounds, sum(accepted), drafted, tuple(accepted))
    assert found.counts == counts
    assert found.certain
    assert (found.z_rounds(counts), found.z_drafted(counts)) == (0, 0)
    assert not found.z_reached(counts).any()


@given(st.data())
def test_proposals_of_any_length_are_counted_step_by_step(data: st.DataObject) -> None:
    tokens, gamma = data.draw(st.integers(1, 12)), data.draw(st.integers(1, 4))
    size = tokens + gamma - 1  # all that the last round may draft
    text = data.draw(st.lists(WORDS, min_size=size, max_size=size))
    lengths = st.lists(WORDS, max_size=gamma)
    proposals = data.draw(st.lists(lengths, min_size=tokens, max_size=tokens))
    rounds, drafted, accepted = count_rounds(text, dict(enumerate(proposals)), tokens)

    found = engine_rounds_of_proposals(text, proposals, tokens, gamma)

    accepted += [0] * (gamma - len(accepted))
    assert found.mean.tolist() == [rounds, drafted, *accepted]
    assert found.certain


def outcomes(rates: Floats, tokens: int, gamma: int) -> tuple[Floats, Floats]:
    """Mean and covariance of the counts, from every way in which the drafts can fare."""
    mean, square = np.zeros(gamma + 2), np.zeros((gamma + 2, gamma + 2))
    places = range(len(rates))
    for stands in product((0, 1), repeat=len(rates)):
        chance = np.prod([r if s else 1 - r for r, s in zip(rates, stands, strict=True)])
        drafts = {t: [stands[u] for u in places][t : t + gamma] for t in range(tokens)}
        rounds, drafted, accepted = count_rounds([1] * len(rates), drafts, tokens)
        counts = np.array([rounds, drafted, *accepted], float)
        mean += chance * counts
        square += chance * np.outer(counts, counts)
    return mean, square - np.outer(mean, mean)


@pytest.mark.parametrize(("tokens", "gamma"), [(2, 1), (5, 1), (6, 2), (6, 3), (3, 4)])
def test_chances_are_those_of_all_outcomes(tokens: int, gamma: int) -> None:
    rates = np.random.default_rng([tokens, gamma]).random(tokens + gamma - 1)
    mean, covariance = outcomes(rates, tokens, gamma)

    found = engine_rounds(rates, tokens, gamma)

    np.testing.assert_allclose(found.mean, mean, atol=1e-12)
    np.testing.assert_allclose(found.covariance, covariance, atol=1e-12)


def test_requests_add_up_and_scores_are_in_standard_deviations() -> None:
    rates = np.full(40, 0.6)
    one = engine_rounds(rates, 38, 3)
    both = one + one
    assert both.counts.rounds == pytest.approx(2 * one.counts.rounds)
    # Two standard deviations more rounds, all else as expected.
    sigma = float(np.sqrt(both.covariance[0, 0]))
    rounds, _, *reached = both.mean.tolist()
    counts = DraftCounts(None, rounds + 2 * sigma, sum(reached), None, tuple(reached))
    assert both.z_rounds(counts) == pytest.approx(2)
    # The rates by position are lower then than expected.
    assert (both.z_reached(counts) < 0).all()


def test_a_contradicted_certainty_is_infinitely_far_off() -> None:
    found = engine_rounds(np.ones(9), 8, 2)
    assert found.z_rounds(DraftCounts(2, 4, 0, 8, (0, 0))) == np.inf


test_refused = refuses(
    (lambda: engine_rounds(np.ones(9), 8, 3), "accepted must reach 2 positions behind the 8"),
    (lambda: engine_rounds(np.ones(9), 8, 0), "gamma must be a whole number >= 1, got 0"),
    (lambda: engine_rounds(np.ones(9), 0, 1), "tokens must be a whole number >= 1, got 0"),
    (lambda: engine_rounds_of_proposals([1, 2], [[], []], 2, 2), "text must reach 1 positions"),
)
