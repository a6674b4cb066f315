"""Speculative beam search (Leviathan23 A.4) as a setting; tokens per call are steps per call."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch

from calibrate.decode.beam import Beams, beam_search, try_everywhere
from calibrate.decode.engine import Decoding
from calibrate.models.sampling import Sampling
from calibrate.schemes.base import ModelSet, Setting, Source
from specsim.predict.replay.blocks import Expected, replay_blocks
from specsim.predict.replay.drafters import ByPlace


@dataclass(frozen=True)
class BeamSetting(Setting):
    """The text is that of the target's own beam search, not of greedy decoding."""

    name: str
    beams: Beams
    draft: str
    sampling = Sampling(0.0)
    scheme = "beam"
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
        draft = model_set[self.draft]
        return beam_search(model_set.target, draft, prompt, self.beams, limit, end_of_text)

    def expect(self, source: Source, random: torch.Generator, end_of_text: int | None) -> Expected:
        model_set = source.model_set
        tokens, accepted = try_everywhere(
            model_set.target,
            model_set[self.draft],
            source.prompt,
            self.beams,
            source.limit,
            end_of_text,
        )
        steps, gamma = len(accepted), self.beams.gamma
        agrees = np.arange(gamma) < np.array(accepted)[:, None]
        lengths = np.full(steps, gamma)
        width = self.beams.draft_width
        drafting = ByPlace(
            self.draft, agrees.astype(float), lengths, positions=width, run_each=True
        )
        search = replay_blocks(drafting, steps, source.limit, own=self.beams.width)
        return Expected(len(tokens), search.calls, search.runs)
