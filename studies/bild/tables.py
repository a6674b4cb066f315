"""What ``studies.bild.page`` measures on our models: tables of rows."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import product
from typing import Any

import numpy as np

from specsim.checks import Floats
from specsim.frontier import LabelledPositions, Sweep
from specsim.intervals import Bootstrap, around
from specsim.laws import TARGET
from specsim.optimizers.workload import Workload
from specsim.predict.operations import operations as law_operations
from specsim.predict.replay.fixed_gamma import replay
from specsim.schemes.bild import WINDOW
from studies.bild.chain import SMALL, Chain, Thresholds, chains
from studies.bild.paper import figure8
from studies.common.measured_rows import (
    by_temperature,
    costs_as_decoded,
    family_file,
    greedy,
)
from studies.common.study import Measured, Row

_SHARES = np.linspace(0, 1, 21)
_FALLBACKS = (0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9)
_ROLLBACKS = (1.0, 2.0, 3.0, 4.0, 5.0, 6.0)
_WINDOWS = range(3, WINDOW + 1)  # section 4.3
_LOSSES = (0.0, 0.01)  # of accuracy; the paper's two rows, its point being of BLEU
_DRAWS = 200
_ALIGNED, _EARLY = "the same, aligned draft", "the same, early exit"
_LARGE_ALONE = "large model alone"
_OF_DECODED = (
    *("temperature", "scheme", "setting", "lossless"),
    *("predicted_tokens_per_call", "measured_tokens_per_call"),
    *("predicted_speedup", "measured_speedup", "measured_low", "measured_high"),
    *("accuracy", "agreement", "log_loss"),
)


# --- quality -------------------------------------------------------------------------------------


def engagement(measured: Measured, temperature: float) -> Iterator[dict[str, Any]]:
    """The small model's token unless a score is over a threshold, every share of such tokens.

    Kim23 section 3.1: the large model's probability of the small one's token decides, as if it
    were known at once; beside it what the small model can decide alone, its confidence.
    """
    positions = measured.positions[temperature]
    scores = {
        "rollback": positions.columns.get("unscaled_bild_greedy"),
        "fallback": positions.columns.get("unscaled_draft_max"),
    }
    ones = np.ones(positions.positions)
    bootstrap = Bootstrap(positions.requests, draws=_DRAWS)
    draws = list(bootstrap.weights(np.diff(positions.starts)))
    for rule, score in scores.items():
        if score is None:
            continue
        sweep = Sweep.of(score if rule == "rollback" else 1.0 - score)
        for quality, (small, large) in _qualities(positions, temperature).items():
            # With 1 in place of TV, what a curve calls rejection is the large model's share.
            def at_shares(
                weights: Floats | None,
                sweep: Sweep = sweep,
                small: Floats = small,
                large: Floats = large,
            ) -> Floats:
                curve = sweep.curve(ones, -small, -large, weights)
                return -np.interp(_SHARES, curve.rejection, curve.loss)

            mean = at_shares(None)
            gaps = np.array([(found := at_shares(draw)) - found[-1] for draw in draws])
            low, high = np.quantile(gaps, [0.025, 0.975], axis=0)
            for i, share in enumerate(_SHARES.tolist()):
                yield {
                    "temperature": temperature,
                    "decided_by": rule,
                    "quality": quality,
                    "large_share": share,
                    "value": float(mean[i]),
                    "above_large": float(mean[i] - mean[-1]),
                    "above_large_low": float(low[i]),
                    "above_large_high": float(high[i]),
                    "source": measured.source,
                }


def _qualities(
    positions: LabelledPositions, temperature: float
) -> dict[str, tuple[Floats, Floats]]:
    """Of the small and of the large model's tokens at every position, the larger the better."""
    if temperature > 0:
        small, large = positions.losses("log")
        return {"log-probability": (-small, -large)}
    small, large = positions.losses("0-1")
    return {
        "accuracy": (1.0 - small, 1.0 - large),
        "agreement": (1.0 - positions.tv, np.ones(positions.positions)),
    }


# --- quality and speed ---------------------------------------------------------------------------


def _scored_greedy(measured: Measured) -> Workload | None:
    """Run times at temperature 0, where text was scored at it too."""
    scored = measured.positions.get(0.0)
    names = {"unscaled_draft_max", "unscaled_bild_greedy"}
    return greedy(measured) if scored and names <= scored.columns.keys() else None


