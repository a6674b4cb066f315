"""Token-level cascades emit and count what the execution of Algorithm 2 does."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest

from calibrate.decode.engine import CachedModel, Decoded, DecodeRequest
from calibrate.decode.token_cascade import token_cascade
from calibrate.measure.trace import generator
from calibrate.models.sampling import Sampling
from specsim.laws import TARGET
from specsim.rules import Chow, ChowLog, DraftDeferralRule
from specsim.schemes import TokenCascade
from tests.support.executions import Choose, Execution, Model, Tokens, law
from tests.support.executions import token_cascade as execute
from tests.support.imitations import (
    CPU,
    ORDINARY,
    TextModel,
    assert_drawn_from,
    coins,
    drawn_from,
    greedy,
    lawless,
    peak,
    prompts,
    top,
    twin,
)

RULES = [
    Chow(0.6, decide_on="unscaled"),
    Chow(1.0, decide_on="unscaled"),
    Chow(0.0, decide_on="unscaled"),
    ChowLog(1.5, decide_on="unscaled"),
]


def assert_same(result: Decoded, expected: Execution) -> None:
    assert tuple(result.tokens) == expected.tokens
    assert result.draft.count == expected.draft_runs
    assert result.target.widths == Counter(expected.target_reads)


@pytest.mark.parametrize("draft", ["draft", "stranger", "target"])
@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize("cap", [1, 3, 10])
def test_greedy_is_the_execution(
    models: dict[str, CachedModel],
    rows: dict[str, Model],
    draft: str,
    rule: DraftDeferralRule,
    cap: int,
) -> None:
    large = models["target"]
    small = twin(large) if draft == "target" else models[draft]
    for prompt in prompts(2):
        result = token_cascade(
            large, small, greedy(prompt, 20), TokenCascade(cap, rule=rule)
        ).finish()
        expected = execute(
            rule_of_rows(rule), rows["target"], rows[draft], tuple(prompt), 20, top, cap
        )
        assert_same(result, expected)
        assert result.accepted == result.drafted
        assert sum(result.drafted) + result.calls == 20


def rule_of_rows(rule: DraftDeferralRule) -> DraftDeferralRule:
    """The rule for rows that are unscaled already."""
    return type(rule)(rule.threshold)


def test_a_sure_small_model_is_called_off_at_the_cap_only(models: dict[str, CachedModel]) -> None:
    """Chow with t = 1 never defers: 10 tokens, the target's, 10 tokens, the target's, 3 tokens."""
    result = token_cascade(
        models["target"], models["draft"], greedy([3], 25), TokenCascade(rule=Chow(1.0))
    ).finish()
    assert result.drafted == [10, 10, 3]
    assert result.target.widths == Counter({11: 2})
    assert result.draft.widths == Counter({1: 21, 2: 2})


@pytest.mark.parametrize("rule", [Chow(0.4), ChowLog(0.8)])
@pytest.mark.parametrize("sampling", [ORDINARY, Sampling(0.9, top_p=0.8)])
def test_sampled_sequences_follow_the_execution(
    rule: DraftDeferralRule, sampling: Sampling
) -> None:
    rows = [lawless(4, seed=seed) for seed in (5, 25)]
    large, small = (drawn_from(row, sampling) for row in rows)

    def execution(choose: Choose) -> tuple[Tokens, int, Tokens]:
        out = execute(rule, large, small, (1,), 3, choose, 2)
        return out.tokens, out.draft_runs, tuple(sorted(out.target_reads))

    exact = law(execution)
    assert len({(runs, reads) for _, runs, reads in exact}) > 2
    models = [CachedModel(TextModel(row, 4)) for row in rows]
    random, seen = generator(CPU, 1), []
    for _ in range(800):
        result = token_cascade(
            *models, DecodeRequest([1], 3, sampling, random), TokenCascade(2, rule=rule)
        ).finish()
        reads = tuple(sorted(result.target.widths.elements()))
        seen.append((tuple(result.tokens), result.draft.count, reads))
    # False-alarm chance 1e-4 for each of 4 settings.  Seeded.
    assert_drawn_from(exact, seen, alarm=1e-4)


@pytest.mark.parametrize(("deferral", "cap"), [(0.2, 10), (0.1, 3), (0.7, 10)])
def test_blocks_of_an_independent_model_follow_the_law(deferral: float, cap: int) -> None:
    """Text by text anew, the small model is unsure with this probability."""

    def small(text: Tokens) -> np.ndarray:
        token, unsure = coins(text).random(2)
        return peak(16, int(token * 16), 0.3 if unsure < deferral else 0.9)

    large, small_model = (CachedModel(TextModel(row, 16)) for row in (lawless(16, 1), small))
    rule = Chow(0.5, decide_on="unscaled")
    seen: list[int] = []
    length = 160
    for number in range(20):
        result = token_cascade(
            large, small_model, greedy([number, 1], length), TokenCascade(cap, rule=rule)
        ).finish()
        # So many blocks there are in any case, each with room for all that may be written.
        seen += result.drafted[: length // (cap + 1)]
    block = TokenCascade(cap).law(deferral)
    exact = {
        run.positions - 1: mean
        for run, mean in block.expected_runs().items()
        if run.model == TARGET
    }
    assert sum(exact.values()) == pytest.approx(1)
    # False-alarm chance 1e-4 for each of 3 settings.  Seeded.
    assert_drawn_from(exact, seen, alarm=1e-4)
