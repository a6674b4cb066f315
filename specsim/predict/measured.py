"""Predictions from a profile: replay of the trace, priced with the measured run times.

Everything here is in seconds and for requests exactly as long as the trace's.  Decoding starts
with all but the last token of the prompt in the caches: reading those is not decoding and not
counted, in plain and in speculative decoding alike.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from specsim.checks import Floats, UnsupportedError
from specsim.intervals import Bootstrap
from specsim.predict.replay.fixed_gamma import Replay, replay
from specsim.predict.replay.run_counts import RunCounts, RunKind
from specsim.profiles import Overhead, Role, RunTime
from specsim.traces import Trace


@dataclass(frozen=True)
class RunTimes:
    """Median seconds of a run, by new tokens and context, of one model.

    A straight line through the measured contexts (least squares where there are more than two),
    and linear in the number of new tokens between measured ones; unknown beyond the widest.
    """

    tokens: Floats  # (N,) increasing
    contexts: Floats  # (C,) increasing
    seconds: Floats  # (N, C)

    @staticmethod
    def of(run_times: Sequence[RunTime], model: Role, follows: Role | None = None) -> RunTimes:
        """The table of one model's rows; with ``follows``, of its runs after that model's."""
        rows = [
            row
            for row in run_times
            if row.model == model and row.batch == 1 and follows in (None, row.follows)
        ]
        tokens = np.array(sorted({row.tokens for row in rows}), dtype=float)
        contexts = np.array(sorted({row.context for row in rows}), dtype=float)
        seconds = np.full((tokens.size, contexts.size), np.nan)
        for row in rows:
            at = np.searchsorted(tokens, row.tokens), np.searchsorted(contexts, row.context)
            seconds[at] = row.median_s
        if not rows or np.isnan(seconds).any():
            raise UnsupportedError(f"the profile's run times of the {model} are incomplete")
        return RunTimes(tokens, contexts, seconds)

    def __call__(self, tokens: float, context: Floats) -> Floats:
        """Seconds of a run over ``tokens`` new tokens at each context, shape of ``context``.

        A mean number of tokens is priced as a run of that width would be.
        """
        if tokens > self.tokens[-1]:
            raise UnsupportedError(
                f"run times are measured up to {self.tokens[-1]:g} new tokens, {tokens:g} asked "
                "for; calibrate with a larger --gamma-max"
            )
        by_context = np.array([np.interp(tokens, self.tokens, column) for column in self.seconds.T])
        if len(self.contexts) == 1:
            return np.full(np.shape(context), by_context[0])
        slope, level = np.polyfit(self.contexts, by_context, 1)
        seconds: Floats = level + slope * np.asarray(context, dtype=float)
        return seconds


@dataclass(frozen=True)
class RunPrices:
    """Seconds of the runs of any number of models.

    tables : by kind of run
    flat_s : seconds a run of drafters without a model, whatever it reads
    """

    tables: Mapping[RunKind, RunTimes]
    flat_s: Mapping[str, float]

    def seconds(self, runs: RunCounts, context: float) -> float:
        """Expected seconds of all runs, at a mean number of tokens in the cache."""
        total = 0.0
        for kind, count in runs.counts.items():
            if kind.model in self.flat_s:
                total += count * self.flat_s[kind.model]
            elif count:
                width = max(runs.positions[kind] / count, 1.0)
                total += count * float(self.tables[kind](width, np.array([context]))[0])
        return total


@dataclass(frozen=True)
class MeasuredCost:
    """Seconds of everything a block does."""

    target: RunTimes
    first_draft: RunTimes  # the first draft run of a block, on one or two tokens
    next_draft: RunTimes  # the others
    overhead_gammas: Floats
    overhead_s: Floats

    @staticmethod
    def of(
        run_times: Sequence[RunTime], overhead: Sequence[Overhead], temperature: float
    ) -> MeasuredCost:
        rows = sorted(
            (row for row in overhead if row.temperature == temperature), key=lambda row: row.gamma
        )
        if not rows or rows[0].gamma != 0:
            raise UnsupportedError(
                f"the profile has no overhead of plain decoding at temperature {temperature:g}"
            )
        return MeasuredCost(
            target=RunTimes.of(run_times, "target"),
            first_draft=RunTimes.of(run_times, "draft", follows="target"),
            next_draft=RunTimes.of(run_times, "draft", follows="draft"),
            overhead_gammas=np.array([row.gamma for row in rows], dtype=float),
            overhead_s=np.array([row.median_s for row in rows]),
        )

    def overhead(self, gamma: int) -> float:
        """Host seconds of a block; linear between the measured gammas."""
        return float(np.interp(gamma, self.overhead_gammas, self.overhead_s))

    def plain_seconds(self, trace: Trace) -> Floats:
        """Plain decoding, one run on one token each; seconds of each request, shape (R,)."""
        steps = self.target(1, _contexts(trace)) + self.overhead(0)
        return np.add.reduceat(steps, trace.starts[:-1])

    def seconds(self, trace: Trace, replayed: Replay, max_new_tokens: int) -> Floats:
        """Speculative decoding with ``replayed.gamma``; seconds of each request, shape (R,)."""
        seconds: Floats = self.parts(trace, replayed, max_new_tokens).sum(axis=0)
        return seconds

    def parts(self, trace: Trace, replayed: Replay, max_new_tokens: int) -> Floats:
        """Seconds of each request in draft runs, target runs and overhead, shape (3, R).

        A block never drafts past ``max_new_tokens``: with r tokens to go it drafts
        min(gamma, r - 1).  After a bonus token the draft has two tokens to read first.
        """
        context = _contexts(trace)
        to_go = max_new_tokens - trace.positions
        drafted = np.minimum(replayed.gamma, to_go - 1)
        expected = np.zeros((3, trace.tokens))
        draft, target, overhead = expected
        for length in np.unique(drafted):
            at = drafted == length
            where, starts = context[at], replayed.starts[at]
            target[at] = starts * self.target(int(length) + 1, where)
            overhead[at] = starts * self.overhead(int(length))
            if length:
                first = self.first_draft(1, where)
                # Run i has i more tokens in the cache, and run times are linear in those.
                others = (length - 1) * self.next_draft(1, where + length / 2)
                extra = self.first_draft(2, where) - first
                draft[at] = starts * (first + others) + replayed.bonus[at] * extra
        by_request: Floats = np.add.reduceat(expected, trace.starts[:-1], axis=1)
        return by_request

    def draft_cost(self, context: float) -> float:
        """The papers' c at one context: a draft run after a draft run, as if timed on its own."""
        where = np.array([context])
        return float(self.next_draft(1, where)[0] / self.target(1, where)[0])

    def block(self, gamma: int, context: float) -> float:
        """Seconds of one block at one context, its draft with one token to read first."""
        where = np.array([context])
        seconds = self.target(gamma + 1, where)[0] + self.overhead(gamma)
        if gamma:
            seconds += self.first_draft(1, where)[0] + (gamma - 1) * self.next_draft(1, where)[0]
        return float(seconds)


