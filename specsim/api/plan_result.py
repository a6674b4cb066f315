"""What ``specsim.plan`` returns: the cheapest set-up within the levels, and how sure that is."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import isfinite, nan
from typing import ClassVar

from specsim.api.plan_setups import PlannedSetUp
from specsim.api.result import Result, Row
from specsim.checks import significant
from specsim.intervals import Interval
from specsim.serving.levels import LATENCIES, ServiceLevel
from specsim.serving.metrics import STATISTICS
from specsim.serving.planning.crossing import Crossing
from specsim.serving.planning.settling import Settled
from specsim.serving.planning.sizing import slack
from specsim.serving.workload_summary import WorkloadSummary

_SECONDS = 3600.0
# A price for what has none, by which set-ups that cost nothing are compared.
_NEXT_TO_NOTHING = 1e-12
# Share of moments at which as many sequences as are named may not be enough.
SELDOM = 1e-3
# Rows of a table for people.
_SHOWN = 12


@dataclass(frozen=True, eq=False)
class Answer:
    """A set-up and how many replicas of it the workload needs.

    planned : one replica
    replicas : of it; 0 where no number of them meets the levels.  Where prompts share what they
        begin with, and would not meet them read whole, as many as have the capacity
    sustained : the highest rate of one replica within the levels, requests per second (analytic)
    figures : latencies and throughput of the workload; at no load where ``replicas`` is 0
    settled : the same simulated, with intervals; None: analytic
    price : of a card for an hour; None: no prices are known
    """

    planned: PlannedSetUp
    replicas: int
    sustained: float
    figures: Mapping[str, float]
    settled: Settled | None = None
    price: float | None = None

    @property
    def cards(self) -> int:
        """Of all replicas."""
        return self.replicas * self.planned.cards

    @property
    def hourly(self) -> float | None:
        """Price of all its cards for an hour."""
        return None if self.price is None else self.cards * self.price

    @property
    def cost(self) -> float:
        """As set-ups are compared."""
        return self.cost_of(self.replicas)

    def cost_of(self, replicas: int) -> float:
        """The price of so many replicas for an hour, or the number of their cards, which also tells
        apart what costs nothing.
        """
        each = 1.0 if self.price is None else self.price or _NEXT_TO_NOTHING
        return replicas * self.planned.cards * each

    @property
    def per_card(self) -> float:
        """Requests per second of a card within the levels."""
        return self.sustained / self.planned.cards

    def met(self, levels: Sequence[ServiceLevel]) -> bool:
        """Whether the levels are met, in simulation where that was made."""
        if not self.replicas:
            return False
        return slack(self.figures, levels) <= 1.0 if self.settled is None else self.settled.met

    def per_million(self, tokens_per_s: float) -> float | None:
        """Price of a million output tokens; None where no number of replicas is enough, too."""
        if self.hourly is None or not self.replicas:
            return None
        return 1e6 * self.hourly / (_SECONDS * tokens_per_s)


@dataclass(frozen=True)
class Sequences:
    """Of a replica.

    count : the least multiple of 8 that holds those in service all but 1 in 1,000 moments, or all
        that fit
    all_in_use : share of moments at which all that fit are in use, and others wait
    """

    count: int
    all_in_use: float

    @property
    def too_few(self) -> bool:
        """Whether they are in use more often than in 1 of 1,000 moments."""
        return self.all_in_use > SELDOM


@dataclass(frozen=True, kw_only=True)
class CapacityPlan(Result):
    """The cheapest set-up that meets the levels, with and without speculation.

    best : the answer; where no set-up meets the levels the nearest
    with_drafts, without : the cheapest of either kind; None where none meets the levels
    answers : all set-ups, the cheapest first
    levels : service levels
    rate, tokens_per_s : requests and output tokens per second that the workload asks for
    stops : where the drafts of ``with_drafts`` stop paying on its cards, at the low end of the
        interval of the speedup, as predicted, and at the high end; None: nowhere below capacity
    starts : where they begin to pay; None: at any low rate
    reason, why : what binds there, in a word and in a sentence
    replicas : of ``best`` at the ends of what is known of its speed
    gain : requests per second and card within the levels, with drafts over without
    by_rate : the cheapest of either kind at other rates (analytic)
    sequences : how many ``best`` needs in a replica
    context : tokens in the cache of a request, in the mean
    error_budget : half of 95 % intervals as shares: acceptance, cost, sampling; None: unknown
    """

    schema: ClassVar[str] = "specsim.serving"

    best: Answer
    with_drafts: Answer | None
    without: Answer | None
    answers: tuple[Answer, ...]
    levels: tuple[ServiceLevel, ...]
    workload: WorkloadSummary
    rate: float
    tokens_per_s: float
    stops: tuple[Crossing | None, Crossing | None, Crossing | None] | None = None
    starts: Crossing | None = None
    reason: str | None = None
    why: str = ""
    replicas: Interval[float] | None = None
    gain: Interval[float] | None = None
    by_rate: tuple[Row, ...] = ()
    sequences: Sequences | None = None
    context: int
    error_budget: Mapping[str, float | None]

    @property
    def met(self) -> bool:
        """Whether ``best`` meets all levels."""
        return self.best.met(self.levels)

    @property
    def pays(self) -> bool:
        """Whether the cheapest set-up drafts."""
        return self.met and self.best.planned.speculates

    @property
    def title(self) -> str:
        limits = ", ".join(f"{each.name} <= {each.limit_s:g} s" for each in self.levels)
        rate = significant(self.rate, 3)
        return f"set-ups for {rate} requests/s, {limits}, {self.best.planned.basis}"

    def rows(self) -> list[Row]:
        return [self._row(each) for each in self.answers]

    def table(self) -> list[Row]:
        """The cheapest set-ups, without what all of them share, or all of them that draft."""
        rows = self.rows()[:_SHOWN]
        shared = {name for name in rows[0] if all(row[name] in (None, "") for row in rows)}
        for name in ("accelerator", "tensor_parallel", "drafter"):
            if len({row[name] for row in rows} - {"", None}) == 1:
                shared.add(name)
        return [{k: v for k, v in row.items() if k not in shared} for row in rows]

    @property
    def essential(self) -> tuple[str, ...]:
        limited = (f"{each.name}_ms" for each in self.levels)
        first = ("accelerator", "tensor_parallel", "drafter", "gamma", "cards", "met")
        return (*first, *limited, "by", "cost_per_million_tokens", "replicas")

    def _row(self, answer: Answer) -> Row:
        planned = answer.planned
        row: Row = {
            "accelerator": planned.accelerator,
            "tensor_parallel": planned.deployment and planned.deployment.parallel.tensor,
            "drafter": planned.drafter_named,
            "gamma": planned.drafts.words if planned.speculates else "off",
            "replicas": answer.replicas or None,
            "cards": answer.cards or None,
            "cost_per_million_tokens": answer.per_million(self.tokens_per_s),
            "sustained_rate_per_card": answer.per_card,
        }
        for each in self.levels:
            row[f"{each.name}_ms"] = _number(1e3 * answer.figures.get(each.name, float("nan")))
        row["met"] = answer.met(self.levels)
        row["by"] = "analytic" if answer.settled is None else "simulated"
        return row

    def summary(self) -> Row:
        """As in the document, where whatever has an interval is low, best, high."""
        best, drafts = self.best, self.best.planned.drafts
        answer: Row = {
            "met": self.met,
            "pays": self.pays,
            "target": best.planned.deployment and best.planned.deployment.name,
            "accelerator": best.planned.accelerator or None,
            "tensor_parallel": best.planned.deployment and best.planned.deployment.parallel.tensor,
            "drafter": best.planned.drafter or None,
            "gamma": drafts.gamma_max,
            "schedule": self._schedule(),
            "replicas": best.replicas or None,
            "replicas_interval": self.replicas,
            "cards": best.cards or None,
            "context": self.context,
            "max_num_seqs": self.sequences and self.sequences.count,
            "all_sequences_in_use": self.sequences and self.sequences.all_in_use,
            "cost_per_million_tokens": best.per_million(self.tokens_per_s),
            "gain": {"goodput_per_card": self.gain},
            "reason": self.reason,
            "why": self.why or None,
        }
        if self.stops is not None:
            rates = [nan if each is None else each.rate for each in self.stops]
            middle = self.stops[1]
            answer["stops_paying_at"] = {
                "rate_per_replica": Interval(*rates),
                "batch": None if middle is None else middle.batch,
            }
            answer["starts_paying_at"] = self.starts and {
                "rate_per_replica": self.starts.rate,
                "batch": self.starts.batch,
            }
        found: Row = {
            "title": self.title,
            "workload": self.workload.row(),
            "plan": answer,
            "levels": {
                each.name: {
                    "limit": each.limit_s,
                    "value": self._value(each.name),
                    "met": each.met(best.figures[each.name]),
                }
                for each in self.levels
            },
            "metrics": {
                name: {each: self._value(f"{name}_{each}") for each in STATISTICS}
                for name in LATENCIES
            },
            "engine": dict(best.settled.engine) if best.settled else None,
            "alternatives": {
                name: None if each is None else self._row(each)
                for name, each in (("with_drafts", self.with_drafts), ("without", self.without))
            },
            "by_rate": list(self.by_rate),
            "error_budget": dict(self.error_budget),
        }
        return found

    def _schedule(self) -> list[list[int]]:
        """(first, last, gamma) by batch, up to the largest number of sequences."""
        setup, drafts, most = self.best.planned.setup, self.best.planned.drafts, 1
        if self.sequences is not None:
            most = self.sequences.count
        elif self.best.replicas:
            # Nobody knows how many are needed: all that the engine takes.
            most = setup.engine.settings(drafts).max_seqs
        if not drafts.schedule:
            return [[1, most, 0]]
        ranges = [list(each) for each in drafts.schedule if each[0] <= most]
        ranges[-1][1] = max(ranges[-1][0], most)
        return ranges

    def _value(self, name: str) -> Interval[float]:
        settled = self.best.settled
        if settled is not None and name in settled.figures:
            return settled.figures[name]
        return Interval(nan, self.best.figures.get(name, nan), nan)

    def sentences(self) -> list[str]:
        from specsim.api.plan_words import sentences

        return sentences(self)


def _number(value: float) -> float | None:
    return value if isfinite(value) else None
