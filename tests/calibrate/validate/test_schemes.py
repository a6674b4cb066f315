"""Settings: what is expected of a decoder is what it does."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
import torch
from scipy.stats import norm

from calibrate.decode.drafters import PairCounts, first_layers
from calibrate.decode.engine import CachedModel, Decoded
from calibrate.decode.plain import plain
from calibrate.measure.trace import DECODING, LOSSY, TRACE, generator
from calibrate.models.sampling import Sampling
from calibrate.schemes import ModelPool, Setting, Source
from calibrate.schemes.lossy import PositionWise
from calibrate.schemes.nests import Lossless, Model, Review
from calibrate.schemes.whole import Masked
from calibrate.validate.catalogue import settings
from calibrate.validate.schemes import _compare, contradictions
from specsim.checks import UnsupportedError
from specsim.commands._scheme_check import SCHEMES
from specsim.predict.replay.blocks import Expected
from tests.calibrate.imitations import CPU, GREEDY, ORDINARY, prompts

LIMIT = 16
# The tiny models end texts now and then.
END = 0
# Above every token that a draft can propose.
MASK = 63


@pytest.fixture(scope="module")
def pool(models: dict[str, CachedModel]) -> ModelPool:
    """Every role played by the tiny family; a mask is an ordinary token of it."""
    target = models["target"].model
    pairs = np.random.default_rng(5).integers(2, 64, size=(500, 2))
    pairs = np.unique(pairs[np.lexsort((pairs[:, 1], pairs[:, 0]))], axis=0)
    counts = PairCounts(
        {
            "start": np.searchsorted(pairs[:, 0], np.arange(65)),
            "next": pairs[:, 1],
            "count": np.ones(len(pairs)),
        }
    )
    draft, stranger = models["draft"].model, models["stranger"].model
    drafts = {
        "draft": draft,
        "middle": draft,
        "early": first_layers(target, 1),
        "masks": stranger,
        "aligned": stranger,
    }
    return ModelPool(target, drafts, 64, counts, MASK)


def both(
    setting: Setting, pool: ModelPool, sampling: Sampling, requests: Sequence[Sequence[int]]
) -> tuple[list[Expected], list[Decoded]]:
    """What is expected of a setting, and what it does, on the same prompts."""
    model_set = pool.new(timed=False)
    expected, decoded = [], []
    for number, prompt in enumerate(requests):
        random = generator(CPU, TRACE, number)
        text = plain(model_set.target, prompt, LIMIT, sampling, random, END).finish().tokens
        source = Source(prompt, text, LIMIT, sampling, model_set)
        expected.append(setting.expect(source, generator(CPU, LOSSY, number), END))
        random = generator(CPU, DECODING, number)
        decoded.append(setting.start(model_set, prompt, LIMIT, random, END).finish())
    return expected, decoded


GREEDY_SETTINGS = settings(GREEDY)
# The blocks of SpecDec++ are tried on the target's text, though it writes another one.
EXACT = [each for each in GREEDY_SETTINGS if not isinstance(each, Masked) or each.lossless]


@pytest.mark.parametrize("setting", EXACT, ids=lambda each: f"{each.scheme} {each.name}")
def test_greedy_runs_are_foreseen_one_by_one(setting: Setting, pool: ModelPool) -> None:
    expected, decoded = both(setting, pool, GREEDY, prompts(4))
    for foreseen, real in zip(expected, decoded, strict=True):
        assert foreseen.calls == pytest.approx(real.calls, abs=1e-9)
        assert foreseen.tokens == len(real.tokens)
        for name, runs in real.drafts.items():
            if name not in setting.approximate:
                assert foreseen.runs.runs(name) == pytest.approx(runs.count, abs=1e-9)
        # A reviewer's proposals have a length of their own off the text, and the first run of a
        # beam search reads one token.
        if setting.scheme not in {"vertical", "full", "beam"}:
            read = sum(width * count for width, count in real.target.widths.items())
            assert foreseen.runs.read("target") == pytest.approx(read, abs=1e-9)


@pytest.mark.parametrize("form", [{"steps": 2}, {"at_least": 4}], ids=str)
def test_greedy_runs_of_a_reviewer_are_foreseen_behind_rejected_tokens_too(
    form: dict[str, int], pool: ModelPool
) -> None:
    nest = Review("draft", Model("early", 2), gamma=2, **form)
    expected, decoded = both(Lossless("it", "vertical", nest, GREEDY), pool, GREEDY, prompts(8))
    rejections = 0
    for foreseen, real in zip(expected, decoded, strict=True):
        for name, runs in real.drafts.items():
            assert foreseen.runs.runs(name) == pytest.approx(runs.count, abs=1e-9)
        rejections += real.rejections
    assert rejections > 0


@pytest.mark.parametrize(
    "setting",
    [each for each in settings(ORDINARY) if each.scheme != "full"],
    ids=lambda each: f"{each.scheme} {each.name}",
)
def test_sampled_calls_are_foreseen_on_average(setting: Setting, pool: ModelPool) -> None:
    """False-alarm chance 1e-5 a setting, as far as 16 requests are normal."""
    expected, decoded = both(setting, pool, ORDINARY, prompts(16, seed=3))
    foreseen = np.array([each.calls / each.tokens for each in expected])
    real = np.array([each.calls / len(each.tokens) for each in decoded])
    gaps = real - foreseen
    spread = gaps.std(ddof=1) / np.sqrt(len(gaps))
    assert abs(gaps.mean()) <= norm.isf(0.5e-5) * spread + 1e-12


def test_schemes_are_known_to_the_command() -> None:
    assert {each.scheme for each in GREEDY_SETTINGS} == set(SCHEMES)


def test_one_name_is_one_setting() -> None:
    for sampling in (GREEDY, ORDINARY):
        names = [(each.scheme, each.name) for each in settings(sampling)]
        assert len(names) == len(set(names))
    assert len(settings(GREEDY)) + len(settings(ORDINARY)) >= 30


def test_a_text_of_another_law_is_drawn_from_it(pool: ModelPool) -> None:
    """At temperature 0 a lossy setting writes what its decoder writes."""
    (setting,) = (each for each in GREEDY_SETTINGS if each.name == "Diff 0.1")
    assert isinstance(setting, PositionWise)
    model_set = pool.new(timed=False)
    differ = 0
    for number, prompt in enumerate(prompts(6)):
        text = (
            plain(model_set.target, prompt, LIMIT, GREEDY, generator(CPU, 1), END).finish().tokens
        )
        source = Source(prompt, text, LIMIT, GREEDY, model_set)
        written = setting.write(source, generator(CPU, LOSSY, number), END)
        random = generator(CPU, DECODING, number)
        real = setting.start(model_set, prompt, LIMIT, random, END).finish()
        assert written.tokens == real.tokens
        differ += real.tokens != text
    assert differ, "a lossy setting that never differs from the target tests nothing"


def test_a_reviewer_without_room_for_a_text_of_its_own_is_refused(pool: ModelPool) -> None:
    model_set = pool.new(timed=False)
    prompt = [3] * (model_set["draft"].context - 4)
    source = Source(prompt, [4, 5], 2, GREEDY, model_set)
    assert source.aside_at("draft", 0) == []
    with pytest.raises(UnsupportedError, match="draft has no room behind the prompt"):
        source.aside("draft", "target")


def test_rows_of_a_source_are_those_of_its_models(pool: ModelPool) -> None:
    model_set = pool.new(timed=False)
    text = plain(model_set.target, [5, 6, 7], 9, GREEDY, generator(CPU, 1)).finish().tokens
    source = Source([5, 6, 7], text, 9, GREEDY, model_set)
    assert torch.equal(source.rows("target").argmax(-1), torch.tensor(text))
    assert (source.accepted("target", "target") == 1).all()
    assert source.rows("bigram").shape == (9, 64)


def test_counts_that_chance_does_not_explain_are_named() -> None:
    row: dict[str, Any] = {
        "scheme": "bild",
        "setting": "fast",
        "temperature": 1.0,
        "lossless": False,
        "exact": None,
        "requests": 12,
        "approximate": [],
        "predicted_runs": {"target": 50.0},
        "measured_runs": {"target": 80.0},
        "runs_z": {"target": 30.0},
    }
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
