"""The page of ``specsim plan``: cards, what a user gets of them, and latencies by rate."""

from __future__ import annotations

from typing import TYPE_CHECKING

from specsim.api.plan_ranking import RATES, cards_by_rate
from specsim.intervals import Interval
from specsim.report.page.chart import (
    BLUE,
    DASHED,
    INK,
    VERMILLION,
    Axis,
    Chart,
    Content,
    Level,
    Look,
    Row,
    with_interval,
)
from specsim.report.page.words import sentence
from specsim.report.points import frontier, latency_by_rate, speeds

if TYPE_CHECKING:
    from specsim.api.plan_result import Answer, CapacityPlan
    from specsim.serving.levels import ServiceLevel

WITH, WITHOUT, PLAN, NEAREST = "with drafts", "without drafts", "the plan", "the nearest set-up"
# What was simulated stands beside the line of the same colour.
_SIMULATED = ", simulated"
_LOOKS = {
    WITH: Look(BLUE),
    WITHOUT: Look(VERMILLION, DASHED, "triangle-up"),
    PLAN: Look(INK, (), "diamond"),
    NEAREST: Look(BLUE),
    WITH + _SIMULATED: Look(BLUE, (), "diamond"),
    WITHOUT + _SIMULATED: Look(VERMILLION, (), "diamond"),
    NEAREST + _SIMULATED: Look(BLUE, (), "diamond"),
}


def capacity_plan(found: CapacityPlan) -> Content:
    """The cheapest set-up, and what it is held against."""
    said = [sentence(line) for line in found.sentences()]
    levels = [each for each in found.levels if each.statistic]
    return Content(
        "How many cards does the workload need, with drafts and without?",
        said[0],
        said[1:],
        [_cards(found), _users(found), *(_latency(found, each) for each in levels)],
    )


def _cards(found: CapacityPlan) -> Chart:
    """By rate, of the cheapest set-up of either kind."""
    ends = min(RATES) * found.rate, max(RATES) * found.rate
    rows = [
        {"series": series, "rate": rate, "cards": cards, "name": answer.planned.name}
        for series, speculates in ((WITH, True), (WITHOUT, False))
        for rate, cards, answer in cards_by_rate(found.answers, speculates, *ends)
    ]
    # One replica is a card where nobody knows of any.
    known = any(each.planned.accelerator for each in found.answers)
    return Chart(
        "cards",
        f"{'Cards' if known else 'Replicas'} that the levels take, by rate",
        rows,
        Axis("rate", "requests per second", "log"),
        Axis("cards", "cards of all replicas" if known else "replicas"),
        mark="step",
        looks=_LOOKS,
        details={"name": "of one replica"},
        levels=[Level(found.rate, "the workload", "x")],
        note="Analytic, of the cheapest set-up of either kind.",
    )


def _users(found: CapacityPlan) -> Chart:
    """What a card gives against what a user gets; no set-up is better in both."""
    rows: list[Row] = []
    for series, speculates in ((WITH, True), (WITHOUT, False)):
        known = speeds(found, speculates)
        if known is not None:
            users, cards = (each.tolist() for each in frontier(*known))
            rows += [
                {"series": series, "user": user, "card": card}
                for user, card in zip(users, cards, strict=True)
            ]
    best = found.best
    if best.replicas:
        user, card = 1.0 / best.figures["tpot_mean"], found.tokens_per_s / best.cards
        rows.append({"series": PLAN, "user": user, "card": card})
    return Chart(
        "users",
        "What a card gives, against what a user gets",
        rows,
        Axis("user", "tokens per second of a user (1 / mean TPOT)"),
        Axis("card", "output tokens per second and card"),
        marks={PLAN: "point"},
        looks=_LOOKS,
        note="Analytic: the best of all set-ups at any rate.",
    )


def _latency(found: CapacityPlan, level: ServiceLevel) -> Chart:
    """Of the cheapest set-up of either kind, by the rate of all its replicas."""
    shown = [(WITH, found.with_drafts), (WITHOUT, found.without)]
    if found.with_drafts is None and found.without is None:
        shown = [(NEAREST, found.best)]
    rows: list[Row] = []
    for series, answer in shown:
        if answer is not None:
            rates, seconds = latency_by_rate(found, answer, level.name)
            rows += [
                {"series": series, "rate": rate, "ms": 1e3 * second, "setup": _name(answer)}
                for rate, second in zip(rates.tolist(), seconds.tolist(), strict=True)
            ]
            if answer.settled is not None:
                value = answer.settled.figures[level.name]
                rows.append(
                    {
                        "series": series + _SIMULATED,
                        "rate": found.rate,
                        "setup": _name(answer),
                        **_milliseconds(value),
                    }
                )
    interval = with_interval(rows, "low", "high")
    return Chart(
        level.name.replace("_", "-"),
        f"{level.name} by rate",
        rows,
        Axis("rate", "requests per second"),
        Axis("ms", f"{level.name} (ms)", "log"),
        marks={each + _SIMULATED: "point" for each, _ in shown},
        looks=_LOOKS,
        interval=interval,
        details={"setup": "set-up"},
        levels=[
            Level(1e3 * level.limit_s, f"level, {level.limit_s:g} s"),
            Level(found.rate, "the workload", "x"),
        ],
        note="Lines are analytic; bars are 95 % intervals of the simulation." if interval else "",
    )


def _milliseconds(value: Interval[float]) -> Row:
    return {"ms": 1e3 * value.best, "low": 1e3 * value.low, "high": 1e3 * value.high}


def _name(answer: Answer) -> str:
    replicas = max(answer.replicas, 1)
    return f"{replicas} replica{'' if replicas == 1 else 's'} of {answer.planned.name}"
