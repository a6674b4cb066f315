"""What ``studies.bild.page`` measures on our models: tables of rows."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import product
from typing import Any

import numpy as np

from specsim.checks import Floats
from specsim.frontier import LabelledPositions, Sweep
from specsim.intervals import Bootstrap
from specsim.laws import TARGET
from specsim.optimizers.workload import Workload
from specsim.predict.operations import operations as law_operations
from specsim.predict.replay.fixed_gamma import replay
from specsim.schemes.bild import WINDOW, BigLittle
from studies.bild.chain import SMALL, Chain, Thresholds, chains
from studies.common.decoded import TIMED, by_temperature, costs_as_decoded, row_of, single_drafters
from studies.common.measured import Measured, temperature_of
from studies.common.orderings import BILD
from studies.common.study import Row, where

_SHARES = np.linspace(0, 1, 21)
_FALLBACKS = (0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9)
_ROLLBACKS = (1.0, 2.0, 3.0, 4.0, 5.0, 6.0)
_WINDOWS = range(3, WINDOW + 1)  # section 4.3
_LOSSES = (0.0, 0.01)  # of accuracy; the paper's two rows, its point being of BLEU
_DRAWS = 200
# The draft's setting with another small model.
_ALIGNED, _EARLY = (replace(BILD, draft=model) for model in ("aligned", "early"))
_POLICIES = ("both", "no rollback", "no fallback")
_LARGE_ALONE = "large model alone"
_OF_DECODED = (
    *("temperature", "scheme", "setting", "lossless"),
    *("predicted_tokens_per_call", "measured_tokens_per_call"),
    *TIMED,
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
    return measured.greedy if scored and names <= scored.columns.keys() else None


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
        above = bootstrap.around(float((right - large).mean()), drawn)
        return {
            "policy": name,
            "fallback": about.get("fallback"),
            "rollback": about.get("rollback"),
            "window": about.get("window"),
            "large_share": about.get("share"),
            "accuracy": float(right.mean()),
            **above.columns("above_large"),
            "agreement": float(same.mean()),
            "tokens_per_call": about.get("tokens_per_call", 1.0),
            "speedup": speedup,
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


def fastest(latency: Sequence[Row]) -> Iterator[dict[str, Any]]:
    """Of every policy, the thresholds that lose no more accuracy than that."""
    kept = ("fallback", "rollback", "window", "accuracy", "speedup")
    for allowed, policy in product(_LOSSES, _POLICIES if latency else ()):
        fine = [
            row for row in where(latency, policy=policy) if row["above_large"] >= -allowed - 1e-12
        ]
        best: Row = max(fine, key=lambda row: row["speedup"], default={})
        found = {key: best.get(key) for key in kept}
        yield {"accuracy_lost_at_most": allowed, "policy": policy, **found}


# --- decoded -------------------------------------------------------------------------------------


def decoded(measured: Measured) -> list[dict[str, Any]]:
    rows = []
    for _, here in by_temperature(measured.decoded):
        fixed = [row for name, _, row in single_drafters(here) if name == "draft"]
        best = max(fixed, key=lambda row: row["predicted_speedup"], default=None)
        for row in where(here, scheme="bild") + ([best] if best else []):
            runs = dict(row["measured_runs"])
            of_target = runs.pop(TARGET)
            counted = {"target_runs_per_100": of_target, "small_runs_per_100": sum(runs.values())}
            rows.append({**{key: row[key] for key in _OF_DECODED}, **counted})
    return rows


def fractions(measured: Measured, chosen: Sequence[Chain]) -> Iterator[dict[str, Any]]:
    def row(what: str, text: str, fallback: float, rollback: float | None) -> dict[str, Any]:
        return {
            "method": what,
            "on": text,
            "fallback_percent": 100 * fallback,
            "rollback_percent": None if rollback is None else 100 * rollback,
        }

    for workload in measured.workloads:
        gamma = max(workload.best().gamma, 1)
        (found,) = replay(workload.trace, [gamma])
        # A block that ends in a bonus token was accepted whole; a request's last one may be, too.
        rejected = found.total_calls - float(found.bonus.sum()) - workload.trace.requests
        tokens = workload.trace.tokens
        name = f"lossless, gamma {gamma}, temperature {temperature_of(workload):g}"
        yield row(name, "target's text", found.total_calls / tokens, rejected / tokens)
    for chain in chosen:
        policy, shares = chain.thresholds, chain.scheme.fractions(chain.counted)
        name = f"BiLD {policy.fallback:g}, {policy.rollback:g}, temperature 0"
        yield row(name, "real text", shares.fallback, shares.rollback)
    followers = measured.family_file("followers.json")
    for model in ("small", "aligned"):
        for each in followers.get(model, {}).get("bild", []):
            name = f"BiLD {each['fallback']:g}, {each['rollback']:g}, temperature 0, {model}"
            counted = each["target_runs_per_token"], each["rollbacks_per_token"]
            yield row(name, "as counted when the family was trained", *counted)
    for each in where(measured.decoded, scheme="bild"):
        name = f"BiLD {each['setting']}, temperature {each['temperature']:g}"
        yield row(name, "decoded", each["measured_runs"][TARGET] / 100, None)


def operations(measured: Measured, chosen: Sequence[Chain]) -> Iterator[dict[str, Any]]:
    """Operations and bytes of a run go with the parameters that it reads."""
    ratio = measured.profile.draft.parameters / measured.profile.target.parameters
    workload = _scored_greedy(measured)
    for chain in chosen:
        assert workload is not None  # chains need it
        found = law_operations(chain.scheme.law(chain.counted), {SMALL: ratio}, {SMALL: ratio})
        each = chain.thresholds
        yield {
            "method": f"BiLD {each.fallback:g}, {each.rollback:g}, on real text",
            "operations": found.operations,
            "memory_operations": found.memory,
            "intensity": found.intensity,
            "speedup": chain.speedup(workload.cost, workload.context),
        }


def alignment(measured: Measured, decoded: Sequence[Row]) -> Iterator[dict[str, Any]]:
    followers = measured.family_file("followers.json")
    if followers:
        before, after = followers["small"], followers["aligned"]
        for text, name in (("own_text", "the target's text"), ("held_out", "real text")):
            for key in sorted(before[f"{text}_acceptance"]):
                rates = (each[f"{text}_acceptance"][key] for each in (before, after))
                yield _aligned(f"acceptance on {name}, {key.replace('_', ' ')}", *rates)
        for first, second in zip(before["bild"], after["bild"], strict=True):
            name = f"target runs per token, BiLD {first['fallback']:g}, {first['rollback']:g}"
            yield _aligned(name, first["target_runs_per_token"], second["target_runs_per_token"])
    for before, after in _pairs(decoded, _ALIGNED):
        for key in ("measured_tokens_per_call", "measured_speedup", "accuracy"):
            name = f"decoded, temperature {before['temperature']:g}: {key.replace('_', ' ')}"
            yield _aligned(name, before[key], after[key])


def _aligned(what: str, before: float, after: float) -> dict[str, Any]:
    return {"what": what, "before": before, "after": after}


def early(measured: Measured, decoded: Sequence[Row]) -> Iterator[dict[str, Any]]:
    costs = costs_as_decoded(measured.decoded)
    models = {"draft": "draft", "first third of the target's layers": "early"}
    for pair in _pairs(decoded, _EARLY):
        for each, (name, model) in zip(pair, models.items(), strict=True):
            yield {
                "temperature": each["temperature"],
                "small_model": name,
                "tokens_per_call": each["measured_tokens_per_call"],
                "small_runs_per_100": each["small_runs_per_100"],
                "c_as_decoded": costs.get(model),
                **{name: each[name] for name in TIMED},
            }


def _pairs(decoded: Sequence[Row], other: BigLittle) -> Iterator[tuple[Row, Row]]:
    """The draft's setting and the same with another small model, by temperature."""
    for _, rows in by_temperature(decoded):
        ours, its = row_of(rows, BILD), row_of(rows, other)
        if ours and its:
            yield ours, its
