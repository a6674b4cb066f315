"""The three laws of acceptance at one position, against an enumeration of what they do."""

from __future__ import annotations

from fractions import Fraction
from itertools import product

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from specsim.acceptance import ACCEPTANCE_LAWS, AcceptanceLaw
from specsim.checks import Floats
from specsim.rules import Distributions, acceptance_given, expected_acceptance
from tests.support.refusals import refuses
from tests.support.rule_cases import adversarial, pairs

Row = list[Fraction]
laws = pytest.mark.parametrize("law", ACCEPTANCE_LAWS)


def enumerated(law: AcceptanceLaw, p: Row, q: Row) -> tuple[Row, Row]:
    """P(x is emitted) and P(x is emitted, and was an accepted draft), by what a verifier does."""
    tokens = range(len(p))
    emitted, accepted = [Fraction(0)] * len(p), [Fraction(0)] * len(p)
    if law == "exact-match":
        for draft, own in product(tokens, tokens):
            emitted[own] += q[draft] * p[own]
            if draft == own:
                accepted[own] += q[draft] * p[own]
        return emitted, accepted
    if law == "greedy-drafts":
        q = [Fraction(token == q.index(max(q))) for token in tokens]
    for draft in tokens:
        if q[draft]:
            accepted[draft] += q[draft] * min(Fraction(1), p[draft] / q[draft])
    left = [max(Fraction(0), p[token] - q[token]) for token in tokens]
    for token in tokens:
        recovered = left[token] / sum(left) if sum(left) else p[token]
        emitted[token] = accepted[token] + (1 - sum(accepted)) * recovered
    return emitted, accepted


def tiny() -> list[tuple[Row, Row]]:
    """All pairs of rows over three tokens in quarters."""
    whole = [parts for parts in product(range(5), repeat=3) if sum(parts) == 4]
    rows = [[Fraction(part, 4) for part in parts] for parts in whole]
    return list(product(rows, rows))


@laws
def test_every_law_emits_the_target_and_accepts_as_it_says(law: AcceptanceLaw) -> None:
    found = tiny()
    p, q = (np.array([[float(x) for x in pair[side]] for pair in found]) for side in (0, 1))
    rows = Distributions.checked(p, q)
    beta = expected_acceptance(law, rows)
    given_x = [acceptance_given(law, rows, np.full(len(p), token)) for token in range(3)]
    for index, (target, draft) in enumerate(found):
        emitted, accepted = enumerated(law, target, draft)
        assert emitted == target
        assert beta[index] == pytest.approx(float(sum(accepted)), abs=1e-15)
        for token in range(3):
            share = accepted[token] / target[token] if target[token] else 0
            assert given_x[token][index] == pytest.approx(float(share), abs=1e-15)


def test_three_tokens_by_hand() -> None:
    """p = (0.5, 0.3, 0.2), q = (0.2, 0.2, 0.6): the draft's first choice is the last token."""
    rows = Distributions(np.array([0.5, 0.3, 0.2]), np.array([0.2, 0.2, 0.6]))
    by_hand: dict[AcceptanceLaw, tuple[float, list[float]]] = {
        "ratio-test": (0.2 + 0.2 + 0.2, [0.4, 2 / 3, 1.0]),
        "greedy-drafts": (0.2, [0.0, 0.0, 1.0]),
        "exact-match": (0.1 + 0.06 + 0.12, [0.2, 0.2, 0.6]),
    }
    for law, (beta, given_x) in by_hand.items():
        assert expected_acceptance(law, rows) == pytest.approx(beta)
        assert [acceptance_given(law, rows, np.array(x)) for x in range(3)] == pytest.approx(
            given_x
        )


@given(pairs())
def test_what_holds_of_any_rows(pair: tuple[Floats, Floats]) -> None:
    p, q = pair
    rows = Distributions(p, q)
    ratio, greedy, exact = (float(expected_acceptance(law, rows)) for law in ACCEPTANCE_LAWS)
    assert 0 <= exact <= ratio + 1e-12
    assert greedy == pytest.approx(p[q.argmax()], abs=1e-12)
    # No draft is accepted more often than the target's own first choice greedily.
    assert greedy <= p.max() + 1e-12
    assert exact <= p.max() + 1e-12
    for law, beta in zip(ACCEPTANCE_LAWS, (ratio, greedy, exact), strict=True):
        each = [float(acceptance_given(law, rows, np.array(x))) for x in range(len(p))]
        assert all(0 <= share <= 1 for share in each)
        assert p @ each == pytest.approx(beta, abs=1e-9)


@given(st.integers(1, 5), st.data())
def test_all_agree_at_temperature_0(size: int, data: st.DataObject) -> None:
    tops = [data.draw(st.integers(0, size - 1)) for _ in range(2)]
    p, q = np.eye(size)[tops]
    found = {float(expected_acceptance(law, Distributions(p, q))) for law in ACCEPTANCE_LAWS}
    assert found == {float(tops[0] == tops[1])}


@laws
def test_torch_says_the_same(law: AcceptanceLaw) -> None:
    p, q = adversarial()
    tokens = np.arange(len(p)) % p.shape[-1]
    one = Distributions(p, q)
    other = Distributions(torch.from_numpy(p), torch.from_numpy(q))
    np.testing.assert_allclose(
        expected_acceptance(law, other).numpy(), expected_acceptance(law, one), atol=1e-12
    )
    np.testing.assert_allclose(
        acceptance_given(law, other, torch.from_numpy(tokens)).numpy(),
        acceptance_given(law, one, tokens),
        atol=1e-12,
    )


ROWS = Distributions(np.ones((1, 1)), np.ones((1, 1)))
test_unknown_laws_are_refused = refuses(
    (lambda: expected_acceptance("typical", ROWS), "law must be one of ratio-test, greedy"),  # type: ignore[arg-type]
    (
        lambda: acceptance_given("typical", ROWS, np.zeros(1, int)),  # type: ignore[arg-type]
        "law must be one of ratio-test, greedy",
    ),
)
