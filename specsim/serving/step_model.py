"""Seconds of a step, from what is really in it.

A step is a sum of terms.  Each is a number times one quantity of the step, or a piecewise-linear
table over up to four of them: a kernel that was timed, a roofline at its knots, a fitted
coefficient.  A term counts for its part (``target``, ``draft``, ``host`` and what else one names),
so that seconds can be shown apart.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from functools import cached_property
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from specsim.checks import Floats, Ints, InvalidArgumentError, check_choice, number, numbers
from specsim.serving.scatter import MOST_VARIATION

# What a step consists of.  A decode is a request whose tokens were all computed but the last; it
# takes 1 + its drafts tokens.  All else is prefill, of prompts and of what preemption threw away.
# A step of SGLang that reads prompts has one run of the drafter over all of its requests: it counts
# as if each of them got a single draft.
QUANTITIES = (
    "tokens",  # all that the target reads
    "padded_tokens",  # the same, up to the graph that holds them; as they are in an eager step
    "verified_tokens",  # of decodes: 1 + drafts of each
    "prefill_tokens",  # of chunks of prompts
    "prefill_chunks",  # requests with a chunk
    "prefill_context",  # tokens in the cache before their chunks, over the chunks
    "prefill_pairs",  # pairs of a chunk's token and a token that it attends to, itself included
    "decodes",  # requests that decode
    "decode_width",  # mean tokens of a decode
    "decode_context",  # tokens in the cache of all decodes, those of this step included
    "mean_decode_context",  # of one decode
    "sequences",  # requests, decodes and chunks
    "sampled",  # rows of logits: tokens of decodes, and one of each prompt that ends here
    "drafting",  # requests that get drafts at the end of the step
    "gamma",  # drafts that each of them gets
    "next_draft_runs",  # runs of the drafter after its first: gamma - 1, or none
    "chunk_context",  # tokens before one chunk of all prompts that attends to as many tokens
    "arrivals",  # requests that came since the step before this one was planned
)

TARGET, DRAFT, HOST = "target", "draft", "host"

_WHEN = ("always", "graph", "eager")
_MOST_AXES = 4
# How far single steps, and single requests outside of them, lie about what they take in the mean.
VARIATIONS = ("step_variation", "prompt_step_variation", "frontend_variation")
# Steps do not take for ever.
_SLOWEST = 1e-6


@dataclass(frozen=True, eq=False)
class StepTerm:
    """``per`` times a piecewise-linear table.

    part : what the seconds count for; those of ``host`` are hidden behind the device where the
        engine schedules asynchronously, and those of ``draft`` count where a drafter is loaded
    values : seconds (for each of ``per``); one number, or an array with one axis for each of
        ``axes``
    axes : names of up to four of QUANTITIES
    knots : for each axis where its values lie, rising.  Below the first the first value counts,
        beyond the last the last slope goes on.
    per : one of QUANTITIES; None: 1
    when : in steps that a graph holds, in eager ones, or always
    """

    part: str
    values: npt.ArrayLike
    axes: tuple[str, ...] = ()
    knots: tuple[npt.ArrayLike, ...] = ()
    per: str | None = None
    when: str = "always"

    def __post_init__(self) -> None:
        name = f"values of the term {self.part!r}"
        values = numbers(name, self.values)
        axes, knots = tuple(self.axes), tuple(numbers("knots", each) for each in self.knots)
        if len(axes) > _MOST_AXES:
            raise InvalidArgumentError(f"axes must be at most {_MOST_AXES}, got {len(axes)}")
        for axis in axes if self.per is None else (*axes, self.per):
            check_choice("a quantity of a step", axis, QUANTITIES)
        check_choice("when", self.when, _WHEN)
        if tuple(each.size for each in knots) != values.shape or len(knots) != len(axes):
            raise InvalidArgumentError(
                f"{name} must have one axis for each of axes and as many numbers as it has knots, "
                f"got shape {values.shape} with {len(axes)} axes and "
                f"{[each.size for each in knots]} knots"
            )
        for axis, each in zip(axes, knots, strict=True):
            if each.ndim != 1 or (np.diff(each) <= 0).any():
                raise InvalidArgumentError(f"knots of {axis} must rise")
        for field, value in (("values", values), ("axes", axes), ("knots", knots)):
            object.__setattr__(self, field, value)


class CompiledTerms(NamedTuple):
    """All terms in arrays, T of them; -1 stands for no quantity."""

    part: Ints
    when: Ints
    per: Ints
    axes: Ints  # (T, 4)
    first_knot: Ints  # (T, 4), into knots
    knot_count: Ints  # (T, 4)
    first_value: Ints
    knots: Floats
    values: Floats
    least_eager: Floats  # (P,) by part; -inf where there is no least


@dataclass(frozen=True, eq=False)
class StepModel:
    """The sum of some terms; parts in the order in which they first appear.

    frontend_s : seconds of every request outside of all steps (sending, tokenizer, answer), for
        which no step waits
    frontend_decode_s, frontend_prompt_s : what comes to it for each request that decodes in the
        step of its first token, and for each other that has its first token there
    step_variation, prompt_step_variation, frontend_variation : coefficients of variation of the
        seconds of a step without a chunk of a prompt, of one with some, and of what a request
        spends outside of them (``specsim.serving.scatter``)
    eager_s : least seconds of the target in a step that no graph holds: what the host needs to
        start its kernels one by one
    """

    terms: tuple[StepTerm, ...]
    frontend_s: float = 0.0
    frontend_decode_s: float = 0.0
    frontend_prompt_s: float = 0.0
    eager_s: float = 0.0
    step_variation: float = 0.0
    prompt_step_variation: float = 0.0
    frontend_variation: float = 0.0

    def __post_init__(self) -> None:
        object.__setattr__(self, "terms", tuple(self.terms))
        if not self.terms:
            raise InvalidArgumentError("terms must be at least one, got none")
        for name in ("frontend_s", "frontend_decode_s", "frontend_prompt_s", "eager_s"):
            number(name, getattr(self, name), low=0.0)
        for name in VARIATIONS:
            number(name, getattr(self, name), low=0.0, high=MOST_VARIATION)

    def __add__(self, others: Iterable[StepTerm]) -> StepModel:
        return replace(self, terms=(*self.terms, *others))

    def at_speed(self, speed: float) -> StepModel:
        """With steps that take ``1 / speed`` times as long; what a request spends outside of them
        stays.
        """
        number("speed", speed, low=_SLOWEST)
        terms = (replace(term, values=np.asarray(term.values) / speed) for term in self.terms)
        return replace(self, terms=tuple(terms), eager_s=self.eager_s / speed)

    @cached_property
    def parts(self) -> tuple[str, ...]:
        """Names of the parts."""
        return tuple(dict.fromkeys(term.part for term in self.terms))

    def without_drafter(self) -> StepModel:
        """Of an engine that loads none: without the terms of the drafter, of which some, such as
        its reading of prompts, go by what plain decoding has, too.  A model that has no other terms
        stays as it is.
        """
        others = tuple(term for term in self.terms if term.part != DRAFT)
        return replace(self, terms=others) if others else self

    @property
    def prices_drafts(self) -> bool:
        """Whether any term is of the drafter, or depends on how much is drafted."""
        return any(
            term.part == DRAFT or {term.per, *term.axes} & {"drafting", "gamma", "next_draft_runs"}
            for term in self.terms
        )

    @cached_property
    def compiled(self) -> CompiledTerms:
        """As the compiled loop reads it."""
        least = self.eager_s if self.eager_s else -np.inf
        axes = np.full((len(self.terms), _MOST_AXES), -1)
        first_knot, knot_count = np.zeros_like(axes), np.zeros_like(axes)
        first_value, knots, values = [], [], []
        knots_so_far = values_so_far = 0
        for at, term in enumerate(self.terms):
            first_value.append(values_so_far)
            values.append(np.ravel(np.asarray(term.values)))
            values_so_far += values[-1].size
            for axis, (quantity, where) in enumerate(zip(term.axes, term.knots, strict=True)):
                found = np.asarray(where, dtype=np.float64)
                axes[at, axis] = QUANTITIES.index(quantity)
                first_knot[at, axis], knot_count[at, axis] = knots_so_far, found.size
                knots.append(found)
                knots_so_far += found.size
        return CompiledTerms(
            part=np.array([self.parts.index(term.part) for term in self.terms]),
            when=np.array([_WHEN.index(term.when) for term in self.terms]),
            per=np.array([-1 if t.per is None else QUANTITIES.index(t.per) for t in self.terms]),
            axes=axes,
            first_knot=first_knot,
            knot_count=knot_count,
            first_value=np.array(first_value),
            knots=np.concatenate(knots) if knots else np.zeros(0),
            values=np.concatenate(values),
            least_eager=np.array([least if part == TARGET else -np.inf for part in self.parts]),
        )

    @property
    def scatters(self) -> bool:
        """Whether anything differs from one step, or request, to another alike."""
        outside = (self.frontend_s, self.frontend_decode_s, self.frontend_prompt_s)
        return (
            self.step_variation > 0
            or self.prompt_step_variation > 0
            or (self.frontend_variation > 0 and any(outside))
        )

    @property
    def host_part(self) -> int:
        """The index of the part ``host``; -1 where there is none."""
        return self.parts.index(HOST) if HOST in self.parts else -1
