"""Where acceptance and costs by load come from.

Costs come from a deployment, with nothing measured, from the batch grid of a profile, or from the
step times of an engine; acceptance is given, is the profile's own, replayed exactly, or is what the
engine counted.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cache, partial
from math import hypot, isnan, sqrt
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from specsim.acceptance import (
    Acceptance,
    AcceptanceLaw,
    AlphaLike,
    acceptance_of,
    notes_on,
)
from specsim.batching.acceptance_error import Ends, ends_of, ends_of_replays
from specsim.batching.cost import LoadCost
from specsim.batching.deployed import GAMMA_MAX, gamma_limit, of_deployment
from specsim.batching.measured_cost import MeasuredLoadCost
from specsim.batching.step_cost import StepLoadCost
from specsim.batching.step_error import StepError
from specsim.batching.tokens_per_block import TokensPerBlock
from specsim.batching.workload import Basis, BatchWorkload, no_notes
from specsim.checks import InvalidArgumentError, UnsupportedError, integer, refuse
from specsim.counts.file import AcceptanceFile, is_acceptance, read_acceptance
from specsim.deployment.deployment import Deployment
from specsim.extrapolation.from_file import check_temperature, counted_acceptance
from specsim.predict.trace_rates import measured_under
from specsim.profiles import MeasuredAcceptance, Mode, Profile, read_profile

if TYPE_CHECKING:
    from specsim.hardware.run_time_error import FitError
    from specsim.hardware.run_time_fit import GridPoint
    from specsim.predict.replay.fixed_gamma import Replay


@dataclass(frozen=True)
class Source:
    """Where acceptance and costs by load come from: a deployment with an acceptance, a profile, or
    both from an acceptance file, whose counts a deployment may price.

    alpha : acceptance; None is the profile's
    profile : of ``specsim.calibrate``, or an acceptance file of ``specsim.read``
    temperature : one of the profile's; None is all
    mode : how the profile's models ran; None is compiled, where that was measured
    acceptance_law : how drafts are accepted; None is as the profile's rates are, other laws are
        read off its trace
    """

    alpha: AlphaLike | None = None
    deployment: Deployment | None = None
    profile: str | PathLike[str] | None = None
    temperature: float | None = None
    mode: Mode | None = None
    acceptance_law: AcceptanceLaw | None = None

    def check(self) -> None:
        """Refuse what would have no effect, whether drafts are made or not."""
        if self.profile is None:
            for name in ("temperature", "mode", "acceptance_law"):
                if getattr(self, name) is not None:
                    raise InvalidArgumentError(f"{name} needs a profile")
        elif is_acceptance(Path(self.profile)):
            refuse(
                {"mode": self.mode, "acceptance_law": self.acceptance_law},
                f"has no meaning with {self.profile}, which an engine counted",
            )
        elif self.deployment is not None:
            # A file that is not there, or is nothing of specsim's, is said to be that.
            read_profile(Path(self.profile))
            raise InvalidArgumentError(
                "deployment (target, drafter, accelerator) and profile exclude each other"
            )

    def workloads(self, gamma_max: int | None = None) -> list[BatchWorkload]:
        """The settings to plan for: one for each drafter, or for each temperature of a profile."""
        self.check()
        if self.profile is not None:
            if is_acceptance(Path(self.profile)):
                return self._counted(Path(self.profile), gamma_max)
            return _of_profile(self, Path(self.profile), gamma_max)
        if self.deployment is None:
            raise InvalidArgumentError(
                "profile is missing, or a deployment (target, drafter and accelerator): what runs "
                "cost depends on the batch"
            )
        return of_deployment(self.deployment, self.alpha, gamma_max)

    def _counted(self, path: Path, gamma_max: int | None) -> list[BatchWorkload]:
        """What an engine counted, priced by a deployment or by its own step times."""
        file = read_acceptance(path)
        check_temperature(path, file, self.temperature)
        alpha = self.alpha
        if alpha is None:
            alpha = counted_acceptance(path, self.temperature)
        elif self.deployment is not None:
            raise InvalidArgumentError("alpha and profile exclude each other with a deployment")
        found = (
            [_of_steps(path, file, alpha, gamma_max)]
            if self.deployment is None
            else of_deployment(self.deployment, alpha, gamma_max)
        )
        return [
            replace(
                each,
                temperature=file.temperature,
                # Rates that were typed are of nobody's law.
                acceptance_law=None if self.alpha is not None else file.acceptance_law,
                method=file.method,
            )
            for each in found
        ]


def _of_profile(source: Source, path: Path, gamma_max: int | None) -> list[BatchWorkload]:
    """From a profile with run times of batches; one setting for each of its temperatures."""
    alpha = source.alpha
    profile = read_profile(path)
    if profile.by_lookup:
        refuse(
            {"alpha": alpha, "mode": source.mode},
            f"has no meaning with {path}, a profile of prompt lookup: what a block drafts is read "
            "off its trace, and its target ran as written",
        )
        from specsim.batching.lookup_cost import of_lookup  # loads scipy

        return of_lookup(profile, path, source.temperature, gamma_max)

    context = min(profile.target.context, profile.draft.context)
    errors: dict[tuple[GridPoint, ...], FitError] = {}  # of one grid at every temperature
    costs: list[MeasuredLoadCost] = []

    def workload(temperature: float, measured: MeasuredAcceptance | None) -> BatchWorkload:
        cost = (
            costs[0].at(profile, temperature)  # a fit takes a second
            if costs
            else MeasuredLoadCost.of(profile, temperature, source.mode)
        )
        costs.append(cost)
        reach = cost.longest - 1
        notes: Callable[[int], tuple[str, ...]] = no_notes
        if measured is None:
            assert alpha is not None
            acceptance = acceptance_of(alpha)
            longest = gamma_limit(gamma_max, acceptance, min(GAMMA_MAX, reach))
            survival = acceptance.survival(max(longest, 1))[1:]
            replay = cache(partial(TokensPerBlock.of_acceptance, acceptance, longest))
            ends = partial(_given_ends, alpha, acceptance, replay)
            notes = partial(notes_on, alpha, acceptance)
        else:
            survival = np.array([rate.best for rate in measured.survival])
            usual = min(GAMMA_MAX, reach, survival.size)
            longest = usual if gamma_max is None else integer("gamma_max", gamma_max)
            replays = cache(partial(_replays, profile, path, measured, longest))
            replay = cache(lambda: TokensPerBlock.of_replays(replays()))
            ends = partial(_replayed_ends, replays, replay)
        _check_reach(longest, cost, "calibrate with a larger one")
        return BatchWorkload(
            survival=survival,
            replay=replay,
            cost=cost,
            gamma_max=longest,
            temperature=temperature,
            context=context,
            # Of a shape no engine can load anything.
            draft_name=None if profile.draft.config is not None else profile.draft.name,
            doubts=tuple(profile.warnings),
            acceptance_law=None if measured is None else measured.acceptance_law,
            notes=notes,
            ends=ends,
            basis=Basis(
                "measured run times",
                error=partial(_grid_error, cost, errors, 1.96 * profile.drift),
                drawn=partial(_drawn, profile, temperature, cost),
            ),
        )

    if alpha is not None:
        if source.acceptance_law is not None:
            raise InvalidArgumentError(
                "acceptance_law has no meaning beside alpha, which says what is accepted"
            )
        known = sorted({row.temperature for row in profile.batch_overhead})
        chosen = [each for each in known if source.temperature in (None, each)]
        return [workload(each, None) for each in chosen or [source.temperature or 0.0]]
    if not profile.acceptance:
        raise InvalidArgumentError("alpha is missing: the profile has costs and no acceptance")
    return [
        workload(
            each.sampling.temperature, measured_under(profile, path, each, source.acceptance_law)
        )
        for each in profile.sampled(source.temperature)
    ]


def _of_steps(
    path: Path, file: AcceptanceFile, alpha: AlphaLike, gamma_max: int | None
) -> BatchWorkload:
    """From the step times of an engine; the longest draft is the longest that was timed."""
    steps = [step for step in file.step_times() if step.gamma is not None]
    if not steps and not file.streamed:
        raise UnsupportedError(
            f"{path} has no step times{' of a known draft length' if file.steps else ''}: give "
            "a deployment (target, drafter, accelerator), or c (a draft run over a target run), or "
            "read benchmarks of the engine with and without drafts"
        )
    whole = [replace(step, batch=max(1, round(step.batch))) for step in steps]
    prompts, streamed = file.prompt_times(), file.streamed_steps()
    cost = StepLoadCost.of(whole, prompts, streamed)
    acceptance = acceptance_of(alpha)
    longest = gamma_limit(gamma_max, acceptance, cost.longest - 1)
    _check_reach(longest, cost, "read a benchmark with longer drafts")
    timed = ", ".join(map(str, cost.steps.gammas))
    others = "others are on straight lines, at no less than a plain step"
    if len(cost.drafted) == 1:
        others = (
            f"shorter drafts are taken to cost as much as {cost.drafted[0]}: time a second length"
        )
    doubts = [f"steps were timed with {timed} draft tokens; {others}"]
    means = {f"{step.batch:g}": f"{at.batch:g}" for step, at in zip(steps, whole, strict=True)}
    if rounded := [f"{mean} as {at}" for mean, at in means.items() if mean != at]:
        doubts.append(f"mean batches of steps are taken as whole ones, {', '.join(rounded)}")
    if left_out := len(file.steps) - len(steps):
        doubts.append(f"left out: step times whose draft length is not known, {left_out} of them")
    if cost.contexts == (0,):
        doubts.append(
            "the engine does not tell the context of its steps, shown as 0; steps of every context "
            "are taken to cost as much"
        )
    replay = cache(partial(TokensPerBlock.of_acceptance, acceptance, longest))
    return BatchWorkload(
        survival=acceptance.survival(max(longest, 1))[1:],
        replay=replay,
        cost=cost,
        gamma_max=longest,
        doubts=tuple(doubts),
        notes=partial(notes_on, alpha, acceptance),
        ends=partial(_given_ends, alpha, acceptance, replay),
        basis=Basis("step times of the engine", error=StepError(whole, prompts, streamed)),
    )


def _replays(
    profile: Profile, path: Path, measured: MeasuredAcceptance, gamma_max: int
) -> list[Replay]:
    from specsim.predict.replay.fixed_gamma import replay  # loads scipy

    return replay(profile.trace(path, measured), range(gamma_max + 1))


def _replayed_ends(
    replays: Callable[[], list[Replay]], gains: Callable[[], TokensPerBlock]
) -> Ends | None:
    return ends_of_replays(replays(), gains())


def _given_ends(
    alpha: AlphaLike, acceptance: Acceptance, gains: Callable[[], TokensPerBlock]
) -> Ends | None:
    return ends_of(alpha, acceptance, gains())


def _drawn(profile: Profile, temperature: float, cost: MeasuredLoadCost) -> LoadCost:
    from specsim.batching.drawn_cost import DrawnLoadCost  # loads scipy

    return DrawnLoadCost.of(profile, temperature, cost)


# A plain step and a round each err as runs do that the fit has not seen.  Of normal errors the
# median is 0.6745 standard deviations, and 95 % of the differences of two lie within 1.96 sqrt(2).
_MEDIANS = 1.96 * sqrt(2.0) / 0.6745


def _grid_error(
    cost: MeasuredLoadCost,
    known: dict[tuple[GridPoint, ...], FitError],
    drift: float,
    batch: int,
    context: float,
) -> float | None:
    """Half of the 95 % interval that run times of a grid leave a speedup, as a share of it.

    What repeats leave open of timed cells is told by draws of them, and the drift is left; others
    err as the target's fit does at
    batches and contexts that it has not seen, and by no more than what was timed on either side
    allows.  None where a single batch or context was timed, and another one is asked for.

    drift : half of what the machine's drift leaves open, everywhere
    """
    from specsim.hardware.run_time_error import FitError  # loads scipy

    points = cost.target.points
    if any((point.batch, point.context) == (batch, context) for point in points):
        return drift
    for asked, timed in (
        (batch, {point.batch for point in points}),
        (context, {point.context for point in points}),
    ):
        if len(timed) == 1 and asked not in timed:
            return None
    if points not in known:
        known[points] = FitError(cost.target)
    error = known[points]
    median, _ = error.between if cost.covers(batch, context) else error.beyond
    most = error.most(batch, context)
    return hypot(most if isnan(median) else min(_MEDIANS * median, most), drift)


def _check_reach(longest: int, cost: LoadCost, remedy: str) -> None:
    """Refuse drafts longer than were timed."""
    if longest >= cost.longest:
        raise InvalidArgumentError(
            f"gamma_max must be <= {cost.longest - 1} with this profile, got {longest}; {remedy}"
        )
