"""What a setting of a scheme is, and what it works with.

A *setting* is one decoder with all its numbers.  It is said once and used twice: it starts the real
decoder, and it says from recorded text what that decoder is expected to do.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
import torch

from calibrate.decode.drafters.base import Drafter, Drawing
from calibrate.decode.drafters.counts import PairCounts
from calibrate.decode.engine import CachedModel, Decoding
from calibrate.decode.plain import plain
from calibrate.decode.text import Text
from calibrate.measure.trace import ASIDE, generator
from calibrate.models.sampling import Sampling
from specsim.checks import Floats, InvalidArgumentError, UnsupportedError
from specsim.predict.replay.blocks import Expected

# Places of a text where a reviewer is let write on by itself, and how far: beyond any proposal.
_ASIDE_PLACES = 6
_ASIDE_TOKENS = 24
# Weight of places where nothing is ever rejected, in case there are no others.
_NEVER = 1e-9


@dataclass(frozen=True)
class ModelSet:
    """Models of one request, each with a cache of its own.

    models : what drafts, by name
    counts : pair counts for drafters without a model
    mask : token id of a mask, of the model named ``masks``
    sure : drafters that several parts of a nest share, by name
    """

    target: CachedModel
    models: Mapping[str, CachedModel]
    counts: PairCounts | None
    mask: int | None
    sure: dict[str, Drafter] = field(default_factory=dict)

    def __getitem__(self, name: str) -> CachedModel:
        return self.models[name]


@dataclass(frozen=True)
class ModelPool:
    """Where parties come from: loaded models, by name, the target's among them.

    vocabulary : tokens that all models share
    digests : SHA-256 of the weights that a profile does not have, by role
    """

    target: Any
    models: Mapping[str, Any]
    vocabulary: int
    counts: PairCounts | None = None
    mask: int | None = None
    digests: Mapping[str, str] = field(default_factory=dict)

    def new(self, timed: bool = True) -> ModelSet:
        """The models with fresh caches."""
        cached = {
            name: CachedModel(model, self.vocabulary, timed, name)
            for name, model in self.models.items()
        }
        target = CachedModel(self.target, self.vocabulary, timed, "target")
        return ModelSet(target, cached, self.counts, self.mask)

    @property
    def names(self) -> set[str]:
        """What settings may ask for."""
        known = set(self.models)
        if self.counts:
            known |= {"bigram", "unigram", "max-gram"}
        return known | {"copy"}


@dataclass(frozen=True, eq=False)
class Source:
    """A prompt, and the text that the target emitted behind it under some sampling.

    tokens : the text, at most ``limit`` tokens, end-of-text included
    """

    prompt: Sequence[int]
    tokens: Sequence[int]
    limit: int
    sampling: Sampling
    model_set: ModelSet

    def rows(self, name: str) -> torch.Tensor:
        """Distributions of a model, or of counts, where each token of the text came; (T, V).

        Read anew each time: kept for every model they would fill the memory.
        """
        return self.sampling.probabilities(self._logits(name))

    @torch.inference_mode()
    def _logits(self, name: str) -> torch.Tensor:
        read = [*self.prompt, *self.tokens[:-1]]
        size = len(self.tokens)
        if name in ("bigram", "unigram"):
            if self.model_set.counts is None:
                raise InvalidArgumentError(f"{name} needs pair counts")
            counts = self.model_set.counts
            laws = np.array(
                [
                    counts.bigram(token) if name == "bigram" else counts.unigram
                    for token in read[-size:]
                ]
            )
            target = self.model_set.target
            if laws.shape[1] > target.vocabulary:
                raise InvalidArgumentError(
                    f"pair counts must be of at most {target.vocabulary} tokens, those that all "
                    f"models share, got {laws.shape[1]}"
                )
            logits = torch.full((size, target.vocabulary), -torch.inf)
            logits[:, : laws.shape[1]] = torch.from_numpy(np.log(laws))
            return logits.to(target.device)
        model = self.model_set.target if name == "target" else self.model_set[name]
        model.reset()
        return model.read(torch.tensor([read], device=model.device))[-size:]

    def at_tokens(self, name: str) -> Floats:
        """The probability of each token of the text by a model, or by counts, (T,)."""
        if name not in self._at_tokens:
            rows = self.rows(name)
            here = torch.tensor(self.tokens, device=rows.device)[:, None]
            self._at_tokens[name] = rows.gather(1, here)[:, 0].double().cpu().numpy()
        return self._at_tokens[name]

    @cached_property
    def _at_tokens(self) -> dict[str, Floats]:
        return {}

    def accepted(self, drafter: str, verifier: str) -> Floats:
        """a_t = min(1, d(x_t) / v(x_t)), shape (T,); zero where the verifier never says x_t."""
        draft, verified = (self.at_tokens(name) for name in (drafter, verifier))
        rates = np.divide(draft, verified, out=np.zeros_like(draft), where=verified > 0)
        return np.asarray(np.minimum(rates, 1.0))

    def aside(self, name: str, verifier: str) -> list[Source]:
        """Texts of a model's own, each beginning with a token that its verifier rejects.

        From places drawn as rejections come; the first token is drawn from what is rejected,
        norm(max(0, r - v)), and the model goes on by itself.  One at least; raises
        UnsupportedError where the context has no room for any.
        """
        if (name, verifier) not in self._aside:
            size, model = len(self.tokens), self.model_set[name]
            own, verified = self.rows(name), self.rows(verifier)
            rejected = 1 - self.accepted(name, verifier) + _NEVER
            random = np.random.default_rng([ASIDE, size])
            places = random.choice(
                size, min(size, _ASIDE_PLACES), replace=False, p=rejected / rejected.sum()
            )
            found = []
            for place in sorted(places.tolist()):
                draws = generator(model.device, ASIDE, place)
                excess = (own[place] - verified[place]).clamp(min=0)
                weights = excess if excess.sum() > 0 else own[place]
                first = int(torch.multinomial(weights, 1, generator=draws))
                found += self._written(name, place, first, draws)
            if not found:
                raise UnsupportedError(
                    f"{name} has no room behind the prompt for a text of its own, in a context of "
                    f"{model.context} tokens"
                )
            self._aside[name, verifier] = found
        return self._aside[name, verifier]

    @cached_property
    def _aside(self) -> dict[tuple[str, str], list[Source]]:
        return {}

    def aside_at(self, name: str, place: int) -> list[Source]:
        """What a model writes by itself from a place on, at temperature 0: one text, if it fits."""
        if (name, place) not in self._aside_at:
            if name not in self._chosen:
                self._chosen[name] = self.rows(name).argmax(-1).tolist()
            draws = generator(self.model_set[name].device, ASIDE, place)
            written = self._written(name, place, self._chosen[name][place], draws)
            self._aside_at[name, place] = written
        return self._aside_at[name, place]

    @cached_property
    def _aside_at(self) -> dict[tuple[str, int], list[Source]]:
        return {}

    @cached_property
    def _chosen(self) -> dict[str, list[int]]:
        return {}

    def _written(self, name: str, place: int, first: int, draws: torch.Generator) -> list[Source]:
        """The text of a model's own from a place and this token on; none without room for it."""
        model, prompt = self.model_set[name], [*self.prompt, *self.tokens[:place]]
        limit = min(_ASIDE_TOKENS, model.context - len(prompt) - _ASIDE_TOKENS)
        if limit < 1:
            return []
        decoding = plain(model, [*prompt, first], limit - 1, self.sampling, draws)
        written = [first, *decoding.finish().tokens]
        return [Source(prompt, written, limit, self.sampling, self.model_set)]

    def probe(self, drafter: Drafter, most: int) -> tuple[Floats, np.ndarray]:
        """How a drafter that is sure of its tokens agrees with the text, at every place of it.

        Returns 1 where token i of a proposal made there is the text's, (T, most), and the lengths
        of the proposals, (T,).
        """
        proposed, lengths = self.proposals(drafter, most)
        agrees = np.zeros((len(self.tokens), most))
        for place, tokens in enumerate(proposed):
            pairs = zip(tokens, self.tokens[place:], strict=False)
            for index, (draft, real) in enumerate(pairs):
                agrees[place, index] = draft == real
        return agrees, lengths

    @torch.inference_mode()
    def proposals(self, drafter: Drafter, most: int) -> tuple[list[list[int]], np.ndarray]:
        """What such a drafter proposes at every place: T lists of tokens, and their lengths."""
        target = self.model_set.target
        for source in drafter.sources:
            source.prefill(self.prompt)
        capacity = len(self.prompt) + len(self.tokens) + most
        text = Text(self.prompt, capacity, target.vocabulary, target.device)
        drafter.begin(text)
        drawing = Drawing(Sampling(0.0), torch.Generator(), rows=False)
        proposed = []
        for token in self.tokens:
            start = len(text)
            drafter.propose(most, drawing)
            proposed.append(list(text.tokens()[start:]))
            text.cut(start)
            text.push_all([token])
        return proposed, np.array([len(tokens) for tokens in proposed])

    @torch.inference_mode()
    def behind(self, place: int, proposed: Sequence[int]) -> torch.Tensor:
        """The target's logits for each of n tokens behind the text before ``place``; (n, V)."""
        target = self.model_set.target
        prompt = [*self.prompt, *self.tokens[:place]]
        target.prefill(prompt)
        read = torch.tensor([[prompt[-1], *proposed[:-1]]], device=target.device)
        return target.read(read)

    def respond(
        self, name: str, random: torch.Generator, end_of_text: int | None
    ) -> tuple[list[int], Floats]:
        """A model's own answer to the prompt, and the log probability of each of its tokens.

        The logarithms are of its distribution at temperature 1, whatever tokens are drawn from.
        """
        seen: list[torch.Tensor] = []
        tokens = (
            plain(
                self.model_set[name],
                self.prompt,
                self.limit,
                self.sampling,
                random,
                end_of_text,
                observe=seen.append,
            )
            .finish()
            .tokens
        )
        logs = torch.cat(seen).float().log_softmax(-1)
        chosen = logs.gather(1, torch.tensor(tokens, device=logs.device)[:, None])
        return tokens, np.asarray(chosen[:, 0].double().cpu().numpy())


class Setting(ABC):
    """A decoder with all its numbers.

    name : for people, unique in a table
    scheme : what ``--scheme`` calls it
    sampling : temperature and filters
    lossless : does it emit the target's law?
    """

    name: str
    scheme: str
    sampling: Sampling

    @property
    @abstractmethod
    def lossless(self) -> bool: ...

    @property
    @abstractmethod
    def needs(self) -> frozenset[str]:
        """What must be at hand besides the target."""

    @property
    def approximate(self) -> frozenset[str]:
        """Models whose number of runs is not predicted exactly, the target by its name."""
        return frozenset()

    @abstractmethod
    def start(
        self,
        model_set: ModelSet,
        prompt: Sequence[int],
        limit: int,
        random: torch.Generator,
        end_of_text: int | None,
    ) -> Decoding:
        """The real decoder at the start of a request."""

    @abstractmethod
    def expect(self, source: Source, random: torch.Generator, end_of_text: int | None) -> Expected:
        """What decoding the source's prompt is expected to do.

        A setting that emits another law than the target's draws a text of that law first.
        """
