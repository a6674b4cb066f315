"""How close an engine gets to the peaks, from the seconds of its steps.

A step of a round is priced by ``DeployedCost``,

    seconds = draft runs + target run + t_step + t_round (with drafts only),

each run a roofline with the shares eta_f and eta_b of the peaks and t_layer a layer.  These five
are the least squares of log(priced / timed) with a normal prior on their logarithms, so that few
steps move only what they tell of.  Steps that jump away from that law (``find_cliff``) ran behind
the largest CUDA graph; they say what a layer costs there and are kept out of the five.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import ceil, exp, sqrt

import numpy as np
import numpy.typing as npt
from scipy.optimize import least_squares
from scipy.stats import t as student

from specsim.checks import Floats, UnsupportedError
from specsim.counts.steps import StepTime
from specsim.deployment.cliff import JUMP, Mask, find_cliff
from specsim.deployment.cost import DeployedCost, Runs
from specsim.deployment.deployment import Deployment, HostTime
from specsim.deployment.drafters import Drafter
from specsim.hardware.roofline import PEAK, USUAL, Efficiency
from specsim.hardware.roofline_fit import parts_s

# Typical values and the standard deviations of their logarithms, about what the data sets behind
# ``USUAL`` give: 2 to 12 us a layer, 0.3 to 2.8 ms a step and 0.8 to 3.8 ms a round.  Such times
# vary between engines by factors.
_TYPICAL = np.log([USUAL.compute, USUAL.memory, 5e-6, 1e-3, 1e-3])
_ELSEWHERE = _TYPICAL + np.array([-1.0, -1.0, 1.0, 1.0, 1.0])
_SPREAD = np.array([0.4, 0.25, 1.0, 1.0, 1.0])
_LOWEST = np.log([1e-5, 1e-5, 1e-9, 1e-9, 1e-9])
_HIGHEST = np.log([1.0, 1.0, 1.0, 10.0, 10.0])
# Deviations of timed steps from such a law, as a share: what the prior is weighed against.
_SCATTER = 0.02
# Ratios that an error is estimated from, at least.
_RATIOS = 3
# Steps are left out one by one, or in so many shares where there are more.
_FOLDS = 20
# Tokens in the cache, where the steps do not tell.
USUAL_CONTEXT = 512


@dataclass(frozen=True)
class TimedSteps:
    """Steps of one deployment with one drafter.

    whole : whether host time is in them; ``vllm bench forward`` times forward runs alone
    """

    deployment: Deployment
    drafter: Drafter | None
    steps: Sequence[StepTime]
    whole: bool = True


@dataclass(frozen=True)
class StepFit:
    """What steps tell of an engine.

    error : half of a 95 % interval of a speedup, as a share of it, from steps that were left out
        of the fit; None: too few
    held_out : log(priced / timed) of every step, priced by a fit without it
    """

    efficiency: Efficiency
    host: HostTime
    error: float | None
    held_out: tuple[float, ...]


def fit_steps(timed: Sequence[TimedSteps]) -> StepFit:
    """The efficiencies and host times with the least squares, of all steps together.

    Raises UnsupportedError where no step can be priced.
    """
    priced = _Priced.of([each for part in timed for each in _cases(part)])
    hosted = bool(priced.host.any())
    tokens, seconds = priced.tokens, priced.seconds

    def smooth(known: Mask) -> Floats:
        return priced.at(_solve(priced, known, hosted))

    edge = find_cliff(tokens, seconds, smooth)
    inside = np.ones(tokens.size, dtype=bool) if edge is None else tokens <= edge
    x = _solve(priced, inside, hosted)
    efficiency, host = _named(x)
    if edge is not None:
        law = priced.at(x)
        jumped = ~inside & (seconds > JUMP * law)
        others = law - priced.target_s(x)
        eager = np.median((seconds - others)[jumped] / priced.target_layers[jumped])
        efficiency = replace(efficiency, graph_tokens=edge, eager_layer_s=float(eager))
    if not hosted:
        host = HostTime()
    held_out = _held_out(priced, inside, hosted, x)
    return StepFit(efficiency, host, _speedup_error(priced, inside, held_out), tuple(held_out))


@dataclass(frozen=True)
class _Case:
    """A timed step and its runs at the peaks, with a second a layer, so ``launch_s`` counts them.

    host : times that t_step and t_round are in it
    fixed_s : of it is known
    """

    seconds: float
    batch: int
    gamma: int
    context: float
    tokens: int
    drafts: tuple[Runs, ...]
    target: tuple[Runs, ...]
    host: tuple[float, float]
    fixed_s: float = 0.0


def _cases(timed: TimedSteps) -> list[_Case]:
    """Those that the deployment prices; steps of no known draft length are left out."""
    counting = replace(PEAK, layer_s=1.0)
    deployment = replace(timed.deployment, efficiency=counting, host=HostTime())
    steps = [step for step in timed.steps if step.gamma is not None]
    longest = max((step.gamma or 0 for step in steps), default=0) + 1
    cost = DeployedCost(deployment, timed.drafter, longest)
    found = []
    for step in steps:
        gamma, batch = step.gamma or 0, max(1, round(step.batch))
        if gamma and timed.drafter is None:
            continue
        context = USUAL_CONTEXT if step.context is None else step.context
        alone = gamma > 0 and step.draft_s == 0
        drafts: tuple[Runs, ...] = ()
        if (gamma and not alone) or (not gamma and step.drafter_loaded):
            drafts = tuple(cost.draft_runs(gamma, batch, context))
        whole = timed.whole and not alone
        positions = timed.drafter.verified(gamma) if timed.drafter and gamma else 1
        found.append(
            _Case(
                step.seconds,
                batch,
                gamma,
                context,
                _sequences(deployment, batch) * positions,
                drafts,
                tuple(cost.target_runs(gamma, batch, context)),
                (float(whole), float(whole and gamma > 0)),
                cost.lookup_s(batch) if drafts or (gamma and not alone) else 0.0,
            )
        )
    return found


def _sequences(deployment: Deployment, batch: int) -> int:
    """Of one target run: those of a group, or of a part of them in a pipeline."""
    of_group = ceil(batch / deployment.parallel.data)
    return ceil(of_group / min(deployment.parallel.pipeline, of_group))


@dataclass(frozen=True, eq=False)
class _Priced:
    """Steps as arrays, to be priced at many efficiencies.

    parts, layers, weight, owner, is_target : of runs, (runs, 3) and (runs,); the step that a run is
        in, and how often
    seconds, tokens, batch, gamma, context, host, fixed_s : of steps, (steps,) and (steps, 2)
    """

    parts: Floats
    layers: Floats
    weight: Floats
    owner: npt.NDArray[np.intp]
    is_target: Floats
    seconds: Floats
    tokens: Floats
    batch: Floats
    gamma: Floats
    context: Floats
    host: Floats
    fixed_s: Floats

    @staticmethod
    def of(cases: Sequence[_Case]) -> _Priced:
        if not cases:
            raise UnsupportedError(
                "no step can be priced: their draft lengths are not known, or no drafter is named"
            )
        runs = [
            (at, each, is_target)
            for at, case in enumerate(cases)
            for is_target, kind in ((0.0, case.drafts), (1.0, case.target))
            for each in kind
        ]
        return _Priced(
            np.array(
                [
                    [each.run.compute_s, each.run.memory_s, each.run.communication_s]
                    for _, each, _ in runs
                ]
            ),
            np.array([each.run.launch_s for _, each, _ in runs]),
            np.array([each.count * each.turns for _, each, _ in runs]),
            np.array([at for at, _, _ in runs]),
            np.array([is_target for _, _, is_target in runs]),
            *(
                np.array([getattr(case, name) for case in cases], dtype=float)
                for name in ("seconds", "tokens", "batch", "gamma", "context", "host", "fixed_s")
            ),
        )

    def at(self, x: Floats) -> Floats:
        """Seconds of the steps at the logarithms of the five."""
        runs = self._runs_s(x)
        found: Floats = self._sum(runs) + self.host @ np.exp(x[3:]) + self.fixed_s
        return found

    def target_s(self, x: Floats) -> Floats:
        """Seconds of the target runs in them."""
        return self._sum(self._runs_s(x) * self.is_target)

    @property
    def target_layers(self) -> Floats:
        return self._sum(self.layers * self.weight * self.is_target)

    def _runs_s(self, x: Floats) -> Floats:
        return self.weight * parts_s(self.parts, self.layers, _named(x)[0])

    def _sum(self, runs: Floats) -> Floats:
        found: Floats = np.bincount(self.owner, runs, minlength=self.seconds.size).astype(float)
        return found


def _solve(priced: _Priced, known: Mask, hosted: bool, near: Floats | None = None) -> Floats:
    """Logarithms of the five; those of host times stay typical where no step has any.

    near : where the search may begin, where that is known
    """
    free = 5 if hosted else 3

    def whole(x: Floats) -> Floats:
        return np.concatenate([x, _TYPICAL[free:]])

    def misses(x: Floats) -> Floats:
        off = np.log(priced.at(whole(x))[known] / priced.seconds[known]) / _SCATTER
        return np.concatenate([off, (x - _TYPICAL[:free]) / _SPREAD[:free]])

    # The maximum in a run has a kink, so the search begins at several places.
    starts = [near[:free]] if near is not None else [_TYPICAL[:free], _ELSEWHERE[:free]]
    bounds = _LOWEST[:free], _HIGHEST[:free]
    found = [least_squares(misses, start, bounds=bounds) for start in starts]
    return whole(min(found, key=lambda each: each.cost).x)


def _named(x: Floats) -> tuple[Efficiency, HostTime]:
    compute, memory, layer_s, step_s, round_s = (float(each) for each in np.exp(x))
    return Efficiency(min(compute, 1.0), min(memory, 1.0), layer_s), HostTime(step_s, round_s)


def _held_out(priced: _Priced, inside: Mask, hosted: bool, x: Floats) -> Floats:
    """log(priced / timed), each step priced by a fit without it; nan behind the largest graph."""
    at = np.flatnonzero(inside)
    off = np.full(inside.size, np.nan)
    folds = min(at.size, _FOLDS)
    if folds < 2:
        return off
    for fold in range(folds):
        left_out = at[fold::folds]
        known = inside.copy()
        known[left_out] = False
        law = priced.at(_solve(priced, known, hosted, x))
        off[left_out] = np.log(law[left_out] / priced.seconds[left_out])
    return off


def _speedup_error(priced: _Priced, inside: Mask, off: Floats) -> float | None:
    """Half of a 95 % interval of a ratio of two steps, plain over drafted, as a share of it.

    Where both were timed alike their errors are subtracted; else they count as independent.
    """
    known = inside & np.isfinite(off)
    alike = np.column_stack([priced.batch, priced.context, priced.host[:, 0]])
    ratios = []
    for at in np.flatnonzero(known & (priced.gamma > 0)):
        plain = known & (priced.gamma == 0) & (alike == alike[at]).all(axis=1)
        if plain.any():
            ratios.append(off[at] - off[plain].mean())
    if len(ratios) < _RATIOS:
        ratios = list(sqrt(2.0) * off[known])
    if len(ratios) < _RATIOS:
        return None
    spread = sqrt(float(np.mean(np.square(ratios))))
    return exp(float(student.ppf(0.975, len(ratios))) * spread) - 1.0
