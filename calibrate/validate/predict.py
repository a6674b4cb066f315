"""What decoding with any scheme is expected to do, from recorded text."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import torch

from calibrate.decode.beam import try_everywhere
from calibrate.decode.engine import DecodeRequest
from calibrate.decode.specdec import accepted_tokens
from calibrate.measure.emitted_text import PositionWise, write
from calibrate.measure.recorded_text import ReadableText
from calibrate.validate.quality import Quality
from specsim.checks import Floats, UnsupportedError
from specsim.laws import TARGET
from specsim.predict.replay import build
from specsim.predict.replay.blocks import Expected, replay_blocks
from specsim.predict.replay.drafters import DeterministicReplay
from specsim.predict.replay.rates import (
    DEFERRAL,
    FALLBACK,
    ROLLBACK,
    Event,
    Rates,
    Tried,
    acceptance_rates,
    first_tokens,
    law_tokens_per_call,
    total,
)
from specsim.predict.replay.run_counts import RunCounts
from specsim.rules.confidence import CONFIDENCES
from specsim.schemes import (
    BeamSearch,
    BigLittle,
    Scheme,
    SequenceCascade,
    SpecDec,
    SpeculativeDecoding,
    TokenCascade,
    scheme_name,
)
from specsim.schemes.base import DraftingScheme


@dataclass(frozen=True)
class Prediction:
    """One request before it is decoded.

    expected : what the replay says
    rates : what a law must know, as this request shows it
    """

    expected: Expected
    rates: Sequence[tuple[Event, Tried]]


@dataclass(frozen=True, eq=False)
class Predicted:
    """A setting before it is decoded.

    requests : one prediction a request
    quality : of the law that it emits
    """

    scheme: Scheme
    requests: Sequence[Prediction]
    quality: Quality | None

    @property
    def expected(self) -> list[Expected]:
        return [each.expected for each in self.requests]

    @property
    def rates(self) -> Rates:
        """What the law must know, as all requests show it together."""
        return total(found for each in self.requests for found in each.rates)

    @property
    def tokens(self) -> Floats:
        """Of each request, shape (R,)."""
        return np.array([float(each.tokens) for each in self.expected])

    def per_token(self, model: str) -> Floats:
        """Expected runs a token, one figure a request."""
        return np.array([each.runs.runs(model) / each.tokens for each in self.expected])

    @property
    def law_tokens_per_call(self) -> float | None:
        """Those of the scheme's law with the acceptances of the text; None where it has none."""
        try:
            return law_tokens_per_call(self.scheme, self.rates)
        except UnsupportedError:
            return None


def as_json(predicted: Predicted) -> dict[str, Any]:
    """All but the scheme, as ``from_json`` reads it again."""
    return {
        "requests": [
            {
                "tokens": int(each.expected.tokens),
                "calls": float(each.expected.calls),
                "runs": [
                    [model, float(count)] for model, count in each.expected.runs.counts.items()
                ],
                "rates": [
                    [event, float(tried.happened), float(tried.times)]
                    for event, tried in each.rates
                ],
            }
            for each in predicted.requests
        ],
        "quality": predicted.quality and asdict(predicted.quality),
    }


def from_json(scheme: Scheme, kept: Mapping[str, Any]) -> Predicted:
    """What ``as_json`` made of a setting of this scheme."""
    requests = []
    for each in kept["requests"]:
        runs = RunCounts()
        for model, count in each["runs"]:
            runs.add(model, count)
        rates = [
            (event if isinstance(event, str) else tuple(event), Tried(happened, times))
            for event, happened, times in each["rates"]
        ]
        requests.append(_prediction(Expected(each["tokens"], each["calls"], runs), rates))
    good = Quality(**kept["quality"]) if kept["quality"] else None
    return Predicted(scheme, requests, good)


def predict(scheme: Scheme, text: ReadableText, request: DecodeRequest) -> Prediction:
    """From the target's recorded answer to the request, at the request's sampling.

    A scheme that emits another law than the target's writes a text of that law first.  Raises
    UnsupportedError, naming the scheme, where there is no replay of it.
    """
    match scheme:
        case SpecDec() if not scheme.lossless:
            return _masks(scheme, text)
        case DraftingScheme() if scheme.lossless:
            rates = acceptance_rates(scheme.drafter, text, law=scheme.acceptance_law)
            return _prediction(build.predict(scheme, text), rates)
        case SpeculativeDecoding() | BigLittle() | TokenCascade():
            return _position_wise(scheme, text, request)
        case SequenceCascade():
            return _sequence(scheme, text, request)
        case BeamSearch():
            return _beams(scheme, text, request)
    raise UnsupportedError(f"there is no replay of {scheme_name(scheme)}: {scheme.label}")


