"""How well is a curve of acceptance continued, by the kind of drafter?

For every kind, and from 1, 2, 3 and 5 known positions: how often the 90 % intervals of
``specsim.extrapolate`` hold a later S_i and the tokens per call, and its mean error in tokens per
call at the longest length that is known, beside that of holding the last rate.  Three times:

* the trends of the kinds, with the constants that are shipped;
* the same, held out: constants fitted anew (extrapolation_fit.py) without the family that is
  judged, of falling rates the width of intervals, the least that holds 95 %;
* level rates for every drafter, which is what extrapolate does where it is not told.

What was printed is held if it is to the last digit printed.  Two figures flatter the intervals, and
are told apart here:

* A later S_i is of the same run as the known ones, so what chance did to S_n is in both and cannot
  be missed, while the interval of S_i, which is for the next run, too, allows for it.  "S_i / S_n"
  is what is held without it.
* Positions of one curve go astray together, and so do drafts from every place of a text and those
  of blocks of it: so many S_i are as many trials as there are *runs* (a drafter on a text at a
  temperature) at the least.  "of runs" is Wilson's 95 % interval of that many trials, for S_i / S_n
  or, where there are none, for the tokens.

Longer blocks of draft models are no question for extrapolate but for ``acceptance_from_counts``,
which answers here.  The evidence is in acceptance_evidence.py.  Run from the repository root:
python -m benchmarks.extrapolation_by_drafter
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from functools import cache
from typing import NamedTuple

import numpy as np

from benchmarks.acceptance_evidence import KNOWN, Curve, Question, curves, questions
from benchmarks.extrapolation_fit import fitted
from specsim.extrapolation import Marginal
from specsim.extrapolation.curve import UNKNOWN_COUNTS, continued, cumulative_hazard
from specsim.extrapolation.trends import FALLING, LEVEL, RISING, STEEP, Trend, forecast
from specsim.intervals import wilson_interval

WIDTHS = tuple(np.arange(1.0, 4.01, 0.1).round(2).tolist())
# More than the level, so that families that were not seen are held at it.
WANTED = 0.95


class Judged(NamedTuple):
    """What became of one question.

    run : which the curve is of
    held : of each later S_i, whether the interval held it
    held_ratios : the same of S_i / S_n, n being the last known position
    held_tokens : the same of tokens per call at each longer length
    error, error_of_holding : in tokens per call at the longest, relative
    """

    run: str
    held: tuple[bool, ...]
    held_ratios: tuple[bool, ...]
    held_tokens: tuple[bool, ...]
    error: float
    error_of_holding: float


Chooser = Callable[[Curve], Trend | None]


def trend_of(curve: Curve) -> Trend | None:
    """What the docstring of extrapolate says for this kind and question; None is not extrapolate's
    to answer.
    """
    if curve.drafter == "heads":
        return LEVEL if curve.asked == "further" else FALLING
    if curve.asked == "longer":
        return None
    return RISING if curve.drafter == "draft model" else STEEP


def category(curve: Curve) -> str:
    drafters = curve.drafter if curve.drafter == "heads" else f"{curve.drafter}s"
    at = "" if curve.temperature is None else f" at {curve.temperature:g}"
    return f"{curve.pair} {drafters}{at}, {curve.asked}"


@cache
def evidence() -> tuple[Question, ...]:
    return tuple(questions())


@cache
def judge(question: Question, trend: Trend | None) -> Judged:
    if trend is None:
        return _of_mixture(question)
    known, longest = len(question.rates), len(question.rates) + len(question.tokens)
    counts, unit = question.curve.counts, question.curve.unit
    drafts = counts[:known] if isinstance(counts, tuple) else counts
    found = continued(question.rates, longest, drafts, trend)
    held = tuple(
        bool(found.low[i] - unit <= value <= found.high[i] + unit)
        for i, value in enumerate(question.further, known)
    )
    curve = found.survival[:known]
    trials = np.broadcast_to(np.array(drafts or UNKNOWN_COUNTS, dtype=float), known)
    lost = cumulative_hazard(forecast(curve, trials, longest - known, trend), trend.width)
    ends = curve[-1] * np.exp(-lost.high), curve[-1] * np.exp(-lost.low)
    held_ratios = tuple(
        bool(low - unit <= value <= high + unit)
        for low, value, high in zip(ends[0], question.further, ends[1], strict=False)
    )
    low, high = 1 + np.cumsum(found.low), 1 + np.cumsum(found.high)
    held_tokens = tuple(
        bool(low[i] - unit <= value <= high[i] + unit)
        for i, value in enumerate(question.tokens, known)
    )
    return Judged(
        question.curve.run,
        held,
        held_ratios,
        held_tokens,
        *_errors(question, found.tokens_per_call),
    )


def _of_mixture(question: Question) -> Judged:
    rounds = question.curve.counts or UNKNOWN_COUNTS
    assert not isinstance(rounds, tuple)
    found = Marginal(question.rates, rounds, heads=False).over_gamma()
    held_tokens = []
    for gamma, tokens in enumerate(question.tokens, len(question.rates) + 1):
        interval = found.interval(gamma)
        held_tokens.append(interval.low <= tokens <= interval.high)
    return Judged(question.curve.run, (), (), tuple(held_tokens), *_errors(question, interval.best))


def _errors(question: Question, tokens: float) -> tuple[float, float]:
    rates = question.rates
    before = rates[-2] if len(rates) > 1 else 1.0
    rate = rates[-1] / before if before else 0.0
    further = rate ** np.arange(1, len(question.tokens) + 1)
    holding = 1 + sum(rates) + rates[-1] * float(further.sum())
    truth = question.tokens[-1]
    return tokens / truth - 1, holding / truth - 1


# --- constants, held out ------------------------------------------------------------------------


@cache
def training(trend: Trend) -> tuple[Curve, ...]:
    """What a trend is fitted to: its own kind, and level rates, the default, draft models, too."""
    names = {trend.name} | ({RISING.name} if trend.name == LEVEL.name else set())
    return tuple(each for each in curves() if named(trend_of(each)) in names)


def named(trend: Trend | None) -> str:
    return trend.name if trend else ""


@cache
def without(trend: Trend | None, family: str) -> Trend | None:
    """The trend from all families but one, or from all of them if there is none of the name."""
    if trend is None:
        return None
    if trend.name != FALLING.name:
        return fitted(trend, [each for each in training(trend) if each.family != family])
    found = [
        each for each in evidence() if trend_of(each.curve) == trend and each.curve.family != family
    ]
    widths = (replace(trend, width=width) for width in WIDTHS)
    return next(
        each for each in widths if share(judge(one, each).held_tokens for one in found) >= WANTED
    )


def held_out(curve: Curve) -> Trend | None:
    return without(trend_of(curve), curve.family)


# --- the report ---------------------------------------------------------------------------------


def judged(choose: Chooser, asked: Iterable[Question]) -> dict[tuple[str, int], list[Judged]]:
    """By category and number of known positions; 0 is all of them."""
    rows: dict[tuple[str, int], list[Judged]] = defaultdict(list)
    for each in asked:
        found = judge(each, choose(each.curve))
        for known in (len(each.rates), 0):
            rows[category(each.curve), known].append(found)
    return rows


def share(held: Iterable[tuple[bool, ...]]) -> float:
    """Of all, or nan of none."""
    flat = [each for row in held for each in row]
    return float(np.mean(flat)) if flat else float("nan")


def as_of_runs(found: Sequence[Judged]) -> tuple[float, float]:
    """Wilson's 95 % interval of the share that was held, as if every run had been tried once."""
    part = share(each.held_ratios or each.held_tokens for each in found)
    runs = len({each.run for each in found})
    interval = wilson_interval(np.array(part), np.array(float(runs)), 0.95)
    return float(interval.low), float(interval.high)


