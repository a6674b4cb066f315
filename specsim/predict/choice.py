"""The decision from a profile: the best gamma by replay, beside what the papers' formula says."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from specsim.acceptance import SurvivalAcceptance
from specsim.checks import InvalidArgumentError
from specsim.decide import Evaluation, evaluate, optimize
from specsim.predict.measured import MeasuredCost, MeasuredPrediction, predict
from specsim.profiles import Acceptance, Profile
from specsim.traces import Trace


@dataclass(frozen=True)
class Workload:
    """One sampling setting of a profile, ready to be asked."""

    profile: Profile
    measured: Acceptance
    trace: Trace
    cost: MeasuredCost

    @staticmethod
    def all_of(profile: Profile, path: Path, temperature: float | None) -> list[Workload]:
        """The settings with this temperature, or all of them."""
        return [
            Workload(
                profile=profile,
                measured=measured,
                trace=profile.trace(path, measured),
                cost=MeasuredCost.of(
                    profile.run_times, profile.overhead, measured.sampling.temperature
                ),
            )
            for measured in profile.sampled(temperature)
        ]

    @property
    def context(self) -> float:
        """Mean tokens in the cache, where the papers' c is read off."""
        return float(self.trace.columns["context"].mean()) - 1

    @property
    def draft_cost(self) -> float:
        """The papers' c."""
        return self.cost.draft_cost(self.context)

    @property
    def parameter_ratio(self) -> float:
        """Draft over target: operations and bytes are about proportional to parameters."""
        return self.profile.draft.parameters / self.profile.target.parameters

    def predict(self, gammas: Sequence[int]) -> list[MeasuredPrediction]:
        """By replay of the trace and the measured run times."""
        limit = self.profile.gamma_max
        if max(gammas) > limit:
            raise InvalidArgumentError(
                f"gamma must be in [0, {limit}] with this profile, got {max(gammas)}; "
                "calibrate with a larger --gamma-max"
            )
        return predict(self.trace, self.cost, gammas)

    def best(self) -> MeasuredPrediction:
        """The gamma with the highest predicted speedup; 0 is plain decoding."""
        predictions = self.predict(range(self.profile.gamma_max + 1))
        return max(predictions, key=lambda prediction: (prediction.speedup, -prediction.gamma))

    def formula(self, gamma: int) -> float:
        """Speedup by the papers' formula: alpha and c alone."""
        alpha = self.measured.alpha.best
        return float(evaluate(alpha=alpha, c=self.draft_cost, gamma=gamma).speedup)

    def formula_best(self) -> Evaluation:
        """What the papers' formula would choose."""
        return optimize(
            alpha=self.measured.alpha.best, c=self.draft_cost, gamma_max=self.profile.gamma_max
        )

    def factors(self, gamma: int) -> Evaluation:
        """Operations, memory accesses and the oracle from the measured survival curve."""
        curve = np.minimum.accumulate([rate.best for rate in self.measured.survival])
        one = self.cost.target(1, np.array([self.context]))[0]
        return evaluate(
            acceptance=SurvivalAcceptance(tuple(curve.tolist())),
            c=self.draft_cost,
            gamma=gamma,
            c_ops=self.parameter_ratio,
            c_memory=self.parameter_ratio,
            verify_cost=self.cost.verify_curve(self.profile.gamma_max, self.context),
            overhead=self.cost.overhead(gamma) / one,
        )

    def row(self, prediction: MeasuredPrediction) -> dict[str, object]:
        """The result row of a prediction."""
        factors = self.factors(prediction.gamma)
        formula = self.formula_best()
        return {
            "temperature": self.measured.sampling.temperature,
            "gamma": prediction.gamma,
            "speedup": prediction.speedup,
            "speedup_low": prediction.low,
            "speedup_high": prediction.high,
            "tokens_per_call": prediction.tokens_per_call,
            "operations_factor": factors.operations_factor,
            "memory_factor": factors.memory_factor,
            "oracle_speedup": factors.oracle_speedup,
            "at_gamma_max": prediction.gamma == self.profile.gamma_max,
            "alpha": self.measured.alpha.best,
            "c": self.draft_cost,
            "formula_gamma": formula.gamma,
            "formula_speedup": self.formula(prediction.gamma),
        }
