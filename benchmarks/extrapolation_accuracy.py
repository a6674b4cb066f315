"""How well does a survival curve extrapolate from its first three positions?

Prints, from the public curves in tests/reference/acceptance_curves.csv, (1) the pooled slope and
its spread, (2) the errors of the candidate models on sources that their pooled constants never
saw, (3) the sensitivity to the other constants and (4) the coverage of the intervals.  An error
is that of the mean acceptance length 1 + sum S_i at the longer K.  Groups, not curves, are left
out and weigh the same: rows of one model family or one thread resemble each other.

Two kinds of evidence:
* three positions: marginal rates of the first three positions against a longer K, within one run,
  and across runs of different K where a thread has both;
* lengths: mean acceptance lengths at K = 3 and K = 7 from separate runs (80 chains); the three
  rates are not known one by one, so only models with one free level can be judged: it is solved
  from the length at K = 3.

Run from the repository root: python benchmarks/extrapolation_accuracy.py
"""

from __future__ import annotations

import csv
from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
from scipy.optimize import brentq, least_squares
from scipy.special import expit, logit

import specsim.extrapolation.curve as subject
from specsim.acceptance import BetaAcceptance
from specsim.checks import Floats
from specsim.extrapolation.trends import FALLING, Trend

CURVES = Path(__file__).parents[1] / "tests" / "reference" / "acceptance_curves.csv"
KNOWN, FAR = 3, 7
SLOPES = -np.arange(0.0, 0.31, 0.01)


class Case(NamedTuple):
    """Three known rates, and the mean acceptance length that they should lead to."""

    group: str
    name: str
    rates: tuple[float, ...]
    counts: float | None
    k: int
    length: float
    curve: tuple[float, ...] = ()


class Lengths(NamedTuple):
    """Mean acceptance lengths of one chain at K = 3 and at K = 7."""

    group: str
    name: str
    near: float
    far: float


Model = Callable[[Case, float], Floats]
Chain = tuple[str, ...]


def read() -> tuple[list[Case], list[Lengths]]:
    """Both kinds of evidence from the reference file."""
    marginal: dict[Chain, list[tuple[int, float, str]]] = defaultdict(list)
    length: dict[Chain, dict[int, float]] = defaultdict(dict)
    with CURVES.open() as file:
        for row in csv.DictReader(file):
            chain = (row["group"], row["source"], row["target"], row["draft"], row["task"])
            if row["kind"] == "length":
                length[chain][int(row["position"])] = float(row["value"])
            else:
                entry = (int(row["position"]), float(row["value"]), row["drafts"])
                marginal[(*chain, row["drafted"])].append(entry)
    return (
        [*_within(marginal), *_across(marginal, length)],
        [
            Lengths(chain[0], f"{chain[3]} {chain[4]}", at[KNOWN], at[FAR])
            for chain, at in length.items()
            if KNOWN in at and FAR in at
        ],
    )


def _within(
    marginal: dict[Chain, list[tuple[int, float, str]]],
) -> list[Case]:
    cases: list[Case] = []
    longest: dict[Chain, int] = defaultdict(int)
    for key in marginal:
        longest[key[:-1]] = max(longest[key[:-1]], int(key[-1]))
    for key, entries in marginal.items():
        if longest[key[:-1]] != int(key[-1]):
            continue  # a shorter run of the same chain
        curve = [value for _, value, _ in sorted(entries)][:FAR]
        counts = float(entries[0][2]) if entries[0][2] else None
        name = f"{key[0]} {key[4]}"
        cases.append(
            Case(
                key[0], name, tuple(curve[:KNOWN]), counts, len(curve), 1 + sum(curve), tuple(curve)
            )
        )
    return cases


def _across(
    marginal: dict[Chain, list[tuple[int, float, str]]],
    length: dict[Chain, dict[int, float]],
) -> list[Case]:
    """The run at K = 3 against the run at K = 7, and gains of length from K to K + 1."""
    cases = []
    for key, entries in marginal.items():
        far = marginal.get((*key[:-1], str(FAR)))
        if int(key[-1]) == KNOWN and far:
            rates = tuple(value for _, value, _ in sorted(entries))
            reached = length[key[:-1]].get(FAR, 1 + sum(value for _, value, _ in far))
            cases.append(Case(key[0], f"{key[0]} {key[4]} 3 to 7", rates, None, FAR, reached))
    for chain, at in length.items():
        if set(range(1, KNOWN + 2)) <= set(at):
            gains = np.diff([1.0] + [at[k] for k in range(1, KNOWN + 1)])
            k = max(at)
            cases.append(Case(chain[0], f"{chain[0]} gains", tuple(gains), None, k, at[k]))
    return cases


# --- the candidates: (case, pooled slope) -> conditional rates beyond the known ones ------------


def iid_from_first(case: Case, slope: float) -> Floats:
    return np.full(case.k - KNOWN, case.rates[0])


def hold_third(case: Case, slope: float) -> Floats:
    return np.full(case.k - KNOWN, case.rates[2] / case.rates[1])


