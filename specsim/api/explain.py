"""``specsim.explain``: where the time of a round goes, and why it is no faster."""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import chain
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar

from specsim.acceptance import AcceptanceLaw, AlphaLike
from specsim.api.result import LeftOut, Result, Row
from specsim.batching.changes import Change, of_deployment_here, of_load, try_all
from specsim.batching.decision import Decision, decide
from specsim.batching.deployed import alpha_of_others, of_deployment
from specsim.batching.losses import Diagnosis, diagnose
from specsim.batching.parts import Part, Step, step_of
from specsim.batching.point import DEFAULT_MARGIN, BatchPoint
from specsim.batching.workload import LONGEST, BatchWorkload
from specsim.checks import InvalidArgumentError, UnsupportedError, integer, refuse, significant
from specsim.deployment.deployment import Deployment
from specsim.intervals import Interval

if TYPE_CHECKING:
    from specsim.profiles import Mode

# Changes that are kept, of those that make a round faster.
_MOST_CHANGES = 6


@dataclass(frozen=True, kw_only=True)
class Explanation(Result):
    """Where the time of a round goes, at one draft length, batch and context.

    decision : what the round gives, and how sure that is
    round, plain : the round and a step of plain decoding, taken apart
    diagnosis : what the round loses by
    changes : what would make it faster, each alone, the largest speedup first, those that lower
        the tokens per second last; drafters that were named to compare with, whether they would
        or not

    Rows are the parts of both steps: ``ms`` adds up to the step's; ``gflops`` and ``gb`` (of the
    busiest card) are of all runs of a part, ``tokens`` and ``experts`` (of a layer) of one run.
    """

    schema: ClassVar[str] = "specsim.explanation"

    decision: Decision
    round: Step
    plain: Step
    diagnosis: Diagnosis
    changes: tuple[Change, ...]

    @property
    def point(self) -> BatchPoint:
        """What the round gives."""
        return self.decision.point

    @property
    def title(self) -> str:
        """Of a table: what is explained, and what its prices rest on."""
        workload, point = self.decision.workload, self.point
        named = f" with {workload.name}" if workload.drafter else ""
        at = f"batch {point.batch:,}, context {point.context:,.0f}"
        return f"gamma {point.gamma}{named} at {at}, {workload.basis.of_times}"

    @property
    def target_efficiency(self) -> float | None:
        """T(1) / T(K + 1) of the target's runs (MoESD, arXiv 2505.19645); None where an engine
        timed steps as a whole.
        """
        if self.plain.target is None:
            return None
        one = self.plain.seconds_of("target") + self.plain.seconds_of("communication")
        return one / self.point.spent.verify_s

    @property
    def ms_per_token(self) -> float:
        """Of a request, between its tokens in the mean."""
        return 1e3 * self.point.block_s / self.point.tokens_per_call

    @property
    def break_even_tokens_per_call(self) -> float:
        """Tokens that a round must yield to be as fast as plain decoding: it takes so many steps.

        It may be more than the gamma + 1 that a round can yield.
        """
        return self.point.block_s / self.point.spent.plain_step_s

    def rows(self) -> list[Row]:
        return [
            _row(name, part, step.seconds)
            for name, step in (("round", self.round), ("plain step", self.plain))
            for part in step.parts
        ]

    @property
    def essential(self) -> tuple[str, ...]:
        return "step", "part", "ms", "share", "bound", "tokens", "experts", "of_experts", "gb"

    def summary(self) -> Row:
        point, workload = self.point, self.decision.workload
        plain_s = point.spent.plain_step_s
        named = {"drafter": workload.drafter, "temperature": workload.temperature}
        return {
            "title": self.title,
            "bound": workload.basis.is_bound,
            **{name: value for name, value in named.items() if value is not None},
            **self.decision.row(),
            "round_ms": 1e3 * point.block_s,
            "plain_ms": 1e3 * plain_s,
            "ms_per_token": self.ms_per_token,
            "plain_ms_per_token": 1e3 * plain_s,
            "break_even_tokens_per_call": self.break_even_tokens_per_call,
            "target_efficiency": self.target_efficiency,
            "reason": self.diagnosis.reason,
            "why": self.diagnosis.words,
            "losses": self.diagnosis.losses,
            "changes": self.change_rows(),
        }

    def change_rows(self) -> list[Row]:
        """The single changes, one each."""
        return [
            {
                "change": each.what,
                "speedup": each.point.speedup,
                **_ends(each.decision.speedup),
                "ms_per_token": 1e3 * each.point.block_s / each.point.tokens_per_call,
                "plain_ms_per_token": 1e3 * each.point.spent.plain_step_s,
                "tokens_per_s": each.point.tokens_per_s,
                "assumes": each.assumes or None,
            }
            for each in self.changes
        ]

    def sentences(self) -> list[str]:
        point = self.point
        than = "slower than" if point.speedup < 1 else "faster than"
        if f"{point.speedup:.2f}" == "1.00":
            than = "as fast as"
        why = "why" if point.speedup < 1 else "what costs most"
        if self.diagnosis.reason == "acceptance":
            why = "what loses most"
        said = [
            f"gamma {point.gamma} at batch {point.batch:,} and context {point.context:,.0f} is "
            f"{than} plain decoding ({_times(self.decision)}): a round yields "
            f"{point.tokens_per_call:.3g} tokens and takes {self.break_even_tokens_per_call:.3g} "
            f"plain steps ({significant(1e3 * point.block_s, 3)} ms against "
            f"{significant(1e3 * point.spent.plain_step_s, 3)} ms)",
            f"{why}: {self.diagnosis.words}",
        ]
        if self.target_efficiency is not None:
            said.append(
                f"target efficiency T(1)/T({point.gamma + 1}) = {self.target_efficiency:.3g}"
            )
        return [*said, self._best_change()]

    def _best_change(self) -> str:
        faster = [each for each in self.changes if each.point.speedup > self.point.speedup]
        sure = next((each for each in faster if not each.assumes), None)
        if sure is None:
            best = "no single change that was tried makes it faster"
        else:
            best = f"best single change: {sure.what} ({_times(sure.decision)})"
        if faster and faster[0].assumes:
            first = faster[0]
            best += f"; {first.what} would give {_times(first.decision)} ({first.assumes})"
        return best


