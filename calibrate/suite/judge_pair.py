"""What was measured of the trained pair, beside the paper and beside what the trace predicts."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator

import numpy as np

from calibrate.measure.calibration import acceptance_rates
from calibrate.suite.acceptance import accepted
from calibrate.suite.judge import Raw, Row, profile_of
from specsim import profiles
from specsim.predict.replay.fixed_gamma import replay
from specsim.traces import Trace

# Leviathan23 Table 3: GPT-like 97M on lm1b, by drafter and temperature.
PAPER_ALPHA = {
    ("draft", 0.0): 0.88,
    ("draft", 1.0): 0.89,
    ("unigram", 0.0): 0.03,
    ("unigram", 1.0): 0.03,
    ("bigram", 0.0): 0.05,
    ("bigram", 1.0): 0.05,
}


def pair_profile(raw: Raw, machine: Raw) -> profiles.Profile:
    """The grid of the trained pair, at batch 1 and in float32, as a profile of costs alone."""
    models = []
    for which in ("target", "draft"):
        shape = raw["plan"][which]
        config = {
            "model_type": "gpt2",
            "n_embd": shape["width"],
            "n_layer": shape["layers"],
            "n_head": shape["heads"],
            "n_inner": shape["feed_forward"],
            "n_positions": raw["plan"]["window"],
            "vocab_size": raw["plan"]["vocabulary"],
            "tie_word_embeddings": False,
            "torch_dtype": "float32",
        }
        models.append(
            profiles.MeasuredModel(
                name=f"gpt-{raw['training'][which]['parameters'] / 1e6:.0f}m",
                parameters=raw["training"][which]["parameters"],
                context=raw["plan"]["window"],
                sha256=hashlib.sha256(json.dumps(config, sort_keys=True).encode()).hexdigest(),
                config=config,
            )
        )
    grids = list(raw["grid"].values())
    found = {key: [row for grid in grids for row in grid[key]] for key in ("times", "overhead")}
    missing = [row for grid in grids for row in grid["missing"]]
    described = {**raw, "dtype": "float32", "gamma_max": raw["plan"]["gamma_max"]}
    return profile_of(described, machine, models, found["times"], found["overhead"], missing)


def alpha_rows(traces: Raw) -> list[Row]:
    """Acceptance of every drafter beside Leviathan23 Table 3, with 95 % intervals."""
    rows = []
    for temperature, columns in _settings(traces):
        for drafter in ("draft", "unigram", "bigram"):
            rate, _, _ = acceptance_rates(as_trace(columns, drafter), 1, 0)
            beta = columns[drafter].get("beta")
            rows.append(
                {
                    "drafter": drafter,
                    "temperature": temperature,
                    "alpha": rate.best,
                    "low": rate.low,
                    "high": rate.high,
                    "mean_beta": float(np.mean(beta)) if beta else None,
                    "paper": PAPER_ALPHA[drafter, temperature],
                }
            )
    return rows


def call_rows(pair: Raw, traces: Raw) -> list[Row]:
    """Calls that were counted beside those that the replay of the trace expects.

    At temperature 0 the trace is the text that was decoded, and calls agree request by request.
    """
    rows = []
    for temperature, columns in _settings(traces):
        trace = as_trace(columns, "draft")
        decoded = [row for row in pair.get("decoded", ()) if row["temperature"] == temperature]
        gammas = sorted({row["gamma"] for row in decoded})
        plain_s = sum(row["seconds"] for row in decoded if row["gamma"] == 0)
        for replayed in replay(trace, gammas):
            here = [row for row in decoded if row["gamma"] == replayed.gamma]
            counted = np.array([row["calls"] for row in here])
            expected = replayed.calls[[row["request"] for row in here]]
            rows.append(
                {
                    "temperature": temperature,
                    "gamma": replayed.gamma,
                    "requests": len(here),
                    "counted_calls": int(counted.sum()),
                    "replayed_calls": float(expected.sum()),
                    "relative_error": float(expected.sum() / counted.sum() - 1),
                    "equal_requests": int((np.abs(counted - expected) < 1e-6).sum()),
                    "same_text": sum(bool(row.get("same_text")) for row in here)
                    if temperature == 0
                    else None,
                    "replayed_tokens_per_call": replayed.tokens_per_call,
                    "real_speedup": plain_s / sum(row["seconds"] for row in here),
                    "compiled": all(row["compiled"] for row in here),
                }
            )
    return rows


def as_trace(columns: Raw, drafter: str) -> Trace:
    """The trace of one drafter, ready to be replayed."""
    chance = accepted(columns, drafter)
    return Trace(chance.ravel(), np.arange(len(chance) + 1) * chance.shape[1])


def _settings(traces: Raw) -> Iterator[tuple[float, Raw]]:
    for key, columns in traces.items():
        if key.startswith("temperature "):
            yield float(key.split()[1]), columns
