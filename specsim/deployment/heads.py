"""What the runs of a drafter read: shapes of heads from those of their target.

A head is one or more layers over the target's states.  Where no configuration of it is given, it is
as wide as they are, its attention has the target's heads and its block is three and a half times as
wide, as Llama 3's is.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from specsim.checks import InvalidArgumentError, UnsupportedError
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
from specsim.deployment.head_configs import head_config, is_head
from specsim.hardware.blocks import gated
from specsim.hardware.config import ConfigError, read_config, shape_from_config
from specsim.hardware.fields import (
    count,
    entries_of,
    head_width,
    kv_head_count,
    layer_count,
    object_of,
    optional_count,
)
from specsim.hardware.quantisation import precision_from_config
from specsim.hardware.shapes import Attention, Layer, Precision, Shape

_BLOCK_RATIO = 3.5
_HEAD_WIDTH = 128
# Fields of layers that are not counted in a head.
_UNCOUNTED = ("num_experts", "num_local_experts", "n_routed_experts", "kv_lora_rank")


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

    What is not quantised is in the number type of the target's embeddings, and caches are in the
    numbers of the target's.  Raises InvalidArgumentError for a head that was made for
    another target.
    """
    match drafter:
        case Ngram():
            return None
        case DraftModel(model=model):
            shape = model if isinstance(model, Shape) else named_shape("draft", str(model))
            return _alone(shape, target)
        case Parallel(model=model) if model is not None:
            config = head_config(drafter.method, str(model))
            if not is_head(config):
                return _alone(shape_from_config(config), target)
            return _head(drafter, target, config)
        case Medusa():
            return _medusa(drafter, target, gamma)
        case Mtp():
            return _mtp(drafter, target)
        case _:
            named = drafter.model is not None
            config = head_config(drafter.method, str(drafter.model)) if named else {}
            return _head(drafter, target, config)


def named_shape(role: str, name: str) -> Shape:
    """A shape by name or file; ``role`` says in a message which model it is of."""
    try:
        return shape_from_config(read_config(name))
    except ConfigError as error:
        raise InvalidArgumentError(f"{role} {error}") from None


def _alone(shape: Shape, target: Shape) -> DraftShapes:
    """A model of its own, which engines load in the 16-bit type of the target."""
    kept, own = target.precision, shape.precision
    cache = own if kept.kv_bits is None else kept
    own = replace(own, kv_bits=cache.kv_bits, kv_integers=cache.kv_integers)
    shape = shape.at(replace(own, dtype=kept.dtype))
    return DraftShapes(shape, shape, shape)


def _head(
    drafter: Eagle | Eagle3 | Parallel, target: Shape, config: Mapping[str, Any]
) -> DraftShapes:
    """Layers over states of the target; ``config`` is empty where none is given."""
    if config:
        _check_target(str(drafter.model), config, target)
    hidden = count(config, "hidden_size", default=target.hidden)
    attention = _attention(config, target)
    inner = count(config, "intermediate_size", default=round(_BLOCK_RATIO * hidden))
    layers = layer_count(config, "num_hidden_layers", default=drafter.layers)
    width = attention.pair_width // 2
    inputs = hidden * (width + attention.kv_width)
    plain = Layer(inputs + width * hidden + gated(hidden, inner) + 2 * hidden, (attention,))
    # EAGLE-3's first layer attends from the states and the embedded token side by side, each
    # behind a norm of its own.
    like_eagle3 = _is_eagle3(drafter, config)
    extra = inputs + hidden if like_eagle3 else 0
    vocabulary = _vocabulary(drafter, target, config)
    later = Shape(
        model_type=drafter.method,
        layers=(replace(plain, weights=plain.weights + extra), *(plain,) * (layers - 1)),
        hidden=hidden,
        head=vocabulary * hidden + hidden,
        idle=0,
        precision=_precision(config, target),
        vocabulary=vocabulary or None,
        longest_context=target.longest_context,
    )
    # States of the target are mixed into the head's width once, where the target has made them.
    mixing = _states(config, 3 if like_eagle3 else 2) * target.hidden * hidden
    first = _with_weights(later, mixing, mixing)
    own_head = like_eagle3 or vocabulary != target.vocabulary
    loaded = first if own_head else replace(first, head=hidden)
    if not like_eagle3:
        later = first  # its drafted tokens go the same way
    return DraftShapes(first, later, loaded)


def _states(config: Mapping[str, Any], usual: int) -> int:
    """Vectors that the head's first projection reads: EAGLE's state and embedded token, or states
    of so many layers.
    """
    inside = object_of(config, "dflash_config") or object_of(config, "eagle_config")
    for field in ("target_layer_ids", "eagle_aux_hidden_state_layer_ids"):
        states = entries_of(inside, field) or entries_of(config, field)
        if states:
            return len(states)
    return usual


def _is_eagle3(drafter: Eagle | Eagle3 | Parallel, config: Mapping[str, Any]) -> bool:
    """P-EAGLE is EAGLE-3 that drafts at masked positions (arXiv 2602.01469, section 3)."""
    if not isinstance(drafter, Parallel):
        return isinstance(drafter, Eagle3)
    words = " ".join(map(str, entries_of(config, "architectures"))).casefold()
    return drafter.kind == "p_eagle" or "eagle3" in words


