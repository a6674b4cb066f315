"""The cost law on SpecBundle's rows, each target predicted by what was fitted on the others.

Three states of knowledge of a target: nothing, one of its rows (every choice, averaged), or all its
other rows (one left out at a time).  Law, routing exponent, variances and the choice of tails are
fitted without it; the residuals that the variances come from are those of laws that were fitted
without both targets.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from itertools import combinations
from typing import Any

import numpy as np

from specsim.hardware import Parallelism, accelerator, memory_needed_bytes
from studies.fidelity import specbundle_known as known
from studies.fidelity.specbundle_known import Spread
from studies.fidelity.specbundle_law import (
    CARD,
    Array,
    Law,
    Rows,
    Traffic,
    deployments,
    fit,
    rows,
    shape_of,
    speedups,
    traffic,
)

SCOUT = "Llama-4-Scout-17B-16E-Instruct"
_DEGREES = (1, 2, 4, 8)
# Of a card's memory, what engines hand out; weights that fill it leave no room for a cache.
_UTILISATION = 0.9


@dataclass(frozen=True)
class Nested:
    """Laws that were fitted without a target, and what they predict.

    law : of all rows
    laws : by target, without its rows
    predicted : (targets, rows) speedups; entry m, i by the law without target m and without the
        target of row i
    """

    law: Law
    laws: tuple[Law, ...]
    predicted: Array

    def nothing(self, found: Rows) -> Array:
        """Of every row, by the law without its target."""
        own: Array = self.predicted[found.target, np.arange(len(found.target))]
        return own


@dataclass(frozen=True)
class Known:
    """Relative errors with rows of the target known.

    one : by row, mean absolute error over every other row that may be the known one
    others : by row, predicted over measured, less one
    spreads : by target, from the other targets
    """

    one: Array
    others: Array
    spreads: tuple[Spread, ...]


def nested(found: Rows, moved: Traffic, routing_exponent: float | None = None) -> Nested:
    """All laws; ``routing_exponent`` None: fitted with each of them."""
    count = len(found.targets)
    masks = [found.of(target) for target in range(count)]
    all_rows = np.ones(len(found.target), bool)
    everything = fit(found, moved, all_rows, routing_exponent=routing_exponent)
    laws = [fit(found, moved, ~mask, everything, routing_exponent) for mask in masks]
    predicted = np.zeros((count, len(found.target)))
    for target, (mask, law) in enumerate(zip(masks, laws, strict=True)):
        predicted[target, mask] = speedups(found, moved, law)[mask]
    for one, other in combinations(range(count), 2):
        law = fit(found, moved, ~masks[one] & ~masks[other], laws[one], routing_exponent)
        both = speedups(found, moved, law)
        predicted[one, masks[other]] = both[masks[other]]
        predicted[other, masks[one]] = both[masks[one]]
    return Nested(everything, tuple(laws), predicted)


def spreads(found: Rows, laws: Nested) -> dict[str, list[Spread]]:
    """By tails and target, from the other targets' residuals."""
    count = len(found.targets)
    residuals = np.log(found.speedup / laws.predicted)
    return {
        tails: [
            known.fit(found, residuals[target], [n for n in range(count) if n != target], tails)
            for target in range(count)
        ]
        for tails in known.TAILS
    }


def likeliest(choices: Mapping[str, list[Spread]]) -> list[Spread]:
    """By target, the tails that make the other targets' residuals most likely."""
    return [
        max(each, key=lambda spread: spread.likelihood)
        for each in zip(*choices.values(), strict=True)
    ]


def nearest(found: Rows, laws: Nested, choices: Mapping[str, list[Spread]]) -> list[Spread]:
    """By target, the tails with the least error on the other targets with one row known."""
    residuals = np.log(found.speedup / laws.predicted)
    chosen = []
    for target, each in enumerate(zip(*choices.values(), strict=True)):
        others = [n for n in range(len(found.targets)) if n != target]

        def error(spread: Spread, at: int = target, others: list[int] = others) -> float:
            predicted = laws.predicted[at]
            errors = [_one_known(found, predicted, residuals[at], n, spread) for n in others]
            return float(np.concatenate(errors).mean())

        chosen.append(min(each, key=error))
    return chosen


