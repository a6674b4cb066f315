"""How long a text a causal model reads, by the names that configurations have for that."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from transformers import BloomConfig, BloomForCausalLM, MptConfig, MptForCausalLM

from calibrate.decode.encoder_decoder import cached_model
from calibrate.decode.engine import DecodeRequest
from calibrate.decode.plain import plain
from calibrate.models.sampling import Sampling
from specsim.checks import UnsupportedError


def bloom(**more: Any) -> Any:
    torch.manual_seed(1)
    config = BloomConfig(vocab_size=32, hidden_size=16, n_layer=1, n_head=2, **more)
    return BloomForCausalLM(config).eval()


def mpt() -> Any:
    torch.manual_seed(1)
    config = MptConfig(vocab_size=32, d_model=16, n_layers=1, n_heads=2, max_seq_len=40)
    return MptForCausalLM(config).eval()


@pytest.mark.parametrize(
    ("build", "context"), [(lambda: bloom(seq_length=48), 48), (mpt, 40)], ids=["bloom", "mpt"]
)
def test_models_without_the_usual_name_are_read(build: Callable[[], Any], context: int) -> None:
    model = build()
    cached = cached_model(model)
    assert cached.context == context
    request = DecodeRequest([3, 4, 5], 6, Sampling(0.0), torch.Generator())
    text = list(request.prompt)
    for _ in range(request.limit):
        with torch.inference_mode():
            text.append(int(model(input_ids=torch.tensor([text])).logits[0, -1].argmax()))
    assert plain(cached, request).finish().tokens == text[3:]


def test_a_model_that_does_not_say_is_refused() -> None:
    with pytest.raises(UnsupportedError, match="BloomForCausalLM does not say how long a text"):
        cached_model(bloom())
