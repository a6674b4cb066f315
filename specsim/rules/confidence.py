"""Confidence in a whole response, which a sequence cascade decides by (Narasimhan24 eq. 1)."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from specsim.checks import Floats

# From the log probabilities of a response's tokens, (n,) with n >= 1, to its confidence in nats.
Confidence = Callable[[Floats], float]


def sum_log_probability(logs: Floats) -> float:
    """Log of the probability of the whole response: Chow's rule for sequences (eq. 1)."""
    return float(logs.sum())


def mean_log_probability(logs: Floats) -> float:
    """The same per token, which does not punish length."""
    return float(logs.mean())


CONFIDENCES: Mapping[str, Confidence] = {"sum": sum_log_probability, "mean": mean_log_probability}
