"""How tokens are drawn in a request, and what each was drawn from."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch.nn.functional import one_hot

from calibrate.decode.text import Text
from calibrate.models.sampling import Sampling


@dataclass(frozen=True, eq=False)
class Rows:
    """What n tokens were drawn from, in the order of the text.

    q : shape (n, V)
    unscaled : the same rows at temperature 1 without filters, (n, V), where a rule asks for them
    """

    q: torch.Tensor
    unscaled: torch.Tensor | None = None

    def __len__(self) -> int:
        return len(self.q)

    def __getitem__(self, part: slice) -> Rows:
        return Rows(self.q[part], None if self.unscaled is None else self.unscaled[part])


@dataclass(frozen=True, eq=False)
class Drawing:
    """How tokens are drawn in a request, and what the verifier wants to know of it.

    rows : whether drafters must say what they drew from; greedy verification compares tokens
    unscaled : whether the rows at temperature 1 are wanted as well
    """

    sampling: Sampling
    generator: torch.Generator
    rows: bool = True
    unscaled: bool = False

    def draw(self, logits: torch.Tensor) -> tuple[torch.Tensor, Rows | None]:
        """A token (1, 1) from logits (1, V), and the row that it was drawn from."""
        if self.sampling.greedy:
            token = logits.argmax(dim=-1, keepdim=True)
            return token, self.law(logits) if self.rows else None
        rows = self.law(logits)
        token = torch.multinomial(rows.q, 1, generator=self.generator)
        return token, rows if self.rows else None

    def law(self, logits: torch.Tensor) -> Rows:
        """The distributions that tokens are drawn from at logits (n, V)."""
        unscaled = logits.float().softmax(dim=-1) if self.unscaled else None
        return Rows(self.sampling.probabilities(logits), unscaled)

    def certain(self, text: Text, start: int) -> Rows | None:
        """Rows of the text from ``start`` on, where nothing else could have come."""
        if not self.rows or start == len(text):
            return None
        rows = one_hot(text.ids(start)[0], text.vocabulary).float()
        return Rows(rows, rows if self.unscaled else None)


def join(parts: Sequence[Rows | None]) -> Rows | None:
    """The rows of proposals one after the other."""
    found = [rows for rows in parts if rows is not None]
    if len(found) < 2:
        return found[0] if found else None
    unscaled = [rows.unscaled for rows in found if rows.unscaled is not None]
    return Rows(torch.cat([rows.q for rows in found]), torch.cat(unscaled) if unscaled else None)
