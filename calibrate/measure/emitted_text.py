"""Texts of schemes that emit another law than the target's, token by token.

At every position such a scheme has a law m of what comes out, and for every token the part of it
that comes from the draft.  A text drawn from m, read by nobody else, then predicts its blocks as
the target's own text predicts lossless ones (``specsim.predict.replay.blocks``).

What follows a full window of BiLD or a full token cascade is the target's, whatever the draft
thinks of it.  A text is written with that, but replayed as if every token were of the law m:
an approximation above temperature 0, good where windows are seldom full.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch

from calibrate.decode.bild import stands, unsure
from calibrate.decode.engine import CachedModel, DecodeRequest
from calibrate.models.pool import ModelSet
from calibrate.models.sampling import Sampling
from specsim.checks import Floats
from specsim.predict.replay.drafters import AutoregressiveReplay
from specsim.rules import DecidingRule, Distributions, Lossless, Rule
from specsim.schemes import BigLittle, SpeculativeDecoding, TokenCascade

# Rejections below this chance are not followed up.
_SELDOM = 1e-6

# Schemes with a target, one draft that writes token by token, and a law at every position.
PositionWise = SpeculativeDecoding | BigLittle | TokenCascade


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


def position_law(
    scheme: PositionWise, sampling: Sampling, target: torch.Tensor, draft: torch.Tensor
) -> PositionLaw:
    """From logits (n, V) of both models at the same positions."""
    match scheme:
        case BigLittle():
            return _big_little(scheme, sampling, target, draft)
        case TokenCascade():
            rows = _rows(scheme.rule, sampling, target, draft)
            deferred = scheme.rule.defer(rows)
            accepted = rows.q * ~deferred[:, None]
            emitted = accepted + rows.p * deferred[:, None]
            return PositionLaw(emitted, accepted, deferred, rows.q, bonus=rows.p)
        case _:
            rule = scheme.rule or Lossless()
            rows = _rows(rule, sampling, target, draft)
            never = torch.zeros(len(target), dtype=torch.bool, device=target.device)
            emitted, accepted = rule.emitted(rows), rule.accepted(rows)
            return PositionLaw(emitted, accepted, never, rows.q, bonus=emitted)


def _big_little(
    scheme: BigLittle, sampling: Sampling, target: torch.Tensor, draft: torch.Tensor
) -> PositionLaw:
    p, q = (sampling.probabilities(logits) for logits in (target, draft))
    gives_way = unsure(scheme, draft)
    accepted = q * (stands(scheme, target) & ~gives_way[:, None])
    emitted = accepted + (1 - accepted.sum(-1, keepdim=True)).clamp(min=0) * p
    return PositionLaw(emitted, accepted, gives_way, q, bonus=p)


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


def window(scheme: PositionWise) -> int:
    """The most tokens that the draft writes in a block."""
    match scheme:
        case BigLittle():
            return scheme.window
        case TokenCascade():
            return scheme.cap
        case _:
            return scheme.gamma


@dataclass(frozen=True, eq=False)
class EmittedText:
    """A text of the law of a scheme, and what decides its blocks; arrays of shape (T,).

    rates : P(drafted, and stands | the token that came out)
    unsure : the draft writes nothing here
    written_on : tokens that the draft goes on to write behind a rejected one, before it is unsure
    """

    tokens: list[int]
    rates: Floats
    unsure: np.ndarray
    written_on: np.ndarray

    def replay(self, scheme: PositionWise) -> AutoregressiveReplay:
        """The draft on this text."""
        if isinstance(scheme, SpeculativeDecoding):
            return AutoregressiveReplay(
                scheme.draft,
                self.rates,
                scheme.gamma,
                bonus_needs_draft=scheme.rule is not None and scheme.rule.bonus_needs_draft,
            )
        return AutoregressiveReplay(
            scheme.draft, self.rates, window(scheme), self.unsure, self.written_on
        )


@torch.inference_mode()
def write(scheme: PositionWise, model_set: ModelSet, request: DecodeRequest) -> EmittedText:
    """A text of the scheme's law behind the request's prompt."""
    target, draft, random = model_set.target, model_set[scheme.draft], request.random
    for model in (target, draft):
        model.prefill(request.prompt, request.written)
    token = torch.tensor([[request.text[-1]]], device=target.device)
    tokens: list[int] = []
    laws: list[PositionLaw] = []
    rates: list[float] = []
    drafted = 0
    while len(tokens) < request.limit and (not tokens or tokens[-1] not in request.end_of_text):
        logits = target.read(token)[-1:], draft.read(token)[-1:]
        law = position_law(scheme, request.sampling, *logits)
        full = drafted == window(scheme)
        token = torch.multinomial(law.bonus if full else law.emitted, 1, generator=random)
        tokens.append(int(token))
        laws.append(law)
        came = float(law.emitted[0, tokens[-1]])
        stood = float(law.accepted[0, tokens[-1]])
        rates.append(min(stood / came, 1.0) if came else 0.0)
        coin = float(torch.rand(1, generator=random, device=random.device))
        drafted = drafted + 1 if coin < rates[-1] and not full else 0
    gave_way = np.array([bool(law.unsure) for law in laws])
    if isinstance(scheme, SpeculativeDecoding):
        written_on = np.zeros(len(tokens), dtype=np.int64)
    else:
        written_on = _write_on(scheme, draft, laws, request)
    return EmittedText(tokens, np.array(rates), gave_way, written_on)


def _write_on(
    scheme: PositionWise, draft: CachedModel, laws: Sequence[PositionLaw], request: DecodeRequest
) -> np.ndarray:
    """How far the draft writes on behind a rejected token, from the end of the text on."""
    written_on = np.zeros(len(laws), dtype=np.int64)
    for place in reversed(range(len(laws))):
        law, read = laws[place], 0
        weights = (law.drafted - law.accepted).clamp(min=0)
        more = not law.unsure and float(weights.sum()) > _SELDOM
        while more and written_on[place] < window(scheme) - 1:
            token = torch.multinomial(weights, 1, generator=request.random)
            if int(token) in request.end_of_text:
                break
            logits = draft.read(token)[-1:]
            read += 1
            # Only what the draft thinks of it is asked for.
            law = position_law(scheme, request.sampling, logits, logits)
            more, weights = not law.unsure, law.drafted
            written_on[place] += more
        draft.forget(read + 1)
    return written_on
