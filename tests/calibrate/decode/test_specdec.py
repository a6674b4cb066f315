"""SpecDec and SpecDec++ on block drafters: emitted text and counts."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable

import numpy as np
import pytest

from calibrate.decode.drafters import Drafter, MaskFiller, Neural
from calibrate.decode.drafters.base import Lookup
from calibrate.decode.drawing import Drawing, Rows
from calibrate.decode.engine import CachedModel
from calibrate.decode.plain import plain
from calibrate.decode.specdec import specdec
from calibrate.measure.trace import generator
from specsim.checks import InvalidArgumentError, UnsupportedError
from specsim.laws import TARGET
from specsim.rules import GreedyMatch, TopBeta
from specsim.schemes import SpecDec
from tests.support.executions import Model, Tokens
from tests.support.imitations import (
    CPU,
    ORDINARY,
    TextModel,
    assert_drawn_from,
    coins,
    greedy,
    peak,
    prompts,
    top,
)

MASK = 1
RULES = [GreedyMatch(), TopBeta(1, 0.0), TopBeta(3, 1.0), TopBeta(5, 3.0), TopBeta(64, 99.0)]


def accepts(rule: GreedyMatch | TopBeta, row: np.ndarray, token: int) -> bool:
    if isinstance(rule, GreedyMatch):
        return token == row.argmax()
    ranked = np.sort(row)[::-1]
    near = math.log(ranked[0]) - math.log(row[token]) <= rule.tau
    return bool(row[token] >= ranked[min(rule.beta, len(row)) - 1] and near)


def by_hand(
    target: Model,
    block: Callable[[Tokens, int], Tokens],
    prompt: Tokens,
    gamma: int,
    length: int,
    rule: GreedyMatch | TopBeta,
    bonus: bool,
    end: int | None,
) -> tuple[Tokens, list[int], list[int], list[int]]:
    """Tokens, accepted, drafted, target widths; every row from the whole text."""
    text, accepted, drafted, widths = prompt, [], [], []
    while len(text) < len(prompt) + length and (end is None or end not in text[len(prompt) :]):
        room = len(prompt) + length - len(text)
        count = min(gamma, room - 1 if bonus else room)
        draft = block(text, count) if count else ()
        kept = 0
        while kept < count and accepts(rule, target(text + draft[:kept]), draft[kept]):
            kept += 1
        text += draft[:kept]
        if kept < count or bonus or not count:
            text += (top(target(text)),)
        accepted.append(kept)
        drafted.append(count)
        widths.append(count + 1 if bonus or not count else count)
    tokens = text[len(prompt) :]
    return (
        tokens if end not in tokens else tokens[: tokens.index(end) + 1],
        accepted,
        drafted,
        widths,
    )


def masked(rows: Model) -> Callable[[Tokens, int], Tokens]:
    return lambda text, count: tuple(
        top(rows(text + (MASK,) * (mask + 1))) for mask in range(count)
    )


def stepwise(rows: Model) -> Callable[[Tokens, int], Tokens]:
    def block(text: Tokens, count: int) -> Tokens:
        draft: Tokens = ()
        for _ in range(count):
            draft += (top(rows(text + draft)),)
        return draft

    return block


@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize("bonus", [True, False])
@pytest.mark.parametrize("gamma", [0, 1, 4])
def test_text_and_counts_are_those_of_the_slow_loop(
    models: dict[str, CachedModel],
    rows: dict[str, Model],
    rule: GreedyMatch | TopBeta,
    bonus: bool,
    gamma: int,
) -> None:
    target = models["target"]
    drafters: list[tuple[Drafter, Callable[[Tokens, int], Tokens]]] = [
        (MaskFiller(models["stranger"], MASK), masked(rows["stranger"])),
        (Neural(models["draft"]), stepwise(rows["draft"])),
    ]
    for number, prompt in enumerate(prompts(2, seed=gamma)):
        for drafter, block in drafters:
            # Every other request ends at a token that the draft writes.
            end = block(tuple(prompt), 3)[2] if number % 2 else None
            result = specdec(
                target, drafter, greedy(prompt, 15, end), gamma, rule, bonus=bonus
            ).finish()
            expected = by_hand(rows["target"], block, tuple(prompt), gamma, 15, rule, bonus, end)
            assert tuple(result.tokens) == expected[0]
            assert (result.accepted, result.drafted) == expected[1:3]
            assert result.target.widths == Counter(expected[3])
            if isinstance(drafter, MaskFiller):
                assert result.draft.count == sum(drafted > 0 for drafted in result.drafted)
            if isinstance(rule, GreedyMatch):
                text = plain(target, greedy(prompt, 15, end)).finish()
                assert result.tokens == text.tokens


def test_a_mask_drafter_reads_what_is_new_and_the_masks(models: dict[str, CachedModel]) -> None:
    result = specdec(
        models["target"], MaskFiller(models["stranger"], MASK), greedy([5, 6], 30), 4, GreedyMatch()
    ).finish()
    emitted = [1, *(accepted + 1 for accepted in result.accepted)]
    widths = Counter(
        new + masks for new, masks in zip(emitted, result.drafted, strict=False) if masks
    )
    assert result.draft.widths == widths


def test_what_is_refused(models: dict[str, CachedModel]) -> None:
    target, drafter = models["target"], MaskFiller(models["stranger"], MASK)
    with pytest.raises(InvalidArgumentError, match="gamma"):
        specdec(target, drafter, greedy([7], 8), -1, GreedyMatch())
    with pytest.raises(UnsupportedError, match="temperature 0"):
        drafter.propose(2, Drawing(ORDINARY, generator(CPU, 0)))


class Coins(Lookup):
    """Proposes what ``agreeing`` says of each text, without a model."""

    name = "coins"

    def __init__(self, write: Callable[[Tokens], int]) -> None:
        super().__init__()
        self.write = write

    def propose(self, room: int, drawing: Drawing) -> Rows | None:
        with self.run(room):
            for _ in range(room):
                self.text.push_all([self.write(tuple(self.text.tokens()))])
        return None


@pytest.mark.parametrize(("alpha", "gamma", "bonus"), [(0.7, 5, True), (0.7, 5, False)])
def test_blocks_of_an_independent_drafter_follow_the_law(
    alpha: float, gamma: int, bonus: bool
) -> None:
    def target(text: Tokens) -> np.ndarray:
        return peak(16, int(coins(text).random() * 16), 0.9)

    def write(text: Tokens) -> int:
        token, agrees = coins(text).random(2)
        return int(int(token * 16) + (agrees >= alpha)) % 16

    model, length, seen = CachedModel(TextModel(target, 16)), 160, []
    for number in range(15):
        result = specdec(
            model, Coins(write), greedy([number, 1], length), gamma, GreedyMatch(), bonus=bonus
        ).finish()
        # So many blocks there are in any case, each with room for all of them.
        seen += [
            min(accepted + 1, gamma + bonus)
            for accepted in result.accepted[: length // (gamma + 1)]
        ]
    block = SpecDec(gamma, bonus=bonus).law(alpha)
    widths = {run.positions for run in block.runs if run.model == TARGET}
    assert widths == {gamma + bonus}
    assert widths == {result.target.widths.most_common(1)[0][0]}
    # False-alarm chance 1e-4 for each of 2 settings.  Seeded.
    assert_drawn_from(dict(enumerate(block.token_law().tolist())), seen, alarm=1e-4)