def _contexts(trace: Trace) -> Floats:
    """Tokens in the cache when the run that decides a position starts, shape (T,)."""
    if "context" not in trace.columns:
        raise UnsupportedError("the trace has no column context, which run times depend on")
    return np.asarray(trace.columns["context"], dtype=np.float64) - 1.0


@dataclass(frozen=True)
class MeasuredPrediction:
    """One gamma, predicted by replay.

    ``low`` and ``high`` are the 95 % interval of the speedup over workloads like the trace's
    (bootstrap over requests; run times are taken as they are).
    """

    gamma: int
    tokens: int
    calls: float
    tokens_per_call: float
    speedup: float
    low: float
    high: float


def predict(
    trace: Trace,
    cost: MeasuredCost,
    gammas: Sequence[int],
    max_new_tokens: int,
    seed: int = 0,
) -> list[MeasuredPrediction]:
    """Tokens per call and speedup against plain decoding of the same requests."""
    plain = cost.plain_seconds(trace)
    bootstrap = Bootstrap(trace.requests, seed)
    predictions = []
    for replayed in replay(trace, gammas):
        seconds = cost.seconds(trace, replayed, max_new_tokens) if replayed.gamma else plain
        speedup = bootstrap.ratio(plain, seconds)
        predictions.append(
            MeasuredPrediction(
                gamma=replayed.gamma,
                tokens=trace.tokens,
                calls=replayed.total_calls,
                tokens_per_call=replayed.tokens_per_call,
                speedup=speedup.best,
                low=speedup.low,
                high=speedup.high,
            )
        )
    return predictions
