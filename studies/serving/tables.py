"""What was predicted of every setting, beside what the engine's clients saw."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from itertools import combinations
from pathlib import Path
from statistics import fmean, median
from typing import Any

import numpy as np

from specsim.api.serving_verdict import ServingVerdict
from specsim.counts.file import read_acceptance
from specsim.counts.steps import StreamedSteps
from specsim.counts.streamed_costs import StreamedCosts
from specsim.files import file_digest
from specsim.intervals import Interval, joint_half_width, mean_of
from specsim.serving.comparison import relative_error
from specsim.serving.step_model import VARIATIONS
from studies.common.study import Row, where
from studies.serving import settings
from studies.serving.capacity import plain_capacity
from studies.serving.files import LoadFiles
from studies.serving.simulated import ServedPass, ServedSetting
from studies.serving.steps import loaded_steps, tells_steps

LATENCIES, STATISTICS = ("ttft", "tpot", "e2e"), ("mean", "p50", "p90", "p99")
# What is said of steps that were seen.
_BESIDE = ("steps", "requests", "longer")
_OUTSIDE = ("timed_frontend_ms", "frontend_ms")
# What the comparison was to reach, as relative errors.
WANTED = {"mean": 0.05, "p99": 0.15, "throughput": 0.03, "preemptions": 0.1}


def setup(files: LoadFiles, found: Sequence[ServedSetting]) -> Iterator[Row]:
    """What was asked of which engine at each rate of each pass, in order."""
    engine = json.loads(files.load.read_text())
    loads: dict[tuple[int, str], list[ServedPass]] = defaultdict(list)
    for setting in found:
        for one in setting.passes:
            loads[one.number, setting.setting.rate].append(one)
    costs = _costs({files.timed(number) for number, _ in loads})

    def in_order(load: tuple[int, str]) -> tuple[int, int]:
        number, rate = load
        return number, settings.rates_of(number).index(rate)

    for number, rate in sorted(loads, key=in_order):
        alike = loads[number, rate]
        timed = files.timed(number)
        hashes = {each.said["specsim"]["timed_sha256"] for each in alike}
        created = sorted(each.said["specsim"]["created"] for each in alike)
        yield {
            "pass": number,
            "load": rate,
            "engine": engine["engine"],
            "cores": engine["cores"],
            "timed": read_acceptance(timed).created,
            "first_served": created[0],
            "last_served": created[-1],
            "settings": len(alike),
            "requests": alike[0].verdict.requests,
            "plain_capacity": plain_capacity(timed, np.array(alike[0].said["output_lens"])),
            "rate": alike[0].said["request_rate"],
            **_beside_steps(costs.get(timed)),
            "timed_sha256": min(hashes)[:12],
            "same_file": hashes == {file_digest(timed)},
        }


def _beside_steps(costs: StreamedCosts | None) -> Row:
    """How far single steps and requests scatter, and what a request that comes takes of a step, as
    timed; None where nobody tells.
    """
    known = costs is not None and costs.knows_variations
    found: dict[str, Any] = {name: getattr(costs, name) if known else None for name in VARIATIONS}
    found["arrival_ms"] = 1e3 * costs.arrival_s if costs and costs.knows_arrivals else None
    return found


def latencies(found: Sequence[ServedSetting]) -> Iterator[Row]:
    """Each figure of each setting."""
    for each in found:
        fitted = {(row["latency"], row["statistic"]): row for row in over_passes(each.fitted)}
        for row in over_passes(each.verdicts):
            if row["latency"] in LATENCIES and row["statistic"] in STATISTICS:
                other = fitted.get((row["latency"], row["statistic"]), {})
                yield {**each.names, **row, "error_with_own_steps": other.get("relative_error")}


def over_passes(verdicts: Sequence[ServingVerdict]) -> list[Row]:
    """The figures of verdicts on the same setting, each the mean over them."""
    rows: list[Row] = []
    for alike in zip(*(each.latencies for each in verdicts), strict=True):
        for statistic in alike[0].predicted:
            predicted, measured = (
                mean_of([getattr(each, side)[statistic] for each in alike])
                for side in ("predicted", "measured")
            )
            columns = {**predicted.columns("predicted_ms"), **measured.columns("measured_ms")}
            off = abs(predicted.best - measured.best)
            rows.append(
                {
                    "latency": alike[0].name,
                    "statistic": statistic,
                    **{name: 1e3 * seconds for name, seconds in columns.items()},
                    "relative_error": relative_error(predicted.best, measured.best),
                    "explained": off <= joint_half_width(predicted, measured),
                }
            )
    return rows


def totals(found: Sequence[ServedSetting]) -> Iterator[Row]:
    """Throughput and preemptions of each setting, and whether every figure is explained."""
    for each in found:
        predicted, measured = _tokens_per_s(each.verdicts)
        rows = over_passes(each.verdicts)
        fitted = relative_error(*_tokens_per_s(each.fitted)) if each.fitted else None
        yield {
            **each.names,
            "predicted_tokens_per_s": predicted,
            "measured_tokens_per_s": measured,
            "relative_error": relative_error(predicted, measured),
            "error_with_own_steps": fitted,
            "predicted_preemptions": sum(one.preemptions for one in each.passes),
            "measured_preemptions": sum(one.said["specsim"]["preemptions"] for one in each.passes),
            "explained": sum(row["explained"] for row in rows),
            "figures": len(rows),
        }


def steps(found: Sequence[ServedSetting]) -> Iterator[Row]:
    """How long steps took beside what the timed ones say of the same batches and prompts, and what
    rounds emitted.
    """
    costs = _costs({one.timed for each in found for one in each.passes})
    for each in found:
        seen = []
        if tells_steps(each.setting.drafting):
            seen = [
                (loaded_steps(one.said, each.setting.drafting), costs[one.timed])
                for one in each.passes
                if one.timed in costs
            ]
        tokens = sum(one.tokens for one in each.passes)
        rounds = np.sum([one.rounds for one in each.passes], axis=0)
        predicted, measured = (tokens / rounds).tolist()
        by_pass = [_beside([one])["longer"] for one in seen]
        yield {
            **each.names,
            **_beside(seen),
            "longer_by_pass": ", ".join(f"{one:+.3f}" for one in by_pass if one is not None),
            **_outside(seen),
            "predicted_tokens_per_round": predicted,
            "measured_tokens_per_round": measured,
            "relative_error": predicted / measured - 1,
        }


def _costs(timed: Iterable[Path]) -> dict[Path, StreamedCosts]:
    """What steps under load take, by file; not of one whose steps were timed otherwise."""
    files = {path: tuple(read_acceptance(path).streamed_steps()) for path in timed}
    return {path: StreamedCosts(streamed) for path, streamed in files.items() if streamed}


def _beside(seen: Sequence[tuple[StreamedSteps, StreamedCosts]]) -> Row:
    """Steps that were seen, each with what was timed before its pass; None where there are none."""
    every = [
        (each, costs.expected_s(served.gamma, each))
        for served, costs in seen
        for each in served.steps
    ]
    if not every:
        return dict.fromkeys(_BESIDE)
    counts = np.array([each.steps for each, _ in every])
    seconds = np.array([each.seconds for each, _ in every])
    expected_s = np.array([expected for _, expected in every])
    batch = float(np.average([each.requests for each, _ in every], weights=counts))
    longer = float(counts @ seconds / (counts @ expected_s) - 1)
    return dict(zip(_BESIDE, (int(counts.sum()), batch, longer), strict=True))


def _outside(seen: Sequence[tuple[StreamedSteps, StreamedCosts]]) -> Row:
    """Milliseconds of a request outside of all steps, as timed beside as many that decode, and
    seen; None where there are none.
    """
    rows = [(row, costs) for served, costs in seen for row in served.frontends]
    if not rows:
        return dict.fromkeys(_OUTSIDE)
    seconds = [(costs.outside_s(row) + costs.arrival_s, row.seconds) for row, costs in rows]
    found = np.average(seconds, axis=0, weights=[row.requests for row, _ in rows])
    return dict(zip(_OUTSIDE, (1e3 * found).tolist(), strict=True))


def _tokens_per_s(verdicts: Sequence[ServingVerdict]) -> tuple[float, float]:
    """Predicted and measured, in the mean over the verdicts."""
    totals = [
        total
        for each in verdicts
        for total in each.throughput
        if total.name == "output_tokens_per_s"
    ]
    return fmean(each.predicted.best for each in totals), fmean(each.measured for each in totals)


def errors(figures: Sequence[Row], sums: Sequence[Row]) -> Iterator[Row]:
    """How far each figure is off over the settings, and what it was to reach in the median."""
    for latency in LATENCIES:
        for statistic in STATISTICS:
            rows = where(figures, latency=latency, statistic=statistic)
            if rows:
                yield _error(f"{latency} {statistic}", rows, WANTED.get(statistic))
    saturated = where(sums, load="saturated", cache="large")
    if saturated:
        yield _error("tokens per second, saturated", saturated, WANTED["throughput"])
    preempting = [row for row in sums if row["measured_preemptions"]]
    if preempting:
        counts = [
            {"relative_error": row["predicted_preemptions"] / row["measured_preemptions"] - 1}
            for row in preempting
        ]
        yield _error("preemptions", counts, WANTED["preemptions"])


def _error(figure: str, rows: Sequence[Row], wanted: float | None) -> Row:
    off = [row["relative_error"] for row in rows]
    left = [row.get("error_with_own_steps") for row in rows]
    fitted = [each for each in left if each is not None]
    return {
        "figure": figure,
        "settings": len(off),
        "median_absolute_error": median(map(abs, off)),
        "worst_absolute_error": max(map(abs, off)),
        "mean_error": float(np.mean(off)),
        "median_with_own_steps": median(map(abs, fitted)) if fitted else None,
        "mean_with_own_steps": float(np.mean(fitted)) if fitted else None,
        "wanted": wanted,
        "reached": None if wanted is None else median(map(abs, off)) <= wanted,
    }


def orders(figures: Sequence[Row]) -> Iterator[Row]:
    """Pairs of draft lengths at one rate: which is faster end to end, predicted and measured.

    Judged where the measured means differ by more than both of their 95 % intervals explain.
    """
    means = where(figures, latency="e2e", statistic="mean", cache="large")
    for load in settings.RATES:
        for one, other in combinations(where(means, load=load), 2):
            seen = [
                Interval(*(each[f"measured_ms{end}"] for end in ("_low", "", "_high")))
                for each in (one, other)
            ]
            apart = abs(seen[0].best - seen[1].best) > joint_half_width(*seen)
            same = (one["predicted_ms"] < other["predicted_ms"]) == (
                one["measured_ms"] < other["measured_ms"]
            )
            yield {
                "load": load,
                "one": one["drafts"],
                "other": other["drafts"],
                "predicted_ratio": one["predicted_ms"] / other["predicted_ms"],
                "measured_ratio": one["measured_ms"] / other["measured_ms"],
                "apart": apart,
                "same_order": same,
            }
