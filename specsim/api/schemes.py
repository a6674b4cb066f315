"""Figures of any decoding scheme from what is known of it: evaluated, searched over, drawn."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, replace
from itertools import product
from math import prod
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt

from specsim.acceptance import Acceptance, AlphaLike, PerPositionAcceptance, notes_on
from specsim.api.result import LeftOut, Result, Row
from specsim.checks import InvalidArgumentError, SpecsimError, did_you_mean, number, refuse
from specsim.cost import Cost, Prices
from specsim.laws import TARGET
from specsim.predict import monte_carlo, renewal
from specsim.schemes import SCHEMES, Acceptances, Known, Scheme, scheme_name

# Candidates of a search over a scheme's fields; a few milliseconds each at worst.
MOST_CANDIDATES = 20_000
# What is drawn where nobody says how much.
_BLOCKS, _REQUESTS = 1_000_000, 10_000


@dataclass(frozen=True, kw_only=True)
class SchemeEvaluation(Result):
    """Long-run figures of one scheme.

    figures : tokens per call, cost of a block and speedup (specsim.predict.renewal)
    runs : mean runs of each model per block, the target's among them
    """

    schema: ClassVar[str] = "specsim.evaluate_scheme"

    scheme: Scheme
    figures: renewal.Stationary
    runs: Mapping[str, float]

    @property
    def speedup(self) -> float:
        return self.figures.speedup

    @property
    def tokens_per_call(self) -> float:
        return self.figures.tokens_per_call

    @property
    def cost_per_block(self) -> float:
        """In target runs."""
        return self.figures.cost_per_block

    def rows(self) -> list[Row]:
        return [
            {
                "scheme": scheme_name(self.scheme),
                "speedup": self.speedup,
                "tokens_per_call": self.tokens_per_call,
                "cost_per_block": self.cost_per_block,
                **{f"{model}_runs_per_block": count for model, count in self.runs.items()},
            }
        ]


@dataclass(frozen=True, kw_only=True)
class SchemeOptimum(Result):
    """The fastest of the candidates; of equals the first, which has the smaller numbers.

    best : its figures, ``best.scheme`` is the scheme itself
    known : under which it is the fastest, where several were tried
    searched : the fields that had several candidates, with the values found
    candidates : how many were tried
    """

    schema: ClassVar[str] = "specsim.optimize_scheme"

    best: SchemeEvaluation
    known: Known | None
    searched: Mapping[str, Any]
    candidates: int

    @property
    def scheme(self) -> Scheme:
        return self.best.scheme

    @property
    def speedup(self) -> float:
        return self.best.speedup

    def rows(self) -> list[Row]:
        row = self.best.rows()[0]
        return [{"scheme": row.pop("scheme"), **self.searched, **row}]

    def summary(self) -> Row:
        return {"candidates": self.candidates}


@dataclass(frozen=True, kw_only=True)
class SchemeSimulation(Result):
    """What was drawn: a long run, or requests of exactly so many tokens.

    drawn : speedup and tokens per call, each with its interval; requests have the calls and the
        cost of each, too
    """

    schema: ClassVar[str] = "specsim.simulate"

    scheme: Scheme
    drawn: monte_carlo.Simulation | monte_carlo.SimulatedRequests

    def rows(self) -> list[Row]:
        drawn = self.drawn
        row: Row = {"scheme": scheme_name(self.scheme)}
        if isinstance(drawn, monte_carlo.Simulation):
            row["blocks"] = drawn.blocks
        else:
            row.update(requests=drawn.cost.size, tokens=self.inputs["tokens"])
            for percent in (50, 95, 99):
                row[f"cost_p{percent}"] = float(np.quantile(drawn.cost, percent / 100))
        for figure in ("speedup", "tokens_per_call"):
            row |= getattr(drawn, figure).columns(figure)
        return [{**row, "level": drawn.level}]

    @property
    def essential(self) -> tuple[str, ...]:
        return (
            *("scheme", "speedup", "speedup_low", "speedup_high"),
            *("tokens_per_call", "tokens_per_call_low", "tokens_per_call_high"),
        )


def evaluate_scheme(
    scheme: Scheme,
    alpha: AlphaLike | None,
    prices: Prices,
    *,
    known: Known | None = None,
    costs: Mapping[str, float] | None = None,
) -> SchemeEvaluation:
    """The long-run figures of a scheme.

    alpha : acceptance of its drafters' tokens, the same for all: a rate, a list of rates by
        position, an acceptance
    prices : the cost of a draft run is that of every model that ``costs`` does not name
    known : instead of alpha, where that differs between drafters (``Acceptances``), or where the
        law must know something else (``FallbackRollback``, ``DraftedAccepted``, ``Deferral``)

    Raises UnsupportedError where the scheme has no law in the long run.
    """
    stated = _stated(type(scheme), alpha, known)
    found = _evaluate(scheme, stated, _cost(scheme, prices, costs))
    return replace(found, warnings=_notes(scheme, alpha, stated))


def optimize_scheme(
    kind: str | type[Scheme],
    candidates: Mapping[str, Any],
    alpha: AlphaLike | None,
    prices: Prices,
    *,
    known: Known | Sequence[Known | None] | None = None,
    costs: Mapping[str, float] | None = None,
) -> SchemeOptimum:
    """The fastest of all combinations of candidates for a scheme's fields.

    kind : a name in ``SCHEMES``, or the class
    candidates : for each field one value, or a list or range of values to try
    known : as in ``evaluate_scheme``, or a list to try

    The other arguments are those of ``evaluate_scheme``.  Raises InvalidArgumentError for a search
    of more than ``MOST_CANDIDATES``.
    """
    kind = named_scheme(kind) if isinstance(kind, str) else kind
    lists = {name: _to_try(values) for name, values in candidates.items()}
    several = known if isinstance(known, Sequence) else [known]
    knowns = [_stated(kind, alpha, each) for each in several]
    size = prod(map(len, lists.values())) * len(knowns)
    if not 0 < size <= MOST_CANDIDATES:
        raise InvalidArgumentError(
            f"the search has {size:,} candidates, 1 to {MOST_CANDIDATES:,} are tried; "
            f"{'narrow it' if size else 'give every field a value'}"
        )
    best: tuple[SchemeEvaluation, Known | None] | None = None
    schemes, left_out = _grid(kind, lists)
    for scheme in schemes:
        cost = _cost(scheme, prices, costs)
        for each in knowns:
            found = _evaluate(scheme, each, cost)
            if best is None or found.speedup > best[0].speedup:
                best = found, each
    assert best is not None
    evaluation, best_known = best
    searched = {n: getattr(evaluation.scheme, n) for n, values in lists.items() if len(values) > 1}
    return SchemeOptimum(
        best=evaluation,
        known=best_known,
        searched={**searched, **_differing(best_known, knowns)},
        candidates=len(schemes) * len(knowns),
        inputs={
            "scheme": scheme_name(kind),
            "candidates": lists,
            "known": knowns,
            "cost": evaluation.inputs["cost"],
        },
        warnings=_notes(evaluation.scheme, alpha, best_known),
        left_out=left_out,
    )


def simulate(
    scheme: Scheme,
    alpha: AlphaLike | None = None,
    *,
    known: Known | None = None,
    c: float | None = None,
    costs: Mapping[str, float] | None = None,
    verify_slope: float | None = None,
    verify_cost: npt.ArrayLike | None = None,
    overhead: float | None = None,
    blocks: int | None = None,
    tokens: int | None = None,
    requests: int | None = None,
    seed: int = 0,
    level: float = 0.95,
) -> SchemeSimulation:
    """Draw blocks of a scheme: speedup and tokens per call, each with its interval.

    blocks : of one long run, 1,000,000 by default
    tokens : in place of a long run, requests of exactly so many tokens
    requests : with ``tokens``, how many, 10,000 by default
    level : of the intervals

    What is known and what runs cost are as in ``optimize``.
    """
    if tokens is None:
        refuse({"requests": requests}, "needs tokens, how many each request has")
    else:
        refuse({"blocks": blocks}, "has no meaning with tokens: requests says how many are drawn")
    stated = _stated(type(scheme), alpha, known)
    prices = Prices(c, None, None, verify_slope, verify_cost, overhead)
    cost = _cost(scheme, prices, costs)
    source, plain = scheme.source(stated), scheme.baseline()
    random = np.random.default_rng(seed)
    drawn: monte_carlo.Simulation | monte_carlo.SimulatedRequests
    asked: dict[str, Any] = {"seed": seed, "level": level}
    if tokens is None:
        blocks = _BLOCKS if blocks is None else blocks
        asked["blocks"] = blocks
        drawn = monte_carlo.simulate(source, cost, random, blocks, level, plain)
    else:
        requests = _REQUESTS if requests is None else requests
        asked |= {"tokens": tokens, "requests": requests}
        drawn = monte_carlo.simulate_requests(source, cost, random, tokens, requests, level, plain)
    try:
        notes = _notes(scheme, alpha, stated)
    except SpecsimError:  # what is drawn may have no law in the long run
        notes = ()
    return SchemeSimulation(
        scheme=scheme,
        drawn=drawn,
        inputs={**_inputs(scheme, stated, cost), **asked},
        warnings=notes,
    )


def named_scheme(name: str) -> type[Scheme]:
    """The class of a scheme's name; raises InvalidArgumentError where there is none."""
    if name not in SCHEMES:
        raise InvalidArgumentError(
            f"no scheme is named {name!r}{did_you_mean(name, SCHEMES)} "
            f"(known: {', '.join(SCHEMES)})"
        )
    return SCHEMES[name]


