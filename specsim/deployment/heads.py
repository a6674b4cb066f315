"""What the runs of a drafter read: shapes of heads from those of their target.

A head is one or more layers over the target's states, so its width is the target's.  Where no
configuration of it is given, its attention has the target's heads and its block is three and a half
times as wide as its states, as Llama 3's is.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from importlib import resources
from typing import Any

from specsim.checks import InvalidArgumentError
from specsim.deployment.drafters import (
    Drafter,
    DraftModel,
    Eagle,
    Eagle3,
    Medusa,
    Mtp,
    Ngram,
    Parallel,
)
from specsim.hardware.blocks import gated
from specsim.hardware.config import ConfigError, read_config, shape_from_config
from specsim.hardware.fields import count
from specsim.hardware.quantisation import precision_from_config
from specsim.hardware.shapes import Attention, Layer, Precision, Shape

_BLOCK_RATIO = 3.5
_HEAD_WIDTH = 128
# Fields that only configurations of heads have.
_HEAD_FIELDS = {"draft_vocab_size", "target_hidden_size", "dflash_config", "eagle_config"}


@dataclass(frozen=True)
class DraftShapes:
    """What the runs of a drafter read.

    first, later : of the first run of a round, and of the others
    loaded : what it keeps in memory besides the target; what it shares with that is not in it
    """

    first: Shape
    later: Shape
    loaded: Shape


def draft_shapes(drafter: Drafter, target: Shape, gamma: int) -> DraftShapes | None:
    """Of a round with ``gamma`` drafts; None where no model runs.

    Raises InvalidArgumentError for a head that was made for another target.
    """
    match drafter:
        case Ngram():
            return None
        case DraftModel(model=model):
            shape = model if isinstance(model, Shape) else named_shape("draft", str(model))
            return DraftShapes(shape, shape, shape)
        case Parallel(model=model) if model is not None and not is_head(_config(str(model))):
            shape = shape_from_config(_config(str(model)))
            return DraftShapes(shape, shape, shape)
        case Medusa():
            return _medusa(drafter, target, gamma)
        case Mtp():
            return _mtp(drafter, target)
        case _:
            return _head(drafter, target)


def named_shape(role: str, name: str) -> Shape:
    """A shape by name or file; ``role`` says in a message which model it is of."""
    try:
        return shape_from_config(read_config(name))
    except ConfigError as error:
        raise InvalidArgumentError(f"{role} {error}") from None


def is_head(config: Mapping[str, Any]) -> bool:
    """Whether a config.json is of a head over another model's states, not of a language model."""
    return bool(_HEAD_FIELDS & config.keys())


def _config(name: str) -> Mapping[str, Any]:
    """Of a head or a draft model: a shipped one, a file, or a folder."""
    for file in (resources.files("specsim") / "configs" / "heads").iterdir():
        if file.name.casefold() == f"{name}.json".casefold():
            shipped: Mapping[str, Any] = json.loads(file.read_text("utf-8"))
            return shipped
    try:
        return read_config(name)
    except ConfigError as error:
        raise InvalidArgumentError(f"head {error}") from None


