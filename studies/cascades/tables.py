"""Quality against rejections, calls and latency on scored text: the measured half of ``cascades``.

Quality is that of ``specsim score``: on held-out text, the mean probability that the token that
comes out is the text's own (loss "sampled").  Rejections are exact; latency is the i.i.d. formula
at the mean rejection, with the profile's run times (``specsim.frontier.BlockPrices``).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from specsim.checks import Floats, Ints, SpecsimError
from specsim.formulas import tokens_per_call
from specsim.frontier import (
    OPTIMUM,
    BlockPrices,
    Choice,
    Comparison,
    Curve,
    LabelledPositions,
    optimum,
    plug_in_regret,
)
from specsim.frontier.choice import SweptRule
from specsim.frontier.positions import Loss, Outcome
from specsim.intervals import Bootstrap, over
from specsim.laws import Run
from specsim.optimizers.workload import Workload
from specsim.schemes.deferral import CAP, TokenCascade
from studies.common.decoded import LOSSLESS, TIMED, is_of
from studies.common.measured import Measured, temperature_of

# Block size of the paper's Figures 1 and 2.
GAMMA = 5
LOSS: Loss = "sampled"
# The paper's token rule is V3 (its section 6); V1 and V2 are in its appendix E.7.
TOKEN_RULES = ("TokenV1", "TokenV2", "TokenV3")
DEFERRAL_RULES = ("Diff", "Opt")
# Points of a curve in tables and figures; a curve may have a million.
_POINTS = 25
# A running sum and a mean of the same numbers differ by rounding.
_ROUNDING = 1e-9

_SCHEMES = ("speculative-cascade", "token-cascade", "sequence-cascade")
_EXECUTIONS = (
    *("temperature", "scheme", "setting"),
    *("predicted_tokens_per_call", "measured_tokens_per_call"),
    *TIMED,
    *("accuracy", "log_loss", "agreement"),
)


def executions(measured: Measured) -> list[dict[str, Any]]:
    """Rows of the decoders that run a rule, beside plain speculative decoding."""
    return [
        {name: row.get(name) for name in _EXECUTIONS}
        for row in measured.decoded
        if row["scheme"] in _SCHEMES or is_of(row, LOSSLESS)
    ]


def equal_quality(
    positions: LabelledPositions, prices: Mapping[int, BlockPrices]
) -> Iterator[dict[str, Any]]:
    """Per block size and rule, both halves of the paper's Table 2.

    Settings are chosen on the positions that they are judged on, as in the paper; the swept rules
    have thousands to choose from, the others a handful.
    """
    for gamma, price in prices.items():
        comparison = Comparison.of(positions, LOSS, "unscaled", price)
        wanted = float(comparison.quality(comparison.target_loss))
        matching, fastest = comparison.least_rejection(wanted), comparison.best_quality(1.0)
        least, allowed = comparison.optimum_rejection(wanted), price.allowed_rejection(1.0)
        yield {
            "gamma": gamma,
            "rule": OPTIMUM,
            "target_quality": wanted,
            "setting": None,
            "rejection": least,
            "speedup": None if least is None else float(price.speedup(least)[0]),
            "speedup_low": None,
            "speedup_high": None,
            "best_quality": None if allowed is None else comparison.optimum_quality(allowed),
        }
        rows = []
        for rule, choice in matching.items():
            best = fastest[rule]
            quality = best.quality.columns("best_quality") if best else {"best_quality": None}
            row = {"gamma": gamma, "rule": rule, "target_quality": wanted}
            rows.append({**row, **_chosen(choice), **quality})
        yield from sorted(rows, key=lambda row: -(row["speedup"] or 0.0))


def _chosen(choice: Choice | None) -> dict[str, Any]:
    if choice is None or choice.speedup is None:
        return {"setting": None, "rejection": None, "speedup": None}
    return {
        "setting": choice.setting,
        "rejection": choice.rejection.best,
        **choice.speedup.columns("speedup"),
    }


def token_against_deferral(comparison: Comparison) -> Iterator[dict[str, Any]]:
    """Per measured setting of a token rule, the rejections that Diff and OPT need for its quality.

    rejection_ratio : the token rule's rejections over the other's, with a 95 % interval by
        bootstrap over requests, both rules at the settings found; below 1 the token rule wins.
        None where the other rule never reaches that quality, or needs no rejection for it.
    Settings no better than the draft alone need no rejections at all and are left out.
    """
    others = {name: comparison.rules[name] for name in DEFERRAL_RULES if name in comparison.rules}
    curves = {name: rule.curve() for name, rule in others.items()}
    for name in TOKEN_RULES:
        if name not in comparison.rules:
            continue
        rule = comparison.rules[name]
        curve = rule.curve()
        for at in np.flatnonzero(curve.loss < comparison.draft_loss - _ROUNDING):
            for other, its in curves.items():
                enough = its.loss <= curve.loss[at] + _ROUNDING
                place = int(np.where(enough, its.rejection, np.inf).argmin())
                row: dict[str, Any] = {
                    "rule": name,
                    "setting": str(curve.setting[at]),
                    "quality": float(comparison.quality(curve.loss[at])),
                    "rejection": float(curve.rejection[at]),
                    "against": other,
                    "its_rejection": None,
                    "rejection_ratio": None,
                }
                if enough.any():
                    row["its_rejection"] = float(its.rejection[place])
                if enough.any() and its.rejection[place] > 0:
                    outcomes = rule.outcome(int(at)), others[other].outcome(place)
                    row |= _ratio(comparison.positions, *outcomes)
                yield row


def _ratio(positions: LabelledPositions, first: Outcome, second: Outcome) -> dict[str, float]:
    sums = positions.by_request(np.stack([first.rejection, second.rejection]))
    # A draw of requests that the other rule never rejects has no ratio, and does not count.
    bootstrap = Bootstrap(positions.requests)
    drawn = over(*bootstrap.sums(sums.T).T)
    found = bootstrap.around(sums[0].sum() / sums[1].sum(), drawn)
    return {
        "rejection_ratio": found.best,
        "ratio_low": found.low,
        "ratio_high": found.high,
    }


def regret(comparison: Comparison) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = []
    for rule, figures in comparison.summary((0.25, 0.5, 0.75)).items():
        row: dict[str, Any] = {"rule": rule, **figures.regret.columns("regret")}
        for share, quality in zip((25, 50, 75), figures.within, strict=True):
            row[f"quality_within_{share}%_of_the_targets_rejection"] = quality.best
        rows.append(row)
    return rows[:1] + sorted(rows[1:], key=lambda row: row["regret"])


def bounds(positions: LabelledPositions) -> Iterator[dict[str, Any]]:
    for loss in ("0-1", "log"):
        try:
            found = plug_in_regret(positions, loss)
        except SpecsimError:  # log loss at temperature 0, or columns that the file lacks
            continue
        yield {
            "loss": loss,
            "rule": found.rule,
            "worst_cost": found.cost,
            "regret": found.regret,
            "miscalibration": found.miscalibration,
            "bound": found.bound,
            "holds": None if found.bound is None else found.regret <= found.bound,
        }


def deferral(
    comparison: Comparison, workload: Workload, temperature: float
) -> Iterator[dict[str, Any]]:
    """Calls of the target per token: deferrals, one call a token, or blocks of GAMMA drafts."""

    def row(rule: str, execution: str, calls: float, loss: float) -> dict[str, Any]:
        quality = float(comparison.quality(loss))
        return {"rule": rule, "execution": execution, "calls_per_token": calls, "quality": quality}

    swept = {name: rule for name, rule in comparison.rules.items() if isinstance(rule, SweptRule)}
    ones = np.ones_like(comparison.positions.tv)
    draft, target = comparison.best.draft, comparison.best.target
    by_calls = SweptRule(optimum(ones, draft, target), ones, draft, target)
    for name, rule in {OPTIMUM: by_calls, **swept}.items():
        if name not in (OPTIMUM, "Chow", "Diff"):
            continue
        curve = rule.curve()
        deferred = rule.sweep.deferred / len(ones)
        for at in _points(deferred):
            yield row(name, "token by token", float(deferred[at]), float(curve.loss[at]))
            if name != OPTIMUM:
                calls = 1 / float(tokens_per_call(1 - curve.rejection[at], GAMMA))
                yield row(name, "speculative", calls, float(curve.loss[at]))
    lossless = 1 / float(tokens_per_call(1 - comparison.positions.tv.mean(), GAMMA))
    yield row("Lossless", "speculative", lossless, comparison.target_loss)
    same = temperature_of(workload) == temperature
    if same and workload.profile.gamma_max >= GAMMA:
        (replayed,) = workload.predict([GAMMA])
        calls = 1 / replayed.tokens_per_call
        yield row("Lossless", "speculative, replayed", calls, comparison.target_loss)


def _points(falling_along: Floats) -> Ints:
    """Settings of a curve that are about evenly spaced in what they cost."""
    wanted = np.linspace(0, falling_along[-1], _POINTS)
    places = np.minimum(np.searchsorted(falling_along, wanted), len(falling_along) - 1)
    return np.unique(places)


def frontier(
    comparison: Comparison, prices: Mapping[int, BlockPrices], workload: Workload
) -> Iterator[dict[str, Any]]:
    """Every rule along its settings: rejection, quality, latency over plain decoding by gamma.

    Lossless speculation has the interval of its quality (95 %, over requests), as a scale: all
    rules are judged on the same requests, so their differences vary much less.
    """
    lossless = comparison.at("Lossless", 0).quality

    def rows(rule: str, curve: Curve, at: Sequence[int] | Ints) -> Iterator[dict[str, Any]]:
        rejection = np.clip(curve.rejection, 0, 1)
        for place in at:
            yield {
                "rule": rule,
                "setting": str(curve.setting[place]),
                "rejection": float(rejection[place]),
                "quality": float(comparison.quality(curve.loss[place])),
                "quality_low": lossless.low if rule == "Lossless" else None,
                "quality_high": lossless.high if rule == "Lossless" else None,
                **{
                    f"latency_gamma_{gamma}": 1 / float(price.speedup(rejection[place])[0])
                    for gamma, price in prices.items()
                },
            }

    best = comparison.best.curve()
    yield from rows(OPTIMUM, best, _points(best.rejection))
    for name, rule in comparison.rules.items():
        curve = rule.curve()
        swept = isinstance(rule, SweptRule)
        yield from rows(name, curve, _points(curve.rejection) if swept else range(len(curve.loss)))
    yield from _token_cascade(comparison, workload, list(prices))


def _token_cascade(
    comparison: Comparison, workload: Workload, gammas: Sequence[int]
) -> Iterator[dict[str, Any]]:
    """Chow token by token (Algorithm 2): no rejections, so a latency that knows no gamma.

    At most CAP tokens between target runs, fewer where the profile timed fewer; deferrals taken
    as independent, as rejections are for the others.
    """
    chow = comparison.rules.get("Chow")
    if not isinstance(chow, SweptRule):
        return
    cost, context = workload.cost, workload.context
    cap = min(CAP, workload.profile.gamma_max)
    blocks = np.array([cost.block(length, context) for length in range(cap + 1)])
    deferred = chow.sweep.deferred / comparison.positions.positions
    curve = chow.curve()
    for place in _points(deferred):
        law = TokenCascade(cap, "draft").law(float(deferred[place]))
        drafted = law.tokens - 1
        # The run at which the draft defers proposes nothing.
        unused = law.runs[Run("draft", 1)] - drafted
        price = [cost.draft_run(int(each) + 1, context) for each in drafted]
        seconds = float(law.probability @ (blocks[drafted] + unused * price))
        latency = seconds / float(law.probability @ law.tokens) / blocks[0]
        yield {
            "rule": "TokenCascade",
            "setting": str(curve.setting[place]),
            "rejection": None,
            "quality": float(comparison.quality(curve.loss[place])),
            **{f"latency_gamma_{gamma}": latency for gamma in gammas},
        }