def hold_mean(case: Case, slope: float) -> Floats:
    return np.full(case.k - KNOWN, case.rates[2] ** (1 / KNOWN))


def beta_mixture(case: Case, slope: float) -> Floats:
    def miss(log_parameters: Floats) -> Floats:
        return BetaAcceptance(*np.exp(log_parameters)).survival(KNOWN)[1:] - case.rates

    fit = least_squares(miss, [1.0, 0.0], bounds=(-8, 8))
    return BetaAcceptance(*np.exp(fit.x)).conditional(case.k)[KNOWN:]


def own_trend(case: Case, slope: float) -> Floats:
    """The log odds go on falling as a straight line through the three known ones."""
    line = np.polyfit(np.arange(KNOWN), _log_odds(case), 1)
    return _rates(np.polyval(line, np.arange(KNOWN, case.k)))


def third_with_slope(case: Case, slope: float) -> Floats:
    return _rates(_log_odds(case)[-1] + slope * np.arange(1, case.k - KNOWN + 1))


def mean_with_slope(case: Case, slope: float) -> Floats:
    level = (_log_odds(case) - slope * np.arange(KNOWN)).mean()
    return _rates(level + slope * np.arange(KNOWN, case.k))


def third_with_ratio(case: Case, slope: float) -> Floats:
    """The conditional rate itself, not its odds, falls by a constant factor.

    A fall of the log odds by d is one of the log rate by d / 4 where the rate is 3/4.
    """
    falling: Floats = np.exp(0.25 * slope * np.arange(1.0, case.k - KNOWN + 1))
    falling *= case.rates[2] / case.rates[1]
    return falling


def counts_withheld(case: Case, slope: float) -> Floats:
    """specsim.extrapolate for a user who has the rates only."""
    return chosen(case._replace(counts=None), slope)


def no_trend(case: Case, slope: float) -> Floats:
    """The chosen filter with the pooled slope alone."""
    return along(case, replace(FALLING, slope=slope, spread=0.0))


def chosen(case: Case, slope: float) -> Floats:
    """specsim.extrapolate with falling rates, at a slope of our own."""
    return along(case, replace(FALLING, slope=slope))


def along(case: Case, trend: Trend) -> Floats:
    curve = subject.continued(case.rates, case.k, case.counts, trend).survival
    return curve[KNOWN:] / curve[KNOWN - 1 : -1]


MODELS: dict[str, Model] = {
    "i.i.d., alpha read at K = 1": iid_from_first,
    "hold the third rate": hold_third,
    "hold the mean rate": hold_mean,
    "beta mixture over requests": beta_mixture,
    "own trend, unshrunk": own_trend,
    "third rate, pooled ratio": third_with_ratio,
    "third rate, pooled log-odds slope": third_with_slope,
    "mean rate, pooled log-odds slope": mean_with_slope,
    "filtered rate, pooled log-odds slope": no_trend,
    "filtered rate, slope shrunk to pooled*": chosen,
    "the same*, counts withheld": counts_withheld,
}


def _rates(log_odds: npt.ArrayLike) -> Floats:
    return np.asarray(expit(log_odds), dtype=np.float64)


def _log_odds(case: Case) -> Floats:
    conditional = np.array(case.rates) / np.array([1.0, *case.rates[:-1]])
    return np.asarray(logit(np.clip(conditional, 0.005, 0.995)))


def error(model: Model, case: Case, slope: float) -> float:
    if model is iid_from_first:
        return float((case.rates[0] ** np.arange(case.k + 1)).sum() / case.length - 1)
    tail = case.rates[-1] * np.cumprod(model(case, slope))
    return float((1 + sum(case.rates) + tail.sum()) / case.length - 1)


# --- the pooled slope, from lengths -------------------------------------------------------------


def slope_error(chain: Lengths, slope: float) -> float:
    """Relative error at K = 7 of the chain whose level is solved from its length at K = 3."""

    def length(level: float, k: int) -> float:
        return 1 + float(np.cumprod(expit(level + slope * np.arange(k))).sum())

    level = brentq(lambda level: length(level, KNOWN) - chain.near, -20, 20)
    return length(level, FAR) / chain.far - 1


def own_slope(chain: Lengths) -> float:
    """The slope that reproduces the length at K = 7 of this chain alone."""
    return float(brentq(lambda slope: slope_error(chain, slope), -1.5, 1.5))


def by_group(items: Sequence[Case | Lengths], errors: Sequence[float]) -> Floats:
    """Mean absolute error of each group."""
    groups: dict[str, list[float]] = defaultdict(list)
    for item, value in zip(items, errors, strict=True):
        groups[item.group].append(abs(value))
    return np.array([np.mean(values) for values in groups.values()])


def fit_slope(chains: Sequence[Lengths]) -> float:
    """The slope with the least mean absolute error, groups weighing the same."""
    return float(
        min(SLOPES, key=lambda d: by_group(chains, [slope_error(c, d) for c in chains]).mean())
    )


