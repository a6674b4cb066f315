"""What ``specsim.serve`` returns: what users see of one set-up under load, and what it did."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any, ClassVar

from specsim.api.result import Result, Row, milliseconds
from specsim.checks import significant
from specsim.intervals import Interval
from specsim.serving.levels import LATENCIES, ServiceLevel
from specsim.serving.metrics import STATISTICS
from specsim.serving.workload_summary import WorkloadSummary

if TYPE_CHECKING:
    import pandas as pd

    from specsim.serving.service import Served, SetUp

_STEP_COLUMNS = (
    *("start_s", "seconds", "sequences", "decodes", "prefill_tokens", "verified_tokens"),
    *("emitted_tokens", "gamma", "used_blocks", "running", "waiting", "preempted", "eager"),
)
_THROUGHPUT = ("output_tokens_per_s", "requests_per_s", "goodput", "good_share")


@dataclass(frozen=True)
class LevelOutcome:
    """A service level, and the figure that it limits with its 95 % interval, in seconds."""

    level: ServiceLevel
    value: Interval[float]

    @property
    def met(self) -> bool:
        """Whether the figure itself is within the limit; that of a latency that none has is."""
        return self.level.met(self.value.best)

    @property
    def sure(self) -> bool:
        """Whether all of the interval is on the same side; False where none is known."""
        limit = self.level.limit_s
        return self.value.high <= limit if self.met else self.value.low > limit


@dataclass(frozen=True, kw_only=True)
class Serving(Result):
    """One set-up under load.

    setup : what served
    workload : what came, in a few figures, of the first replication
    figures : latencies in seconds (``ttft_p99``), ``output_tokens_per_s``, ``requests_per_s`` and,
        under limits of requests, ``goodput`` (requests per second that keep all of them) and
        ``good_share``
    engine : of the first replication: requests in a step (``batch_mean``), waiting (``queue_max``),
        ``cache_peak`` and other shares
    levels : those that are of a statistic, met or not
    counted : requests behind the figures, in each replication
    basis : what the seconds of a step rest on
    speed : how much faster steps may be, as a factor with the 95 % interval that costs and
        acceptance leave, which those of all figures have in them; None where nobody knows
    served : the first replication, request by request and step by step

    Rows are the latencies, in milliseconds, each figure with its 95 % interval.
    """

    schema: ClassVar[str] = "specsim.serving"

    setup: SetUp
    workload: WorkloadSummary
    figures: Mapping[str, Interval[float]]
    engine: Mapping[str, float]
    levels: tuple[LevelOutcome, ...] = ()
    counted: int
    warmup: float
    replications: int = 1
    basis: str
    speed: Interval[float] | None = None
    served: Served = field(repr=False)

    @property
    def title(self) -> str:
        setup, work = self.setup, self.workload
        words = [f"{work.requests:,} requests"]
        if self.served.runs[0].concurrency is None:
            if not math.isnan(work.rate):
                words[0] += f" at {significant(work.rate, 3)}/s"
        else:
            words[0] += f", {self.inputs.get('concurrency')} at any time"
        words.append("no drafts" if not setup.drafts.schedule else f"gamma {setup.drafts.words}")
        if setup.replicas > 1:
            words.append(f"{setup.replicas} replicas, {setup.routing}")
        return ", ".join([*words, self.basis])

    @property
    def met(self) -> bool:
        """Whether all levels are met; True where there are none."""
        return all(each.met for each in self.levels)

    def rows(self) -> list[Row]:
        rows = []
        for name in LATENCIES:
            if f"{name}_mean" in self.figures:
                row: Row = {"latency": name}
                for statistic in STATISTICS:
                    value = self.figures[f"{name}_{statistic}"]
                    row |= {
                        f"{statistic}_ms{end}": 1e3 * getattr(value, side)
                        for end, side in (("", "best"), ("_low", "low"), ("_high", "high"))
                    }
                rows.append(row)
        return rows

    def table(self) -> list[Row]:
        """Ends of intervals that are not known are empty."""
        return [
            {name: None if _unknown(value) else value for name, value in row.items()}
            for row in self.rows()
        ]

    @property
    def essential(self) -> tuple[str, ...]:
        return "latency", *(f"{each}_ms" for each in STATISTICS), "p99_ms_low", "p99_ms_high"

    def summary(self) -> Row:
        """As in the document, where every figure is low, best, high."""
        found: Row = {
            "title": self.title,
            "workload": self.workload.row(),
            "replications": self.replications,
            "counted": self.counted,
            "metrics": {
                name: {statistic: self.figures[f"{name}_{statistic}"] for statistic in STATISTICS}
                for name in LATENCIES
                if f"{name}_mean" in self.figures
            },
        }
        found["metrics"] |= {
            name: self.figures[name] for name in _THROUGHPUT if name in self.figures
        }
        found["engine"] = dict(self.engine)
        if self.speed is not None:
            found["speed"] = self.speed
        if self.levels:
            found["levels"] = {
                each.level.name: {
                    "limit": each.level.limit_s,
                    "value": each.value,
                    "met": each.met,
                    "sure": each.sure,
                }
                for each in self.levels
            }
        return found

    def sentences(self) -> list[str]:
        engine = self.engine
        tokens, requests = (self.figures[name] for name in _THROUGHPUT[:2])
        first = "in the first replication " if self.replications > 1 else ""
        lines = [
            f"{_with_ends(tokens)} output tokens/s, {_with_ends(requests)} requests/s",
            f"{first}{significant(engine['batch_mean'], 3)} requests in a step in the mean (p99 "
            f"{engine['batch_p99']:.0f}), {significant(engine['queue_mean'], 3)} waiting (at most "
            f"{engine['queue_max']:.0f}), cache at most {engine['cache_peak']:.0%} full, "
            f"{engine['preemptions']:.0f} preemptions, busy {engine['busy']:.0%} of the time",
        ]
        if engine["cached_prompt_share"]:
            lines.append(f"{engine['cached_prompt_share']:.1%} of the prompts were in the cache")
        if self.setup.drafts.gamma_max and not _unknown(engine["tokens_per_call"]):
            lines.append(f"a round emits {engine['tokens_per_call']:.3g} tokens in the mean")
        if "goodput" in self.figures:
            lines.append(
                f"goodput {_with_ends(self.figures['goodput'])} requests/s: "
                f"{self.figures['good_share'].best:.1%} of the requests keep all limits"
            )
        lines += [_level_words(each) for each in self.levels]
        lines.append(self._interval_words)
        if self.speed is not None:
            low, high = significant(self.speed.low, 3), significant(self.speed.high, 3)
            known = "what is known of costs and acceptance leaves"
            line = f"{known} {low} to {high} times this speed open"
            held = not _unknown(self.figures["ttft_mean"].low)
            lines.append(f"{line}, which intervals have, too" if held else line)
        return lines

    @property
    def _interval_words(self) -> str:
        cut = (
            f"the first {self.warmup:.0%} of the requests are warm-up and not counted"
            if self.warmup
            else "no warm-up is cut: the engine starts empty"
        )
        alone = "" if self.speed is not None else " of chance alone"
        if self.replications > 1:
            return f"intervals: 95 %{alone}, over {self.replications} replications; {cut}"
        if _unknown(self.figures["ttft_mean"].low):
            return f"intervals: none, of {self.counted} requests (replications give some); {cut}"
        return f"intervals: 95 %{alone}, over batches of consecutive requests; {cut}"

    @cached_property
    def requests_frame(self) -> pd.DataFrame:
        """The first replication, a row a request."""
        import pandas as pd

        served, times = self.served, self.served.times
        columns: dict[str, Any] = {
            "arrival_s": times.arrival_s,
            "prompt_tokens": served.requests.prompt_tokens,
            "output_tokens": served.requests.output_tokens,
            "replica": served.split,
        }
        names = ("scheduled_s", "first_token_s", "last_token_s", "ttft_s", "tpot_s", "e2e_s")
        for name in (*names, "rounds", "preemptions", "cached_tokens"):
            columns[name] = served.each(name)
        return pd.DataFrame(columns)

    @cached_property
    def steps_frame(self) -> pd.DataFrame:
        """The first replication, a row a step, with the seconds of its parts (``target_s``)."""
        import pandas as pd

        frames = []
        for run, chosen in zip(self.served.runs, self.served.chosen, strict=True):
            steps = run.steps
            assert steps is not None, "kept by serve"
            frame = pd.DataFrame({name: getattr(steps, name) for name in _STEP_COLUMNS})
            frame.insert(0, "replica", int(self.served.split[chosen[0]]))
            for name, seconds in steps.parts.items():
                frame[f"{name}_s"] = seconds
            frames.append(frame)
        return pd.concat(frames, ignore_index=True)


def _unknown(value: Any) -> bool:
    return isinstance(value, float) and math.isnan(value)


def _with_ends(value: Interval[float], times: float = 1.0, unit: str = "") -> str:
    """``812 (790 to 830)``, the figure alone where it has no interval; of another unit so many
    times.
    """
    ends = (value.low, value.best, value.high)
    low, best, high = (significant(times * each) for each in ends)
    return f"{best}{unit}" + ("" if _unknown(value.low) else f" ({low} to {high})")


def _level_words(outcome: LevelOutcome) -> str:
    level = outcome.level
    if _unknown(outcome.value.best):
        return f"no request has a {level.latency}, so that {milliseconds(level.limit_s)} is kept"
    words = "within" if outcome.met else "above"
    doubt = ""
    if not _unknown(outcome.value.low) and not outcome.sure:
        doubt = ", but its interval reaches across"
    return (
        f"{level.latency} {level.statistic} is {_with_ends(outcome.value, 1e3, ' ms')}, {words} "
        f"{milliseconds(level.limit_s)}{doubt}"
    )