def _prediction(expected: Expected, rates: Iterable[tuple[Event, Tried]]) -> Prediction:
    return Prediction(expected, tuple(rates))


def _position_wise(scheme: PositionWise, text: ReadableText, request: DecodeRequest) -> Prediction:
    """A text of the law that the scheme emits, replayed as the target's own text elsewhere."""
    written = write(scheme, text.model_set, request)
    expected = replay_blocks(
        written.replay(scheme),
        len(written.tokens),
        request.limit,
        verdict=not isinstance(scheme, TokenCascade),
    )
    gave_way = Tried(float(written.unsure.sum()), len(written.unsure))
    stood = _total(written.rates[~written.unsure])
    match scheme:
        case TokenCascade():
            rates: list[tuple[Event, Tried]] = [(DEFERRAL, gave_way)]
        case BigLittle():
            replaced = Tried(stood.times - stood.happened, stood.times)
            rates = [(FALLBACK, gave_way), (ROLLBACK, replaced)]
        case _:
            rates = [((scheme.draft, TARGET), stood)]
    return Prediction(expected, rates)


def _total(rates: Floats) -> Tried:
    return Tried(float(rates.sum()), len(rates))


def _masks(scheme: SpecDec, text: ReadableText) -> Prediction:
    """SpecDec++ (Xia22), whose text depends on where its blocks begin, so that it is no trace.

    Its blocks are tried at every place of the target's own text instead, the target reading each
    proposal, and are taken to end where they would have on that text.
    """
    proposed = text.proposals(scheme.drafter)
    accepted = np.zeros((len(text.tokens), scheme.block_size))
    for place, tokens in enumerate(proposed):
        accepted[place, : _accepted(scheme, text, place, tokens)] = 1.0
    lengths = np.array([len(tokens) for tokens in proposed])
    replay = DeterministicReplay(scheme.draft, accepted, lengths)
    expected = replay_blocks(replay, len(text.tokens), text.limit)
    return Prediction(expected, [((scheme.draft, TARGET), first_tokens(accepted))])


def _accepted(scheme: SpecDec, text: ReadableText, place: int, proposed: Sequence[int]) -> int:
    """How many of the tokens proposed at a place the target accepts, one behind the other."""
    if scheme.rule is None:
        raise UnsupportedError("SpecDec without a rule is lossless, and replayed as such")
    logits = text.behind(place, proposed)
    return accepted_tokens(scheme.rule, logits, torch.tensor(proposed, device=logits.device))


def _sequence(scheme: SequenceCascade, text: ReadableText, request: DecodeRequest) -> Prediction:
    """The draft's own response, and the target's recorded one where it is not kept."""
    response, logs = text.respond(scheme.draft, request)
    kept = CONFIDENCES[scheme.confidence](logs) >= scheme.threshold
    runs = RunCounts()
    written = float(len(response))
    runs.add(scheme.draft, written)
    calls = 0.0 if kept else float(len(text.tokens))
    if not kept:
        runs.add(TARGET, calls)
    expected = Expected(len(response) if kept else len(text.tokens), calls, runs)
    return Prediction(expected, [(DEFERRAL, Tried(float(not kept), 1))])


def _beams(scheme: BeamSearch, text: ReadableText, request: DecodeRequest) -> Prediction:
    """The target's own beam search; tokens per call are steps of it per call."""
    target, draft = text.model_set.target, text.model_set[scheme.draft]
    tokens, accepted = try_everywhere(target, draft, request, scheme)
    steps, gamma = len(accepted), scheme.gamma
    stood = (np.arange(gamma) < np.array(accepted)[:, None]).astype(float)
    replay = DeterministicReplay(scheme.draft, stood, np.full(steps, gamma), runs_per_token=True)
    search = replay_blocks(replay, steps, request.limit)
    expected = Expected(len(tokens), search.calls, search.runs)
    # The last step of all leaves no beam that could stand.
    return Prediction(expected, [((scheme.draft, TARGET), first_tokens(stood[:-1]))])
