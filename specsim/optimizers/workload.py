"""The decision from a profile: the best gamma by replay, beside what the papers' formula says."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from specsim.acceptance import AcceptanceLaw
from specsim.checks import InvalidArgumentError
from specsim.cost import Prices
from specsim.formulas import speedup
from specsim.optimizers.evaluation import Evaluation
from specsim.optimizers.gamma import optimize_numbers
from specsim.predict.elasticity import Elasticities, Elasticity
from specsim.predict.measured import MeasuredCost, MeasuredPrediction, choose, predict
from specsim.predict.replay.fixed_gamma import block_survival, drafted_tokens, replay
from specsim.predict.trace_rates import measured_under
from specsim.profiles import MeasuredAcceptance, Profile
from specsim.traces import Trace


@dataclass(frozen=True)
class Workload:
    """One sampling setting of a profile, ready to be asked."""

    profile: Profile
    measured: MeasuredAcceptance
    trace: Trace
    cost: MeasuredCost

    @staticmethod
    def all_of(
        profile: Profile,
        path: Path,
        temperature: float | None,
        law: AcceptanceLaw | None = None,
    ) -> list[Workload]:
        """The settings with this temperature, or all of them, under this law or the profile's."""
        found = profile.sampled(temperature)
        return [
            Workload(
                profile=profile,
                measured=measured,
                trace=profile.trace(path, measured),
                cost=MeasuredCost.of(
                    profile.run_times,
                    profile.overhead,
                    measured.sampling.temperature,
                    profile.by_lookup,
                ),
            )
            for measured in (measured_under(profile, path, each, law) for each in found)
        ]

    @property
    def context(self) -> float:
        """Mean tokens in the cache, where the papers' c is read off."""
        return float(self.trace.columns["context"].mean()) - 1

    @property
    def draft_cost(self) -> float:
        """The papers' c; 0 of prompt lookup, which has no draft runs."""
        return self.cost.draft_cost(self.context)

    @property
    def plain_s(self) -> float:
        """Seconds a token of plain decoding."""
        return float(self.cost.plain_seconds(self.trace).sum()) / self.trace.tokens

    def elasticity(self, gamma: int) -> Elasticity:
        """By how many per cent the speedup is higher where plain decoding takes 1 % longer."""
        if gamma == 0:
            return Elasticity(0.0, 0.0)
        cost = self.cost
        (replayed,) = replay(self.trace, [gamma])
        plain = cost.price(cost.plain_spent(self.trace))
        spent = cost.spent(self.trace, replayed, self.measured.max_new_tokens)
        moves = Elasticities.of(
            self.profile.run_times, self.profile.overhead, self.measured.sampling.temperature
        )
        return moves.speedup(
            plain.sum(axis=1), cost.price(spent).sum(axis=1), cost.undrafted_s(spent).sum()
        )

    def predict(
        self, gammas: Sequence[int], drift: float | None = None
    ) -> list[MeasuredPrediction]:
        """By replay of the trace and the measured run times.

        drift : as of ``specsim.predict.measured.predict``; None is the profile's
        """
        limit = self.profile.gamma_max
        if max(gammas) > limit:
            raise InvalidArgumentError(
                f"gamma must be in [0, {limit}] with this profile, got {max(gammas)}; "
                "calibrate with a larger --gamma-max"
            )
        return predict(
            self.trace,
            self.cost,
            gammas,
            self.measured.max_new_tokens,
            drift=self.profile.drift if drift is None else drift,
        )

    def best(self) -> MeasuredPrediction:
        """The gamma with the smallest expected regret (``specsim.predict.measured.choose``); 0 is
        plain decoding.
        """
        return choose(self.predict(range(self.profile.gamma_max + 1)))

    def formula(self, gamma: int) -> float:
        """Speedup by the papers' formula: the profile's alpha and c alone.

        That alpha is the mean over the tokens of the trace.  Where acceptance differs from place
        to place the formula promises too much at it (``specsim.extrapolation.mixtures``): its own
        alpha is one for all places.
        """
        return float(speedup(self.measured.alpha.best, self.draft_cost, gamma))

    def formula_best(self) -> Evaluation:
        """What the papers' formula would choose."""
        alpha, prices = self.measured.alpha.best, Prices(self.draft_cost)
        return optimize_numbers(alpha, prices, self.profile.gamma_max)

    def oracle_speedup(self) -> float:
        """Speedup if each block drafted just what will be accepted, at most gamma_max tokens.

        Its blocks start where those of gamma_max drafts do, as both end at the first rejection; run
        times and overhead as in the prediction, at the mean context.  A block that drafts J tokens
        has P(J >= i) = S_i, so its expected cost is a sum over i of what the i-th token adds.
        Where that does not pay it drafts nothing, a speedup of one.
        """
        longest = self.profile.gamma_max
        (replayed,) = replay(self.trace, [longest])
        curve = block_survival(self.trace, replayed)[1:]
        lengths = range(longest + 1)
        blocks = np.array([self.cost.block(length, self.context) for length in lengths])
        spent = blocks[0] + curve @ np.diff(blocks)
        return max(1.0, float(replayed.tokens_per_call * blocks[0] / spent))

    def forecast(self, prediction: MeasuredPrediction) -> Forecast:
        """The prediction beside the formula and the oracle."""
        gamma, drafted = prediction.gamma, self._drafted(prediction)
        # Operations and bytes are about proportional to parameters.
        ratio = self.profile.draft.parameters / self.profile.target.parameters
        formula = self.formula_best()
        return Forecast(
            temperature=self.measured.sampling.temperature,
            acceptance_law=self.measured.acceptance_law,
            gamma=gamma,
            speedup=prediction.speedup,
            speedup_low=prediction.low,
            speedup_high=prediction.high,
            tokens_per_call=prediction.tokens_per_call,
            operations_factor=(drafted * (1 + ratio) + 1) / prediction.tokens_per_call,
            memory_factor=(gamma * ratio + 1) / prediction.tokens_per_call,
            oracle_speedup=self.oracle_speedup(),
            at_gamma_max=gamma == self.profile.gamma_max,
            alpha=self.measured.alpha.best,
            c=self.draft_cost,
            formula_speedup=self.formula(gamma),
            formula_gamma=formula.gamma,
            formula_best_speedup=formula.speedup,
            plain_ms_per_token=1e3 * self.plain_s,
            elasticity=self.elasticity(gamma).best,
        )

    def _drafted(self, prediction: MeasuredPrediction) -> float:
        """Tokens that a block drafts: of a lookup the mean of what it finds, else all of gamma."""
        if not self.trace.by_lookup:
            return prediction.gamma
        (replayed,) = replay(self.trace, [prediction.gamma])
        drafted = drafted_tokens(self.trace, prediction.gamma)
        return float(replayed.starts @ drafted / replayed.total_calls)


