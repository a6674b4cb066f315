"""All rules of a workload side by side: the best setting for a wish, intervals, regret.

Intervals are 95 %, by bootstrap over requests: positions of one request are not independent.  Those
of speedups are of the rule's own draft length, and of draws of its price where that was measured.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from specsim.checks import Floats, InvalidArgumentError, UnsupportedError
from specsim.frontier.latency import BlockPrices
from specsim.frontier.positions import LabelledPositions, Loss, Outcome
from specsim.frontier.sweep import (
    Curve,
    Sweep,
    best_within,
    frontier,
    mean_regret,
    optimum,
    sweeps,
)
from specsim.intervals import DRAWS, Bootstrap, Interval, around
from specsim.rules import DecideOn

OPTIMUM = "optimum"

# A curve is summed up anew in every draw, over all positions.
_CURVE_DRAWS = 200
# A running sum and a mean of the same numbers differ by rounding, and a wish for just the
# target's quality must not fail for that.
_ROUNDING = 1e-9


class MeasuredRule(Protocol):
    """A way to choose what is emitted, at all its settings."""

    def curve(self, weights: Floats | None = None) -> Curve:
        """Mean rejection and loss at every setting; positions weighted by ``weights`` (T,)."""
        ...

    def outcome(self, at: int) -> Outcome:
        """What happens at every position at setting number ``at`` of the curve."""
        ...


@dataclass(frozen=True)
class SweptRule:
    """A deferral rule, or the optimum: every threshold, after the fact."""

    sweep: Sweep
    tv: Floats
    draft: Floats
    target: Floats

    def curve(self, weights: Floats | None = None) -> Curve:
        return self.sweep.curve(self.tv, self.draft, self.target, weights)

    def outcome(self, at: int) -> Outcome:
        return self.sweep.outcome(at, self.tv, self.draft, self.target)


@dataclass(frozen=True)
class FixedRule:
    """A rule at the settings that were fixed when measuring."""

    outcomes: dict[str, Outcome]

    def curve(self, weights: Floats | None = None) -> Curve:
        def mean(values: Floats) -> float:
            if weights is None:
                return float(values.mean())
            # An infinite loss at a position that a draw leaves out counts for nothing.
            return float(values[weights > 0] @ weights[weights > 0] / weights.sum())

        return Curve(
            np.array(list(self.outcomes)),
            np.array([mean(outcome.rejection) for outcome in self.outcomes.values()]),
            np.array([mean(outcome.loss) for outcome in self.outcomes.values()]),
        )

    def outcome(self, at: int) -> Outcome:
        return list(self.outcomes.values())[at]


@dataclass(frozen=True)
class Choice:
    """One rule at one setting.

    quality : 1 - loss for the 0-1 losses, -loss (mean log-probability, nats) for the log loss
    rejection : mean probability that a draft token is rejected
    setting : None of the optimum, which has none
    speedup, gamma : in the i.i.d. approximation, where a price is known
    """

    rule: str
    setting: float | str | None
    quality: Interval[float]
    rejection: Interval[float]
    speedup: Interval[float] | None
    gamma: int | None


@dataclass(frozen=True)
class Summary:
    """A rule over all its settings.

    regret : mean over budgets of the loss above the optimum's (``sweep.mean_regret``); negative
        where a rule that cuts single tokens beats every deferral rule
    within : best quality within each budget that was asked for
    """

    regret: Interval[float]
    within: tuple[Interval[float], ...]


@dataclass(frozen=True)
class Comparison:
    """Every rule on one workload, under one loss."""

    positions: LabelledPositions
    loss: Loss
    rules: dict[str, MeasuredRule]
    best: SweptRule
    prices: BlockPrices | None = None

    @staticmethod
    def of(
        positions: LabelledPositions,
        loss: Loss,
        decide_on: DecideOn,
        prices: BlockPrices | None = None,
    ) -> Comparison:
        """All rules that the columns allow.  ``decide_on``: what deferral rules look at."""
        draft, target = positions.losses(loss)
        tv = positions.tv
        rules: dict[str, MeasuredRule] = {
            name: SweptRule(sweep, tv, draft, target)
            for name, sweep in sweeps(positions, decide_on).items()
        }
        rules["Lossless"] = FixedRule({"": Outcome(tv, target)})
        rules |= {name: FixedRule(settings) for name, settings in positions.fixed(loss).items()}
        best = SweptRule(optimum(tv, draft, target), tv, draft, target)
        return Comparison(positions, loss, rules, best, prices)

    def quality(self, loss: Floats | float) -> Floats:
        """The larger the better, from a loss; and back."""
        return np.asarray(-np.asarray(loss) if self.loss == "log" else 1.0 - np.asarray(loss))

    @property
    def draft_loss(self) -> float:
        """Mean loss of the draft alone, which rejects nothing."""
        return float(self.best.draft.mean())

    @property
    def target_loss(self) -> float:
        """Mean loss of the target, whose rejection is mean TV."""
        return float(self.best.target.mean())

    def least_rejection(self, quality: float) -> dict[str, Choice | None]:
        """By rule, the setting of least rejection with at least this quality; None: none has it.

        Fewer rejections are faster at any price, so this is also the fastest one.
        """
        wanted = float(self.quality(quality)) + _ROUNDING
        return self._by_rule(lambda curve: np.where(curve.loss <= wanted, curve.rejection, np.inf))

    def best_quality(self, speedup: float) -> dict[str, Choice | None]:
        """By rule, the setting of best quality with at least this speedup; None: none has it."""
        if self.prices is None:
            raise InvalidArgumentError("speedup needs a price: the cost of draft and verification")
        prices = self.prices

        def loss_if_fast(curve: Curve) -> Floats:
            fast = prices.speedup(_rate(curve.rejection))[0] >= speedup - _ROUNDING
            return np.where(fast, curve.loss, np.inf)

        return self._by_rule(loss_if_fast)

    def _by_rule(self, cost: Callable[[Curve], Floats]) -> dict[str, Choice | None]:
        """By rule, its setting of least cost; infinite cost is refused."""
        found: dict[str, Choice | None] = {}
        for name, rule in self.rules.items():
            costs = cost(rule.curve())
            at = int(costs.argmin())
            found[name] = self.at(name, at) if np.isfinite(costs[at]) else None
        return found

    def at(self, name: str, at: int) -> Choice:
        """Rule ``name`` at setting number ``at`` of its curve, with intervals."""
        rule = self.rules[name]
        outcome = rule.outcome(at)
        sizes, bootstrap = np.diff(self.positions.starts), self._bootstrap()
        both = self.positions.by_request(np.stack([outcome.rejection, outcome.loss]))
        rejection, loss = bootstrap.sums(both.T).T / bootstrap.sums(sizes)
        mean_rejection, mean_loss = outcome.rejection.mean(), outcome.loss.mean()
        speedup, gamma = self._speedup(mean_rejection, rejection, bootstrap)
        return Choice(
            rule=name,
            setting=rule.curve().setting[at].item(),
            quality=bootstrap.around(self.quality(mean_loss), self.quality(loss)),
            rejection=bootstrap.around(mean_rejection, rejection, 0.0, 1.0),
            speedup=speedup,
            gamma=gamma,
        )

    def optimum(
        self, *, quality: float | None = None, rejection: float | None = None
    ) -> Choice | None:
        """With this quality the least mean rejection that any deferral rule can have it with, or
        with this mean rejection the best quality; None: no deferral rule has this quality.  What
        is given has no width.
        """

        def at(curve: Curve) -> tuple[float, float]:
            if rejection is not None:
                return float(self.quality(frontier(curve, rejection))), rejection
            assert quality is not None, "or a rejection"
            return quality, _least_rejection(curve, float(self.quality(quality)) + _ROUNDING)

        best_quality, best_rejection = at(self.best.curve())
        if np.isnan(best_rejection):
            return None
        bootstrap = self._bootstrap(_CURVE_DRAWS)
        weights = bootstrap.weights(np.diff(self.positions.starts))
        qualities, rejections = np.array([at(self.best.curve(each)) for each in weights]).T
        # Draws in which nothing has this quality say nothing of how fast what has it is.
        known = rejections[np.isfinite(rejections)]
        speedup, gamma = self._speedup(best_rejection, np.resize(known, DRAWS), bootstrap)
        return Choice(
            rule=OPTIMUM,
            setting=None,
            quality=bootstrap.around(best_quality, qualities),
            rejection=bootstrap.around(best_rejection, known, 0.0, 1.0),
            speedup=speedup,
            gamma=gamma,
        )

    def _speedup(
        self, mean_rejection: float, rejection: Floats, bootstrap: Bootstrap
    ) -> tuple[Interval[float] | None, int | None]:
        """And the draft length that gives it; None where no price is known.

        rejection : as far as requests leave it open, shape (DRAWS,)
        """
        if self.prices is None:
            return None, None
        mean_speed, gammas = self.prices.speedup(_rate(mean_rejection))
        gamma = int(gammas)
        # What requests add to that of prices, which have their own.
        of_both, of_prices = (
            self.prices.drawn_speedup(each, gamma)
            for each in (_rate(rejection), np.full(DRAWS, _rate(mean_rejection)))
        )
        drawn_speed = of_prices * (of_both / of_prices) ** bootstrap.wider
        return around(mean_speed, drawn_speed), gamma

    def optimum_rejection(self, quality: float) -> float | None:
        """Least mean rejection with which any deferral rule can have this quality."""
        least = _least_rejection(self.best.curve(), float(self.quality(quality)) + _ROUNDING)
        return None if np.isnan(least) else least

    def optimum_quality(self, rejection: float) -> float:
        """Best quality that any deferral rule can have with this mean rejection."""
        return float(self.quality(frontier(self.best.curve(), rejection)))

    def summary(self, shares: Sequence[float] = ()) -> dict[str, Summary]:
        """By rule, the optimum first: regret, and the quality within budgets of rejection.

        shares : budgets, as shares of the target's own rejection (mean TV)
        """
        sizes = np.diff(self.positions.starts)
        bootstrap = self._bootstrap(_CURVE_DRAWS)
        drawn = [self._summary(weights, shares) for weights in bootstrap.weights(sizes)]
        result = {}
        for name, best in self._summary(None, shares).items():
            values = np.array([figures[name] for figures in drawn])
            regret, *within = [bootstrap.around(*pair) for pair in zip(best, values.T, strict=True)]
            result[name] = Summary(regret, tuple(within))
        return result

    def _summary(self, weights: Floats | None, shares: Sequence[float]) -> dict[str, list[float]]:
        """Regret, then the quality within each budget."""
        best = self.best.curve(weights)
        start = float(np.average(self.best.draft, weights=weights))
        widest = float(np.average(self.best.tv, weights=weights))
        budgets = np.array(shares) * widest
        found = {OPTIMUM: [0.0, *self.quality(frontier(best, budgets)).tolist()]}
        for name, rule in self.rules.items():
            curve = rule.curve(weights)
            within = self.quality(best_within(curve, start, budgets)).tolist()
            found[name] = [mean_regret(curve, best, start, widest), *within]
        return found

    def _bootstrap(self, draws: int = DRAWS) -> Bootstrap:
        """Over requests; the same draws on every call."""
        requests = self.positions.requests
        if requests < 2:
            raise UnsupportedError("intervals are over requests: at least two are needed, got 1")
        return Bootstrap(requests, draws=draws)


def _least_rejection(curve: Curve, wanted: float) -> float:
    """With at most this mean loss, from the curve of ``optimum``; nan where nothing has it."""
    if curve.loss[-1] > wanted:
        return np.nan
    if frontier(curve, 0.0) <= wanted:
        return 0.0
    return float(np.interp(wanted, curve.loss[::-1], curve.rejection[::-1]))


def _rate(rejection: Floats | float) -> Floats:
    """A mean of probabilities, rounding cut off."""
    return np.clip(rejection, 0.0, 1.0)