def _vocabulary(
    drafter: Eagle | Eagle3 | Parallel, target: Shape, config: Mapping[str, Any]
) -> int:
    """Tokens that the head can draft."""
    whole = target.vocabulary or 0
    if not isinstance(drafter, (Eagle3, Parallel)):
        return whole
    if config:
        return count(config, "draft_vocab_size", default=whole, low=0)
    drafted = whole if drafter.draft_vocab is None else drafter.draft_vocab
    if whole and drafted > whole:
        if drafter.draft_vocab == type(drafter).draft_vocab:
            return whole  # the usual size, of a target that has less
        raise InvalidArgumentError(
            f"draft_vocab must be <= {whole:,}, the vocabulary of the target, got {drafted:,}"
        )
    return drafted


def _mtp(drafter: Mtp, target: Shape) -> DraftShapes:
    """The target's last layer over its state and the embedded token, each behind a norm, and one
    more behind it; the target's own head.  What mixes them is in the numbers of the layer, though
    vLLM keeps it in 16 bits beside quantised ones.
    """
    hidden = target.hidden
    one = replace(target, layers=target.layers[-1:], idle=0)
    mixing = 2 * hidden * hidden
    divided = target.model_type == "qwen3_next"  # vLLM 0.32.0, models/qwen3_next_mtp.py
    run = _with_weights(one, mixing + 2 * hidden, 0 if divided else mixing)
    loaded = replace(run, layers=run.layers * drafter.modules, head=drafter.modules * hidden)
    return DraftShapes(run, run, loaded)


def _medusa(drafter: Medusa, target: Shape, gamma: int) -> DraftShapes:
    """For each draft a square block with a bias, and a head of its own."""
    hidden = target.hidden
    block = hidden * hidden + hidden
    one = block + (target.vocabulary or 0) * hidden
    of_all = Shape(
        model_type=drafter.method,
        layers=(),
        hidden=hidden,
        head=drafter.heads * one,
        idle=0,
        precision=_precision({}, target),
        vocabulary=target.vocabulary,
        whole_head=drafter.heads * block,
    )
    used = replace(of_all, head=gamma * one, whole_head=gamma * block)
    return DraftShapes(used, used, of_all)


def _attention(config: Mapping[str, Any], target: Shape) -> Attention:
    hidden = target.hidden
    full = [part for layer in target.layers for part in layer.attentions if part.window is None]
    like = full[-1] if full else target.layers[-1].attentions[-1]
    # A latent attention has no key-value heads to copy; another one of a single head has.
    parts = (part for layer in target.layers for part in layer.attentions)
    latent = like.kv_heads == 1 < like.heads and any(
        part.expanded_width is not None or part.selected is not None for part in parts
    )
    heads = hidden // _HEAD_WIDTH if latent else like.heads
    # Eight, as SpecForge's head for DeepSeek-V3 has.
    kv_heads = (8 if heads % 8 == 0 else heads) if latent else like.kv_heads
    width = _HEAD_WIDTH if latent else like.pair_width // (2 * like.heads)
    heads = count(config, "num_attention_heads", default=max(heads, 1))
    hidden = count(config, "hidden_size", default=hidden)
    if config:
        kv_heads, width = kv_head_count(config, heads), head_width(config, hidden, heads)
    return Attention(2 * kv_heads * width, 2 * heads * width, heads, kv_heads)


def _check_target(name: str, config: Mapping[str, Any], target: Shape) -> None:
    """Refuse a head that reads other states or tokens than the target's."""
    hidden = count(config, "target_hidden_size", "hidden_size")
    if hidden != target.hidden:
        raise InvalidArgumentError(
            f"head {name} is for a target with states of {hidden:,} numbers, this one has "
            f"{target.hidden:,}"
        )
    vocabulary = optional_count(config, "vocab_size")
    if vocabulary and target.vocabulary and vocabulary != target.vocabulary:
        raise InvalidArgumentError(
            f"head {name} is for a vocabulary of {vocabulary:,} tokens, the target has "
            f"{target.vocabulary:,}"
        )
    for field in _UNCOUNTED:
        if config.get(field):
            raise UnsupportedError(
                f"head {name} has {field}: heads with routed experts or latent attention are not "
                "counted; leave the model out for a head with a dense block"
            )


def _precision(config: Mapping[str, Any], target: Shape) -> Precision:
    """Of a head: quantised if its config says so, else in the number type of the target's
    embeddings, which engines load it in; its cache is in the target's numbers.
    """
    base = precision_from_config(config) if config.get("quantization_config") else Precision()
    kept = target.precision
    base = replace(base, kv_bits=kept.kv_bits, kv_integers=kept.kv_integers)
    return replace(base, dtype=kept.dtype)


def _with_weights(shape: Shape, weights: int, whole: int) -> Shape:
    """The same with more weights in its first layer, of which every card has so many whole."""
    first, *others = shape.layers
    more = replace(first, weights=first.weights + weights, whole=first.whole + whole)
    return replace(shape, layers=(more, *others))
