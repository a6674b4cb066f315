"""Every setting, simulated from what was timed before, beside what the engine's clients saw."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import combinations
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
from msgspec.structs import replace

import specsim
from specsim.api.serving_acceptance import trace_behind
from specsim.api.serving_verdict import ServingVerdict, Throughput
from specsim.counts.file import AcceptanceFile, read_acceptance, write_acceptance
from specsim.files import file_digest
from specsim.intervals import Interval, joint_half_width
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
    slowed : the simulation with steps and prompts as long as the server's sets were beside the
        setting; None where no sets were timed beside it
    """

    setting: Setting
    verdict: ServingVerdict
    said: dict[str, Any]
    slowed: ServingVerdict | None

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
    def drift(self) -> float | None:
        """Seconds of the sets beside the setting, over those by the timed steps, less one."""
        factor = slowness(self.said)
        return None if factor is None else factor - 1

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
    said = json.loads(files.run(setting).read_text())
    factor = slowness(said)
    slowed = None
    if factor is not None:
        with TemporaryDirectory() as folder:
            path = Path(folder) / files.timed.name
            write_acceptance(longer(read_acceptance(files.timed), factor), path)
            slowed = _verdict(files, setting, said, path)
    return ServedSetting(setting, _verdict(files, setting, said, files.timed), said, slowed)


def _verdict(
    files: LoadFiles, setting: Setting, said: dict[str, Any], timed: Path
) -> ServingVerdict:
    schedule = list(setting.drafting.schedule)
    # What slowed steps are written to has no profile beside it.
    acceptance, _ = trace_behind(files.timed)
    return specsim.validate_serving(
        files.run(setting),
        profile=timed,
        gamma=schedule or None,
        acceptance=acceptance if schedule else None,
        engine=settings.engine(said["specsim"]["num_gpu_blocks"]),
        replications=_REPLICATIONS if schedule else None,
    )


def slowness(said: dict[str, Any]) -> float | None:
    """Seconds of the sets beside a setting, over those by the timed steps; None without sets."""
    sets = said["specsim"].get("beside")
    if not sets:
        return None
    return float(sum(each["seconds"] for each in sets) / sum(each["expected_s"] for each in sets))


def longer(timed: AcceptanceFile, factor: float) -> AcceptanceFile:
    """The same with all seconds so many times as long."""

    def times(row: Any, *names: str) -> Any:
        known = {name: getattr(row, name) for name in names}
        return replace(row, **{k: v * factor for k, v in known.items() if v is not None})

    return replace(
        timed,
        steps=[times(each, "seconds", "draft_s", "first_s") for each in timed.steps],
        prompts=[times(each, "seconds", "answer_s") for each in timed.prompts],
        streamed=[
            replace(
                times(each, "frontend_s"), steps=[times(step, "seconds") for step in each.steps]
            )
            for each in timed.streamed
        ],
    )


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
        slowed = each.slowed.rows() if each.slowed else [{}] * len(each.verdict.rows())
        for row, other in zip(each.verdict.rows(), slowed, strict=True):
            if row["latency"] in LATENCIES and row["statistic"] in STATISTICS:
                yield each.names | row | {"error_without_drift": other.get("relative_error")}


def totals(found: Sequence[ServedSetting]) -> Iterator[Row]:
    """Throughput and preemptions of each setting, and whether every figure is explained."""
    for each in found:
        tokens = _tokens(each.verdict)
        yield each.names | {
            "predicted_tokens_per_s": tokens.predicted.best,
            "measured_tokens_per_s": tokens.measured,
            "relative_error": tokens.error,
            "drift": each.drift,
            "error_without_drift": _tokens(each.slowed).error if each.slowed else None,
            "predicted_preemptions": each.preemptions,
            "measured_preemptions": each.said["specsim"]["preemptions"],
            "explained": sum(row["explained"] for row in each.verdict.rows()),
            "figures": len(each.verdict.rows()),
        }


def _tokens(verdict: ServingVerdict) -> Throughput:
    return next(each for each in verdict.throughput if each.name == "output_tokens_per_s")


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
    left = [row.get("error_without_drift") for row in rows]
    without = [each for each in left if each is not None]
    return {
        "figure": figure,
        "settings": len(off),
        "median_absolute_error": median(map(abs, off)),
        "worst_absolute_error": max(map(abs, off)),
        "mean_error": float(np.mean(off)),
        "median_without_drift": median(map(abs, without)) if without else None,
        "mean_without_drift": float(np.mean(without)) if without else None,
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