def explain(
    alpha: AlphaLike | None = None,
    *,
    gamma: int,
    batch: int | None = None,
    context: int | None = None,
    deployment: Deployment | None = None,
    profile: str | PathLike[str] | None = None,
    temperature: float | None = None,
    mode: Mode | None = None,
    acceptance_law: AcceptanceLaw | None = None,
) -> Explanation:
    """Where the time of a round with ``gamma`` drafts goes, why it is no faster, and which single
    change would help most.

    gamma : draft tokens of a round, 1 to 256
    batch, context : requests that share iterations, and tokens in the cache of each; by default 1
        and 512, or the smallest of a profile
    deployment : its first drafter is explained, the others are tried in its place
    alpha, profile, temperature, mode, acceptance_law : as in ``optimize`` by load

    With a deployment every part says what it waits for; a profile knows its seconds only, and step
    times of an engine those of the whole step.  Raises CellUnavailableError without room for the
    batch.

    >>> from specsim import deploy
    >>> explain(0.7, gamma=5, deployment=deploy("llama-3.1-8b", "H100", "eagle3")).diagnosis.reason
    'drafts'
    """
    gamma = integer("gamma", gamma, low=1, high=LONGEST)
    measured = {"temperature": temperature, "mode": mode, "acceptance_law": acceptance_law}
    if deployment is not None and profile is None:
        refuse(measured, "needs a profile")
        found = of_deployment(deployment, alpha, None)
        _check_length(gamma, found[0], deployment)
        if gamma > found[0].gamma_max:
            first = replace(deployment, drafters=deployment.drafters[:1])
            found = of_deployment(first, alpha_of_others(first.drafters[0], alpha), gamma)
    else:
        from specsim.batching.source import Source  # loads what measurements need

        source = Source(alpha, deployment, profile, temperature, mode, acceptance_law)
        found = source.workloads()
        _check_length(gamma, found[0], deployment)
        if gamma > found[0].gamma_max:
            if deployment is not None:
                # The others are tried in its place, as far as they draft.
                first = replace(deployment, drafters=deployment.drafters[:1])
                source = replace(source, deployment=first)
                if first.drafters[0].alpha is not None:
                    source = Source(None, first)
            found = source.workloads(gamma)
        if deployment is not None and profile is not None:
            from specsim.extrapolation.from_file import counted_acceptance

            alpha = counted_acceptance(Path(profile), temperature)
    workload = _only(found, deployment)
    batch = integer("batch", workload.batches(None)[0] if batch is None else batch, low=1)
    asked = None if context is None else [integer("context", context)]
    where = workload.contexts(asked)[0]
    decision = decide(workload, batch, where, DEFAULT_MARGIN, gamma)
    point = decision.point
    here, plain = (
        step_of(workload.cost, length, batch, where, float(workload.gains.bonus[gamma]))
        for length in (gamma, 0)
    )
    candidates = [of_load(point, workload)]
    if deployment is not None:
        candidates.append(of_deployment_here(point, here, deployment, alpha))
    tried, refused = try_all(chain.from_iterable(candidates), point)
    helpful = [each for each in tried if each.point.speedup > point.speedup][:_MOST_CHANGES]
    graphs = None if deployment is None else deployment.efficiency.graph_tokens
    accepted = float(workload.gains.tokens[1]) - 1.0
    return Explanation(
        decision=decision,
        round=here,
        plain=plain,
        diagnosis=diagnose(point, here, plain, accepted, graphs),
        changes=tuple(each for each in tried if each in helpful or each.asked),
        inputs={
            "alpha": alpha,
            "gamma": gamma,
            "batch": batch,
            "context": where,
            "deployment": deployment,
            "profile": profile,
            **measured,
        },
        warnings=tuple(_warnings(workload, point)),
        left_out=tuple(LeftOut(what, why) for what, why in refused),
    )


