"""What ``optimize`` and ``evaluate`` are asked, and which of four ways answers it.

Of a scheme, where one is named; by load, where shapes, batches or a mode are; from a profile; else
from numbers.  What has no meaning on the way that is meant is refused rather than ignored.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy.typing as npt

from specsim.acceptance import AcceptanceLaw, AlphaLike
from specsim.api.progress import Progress, quiet
from specsim.checks import InvalidArgumentError, integer, refuse
from specsim.cost import Prices
from specsim.optimizers.gamma import evaluate_numbers, optimize_numbers

if TYPE_CHECKING:
    from specsim.api.by_load import LoadPlan
    from specsim.api.result import Result
    from specsim.batching.workload import Load
    from specsim.deployment.deployment import Deployment
    from specsim.profiles import Mode


@dataclass(frozen=True)
class Question:
    """All that ``optimize`` and ``evaluate`` share; None is not said."""

    alpha: AlphaLike | None
    prices: Prices
    profile: str | PathLike[str] | None = None
    temperature: float | None = None
    deployment: Deployment | None = None
    load: Load | None = None
    mode: Mode | None = None
    scheme: Any = None
    known: Any = None
    costs: Mapping[str, float] | None = None
    acceptance_law: AcceptanceLaw | None = None
    margin: float | None = None

    def optimize(
        self,
        gamma_max: int | None = None,
        candidates: Mapping[str, Any] | None = None,
        progress: Progress = quiet,
    ) -> Result:
        """The draft length that pays best, or the best of the candidates for a scheme's fields."""
        if self.scheme is not None:
            self._refuse_for_scheme({"gamma_max": gamma_max})
            from specsim.api.schemes import optimize_scheme

            return optimize_scheme(
                self.scheme,
                candidates or {},
                self.alpha,
                self.prices,
                known=self.known,
                costs=self.costs,
            )
        self._refuse_without_scheme({"candidates": candidates})
        if (counted := self._counted()) is not None:
            return self._echoed(counted.optimize(gamma_max, progress=progress))
        if self._by_load:
            return self._plan(progress, gamma_max=gamma_max)
        self._refuse_without_load()
        if self.profile is not None:
            self._refuse_beside_profile({"gamma_max": gamma_max})
            from specsim.api.by_profile import optimize_profile

            return optimize_profile(Path(self.profile), self.temperature, self.acceptance_law)
        self._refuse_without_profile()
        return optimize_numbers(self.alpha, self.prices, gamma_max)

    def evaluate(self, gamma: npt.ArrayLike | None = None, progress: Progress = quiet) -> Result:
        """What drafting ``gamma`` tokens gives, or the scheme, which says that itself."""
        if self.scheme is not None:
            self._refuse_for_scheme({"gamma": gamma})
            from specsim.api.schemes import evaluate_scheme

            return evaluate_scheme(
                self.scheme, self.alpha, self.prices, known=self.known, costs=self.costs
            )
        self._refuse_without_scheme({})
        if gamma is None:
            raise InvalidArgumentError("gamma is missing, a whole number >= 0")
        if (counted := self._counted()) is not None:
            return self._echoed(counted.evaluate(gamma, progress))
        if self._by_load:
            return self._plan(progress, gamma=integer("gamma", gamma))
        self._refuse_without_load()
        if self.profile is not None:
            self._refuse_beside_profile({})
            from specsim.api.by_profile import evaluate_profile

            length = integer("gamma", gamma)
            return evaluate_profile(
                Path(self.profile), length, self.temperature, self.acceptance_law
            )
        self._refuse_without_profile()
        return evaluate_numbers(self.alpha, self.prices, gamma)

    def _counted(self) -> Question | None:
        """The question that is meant with an acceptance file in place of a profile; else None.

        With the cost of a draft run its counts are the acceptance; without, its step times are
        the costs, at the batches that were timed.
        """
        if self.profile is None or self._by_load:
            return None
        from specsim.counts.file import is_acceptance

        path = Path(self.profile)
        if not is_acceptance(path):
            return None
        if not self.prices.said():
            from specsim.batching.workload import Load

            return replace(self, load=Load())
        refuse({"alpha": self.alpha}, "and profile exclude each other")
        refuse({"acceptance_law": self.acceptance_law}, "has no meaning with what was counted")
        from specsim.extrapolation.from_file import counted_acceptance

        acceptance = counted_acceptance(path, self.temperature)
        return replace(self, alpha=acceptance, profile=None, temperature=None)

    def _echoed(self, found: Result) -> Result:
        """The answer with the file among its inputs, beside the counts that were taken from it."""
        asked = {"profile": self.profile, "temperature": self.temperature}
        return replace(found, inputs={**found.inputs, **asked})

    @property
    def _by_load(self) -> bool:
        return not (self.deployment is None and self.load is None and self.mode is None)

    def _plan(
        self, progress: Progress, gamma_max: int | None = None, gamma: int | None = None
    ) -> LoadPlan:
        reason = "has no meaning by load: costs come from a profile, or from a deployment"
        refuse(self.prices.said(), reason)
        from specsim.api.by_load import plan_load
        from specsim.batching.source import Source
        from specsim.batching.workload import Load

        source = Source(
            self.alpha,
            self.deployment,
            self.profile,
            self.temperature,
            self.mode,
            self.acceptance_law,
        )
        return plan_load(self.load or Load(), source, gamma_max, gamma, self.margin, progress)

    def _refuse_for_scheme(self, lengths: Mapping[str, Any]) -> None:
        names = (
            *("deployment", "load", "mode", "profile", "temperature", "acceptance_law"),
            "margin",
        )
        others = {name: getattr(self, name) for name in names}
        factors = {"c_ops": self.prices.c_ops, "c_memory": self.prices.c_memory}
        refuse({**others, **factors, **lengths}, "has no meaning for a scheme")

    def _refuse_without_scheme(self, others: Mapping[str, Any]) -> None:
        refuse({**others, "known": self.known, "costs": self.costs}, "needs a scheme")

    def _refuse_without_load(self) -> None:
        refuse({"margin": self.margin}, "has a meaning by load only (--batch or --context)")

    def _refuse_without_profile(self) -> None:
        asked = {"temperature": self.temperature, "acceptance_law": self.acceptance_law}
        refuse(asked, "needs a profile")

    def _refuse_beside_profile(self, lengths: Mapping[str, Any]) -> None:
        reason = "and profile exclude each other, unless a load (--batch) is given"
        refuse({"alpha": self.alpha}, reason)
        if self.prices.said():
            from specsim.profiles import read_profile

            # An acceptance file goes with prices, so say first what is wrong with one that is cut.
            read_profile(Path(self.profile or ""))
        refuse({**self.prices.said(), **lengths}, "and profile exclude each other")
