"""Every setting, simulated from what was timed before, beside what the engine's clients saw."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import combinations
from math import hypot
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np

import specsim
from specsim.api.serving_verdict import ServingVerdict
from specsim.files import file_digest
from specsim.serving.logs import read_log
from specsim.serving.service import serve_requests
from studies.common.study import Row, where
from studies.serving import settings
from studies.serving.files import LoadFiles
from studies.serving.settings import Setting

LATENCIES, STATISTICS = ("ttft", "tpot", "e2e"), ("mean", "p50", "p90", "p99")
# Simulations of a setting, whose acceptance is drawn.
_REPLICATIONS = 20
# What the comparison was to reach, as relative errors.
WANTED = {"mean": 0.05, "p99": 0.15, "throughput": 0.03, "preemptions": 0.1}


@dataclass(frozen=True)
class ServedSetting:
    """A setting that was measured, with its simulation.

    said : what the benchmark and the server's counters say
    """

    setting: Setting
    verdict: ServingVerdict
    said: dict[str, Any]

    @cached_property
    def preemptions(self) -> float:
        """Predicted, in the mean over the replications."""
        log = read_log(Path(self.verdict.inputs["log"]))
        setup = self.verdict.setup
        return float(
            np.mean(
                [
                    serve_requests(setup, log.requests, seed=seed, keep=())
                    .each("preemptions")
                    .sum()
                    for seed in range(_REPLICATIONS)
                ]
            )
        )

    @property
    def names(self) -> Row:
        """The columns that say which setting a row is of."""
        return {
            "setting": self.setting.name,
            "drafts": self.setting.drafting.words,
            "cache": "small" if self.setting.drafting.blocks else "large",
            "load": self.setting.rate,
            "rate": self.said["request_rate"],
        }


def served(files: LoadFiles) -> list[ServedSetting]:
    """Every setting that was measured, simulated."""
    return [_served(files, each) for each in files.served]


def _served(files: LoadFiles, setting: Setting) -> ServedSetting:
    log = files.run(setting)
    said = json.loads(log.read_text())
    schedule = list(setting.drafting.schedule)
    verdict = specsim.validate_serving(
        log,
        profile=files.timed,
        gamma=schedule or None,
        engine=settings.engine(said["specsim"]["num_gpu_blocks"]),
        replications=_REPLICATIONS if schedule else None,
    )
    return ServedSetting(setting, verdict, said)


def setup(files: LoadFiles) -> list[Row]:
    """What was asked of which engine, once."""
    load = json.loads(files.load.read_text())
    rates = ", ".join(f"{name} {rate:g}" for name, rate in load["rates"].items())
    return [
        {
            "engine": load["engine"],
            "measured": load["created"],
            "cores": load["cores"],
            "requests": settings.REQUESTS,
            "plain_capacity": load["plain_capacity"],
            "rates": rates,
            "timed_sha256": load["timed_sha256"][:12],
            "same_file": load["timed_sha256"] == file_digest(files.timed),
        }
    ]


def latencies(found: Sequence[ServedSetting]) -> Iterator[Row]:
    """Each figure of each setting."""
    for each in found:
        for row in each.verdict.rows():
            if row["latency"] in LATENCIES and row["statistic"] in STATISTICS:
                yield each.names | row


def totals(found: Sequence[ServedSetting]) -> Iterator[Row]:
    """Throughput and preemptions of each setting, and whether every figure is explained."""
    for each in found:
        tokens = next(one for one in each.verdict.throughput if one.name == "output_tokens_per_s")
        yield each.names | {
            "predicted_tokens_per_s": tokens.predicted.best,
            "measured_tokens_per_s": tokens.measured,
            "relative_error": tokens.error,
            "predicted_preemptions": each.preemptions,
            "measured_preemptions": each.said["specsim"]["preemptions"],
            "explained": sum(row["explained"] for row in each.verdict.rows()),
            "figures": len(each.verdict.rows()),
        }


def errors(figures: Sequence[Row], sums: Sequence[Row]) -> Iterator[Row]:
    """How far each figure is off over the settings, and what it was to reach in the median."""
    for latency in LATENCIES:
        for statistic in STATISTICS:
            rows = where(figures, latency=latency, statistic=statistic)
            if rows:
                off = [row["relative_error"] for row in rows]
                yield _error(f"{latency} {statistic}", off, WANTED.get(statistic))
    saturated = where(sums, load="saturated", cache="large")
    if saturated:
        off = [row["relative_error"] for row in saturated]
        yield _error("tokens per second, saturated", off, WANTED["throughput"])
    preempting = [row for row in sums if row["measured_preemptions"]]
    if preempting:
        off = [row["predicted_preemptions"] / row["measured_preemptions"] - 1 for row in preempting]
        yield _error("preemptions", off, WANTED["preemptions"])


def _error(figure: str, off: Sequence[float], wanted: float | None) -> Row:
    return {
        "figure": figure,
        "settings": len(off),
        "median_absolute_error": median(map(abs, off)),
        "worst_absolute_error": max(map(abs, off)),
        "mean_error": float(np.mean(off)),
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
            halves = [
                (each["measured_ms_high"] - each["measured_ms_low"]) / 2 for each in (one, other)
            ]
            apart = abs(one["measured_ms"] - other["measured_ms"]) > hypot(*halves)
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
