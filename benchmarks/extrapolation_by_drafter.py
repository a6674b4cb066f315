"""How well is a curve of acceptance continued, by the kind of drafter?

For every kind, and from 1, 2, 3 and 5 known positions: how often the 90 % intervals of
``specsim.extrapolate`` hold a later S_i and the tokens per call, and its mean error in tokens per
call at the longest length that is known, beside that of holding the last rate.  Four times:

* falling rates for every drafter, which is what extrapolate did before it knew kinds;
* the trends of the kinds, with the constants that are shipped;
* the same, held out: slope and width chosen anew without the family that is judged.  The slope is
  the one with the least mean error (0 of level rates, DRIFT of falling ones, which the lengths in
  extrapolation_accuracy.py give), families weighing the same, and the width the least at which 95 %
  are held;
* level rates for every drafter, which is what extrapolate does where it is not told.

What was printed is held if it is to the last digit printed.  Longer blocks of draft models are no
question for extrapolate but for ``acceptance_from_counts``, which answers here.  The evidence is in
acceptance_evidence.py.  Run from the repository root: python -m benchmarks.extrapolation_by_drafter
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from functools import cache
from typing import NamedTuple

import numpy as np

from benchmarks.acceptance_evidence import KNOWN, Curve, Question, questions
from specsim.extrapolation import Marginal
from specsim.extrapolation.drift import UNKNOWN_COUNTS, continued
from specsim.extrapolation.trends import FALLING, LEVEL, RISING, STEEP, Trend

SLOPES = tuple(np.arange(0.1, 2.01, 0.1).round(2).tolist())
WIDTHS = tuple(np.arange(0.4, 3.01, 0.1).round(2).tolist())
# More than the level, so that families that were not seen are held at it.
WANTED = 0.95


class Judged(NamedTuple):
    """What became of one question.

    held : of each later S_i, whether the interval held it
    held_tokens : the same of tokens per call at each longer length
    error, error_of_holding : in tokens per call at the longest, relative
    """

    held: tuple[bool, ...]
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
    found = continued(question.rates, longest, question.curve.counts, trend)
    unit = question.curve.unit
    held = tuple(
        bool(found.low[i] - unit <= value <= found.high[i] + unit)
        for i, value in enumerate(question.further, known)
    )
    low, high = 1 + np.cumsum(found.low), 1 + np.cumsum(found.high)
    held_tokens = tuple(
        bool(low[i] - unit <= value <= high[i] + unit)
        for i, value in enumerate(question.tokens, known)
    )
    return Judged(held, held_tokens, *_errors(question, found.tokens_per_call))


def _of_mixture(question: Question) -> Judged:
    rounds = question.curve.counts or UNKNOWN_COUNTS
    found = Marginal(question.rates, rounds, heads=False).over_gamma()
    held_tokens = []
    for gamma, tokens in enumerate(question.tokens, len(question.rates) + 1):
        interval = found.interval(gamma)
        held_tokens.append(interval.low <= tokens <= interval.high)
    return Judged((), tuple(held_tokens), *_errors(question, interval.best))


def _errors(question: Question, tokens: float) -> tuple[float, float]:
    rates = question.rates
    before = rates[-2] if len(rates) > 1 else 1.0
    rate = rates[-1] / before if before else 0.0
    further = rate ** np.arange(1, len(question.tokens) + 1)
    holding = 1 + sum(rates) + rates[-1] * float(further.sum())
    truth = question.tokens[-1]
    return tokens / truth - 1, holding / truth - 1


# --- constants, held out ------------------------------------------------------------------------


def training(trend: Trend) -> list[Question]:
    """What a trend is chosen by: its own kind, and level rates, the default, draft models, too."""
    found = [each for each in evidence() if named(trend_of(each.curve)) == trend.name]
    if trend.name == LEVEL.name:
        found += [each for each in evidence() if named(trend_of(each.curve)) == RISING.name]
    return found


def named(trend: Trend | None) -> str:
    return trend.name if trend else ""


def chosen(trend: Trend, found: Sequence[Question]) -> Trend:
    """The slope with the least error, and the least width that holds as much as is wanted."""
    if trend.name in ("rising", "steep"):
        slopes = [replace(trend, slope=slope) for slope in SLOPES]
        trend = min(slopes, key=lambda each: by_family(found, lambda q: abs(judge(q, each).error)))
    widths = [replace(trend, width=width) for width in WIDTHS]
    enough = (each for each in widths if coverage(found, each) >= WANTED)
    return next(enough, widths[-1])


def coverage(found: Sequence[Question], trend: Trend) -> float:
    """Of later S_i where they are asked for, else of tokens per call."""
    judgements = [judge(each, trend) for each in found]
    return share(each.held or each.held_tokens for each in judgements)


def by_family(found: Sequence[Question], figure: Callable[[Question], float]) -> float:
    figures: dict[str, list[float]] = defaultdict(list)
    for each in found:
        figures[each.curve.family].append(figure(each))
    return float(np.mean([np.mean(values) for values in figures.values()]))


@cache
def without(trend: Trend | None, family: str) -> Trend | None:
    """The trend from all families but one."""
    if trend is None:
        return None
    return chosen(trend, [each for each in training(trend) if each.curve.family != family])


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


def report(title: str, choose: Chooser) -> None:
    print(f"\n{title}")
    print(f"  {'':36s}{'known':>7s}{'curves':>8s}{'S_i held':>10s}{'of':>5s}", end="")
    print(f"{'tokens held':>13s}{'of':>5s}{'error':>8s}{'holding':>9s}")
    rows = judged(choose, evidence())
    for name in sorted({name for name, _ in rows}):
        for known in (*KNOWN, 0):
            if (name, known) in rows:
                print(f"  {name:36s}{known or 'all':>7}{line(rows[name, known])}")


def line(found: Sequence[Judged]) -> str:
    held = [each.held for each in found]
    tokens = [each.held_tokens for each in found]
    error, holding = errors(found)
    of = sum(map(len, held))
    return (
        f"{len(found):8d}{f'{share(held):.0%}' if of else '':>10s}{of or '':>5}"
        f"{share(tokens):13.0%}{sum(map(len, tokens)):5d}{error:8.1%}{holding:9.1%}"
    )


def errors(found: Sequence[Judged]) -> tuple[float, float]:
    """Mean absolute errors, and those of holding the last rate."""
    return (
        float(np.mean([abs(each.error) for each in found])),
        float(np.mean([abs(each.error_of_holding) for each in found])),
    )


def main() -> None:
    for trend in (RISING, STEEP, LEVEL, FALLING):
        found = training(trend)
        best, families = chosen(trend, found), {each.curve.family for each in found}
        left_out = [without(trend, family) for family in sorted(families)]
        slopes = [each.slope for each in left_out if each]
        widths = [each.width for each in left_out if each]
        print(
            f"{trend.name:8s} shipped: slope {trend.slope:+.2f}, width {trend.width:.1f}; chosen "
            f"{best.slope:+.2f}, {best.width:.1f}; without one of {len(families)} families "
            f"{min(slopes):+.2f} to {max(slopes):+.2f}, {min(widths):.1f} to {max(widths):.1f}"
        )
    report("falling for every drafter", lambda _: replace(FALLING, width=1.0))
    report("by kind, as shipped", trend_of)
    report("by kind, held out", held_out)
    report("level for every drafter, as shipped", lambda _: LEVEL)


if __name__ == "__main__":
    main()