def latency(measured: Measured) -> tuple[list[dict[str, Any]], list[Chain]]:
    """All thresholds, on scored text; and the chains of one rollback threshold."""
    workload = _scored_greedy(measured)
    if workload is None:
        return [], []
    positions = measured.positions[0.0]
    windows = [window for window in _WINDOWS if window <= measured.profile.gamma_max]
    settings = [
        *product(_FALLBACKS, (*_ROLLBACKS, np.inf), windows),
        *product((0.0,), _ROLLBACKS, windows),
    ]
    found = chains(positions, [Thresholds(*setting) for setting in settings])
    small, large = (1.0 - loss for loss in positions.losses("0-1"))
    agrees = 1.0 - positions.tv
    sizes = np.diff(positions.starts)
    bootstrap = Bootstrap(positions.requests, draws=_DRAWS)

    def row(name: str, right: Floats, same: Floats, speedup: float, **about: Any) -> dict[str, Any]:
        drawn = bootstrap.ratios(positions.by_request(right - large), sizes)
        above = around(float((right - large).mean()), drawn)
        return {
            "policy": name,
            "fallback": about.get("fallback"),
            "rollback": about.get("rollback"),
            "window": about.get("window"),
            "large_share": about.get("share"),
            "accuracy": float(right.mean()),
            "above_large": above.best,
            "above_large_low": above.low,
            "above_large_high": above.high,
            "agreement": float(same.mean()),
            "tokens_per_call": about.get("tokens_per_call", 1.0),
            "speedup": speedup,
            "source": measured.source,
        }

    rows = [row(_LARGE_ALONE, large, np.ones_like(large), 1.0)]
    for chain in found:
        each = chain.thresholds
        rows.append(
            row(
                each.kind,
                np.where(chain.by_large, large, small),
                np.where(chain.by_large, 1.0, agrees),
                chain.speedup(workload.cost, workload.context),
                fallback=each.fallback,
                rollback=each.rollback,
                window=each.window,
                share=float(chain.by_large.mean()),
                tokens_per_call=chain.tokens / chain.blocks,
            )
        )
    chosen = [
        each
        for each in found
        if (each.thresholds.rollback, each.thresholds.window) == (2, max(windows))
        and each.thresholds.fallback
    ]
    return rows, chosen


def fastest(latency: Sequence[Row]) -> list[dict[str, Any]]:
    rows = []
    for allowed in _LOSSES:
        for policy in ("both", "no rollback", "no fallback"):
            fine = [
                row
                for row in latency
                if row["policy"] == policy and row["above_large"] >= -allowed - 1e-12
            ]
            best = max(fine, key=lambda row: row["speedup"], default=None)
            if latency:
                kept = ("fallback", "rollback", "window", "accuracy", "speedup")
                rows.append(
                    {"accuracy_lost_at_most": allowed, "policy": policy}
                    | {key: best[key] if best else None for key in kept}
                    | {"source": latency[0]["source"]}
                )
    return rows


# --- decoded -------------------------------------------------------------------------------------


def decoded(measured: Measured) -> list[dict[str, Any]]:
    rows = []
    for _, here in by_temperature(measured.decoded):
        fixed = [
            row for row in here if row["scheme"] == "speculative" and "draft" in row["setting"]
        ]
        best = max(fixed, key=lambda row: row["predicted_speedup"], default=None)
        for row in [each for each in here if each["scheme"] == "bild"] + ([best] if best else []):
            small = [name for name in row["measured_runs"] if name != TARGET]
            rows.append(
                {key: row[key] for key in _OF_DECODED}
                | {
                    "target_runs_per_100": row["measured_runs"][TARGET],
                    "small_runs_per_100": sum(row["measured_runs"][name] for name in small),
                    "source": measured.source,
                }
            )
    return rows


