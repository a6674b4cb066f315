"""The slow, obvious twins: one block of each scheme, token by token, on a coin that is passed in.

``play(scheme, coin)`` gives the emitted tokens and the runs of one block.  With a random coin it
is a simulation; ``histories`` tosses every possible sequence and gives the exact law.
"""

from __future__ import annotations

import random
from collections import Counter, defaultdict
from collections.abc import Callable, Sequence
from fractions import Fraction
from functools import singledispatch

from specsim.acceptance import Acceptance
from specsim.laws import TARGET, Run
from specsim.schemes.beam import BeamSearch
from specsim.schemes.bild import BigLittle, BigLittleJoint
from specsim.schemes.deferral import SequenceCascade, TokenCascade
from specsim.schemes.full_cascade import FullCascade
from specsim.schemes.horizontal import HorizontalCascade
from specsim.schemes.oracle import OracleGamma
from specsim.schemes.plain import PlainDecoding
from specsim.schemes.speculative import SpecDec, SpeculativeDecoding
from specsim.schemes.vertical import VerticalCascade, VerticalCascadeAtLeast

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


def histories(scheme: object) -> Exact:
    """Exact probability of every (tokens, runs) of one block, by tossing all sequences."""
    law: Exact = defaultdict(Fraction)
    waiting: list[list[bool]] = [[]]
    while waiting:
        coin = Script(waiting.pop())
        tokens, runs = play(scheme, coin)
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
def play(scheme: object, coin: Coin) -> Block:
    raise NotImplementedError(type(scheme))


@play.register
def _(scheme: PlainDecoding, coin: Coin) -> Block:
    return 1, Counter({Run(TARGET, 1): 1})


@play.register
def _(scheme: SpeculativeDecoding, coin: Coin) -> Block:
    runs: Runs = Counter()
    proposal = []
    for _ in range(scheme.gamma):
        proposal.append(scheme.drafter)
        if not scheme.one_run:
            runs[Run(scheme.drafter, 1)] += 1
    if scheme.one_run and proposal:
        runs[Run(scheme.drafter, scheme.gamma)] += 1
    rates = {scheme.drafter: scheme.acceptance}
    return read(proposal, rates, TARGET, coin, runs, scheme.bonus), runs


@play.register
def _(scheme: SpecDec, coin: Coin) -> Block:
    runs: Runs = Counter({Run(scheme.drafter, scheme.block_size): 1} if scheme.block_size else {})
    proposal = [scheme.drafter] * scheme.block_size
    rates = {scheme.drafter: scheme.acceptance}
    return read(proposal, rates, TARGET, coin, runs, scheme.bonus), runs


@play.register
def _(scheme: OracleGamma, coin: Coin) -> Block:
    rates = scheme.acceptance.conditional(scheme.gamma_max)
    drafted = 0
    while drafted < scheme.gamma_max and coin(float(rates[drafted])):
        drafted += 1
    return drafted + 1, Counter({Run(scheme.drafter, 1): drafted, Run(TARGET, drafted + 1): 1})


@play.register
def _(scheme: BigLittle, coin: Coin) -> Block:
    runs: Runs = Counter()
    drafted = 0
    while drafted < scheme.window:
        runs[Run(scheme.drafter, 1)] += 1
        if coin(scheme.fallback):
            break
        drafted += 1
    runs[Run(TARGET, drafted + 1)] += 1
    for position in range(drafted):
        if not coin(1 - scheme.rollback):
            if scheme.rescore:
                runs[Run(TARGET, 1)] += 1
            return position + 1, runs
    return drafted + 1, runs


@play.register
def _(scheme: BigLittleJoint, coin: Coin) -> Block:
    cells = [(j, m, weight) for j, row in enumerate(scheme.table) for m, weight in enumerate(row)]
    left = sum(weight for _, _, weight in cells)
    cell = iter(cells)
    j, m, weight = next(cell)
    while weight != left and not (weight and coin(weight / left)):  # one toss per cell
        left -= weight
        j, m, weight = next(cell)
    runs: Runs = Counter({Run(TARGET, j + 1): 1})
    window = len(scheme.table) - 1
    runs[Run(scheme.drafter, 1)] += j + 1 if j < window else window
    if scheme.rescore and m < j:
        runs[Run(TARGET, 1)] += 1
    return m + 1, runs


@play.register
def _(scheme: HorizontalCascade, coin: Coin) -> Block:
    runs: Runs = Counter()
    proposal = []
    for drafter, length in zip(scheme.drafters, scheme.lengths, strict=True):
        for _ in range(length):
            proposal.append(drafter)
            runs[Run(drafter, 1)] += 1
    rates = dict(zip(scheme.drafters, scheme.acceptances, strict=True))
    return read(proposal, rates, TARGET, coin, runs), runs


@play.register(VerticalCascade)
@play.register(VerticalCascadeAtLeast)
def _(scheme: VerticalCascade | VerticalCascadeAtLeast, coin: Coin) -> Block:
    runs: Runs = Counter()
    rates = dict(zip(scheme.drafters, scheme.acceptances, strict=True))

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
            if isinstance(scheme, VerticalCascade)
            else written < scheme.at_least[level]
        ):
            written += read(proposal(level + 1), rates, drafter, coin, runs)
            steps += 1
        return [drafter] * written

    return read(proposal(0), rates, TARGET, coin, runs), runs


@play.register
def _(scheme: FullCascade, coin: Coin) -> Block:
    runs: Runs = Counter()

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
        rates = dict(zip(below, scheme.acceptances[row], strict=True))
        return read(proposal, rates, scheme.drafters[row - 1] if row else TARGET, coin, runs)

    return step(0), runs


@play.register
def _(scheme: TokenCascade, coin: Coin) -> Block:
    runs: Runs = Counter()
    unread = 1  # the token that the target itself wrote last
    while unread - 1 < scheme.cap:
        runs[Run(scheme.drafter, 1)] += 1
        if coin(scheme.deferral):
            break
        unread += 1
    runs[Run(TARGET, unread)] += 1
    return unread, runs


@play.register
def _(scheme: SequenceCascade, coin: Coin) -> Block:
    runs: Runs = Counter({Run(scheme.drafter, 1): scheme.length})
    if coin(scheme.deferral):
        runs[Run(TARGET, 1)] += scheme.length
    return scheme.length, runs


@play.register
def _(scheme: BeamSearch, coin: Coin) -> Block:
    rates = scheme.acceptance.conditional(scheme.gamma)
    stood = 0
    while stood < scheme.gamma and coin(float(rates[stood])):
        stood += 1
    runs = Counter(
        {
            Run(scheme.drafter, scheme.draft_beam): scheme.gamma,
            Run(TARGET, scheme.beam + scheme.draft_beam * scheme.gamma): 1,
        }
    )
    return stood + 1, runs
