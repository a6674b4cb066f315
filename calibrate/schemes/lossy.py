"""Settings that emit another law than the target's, token by token.

At every position such a scheme has a law m of what comes out, and for every token the part of it
that comes from the draft.  A text drawn from m, read by nobody else, then predicts its blocks as
the target's own text predicts lossless ones (``specsim.predict.replay.blocks``).

What follows a full window of BiLD or a full token cascade is the target's, whatever the draft
thinks of it.  A text is written with that, but replayed as if every token were of the law m:
an approximation above temperature 0, good where windows are seldom full.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch

from calibrate.decode.bild import Policy, bild
from calibrate.decode.engine import CachedModel, Decoding
from calibrate.decode.speculative import speculative
from calibrate.decode.token_cascade import token_cascade
from calibrate.models.sampling import Sampling
from calibrate.schemes.base import ModelSet, Setting, Source
from specsim.checks import Floats
from specsim.predict.replay.blocks import Expected, replay_blocks
from specsim.predict.replay.drafters import TokenByToken
from specsim.rules import DecidingRule, Distributions, DraftDeferralRule, Rule

# Rejections below this chance are not followed up.
_SELDOM = 1e-6


@dataclass(frozen=True, eq=False)
class PositionLaw:
    """What comes out at n positions.

    emitted : m, shape (n, V)
    accepted : shape (n, V): P(the draft's token is v, and it stands)
    unsure : shape (n,), bool: the draft writes nothing here
    drafted : shape (n, V): what the draft draws its tokens from
    bonus : shape (n, V): what comes out behind a full window
    """

    emitted: torch.Tensor
    accepted: torch.Tensor
    unsure: torch.Tensor
    drafted: torch.Tensor
    bonus: torch.Tensor


@dataclass(frozen=True, eq=False)
class Written:
    """A text of the law of a setting, and what decides its blocks; arrays of shape (T,).

    rates : P(drafted, and stands | the token that came out)
    unsure : the draft writes nothing here
    then : tokens that the draft goes on to write behind a rejected one, before it is unsure
    """

    tokens: list[int]
    rates: Floats
    unsure: np.ndarray
    then: np.ndarray


class PositionWise(Setting):
    """Base: a target, one draft that writes token by token, and a law at every position.

    draft : its name
    """

    draft: str
    lossless = False
    gives_up = True
    verdict = True

    @property
    @abstractmethod
    def window(self) -> int:
        """The most tokens that the draft writes in a block."""

    @property
    def row_for_bonus(self) -> bool:
        return False

    @property
    def needs(self) -> frozenset[str]:
        return frozenset({self.draft})

    @abstractmethod
    def law(self, target: torch.Tensor, draft: torch.Tensor) -> PositionLaw:
        """From logits (n, V) of both models at the same positions."""

    @torch.inference_mode()
    def write(self, source: Source, random: torch.Generator, end_of_text: int | None) -> Written:
        """A text of this setting's law behind the source's prompt."""
        target, draft = source.model_set.target, source.model_set[self.draft]
        for model in (target, draft):
            model.prefill(source.prompt)
        token = torch.tensor([[source.prompt[-1]]], device=target.device)
        tokens: list[int] = []
        laws: list[PositionLaw] = []
        rates: list[float] = []
        drafted = 0
        while len(tokens) < source.limit and (not tokens or tokens[-1] != end_of_text):
            law = self.law(target.read(token)[-1:], draft.read(token)[-1:])
            full = drafted == self.window
            token = torch.multinomial(law.bonus if full else law.emitted, 1, generator=random)
            tokens.append(int(token))
            laws.append(law)
            came = float(law.emitted[0, tokens[-1]])
            stood = float(law.accepted[0, tokens[-1]])
            rates.append(min(stood / came, 1.0) if came else 0.0)
            coin = float(torch.rand(1, generator=random, device=random.device))
            drafted = drafted + 1 if coin < rates[-1] and not full else 0
        unsure = np.array([bool(law.unsure) for law in laws])
        then = np.zeros(len(tokens), dtype=np.int64)
        if self.gives_up:
            then = self._go_on(draft, laws, random, end_of_text)
        return Written(tokens, np.array(rates), unsure, then)

    def _go_on(
        self,
        draft: CachedModel,
        laws: Sequence[PositionLaw],
        random: torch.Generator,
        end_of_text: int | None,
    ) -> np.ndarray:
        """How far the draft writes on behind a rejected token, from the end of the text on."""
        then = np.zeros(len(laws), dtype=np.int64)
        for place in reversed(range(len(laws))):
            law, read = laws[place], 0
            weights = (law.drafted - law.accepted).clamp(min=0)
            more = not law.unsure and float(weights.sum()) > _SELDOM
            while more and then[place] < self.window - 1:
                token = torch.multinomial(weights, 1, generator=random)
                if int(token) == end_of_text:
                    break
                logits = draft.read(token)[-1:]
                read += 1
                law = self.law(logits, logits)  # only what the draft thinks of it is asked for
                more, weights = not law.unsure, law.drafted
                then[place] += more
            draft.forget(read + 1)
        return then

    def expect(self, source: Source, random: torch.Generator, end_of_text: int | None) -> Expected:
        written = self.write(source, random, end_of_text)
        drafting = TokenByToken(
            self.draft,
            written.rates,
            self.window,
            written.unsure if self.gives_up else None,
            written.then if self.gives_up else None,
            self.row_for_bonus,
        )
        return replay_blocks(drafting, len(written.tokens), source.limit, self.verdict)


@dataclass(frozen=True)
class Ruled(PositionWise):
    """Speculative decoding under a rule that changes the law (Narasimhan24 Algorithm 4)."""

    name: str
    verified_by: Rule
    draft: str
    most: int
    sampling: Sampling
    scheme = "cascade"
    gives_up = False

    @property
    def row_for_bonus(self) -> bool:
        return self.verified_by.bonus_needs_draft

    @property
    def window(self) -> int:
        return self.most

    def law(self, target: torch.Tensor, draft: torch.Tensor) -> PositionLaw:
        rows = _rows(self.verified_by, self.sampling, target, draft)
        never = torch.zeros(len(target), dtype=torch.bool, device=target.device)
        emitted, accepted = self.verified_by.emitted(rows), self.verified_by.accepted(rows)
        return PositionLaw(emitted, accepted, never, rows.q, bonus=emitted)

    def start(
        self,
        model_set: ModelSet,
        prompt: Sequence[int],
        limit: int,
        random: torch.Generator,
        end_of_text: int | None,
    ) -> Decoding:
        return speculative(
            model_set.target,
            model_set[self.draft],
            prompt,
            self.most,
            limit,
            self.sampling,
            random,
            end_of_text,
            self.verified_by,
        )


@dataclass(frozen=True)
class BigLittle(PositionWise):
    """The Big Little Decoder (Kim23 Algorithm 1)."""

    name: str
    policy: Policy
    draft: str
    sampling: Sampling
    scheme = "bild"

    @property
    def window(self) -> int:
        return self.policy.window

    def law(self, target: torch.Tensor, draft: torch.Tensor) -> PositionLaw:
        p, q = (self.sampling.probabilities(logits) for logits in (target, draft))
        unsure = draft.float().softmax(-1).amax(-1) < self.policy.fallback
        stands = -target.float().log_softmax(-1) <= self.policy.rollback
        stands |= torch.nn.functional.one_hot(target.argmax(-1), target.shape[-1]).bool()
        accepted = q * (stands & ~unsure[:, None])
        emitted = accepted + (1 - accepted.sum(-1, keepdim=True)).clamp(min=0) * p
        return PositionLaw(emitted, accepted, unsure, q, bonus=p)

    def start(
        self,
        model_set: ModelSet,
        prompt: Sequence[int],
        limit: int,
        random: torch.Generator,
        end_of_text: int | None,
    ) -> Decoding:
        return bild(
            model_set.target,
            model_set[self.draft],
            prompt,
            self.policy,
            limit,
            self.sampling,
            random,
            end_of_text,
        )


@dataclass(frozen=True)
class Sequential(PositionWise):
    """Token cascade, run token by token (Narasimhan24 Algorithm 2); ``most`` is the cap."""

    name: str
    deferral: DraftDeferralRule
    draft: str
    most: int
    sampling: Sampling
    scheme = "token-cascade"
    verdict = False

    @property
    def window(self) -> int:
        return self.most

    def law(self, target: torch.Tensor, draft: torch.Tensor) -> PositionLaw:
        rows = _rows(self.deferral, self.sampling, target, draft)
        unsure = self.deferral.defer(rows)
        accepted = rows.q * ~unsure[:, None]
        emitted = accepted + rows.p * unsure[:, None]
        return PositionLaw(emitted, accepted, unsure, rows.q, bonus=rows.p)

    def start(
        self,
        model_set: ModelSet,
        prompt: Sequence[int],
        limit: int,
        random: torch.Generator,
        end_of_text: int | None,
    ) -> Decoding:
        return token_cascade(
            model_set.target,
            model_set[self.draft],
            prompt,
            self.deferral,
            limit,
            self.sampling,
            random,
            end_of_text,
            self.most,
        )


def _rows(
    rule: Rule, sampling: Sampling, target: torch.Tensor, draft: torch.Tensor
) -> Distributions:
    """Rows of both models under the sampling, with those at temperature 1 where they decide."""
    unscaled = isinstance(rule, DecidingRule) and rule.decide_on == "unscaled"
    return Distributions(
        sampling.probabilities(target),
        sampling.probabilities(draft),
        target.float().softmax(-1) if unscaled else None,
        draft.float().softmax(-1) if unscaled else None,
    )
