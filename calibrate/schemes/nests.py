"""Lossless speculative decoding with any nest of drafters.

A nest is described once; ``drafter`` builds it of real models, ``drafting`` of recorded text.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache

import torch

from calibrate.decode.drafters import (
    Bigram,
    Drafter,
    Horizontal,
    MaxGram,
    Neural,
    PromptLookup,
    Unigram,
    Vertical,
    VerticalAtLeast,
)
from calibrate.decode.drafters.counts import PairCounts
from calibrate.decode.engine import Decoding
from calibrate.decode.specdec import MaskDrafter
from calibrate.decode.speculative import speculative
from calibrate.models.sampling import Sampling
from calibrate.schemes.base import ModelSet, Setting, Source
from specsim.checks import InvalidArgumentError
from specsim.predict.replay.blocks import Expected, replay_blocks
from specsim.predict.replay.cascades import HorizontalReplay, VerticalReplay
from specsim.predict.replay.drafters import ByPlace, Drafting, TokenByToken


class Nest(ABC):
    """What drafts, described.

    most : the most tokens of a proposal, None where the parts decide
    needs : models and counts in it
    """

    most: int | None = None

    @property
    @abstractmethod
    def needs(self) -> frozenset[str]: ...

    @property
    def approximate(self) -> frozenset[str]:
        """Those whose number of runs is not predicted exactly."""
        return frozenset()

    @abstractmethod
    def drafter(self, model_set: ModelSet) -> Drafter:
        """For real."""

    @abstractmethod
    def drafting(self, source: Source, verifier: str = "target") -> Drafting:
        """On recorded text, before this verifier."""


@dataclass(frozen=True)
class Model(Nest):
    """A model that drafts token by token."""

    name: str
    most: int

    @property
    def needs(self) -> frozenset[str]:
        return frozenset({self.name})

    def drafter(self, model_set: ModelSet) -> Drafter:
        return Neural(model_set[self.name])

    def drafting(self, source: Source, verifier: str = "target") -> Drafting:
        return TokenByToken(self.name, source.accepted(self.name, verifier), self.most)


@dataclass(frozen=True)
class Counts(Nest):
    """``bigram`` or ``unigram``: drafts token by token without a model."""

    name: str
    most: int

    @property
    def needs(self) -> frozenset[str]:
        return frozenset({self.name})

    def drafter(self, model_set: ModelSet) -> Drafter:
        kind = {"bigram": Bigram, "unigram": Unigram}[self.name]
        return kind(_counts(model_set), self.name)

    def drafting(self, source: Source, verifier: str = "target") -> Drafting:
        accepted = source.accepted(self.name, verifier)
        return TokenByToken(self.name, accepted, self.most, is_model=False)


@dataclass(frozen=True)
class Sure(Nest):
    """``copy`` (prompt lookup), ``max-gram`` or ``masks``: one run for all tokens of a proposal."""

    name: str
    most: int

    @property
    def needs(self) -> frozenset[str]:
        return frozenset({self.name})

    def drafter(self, model_set: ModelSet) -> Drafter:
        # One drafter of a name in a party: it is counted under that name.
        if self.name not in model_set.sure:
            model_set.sure[self.name] = self._build(model_set)
        return model_set.sure[self.name]

    def _build(self, model_set: ModelSet) -> Drafter:
        if self.name == "masks":
            if model_set.mask is None:
                raise InvalidArgumentError("masks needs the token id of a mask")
            return MaskDrafter(model_set["masks"], model_set.mask)
        return PromptLookup() if self.name == "copy" else MaxGram(_counts(model_set))

    def drafting(self, source: Source, verifier: str = "target") -> Drafting:
        agrees, lengths = source.probe(self.drafter(source.model_set), self.most)
        return ByPlace(self.name, agrees, lengths, reads_text=self.name == "masks")


@dataclass(frozen=True)
class Review(Nest):
    """A model that reviews an inner nest (vertical cascade); one of steps and at_least is None."""

    name: str
    inner: Nest
    gamma: int | None
    steps: int | None = None
    at_least: int | None = None

    @property
    def needs(self) -> frozenset[str]:
        return self.inner.needs | {self.name}

    @property
    def approximate(self) -> frozenset[str]:
        # How long a proposal gets behind a rejected token decides how many steps there are, or,
        # with a fixed number, whether the request has room for them.
        return self.needs

    def drafter(self, model_set: ModelSet) -> Drafter:
        inner = self.inner.drafter(model_set)
        if self.steps is not None:
            return Vertical(model_set[self.name], inner, self.steps, self.gamma)
        return VerticalAtLeast(model_set[self.name], inner, self.at_least or 0, self.gamma)

    def drafting(self, source: Source, verifier: str = "target") -> Drafting:
        @cache
        def aside(place: int | None) -> list[Drafting]:
            if place is None:
                texts = source.aside(self.name, verifier)
            else:
                texts = source.aside_at(self.name, place) if source.sampling.greedy else []
                if not texts:
                    return aside(None)
            return [self.inner.drafting(text, self.name) for text in texts]

        return VerticalReplay(
            self.name,
            source.accepted(self.name, verifier),
            self.inner.drafting(source, self.name),
            aside,
            self.gamma,
            self.steps,
            self.at_least,
        )


@dataclass(frozen=True)
class Row(Nest):
    """Nests one after the other (horizontal cascade)."""

    parts: tuple[Nest, ...]

    @property
    def needs(self) -> frozenset[str]:
        return frozenset().union(*(part.needs for part in self.parts))

    @property
    def approximate(self) -> frozenset[str]:
        # Parts behind one of free length have more or less room.
        return self.needs if any(part.approximate for part in self.parts) else frozenset()

    def drafter(self, model_set: ModelSet) -> Drafter:
        return Horizontal([(part.drafter(model_set), part.most) for part in self.parts])

    def drafting(self, source: Source, verifier: str = "target") -> Drafting:
        return HorizontalReplay(tuple(part.drafting(source, verifier) for part in self.parts))


def full_cascade(models: Sequence[str], lengths: Sequence[Sequence[int]]) -> Nest:
    """Chen23 Algorithm 1 over these models, best first, with Max-Gram below them.

    lengths : as ``calibrate.decode.drafters.full_cascade`` has it
    """

    def below(reviewer: int) -> Nest:
        shares = lengths[reviewer]
        parts: list[Nest] = [
            Review(name, below(drafter + 1), None, at_least=share)
            for drafter, (name, share) in enumerate(
                zip(models[reviewer:], shares[:-1], strict=True), start=reviewer
            )
            if share
        ]
        return Row((*parts, Sure("max-gram", shares[-1])))

    return below(0)


def _counts(model_set: ModelSet) -> PairCounts:
    if model_set.counts is None:
        raise InvalidArgumentError("drafters without a model need pair counts")
    return model_set.counts


@dataclass(frozen=True)
class Lossless(Setting):
    """Speculative decoding with a nest, verified without loss (Leviathan23)."""

    name: str
    scheme: str
    nest: Nest
    sampling: Sampling
    lossless = True

    @property
    def needs(self) -> frozenset[str]:
        return self.nest.needs

    @property
    def approximate(self) -> frozenset[str]:
        return self.nest.approximate

    def start(
        self,
        model_set: ModelSet,
        prompt: Sequence[int],
        limit: int,
        random: torch.Generator,
        end_of_text: int | None,
    ) -> Decoding:
        drafter = self.nest.drafter(model_set)
        return speculative(
            model_set.target,
            drafter,
            prompt,
            self.nest.most,
            limit,
            self.sampling,
            random,
            end_of_text,
        )

    def expect(self, source: Source, random: torch.Generator, end_of_text: int | None) -> Expected:
        return replay_blocks(self.nest.drafting(source), len(source.tokens), source.limit)
