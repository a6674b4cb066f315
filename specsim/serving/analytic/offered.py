"""What a workload asks for, in the moments that the analytic mode needs."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from specsim.checks import Floats, Ints, number
from specsim.serving.requests import Requests

# Requests that stand for all.
_SAMPLE = 2048


@dataclass(frozen=True, eq=False)
class Offered:
    """Lengths of some requests that stand for all, and how they arrive.

    prompt_tokens, output_tokens : of each, by rising output, shape (M,)
    interval_cv : standard deviation of the intervals between arrivals over their mean; 1: Poisson
    shared : share of the prompt tokens that earlier prompts began with, too
    """

    prompt_tokens: Ints
    output_tokens: Ints
    interval_cv: float = 1.0
    shared: float = 0.0

    def __post_init__(self) -> None:
        number("interval_cv", self.interval_cv, low=0.0)

    @staticmethod
    def of(requests: Requests, interval_cv: float = 1.0) -> Offered:
        """Of requests, or of 2,048 of them by rising output."""
        order = np.lexsort((requests.prompt_tokens, requests.output_tokens))
        if order.size > _SAMPLE:
            order = order[(np.arange(_SAMPLE) * 2 + 1) * order.size // (2 * _SAMPLE)]
        shared = 0.0
        if requests.prefix is not None:
            from specsim.serving.prefixes import shared_tokens

            shared = shared_tokens(requests.prefix) / float(requests.prompt_tokens.sum())
        prompts, outputs = requests.prompt_tokens[order], requests.output_tokens[order]
        return Offered(prompts, outputs, interval_cv, shared)

    @cached_property
    def mean_prompt(self) -> float:
        """E[P]"""
        return float(self.prompt_tokens.mean())

    @cached_property
    def mean_output(self) -> float:
        """E[O]"""
        return float(self.output_tokens.mean())

    @cached_property
    def read_prompt(self) -> float:
        """E[P^2] / E[P]: of the prompt to which a token that is read belongs, in the mean."""
        squares: Floats = self.prompt_tokens.astype(np.float64) ** 2
        return float(squares.mean()) / self.mean_prompt

    def read_before(self, budget: int) -> float:
        """Tokens that were read before a chunk, over the tokens of prompts: of one that is longer
        than a step takes half of what is left, E[P max(P - budget, 0)] / 2 E[P].
        """
        prompts = self.prompt_tokens.astype(np.float64)
        more = prompts * np.maximum(prompts - budget, 0.0)
        return float(more.mean()) / (2 * self.mean_prompt)

    @cached_property
    def mean_context(self) -> float:
        """Tokens in the cache of a request that decodes, over the time that it does:
        E[P m + m^2 / 2] / E[m], m = O - 1 the tokens after the first.
        """
        later = self.output_tokens - 1.0
        total = float(later.sum())
        if total == 0.0:
            return self.mean_prompt
        return float((self.prompt_tokens * later + later**2 / 2).sum()) / total
