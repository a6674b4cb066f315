"""Set-ups in the order of their cost: analytically, and the first of them simulated."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from specsim.api.plan_result import Answer
from specsim.api.plan_setups import PlannedSetUp
from specsim.api.result import Row
from specsim.checks import InvalidArgumentError, number
from specsim.serving.analytic.replica import Replica
from specsim.serving.levels import ServiceLevel
from specsim.serving.planning.settling import Settled, settle, simulate
from specsim.serving.planning.sizing import replicas_needed, slack, sustained
from specsim.serving.routing import Routing
from specsim.serving.service import SetUp
from specsim.serving.workload import ServingWorkload

# Multiples of the rate at which the answer is looked for, too.
RATES = (0.25, 0.5, 1.0, 2.0, 4.0, 8.0)
# Set-ups of either kind that are simulated.
_FINALISTS = 2
# More replicas than this are not planned.
_MOST_REPLICAS = 10_000


def prices_of(
    price: float | Mapping[str, float] | None, setups: Sequence[PlannedSetUp]
) -> dict[str, float] | None:
    """Of an hour of every accelerator."""
    if price is None:
        return None
    names = dict.fromkeys(each.accelerator for each in setups)
    if not isinstance(price, Mapping):
        return dict.fromkeys(names, number("price", price, low=0.0))
    named = {
        name.casefold(): number(f"price {name}", each, low=0.0) for name, each in price.items()
    }
    found = {}
    for name in names:
        known = [each for key, each in named.items() if name.casefold().startswith(key)]
        if not known:
            raise InvalidArgumentError(f"price has none for {name}, got {', '.join(price)}")
        found[name] = known[0]
    return found


def analytic_answer(
    planned: PlannedSetUp,
    rate: float,
    levels: Sequence[ServiceLevel],
    prices: Mapping[str, float] | None,
) -> Answer:
    """Analytically."""
    replica = planned.replica
    each = sustained(replica, levels)
    count = replicas_needed(rate, each) if each > 0 else 0
    if count > _MOST_REPLICAS:
        count = 0
    figures = dict(replica.at(rate_of_each(rate, count, replica), levels).figures)
    for name in ("output_tokens_per_s", "requests_per_s", "goodput"):
        if name in figures and count:
            figures[name] *= count
    return _priced(Answer(planned, count, each, figures), prices)


def rate_of_each(rate: float, count: int, replica: Replica) -> float:
    """Requests per second of a replica; almost none where no number of them is enough."""
    return rate / count if count else 1e-6 * replica.capacity


def _priced(answer: Answer, prices: Mapping[str, float] | None) -> Answer:
    if prices is None:
        return answer
    return replace(answer, hourly=answer.cards * prices[answer.planned.accelerator])


def order(answer: Answer) -> tuple[bool, float, float]:
    """The cheapest first; of equals the one that could take most."""
    if not answer.replicas:
        return True, 0.0, -answer.per_card
    cost = float(answer.cards) if answer.hourly is None else answer.hourly
    return False, cost, -answer.per_card * (cost and answer.cards / cost)


def with_simulated(
    answers: Sequence[Answer],
    workload: ServingWorkload,
    levels: Sequence[ServiceLevel],
    routing: Routing,
    rate: float,
    seed: int,
    prices: Mapping[str, float] | None,
) -> list[Answer]:
    """The same with the finalists simulated, and their neighbours in replicas."""
    found: list[Answer] = []
    counts = {True: 0, False: 0}

    def simulated(setup: SetUp) -> Settled:
        return simulate(setup, workload, levels, seed)

    for each in answers:
        kind = each.planned.speculates
        if not each.replicas or counts[kind] >= _FINALISTS:
            found.append(each)
            continue
        counts[kind] += 1
        least = replicas_needed(rate, each.planned.replica.capacity * (1.0 - 1e-6))
        setup = replace(each.planned.setup, routing=routing)
        for one in settle(setup, each.replicas, least, simulated):
            known = replace(each, replicas=one.replicas, figures=one.best(), settled=one)
            found.append(_priced(known, prices))
    return sorted(found, key=lambda each: (not each.met(levels), *order(each)))


def cheapest(
    answers: Sequence[Answer],
    without: Answer | None,
    drafting: Answer | None,
    margin: float,
    levels: Sequence[ServiceLevel],
) -> Answer:
    """Drafts are taken where they are cheaper, or take more by the margin at the same price."""
    if without is None or drafting is None:
        known = drafting or without
        return known or min(answers, key=lambda each: slack(each.figures, levels))
    ours, plain = order(drafting), order(without)
    if ours[1] != plain[1]:
        return drafting if ours[1] < plain[1] else without
    return drafting if ours[2] <= plain[2] * (1.0 + margin) else without


def plain_beside(drafting: Answer, answers: Sequence[Answer]) -> Answer | None:
    """Plain decoding on the same cards."""
    same = [
        each
        for each in answers
        if not each.planned.speculates and each.planned.place == drafting.planned.place
    ]
    return same[0] if same else None


def _cost(count: int, answer: Answer) -> float:
    """Of so many replicas, in the unit of ``_order``."""
    each = 1.0 if answer.hourly is None else answer.hourly / max(answer.cards, 1)
    return count * answer.planned.cards * each


def by_rate(answers: Sequence[Answer], rate: float, margin: float) -> tuple[Row, ...]:
    """The cheapest of either kind at multiples of the rate, by what each sustains."""
    alone = {id(each.planned): each for each in answers if each.sustained > 0}.values()
    rows = []
    for factor in RATES:
        row: Row = {"rate": factor * rate}
        ranked = []
        for kind in (False, True):
            several = [each for each in alone if each.planned.speculates == kind]
            if not several:
                continue
            at = [(replicas_needed(factor * rate, each.sustained), each) for each in several]
            count, chosen = min(at, key=lambda pair: (_cost(pair[0], pair[1]), -pair[1].per_card))
            ranked.append((_cost(count, chosen), kind, count, chosen))
            name = "with_drafts" if kind else "without"
            row[name] = chosen.planned.name
            row[f"{name}_cards"] = count * chosen.planned.cards
        if not ranked:
            continue
        _, kind, count, chosen = min(ranked, key=lambda each: each[:2])
        if len(ranked) == 2 and ranked[0][0] == ranked[1][0]:
            gains = ranked[1][3].per_card >= (1.0 + margin) * ranked[0][3].per_card
            _, kind, count, chosen = ranked[1] if gains else ranked[0]
        row |= {"best": chosen.planned.name, "cards": count * chosen.planned.cards, "pays": kind}
        rows.append(row)
    return tuple(rows)