def fractions(measured: Measured, chosen: Sequence[Chain]) -> list[dict[str, Any]]:
    def row(what: str, text: str, fallback: float, rollback: float | None) -> dict[str, Any]:
        return {
            "method": what,
            "on": text,
            "fallback_percent": 100 * fallback,
            "rollback_percent": None if rollback is None else 100 * rollback,
            "source": measured.source,
        }

    rows = []
    for workload in measured.workloads:
        temperature = workload.measured.sampling.temperature
        gamma = max(workload.best().gamma, 1)
        (found,) = replay(workload.trace, [gamma])
        # A block that ends in a bonus token was accepted whole; a request's last one may be, too.
        rejected = found.total_calls - float(found.bonus.sum()) - workload.trace.requests
        tokens = workload.trace.tokens
        name = f"lossless, gamma {gamma}, temperature {temperature:g}"
        rows.append(row(name, "target's text", found.total_calls / tokens, rejected / tokens))
    for chain in chosen:
        policy, shares = chain.thresholds, chain.scheme.fractions(chain.counted)
        name = f"BiLD {policy.fallback:g}, {policy.rollback:g}, temperature 0"
        rows.append(row(name, "real text", shares.fallback, shares.rollback))
    followers = family_file(measured, "followers.json")
    for model in ("small", "aligned"):
        for each in followers.get(model, {}).get("bild", []):
            name = f"BiLD {each['fallback']:g}, {each['rollback']:g}, temperature 0, {model}"
            counted = each["target_runs_per_token"], each["rollbacks_per_token"]
            rows.append(row(name, "as counted when the family was trained", *counted))
    for each in measured.decoded:
        if each["scheme"] == "bild":
            name = f"BiLD {each['setting']}, temperature {each['temperature']:g}"
            rows.append(row(name, "decoded", each["measured_runs"][TARGET] / 100, None))
    return rows


def operations(measured: Measured, chosen: Sequence[Chain]) -> list[dict[str, Any]]:
    """Operations and bytes of a run go with the parameters that it reads."""
    ratio = measured.profile.draft.parameters / measured.profile.target.parameters
    workload = _scored_greedy(measured)
    rows = figure8()
    for chain in chosen:
        assert workload is not None  # chains need it
        found = law_operations(chain.scheme.law(chain.counted), {SMALL: ratio}, {SMALL: ratio})
        each = chain.thresholds
        rows.append(
            {
                "method": f"BiLD {each.fallback:g}, {each.rollback:g}, on real text",
                "operations": found.operations,
                "memory_operations": found.memory,
                "intensity": found.intensity,
                "speedup": chain.speedup(workload.cost, workload.context),
                "source": measured.source,
            }
        )
    return rows


def alignment(measured: Measured, decoded: Sequence[Row]) -> list[dict[str, Any]]:
    def row(what: str, before: float, after: float) -> dict[str, Any]:
        return {"what": what, "before": before, "after": after, "source": measured.source}

    followers = family_file(measured, "followers.json")
    rows = []
    if followers:
        before, after = followers["small"], followers["aligned"]
        for text, name in (("own_text", "the target's text"), ("held_out", "real text")):
            for key in sorted(before[f"{text}_acceptance"]):
                at = key.replace("_", " ")
                rates = (each[f"{text}_acceptance"][key] for each in (before, after))
                rows.append(row(f"acceptance on {name}, {at}", *rates))
        for first, second in zip(before["bild"], after["bild"], strict=True):
            name = f"target runs per token, BiLD {first['fallback']:g}, {first['rollback']:g}"
            rows.append(row(name, first["target_runs_per_token"], second["target_runs_per_token"]))
    for before, after in _pairs(decoded, _ALIGNED):
        for key in ("measured_tokens_per_call", "measured_speedup", "accuracy"):
            name = f"decoded, temperature {before['temperature']:g}: {key.replace('_', ' ')}"
            rows.append(row(name, before[key], after[key]))
    return rows


def early(measured: Measured, decoded: Sequence[Row]) -> list[dict[str, Any]]:
    costs = costs_as_decoded(measured.decoded)
    return [
        {
            "temperature": each["temperature"],
            "small_model": name,
            "tokens_per_call": each["measured_tokens_per_call"],
            "small_runs_per_100": each["small_runs_per_100"],
            "c_as_decoded": costs.get(model),
            "predicted_speedup": each["predicted_speedup"],
            "measured_speedup": each["measured_speedup"],
            "measured_low": each["measured_low"],
            "measured_high": each["measured_high"],
            "source": measured.source,
        }
        for pair in _pairs(decoded, _EARLY)
        for each, name, model in zip(
            pair, ("draft", "first third of the target's layers"), ("draft", "early"), strict=True
        )
    ]


def _pairs(decoded: Sequence[Row], other: str) -> Iterator[tuple[Row, Row]]:
    """The draft's setting and the same with another small model, by temperature."""
    for _, rows in by_temperature(decoded):
        here = {row["setting"]: row for row in rows}
        if {"fallback 0.4, rollback 2", other} <= here.keys():
            yield here["fallback 0.4, rollback 2"], here[other]
