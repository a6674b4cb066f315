"""Decoding under each law of acceptance: the target's text, accepted as the replay says."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import pandas as pd
import pytest
import torch

from calibrate.decode.drafters import Bigram, Drafter, Neural, PairCounts, PromptLookup
from calibrate.decode.engine import CachedModel, DecodeRequest
from calibrate.decode.speculative import speculative
from calibrate.measure.trace import generator, ranks, record
from calibrate.models.sampling import Sampling
from specsim.acceptance import ACCEPTANCE_LAWS, AcceptanceLaw
from specsim.checks import InvalidArgumentError, UnsupportedError
from specsim.predict.replay.fixed_gamma import replay
from specsim.rules import Distributions, Lenient, expected_acceptance
from specsim.traces import Trace, read_trace
from tests.support.imitations import CPU, ORDINARY, forgetful_pair, greedy, prompts, uncached
from tests.support.sequences import check_law

# test_decode.py has the ratio test.
OTHERS: tuple[AcceptanceLaw, ...] = ("greedy-drafts", "exact-match")
laws = pytest.mark.parametrize("law", ACCEPTANCE_LAWS)


@pytest.mark.long
@pytest.mark.parametrize("sampling", [ORDINARY, Sampling(0.7, top_k=3)])
@pytest.mark.parametrize("law", OTHERS)
def test_every_law_emits_the_target(
    four_remembered: tuple[CachedModel, CachedModel], law: AcceptanceLaw, sampling: Sampling
) -> None:
    target, draft = four_remembered
    request = DecodeRequest([1], 3, sampling, generator(CPU, 8))
    # False-alarm chance 1e-4 for each of 4 settings.  Seeded.  At 1500 draws, greedy drafts
    # that are verified with the row of a sampled one fail (tried).
    check_law(
        target,
        [1],
        lambda: speculative(target, draft, request, 2, acceptance_law=law).finish().tokens,
        sampling,
    )


@pytest.mark.long
@laws
def test_the_first_draft_is_accepted_with_its_expected_probability(
    four_remembered: tuple[CachedModel, CachedModel], law: AcceptanceLaw
) -> None:
    target, draft = four_remembered
    blocks, sampling = 2000, Sampling(0.5)
    p, q = (uncached(model, sampling)((1,)).astype(float) for model in (target, draft))
    beta = float(expected_acceptance(law, Distributions(p, q)))
    others = [
        float(expected_acceptance(other, Distributions(p, q)))
        for other in ACCEPTANCE_LAWS
        if other != law
    ]
    request = DecodeRequest([1], 2, sampling, generator(CPU, 3))
    accepted = sum(
        speculative(target, draft, request, 1, acceptance_law=law).finish().accepted[0]
        for _ in range(blocks)
    )
    error = np.sqrt(beta * (1 - beta) / blocks)
    # False-alarm chance 6e-5 for each of 3 laws (|z| < 4); the other laws are off by more than 6.
    assert abs(accepted / blocks - beta) < 4 * error
    assert min(abs(beta - other) for other in others) > 6 * error


@pytest.fixture(scope="module")
def pair() -> tuple[CachedModel, CachedModel]:
    return forgetful_pair()


@cache
def traced(target: CachedModel, draft: CachedModel, count: int, tokens: int) -> list[Trace]:
    """The same texts, as each law accepts them."""
    frames = [
        record(
            *(target, draft, number),
            DecodeRequest(prompt, tokens, ORDINARY, generator(CPU, 1, number)),
        )
        for number, prompt in enumerate(prompts(count, seed=5))
    ]
    with TemporaryDirectory() as folder:
        file = Path(folder) / "trace.parquet"
        pd.concat(frames).to_parquet(file)
        return [read_trace(file, acceptance_law=law) for law in ACCEPTANCE_LAWS]


@pytest.mark.long
@laws
def test_counted_calls_agree_with_the_replay_of_that_law(
    pair: tuple[CachedModel, CachedModel], law: AcceptanceLaw
) -> None:
    (target, draft), gamma = pair, 4
    texts = dict(zip(ACCEPTANCE_LAWS, traced(target, draft, 60, 40), strict=True))
    counted = np.array(
        [
            speculative(
                target,
                draft,
                DecodeRequest(prompt, 40, ORDINARY, generator(CPU, 2, number)),
                gamma,
                acceptance_law=law,
            )
            .finish()
            .calls
            for number, prompt in enumerate(prompts(60, seed=5))
        ]
    )

    def z(other: AcceptanceLaw) -> float:
        gaps = counted - replay(texts[other], [gamma])[0].calls
        return float(gaps.mean() / (gaps.std(ddof=1) / np.sqrt(len(gaps))))

    # False-alarm chance 6e-5 for each of 3 laws (|z| < 4 over 60 requests).
    assert abs(z(law)) < 4
    # The ratio test replayed in place of another law, or another one in its place, would show.
    for other in ACCEPTANCE_LAWS:
        if "ratio-test" in (law, other) and law != other:
            assert abs(z(other)) > 8


def test_greedy_drafts_given_the_text_are_decided_by_rank_alone(
    models: dict[str, CachedModel],
) -> None:
    """Given the text, every block is as long as ranks of 1 go on: nothing of it is chance."""
    target, draft = models["target"], models["draft"]
    for number, prompt in enumerate(prompts(8, seed=6)):
        request = DecodeRequest(prompt, 30, ORDINARY, generator(CPU, 4, number))
        result = speculative(target, draft, request, 3, acceptance_law="greedy-drafts").finish()
        draft.reset()
        logits = draft.read(torch.tensor([[*prompt, *result.tokens[:-1]]]))[-30:]
        found, place = ranks(logits, torch.tensor(result.tokens)).tolist(), 0
        for accepted, drafted in zip(result.accepted, result.drafted, strict=True):
            ahead = found[place : place + drafted]
            assert accepted == next((i for i, rank in enumerate(ahead) if rank != 1), drafted)
            place += accepted + 1


@laws
def test_at_temperature_0_all_laws_do_the_same(
    models: dict[str, CachedModel], law: AcceptanceLaw
) -> None:
    target, draft = models["target"], models["draft"]
    for prompt in prompts(4):
        usual = speculative(target, draft, greedy(prompt, 30), 3).finish()
        found = speculative(target, draft, greedy(prompt, 30), 3, acceptance_law=law).finish()
        assert (found.tokens, found.accepted) == (usual.tokens, usual.accepted)
        frame = record(target, draft, 0, greedy(prompt, 30))
        assert (frame["draft_rank"] == 1).tolist() == frame["argmax_equal"].astype(bool).tolist()
        assert np.exp(frame["logp_draft"]).tolist() == frame["argmax_equal"].tolist()


def test_drafters_without_a_model_follow(
    four_remembered: tuple[CachedModel, CachedModel],
) -> None:
    """Counts take their most probable token; copies are what they are under every law."""
    target, _ = four_remembered
    counts = PairCounts(
        {
            "start": np.array([0, 1, 3, 5, 6]),
            "next": np.array([1, 2, 3, 0, 2, 1]),
            "count": np.array([4, 1, 6, 2, 3, 5]),
        }
    )
    request = DecodeRequest([1, 2, 1], 2, ORDINARY, generator(CPU, 9))
    makers: list[Callable[[], Drafter]] = [lambda: Bigram(counts), PromptLookup]
    for make in makers:
        for law in OTHERS:

            def decode(make: Callable[[], Drafter] = make, law: AcceptanceLaw = law) -> list[int]:
                return speculative(target, make(), request, 1, acceptance_law=law).finish().tokens

            # False-alarm chance 1e-4 for each of 4 settings.
            check_law(target, [1, 2, 1], decode, ORDINARY, draws=400, length=2)


def test_what_has_no_meaning_is_refused(models: dict[str, CachedModel]) -> None:
    target, draft = models["target"], models["draft"]
    for law in ("greedy-drafts", "exact-match"):
        with pytest.raises(UnsupportedError, match=f"Lenient changes .* {law} has no meaning"):
            speculative(target, draft, greedy([4], 8), 2, Lenient(0.5), acceptance_law=law)  # type: ignore[arg-type]
    with pytest.raises(UnsupportedError, match="no rows to observe"):
        speculative(target, draft, greedy([4], 8), 2, observe=print, acceptance_law="exact-match")
    with pytest.raises(InvalidArgumentError, match="acceptance_law must be one of"):
        speculative(target, Neural(draft), greedy([4], 8), 2, acceptance_law="typical")  # type: ignore[arg-type]
