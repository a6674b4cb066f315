"""Drafting a whole block in one run, from masks (Xia22)."""

from __future__ import annotations

from calibrate.decode.drafters.base import Drafter
from calibrate.decode.drawing import Drawing, Rows
from calibrate.decode.engine import CachedModel
from calibrate.decode.text import Text
from specsim.checks import UnsupportedError


class MaskFiller(Drafter):
    """A causal model trained to fill in masks: the row at a mask is for the token there.

    A proposal is one run over what is new in the text and the masks, and takes the top tokens.
    """

    def __init__(self, model: CachedModel, mask: int) -> None:
        self.model, self.mask = model, mask
        self.sources = (model,)

    def begin(self, text: Text) -> None:
        super().begin(text)
        self.reader = text.reader(self.model)

    def propose(self, room: int, drawing: Drawing) -> Rows | None:
        if not drawing.sampling.greedy:
            raise UnsupportedError("a block drafted from masks takes top tokens: temperature 0")
        if not room:
            return None
        start = len(self.text)
        self.text.push_all([self.mask] * room)
        logits = self.reader.catch_up()[-room:]
        self.text.cut(start)
        self.text.push(logits.argmax(-1)[None])
        return drawing.certain(self.text, start)
