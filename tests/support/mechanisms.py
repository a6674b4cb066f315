"""The slow, obvious twins: one block of each scheme, token by token, on a coin that is passed in.

``play(scheme, known, coin)`` gives the emitted tokens and the runs of one block.  With a random
coin it is a simulation; ``histories`` tosses every possible sequence and gives the exact law.
"""

from __future__ import annotations

import random
from collections import Counter, defaultdict
from collections.abc import Callable, Sequence
from fractions import Fraction
from functools import singledispatch
from typing import Any

from specsim.acceptance import Acceptance
from specsim.laws import TARGET, Run
from specsim.schemes import (
    Acceptances,
    BeamSearch,
    BigLittle,
    Deferral,
    DraftedAccepted,
    FallbackRollback,
    FullCascade,
    HorizontalCascade,
    OracleGamma,
    PlainDecoding,
    Scheme,
    SequenceCascade,
    SpecDec,
    SpeculativeCascade,
    SpeculativeDecoding,
    TokenCascade,
    VerticalCascade,
)

Coin = Callable[[float], bool]
Runs = Counter[Run]
Block = tuple[int, Runs]
Exact = dict[tuple[int, frozenset[tuple[Run, int]]], Fraction]


def random_coin(seed: int) -> Coin:
    rng = random.Random(seed)
    return lambda chance: rng.random() < chance


class Script:
    """A coin that falls as written, then heads; remembers the tails it did not take."""

    def __init__(self, falls: list[bool]) -> None:
        self.falls, self.tossed, self.weight = falls, 0, Fraction(1)
        self.not_taken: list[list[bool]] = []

    def __call__(self, chance: float) -> bool:
        exact = Fraction(chance)
        if exact in (0, 1):
            return exact == 1
        if self.tossed == len(self.falls):
            self.not_taken.append([*self.falls, False])
            self.falls = [*self.falls, True]
        heads = self.falls[self.tossed]
        self.tossed += 1
        self.weight *= exact if heads else 1 - exact
        return heads


def histories(scheme: Scheme, known: Any) -> Exact:
    """Exact probability of every (tokens, runs) of one block, by tossing all sequences."""
    law: Exact = defaultdict(Fraction)
    waiting: list[list[bool]] = [[]]
    while waiting:
        coin = Script(waiting.pop())
        tokens, runs = play(scheme, known, coin)
        law[tokens, frozenset((run, n) for run, n in runs.items() if n)] += coin.weight
        waiting += coin.not_taken
    return law


def read(
    producers: Sequence[str],
    rates: dict[str, Acceptance],
    verifier: str,
    coin: Coin,
    runs: Runs,
    bonus: bool = True,
) -> int:
    """Tokens that ``verifier`` emits on reading a proposal with these producers."""
    runs[Run(verifier, len(producers) + 1 if bonus or not producers else len(producers))] += 1
    for position, producer in enumerate(producers):
        if not coin(float(rates[producer].conditional(position + 1)[position])):
            return position + 1
    return len(producers) + 1 if bonus or not producers else len(producers)


@singledispatch
def play(scheme: Scheme, known: Any, coin: Coin) -> Block:
    raise NotImplementedError(type(scheme))


@play.register
def _(scheme: PlainDecoding, known: Acceptances, coin: Coin) -> Block:
    return 1, Counter({Run(TARGET, 1): 1})


@play.register
def _(scheme: SpeculativeDecoding, known: Acceptances, coin: Coin) -> Block:
    runs: Runs = Counter()
    proposal = []
    for _ in range(scheme.gamma):
        proposal.append(scheme.draft)
        if not scheme.one_run:
            runs[Run(scheme.draft, 1)] += 1
    if scheme.one_run and proposal:
        runs[Run(scheme.draft, scheme.gamma)] += 1
    rates = {scheme.draft: known.alpha[0]}
    return read(proposal, rates, TARGET, coin, runs, scheme.bonus), runs


@play.register
def _(scheme: SpeculativeCascade, known: Acceptances, coin: Coin) -> Block:
    runs: Runs = Counter({Run(scheme.draft, 1): scheme.gamma})
    rates = {scheme.draft: known.alpha[0]}
    tokens = read([scheme.draft] * scheme.gamma, rates, TARGET, coin, runs)
    # The bonus token depends on what the draft thinks of its place.
    if scheme.gamma and tokens == scheme.gamma + 1:
        runs[Run(scheme.draft, 1)] += 1
    return tokens, runs


@play.register
def _(scheme: SpecDec, known: Acceptances, coin: Coin) -> Block:
    runs: Runs = Counter({Run(scheme.draft, scheme.block_size): 1} if scheme.block_size else {})
    proposal = [scheme.draft] * scheme.block_size
    rates = {scheme.draft: known.alpha[0]}
    return read(proposal, rates, TARGET, coin, runs, scheme.bonus), runs


@play.register
def _(scheme: OracleGamma, known: Acceptances, coin: Coin) -> Block:
    rates = known.alpha[0].conditional(scheme.gamma_max)
    drafted = 0
    while drafted < scheme.gamma_max and coin(float(rates[drafted])):
        drafted += 1
    return drafted + 1, Counter({Run(scheme.draft, 1): drafted, Run(TARGET, drafted + 1): 1})


