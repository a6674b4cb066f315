"""Drafting with an EAGLE head (Li24): one layer over the target's last hidden states.

A proposal of K tokens is K runs.  The first reads every token that was emitted since the last
proposal, each with the target's feature of the token before it; each further one reads the token
just drafted, with the head's own feature.  What it kept of own features is dropped with the next
proposal, whether its tokens were accepted or not: by then the target has read them.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import TYPE_CHECKING

import torch

from calibrate.decode.drafters.base import Drafter
from calibrate.decode.drawing import Drawing, Rows, join
from calibrate.decode.engine import CachedModel, Runs, forget_last, wait
from calibrate.decode.text import Text
from specsim.checks import UnsupportedError

if TYPE_CHECKING:
    from calibrate.models.eagle import EagleModel


class CachedHead:
    """A head with the key-value cache of one request, beside the target that it reads.

    The cache holds pairs: pair k is of the feature of token k and the token k + 1.
    """

    reads_states = True

    def __init__(
        self, model: EagleModel, target: CachedModel, timed: bool = True, name: str = "eagle"
    ) -> None:
        self.model, self.target, self.timed, self.name = model, target, timed, name
        self.context = target.context
        self.reset()

    def reset(self) -> None:
        """Forget the request and the counts."""
        self.cache = self.model.empty_cache()
        self.runs = Runs()

    @torch.inference_mode()
    def prefill(self, prompt: Sequence[int], written: Sequence[int] = ()) -> None:
        """Read all pairs of the text but the last, after the target read it; not counted."""
        self.reset()
        text = [*prompt, *written]
        if len(text) > 2:
            ids = torch.tensor([text[1:-1]], device=self.model.device)
            self.model(ids, self.target.states()[None, : len(text) - 2], self.cache)
            wait(self.model.device)
        if any(self.cache.is_sliding):
            self.cache.activate_past_recording()

    def read(self, ids: torch.Tensor, features: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """One decoding run over tokens (1, n) and the features before them, (n, h).

        Returns logits (n, V) of the tokens behind, and the head's own features there, (n, h).
        """
        start = time.perf_counter()
        logits, own = self.model(ids, features[None], self.cache)
        if self.timed:
            wait(self.model.device)
        self.runs.add(ids.shape[1], time.perf_counter() - start)
        return logits[0, :, : self.target.vocabulary], own[0]

    def forget(self, pairs: int) -> None:
        """Drop the last pairs from the cache."""
        if pairs:
            for layer in self.cache.layers:
                forget_last(layer, pairs)


class EagleHead(Drafter):
    """A head that drafts behind what its target has read.  Fills the room it is given.

    Behind a text of one token it proposes nothing: there is no feature before the first token.
    """

    def __init__(self, head: CachedHead) -> None:
        self.head = head
        self.sources = (head,)

    def begin(self, text: Text) -> None:
        super().begin(text)
        self.target = text.reader(self.head.target)
        # Pairs in the cache whose features are the target's, and the head's own behind them.
        self.held, self.own = max(len(text) - 2, 0), 0

    def propose(self, room: int, drawing: Drawing) -> Rows | None:
        size = len(self.text)
        if not room or size < 2:
            return None
        if self.target.held < size - 1:
            raise UnsupportedError(
                f"{self.head.name} drafts behind what its target has read, but "
                f"{size - 1 - self.target.held} tokens before it were drafted by others: let it "
                "draft first"
            )
        self.head.forget(self.own)
        features = self.head.target.states()[self.held : size - 1]
        logits, own = self.head.read(self.text.ids(self.held + 1), features)
        self.held, self.own = size - 1, 0
        rows = []
        for left in reversed(range(room)):
            token, row = drawing.draw(logits[-1:])
            self.text.push(token)
            rows.append(row)
            if left:
                logits, own = self.head.read(token, own[-1:])
                self.own += 1
        return join(rows)
