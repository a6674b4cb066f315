"""Set-ups in the order of their cost: analytically, and the first of them simulated."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from math import isnan

from specsim.api.plan_result import Answer
from specsim.api.plan_setups import PlannedSetUp
from specsim.api.progress import Progress, quiet
from specsim.api.result import LeftOut, Row
from specsim.checks import InvalidArgumentError, SpecsimError, UnsupportedError, number
from specsim.hardware.accelerators import accelerator
from specsim.intervals import Interval
from specsim.serving.analytic.offered import Offered
from specsim.serving.analytic.replica import Replica
from specsim.serving.levels import ServiceLevel
from specsim.serving.planning.settling import Settled, settle, simulate, with_errors
from specsim.serving.planning.sizing import replicas_needed, slack, sustained
from specsim.serving.planning.span import lasts
from specsim.serving.requests import Requests
from specsim.serving.routing import Routing
from specsim.serving.simulation import check_fit
from specsim.serving.workload import ServingWorkload
from specsim.serving.workload_summary import WorkloadSummary

# What is found of an answer's set-up with several numbers of replicas; the one that counts first.
Settling = Callable[[Answer], Sequence[Settled]]
# Multiples of the rate at which the answer is looked for, too.
RATES = (0.25, 0.5, 1.0, 2.0, 4.0, 8.0)
# Set-ups of either kind that are simulated at the least.
_FINALISTS = 2
# A rate is above another by this share of it, and below it at this share.
_ABOVE, _BELOW = 1e-6, 1.0 - 1e-6
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
        if len(names) > 1:
            raise InvalidArgumentError(
                f"price must name each accelerator where several are compared, such as "
                f"{','.join(f'{name}=2.5' for name in names)}, got {price}"
            )
        return dict.fromkeys(names, number("price", price, low=0.0))
    named = {
        _card_name(name): number(f"price {name}", each, low=0.0) for name, each in price.items()
    }
    if len(named) < len(price):
        raise InvalidArgumentError(f"price names one accelerator twice, got {', '.join(price)}")
    if "" in named:
        raise InvalidArgumentError("price must name every accelerator, such as H100=2.5")
    found = {}
    for name in names:
        if not name:
            raise InvalidArgumentError("price must be one number where no accelerator is known")
        if name.casefold() not in named:
            raise InvalidArgumentError(
                f"price has none for {name}, got {', '.join(price)}: add {name}=PRICE"
            )
        found[name] = named[name.casefold()]
    return found


def _card_name(name: str) -> str:
    """As the table of accelerators has it, which knows some by other names, too; another one is of
    a card of one's own.
    """
    try:
        return accelerator(name).name.casefold() if name else ""
    except UnsupportedError:
        return name.casefold()


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
    if not count and replica.offered.shared:
        # Prompts that are in the cache may meet what prompts that are read whole do not.
        count = replicas_needed(rate, replica.capacity * _BELOW)
    if count > _MOST_REPLICAS:
        count = 0
    figures = dict(replica.at(rate_of_each(rate, count, replica), levels).figures)
    for name in ("output_tokens_per_s", "requests_per_s", "goodput"):
        if name in figures and count:
            figures[name] *= count
    price = None if prices is None else prices[planned.accelerator]
    return Answer(planned, count, each, figures, price=price)


def rate_of_each(rate: float, count: int, replica: Replica) -> float:
    """Requests per second of a replica; almost none where no number of them is enough."""
    return rate / count if count else 1e-6 * replica.capacity


def order(answer: Answer) -> tuple[int, float, float]:
    """The cheapest first; of equals the one that could take most.  Behind them those that meet the
    levels only if prompts are in the cache, which nobody has tried, and those that do not.
    """
    if not answer.replicas:
        return 2, 0.0, -answer.per_card
    untried = not answer.sustained and answer.settled is None
    return int(untried), answer.cost, -answer.per_card * (answer.cards / answer.cost)


def fitting(answers: Sequence[Answer], requests: Requests) -> tuple[list[Answer], list[LeftOut]]:
    """Those whose engines can serve every one of the requests, and why the others cannot."""
    found: list[Answer] = []
    left_out: list[LeftOut] = []
    for each in answers:
        setup = each.planned.setup
        try:
            check_fit(requests, setup.engine, setup.drafts)
        except SpecsimError as error:
            left_out.append(LeftOut(each.planned.name, str(error)))
        else:
            found.append(each)
    return found, left_out


def longest_stay(answers: Sequence[Answer]) -> float:
    """Mean seconds that a request is with the cheapest of either kind, the longer of the two."""
    able = [each for each in answers if each.sustained]
    kinds = {each.planned.speculates: each for each in reversed(able)}
    return max((each.figures["e2e_mean"] for each in kinds.values()), default=0.0)


def settling(
    workload: ServingWorkload,
    summary: WorkloadSummary,
    levels: Sequence[ServiceLevel],
    routing: Routing,
    rate: float,
    seed: int,
) -> Settling:
    """By simulation, with the same requests and the same luck for every set-up.

    summary : of the workload, which may be too short to show that fewer replicas are enough
    """

    def settled(answer: Answer) -> list[Settled]:
        replica = answer.planned.replica
        least = answer.replicas
        setup = replace(answer.planned.setup, routing=routing)
        if lasts(summary, answer.figures["e2e_mean"]):
            least = replicas_needed(rate, replica.capacity * _BELOW)
            if _reads_less(replica.offered):
                least = 1
        return settle(
            setup, answer.replicas, least, lambda one: simulate(one, workload, levels, seed)
        )

    return settled


def at_both_ends(
    answer: Answer,
    speed: Interval[float],
    workload: ServingWorkload,
    levels: Sequence[ServiceLevel],
    routing: Routing,
    seed: int,
) -> Settled:
    """What was simulated of an answer, with how far its figures move at the ends of ``speed``; as
    it is where there are too few requests for intervals.
    """
    assert answer.settled is not None
    if isnan(answer.settled.figures["ttft_mean"].low):
        return answer.settled
    setup = replace(answer.planned.setup, routing=routing, replicas=answer.settled.replicas)

    def simulated(speed: float) -> Settled:
        other = replace(setup, step_model=setup.step_model.at_speed(speed))
        return simulate(other, workload, levels, seed)

    return with_errors(answer.settled, speed, simulated)


def _reads_less(offered: Offered) -> bool:
    """Whether a replica may serve more than the analytic capacity, which takes every prompt to be
    read whole, and in a step of its own where nothing is decoded.
    """
    return offered.shared > 0 or offered.mean_output <= 1


def with_simulated(
    answers: Sequence[Answer],
    levels: Sequence[ServiceLevel],
    settled: Settling,
    progress: Progress = quiet,
) -> list[Answer]:
    """The same with the first of them simulated, and their neighbours in replicas.

    answers : the cheapest first

    Simulated are the first two with drafts and the first two without, and on in the order of the
    ranking until the first of either kind that meets the levels was itself simulated.
    """
    left, tried, done = list(answers), list[Answer](), 0
    while wanted := _to_simulate(left, tried, levels):
        progress("simulating", done, done + len(wanted))
        each = wanted[0]
        left.remove(each)
        for one in settled(each):
            tried.append(replace(each, replicas=one.replicas, figures=one.best(), settled=one))
        done += 1
    if done:
        progress("simulating", done, done)
    return sorted([*tried, *left], key=lambda each: (not each.met(levels), *order(each)))


def _to_simulate(
    left: Sequence[Answer], tried: Sequence[Answer], levels: Sequence[ServiceLevel]
) -> list[Answer]:
    """What is known to be missing, of either kind."""
    found = []
    for kind in (False, True):
        ranked = [each for each in left if each.planned.speculates == kind and each.replicas]
        known = [each for each in tried if each.planned.speculates == kind]
        missing = _FINALISTS - len({id(each.planned) for each in known})
        if missing > 0:
            found += ranked[:missing]
        elif ranked and ranked[0].sustained:
            first = min((order(each) for each in known if each.met(levels)), default=None)
            if first is None or order(ranked[0]) < first:
                found.append(ranked[0])
    return found


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
        tried = [each for each in answers if each.settled is not None]
        return known or min(tried or answers, key=lambda each: slack(each.figures, levels))
    ours, plain = order(drafting), order(without)
    if ours[1] != plain[1]:
        return drafting if ours[1] < plain[1] else without
    gains = ours[2] < 0 and ours[2] <= plain[2] * (1.0 + margin)
    return drafting if gains else without


def plain_beside(drafting: Answer, answers: Sequence[Answer]) -> Answer | None:
    """Plain decoding on the same cards."""
    same = [
        each
        for each in answers
        if not each.planned.speculates and each.planned.place == drafting.planned.place
    ]
    return same[0] if same else None


def _of_kind(answers: Sequence[Answer], speculates: bool) -> list[Answer]:
    """Every set-up of one kind that sustains some rate, once."""
    alone = {id(each.planned): each for each in answers if each.sustained > 0}.values()
    return [each for each in alone if each.planned.speculates == speculates]


def _at_rate(several: Sequence[Answer], rate: float) -> tuple[float, int, Answer]:
    """The cheapest of some set-ups by what each sustains, behind its cost and its replicas; of
    equals the one that could take most.
    """
    at = [(replicas_needed(rate, each.sustained), each) for each in several]
    count, chosen = min(
        at, key=lambda pair: (pair[1].cost_of(pair[0]), -pair[0] * pair[1].sustained)
    )
    return chosen.cost_of(count), count, chosen


def cards_by_rate(
    answers: Sequence[Answer], speculates: bool, low: float, high: float
) -> list[tuple[float, int, Answer]]:
    """Rates from which on another number of cards, or another set-up, is the cheapest of one kind,
    the cards, and that set-up (analytic); from the lowest rate to the highest, both with a row.
    """
    several = _of_kind(answers, speculates)
    if not several:
        return []
    rates = {low, high}
    for each in several:
        first, last = (int(rate // each.sustained) for rate in (low, high))
        # At n times what one sustains n replicas are enough, and just above it they are not.
        rates |= {(1.0 + _ABOVE) * n * each.sustained for n in range(first + 1, last + 1)}
    found: list[tuple[float, int, Answer]] = []
    for rate in sorted(each for each in rates if low <= each <= high):
        _, count, chosen = _at_rate(several, rate)
        cards = count * chosen.planned.cards
        if not found or rate == high or (cards, chosen) != found[-1][1:]:
            found.append((rate, cards, chosen))
    return found


def by_rate(answers: Sequence[Answer], rate: float, margin: float) -> tuple[Row, ...]:
    """The cheapest of either kind at multiples of the rate, by what each sustains."""
    kinds = [(kind, found) for kind in (False, True) if (found := _of_kind(answers, kind))]
    rows = []
    for factor in RATES:
        row: Row = {"rate": factor * rate}
        ranked = []
        for kind, several in kinds:
            cost, count, chosen = _at_rate(several, factor * rate)
            ranked.append((cost, kind, count, chosen))
            name = "with_drafts" if kind else "without"
            row[name] = chosen.planned.name
            row[f"{name}_cards"] = count * chosen.planned.cards
        if not ranked:
            continue
        _, kind, count, chosen = min(ranked, key=lambda each: each[:2])
        if len(ranked) == 2 and ranked[0][0] == ranked[1][0]:
            plain, drafting = (count * each.sustained for _, _, count, each in ranked)
            gains = drafting >= (1.0 + margin) * plain
            _, kind, count, chosen = ranked[1] if gains else ranked[0]
        row |= {"best": chosen.planned.name, "cards": count * chosen.planned.cards, "pays": kind}
        rows.append(row)
    return tuple(rows)
