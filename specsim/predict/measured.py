"""Predictions from a profile: replay of the trace, priced with the measured run times.

Everything here is in seconds and for requests exactly as long as the trace's.  Decoding starts
with all but the last token of the prompt in the caches: reading those is not decoding and not
counted, in plain and in speculative decoding alike.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from specsim.checks import Floats, UnsupportedError
from specsim.hardware.first_drafts import as_in_the_mean, by_length
from specsim.hardware.host_times import HostTimes
from specsim.hardware.later_drafts import fading_of, times_late, without_fading
from specsim.hardware.repeats import PassDraws
from specsim.hardware.run_time_fit import Kind, fits, in_passes, pass_draws
from specsim.intervals import Bootstrap, around
from specsim.predict.replay.fixed_gamma import Replay, replay
from specsim.profiles import Overhead, RunTime
from specsim.traces import Trace

# First word of the random key of what machines, and other programs, did.
_OTHERS = 0x0B5


@dataclass(frozen=True)
class RunTimes:
    """Seconds of a run, by new tokens and context, of one model.

    A straight line through the contexts (least squares where there are more than two), and linear
    in the number of new tokens between those of the table; unknown beyond the widest.

    runs : of each context, how many were timed there, which is how much it counts; None: all alike
    """

    tokens: Floats  # (N,) increasing
    contexts: Floats  # (C,) increasing
    seconds: Floats  # (N, C), or (N, C, D) of draws
    runs: Floats | None = None  # (C,)

    def line(self, tokens: float) -> tuple[Floats, Floats]:
        """Level and slope over the context of a run over ``tokens`` new tokens; () or (D,).

        A mean number of tokens is priced as a run of that width would be.
        """
        if tokens > self.tokens[-1]:
            raise UnsupportedError(
                f"run times are measured up to {self.tokens[-1]:g} new tokens, {tokens:g} asked "
                "for; calibrate with a larger --gamma-max"
            )
        at = max(int(np.searchsorted(self.tokens, tokens, side="right")) - 1, 0)
        by_context = self.seconds[at]
        if tokens > self.tokens[at]:
            step = (tokens - self.tokens[at]) / (self.tokens[at + 1] - self.tokens[at])
            by_context = by_context + step * (self.seconds[at + 1] - by_context)
        if len(self.contexts) == 1:
            return by_context[0], np.zeros_like(by_context[0])
        shares = np.ones(self.contexts.size) if self.runs is None else self.runs
        shares = shares / shares.sum()
        middle = shares @ self.contexts
        away = shares * (self.contexts - middle)
        slope = away @ by_context / (away @ self.contexts)
        return shares @ by_context - slope * middle, slope

    def __call__(self, tokens: float, context: Floats) -> Floats:
        """Seconds of a run over ``tokens`` new tokens at each context, shape of ``context``."""
        level, slope = self.line(tokens)
        seconds: Floats = level + slope * np.asarray(context, dtype=float)
        return seconds


@dataclass(frozen=True)
class Spent:
    """What requests run: how many runs of each sort, and their contexts added up.

    runs : by kind, number of new tokens, and drafts of the block; shapes (R,) each
    blocks : by how many tokens a block asks its drafter for, shape (R,)
    """

    runs: Mapping[tuple[Kind, int, int], tuple[Floats, Floats]]
    blocks: Mapping[int, Floats]

    def total(self, draws: int) -> Spent:
        """Added up over all requests, the same for every draw, shapes (D,)."""

        def whole(by_request: Floats) -> Floats:
            return np.full(draws, by_request.sum())

        return Spent(
            {what: (whole(count), whole(context)) for what, (count, context) in self.runs.items()},
            {length: whole(count) for length, count in self.blocks.items()},
        )

    def drawn(self, bootstrap: Bootstrap) -> Spent:
        """Added up over the requests of each draw, shapes (D,)."""
        sums = bootstrap.sums
        return Spent(
            {what: (sums(count), sums(context)) for what, (count, context) in self.runs.items()},
            {length: sums(count) for length, count in self.blocks.items()},
        )


@dataclass(frozen=True)
class MeasuredCost:
    """Seconds of everything a block does.

    Prompt lookup has no draft runs, which then take no time; the host seconds of a block are those
    of searching too, by how many tokens are asked for, whatever is found.

    drawn : the same as far as the repeats leave it open, a last axis of draws on everything; None
        where nothing was repeated
    """

    target: RunTimes
    first_draft: RunTimes  # the first draft run of a block, on one or two tokens, in the mean
    # The others, late in a long block (A), or in the mean where ``fading`` is not known.
    next_draft: RunTimes
    overhead_gammas: Floats
    overhead_s: Floats  # (G,), or (G, D) of draws
    fading: float = 0.0  # of the others (``specsim.hardware.later_drafts``)
    # Of the first, over that mean, by drafts of the block (``specsim.hardware.first_drafts``); 1
    # where it is not known.
    first_times: Mapping[int, float] = field(default_factory=dict)
    drawn: MeasuredCost | None = field(default=None, repr=False)

    @staticmethod
    def of(
        run_times: Sequence[RunTime],
        overhead: Sequence[Overhead],
        temperature: float,
        by_lookup: bool = False,
    ) -> MeasuredCost:
        """Of one sequence's run times, smoothed (``specsim.hardware.run_time_fit``).

        by_lookup : prompt lookup drafts.  Its target runs are as wide as it happened to find
            tokens, so the widths up to the longest draft that decoding never showed are the fit's:
            between the measured ones as their neighbours, beyond them as its roofline goes on.
            How often which width follows which, and so what runs take, is another thing at each
            temperature: only passes of this one are taken
        """
        host = HostTimes.of(overhead, temperature)
        passes = {each for row in host.rows for each in row.passes}
        if by_lookup and passes:
            run_times = in_passes(run_times, passes)
        fading = fading_of(run_times)
        first_times = by_length(run_times)
        found = fits(as_in_the_mean(without_fading(run_times, fading), first_times))
        runs: dict[int, float] = defaultdict(float)
        for row in run_times:
            runs[row.context] += sum(row.runs) if row.runs else len(row.seconds)
        contexts = np.array(sorted(runs), dtype=float)
        counted = np.array([runs[each] for each in sorted(runs)])
        gammas = np.array(sorted(host.by_gamma), dtype=float)
        draws = pass_draws([*run_times, *host.rows])

        def table(kind: Kind, draws: PassDraws | None = None) -> RunTimes:
            if by_lookup and kind != "target":
                return RunTimes(np.ones(1), contexts[:1], np.zeros((1, 1)))
            # Where no draft has more than one token, no run follows its own.
            own: Kind = "first draft" if kind == "next draft" else kind
            times = found.get(("eager", kind)) or found.get(("eager", own))
            widths = {p.tokens for p in times.points} if times else set()
            if times is None or 1 not in widths:
                model = kind.split()[-1]
                raise UnsupportedError(f"the profile's run times of the {model} are incomplete")
            if by_lookup:
                widths.update(range(1, max(host.by_gamma) + 2))
            if kind == "first draft":
                widths.add(2)  # after a bonus token, which few requests may not have had
            seconds = [
                [
                    times(n, 1, context) if draws is None else times.drawn(n, 1, context, draws)
                    for context in contexts
                ]
                for n in sorted(widths)
            ]
            tokens = np.array(sorted(widths), dtype=float)
            return RunTimes(tokens, contexts, np.array(seconds), counted)

        kinds: tuple[Kind, ...] = ("target", "first draft", "next draft")
        drawn = None
        if len(draws.passes) > 1:
            host_s = np.array([host.drawn(int(gamma), draws) for gamma in gammas])
            target, first, later = (table(kind, draws) for kind in kinds)
            drawn = MeasuredCost(target, first, later, gammas, host_s, fading, first_times)
        best = np.array([host(int(gamma)) for gamma in gammas])
        target, first, later = map(table, kinds)
        return MeasuredCost(target, first, later, gammas, best, fading, first_times, drawn)

    def overhead(self, gamma: int) -> Floats:
        """Host seconds of a block; linear between the measured gammas.  () or (D,)."""
        return _between(float(gamma), self.overhead_gammas, self.overhead_s)

    def plain_spent(self, trace: Trace) -> Spent:
        """Plain decoding, one run on one token each."""
        ones = np.ones(trace.tokens)
        plain = _by_request(trace, ones)
        return Spent({("target", 1, 0): plain}, {0: plain[0]})

    def spent(self, trace: Trace, replayed: Replay, max_new_tokens: int) -> Spent:
        """Speculative decoding with ``replayed.gamma``.

        A block never drafts past ``max_new_tokens``: with r tokens to go it drafts
        min(gamma, r - 1).  After a bonus token the draft has two tokens to read first.  A lookup
        is asked for as many, and the target reads as many as it finds.
        """
        to_go = max_new_tokens - trace.positions
        drafted = asked = np.minimum(replayed.gamma, to_go - 1)
        if trace.by_lookup:
            drafted = np.minimum(asked, trace.columns["found"])
        runs: dict[tuple[Kind, int, int], tuple[Floats, Floats]] = {}
        blocks = {}
        for length in map(int, np.unique(drafted)):
            starts = np.where(drafted == length, replayed.starts, 0.0)
            runs["target", length + 1, length] = _by_request(trace, starts)
            if length and not trace.by_lookup:
                bonus = np.where(drafted == length, replayed.bonus, 0.0)
                runs["first draft", 1, length] = _by_request(trace, starts - bonus)
                runs["first draft", 2, length] = _by_request(trace, bonus)
                # Run i has i more tokens in the cache, and run times are linear in those.
                later = _by_request(trace, (length - 1) * starts, length / 2)
                runs["next draft", 1, length] = later
        for length in map(int, np.unique(asked)):
            starts = np.where(asked == length, replayed.starts, 0.0)
            blocks[length] = _by_request(trace, starts)[0]
        return Spent(runs, blocks)

    def price(self, spent: Spent) -> Floats:
        """Seconds in draft runs, target runs and overhead, shape (3, R) or (3, D)."""
        of_kind = {
            "target": self.target,
            "first draft": self.first_draft,
            "next draft": self.next_draft,
        }
        draft = target = np.zeros(())
        for (kind, tokens, drafted), (count, context) in spent.runs.items():
            level, slope = of_kind[kind].line(tokens)
            seconds = count * level + context * slope
            if kind == "target":
                target = target + seconds
            elif kind == "first draft":
                draft = draft + self.first_times.get(drafted, 1.0) * seconds
            else:
                draft = draft + times_late(drafted, self.fading) * seconds
        overhead = sum(count * self.overhead(length) for length, count in spent.blocks.items())
        return np.array(np.broadcast_arrays(draft, target, overhead))

    def undrafted_s(self, spent: Spent) -> Floats:
        """Seconds in target runs on one token, which are part of ``price``; shape (R,) or (D,)."""
        count, context = spent.runs.get(("target", 1, 0), (np.zeros(()), np.zeros(())))
        level, slope = self.target.line(1)
        return np.asarray(count * level + context * slope)

    def plain_seconds(self, trace: Trace) -> Floats:
        """Plain decoding; seconds of each request, shape (R,)."""
        seconds: Floats = self.price(self.plain_spent(trace)).sum(axis=0)
        return seconds

    def seconds(self, trace: Trace, replayed: Replay, max_new_tokens: int) -> Floats:
        """Speculative decoding with ``replayed.gamma``; seconds of each request, shape (R,)."""
        seconds: Floats = self.parts(trace, replayed, max_new_tokens).sum(axis=0)
        return seconds

    def parts(self, trace: Trace, replayed: Replay, max_new_tokens: int) -> Floats:
        """Seconds of each request in draft runs, target runs and overhead, shape (3, R)."""
        return self.price(self.spent(trace, replayed, max_new_tokens))

    def draft_cost(self, context: float) -> float:
        """The papers' c at one context: a draft run after a draft run over a plain one, as in the
        longest blocks that were timed.
        """
        where = np.array([context])
        late = times_late(int(self.overhead_gammas[-1]), self.fading)
        return float(late * self.next_draft(1, where)[0] / self.target(1, where)[0])

    def draft_run(self, place: int, context: float, gamma: int | None = None) -> Floats:
        """Seconds of the draft run at a place in its block, from 1, on one token; () or (D,).

        gamma : drafts of the block; None is one of any length
        """
        if place == 1:
            times = 1.0 if gamma is None else self.first_times.get(gamma, 1.0)
            return np.asarray(times * self.first_draft(1, np.array(context)))
        return (1 + self.fading / place) * self.next_draft(1, np.array(context))

    def block(self, gamma: int, context: float) -> Floats:
        """Seconds of one block at one context, its draft with one token to read first; () or
        (D,).
        """
        drafts = [self.draft_run(place, context, gamma) for place in range(1, gamma + 1)]
        target = self.target(gamma + 1, np.array(context))
        return np.asarray(target + self.overhead(gamma) + sum(drafts))


def _between(asked: float, where: Floats, values: Floats) -> Floats:
    """``values`` at ``where``, linear between and held beyond; shape of one value."""
    if asked >= where[-1]:
        return np.asarray(values[-1])
    at = max(int(np.searchsorted(where, asked, side="right")) - 1, 0)
    step = (asked - where[at]) / (where[at + 1] - where[at])
    return np.asarray(values[at] + max(step, 0.0) * (values[at + 1] - values[at]))


def _by_request(trace: Trace, count: Floats, further: float = 0.0) -> tuple[Floats, Floats]:
    """Runs at every position, shape (T,), and their contexts, added up by request."""
    context = _contexts(trace) + further
    starts = trace.starts[:-1]
    return np.add.reduceat(count, starts), np.add.reduceat(count * context, starts)


def _contexts(trace: Trace) -> Floats:
    """Tokens in the cache when the run that decides a position starts, shape (T,)."""
    if "context" not in trace.columns:
        raise UnsupportedError("the trace has no column context, which run times depend on")
    return np.asarray(trace.columns["context"], dtype=np.float64) - 1.0


@dataclass(frozen=True)
class MeasuredPrediction:
    """One gamma, predicted by replay.

    ``low`` and ``high`` are the 95 % interval of the speedup over workloads like the trace's and
    over the drift of the machine: requests and passes of the measurement are drawn again, and
    ``drawn``, shape (D,), is what comes of it; the interval is as much wider as so few requests
    leave open.  ``drawn_costs``, shape (D,), is of the trace's own
    requests, with the passes alone drawn again.  All draws scatter by the drift that passes do not
    show, and more where other programs ran beside the measurement.
    """

    gamma: int
    tokens: int
    calls: float
    tokens_per_call: float
    speedup: float
    low: float
    high: float
    drawn: Floats = field(repr=False, compare=False)
    drawn_costs: Floats = field(repr=False, compare=False)


def predict(
    trace: Trace,
    cost: MeasuredCost,
    gammas: Sequence[int],
    max_new_tokens: int,
    seed: int = 0,
    drift: float = 0.0,
) -> list[MeasuredPrediction]:
    """Tokens per call and speedup against plain decoding of the same requests.

    drift : standard deviation of the logarithm by which the machine, or programs beside the
        measurement, changed costs unseen, the same for all draft lengths
    """
    bootstrap = Bootstrap(trace.requests, seed)
    off = drift_draws(drift, bootstrap.draws, seed)
    plain = cost.plain_spent(trace)
    open_cost = cost.drawn or cost

    def priced(spent: Spent) -> tuple[float, Floats, Floats]:
        """Seconds of all requests, of those of each draw, and of all at the costs of each draw;
        the last two of shape (D,).
        """
        drawn: Floats = open_cost.price(spent.drawn(bootstrap)).sum(axis=0)
        whole = open_cost.price(spent.total(bootstrap.draws)).sum(axis=0)
        return float(cost.price(spent).sum()), drawn, whole

    plain_s, plain_drawn, plain_whole = priced(plain)
    predictions = []
    for replayed in replay(trace, gammas):
        spent = cost.spent(trace, replayed, max_new_tokens) if replayed.gamma else plain
        seconds, drawn, whole = priced(spent)
        if replayed.gamma:
            drawn, whole = drawn * off, whole * off
        every, of_costs = plain_drawn / drawn, plain_whole / whole
        speedup = around(plain_s / seconds, of_costs * (every / of_costs) ** bootstrap.wider)
        predictions.append(
            MeasuredPrediction(
                gamma=replayed.gamma,
                tokens=trace.tokens,
                calls=replayed.total_calls,
                tokens_per_call=replayed.tokens_per_call,
                speedup=speedup.best,
                low=speedup.low,
                high=speedup.high,
                drawn=every,
                drawn_costs=of_costs,
            )
        )
    return predictions


def drift_draws(drift: float, draws: int, seed: int = 0) -> Floats:
    """Factors by which a block may take longer, whatever its length, shape (D,).

    drift : standard deviation of their logarithm
    """
    off = np.random.default_rng([_OTHERS, seed]).normal(0.0, drift, draws)
    return np.asarray(np.exp(off))


def choose(predictions: Sequence[MeasuredPrediction]) -> MeasuredPrediction:
    """The one with the smallest expected regret, with what being chosen flatters it by taken off.

    Expected over what the measurements leave open: every draw has its own best one, and the regret
    of another is how much slower it is there.  That is least where the mean over the draws is
    largest.  The best of several estimates is mostly one whose costs chance favours: how much, the
    draws of costs say as well (the best of each draw, there and as estimated), and that is taken
    off the speedup and its interval.  Plain decoding is 1 by definition, and what is slower than it
    when that is taken off is not chosen.
    """
    drawn = np.array([each.drawn for each in predictions])
    chosen = predictions[int(drawn.mean(axis=1).argmax())]
    if chosen.gamma == 0:
        return chosen
    of_costs = np.array([each.drawn_costs for each in predictions])
    estimated = np.array([each.speedup for each in predictions])
    flattered = max(float((of_costs.max(axis=0) - estimated[of_costs.argmax(axis=0)]).mean()), 0.0)
    left = 1 - min(flattered / chosen.speedup, 0.9)
    plain = [each for each in predictions if each.gamma == 0]
    if plain and left * chosen.speedup < plain[0].speedup:
        return plain[0]
    return replace(
        chosen, speedup=left * chosen.speedup, low=left * chosen.low, high=left * chosen.high
    )
