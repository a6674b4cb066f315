"""Every shipped shape against what was published with the model (``published.csv``).

A value is met within 1 %; where ``digits`` says that it is rounded or cut, the digits printed must
be the same.  Counts of the Hugging Face Hub are held to one part in 10,000: what they count beside
weights (scales of quantisation, biases of routers) is less.
"""

from __future__ import annotations

import csv
import math
from decimal import ROUND_DOWN, ROUND_HALF_UP, Decimal
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.utils.flop_counter import FlopCounterMode

from specsim import hardware
from tests.support.shapes import kv_bytes, transformers_model

ROWS = list(csv.DictReader(Path(__file__).with_name("published.csv").open(encoding="utf-8")))

# What the published checkpoints hold beside the language model, from their configs.
SIGLIP = {
    "model_type": "siglip_vision_model",
    "hidden_size": 1152,
    "intermediate_size": 4304,
    "num_attention_heads": 16,
    "num_hidden_layers": 27,
    "image_size": 896,
    "patch_size": 14,
    "vision_use_head": False,
}
LLAMA4_VISION = {
    "model_type": "llama4_vision_model",
    "hidden_size": 1408,
    "intermediate_size": 5632,
    "num_attention_heads": 16,
    "num_hidden_layers": 34,
    "image_size": 336,
    "patch_size": 14,
    "projector_input_dim": 4096,
    "projector_output_dim": 4096,
    "vision_output_dim": 4096,
}


def with_vision(name: str) -> int:
    """Parameters of the model with its vision tower, which transformers builds without memory."""
    from transformers import AutoConfig, AutoModelForImageTextToText

    text = hardware.read_config(name)
    kind, vision = (
        ("llama4", LLAMA4_VISION) if text["model_type"] == "llama4_text" else ("gemma3", SIGLIP)
    )
    config = AutoConfig.for_model(kind, text_config=text, vision_config=vision)
    with torch.device("meta"):
        model: Any = AutoModelForImageTextToText.from_config(config)
    return int(model.num_parameters())


def predictor(shape: hardware.Shape) -> int:
    """Parameters of a module that predicts one more token (arXiv 2412.19437, section 2.2).

    A layer like the last one, a projection of two states to one, and a norm of each and behind.
    """
    last = shape.layers[-1]
    layer = last.weights + last.experts * last.expert_weights
    return layer + 2 * shape.hidden**2 + 3 * shape.hidden


def table(shape: hardware.Shape) -> int:
    assert shape.vocabulary is not None
    return shape.vocabulary * shape.hidden


def training_flops(name: str, tokens: int) -> float:
    """FLOPs a token in training: three times those of a forward pass, over ``tokens`` at once.

    In training latent attention is not absorbed, as in a prompt: a pair takes heads (192 + 128)
    multiply-adds.
    """
    shape = hardware.shape(name)
    return 3 * (shape.flops(tokens, 0) / tokens if tokens else 2.0 * shape.active_parameters)


def computed(name: str, quantity: str) -> float:
    shape = hardware.shape(name)
    tied = shape.idle == 0
    values = {
        "parameters": lambda: shape.parameters,
        "parameters_with_vision": lambda: with_vision(name),
        "parameters_with_predictor": lambda: shape.parameters + predictor(shape),
        "parameters_with_predictor_and_tables": lambda: (
            shape.parameters + predictor(shape) + 2 * table(shape)
        ),
        "non_embedding": lambda: shape.parameters - (1 if tied else 2) * table(shape),
        "embedding": lambda: table(shape),
        "active": lambda: shape.active_parameters,
        "active_with_table": lambda: shape.active_parameters + shape.idle,
        "active_layers": lambda: shape.active_parameters - shape.head,
        # A published cache is in 16 bits whatever the weights are in.
        "cache_bytes_per_token": lambda: kv_bytes(shape, 1),
        "cache_bytes_of_16000_tokens": lambda: kv_bytes(shape, 16_000),
        "cache_bytes_of_128000_tokens": lambda: kv_bytes(shape, 128_000),
        "checkpoint_bytes": lambda: hardware.memory_needed_bytes(shape),
        "training_flops": lambda: training_flops(name, 0),
        "training_flops_at_4096": lambda: training_flops(name, 4096),
    }
    return float(values[quantity]())


@pytest.mark.parametrize("row", ROWS, ids=lambda row: f"{row['model']}-{row['quantity']}")
def test_published(row: dict[str, str]) -> None:
    printed, unit = row["value"], float(row["unit"])
    ours = computed(row["model"], row["quantity"]) / unit
    if row["digits"]:
        rounding = {"rounded": ROUND_HALF_UP, "cut": ROUND_DOWN}[row["digits"]]
        assert Decimal(ours).quantize(Decimal(printed), rounding=rounding) == Decimal(printed)
    else:
        exact = "huggingface.co/api" in row["source"]
        assert math.isclose(ours, float(printed), rel_tol=1e-4 if exact else 1e-2)


def test_every_shipped_shape_has_a_published_count() -> None:
    counted = {row["model"] for row in ROWS if row["quantity"].startswith("parameters")}
    assert counted == set(hardware.known_shapes())
    assert all(row["source"] for row in ROWS)


# Of shapes that are alike only one.
DENSE = {
    hardware.shape(name).layers: name
    for name in hardware.known_shapes()
    if not any(layer.experts for layer in hardware.shape(name).layers)
}


# torch counts the products of a whole model without its memory; where experts are routed it cannot
# (test_counts does, on small ones).  Norms, which it leaves out, count as matrices here.
@pytest.mark.parametrize("name", DENSE.values())
def test_flops_of_dense_shapes(name: str) -> None:
    model = transformers_model(hardware.read_config(name))
    with torch.no_grad(), FlopCounterMode(display=False) as counter:
        model(torch.zeros((1, 3), dtype=torch.int64, device="meta"), logits_to_keep=1)
    vectors = sum(part.numel() for part in model.parameters() if part.ndim == 1)
    last = model.model.norm.weight.numel()
    shape = hardware.shape(name)
    # Of nine pairs torch counts three that the mask hides.
    hidden = 2 * 3 * sum(layer.attentions[0].pair_width for layer in shape.layers)
    # The last norm goes over every token there and is counted with the head here.
    norms = 2 * (3 * (vectors - last) + last)
    assert shape.flops(3, 0, logits=1) == counter.get_total_flops() - hidden + norms
