"""Settings: what is expected of a decoder is what it does."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from scipy.stats import t

from calibrate.decode.build import start
from calibrate.decode.drafters import PairCounts, first_layers
from calibrate.decode.engine import CachedModel, Decoded, DecodeRequest, Runs
from calibrate.decode.plain import plain
from calibrate.measure.emitted_text import write
from calibrate.measure.recorded_text import ReadableText
from calibrate.measure.trace import DECODING, LOSSY, TRACE, generator
from calibrate.models.eagle import EagleModel
from calibrate.models.pool import ModelPool
from calibrate.models.sampling import Sampling
from calibrate.validate.catalogue import drawn_with, settings
from calibrate.validate.findings import contradictions
from calibrate.validate.interleave import PLAIN, Interleaved
from calibrate.validate.predict import Predicted, Prediction, predict
from calibrate.validate.schemes import _compare, _row, key
from specsim.acceptance import ACCEPTANCE_LAWS, AcceptanceLaw
from specsim.checks import UnsupportedError
from specsim.intervals import Interval
from specsim.predict.replay.build import approximate_runs
from specsim.rules import Diff, Distributions, acceptance_given
from specsim.schemes import (
    AdaptiveHeuristic,
    BeamSearch,
    FullCascade,
    PlainDecoding,
    Scheme,
    SpecDec,
    SpeculativeCascade,
    SpeculativeDecoding,
    VerticalCascade,
    scheme_name,
)
from tests.support.heads import unlike
from tests.support.imitations import (
    CPU,
    GREEDY,
    ORDINARY,
    Remembered,
    TextModel,
    forgetful_pair,
    greedy,
    lawless,
    prompts,
)

LIMIT = 16
# The tiny models end texts now and then.
END = frozenset({0})
# Above every token that a draft can propose.
MASK = 63


def pool_of(
    target: Any, draft: Any, stranger: Any, early: Any, head: EagleModel | None = None
) -> ModelPool:
    """Every role played by one of these; a mask is an ordinary token."""
    pairs = np.random.default_rng(5).integers(2, 64, size=(500, 2))
    pairs = np.unique(pairs[np.lexsort((pairs[:, 1], pairs[:, 0]))], axis=0)
    counts = PairCounts(
        {
            "start": np.searchsorted(pairs[:, 0], np.arange(65)),
            "next": pairs[:, 1],
            "count": np.ones(len(pairs)),
        }
    )
    drafts = {
        "draft": draft,
        "middle": draft,
        "early": early,
        "masks": stranger,
        "aligned": stranger,
    }
    heads = {} if head is None else {"eagle": head}
    return ModelPool(target, drafts, 64, counts, MASK, heads=heads)


@pytest.fixture(scope="module")
def family(models: dict[str, CachedModel]) -> list[Any]:
    """Target, draft, stranger and the target's first layer."""
    found = [models[name].model for name in ("target", "draft", "stranger")]
    return [*found, first_layers(found[0], 1)]


@pytest.fixture(scope="module")
def pool(family: list[Any]) -> ModelPool:
    """The same, which read no text twice: settings have most of what they read in common."""
    return pool_of(*map(Remembered, family), unlike(family[0]))


@pytest.fixture(scope="module")
def forgetful_pool() -> ModelPool:
    """Models that look at two tokens, for texts of which every setting has its own; no head."""
    target, draft = forgetful_pair()
    stranger = TextModel(lawless(64, 3, memory=2, evenness=0.1), 64)
    return pool_of(target.model, draft.model, stranger, draft.model)


@pytest.fixture(scope="module")
def tree_pool(family: list[Any]) -> ModelPool:
    """The same as they are, which can read trees."""
    return pool_of(*family, unlike(family[0]))