def held_out_slopes(chains: Sequence[Lengths], groups: set[str]) -> dict[str, float]:
    return {g: fit_slope([c for c in chains if c.group != g]) for g in sorted(groups)}


SENSITIVITY = {
    "slope": (0.0, -0.05, -0.1, -0.14, -0.18, -0.22),
    "spread": (0.0, 0.03, 0.06, 0.1, 0.15, 0.25),
    "walk": (0.0, 0.05, 0.1, 0.2, 0.4),
}
WEIGHTS = (50.0, 100.0, 200.0, 400.0, 1000.0, 3000.0)

# --- the report ---------------------------------------------------------------------------------


def report_slope(chains: Sequence[Lengths], slopes: dict[str, float]) -> None:
    families = len({chain.group for chain in chains})
    print(f"{len(chains)} chains of {families} families with lengths at K = {KNOWN} and {FAR}")
    print(f"  pooled slope {fit_slope(chains):.2f}", end="; ")
    print(f"with one family left out {min(slopes.values()):.2f} to {max(slopes.values()):.2f}")
    own = [own_slope(chain) for chain in chains if chain.near > 2.2]
    low, median, high = np.quantile(own, [0.25, 0.5, 0.75])
    print(
        f"  slope of single chains (length at K = 3 over 2.2, {len(own)} of them): median "
        f"{median:.2f}, spread (interquartile / 1.35) {(high - low) / 1.35:.2f}"
    )
    print("  error at K = 7 from the length at K = 3, slope fitted without the family:")
    for label, errors in {
        "i.i.d. (no slope)": [slope_error(chain, 0.0) for chain in chains],
        "pooled slope": [slope_error(chain, slopes[chain.group]) for chain in chains],
    }.items():
        print(
            f"    {label:20s} mean {np.mean(errors):+.1%}  mean absolute "
            f"{np.mean(np.abs(errors)):.1%}  by family {by_group(chains, errors).mean():.1%}"
        )


def report_models(cases: Sequence[Case], slopes: dict[str, float]) -> None:
    print(f"\nfrom three positions: {len(cases)} cases of {len({c.group for c in cases})} sources")
    print(f"  {'':38s}{'mean':>7s}{'mean abs':>10s}{'by source':>11s}{'worst':>8s}")
    for label, model in MODELS.items():
        errors = [error(model, case, slopes[case.group]) for case in cases]
        print(
            f"  {label:38s}{np.mean(errors):+7.1%}{np.mean(np.abs(errors)):10.1%}"
            f"{by_group(cases, errors).mean():11.1%}{max(errors, key=abs):+8.1%}"
        )
    print("  * specsim.extrapolate\n")
    for case in cases:
        print(
            f"  {case.name:34s} K = {case.k}  hold {error(hold_third, case, 0):+6.1%}"
            f"  extrapolate {error(chosen, case, slopes[case.group]):+6.1%}"
        )


def report_sensitivity(cases: Sequence[Case]) -> None:
    print("\nsensitivity of the by-source error (three positions; the last with counts withheld)")
    for name, values in SENSITIVITY.items():
        found = []
        for value in values:
            trend = replace(FALLING, **{name: value})
            found.append(of_sources(cases, lambda case, _, trend=trend: along(case, trend), value))
        print(f"  {name:15s} {'  '.join(found)}")
    kept, found = subject.UNKNOWN_COUNTS, []
    for value in WEIGHTS:
        subject.UNKNOWN_COUNTS = value
        found.append(of_sources(cases, counts_withheld, value))
    subject.UNKNOWN_COUNTS = kept
    print(f"  {'UNKNOWN_COUNTS':15s} {'  '.join(found)}")


def of_sources(cases: Sequence[Case], model: Model, value: float) -> str:
    errors = [error(model, case, FALLING.slope) for case in cases]
    return f"{value:g}: {by_group(cases, errors).mean():.1%}"


def report_coverage(cases: Sequence[Case]) -> None:
    print(f"\ncoverage of the {subject.INTERVAL_LEVEL:.0%} intervals (three positions)")
    lengths, rates = [], []
    for case in cases:
        found = subject.extrapolate(case.rates, case.k, case.counts, FALLING.name)
        lengths.append(1 + found.low.sum() <= case.length <= 1 + found.high.sum())
        for position, value in enumerate(case.curve[KNOWN:], start=KNOWN):
            rates.append(found.low[position] <= value <= found.high[position])
    print(f"  mean acceptance length {np.mean(lengths):.0%} of {len(lengths)}")
    print(f"  single S_i beyond the third {np.mean(rates):.0%} of {len(rates)}")


def main() -> None:
    cases, chains = read()
    groups = {case.group for case in cases} | {chain.group for chain in chains}
    slopes = held_out_slopes(chains, groups)
    report_slope(chains, slopes)
    report_models(cases, slopes)
    report_sensitivity(cases)
    report_coverage(cases)


if __name__ == "__main__":
    main()
