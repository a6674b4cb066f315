"""Putting the counts of attention and of what follows it together, whatever the family."""

from __future__ import annotations

from dataclasses import replace

from specsim.hardware.fields import Config, count
from specsim.hardware.quantisation import precision_from_config
from specsim.hardware.shapes import Attention, Layer, Shape


def layer(block: Layer, weights: int, *attentions: Attention, whole: int = 0) -> Layer:
    """A layer of ``block`` behind attention with so many weights, norms included.

    whole : of those of the attention, what every card of a tensor-parallel group has
    """
    return replace(
        block,
        weights=block.weights + weights,
        attentions=attentions,
        whole=block.whole + whole,
    )


def decoder(config: Config, text: Config, layers: list[Layer], tied: bool) -> Shape:
    """Layers between a table of embeddings and a head with one norm.

    text : the part of ``config`` that describes the language model
    tied : whether the head is the table of embeddings
    """
    hidden = count(text, "hidden_size")
    table = count(text, "vocab_size") * hidden
    return Shape(
        model_type=config["model_type"],
        layers=tuple(layers),
        hidden=hidden,
        head=table + hidden,
        idle=0 if tied else table,
        precision=precision_from_config(config),
    )