def both(
    scheme: Scheme, pool: ModelPool, sampling: Sampling, asked: Sequence[Sequence[int]]
) -> tuple[list[Prediction], list[Decoded]]:
    """What is predicted of a setting, and what it does, on the same prompts."""
    model_set = pool.new(timed=False)
    own = drawn_with(scheme, sampling)
    predicted, decoded = [], []
    for number, prompt in enumerate(asked):
        text = recorded(pool, prompt, sampling, generator(CPU, TRACE, number))
        request = DecodeRequest(prompt, LIMIT, own, generator(CPU, LOSSY, number), END)
        predicted.append(predict(scheme, text, request))
        request = DecodeRequest(prompt, LIMIT, own, generator(CPU, DECODING, number), END)
        decoded.append(start(scheme, model_set, request).finish())
    return predicted, decoded


def recorded(
    pool: ModelPool, prompt: Sequence[int], sampling: Sampling, random: torch.Generator
) -> ReadableText:
    """The target's answer to a prompt."""
    model_set = pool.new(timed=False)
    request = DecodeRequest(prompt, LIMIT, sampling, random, END)
    tokens = plain(model_set.target, request).finish().tokens
    return ReadableText(prompt, tokens, LIMIT, sampling, model_set)


def named(scheme: Scheme) -> str:
    return f"{scheme_name(scheme)} {scheme.label}"


GREEDY_SETTINGS = settings(GREEDY)
# The blocks of SpecDec++ are tried on the target's text, though it writes another one.
EXACT = [each for each in GREEDY_SETTINGS if not isinstance(each, SpecDec) or each.lossless]


@pytest.mark.parametrize("scheme", EXACT, ids=named)
def test_greedy_runs_are_foreseen_one_by_one(
    scheme: Scheme, pool: ModelPool, tree_pool: ModelPool
) -> None:
    models = tree_pool if isinstance(scheme, BeamSearch) else pool
    predicted, decoded = both(scheme, models, GREEDY, prompts(4))
    for foreseen, real in zip(predicted, decoded, strict=True):
        expected = foreseen.expected
        assert expected.calls == pytest.approx(real.calls, abs=1e-9)
        assert expected.tokens == len(real.tokens)
        for name, runs in real.drafts.items():
            if name not in approximate_runs(scheme):
                assert expected.runs.runs(name) == pytest.approx(runs.count, abs=1e-9)


@pytest.mark.parametrize("form", [{"steps": (2,)}, {"at_least": (4,)}], ids=str)
def test_greedy_runs_of_a_reviewer_are_foreseen_behind_rejected_tokens_too(
    form: dict[str, tuple[int, ...]], pool: ModelPool
) -> None:
    scheme = VerticalCascade(("draft", "early"), gamma=2, **form)
    predicted, decoded = both(scheme, pool, GREEDY, prompts(8))
    rejections = 0
    for foreseen, real in zip(predicted, decoded, strict=True):
        for name, runs in real.drafts.items():
            assert foreseen.expected.runs.runs(name) == pytest.approx(runs.count, abs=1e-9)
        rejections += real.rejections
    assert rejections > 0


SAMPLED = [each for each in settings(ORDINARY) if not isinstance(each, FullCascade)]


@pytest.mark.parametrize("scheme", SAMPLED, ids=named)
def test_sampled_calls_are_foreseen_on_average(
    scheme: Scheme, pool: ModelPool, forgetful_pool: ModelPool
) -> None:
    """Student's t over 32 requests: a false alarm in any of the settings has a chance of 1e-4
    (Bonferroni), as far as the gaps are normal; the seeds are fixed.  A gap of a standard deviation
    of the requests is found.
    """
    models = pool if "eagle" in scheme.models else forgetful_pool
    predicted, decoded = both(scheme, models, ORDINARY, prompts(32, seed=3))
    foreseen = np.array([each.expected.calls / each.expected.tokens for each in predicted])
    real = np.array([each.calls / len(each.tokens) for each in decoded])
    gaps = real - foreseen
    spread = gaps.std(ddof=1) / np.sqrt(len(gaps))
    limit = t.isf(1e-4 / (2 * len(SAMPLED)), len(gaps) - 1)
    assert abs(gaps.mean()) <= limit * spread + 1e-12


