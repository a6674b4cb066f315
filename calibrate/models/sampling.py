"""From logits to the distribution that tokens are drawn from, on the device of the logits.

Order and ties follow transformers' logits processors: temperature, then top-k (every token that
ties with the k-th stays), then top-p (the smallest set of most probable tokens that reaches p).
"""

from __future__ import annotations

from dataclasses import dataclass

import torch

from specsim.checks import InvalidArgumentError, integer, number

# Below this, logits over temperature leave the range of float32.
_COLDEST = 1e-30


@dataclass(frozen=True)
class Sampling:
    """temperature >= 0 (0 is greedy), top_k >= 1 or None, 0 < top_p <= 1 or None."""

    temperature: float = 1.0
    top_k: int | None = None
    top_p: float | None = None

    def __post_init__(self) -> None:
        if 0 < number("temperature", self.temperature, low=0.0) < _COLDEST:
            raise InvalidArgumentError(
                f"temperature must be 0 or >= {_COLDEST:g}, got {self.temperature:g}"
            )
        if self.top_k is not None:
            integer("top_k", self.top_k, low=1)
        if self.top_p is not None and number("top_p", self.top_p, low=0.0, high=1.0) == 0:
            raise InvalidArgumentError("top_p must be in (0, 1], got 0")

    @property
    def greedy(self) -> bool:
        return self.temperature == 0

    def probabilities(self, logits: torch.Tensor) -> torch.Tensor:
        """Distributions for logits of shape (..., V); one-hot at the argmax when greedy."""
        if self.greedy:
            top = logits.argmax(dim=-1, keepdim=True)
            return torch.zeros_like(logits, dtype=torch.float32).scatter_(-1, top, 1.0)
        scaled = logits.float() / self.temperature
        if self.top_k is not None and self.top_k < scaled.shape[-1]:
            kth = scaled.topk(self.top_k, dim=-1).values[..., -1:]
            scaled = scaled.masked_fill(scaled < kth, -torch.inf)
        if self.top_p is not None and self.top_p < 1:
            ascending, order = scaled.sort(dim=-1)
            below = ascending.softmax(dim=-1).cumsum(dim=-1)
            dropped = below <= 1 - self.top_p
            dropped[..., -1] = False
            scaled = scaled.masked_fill(dropped.scatter(-1, order, dropped), -torch.inf)
        return scaled.softmax(dim=-1)

    def draw(self, logits: torch.Tensor, generator: torch.Generator) -> torch.Tensor:
        """One token for each row of logits (N, V), shape (N, 1)."""
        if self.greedy:
            return logits.argmax(dim=-1, keepdim=True)
        return torch.multinomial(self.probabilities(logits), 1, generator=generator)