def _head(drafter: Eagle | Eagle3 | Parallel, target: Shape) -> DraftShapes:
    config: Mapping[str, Any] = {}
    if drafter.model is not None:
        config = _config(str(drafter.model))
        _check_target(str(drafter.model), config, target)
    hidden = target.hidden
    attention = _attention(config, target)
    inner = count(config, "intermediate_size", default=round(_BLOCK_RATIO * hidden))
    layers = count(config, "num_hidden_layers", default=drafter.layers)
    # EAGLE-3 attends from the states and the embedded token side by side.
    wide = 2 if isinstance(drafter, Eagle3) else 1
    width = attention.pair_width // 2
    inputs = wide * hidden * (width + attention.kv_width) + width * hidden
    layer = Layer(inputs + gated(hidden, inner) + (2 + wide) * hidden, (attention,))
    vocabulary = target.vocabulary or 0
    if isinstance(drafter, (Eagle3, Parallel)):
        vocabulary = count(
            config, "draft_vocab_size", default=drafter.draft_vocab or vocabulary, low=0
        )
    later = Shape(
        model_type=drafter.method,
        layers=(layer,) * layers,
        hidden=hidden,
        head=vocabulary * hidden + hidden,
        idle=0,
        precision=precision_from_config(config) if config else _unquantised(target),
        vocabulary=vocabulary or None,
        longest_context=target.longest_context,
    )
    # States of the target are mixed into the head's width once, where the target has made them.
    states = 3 if isinstance(drafter, Eagle3) else 2
    first = _with_weights(later, states * hidden * hidden)
    own_head = isinstance(drafter, Eagle3) or vocabulary != target.vocabulary
    loaded = first if own_head else replace(first, head=hidden)
    if not isinstance(drafter, Eagle3):
        later = first  # its drafted tokens go the same way
    return DraftShapes(first, later, loaded)


def _mtp(drafter: Mtp, target: Shape) -> DraftShapes:
    """The target's last layer over its state and the embedded token; the target's own head."""
    hidden = target.hidden
    one = replace(target, layers=target.layers[-1:], idle=0)
    run = _with_weights(one, 2 * hidden * hidden + 3 * hidden)
    loaded = replace(run, layers=run.layers * drafter.modules, head=hidden)
    return DraftShapes(run, run, loaded)


def _medusa(drafter: Medusa, target: Shape, gamma: int) -> DraftShapes:
    hidden = target.hidden
    one = hidden * hidden + hidden + (target.vocabulary or 0) * hidden
    of_all = Shape(
        model_type=drafter.method,
        layers=(),
        hidden=hidden,
        head=drafter.heads * one,
        idle=0,
        precision=_unquantised(target),
        vocabulary=target.vocabulary,
    )
    used = replace(of_all, head=gamma * one)
    return DraftShapes(used, used, of_all)


def _attention(config: Mapping[str, Any], target: Shape) -> Attention:
    hidden = target.hidden
    full = [part for layer in target.layers for part in layer.attentions if part.window is None]
    like = full[-1] if full else target.layers[-1].attentions[-1]
    # A latent attention has no key-value heads to copy.
    latent = like.kv_heads == 1 < like.heads
    heads = hidden // _HEAD_WIDTH if latent else like.heads
    kv_heads = max(heads // 8, 1) if latent else like.kv_heads
    width = _HEAD_WIDTH if latent else like.pair_width // (2 * like.heads)
    heads = count(config, "num_attention_heads", default=max(heads, 1))
    kv_heads = count(config, "num_key_value_heads", default=kv_heads)
    width = count(config, "head_dim", default=hidden // heads if config else width)
    return Attention(2 * kv_heads * width, 2 * heads * width, heads, kv_heads)


def _check_target(name: str, config: Mapping[str, Any], target: Shape) -> None:
    """Refuse a head that reads other states or tokens than the target's."""
    hidden = count(config, "target_hidden_size", "hidden_size")
    if hidden != target.hidden:
        raise InvalidArgumentError(
            f"head {name} is for a target with states of {hidden:,} numbers, {target.model_type} "
            f"has {target.hidden:,}"
        )
    vocabulary = config.get("vocab_size")
    if vocabulary and target.vocabulary and vocabulary != target.vocabulary:
        raise InvalidArgumentError(
            f"head {name} is for a vocabulary of {vocabulary:,} tokens, {target.model_type} has "
            f"{target.vocabulary:,}"
        )


def _unquantised(target: Shape) -> Precision:
    """Heads are trained and kept in the number type of the target's embeddings."""
    return Precision(target.precision.dtype, kv_bits=target.precision.kv_bits)


def _with_weights(shape: Shape, weights: int) -> Shape:
    """The same with more weights in its first layer."""
    first = replace(shape.layers[0], weights=shape.layers[0].weights + weights)
    return replace(shape, layers=(first, *shape.layers[1:]))