def test_one_name_is_one_setting() -> None:
    for sampling in (GREEDY, ORDINARY):
        names = [named(each) for each in settings(sampling)]
        assert len(names) == len(set(names))
    assert len(settings(GREEDY)) + len(settings(ORDINARY)) == 73


@pytest.mark.parametrize("draft", ["draft", "bigram", "eagle"])
def test_at_temperature_0_every_law_of_acceptance_is_one(pool: ModelPool, draft: str) -> None:
    usual, *others = (
        both(SpeculativeDecoding(3, draft, acceptance_law=law), pool, GREEDY, prompts(3))
        for law in ACCEPTANCE_LAWS
    )
    for predicted, decoded in others:
        for one, other in zip(predicted, usual[0], strict=True):
            assert one.expected.calls == other.expected.calls
            assert one.rates == other.rates
        assert [each.accepted for each in decoded] == [each.accepted for each in usual[1]]


@pytest.mark.parametrize("law", ACCEPTANCE_LAWS)
def test_a_text_is_accepted_as_the_rules_say(pool: ModelPool, law: AcceptanceLaw) -> None:
    text = recorded(pool, [5, 6, 7], ORDINARY, generator(CPU, 1))
    for drafter in ("draft", "bigram"):
        rows = Distributions(text.rows("target"), text.rows(drafter))
        expected = acceptance_given(law, rows, torch.tensor(text.tokens)).numpy()
        assert text.accepted(drafter, "target", law) == pytest.approx(expected, abs=1e-6)


@pytest.mark.parametrize("law", ACCEPTANCE_LAWS)
def test_copies_are_accepted_alike_under_every_law(pool: ModelPool, law: AcceptanceLaw) -> None:
    scheme = SpeculativeDecoding(4, "copy", acceptance_law=law)
    text = recorded(pool, [5, 6, 5], ORDINARY, generator(CPU, 1))
    request = DecodeRequest([5, 6, 5], LIMIT, ORDINARY, generator(CPU, LOSSY), END)
    usual = predict(SpeculativeDecoding(4, "copy"), text, request)
    assert predict(scheme, text, request).expected.calls == usual.expected.calls


def test_a_text_of_another_law_is_drawn_from_it(pool: ModelPool) -> None:
    """At temperature 0 a lossy setting writes what its decoder writes."""
    scheme = SpeculativeCascade(4, "draft", rule=Diff(0.1, decide_on="unscaled"))
    assert scheme in GREEDY_SETTINGS
    model_set = pool.new(timed=False)
    differ = 0
    for number, prompt in enumerate(prompts(6)):
        text = recorded(pool, prompt, GREEDY, generator(CPU, 1))
        random = generator(CPU, LOSSY, number)
        written = write(scheme, model_set, DecodeRequest(prompt, LIMIT, GREEDY, random, END))
        random = generator(CPU, DECODING, number)
        request = DecodeRequest(prompt, LIMIT, GREEDY, random, END)
        real = start(scheme, model_set, request).finish()
        assert written.tokens == real.tokens
        differ += real.tokens != text.tokens
    assert differ, "a lossy setting that never differs from the target tests nothing"


@pytest.mark.parametrize(
    "scheme", [AdaptiveHeuristic(), SpeculativeDecoding(2, bonus=False)], ids=named
)
def test_what_has_no_decoder_is_named(scheme: Scheme, pool: ModelPool) -> None:
    with pytest.raises(UnsupportedError, match=f"no decoder of {scheme_name(scheme)}"):
        start(scheme, pool.new(timed=False), greedy([5], 3))


def test_a_reviewer_without_room_for_a_text_of_its_own_is_refused(pool: ModelPool) -> None:
    model_set = pool.new(timed=False)
    prompt = [3] * (model_set["draft"].context - 4)
    text = ReadableText(prompt, [4, 5], 2, GREEDY, model_set)
    assert text.off_text_samples("draft", "target", 0) == []
    with pytest.raises(UnsupportedError, match="draft has no room behind the prompt"):
        text.off_text_samples("draft", "target", None)


