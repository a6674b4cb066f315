"""What is planned by load: acceptance and costs of one sampling setting, at any batch and context.

Costs come from shapes and an accelerator, with nothing measured, or from the batch grid of a
profile; acceptance is given, or is the profile's own, replayed exactly.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from os import PathLike
from pathlib import Path

import numpy as np

from specsim.acceptance import AcceptanceLaw, AlphaLike, acceptance_of, notes_on
from specsim.batching.cost import LoadCost, MeasuredLoadCost, RooflineLoadCost
from specsim.batching.point import BatchPoint
from specsim.batching.tokens_per_block import TokensPerBlock
from specsim.checks import Floats, InvalidArgumentError, integer, integers
from specsim.extrapolation import Extrapolation
from specsim.hardware import Accelerator, Shape, accelerator, read_config, shape_from_config
from specsim.hardware.config import ConfigError
from specsim.predict.trace_rates import measured_under
from specsim.profiles import MeasuredAcceptance, Mode, Profile, read_profile

# Asked for where only contexts, or only batches, are.
_BATCHES = tuple(2**power for power in range(9))
_CONTEXTS = (512, 4096)

# Longest draft that is looked at where none is named and nothing measured ends before.
_GAMMA_MAX = 16

# More batches or contexts than anyone means.
_MOST_NUMBERS = 1_000_000


@dataclass(frozen=True)
class Shapes:
    """Two models by their shapes and what they run on, with nothing measured.

    target, draft : name of a shipped shape, a config.json, a folder with one, or a Shape
    accelerator : name in ``specsim.hardware.ACCELERATORS``, or an Accelerator
    """

    target: str | Path | Shape
    draft: str | Path | Shape
    accelerator: str | Accelerator


@dataclass(frozen=True)
class Source:
    """Where acceptance and costs by load come from: shapes with an acceptance, or a profile.

    alpha : acceptance; None is the profile's
    temperature : one of the profile's; None is all
    mode : how the profile's models ran; None is compiled, where that was measured
    acceptance_law : how drafts are accepted; None is as the profile's rates are, other laws are
        read off its trace
    """

    alpha: AlphaLike | None = None
    shapes: Shapes | None = None
    profile: str | PathLike[str] | None = None
    temperature: float | None = None
    mode: Mode | None = None
    acceptance_law: AcceptanceLaw | None = None

    def workloads(self, gamma_max: int | None = None) -> list[BatchWorkload]:
        """The settings to plan for: one of shapes, or one for each temperature of a profile."""
        if self.profile is not None:
            if self.shapes is not None:
                raise InvalidArgumentError(
                    "shapes (target, draft, accelerator) and profile exclude each other"
                )
            return _of_profile(self, Path(self.profile), gamma_max)
        for name in ("temperature", "mode", "acceptance_law"):
            if getattr(self, name) is not None:
                raise InvalidArgumentError(f"{name} needs a profile")
        if self.shapes is None:
            raise InvalidArgumentError(
                "profile is missing, or shapes (target, draft and accelerator): what runs cost "
                "depends on the batch"
            )
        return [_of_shapes(self.shapes, self.alpha, gamma_max)]


@dataclass(frozen=True)
class Load:
    """What is planned for.

    batches : requests that share iterations; None: those measured, or 1, 2, 4, ..., 256
    contexts : tokens in the cache of each request; None: those measured, or 512 and 4096
    """

    batches: Sequence[int] | None = None
    contexts: Sequence[int] | None = None

    def __post_init__(self) -> None:
        for name, low in (("batches", 1), ("contexts", 0)):
            asked = getattr(self, name)
            if asked is None:
                continue
            if len(asked) > _MOST_NUMBERS:
                raise InvalidArgumentError(
                    f"{name} must be at most {_MOST_NUMBERS:,} numbers, got {len(asked):,}"
                )
            checked = np.unique(np.atleast_1d(integers(name, asked, low=low)))
            object.__setattr__(self, name, tuple(checked.tolist()))


def _none(gamma: int) -> tuple[str, ...]:
    """Nothing to know: acceptance is exact at every draft length."""
    return ()


@dataclass(frozen=True)
class BatchWorkload:
    """One sampling setting, ready to be asked at any batch and context.

    survival : S_1.., over all of the text
    replay : makes ``gains``, what a block gains; of a profile from its trace, so where blocks start
    gamma_max : longest draft that is considered
    temperature : of the profile; None where nothing was measured
    context : longest that both models take; None where it is not known
    draft_name : as in the profile
    doubts : what to know about the models, one line each
    acceptance_law : what the acceptance is of; None where it was given as numbers
    notes : what to know of the acceptance at a draft length, one line each
    """

    survival: Floats
    replay: Callable[[], TokensPerBlock]
    cost: LoadCost
    gamma_max: int
    temperature: float | None = None
    context: int | None = None
    draft_name: str | None = None
    doubts: tuple[str, ...] = ()
    acceptance_law: AcceptanceLaw | None = None
    notes: Callable[[int], tuple[str, ...]] = _none

    @cached_property
    def gains(self) -> TokensPerBlock:
        """By draft length, up to ``gamma_max``."""
        return self.replay()

    @property
    def name(self) -> str:
        """What tells settings of one profile apart."""
        return "" if self.temperature is None else f"temperature {self.temperature:g}"

    def extrapolated(self, points: Iterable[BatchPoint]) -> list[BatchPoint]:
        """Those outside what was measured."""
        cost = self.cost
        if not isinstance(cost, MeasuredLoadCost):
            return []
        return [point for point in points if not cost.covers(point.batch, point.context)]

    def batches(self, asked: Sequence[int] | None) -> Sequence[int]:
        """The batches asked for, or else those that were measured, or the usual ones; rising."""
        if asked is not None:
            return asked
        return self.cost.batches if isinstance(self.cost, MeasuredLoadCost) else _BATCHES

    def contexts(self, asked: Sequence[int] | None) -> Sequence[int]:
        """The contexts asked for, or else those that were measured, or the usual ones; rising."""
        if asked is None:
            if isinstance(self.cost, MeasuredLoadCost):
                return self.cost.contexts
            limit = self.context or max(_CONTEXTS)
            return [context for context in _CONTEXTS if context <= limit] or [limit]
        if self.context is not None and max(asked) > self.context:
            raise InvalidArgumentError(
                f"context must be <= {self.context:,}, which is all that the models take, "
                f"got {max(asked):,}"
            )
        return asked


def _of_shapes(shapes: Shapes, alpha: AlphaLike | None, gamma_max: int | None) -> BatchWorkload:
    """From shapes and a data sheet, with an acceptance that is given."""
    if alpha is None:
        raise InvalidArgumentError("alpha is missing: shapes say nothing of acceptance")
    longest = _gamma_max(gamma_max, alpha, _GAMMA_MAX)
    acceptance = acceptance_of(alpha)
    target, draft = _shape("target", shapes.target), _shape("draft", shapes.draft)
    place = shapes.accelerator
    known = [shape.longest_context for shape in (target, draft) if shape.longest_context]
    doubts = []
    if target.vocabulary and draft.vocabulary and target.vocabulary != draft.vocabulary:
        doubts.append(
            f"the target's vocabulary has {target.vocabulary:,} tokens and the draft's "
            f"{draft.vocabulary:,}: both must read the same tokens (padding may differ)"
        )
    return BatchWorkload(
        survival=acceptance.survival(max(longest, 1))[1:],
        replay=partial(TokensPerBlock.of_acceptance, acceptance, longest),
        cost=RooflineLoadCost(
            target,
            draft,
            place if isinstance(place, Accelerator) else accelerator(place),
            longest=longest + 1,
        ),
        gamma_max=longest,
        context=min(known, default=None),
        doubts=tuple(doubts),
        notes=partial(notes_on, alpha, acceptance),
    )


def _of_profile(source: Source, path: Path, gamma_max: int | None) -> list[BatchWorkload]:
    """From a profile with run times of batches; one setting for each of its temperatures."""
    alpha = source.alpha
    profile = read_profile(path)
    context = min(profile.target.context, profile.draft.context)

    def workload(temperature: float, measured: MeasuredAcceptance | None) -> BatchWorkload:
        cost = MeasuredLoadCost.of(profile, temperature, source.mode)
        reach = cost.longest - 1
        notes: Callable[[int], tuple[str, ...]] = _none
        if measured is None:
            assert alpha is not None
            longest = _gamma_max(gamma_max, alpha, min(_GAMMA_MAX, reach))
            acceptance = acceptance_of(alpha)
            survival = acceptance.survival(max(longest, 1))[1:]
            replay = partial(TokensPerBlock.of_acceptance, acceptance, longest)
            notes = partial(notes_on, alpha, acceptance)
        else:
            survival = np.array([rate.best for rate in measured.survival])
            usual = min(_GAMMA_MAX, reach, survival.size)
            longest = usual if gamma_max is None else integer("gamma_max", gamma_max)
            replay = partial(_replayed, profile, path, measured, longest)
        if longest > reach:
            raise InvalidArgumentError(
                f"gamma_max must be <= {reach} with this profile, got {longest}; "
                "calibrate with a larger one"
            )
        return BatchWorkload(
            survival=survival,
            replay=replay,
            cost=cost,
            gamma_max=longest,
            temperature=temperature,
            context=context,
            draft_name=profile.draft.name,
            acceptance_law=None if measured is None else measured.acceptance_law,
            notes=notes,
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


def _replayed(
    profile: Profile, path: Path, measured: MeasuredAcceptance, gamma_max: int
) -> TokensPerBlock:
    return TokensPerBlock.of_trace(profile.trace(path, measured), gamma_max)


def _gamma_max(asked: int | None, alpha: AlphaLike, usual: int) -> int:
    """The one asked for; else the usual one, or as far as an extrapolated curve goes."""
    if asked is not None:
        return integer("gamma_max", asked)
    return min(usual, len(alpha)) if isinstance(alpha, Extrapolation) else usual


def _shape(role: str, source: str | Path | Shape) -> Shape:
    if isinstance(source, Shape):
        return source
    try:
        return shape_from_config(read_config(str(source)))
    except ConfigError as error:
        raise InvalidArgumentError(f"{role} {error}") from None
