"""Rates of acceptance along an engine's text, against decoders and against the definitions."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import pytest
import torch

from calibrate.decode.engine import CachedModel, DecodeRequest
from calibrate.decode.speculative import speculative
from calibrate.engine.rates import acceptance_rates
from calibrate.measure.trace import DECODING, generator
from calibrate.models.sampling import Sampling
from specsim.counts.drafts import DraftCounts
from specsim.predict.replay.engine_rounds import ExpectedRounds, engine_rounds

CPU = torch.device("cpu")
PROMPT, TEXT = [5, 9, 14], [7, 3, 3, 21, 40, 2]


@pytest.mark.long
def test_a_real_decoder_takes_as_many_rounds(models: Mapping[str, CachedModel]) -> None:
    """z of the rounds of 60 requests: beyond 4 once in 16,000 correct runs."""
    target, draft = models["target"], models["draft"]
    ordinary, gamma = Sampling(1.0), 3
    total: ExpectedRounds | None = None
    rounds = 0
    for seed in range(60):
        prompt = [5 + seed % 40, 9]
        request = DecodeRequest(prompt, 20, ordinary, generator(CPU, DECODING, seed))
        decoded = speculative(target, draft, request, gamma).finish()
        rounds += decoded.target.count
        # The engine's rounds begin behind its first token; here that is the prompt's last.
        text = [prompt[-1], *decoded.tokens]
        random = generator(CPU, DECODING, seed, 1)
        rates = acceptance_rates(
            *(target, draft, prompt[:-1], text, gamma - 1, ordinary, "ratio-test", random)
        )
        found = engine_rounds(rates, len(text), gamma)
        total = found if total is None else total + found
    assert total is not None
    assert abs(total.z_rounds(DraftCounts(None, rounds, 0))) < 4


@pytest.mark.parametrize("temperature", [0.7, 1.5])
def test_greedy_drafts_by_definition(models: Mapping[str, CachedModel], temperature: float) -> None:
    sampling = Sampling(temperature, top_k=5)
    found = acceptance_rates(
        *(models["target"], models["draft"], PROMPT, TEXT, 3, sampling, "greedy-drafts"),
        generator(CPU, 0),
    )
    expected: list[float] = []
    for place, token in enumerate(TEXT):
        before = torch.tensor([[*PROMPT, *TEXT[:place]]])
        expected.append(float(_last(models["draft"], before).argmax() == token))
    text = [*PROMPT, *TEXT]
    for _ in range(3):
        read = torch.tensor([text])
        guess = int(_last(models["draft"], read).argmax())
        expected.append(float(sampling.probabilities(_last(models["target"], read))[guess]))
        text.append(guess)
    np.testing.assert_allclose(found, expected, atol=1e-5)


def test_sampled_drafts_by_definition(models: Mapping[str, CachedModel]) -> None:
    """Given the token that came out, its draft stood with probability min(1, q / p)."""
    target, draft = models["target"], models["draft"]
    found = acceptance_rates(
        *(target, draft, PROMPT, TEXT, 0, Sampling(1.0), "ratio-test", generator(CPU, 0))
    )
    for place, token in enumerate(TEXT):
        before = torch.tensor([[*PROMPT, *TEXT[:place]]])
        p, q = (_last(model, before).softmax(-1)[token] for model in (target, draft))
        assert found[place] == pytest.approx(float(min(q / p, 1)), abs=1e-5)


def test_a_filter_is_that_of_the_target_alone(models: Mapping[str, CachedModel]) -> None:
    """Drafts are drawn at the temperature from all that the draft's model may say."""
    target, draft = models["target"], models["draft"]
    sampling, behind = Sampling(1.5, top_k=5), 40
    expected: list[float] = []
    text: list[int] = []
    random = generator(CPU, 0)
    for place in range(len(TEXT) + behind):
        before = torch.tensor([[*PROMPT, *text]])
        p = sampling.probabilities(_last(target, before))
        q = (_last(draft, before) / 1.5).softmax(-1)
        if place < len(TEXT):  # one that the target may say
            token = int(p.topk(4).indices[place % 4])
            rate = q[token] / p[token]
        else:
            token = int(torch.multinomial(q[None], 1, generator=random))
            rate = p[token] / q[token]
        text.append(token)
        expected.append(min(float(rate), 1.0))
    found = acceptance_rates(
        *(target, draft, PROMPT, text[: len(TEXT)], behind, sampling, "ratio-test"),
        generator(CPU, 0),
    )
    np.testing.assert_allclose(found, expected, atol=1e-4)
    assert (found[len(TEXT) :] == 0).any()


@torch.inference_mode()
def _last(model: CachedModel, ids: torch.Tensor) -> torch.Tensor:
    """Logits behind a text, read anew."""
    return model.model(input_ids=ids).logits[0, -1, : model.vocabulary]