def test_rows_of_a_text_are_those_of_its_models(pool: ModelPool) -> None:
    text = recorded(pool, [5, 6, 7], GREEDY, generator(CPU, 1))
    assert torch.equal(text.rows("target").argmax(-1), torch.tensor(text.tokens))
    assert (text.accepted("target", "target") == 1).all()
    assert text.rows("bigram").shape == (len(text.tokens), 64)


def test_counts_that_chance_does_not_explain_are_named() -> None:
    row: dict[str, Any] = {"scheme": "bild", "setting": "fast", "temperature": 1.0}
    row |= {"lossless": False, "exact": None, "requests": 12, "approximate": []}
    runs = {"predicted_runs": 50.0, "measured_runs": 80.0, "runs_z": 30.0}
    row |= {name: {"target": value} for name, value in runs.items()}
    (text,) = contradictions([row])
    assert "runs of target 50.0 predicted, 80.0 counted" in text
    assert contradictions([{**row, "approximate": ["target"]}]) == []
    # The same gap in every request says nothing of chance.
    assert contradictions([{**row, "runs_z": {"target": float("nan")}}]) == []
    wrong = {**row, "exact": False, "runs_z": {"target": float("nan")}}
    (text,) = contradictions([wrong])
    assert "not the text of plain decoding" in text
    assert contradictions([{**wrong, "approximate": ["target"]}]) == []


def test_a_score_compares_request_by_request() -> None:
    expected = np.array([0.5, 0.4, 0.3])
    assert _compare(expected, expected + 1e-12)[2] == 0
    assert np.isnan(_compare(expected, expected + 0.1)[2])
    mean, counted, z = _compare(expected, expected + np.array([0.1, 0.2, 0.3]))
    assert (mean, counted) == pytest.approx((0.4, 0.6))
    assert z == pytest.approx(0.2 / (0.1 / np.sqrt(3)))


def another_call(decoded: Decoded) -> Decoded:
    return replace(decoded, target=Runs(decoded.target.widths + Counter({2: 1})))


def another_end(decoded: Decoded) -> Decoded:
    return replace(decoded, tokens=[*decoded.tokens[:-1], decoded.tokens[-1] + 1])


VERIFIED = SpeculativeDecoding(2, "draft")
CASCADE = SpeculativeCascade(4, "draft", rule=Diff(0.1, decide_on="unscaled"))


@pytest.mark.parametrize(
    ("scheme", "change", "exact"),
    [
        (VERIFIED, None, True),
        (VERIFIED, another_call, False),
        (VERIFIED, another_end, False),
        (CASCADE, None, True),
        (CASCADE, another_call, False),
        (CASCADE, another_end, True),  # its text need not be that of plain decoding
    ],
)
def test_exact_is_as_many_calls_as_predicted_and_the_text_of_plain_decoding(
    scheme: Scheme, change: Any, exact: bool, pool: ModelPool
) -> None:
    """One request of three has another call, or another last token."""
    predicted, decoded = both(scheme, pool, GREEDY, prompts(3))
    models = pool.new(timed=False)
    plainly = [
        start(PlainDecoding(), models, greedy(each, LIMIT, *END)).finish() for each in prompts(3)
    ]
    if change is not None:
        decoded[1] = change(decoded[1])
    turns = Interleaved({PLAIN: plainly, key(scheme): decoded})
    one = Interval(1.0, 1.0, 1.0)

    def found(certain: bool) -> bool | None:
        check: Any = SimpleNamespace(certain=certain, sampling=GREEDY)
        row = _row(Predicted(scheme, predicted, None), turns, one, one, check)
        answer: bool | None = row["exact"]
        return answer

    assert found(certain=True) is exact
    # In half precision rounding decides.
    assert found(certain=False) is None