def _evaluate(scheme: Scheme, known: Known | None, cost: Cost) -> SchemeEvaluation:
    law = scheme.stationary_law(known)
    models = dict.fromkeys(run.model for run in law.runs)
    return SchemeEvaluation(
        scheme=scheme,
        figures=renewal.stationary(law, cost, scheme.baseline()),
        runs={model: law.calls(model) for model in models},
        inputs=_inputs(scheme, known, cost),
    )


def _notes(scheme: Scheme, alpha: AlphaLike | None, known: Known | None) -> tuple[str, ...]:
    """How acceptance was read and how far it was measured, at the longest draft of the scheme.

    alpha : as it was given; None: with ``known``
    """
    if not isinstance(known, Acceptances):
        return ()
    runs = scheme.stationary_law(known).runs
    gamma = max((run.positions for run in runs if run.model == TARGET), default=1) - 1
    of_pairs = known.by_pair(scheme.pairs).values()
    said = [(_as_given(each) if alpha is None else alpha, each) for each in of_pairs]
    return tuple(dict.fromkeys(line for pair in said for line in notes_on(*pair, gamma)))


def _as_given(acceptance: Acceptance) -> AlphaLike:
    """Rates by position as the list that ``Acceptances`` may have made them of, which could have
    meant something else; others are themselves.
    """
    if isinstance(acceptance, PerPositionAcceptance):
        return list(acceptance.alphas)
    return acceptance