def _times(decision: Decision) -> str:
    """Its speedup, with the interval where one is known."""
    known = decision.speedup
    interval = "" if known is None else f", {known.low:.2f} to {known.high:.2f}"
    return f"{decision.point.speedup:.2f}x{interval}"


def _ends(speedup: Interval[float] | None) -> Row:
    return {} if speedup is None else {"low": speedup.low, "high": speedup.high}


def _row(step: str, part: Part, whole_s: float) -> Row:
    return {
        "step": step,
        "part": part.name,
        "runs": part.runs,
        "ms": 1e3 * part.seconds,
        "share": part.seconds / whole_s,
        "bound": part.bound,
        "tokens": part.tokens,
        "gflops": None if part.flops is None else 1e-9 * part.flops,
        "gb": None if part.bytes is None else 1e-9 * part.bytes,
        "experts": part.experts,
        "of_experts": part.of_experts,
    }


def _check_length(gamma: int, workload: BatchWorkload, deployment: Deployment | None) -> None:
    """Refuse drafts longer than the drafter can make, or than were timed."""
    if deployment is not None:
        drafter = deployment.drafters[0]
        if drafter.longest is not None and gamma > drafter.longest:
            raise UnsupportedError(
                f"gamma must be <= {drafter.longest} with {drafter.label}, got {gamma}"
            )
    elif gamma >= workload.cost.longest:
        raise InvalidArgumentError(
            f"gamma must be <= {workload.cost.longest - 1}, the longest that was timed, got {gamma}"
        )


def _only(found: list[BatchWorkload], deployment: Deployment | None) -> BatchWorkload:
    """The first drafter, or the only temperature."""
    if deployment is None and len(found) > 1:
        known = ", ".join(f"{each.temperature:g}" for each in found)
        raise InvalidArgumentError(f"temperature is missing, one of {known}")
    return found[0]


def _warnings(workload: BatchWorkload, point: BatchPoint) -> list[str]:
    found = [*workload.doubts, *workload.notes(point.gamma)]
    if workload.extrapolated([point]):
        found.append(
            f"extrapolated beyond the measured grid: batch {point.batch} at context "
            f"{point.context:,.0f}"
        )
    return found
