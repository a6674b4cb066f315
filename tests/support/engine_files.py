"""What vLLM and its benchmark write, of invented counts."""

from __future__ import annotations

import json

import numpy as np


def scrape(alpha: float, gamma: int, rounds: int = 100_000) -> str:
    """A scrape of vLLM whose drafts were accepted i.i.d."""
    reached = np.round(rounds * alpha ** np.arange(1.0, gamma + 1)).astype(int)
    counters = {"drafts": rounds, "draft_tokens": rounds * gamma, "accepted_tokens": reached.sum()}
    lines = [f'vllm:spec_decode_num_{name}_total{{engine="0"}} {n}' for name, n in counters.items()]
    return "\n".join(
        lines
        + [
            f'vllm:spec_decode_num_accepted_tokens_per_pos_total{{engine="0",position="{i}"}} {n}'
            for i, n in enumerate(reached)
        ]
    )


def bench(step_ms: float, batch: int, gamma: int = 0, alpha: float = 0.7) -> str:
    """The result of ``vllm bench serve``, of ``gamma`` drafts where that is not 0."""
    length = (1 - alpha ** (gamma + 1)) / (1 - alpha)
    result = {
        "max_concurrency": batch,
        "median_itl_ms": step_ms,
        "mean_itl_ms": step_ms,
        "mean_tpot_ms": step_ms / length,
    }
    if gamma:
        rounds = 100_000
        reached = np.round(rounds * alpha ** np.arange(1.0, gamma + 1))
        result |= {
            "spec_decode_num_drafts": rounds,
            "spec_decode_draft_tokens": rounds * gamma,
            "spec_decode_accepted_tokens": int(reached.sum()),
            "spec_decode_acceptance_rate": 100 * reached.sum() / (rounds * gamma),
            "spec_decode_acceptance_length": 1 + reached.sum() / rounds,
            "spec_decode_per_position_acceptance_rates": (reached / rounds).tolist(),
        }
    return json.dumps(result)
