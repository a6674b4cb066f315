"""Models are run whatever they call their cache, and by the name that they call it."""

from __future__ import annotations

import copy
import inspect
from typing import Any

import pytest
import torch

from calibrate.batch.ragged import RaggedModel
from calibrate.decode.encoder_decoder import EncoderDecoder
from calibrate.decode.engine import CachedModel
from calibrate.models.cache_argument import cache_argument
from calibrate.models.eagle import EagleModel
from calibrate.train.loop import continued, top
from tests.support.encoder_decoders import t5, untied

NAMES = ["cache", "past_key_values"]
TEXT = [5, 6, 9, 7, 8]


def calling_it(name: str, model: Any) -> Any:
    """The model with this name for its cache alone, as other releases of transformers have it."""
    model = copy.deepcopy(model)
    own, forward = cache_argument(model), model.forward

    def renamed(*inputs: Any, **others: Any) -> Any:
        return forward(*inputs, **{own: others.pop(name)}, **others)

    told = inspect.signature(forward)
    renamed.__signature__ = told.replace(  # type: ignore[attr-defined]
        parameters=[
            parameter.replace(name=name) if parameter.name == own else parameter
            for parameter in told.parameters.values()
        ]
    )
    model.forward = renamed
    return model


def rows(model: CachedModel) -> torch.Tensor:
    """Logits behind the last tokens of a text, of which one is read twice."""
    model.prefill(TEXT[:2])
    model.read(torch.tensor([TEXT[1:4]]))
    model.forget(1)
    return model.read(torch.tensor([TEXT[3:]]))


@pytest.mark.parametrize("name", NAMES)
def test_a_causal_model(name: str, models: dict[str, CachedModel]) -> None:
    model = models["target"].model
    renamed = calling_it(name, model)
    assert cache_argument(renamed) == name
    assert torch.equal(rows(CachedModel(renamed)), rows(CachedModel(model)))


@pytest.mark.parametrize("name", NAMES)
def test_an_encoder_decoder_model(name: str) -> None:
    model = untied(t5(1, encoder=1, decoder=1))
    assert torch.equal(rows(EncoderDecoder(calling_it(name, model))), rows(EncoderDecoder(model)))


@pytest.mark.parametrize("name", NAMES)
def test_a_batch(name: str, models: dict[str, CachedModel]) -> None:
    ids = torch.tensor([TEXT[:3], TEXT[2:]])
    said = []
    for model in (calling_it(name, models["target"].model), models["target"].model):
        batch = RaggedModel(model, 2, slots=16)
        batch.read(ids)
        said.append(batch.read(ids))
    assert torch.equal(*said)


@pytest.mark.parametrize("name", NAMES)
def test_a_head(name: str, models: dict[str, CachedModel]) -> None:
    head = EagleModel(models["target"].model)
    renamed = copy.deepcopy(head)
    renamed.decoder = calling_it(name, renamed.decoder)
    renamed._cache_argument = cache_argument(renamed.decoder)
    features = torch.ones((1, 2, head.fc.out_features))
    ids = torch.tensor([TEXT[:2]])
    found = [model(ids, features, model.empty_cache())[0] for model in (head, renamed)]
    assert torch.equal(*found)


@pytest.mark.parametrize("name", NAMES)
def test_texts_to_train_on(name: str, models: dict[str, CachedModel]) -> None:
    model, prompts = models["target"].model, torch.tensor([TEXT])
    assert torch.equal(
        continued(calling_it(name, model), prompts, 6, top), continued(model, prompts, 6, top)
    )