def with_rows(found: Rows, laws: Nested, chosen: list[Spread]) -> Known:
    one, others = np.zeros(len(found.target)), np.zeros(len(found.target))
    for target, spread in enumerate(chosen):
        of, predicted = found.of(target), laws.predicted[target]
        residuals = np.log(found.speedup / predicted)
        one[of] = _one_known(found, predicted, residuals, target, spread)
        expected = known.from_others(found, residuals, target, spread)
        others[of] = predicted[of] * np.exp(expected) / found.speedup[of] - 1
    return Known(one, others, tuple(chosen))


def _one_known(
    found: Rows, predicted: Array, residuals: Array, target: int, spread: Spread
) -> Array:
    """Mean absolute error of each row of a target over every other row that may be known."""
    of = found.of(target)
    expected = known.from_one(found, residuals, target, spread)
    errors = np.abs((predicted / found.speedup)[of][:, None] * np.exp(expected) - 1)
    np.fill_diagonal(errors, 0.0)
    mean: Array = errors.sum(axis=1) / (len(errors) - 1)
    return mean


def line(found: Rows) -> tuple[Array, Array, Array]:
    """Errors of AL / speedup as a line in the steps: of the others, scaled by one row, its own."""
    cost = found.acceptance_length / found.speedup
    design = np.column_stack([np.ones(len(cost)), found.steps])

    def at(used: Any, asked: Any) -> Array:
        parts = np.linalg.lstsq(design[used], cost[used], rcond=None)[0]
        costs: Array = design[asked] @ parts
        return costs

    nothing, one, others = (np.zeros(len(cost)) for _ in range(3))
    for target in range(len(found.targets)):
        of = found.of(target)
        ratio = cost[of] / at(~of, of)  # measured over predicted block cost
        nothing[of] = ratio - 1
        scaled = np.abs(ratio[:, None] / ratio - 1)
        one[of] = scaled.sum(axis=1) / (len(ratio) - 1)
        for row in np.flatnonzero(of):
            own = of.copy()
            own[row] = False
            others[row] = cost[row] / at(own, [row])[0] - 1
    return nothing, one, others


def published() -> dict[str, int]:
    return {name: int(row["tensor_parallel"]) for name, row in deployments().items()}


def smallest() -> dict[str, int]:
    """The smallest degree that holds the weights, by target."""
    card = accelerator(CARD)
    return {
        name: next(
            degree
            for degree in _DEGREES
            if memory_needed_bytes(shape_of(row), parallel=Parallelism(tensor=degree))
            <= _UTILISATION * card.memory
        )
        for name, row in deployments().items()
    }


@dataclass(frozen=True)
class Evaluation:
    """Of the law as it stands, and of the choices that were not taken."""

    found: Rows
    moved: Traffic
    laws: Nested
    known: Known
    uniform: Nested
    uniform_known: Known
    tails: Mapping[str, Array]  # errors with one row known, by how the tails are chosen
    variants: Mapping[str, Array]  # errors with nothing known, by what is different


@cache
def evaluation() -> Evaluation:
    found = rows()
    moved = traffic(found.targets, published())
    laws, uniform = nested(found, moved), nested(found, moved, 1.0)
    choices = spreads(found, laws)
    by_error = with_rows(found, laws, nearest(found, laws, choices))
    tails = {f"{name} always": with_rows(found, laws, choices[name]).one for name in known.TAILS}
    variants = {"routing exponent held at 0.5": _nothing(found, moved, 0.5)}
    for name, tensor in {
        "smallest parallelism everywhere": smallest(),
        "Scout on 4 cards": published() | {SCOUT: 4},
        "Scout on 8 cards": published() | {SCOUT: 8},
    }.items():
        variants[name] = _nothing(found, traffic(found.targets, tensor))
    return Evaluation(
        found,
        moved,
        laws,
        with_rows(found, laws, likeliest(choices)),
        uniform,
        with_rows(found, uniform, likeliest(spreads(found, uniform))),
        {**tails, "tails by their error on the others": by_error.one},
        variants,
    )


def _nothing(found: Rows, moved: Traffic, routing_exponent: float | None = None) -> Array:
    """Errors with nothing known of a target."""
    error = np.zeros(len(found.target))
    for target in range(len(found.targets)):
        of = found.of(target)
        law = fit(found, moved, ~of, routing_exponent=routing_exponent)
        error[of] = (speedups(found, moved, law) / found.speedup)[of] - 1
    return error
