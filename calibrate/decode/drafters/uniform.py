"""Random tokens: the drafter that any other must beat (Leviathan23 section 3.6)."""

from __future__ import annotations

import torch

from calibrate.decode.drafters.base import Lookup
from calibrate.decode.drawing import Drawing, Rows


class Uniform(Lookup):
    """Every token alike, at any temperature: beta = sum_x min(p(x), 1 / V) > 0."""

    def __init__(self, name: str = "uniform") -> None:
        super().__init__(name)

    def propose(self, room: int, drawing: Drawing) -> Rows | None:
        if not room:
            return None
        random, size = drawing.generator, self.text.vocabulary
        with self.run(room):
            tokens = torch.randint(size, (1, room), generator=random, device=random.device)
            self.text.push(tokens)
            if not drawing.rows:
                return None
            rows = torch.full((room, size), 1 / size, device=random.device)
            return Rows(rows, rows if drawing.unscaled else None)
