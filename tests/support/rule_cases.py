"""Every rule with settings that matter, a slow obvious twin of each, and pairs (p, q) to try."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from scipy.optimize import brentq

from specsim import rules
from specsim.checks import Floats

Row = list[float]
# min(q, pi) and the weights of the residual, token by token.
Twin = Callable[[Row, Row], tuple[Row, Row]]


@dataclass(frozen=True)
class Case:
    rule: rules.Rule
    twin: Twin

    def __str__(self) -> str:
        return str(self.rule)


def from_pi(pi_of: Callable[[Row, Row], Row]) -> Twin:
    def twin(p: Row, q: Row) -> tuple[Row, Row]:
        pi = pi_of(p, q)
        return (
            [min(b, t) for b, t in zip(q, pi, strict=True)],
            [max(0.0, t - b) for b, t in zip(q, pi, strict=True)],
        )

    return twin


def deferral(defer: Callable[[Row, Row], bool]) -> Twin:
    return from_pi(lambda p, q: p if defer(p, q) else q)


def token(deferred: Callable[[float, float, float], bool]) -> Twin:
    """``deferred(p(v), q(v), max p)``."""

    def pi(p: Row, q: Row) -> Row:
        most = max(p)
        late = [deferred(a, b, most) for a, b in zip(p, q, strict=True)]
        spread = math.fsum(b for b, r in zip(q, late, strict=True) if r)
        return [(0 if r else b) + spread * a for a, b, r in zip(p, q, late, strict=True)]

    return from_pi(pi)


def accept_set(least: Callable[[Row], float]) -> Twin:
    """``least(p)``: the probability that an accepted token must reach."""

    def pi(p: Row, q: Row) -> Row:
        bound = least(p)
        kept = [b if a >= bound else 0.0 for a, b in zip(p, q, strict=True)]
        kept[p.index(max(p))] += math.fsum(q) - math.fsum(kept)
        return kept

    return from_pi(pi)


def one_hot(p: Row, q: Row) -> Row:
    row = [0.0] * len(p)
    row[p.index(max(p))] = 1.0
    return row


def lenient(lenience: float, residual: Callable[[float, float], float]) -> Twin:
    def capped(a: float, b: float) -> float:
        if lenience == 0:
            return b if a > 0 else 0.0
        return min(b, a / lenience)

    return lambda p, q: (
        [capped(a, b) for a, b in zip(p, q, strict=True)],
        [residual(a, b) for a, b in zip(p, q, strict=True)],
    )


def lossy(looseness: float, scale: float) -> Twin:
    return from_pi(
        lambda p, q: [
            max(min(b, a / (1 - looseness)), a / scale) for a, b in zip(p, q, strict=True)
        ]
    )


def lossy_star(looseness: float) -> Twin:
    def twin(p: Row, q: Row) -> tuple[Row, Row]:
        lost = math.fsum(max(0, b - a / (1 - looseness)) for a, b in zip(p, q, strict=True))

        def missing(inverse: float) -> float:
            return math.fsum(max(0, inverse * a - b) for a, b in zip(p, q, strict=True)) - lost

        # Nothing to bring back: pi = q, and the residual does not matter.
        if lost < 1e-15:
            return list(q), [0.0] * len(q)
        return lossy(looseness, 1 / brentq(missing, 0, 1.0 + 1e-12, xtol=1e-15))(p, q)

    return twin


def top(row: Row) -> float:
    return max(row)


def entropy(row: Row) -> float:
    return -math.fsum(a * math.log(a) for a in row if a > 0)


def variation(p: Row, q: Row) -> float:
    return math.fsum(abs(a - b) for a, b in zip(p, q, strict=True)) / 2


def surprise(a: float) -> float:
    return -math.log(a) if a > 0 else math.inf


def beta_th(row: Row, beta: int) -> float:
    return sorted(row, reverse=True)[min(beta, len(row)) - 1]


CASES = [
    Case(rules.Lossless(), from_pi(lambda p, q: p)),
    Case(rules.Lenient(0.0), lenient(0.0, lambda a, b: max(0, a - b))),
    Case(rules.Lenient(0.4), lenient(0.4, lambda a, b: max(0, a - b))),
    Case(rules.Lenient(1.0), lenient(1.0, lambda a, b: max(0, a - b))),
    Case(rules.LenientScaledResidual(0.0), lenient(0.0, lambda a, b: a)),
    Case(rules.LenientScaledResidual(0.4), lenient(0.4, lambda a, b: max(0, a - 0.4 * b))),
    Case(rules.LenientScaledResidual(1.0), lenient(1.0, lambda a, b: max(0, a - b))),
    Case(rules.LenientRedraw(0.4), lenient(0.4, lambda a, b: a)),
    Case(rules.Lossy(0.3), lossy(0.3, 1.0)),
    Case(rules.Lossy(0.3, 50.0), lossy(0.3, 50.0)),
    Case(rules.LossyStar(0.0), lossy_star(0.0)),
    Case(rules.LossyStar(0.3), lossy_star(0.3)),
    Case(rules.Chow(0.45), deferral(lambda p, q: top(q) < 0.55)),
    Case(rules.ChowLog(1.03), deferral(lambda p, q: entropy(q) > 1.03)),
    Case(rules.Diff(0.07), deferral(lambda p, q: top(q) < top(p) - 0.07)),
    Case(rules.DiffLog(-0.2), deferral(lambda p, q: entropy(q) > entropy(p) - 0.2)),
    Case(rules.Opt(0.3), deferral(lambda p, q: top(q) < top(p) - 0.3 * variation(p, q))),
    Case(
        rules.OptLog(0.2),
        deferral(lambda p, q: entropy(q) > entropy(p) + 0.2 * variation(p, q) + 1e-15),
    ),
    Case(rules.BildStar(1.1), deferral(lambda p, q: surprise(p[q.index(max(q))]) > 1.1)),
    Case(
        rules.BildStar(1.3, "expectation"),
        deferral(
            lambda p, q: sum(b * surprise(a) for a, b in zip(p, q, strict=True) if b > 0) > 1.3
        ),
    ),
    Case(rules.TokenV1(0.13), token(lambda a, b, most: b < most - 0.13)),
    Case(rules.TokenV2(0.13), token(lambda a, b, most: a < most - 0.13)),
    Case(rules.TokenV3(0.37), token(lambda a, b, most: a < most * (1 - 0.37))),
    Case(rules.TokenV3(0.0), token(lambda a, b, most: a < most)),
    Case(rules.TokenV3(1.0), token(lambda a, b, most: False)),
    Case(rules.TopBeta(2, 1.05), accept_set(lambda p: max(beta_th(p, 2), max(p) / math.exp(1.05)))),
    Case(rules.GreedyLenient(0.37), accept_set(lambda p: 0.37 * max(p))),
    Case(rules.GreedyMatch(), from_pi(one_hot)),
    Case(
        rules.Custom(lambda p, q: (0.3 * p + 0.7 * q) ** 2),
        from_pi(lambda p, q: [(0.3 * a + 0.7 * b) ** 2 for a, b in zip(p, q, strict=True)]),
    ),
]


def emitted(case: Case, p: Row, q: Row) -> tuple[float, Row]:
    """Acceptance, and the law of one position by adding up what can happen to each draft token."""
    accepted, weights = case.twin(p, q)
    mass = math.fsum(weights)
    residual = [w / mass for w in weights] if mass > 0 else p
    rejected = math.fsum(b - a for a, b in zip(accepted, q, strict=True))
    law = [a + rejected * r for a, r in zip(accepted, residual, strict=True)]
    return math.fsum(accepted), law


@st.composite
def distributions(draw: st.DrawFn, size: int) -> Floats:
    """Rows of any shape: spread, peaked, one-hot, with zeros and with ties."""
    weights = draw(
        arrays(
            np.float64,
            size,
            elements=st.one_of(
                st.just(0.0), st.sampled_from([1.0, 1.0 + 1e-12, 2.0]), st.floats(1e-9, 1e3)
            ),
        )
    )
    if weights.sum() == 0:
        weights[draw(st.integers(0, size - 1))] = 1.0
    return np.asarray(weights / weights.sum())


@st.composite
def pairs(draw: st.DrawFn, most: int = 8) -> tuple[Floats, Floats]:
    """p and q over 1 to ``most`` tokens."""
    size = draw(st.integers(1, most))
    return draw(distributions(size)), draw(distributions(size))


def adversarial(size: int = 5) -> tuple[Floats, Floats]:
    """p and q, shape (N, size): the cases that break samplers."""
    random = np.random.default_rng(7)
    p, q = random.dirichlet(np.ones(size), size=2)
    peaked = random.dirichlet(np.full(size, 0.1))
    hot, other = np.eye(size)[0], np.eye(size)[-1]
    left = np.where(np.arange(size) < size / 2, 1.0, 0.0)
    left, right = left / left.sum(), (1 - left) / (1 - left).sum()
    near = q * (1 + 1e-9 * random.normal(size=size))
    near /= near.sum()
    level = np.full(size, 1 / size)
    listed = [
        (p, q), (q, p), (peaked, q), (p, peaked), (left, right), (right, left), (p, p), (hot, hot),
        (hot, other), (p, hot), (hot, q), (near, q), (q, near), (level, level), (level, q),
        (left, level), (level, left),
    ]  # fmt: skip
    first, second = zip(*listed, strict=True)
    return np.array(first), np.array(second)
