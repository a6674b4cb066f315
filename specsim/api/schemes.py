"""Figures of any decoding scheme from what is known of it: evaluated, searched over, drawn."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, fields
from itertools import product
from math import prod
from typing import Any, ClassVar

import numpy as np

from specsim.api.result import Result, Row
from specsim.checks import InvalidArgumentError
from specsim.cost import Cost, LinearVerify, VerifyCost
from specsim.laws import BlockLaw
from specsim.predict import monte_carlo, renewal
from specsim.schemes import SCHEMES, Acceptances, Known, Scheme, scheme_name

# Candidates of a search over a scheme's fields; a few milliseconds each at worst.
MOST_CANDIDATES = 20_000


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
    known: Any
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
    drawn: monte_carlo.Simulation | monte_carlo.Requests

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
            estimate = getattr(drawn, figure)
            row[figure] = estimate.best
            row[f"{figure}_low"], row[f"{figure}_high"] = estimate.low, estimate.high
        return [{**row, "level": drawn.level}]


def evaluate_scheme(scheme: Scheme, known: Any, cost: Cost) -> SchemeEvaluation:
    """The long-run figures of a scheme.

    known : as ``Scheme.law`` takes it: a rate, a list of rates by position, an acceptance, or one
        of the dataclasses of specsim.schemes.known
    cost : prices of the runs of its models; ``scheme_cost`` makes one

    Raises UnsupportedError where the scheme has no law in the long run, or a model has no price.
    """
    law = scheme.stationary_law(known)
    return SchemeEvaluation(
        scheme=scheme,
        figures=renewal.stationary(law, cost, scheme.baseline()),
        runs=_runs(law),
        inputs=_inputs(scheme, known, cost),
    )


def optimize_scheme(
    kind: str | type[Scheme], candidates: Mapping[str, Any], known: Any, cost: Cost
) -> SchemeOptimum:
    """The fastest of all combinations of the candidates of a scheme's fields.

    kind : a name in ``SCHEMES``, or the class
    candidates : for each field one value, or a list or range of values to try
    known : as in ``evaluate_scheme``, or a list of such dataclasses to try

    Raises InvalidArgumentError for a search of more than ``MOST_CANDIDATES``.
    """
    if isinstance(kind, str):
        kind = named_scheme(kind)
    lists = {name: _to_try(values) for name, values in candidates.items()}
    several = isinstance(known, list) and all(isinstance(each, Known) for each in known)
    knowns = known if several else [known]
    size = prod(map(len, lists.values())) * len(knowns)
    if not 0 < size <= MOST_CANDIDATES:
        raise InvalidArgumentError(
            f"the search has {size:,} candidates, 1 to {MOST_CANDIDATES:,} are tried; "
            f"{'narrow it' if size else 'give every field a value'}"
        )
    best: tuple[SchemeEvaluation, Any] | None = None
    for scheme in _grid(kind, lists):
        for each in knowns:
            found = evaluate_scheme(scheme, each, cost)
            if best is None or found.speedup > best[0].speedup:
                best = found, each
    assert best is not None
    evaluation, best_known = best
    searched = {n: getattr(evaluation.scheme, n) for n, values in lists.items() if len(values) > 1}
    if several:
        searched |= {
            each.name: getattr(best_known, each.name)
            for each in fields(best_known)
            if len({getattr(tried, each.name) for tried in knowns}) > 1
        }
    return SchemeOptimum(
        best=evaluation,
        known=best_known,
        searched=searched,
        candidates=size,
        inputs={
            "scheme": scheme_name(kind),
            **lists,
            "known": [_known_fields(each) for each in knowns],
            **_cost_fields(cost),
        },
    )


def simulate(
    scheme: Scheme,
    alpha: Any = None,
    *,
    known: Any = None,
    c: float | None = None,
    costs: Mapping[str, float] | None = None,
    verify: VerifyCost | None = None,
    overhead: float = 0.0,
    blocks: int = 1_000_000,
    tokens: int | None = None,
    requests: int = 10_000,
    seed: int = 0,
    level: float = 0.95,
) -> SchemeSimulation:
    """Draw blocks of a scheme: speedup and tokens per call, each with its interval.

    alpha : acceptance of its drafters' tokens: a rate, a list of rates by position, an acceptance
    known : instead, for schemes whose law must know something else (specsim.schemes.known)
    c, costs : cost of a draft run in target runs, of every model, and of models by name
    verify : v(n) (specsim.cost); free by default, as in the papers
    overhead : host time of a block, in target runs
    blocks : of one long run; or, with ``tokens``, so many ``requests`` of exactly so many tokens
    level : of the intervals
    """
    given = alpha if known is None else known
    if known is not None and alpha is not None:
        raise InvalidArgumentError("alpha and known exclude each other")
    cost = scheme_cost(scheme, c, costs, verify, overhead)
    source, plain = scheme.source(given), scheme.baseline()
    random = np.random.default_rng(seed)
    drawn: monte_carlo.Simulation | monte_carlo.Requests
    asked: dict[str, Any] = {"seed": seed, "level": level}
    if tokens is None:
        asked["blocks"] = blocks
        drawn = monte_carlo.simulate(source, cost, random, blocks, level, plain)
    else:
        asked |= {"tokens": tokens, "requests": requests}
        drawn = monte_carlo.simulate_requests(source, cost, random, tokens, requests, level, plain)
    return SchemeSimulation(
        scheme=scheme, drawn=drawn, inputs={**_inputs(scheme, given, cost), **asked}
    )


def scheme_cost(
    scheme: Scheme,
    c: float | None = None,
    costs: Mapping[str, float] | None = None,
    verify: VerifyCost | None = None,
    overhead: float = 0.0,
) -> Cost:
    """The cost of the runs of a scheme's models, in target runs.

    c : of every model that ``costs`` does not name; may be left out where it names all
    costs : of models by name

    Raises InvalidArgumentError for a name that the scheme does not run, or a model without a cost.
    """
    named, models = dict(costs or {}), scheme.models
    unknown = [name for name in named if name not in models]
    if unknown:
        known = ", ".join(models) or "none"
        raise InvalidArgumentError(f"costs name {unknown[0]!r}, the scheme's drafters are: {known}")
    missing = [name for name in models if name not in named]
    if missing and c is None:
        raise InvalidArgumentError(
            f"c is missing: the cost of a run of {', '.join(missing)}, in target runs"
        )
    drafts = {**dict.fromkeys(missing, c or 0.0), **named}
    return Cost(drafts, LinearVerify() if verify is None else verify, overhead)


def named_scheme(name: str) -> type[Scheme]:
    """The class of a scheme's name; raises InvalidArgumentError where there is none."""
    if name not in SCHEMES:
        raise InvalidArgumentError(f"no scheme is named {name!r} (known: {', '.join(SCHEMES)})")
    return SCHEMES[name]


def _to_try(values: Any) -> Sequence[Any]:
    return values if isinstance(values, (list, range)) else [values]


def _grid(kind: type[Scheme], lists: Mapping[str, Sequence[Any]]) -> Iterator[Scheme]:
    for combination in product(*lists.values()):
        yield kind(**dict(zip(lists, combination, strict=True)))


def _runs(law: BlockLaw) -> dict[str, float]:
    return {model: law.calls(model) for model in dict.fromkeys(run.model for run in law.runs)}


def _inputs(scheme: Scheme, known: Any, cost: Cost) -> dict[str, Any]:
    """What was asked, as plain values."""
    own = {each.name: getattr(scheme, each.name) for each in fields(scheme)}  # type: ignore[arg-type]
    return {
        "scheme": scheme_name(scheme),
        **own,
        "known": _known_fields(known),
        **_cost_fields(cost),
    }


def _known_fields(known: Any) -> dict[str, Any]:
    if known is None:
        return {}
    stated: Any = known if isinstance(known, Known) else Acceptances(known)
    return {each.name: getattr(stated, each.name) for each in fields(stated)}


def _cost_fields(cost: Cost) -> dict[str, Any]:
    return {"costs": cost.drafts, "verify": cost.verify, "overhead": cost.overhead}
