"""The text of a request while it is drafted and verified, and the models that read along.

There is one text, a stack of tokens, whoever writes it: drafters push proposed tokens, a verifier
cuts the rejected ones and pushes its own.  Every model remembers how much of the text its cache
holds, and a cut shortens the caches that went past it.  So nobody has to be told what became of
a proposal, however deep drafters are nested: it is in the text or it is not.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch

from calibrate.decode.engine import CachedModel, DecodeRequest

# From a model's logits (1, V) for its next token: is it unsure?
Unsure = Callable[[torch.Tensor], bool]


class Text:
    """Tokens of the prompt and behind it, on the device and, as far as asked for, on the host.

    capacity : the most tokens that it will ever have
    vocabulary : how many tokens there are
    """

    def __init__(
        self, prompt: Sequence[int], capacity: int, vocabulary: int, device: torch.device
    ) -> None:
        self.vocabulary = vocabulary
        self._ids = torch.zeros((1, capacity), dtype=torch.int64, device=device)
        self._ids[0, : len(prompt)] = torch.tensor(prompt, device=device)
        self._length = len(prompt)
        self._host = list(prompt)
        self._readers: dict[int, Reader] = {}

    @classmethod
    def of(cls, request: DecodeRequest, model: CachedModel) -> Text:
        """The text of a request, with room for all that may come, on the model's device."""
        capacity = len(request.text) + request.limit
        return cls(request.text, capacity, model.vocabulary, model.device)

    def __len__(self) -> int:
        return self._length

    def ids(self, start: int) -> torch.Tensor:
        """The tokens from ``start`` on, shape (1, n), valid until the next cut."""
        return self._ids.narrow(1, start, self._length - start)

    def tokens(self) -> list[int]:
        """All tokens on the host; not to be changed."""
        known = len(self._host)
        if known < self._length:
            self._host += self.ids(known)[0].tolist()
        return self._host

    def push(self, tokens: torch.Tensor) -> None:
        """Append tokens of shape (1, n)."""
        count = tokens.shape[1]
        self._ids.narrow(1, self._length, count).copy_(tokens)
        self._length += count

    def push_all(self, tokens: Sequence[int]) -> None:
        """Append tokens of the host."""
        if tokens:
            self.tokens().extend(tokens)
            self.push(torch.tensor([tokens], device=self._ids.device))

    def cut(self, length: int) -> None:
        """Drop all tokens from position ``length`` on, also from the caches of the readers."""
        if length < self._length:
            self._length = length
            del self._host[length:]
            for reader in self._readers.values():
                reader.cut(length)

    def reader(self, model: CachedModel) -> Reader:
        """The model reading this text, its cache filled with all of the prompt but one token.

        A model reads a text once, however many drafters share it.
        """
        if id(model) not in self._readers:
            self._readers[id(model)] = Reader(model, self)
        return self._readers[id(model)]


class Reader:
    """A model that reads a text as it comes; ``held`` tokens of it are in the model's cache."""

    def __init__(self, model: CachedModel, text: Text) -> None:
        self.model, self.text = model, text
        self.held = len(text) - 1

    def catch_up(self) -> torch.Tensor:
        """Read all that is unread, at least one token, in one run; logits (n, V)."""
        logits = self.model.read(self.text.ids(self.held))
        self.held = len(self.text)
        return logits

    def cut(self, length: int) -> None:
        if length < self.held:
            self.model.forget(self.held - length)
            self.held = length


def write_while_sure(model: Reader, most: int, unsure: Unsure, request: DecodeRequest) -> None:
    """The model pushes up to ``most`` tokens, until it is unsure or has ended the text.

    The run at which it is unsure gives no token.
    """
    for _ in range(most):
        logits = model.catch_up()[-1:]
        if unsure(logits):
            return
        model.text.push(request.sampling.draw(logits, request.random))
        if model.text.tokens()[-1] in request.end_of_text:
            return