@play.register
def _(scheme: BigLittle, known: FallbackRollback | DraftedAccepted, coin: Coin) -> Block:
    if isinstance(known, DraftedAccepted):
        return _counted(scheme, known, coin)
    runs: Runs = Counter()
    drafted = 0
    while drafted < scheme.window:
        runs[Run(scheme.draft, 1)] += 1
        if coin(known.fallback):
            break
        drafted += 1
    runs[Run(TARGET, drafted + 1)] += 1
    for position in range(drafted):
        if not coin(1 - known.rollback):
            if scheme.rescore:
                runs[Run(TARGET, 1)] += 1
            return position + 1, runs
    return drafted + 1, runs


def _counted(scheme: BigLittle, known: DraftedAccepted, coin: Coin) -> Block:
    cells = [(j, m, weight) for j, row in enumerate(known.table) for m, weight in enumerate(row)]
    left = sum(weight for _, _, weight in cells)
    cell = iter(cells)
    j, m, weight = next(cell)
    while weight != left and not (weight and coin(weight / left)):  # one toss per cell
        left -= weight
        j, m, weight = next(cell)
    runs: Runs = Counter({Run(TARGET, j + 1): 1})
    window = len(known.table) - 1
    runs[Run(scheme.draft, 1)] += j + 1 if j < window else window
    if scheme.rescore and m < j:
        runs[Run(TARGET, 1)] += 1
    return m + 1, runs


@play.register
def _(scheme: HorizontalCascade, known: Acceptances, coin: Coin) -> Block:
    runs: Runs = Counter()
    proposal = []
    for drafter, length in zip(scheme.drafters, scheme.lengths, strict=True):
        for _ in range(length):
            proposal.append(drafter)
            runs[Run(drafter, 1)] += 1
    rates = dict(zip(scheme.drafters, known.alpha, strict=True))
    return read(proposal, rates, TARGET, coin, runs), runs


@play.register
def _(scheme: VerticalCascade, known: Acceptances, coin: Coin) -> Block:
    runs: Runs = Counter()
    rates = dict(zip(scheme.drafters, known.alpha, strict=True))

    def proposal(level: int) -> list[str]:
        drafter = scheme.drafters[level]
        if level == len(scheme.drafters) - 1:
            if not scheme.one_run:
                runs[Run(drafter, 1)] += scheme.gamma
            elif scheme.gamma:
                runs[Run(drafter, scheme.gamma)] += 1
            return [drafter] * scheme.gamma
        written = steps = 0
        while (
            steps < scheme.steps[level]
            if scheme.steps is not None
            else written < scheme.at_least[level]
        ):
            written += read(proposal(level + 1), rates, drafter, coin, runs)
            steps += 1
        return [drafter] * written

    return read(proposal(0), rates, TARGET, coin, runs), runs


@play.register
def _(scheme: FullCascade, known: Acceptances, coin: Coin) -> Block:
    runs: Runs = Counter()
    given, size = iter(known.alpha), len(scheme.drafters)
    table = [[next(given) for _ in range(size - row)] for row in range(size)]

    def step(row: int) -> int:
        """Tokens of one step of the reviewer of ``row``: the target, then the drafters."""
        below = scheme.drafters[row:]
        proposal: list[str] = []
        for i, drafter in enumerate(below):
            length = scheme.lengths[row][i]
            if drafter == scheme.drafters[-1]:
                if length:
                    runs[Run(drafter, length)] += 1
                proposal += [drafter] * length
                continue
            written = 0
            while written < length:
                written += step(row + i + 1)
            proposal += [drafter] * written
        rates = dict(zip(below, table[row], strict=True))
        return read(proposal, rates, scheme.drafters[row - 1] if row else TARGET, coin, runs)

    return step(0), runs


@play.register
def _(scheme: TokenCascade, known: Deferral, coin: Coin) -> Block:
    runs: Runs = Counter()
    unread = 1  # the token that the target itself wrote last
    while unread - 1 < scheme.cap:
        runs[Run(scheme.draft, 1)] += 1
        if coin(known.deferral):
            break
        unread += 1
    runs[Run(TARGET, unread)] += 1
    return unread, runs


@play.register
def _(scheme: SequenceCascade, known: Deferral, coin: Coin) -> Block:
    runs: Runs = Counter({Run(scheme.draft, 1): scheme.length})
    if coin(known.deferral):
        runs[Run(TARGET, 1)] += scheme.length
    return scheme.length, runs


@play.register
def _(scheme: BeamSearch, known: Acceptances, coin: Coin) -> Block:
    rates = known.alpha[0].conditional(scheme.gamma)
    stood = 0
    while stood < scheme.gamma and coin(float(rates[stood])):
        stood += 1
    runs = Counter(
        {
            Run(scheme.draft, scheme.draft_beam): scheme.gamma,
            Run(TARGET, scheme.beams + scheme.draft_beam * scheme.gamma): 1,
        }
    )
    return stood + 1, runs
