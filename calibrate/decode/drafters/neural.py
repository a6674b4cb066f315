"""Drafting with a model, token by token; and the target's own first layers as that model."""

from __future__ import annotations

import copy
from typing import Any

import torch

from calibrate.decode.drafters.base import Drafter
from calibrate.decode.drawing import Drawing, Rows, join
from calibrate.decode.engine import CachedModel
from calibrate.decode.text import Text
from specsim.checks import integer


class Neural(Drafter):
    """One run a token (Leviathan23 Algorithm 1).  Fills the room it is given."""

    def __init__(self, model: CachedModel) -> None:
        self.model = model
        self.sources = (model,)

    def begin(self, text: Text) -> None:
        super().begin(text)
        self.reader = text.reader(self.model)

    def propose(self, room: int, drawing: Drawing) -> Rows | None:
        rows = []
        for _ in range(room):
            token, row = drawing.draw(self.reader.catch_up()[-1:])
            self.text.push(token)
            rows.append(row)
        return join(rows)


def first_layers(model: Any, layers: int) -> Any:
    """The first layers of a causal model with its embedding, last norm and head (early exit).

    Shares the weights; a cache of its own comes with its own ``CachedModel``.
    """
    full = model.config.get_text_config().num_hidden_layers
    layers = integer("layers", layers, low=1, high=full)
    config = copy.deepcopy(model.config)
    text = config.get_text_config()
    text.num_hidden_layers = layers
    if getattr(text, "layer_types", None):
        text.layer_types = text.layer_types[:layers]
    with torch.device("meta"):
        shallow = type(model)(config)
    weights = model.state_dict(keep_vars=True)
    shallow.load_state_dict({name: weights[name] for name in shallow.state_dict()}, assign=True)
    # Buffers that no checkpoint holds, such as the frequencies of rotary positions.
    buffers = dict(model.named_buffers())
    for name, _ in list(shallow.named_buffers()):
        owner, _, leaf = name.rpartition(".")
        setattr(shallow.get_submodule(owner), leaf, buffers[name])
    return shallow.eval()
