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

import specsim
from specsim.api.serving_acceptance import trace_behind
from specsim.api.serving_verdict import ServingVerdict, Throughput
from specsim.counts.file import read_acceptance, write_acceptance
from specsim.counts.steps import StreamedSteps
from specsim.counts.streamed_costs import StreamedCosts
from specsim.files import file_digest
from specsim.intervals import Interval, joint_half_width
from specsim.serving.logs import read_log
from specsim.serving.service import Served, serve_requests
from studies.common.study import Row, where
from studies.serving import settings
from studies.serving.files import LoadFiles
from studies.serving.settings import Setting
from studies.serving.steps import loaded_steps, own_steps, tells_steps

LATENCIES, STATISTICS = ("ttft", "tpot", "e2e"), ("mean", "p50", "p90", "p99")
# Simulations of a setting, whose acceptance is drawn.
_REPLICATIONS = 20
# What is said of steps that were seen.
_BESIDE = ("steps", "requests", "longer")
# What the comparison was to reach, as relative errors.
WANTED = {"mean": 0.05, "p99": 0.15, "throughput": 0.03, "preemptions": 0.1}


@dataclass(frozen=True)
class ServedSetting:
    """A setting that was measured, with its simulation.

    said : what the benchmark and the server's counters say
    fitted : the simulation with steps and prompts as the load itself had them, which is no
        prediction; None where that is not known
    """

    setting: Setting
    verdict: ServingVerdict
    said: dict[str, Any]
    fitted: ServingVerdict | None

    @cached_property
    def _replications(self) -> list[Served]:
        """The same requests, each time with other luck of their drafts."""
        log = read_log(Path(self.verdict.inputs["log"]))
        return [
            serve_requests(self.verdict.setup, log.requests, seed=seed, keep=())
            for seed in range(_REPLICATIONS)
        ]

    @property
    def preemptions(self) -> float:
        """Predicted, in the mean over the replications."""
        return float(np.mean([each.each("preemptions").sum() for each in self._replications]))

    @property
    def tokens_per_round(self) -> tuple[float, float]:
        """Predicted and seen, without the first of each request, which comes with its prompt."""
        later = sum(each - 1 for each in self.said["output_lens"])
        rounds = np.mean([(each.each("rounds") - 1).sum() for each in self._replications])
        return later / float(rounds), later / sum(map(len, self.said["itls"]))

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
    own = own_steps(files)
    with TemporaryDirectory() as folder:
        path = Path(folder) / files.timed.name
        if own is not None:
            write_acceptance(own, path)
        return [_served(files, each, None if own is None else path) for each in files.served]


def _served(files: LoadFiles, setting: Setting, own: Path | None) -> ServedSetting:
    said = json.loads(files.run(setting).read_text())
    fitted = None if own is None else _verdict(files, setting, said, own)
    return ServedSetting(setting, _verdict(files, setting, said, files.timed), said, fitted)


def _verdict(
    files: LoadFiles, setting: Setting, said: dict[str, Any], timed: Path
) -> ServingVerdict:
    schedule = list(setting.drafting.schedule)
    # What the load's own steps are written to has no profile beside it.
    acceptance, _ = trace_behind(files.timed)
    return specsim.validate_serving(
        files.run(setting),
        profile=timed,
        gamma=schedule or None,
        acceptance=acceptance if schedule else None,
        engine=settings.engine(said["specsim"]["num_gpu_blocks"]),
        replications=_REPLICATIONS if schedule else None,
    )


def setup(files: LoadFiles, found: Sequence[ServedSetting]) -> list[Row]:
    """What was asked of which engine, once."""
    requests = {each.setting.rate: len(each.said["output_lens"]) for each in found}
    load = json.loads(files.load.read_text())
    rates = ", ".join(f"{name} {rate:g}" for name, rate in load["rates"].items())
    return [
        {
            "engine": load["engine"],
            "measured": load["created"],
            "cores": load["cores"],
            "requests": ", ".join(f"{name} {n}" for name, n in requests.items()),
            "plain_capacity": load["plain_capacity"],
            "rates": rates,
            "timed_sha256": load["timed_sha256"][:12],
            "same_file": load["timed_sha256"] == file_digest(files.timed),
        }
    ]


def latencies(found: Sequence[ServedSetting]) -> Iterator[Row]:
    """Each figure of each setting."""
    for each in found:
        fitted = each.fitted.rows() if each.fitted else [{}] * len(each.verdict.rows())
        for row, other in zip(each.verdict.rows(), fitted, strict=True):
            if row["latency"] in LATENCIES and row["statistic"] in STATISTICS:
                yield each.names | row | {"error_with_own_steps": other.get("relative_error")}


def totals(found: Sequence[ServedSetting]) -> Iterator[Row]:
    """Throughput and preemptions of each setting, and whether every figure is explained."""
    for each in found:
        tokens = _tokens(each.verdict)
        yield each.names | {
            "predicted_tokens_per_s": tokens.predicted.best,
            "measured_tokens_per_s": tokens.measured,
            "relative_error": tokens.error,
            "error_with_own_steps": _tokens(each.fitted).error if each.fitted else None,
            "predicted_preemptions": each.preemptions,
            "measured_preemptions": each.said["specsim"]["preemptions"],
            "explained": sum(row["explained"] for row in each.verdict.rows()),
            "figures": len(each.verdict.rows()),
        }


def steps(found: Sequence[ServedSetting], timed: Path) -> Iterator[Row]:
    """How long steps took beside what the timed ones say of the same batches and prompts, and what
    rounds emitted.
    """
    streamed = tuple(read_acceptance(timed).streamed_steps())
    costs = StreamedCosts(streamed) if streamed else None
    for each in found:
        seen = None
        if costs and tells_steps(each.setting.drafting):
            seen = loaded_steps(each.said, each.setting.drafting)
        predicted, measured = each.tokens_per_round
        yield {
            **each.names,
            **(_beside(seen, costs) if seen and costs else dict.fromkeys(_BESIDE)),
            "predicted_tokens_per_round": predicted,
            "measured_tokens_per_round": measured,
            "relative_error": predicted / measured - 1,
        }


def _beside(seen: StreamedSteps, costs: StreamedCosts) -> Row:
    counts = np.array([each.steps for each in seen.steps])
    seconds = np.array([each.seconds for each in seen.steps])
    law = costs.laws[seen.gamma]
    expected_s = np.array([law.seconds(each) for each in seen.steps])
    batch = float(np.average([each.requests for each in seen.steps], weights=counts))
    longer = float(counts @ seconds / (counts @ expected_s) - 1)
    return dict(zip(_BESIDE, (int(counts.sum()), batch, longer), strict=True))


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