def report(title: str, choose: Chooser) -> None:
    print(f"\n{title}")
    print(f"  {'':36s}{'known':>7s}{'curves':>8s}{'runs':>6s}{'S_i held':>10s}", end="")
    print(f"{'S_i / S_n':>11s}{'of':>5s}{'tokens held':>13s}{'of':>5s}{'of runs':>14s}", end="")
    print(f"{'error':>8s}{'holding':>9s}")
    rows = judged(choose, evidence())
    for name in sorted({name for name, _ in rows}):
        for known in (*KNOWN, 0):
            if (name, known) in rows:
                print(f"  {name:36s}{known or 'all':>7}{line(rows[name, known])}")


def line(found: Sequence[Judged]) -> str:
    held, ratios = [each.held for each in found], [each.held_ratios for each in found]
    tokens = [each.held_tokens for each in found]
    error, holding = errors(found)
    of, (low, high) = sum(map(len, held)), as_of_runs(found)
    return (
        f"{len(found):8d}{len({each.run for each in found}):6d}"
        f"{f'{share(held):.1%}' if of else '':>10s}{f'{share(ratios):.1%}' if of else '':>11s}"
        f"{of or '':>5}"
        f"{share(tokens):13.1%}{sum(map(len, tokens)):5d}{f'{low:.0%} to {high:.0%}':>14s}"
        f"{error:8.2%}{holding:9.2%}"
    )


def errors(found: Sequence[Judged]) -> tuple[float, float]:
    """Mean absolute errors, and those of holding the last rate."""
    return (
        float(np.mean([abs(each.error) for each in found])),
        float(np.mean([abs(each.error_of_holding) for each in found])),
    )


def main() -> None:
    for trend in (RISING, STEEP, LEVEL, FALLING):
        print(f"{trend.name:8s} {'shipped':36s} {said(trend)}")
        print(f"{'':8s} {'fitted':36s} {said(without(trend, ''))}")
        for family in sorted({each.family for each in training(trend)}):
            print(f"{'':8s} without {family:28s} {said(without(trend, family))}")
    report("by kind, as shipped", trend_of)
    report("by kind, held out", held_out)
    report("level for every drafter, as shipped", lambda _: LEVEL)


def said(trend: Trend | None) -> str:
    assert trend is not None
    return (
        f"slope {trend.slope:+.2f}, spread {trend.spread:.2f}, turn {trend.turn:.2f}, "
        f"irregular {trend.irregular:.2f}, width {trend.width:.1f}"
    )


if __name__ == "__main__":
    main()
