"""Settings whose blocks or texts hang together: SpecDec's masks and the sequence cascade."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch

from calibrate.decode.engine import Decoding
from calibrate.decode.sequence_cascade import sequence_cascade
from calibrate.decode.specdec import MaskDrafter, specdec
from calibrate.models.sampling import Sampling
from calibrate.schemes.base import ModelSet, Setting, Source
from specsim.checks import InvalidArgumentError
from specsim.laws import TARGET
from specsim.predict.replay.blocks import Expected, replay_blocks
from specsim.predict.replay.drafters import ByPlace
from specsim.predict.replay.run_counts import RunCounts, RunKind
from specsim.rules import Distributions, GreedyMatch, TopBeta
from specsim.rules.executions import Confidence


@dataclass(frozen=True)
class Masked(Setting):
    """SpecDec and SpecDec++ (Xia22): k masks filled in by one run, at temperature 0.

    The text of SpecDec++ depends on where its blocks begin, so it is no trace.  Its blocks are
    tried at every place of the target's own text instead, the target reading each proposal, and
    are taken to end where they would have on that text.
    """

    name: str
    top: GreedyMatch | TopBeta
    most: int
    draft: str = "masks"
    sampling = Sampling(0.0)
    scheme = "specdec"

    @property
    def lossless(self) -> bool:
        return isinstance(self.top, GreedyMatch)

    @property
    def needs(self) -> frozenset[str]:
        return frozenset({self.draft})

    @property
    def approximate(self) -> frozenset[str]:
        return frozenset() if self.lossless else frozenset({TARGET, self.draft})

    def start(
        self,
        model_set: ModelSet,
        prompt: Sequence[int],
        limit: int,
        random: torch.Generator,
        end_of_text: int | None,
    ) -> Decoding:
        drafter = self._drafter(model_set)
        return specdec(
            model_set.target, drafter, prompt, self.most, limit, self.top, random, end_of_text
        )

    def expect(self, source: Source, random: torch.Generator, end_of_text: int | None) -> Expected:
        proposed, lengths = source.proposals(self._drafter(source.model_set), self.most)
        agrees = np.zeros((len(source.tokens), self.most))
        for place, tokens in enumerate(proposed):
            agrees[place, : self._accepted(source, place, tokens)] = 1.0
        drafting = ByPlace(self.draft, agrees, lengths, reads_text=True)
        return replay_blocks(drafting, len(source.tokens), source.limit)

    def _accepted(self, source: Source, place: int, proposed: Sequence[int]) -> int:
        """How many of the tokens proposed at a place the target accepts, one behind the other."""
        own = source.tokens[place : place + len(proposed)]
        alike = [draft == token for draft, token in zip(proposed, own, strict=False)]
        if self.lossless:
            return int(np.cumprod(alike).sum())
        rows = source.behind(place, proposed).float().softmax(-1)
        drafts = torch.tensor(proposed, device=rows.device)
        sure = torch.zeros_like(rows).scatter_(1, drafts[:, None], 1.0)
        kept = self.top.accepted_at(Distributions(rows, sure), drafts) > 0
        return int(kept.cumprod(0).sum())

    def _drafter(self, model_set: ModelSet) -> MaskDrafter:
        if model_set.mask is None:
            raise InvalidArgumentError("masks needs the token id of a mask")
        return MaskDrafter(model_set[self.draft], model_set.mask)


@dataclass(frozen=True)
class WholeSequence(Setting):
    """Sequence cascade (Narasimhan24 eq. 1): the draft's whole response, or the target's."""

    name: str
    confidence: Confidence
    threshold: float
    draft: str
    sampling: Sampling
    scheme = "sequence-cascade"
    lossless = False

    @property
    def needs(self) -> frozenset[str]:
        return frozenset({self.draft})

    def start(
        self,
        model_set: ModelSet,
        prompt: Sequence[int],
        limit: int,
        random: torch.Generator,
        end_of_text: int | None,
    ) -> Decoding:
        return sequence_cascade(
            model_set.target,
            model_set[self.draft],
            prompt,
            self.confidence,
            self.threshold,
            limit,
            self.sampling,
            random,
            end_of_text,
        )

    def expect(self, source: Source, random: torch.Generator, end_of_text: int | None) -> Expected:
        response, logs = source.respond(self.draft, random, end_of_text)
        kept = self.confidence(logs) >= self.threshold
        runs = RunCounts()
        written = float(len(response))
        runs.add(RunKind(self.draft, after_other_model=False), written, written)
        calls = 0.0 if kept else float(len(source.tokens))
        if not kept:
            runs.add(RunKind(TARGET, after_other_model=False), calls, calls)
        return Expected(len(response) if kept else len(source.tokens), calls, runs)
