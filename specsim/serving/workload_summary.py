"""What a workload is in a few figures: its rate, how it bursts, how long its requests are."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from specsim.checks import Floats, Ints
from specsim.serving.prefixes import shared_tokens
from specsim.serving.requests import Requests

_PERCENTILES = (50, 90, 99)


@dataclass(frozen=True)
class WorkloadSummary:
    """Figures of some requests.

    duration_s : from the first arrival to the last; nan where none has a time of its own
    rate : requests per second between them
    interval_cv : standard deviation of the intervals over their mean; a Poisson process has 1
    prompt, output : tokens: mean, p50, p90, p99
    shared : share of the prompt tokens in blocks that an earlier request had, too; None: not known
    """

    requests: int
    duration_s: float
    rate: float
    interval_cv: float
    prompt: dict[str, float]
    output: dict[str, float]
    shared: float | None

    @staticmethod
    def of(requests: Requests) -> WorkloadSummary:
        """Of one replication."""
        intervals = np.diff(requests.arrival_s)
        # In a closed loop all are there from the start, and one request has no interval.
        duration = float(requests.arrival_s[-1] - requests.arrival_s[0]) or np.nan
        prefix = requests.prefix
        return WorkloadSummary(
            requests=len(requests),
            duration_s=duration,
            rate=intervals.size / duration,
            interval_cv=float(intervals.std() / intervals.mean()) if duration > 0 else np.nan,
            prompt=_figures(requests.prompt_tokens),
            output=_figures(requests.output_tokens),
            shared=None
            if prefix is None
            else shared_tokens(prefix) / float(requests.prompt_tokens.sum()),
        )

    def row(self) -> dict[str, float | int | None]:
        """As one row."""
        found: dict[str, float | int | None] = {
            "requests": self.requests,
            "duration_s": self.duration_s,
            "rate": self.rate,
            "interval_cv": self.interval_cv,
        }
        for name, figures in (("prompt", self.prompt), ("output", self.output)):
            found |= {f"{name}_{key}": value for key, value in figures.items()}
        if self.shared is not None:
            found["shared"] = self.shared
        return found


def _figures(tokens: Ints | Floats) -> dict[str, float]:
    found = {"mean": float(tokens.mean())}
    at = np.percentile(tokens, _PERCENTILES).tolist()
    return found | {f"p{each}": value for each, value in zip(_PERCENTILES, at, strict=True)}