@dataclass(frozen=True)
class Forecast:
    """One draft length at one temperature of a profile.

    acceptance_law : how drafts are accepted
    gamma : draft tokens per target call
    speedup, speedup_low, speedup_high : by replay and measured run times, with 95 % interval
    tokens_per_call : the recovered or bonus token counted
    operations_factor, memory_factor : per token, against plain decoding; operations and bytes read
        are taken to be proportional to parameters
    oracle_speedup : if each block drafted just what will be accepted
    at_gamma_max : whether gamma is the longest that the profile knows
    alpha, c : acceptance rate, mean over the tokens of the trace, and draft cost, as the papers'
        formula takes them
    formula_speedup : what that formula says of this gamma
    formula_gamma, formula_best_speedup : what it would choose, and what it promises
    plain_ms_per_token : of plain decoding, in the calibration
    elasticity : by how many per cent the speedup is higher where that takes 1 % longer
    """

    temperature: float
    acceptance_law: AcceptanceLaw
    gamma: int
    speedup: float
    speedup_low: float
    speedup_high: float
    tokens_per_call: float
    operations_factor: float
    memory_factor: float
    oracle_speedup: float
    at_gamma_max: bool
    alpha: float
    c: float
    formula_speedup: float
    formula_gamma: int
    formula_best_speedup: float
    plain_ms_per_token: float
    elasticity: float
