"""Executions on small Markov models, every random choice enumerated."""

from __future__ import annotations

import functools
import itertools
import math
from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import pytest

from specsim import rules
from specsim.rules import Distributions, confidence
from specsim.rules.base import Array
from tests.support import executions
from tests.support.executions import Model, Row, Tokens
from tests.support.rule_cases import CASES, Case

Law = dict[Tokens, float]


def markov(size: int, seed: int) -> Model:
    """A model whose next token depends on the last two; some tokens are impossible."""
    random = np.random.default_rng(seed)

    @functools.cache
    def row(last: Tokens) -> Row:
        weights = random.dirichlet(np.full(size, 0.7))
        if random.random() < 0.3:
            weights[random.integers(size)] = 0
        return weights / weights.sum()

    for length in range(3):
        for last in itertools.product(range(size), repeat=length):
            row(last)
    return lambda context: row(context[-2:])


@dataclass(frozen=True)
class Remembering(rules.Rule):
    """The same rule, its arrays computed once for each pair of rows: enumeration asks often."""

    rule: rules.Rule

    @property
    def bonus_needs_draft(self) -> bool:  # type: ignore[override]
        return self.rule.bonus_needs_draft

    def pi(self, rows: Distributions) -> Array:
        return self.rule.pi(rows)

    def accepted(self, rows: Distributions) -> Array:
        return self._asked(self.rule.accepted, rows)

    def residual(self, rows: Distributions) -> Array:
        return self._asked(self.rule.residual, rows)

    def bonus(self, rows: Distributions) -> Array:
        return self._asked(self.rule.bonus, rows)

    @functools.cached_property
    def _memory(self) -> dict[tuple[str, bytes, bytes], Array]:
        return {}

    def _asked(self, method: Callable[[Distributions], Array], rows: Distributions) -> Array:
        key = (method.__name__, rows.p.tobytes(), rows.q.tobytes())
        if key not in self._memory:
            self._memory[key] = method(rows)
        return self._memory[key]


def product_law(row: Callable[[Tokens], Row], length: int) -> Law:
    """The law of a text whose tokens follow ``row``, one after the other."""
    law: Law = {(): 1.0}
    for _ in range(length):
        law = {
            (*text, token): chance * float(weight)
            for text, chance in law.items()
            for token, weight in enumerate(row(text))
        }
    return law


def variation(first: Law, second: Law) -> float:
    return math.fsum(abs(first.get(t, 0) - second.get(t, 0)) for t in first | second) / 2


def speculative_law(rule: rules.Rule, target: Model, draft: Model, gamma: int, length: int) -> Law:
    """Law of the first ``length`` tokens: what a block does depends only on the text so far."""
    done: Law = defaultdict(float)
    open_texts: Law = {(): 1.0}
    while open_texts:
        longer: Law = defaultdict(float)
        for text, chance in open_texts.items():
            block_law = executions.law(
                lambda choose, text=text: executions.speculative_block(
                    rule, target, draft, text, gamma, choose
                )
            )
            for block, share in block_law.items():
                new = (text + block)[:length]
                (done if len(new) == length else longer)[new] += chance * share
        open_texts = longer
    return done


@pytest.mark.parametrize("case", CASES, ids=str)
@pytest.mark.parametrize("gamma", [1, 2, 3, 4])
def test_speculative_text_follows_the_product_of_emitted_laws(case: Case, gamma: int) -> None:
    size, length = (3, gamma + 2) if gamma <= 2 else (2, gamma + 1)
    target, draft = markov(size, 1), markov(size, 2)

    def emitted(text: Tokens) -> Row:
        row: Row = case.rule.emitted(Distributions(target(text), draft(text)))
        return row

    law = speculative_law(Remembering(case.rule), target, draft, gamma, length)
    assert variation(law, product_law(emitted, length)) < 1e-12


@pytest.mark.parametrize("rule", [rules.Chow(0.4), rules.ChowLog(0.6)], ids=str)
def test_token_cascade_follows_the_target_distribution_of_its_rule(
    rule: rules.DraftDeferralRule,
) -> None:
    target, draft = markov(3, 6), markov(3, 7)

    def pi(text: Tokens) -> Row:
        row: Row = rule.pi(Distributions(target(text), draft(text)))
        return row

    law = executions.law(
        lambda choose: executions.token_cascade(rule, target, draft, (), 4, choose).tokens
    )
    assert variation(law, product_law(pi, 4)) < 1e-12
    speculative = speculative_law(rule, target, draft, 2, 4)
    assert variation(law, speculative) < 1e-12


CONFIDENCES = {
    "sum": confidence.sum_log_probability,
    "mean": confidence.mean_log_probability,
    "least": executions.quantile_log_probability(0.0),
    "median": executions.quantile_log_probability(0.5),
}


@pytest.mark.parametrize("name", CONFIDENCES)
@pytest.mark.parametrize("threshold", [-1e9, -1.0, -0.7, 0.1])
def test_sequence_cascade_law(name: str, threshold: float) -> None:
    """m(y) = q(y) 1[sure of y] + P_q(not sure) p(y)."""
    confidence, length = CONFIDENCES[name], 3
    target, draft = markov(3, 10), markov(3, 11)
    law = executions.law(
        lambda choose: (
            executions.sequence_cascade(
                confidence, threshold, target, draft, (), length, choose
            ).tokens
        )
    )
    small, large = product_law(draft, length), product_law(target, length)
    expected: Law = {}
    for text, chance in small.items():
        if chance > 0:
            logs = np.log([draft(text[:i])[text[i]] for i in range(length)])
            expected[text] = chance if confidence(logs) >= threshold else 0.0
    deferred = 1 - math.fsum(expected.values())
    for text, chance in large.items():
        expected[text] = expected.get(text, 0.0) + deferred * chance
    assert variation(law, expected) < 1e-12


def test_confidences_by_hand() -> None:
    logs = np.log([0.5, 0.25, 0.125])
    assert confidence.sum_log_probability(logs) == pytest.approx(np.log(1 / 64))
    assert confidence.mean_log_probability(logs) == pytest.approx(np.log(1 / 4))
    assert executions.quantile_log_probability(1.0)(logs) == pytest.approx(np.log(0.5))
    assert executions.quantile_log_probability(0.0)(logs) == pytest.approx(np.log(0.125))
