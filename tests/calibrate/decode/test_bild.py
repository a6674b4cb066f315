"""The Big Little Decoder does what Algorithm 1 says, and its counts follow the law."""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import dataclass

import numpy as np
import pytest
import torch

from calibrate.decode.bild import bild, unsure
from calibrate.decode.drafters import first_layers
from calibrate.decode.engine import CachedModel, Decoded, DecodeRequest
from calibrate.decode.plain import plain
from calibrate.measure.trace import generator
from calibrate.models.sampling import Sampling
from specsim.laws import TARGET
from specsim.schemes import BigLittle, DraftedAccepted, FallbackRollback
from tests.support.executions import Choose, Model, Tokens, law
from tests.support.imitations import (
    CPU,
    ORDINARY,
    TextModel,
    assert_drawn_from,
    big_little,
    coins,
    drawn_from,
    greedy,
    lawless,
    peak,
    prompts,
    top,
    twin,
)
from tests.support.refusals import refuses

NUCLEUS = Sampling(1.0, top_p=0.8)


@dataclass
class Outcome:
    tokens: Tokens
    accepted: list[int]
    drafted: list[int]
    small_runs: int
    large_widths: list[int]


def algorithm(
    large: Model,
    small: Model,
    prompt: Tokens,
    policy: BigLittle,
    length: int,
    choose: Choose,
    end: int | None = None,
    large_draws: Model | None = None,
    small_draws: Model | None = None,
) -> Outcome:
    """Algorithm 1 with the errata, the slow way: every row from the whole text.

    ``large_draws``, ``small_draws`` : what tokens are drawn from, if not what decides
    """
    large_draws, small_draws = large_draws or large, small_draws or small
    out = Outcome((), [], [], 0, [])
    while len(out.tokens) < length and (end is None or end not in out.tokens):
        y = prompt + out.tokens
        written: Tokens = ()
        while len(written) < policy.window and len(out.tokens) + len(written) < length - 1:
            out.small_runs += 1
            if small(y + written).max() < policy.fallback_threshold:
                break
            written += (choose(small_draws(y + written)),)
            if written[-1] == end:
                break
        out.large_widths.append(len(written) + 1)
        stands = len(written)
        for m, token in enumerate(written):
            row = large(y + written[:m])
            if -math.log(row[token]) > policy.rollback_threshold and row.argmax() != token:
                stands = m
                break
        if policy.rescore and stands < len(written):
            out.large_widths.append(1)
        kept = written[:stands]
        out.tokens += (*kept, choose(large_draws(y + kept)))
        out.accepted.append(stands)
        out.drafted.append(len(written))
    if end in out.tokens:
        out.tokens = out.tokens[: out.tokens.index(end) + 1]
    return out


def assert_same(result: Decoded, expected: Outcome) -> None:
    assert tuple(result.tokens) == expected.tokens
    assert result.accepted == expected.accepted
    assert result.drafted == expected.drafted
    assert result.draft.count == expected.small_runs
    assert result.target.widths == Counter(expected.large_widths)


POLICIES = [
    big_little(0.3, 2.0),
    big_little(0.1, 0.0),
    big_little(0.5, 3.0, window=3),
    big_little(0.3, 2.0, rescore=True),
    big_little(0.2, math.inf),
    big_little(0.0, 1.0, window=4),
    big_little(0.0, math.inf),
    big_little(1.0, 1.0),
    big_little(0.3, 2.0, window=0),
]


@pytest.mark.parametrize("draft", ["draft", "stranger", "target"])
@pytest.mark.parametrize("policy", POLICIES)
def test_greedy_is_the_algorithm(
    models: dict[str, CachedModel], rows: dict[str, Model], draft: str, policy: BigLittle
) -> None:
    large = models["target"]
    small = twin(large) if draft == "target" else models[draft]
    for number, prompt in enumerate(prompts(2)):
        # Every other request ends at a token that the small model is likely to write.
        end = None if number % 2 else top(rows[draft]((*prompt, 5)))
        result = bild(large, small, greedy(prompt, 20, end), policy).finish()
        expected = algorithm(rows["target"], rows[draft], tuple(prompt), policy, 20, top, end)
        assert_same(result, expected)
        blocks = zip(expected.accepted, expected.drafted, strict=True)
        assert result.rejections == sum(m < j for m, j in blocks)


def test_rollback_threshold_zero_is_greedy_decoding_of_the_large_model(
    models: dict[str, CachedModel],
) -> None:
    """Every distance is over it, so only the large model's top tokens stand.

    The small model may be the first layers of the large one.
    """
    large, policy = models["target"], big_little(0.2, 0.0)
    early = CachedModel(first_layers(large.model, 1), name="early exit")
    for prompt in prompts(3, seed=4):
        text = plain(large, greedy(prompt, 30)).finish().tokens
        for small in (models["draft"], models["stranger"], early):
            assert bild(large, small, greedy(prompt, 30), policy).finish().tokens == text


def test_a_confident_end_of_text_is_verified() -> None:
    """The small model writes 0 at its third token; the large one does not want it there."""
    end = 0

    def small(text: Tokens) -> np.ndarray:
        return peak(8, end if len(text) == 4 else 3, 0.9)

    def large(text: Tokens) -> np.ndarray:
        return peak(8, end if len(text) == 7 else 3, 0.9)

    models = [CachedModel(TextModel(row, 8)) for row in (large, small)]
    result = bild(*models, greedy([1, 2], 20, end), big_little(0.5, 1.0)).finish()
    # By hand: 3 3 0 is drafted and its 0 replaced by 3; then 3 ten times, the third of which the
    # large model replaces by its own 0.
    assert result.tokens == [3, 3, 3, 3, 3, 0]
    assert result.drafted == [3, 10]
    assert result.accepted == [2, 2]
    assert result.target.widths == Counter({4: 1, 11: 1})
    assert result.draft.widths == Counter({1: 13})
    assert (result.draft.count - sum(result.drafted), result.rejections) == (0, 2)