def _stated(kind: type[Scheme], alpha: AlphaLike | None, known: Known | None) -> Known | None:
    """What is known, of a kind that the scheme's law takes."""
    if alpha is not None and known is not None:
        raise InvalidArgumentError("alpha and known exclude each other")
    found = known if alpha is None else Acceptances.of(alpha)
    if kind.knows and not isinstance(found, kind.knows):
        wanted = " or ".join(each.__name__ for each in kind.knows)
        raise InvalidArgumentError(
            f"{'alpha' if Acceptances in kind.knows else 'known'} must say what the law of "
            f"{kind.__name__} takes, {wanted}, got {found!r}"
        )
    return found


def _cost(scheme: Scheme, prices: Prices, costs: Mapping[str, float] | None) -> Cost:
    """Prices of the models of a scheme, and of no others."""
    named, models = dict(costs or {}), scheme.models
    unknown = [name for name in named if name not in models]
    if unknown:
        known = ", ".join(models) or "none"
        raise InvalidArgumentError(f"costs name {unknown[0]!r}, the scheme's drafters are: {known}")
    missing = [name for name in models if name not in named]
    if missing and prices.c is None:
        raise InvalidArgumentError(
            f"c is missing: the cost of a run of {', '.join(missing)}, in target runs"
        )
    c = 0.0 if prices.c is None else number("c", prices.c, low=0.0)
    return prices.cost({**dict.fromkeys(missing, c), **named})


def _to_try(values: Any) -> Sequence[Any]:
    return values if isinstance(values, (list, range)) else [values]


def _grid(
    kind: type[Scheme], lists: Mapping[str, Sequence[Any]]
) -> tuple[list[Scheme], tuple[LeftOut, ...]]:
    """Of every combination that the scheme allows, and how many it refuses, with the first reason;
    where it allows none it says why itself.
    """
    found, refused = [], []
    for combination in product(*lists.values()):
        try:
            found.append(kind(**dict(zip(lists, combination, strict=True))))
        except InvalidArgumentError as error:
            refused.append(error)
    if not found:
        raise refused[0]
    if not refused:
        return found, ()
    what = f"{len(refused):,} of {len(found) + len(refused):,} combinations"
    return found, (LeftOut(what, str(refused[0])),)


def _differing(known: Any, knowns: Sequence[Any]) -> dict[str, Any]:
    """The fields of what is known in which the candidates differ."""
    if len(knowns) == 1:
        return {}
    named = {each.name: getattr(known, each.name) for each in fields(known)}
    return {
        name: value
        for name, value in named.items()
        if any(getattr(other, name, None) != value for other in knowns)
    }


def _inputs(scheme: Scheme, known: Known | None, cost: Cost) -> dict[str, Any]:
    return {
        "scheme": scheme_name(scheme),
        "description": scheme,
        "known": known,
        "cost": cost,
    }