@pytest.mark.long
@pytest.mark.parametrize(
    ("policy", "sampling"),
    [
        (big_little(0.4, 1.2), ORDINARY),
        (big_little(0.4, 1.0, window=2, rescore=True), ORDINARY),
        (big_little(0.4, 1.2), NUCLEUS),
    ],
)
def test_sampled_sequences_follow_the_algorithm(policy: BigLittle, sampling: Sampling) -> None:
    large, small = rows = lawless(4, seed=5), lawless(4, seed=25)
    drawn = drawn_from(large, sampling), drawn_from(small, sampling)

    def execution(choose: Choose) -> tuple[Tokens, Tokens]:
        out = algorithm(*rows, (1,), policy, 3, choose, large_draws=drawn[0], small_draws=drawn[1])
        return out.tokens, (*out.accepted, *out.drafted, out.small_runs)

    exact = law(execution)
    assert len({counts for _, counts in exact}) > 3
    models = [CachedModel(TextModel(row, 4)) for row in rows]
    random, seen = generator(CPU, 1), []
    for _ in range(1000):
        result = bild(*models, DecodeRequest([1], 3, sampling, random), policy).finish()
        counts = (*result.accepted, *result.drafted, result.draft.count)
        seen.append((tuple(result.tokens), counts))
    # False-alarm chance 1e-4 for each of 3 settings.  Seeded.
    assert_drawn_from(exact, seen, alarm=1e-4)


VOCABULARY = 16


def independent(fallback: float, rollback: float) -> list[CachedModel]:
    """Models that fall back and roll back with these probabilities, at every text anew."""

    def small(text: Tokens) -> np.ndarray:
        token, unsure, _ = coins(text).random(3)
        return peak(VOCABULARY, int(token * VOCABULARY), 0.3 if unsure < fallback else 0.9)

    def large(text: Tokens) -> np.ndarray:
        token, _, other = coins(text).random(3)
        written = int(token * VOCABULARY)
        return peak(VOCABULARY, (written + (other < rollback)) % VOCABULARY, 0.9)

    return [CachedModel(TextModel(row, VOCABULARY)) for row in (large, small)]


@pytest.mark.long
@pytest.mark.parametrize(
    ("fallback", "rollback", "window"), [(0.2, 0.15, 10), (0.1, 0.4, 3), (0.6, 0.05, 5)]
)
def test_blocks_of_independent_models_follow_the_law(
    fallback: float, rollback: float, window: int
) -> None:
    large, small = independent(fallback, rollback)
    policy, length = big_little(0.5, 1.0, window=window), 160
    seen: list[tuple[int, int]] = []
    for number in range(20):
        request = bild(large, small, greedy([number, 1], length), policy).finish()
        # So many blocks there are in any case, each with room for a whole window.
        blocks = list(zip(request.accepted, request.drafted, strict=True))
        seen += [(m + 1, j + 1) for m, j in blocks[: length // (window + 1)]]
    block = policy.law(FallbackRollback(fallback, rollback))
    exact: Counter[tuple[int, int]] = Counter()
    for outcome, (mass, tokens) in enumerate(zip(block.probability, block.tokens, strict=True)):
        for run, count in block.runs.items():
            if run.model == TARGET:
                exact[int(tokens), run.positions] += mass * count[outcome]
    # Tokens and the target's width of every block.  False-alarm chance 1e-4 for each of 3
    # settings.  Seeded.
    assert sum(exact.values()) == pytest.approx(1)
    assert_drawn_from(exact, seen, alarm=1e-4)


@pytest.mark.parametrize("rescore", [False, True])
def test_runs_are_those_of_the_joint_law(models: dict[str, CachedModel], rescore: bool) -> None:
    """The law of the counted table has the counted runs, but for the last block of a request."""
    window = 4
    table = [[0.0] * (drafted + 1) for drafted in range(window + 1)]
    small_runs, widths, calls = 0, Counter[int](), 0
    for prompt in prompts(4, seed=2):
        policy = big_little(0.25, 1.5, window=window, rescore=rescore)
        decoding = bild(models["target"], models["draft"], greedy(prompt, 40), policy)
        decoding.advance(30)  # not so far that a block lacks room for a window
        result = decoding.state.result([])
        for m, j in zip(result.accepted, result.drafted, strict=True):
            table[j][m] += 1
        small_runs += result.draft.count
        widths += result.target.widths
        calls += len(result.accepted)
    block = policy.law(DraftedAccepted(tuple(map(tuple, table))))
    assert block.calls(policy.draft) * calls == pytest.approx(small_runs)
    expected = block.expected_runs()
    for width, count in widths.items():
        found = sum(
            mean for run, mean in expected.items() if (run.model, run.positions) == (TARGET, width)
        )
        assert found * calls == pytest.approx(count)


test_thresholds_are_checked = refuses(
    (lambda: big_little(1.5, 1.0), "fallback"),
    (lambda: big_little(0.5, -1.0), "rollback"),
    (lambda: big_little(0.5, 1.0, window=-1), "window"),
)


def test_the_fallback_is_strict() -> None:
    """A confidence equal to the threshold keeps the small model (errata)."""
    policy = big_little(0.5, 1.0)
    assert not unsure(policy, torch.tensor([[0.0, 0.0]]))
    assert unsure(policy, torch.tensor([[0.0, 0.0, 0.0]]))
