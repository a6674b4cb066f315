"""Every decoder at every edge: where texts end, where drafts fail or never do, where room ends."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from itertools import count, product

import numpy as np
import pytest

from calibrate.decode.drafters import PairCounts
from calibrate.decode.engine import CachedModel, DecodingError
from calibrate.models.sampling import Sampling
from calibrate.train.family import bigram_counts
from tests.support.decoders import CASCADES, DECODERS, FILLING, Cast, Decoder, Job, start_beams
from tests.support.executions import Tokens
from tests.support.imitations import GREEDY, ORDINARY, TextModel, peak, remembered
from tests.support.models import build_model
from tests.support.pair_counts import pair_counts
from tests.support.sequences import check_law, model_at

CONTEXT = 128  # of the tiny family


def over(**wanted: bool) -> pytest.MarkDecorator:
    """Every decoder of which this is said."""
    rows = {
        name: row
        for name, row in DECODERS.items()
        if all(getattr(row, field) == value for field, value in wanted.items())
    }
    return pytest.mark.parametrize("decoder", rows.values(), ids=rows)


def samplings(decoder: Decoder) -> tuple[Sampling, ...]:
    return (GREEDY, ORDINARY) if decoder.sampled else (GREEDY,)


@pytest.fixture(scope="module")
def cast(models: dict[str, CachedModel]) -> Cast:
    """A draft that often agrees, and one that seldom does; no text is read twice."""
    names = ("target", "draft", "stranger")
    target, draft, stranger = (remembered(models[name]) for name in names)
    return Cast(target, draft, stranger, pair_counts(target.vocabulary))


# A prompt of one token, and one with something to copy.
PROMPTS = ([11], [5, 9, 7, 5, 9, 7, 5, 9])


@over()
@pytest.mark.parametrize("prompt", PROMPTS, ids=len)
def test_as_many_tokens_as_asked_for(cast: Cast, decoder: Decoder, prompt: list[int]) -> None:
    for wanted, gamma, sampling in product((0, 1, 2, 3, 21), (1, 8), samplings(decoder)):
        job = Job(prompt, wanted, gamma, sampling)
        result = decoder.decode(cast, job)
        if decoder.lossless and sampling.greedy:
            assert result.tokens == DECODERS["plain"].decode(cast, job).tokens
        if not wanted:
            assert (result.accepted, result.calls, result.draft.count) == ([], 0, 0)


@pytest.fixture(scope="module")
def four(
    four_remembered: tuple[CachedModel, CachedModel], tmp_path_factory: pytest.TempPathFactory
) -> Cast:
    """Unlike models over four words: all sequences can be enumerated, and no text is read twice."""
    folder = tmp_path_factory.mktemp("four") / "second"
    build_model(folder, layers=1, width=16, seed=13, words=4, spread=0.25)
    return Cast(*four_remembered, remembered(model_at(folder)), pair_counts(4))


@pytest.mark.long
@over(lossless=True, sampled=True)
def test_sampled_sequences_follow_the_target(four: Cast, decoder: Decoder) -> None:
    jobs = (Job([1, 2, 1], 3, 2, ORDINARY, seed=seed) for seed in count())
    # False-alarm chance 1e-4 for each of 15 decoders.  Seeded.  At 500 draws, handing on a
    # reviewer's own q in place of m under lenience fails every cascade that is lenient (tried).
    check_law(
        four.target,
        [1, 2, 1],
        lambda: decoder.decode(four, next(jobs)).tokens,
        ORDINARY,
        draws=500,
    )


@pytest.mark.parametrize("name", [*FILLING, *CASCADES])
def test_without_gamma_drafts_fill_the_room_or_have_their_own_length(cast: Cast, name: str) -> None:
    prompt = [5, 9, 7, 5, 9, 7, 5, 9]
    job = Job(prompt, 30, own_length=True)
    result = DECODERS[name].decode(cast, job)
    assert result.tokens == DECODERS["plain"].decode(cast, job).tokens
    if name in FILLING:
        # All fill it but the one that copies: three tokens follow the match of the last three.
        assert result.drafted[0] == (3 if name == "copy" else 29)
    else:
        for sampling in (GREEDY, ORDINARY):
            DECODERS[name].decode(cast, Job([4], CONTEXT - 1, sampling=sampling, own_length=True))


@over(plain=True)
def test_gamma_zero_is_plain_decoding(cast: Cast, decoder: Decoder) -> None:
    for prompt, sampling in product(PROMPTS, samplings(decoder)):
        job = Job(prompt, 15, 0, sampling)
        result = decoder.decode(cast, job)
        assert result.tokens == DECODERS["plain"].decode(cast, job).tokens
        assert result.target.widths == Counter({1: 15})
        assert result.draft.count == 0


@over()
@pytest.mark.parametrize("twins", [True, False], ids=["twins", "drafts"])
def test_the_first_end_of_text_ends_the_request(cast: Cast, decoder: Decoder, twins: bool) -> None:
    """At every place of a block; drafts that are twins of the target write it themselves."""
    if twins:
        cast = replace(cast, draft=cast.target, second=cast.target)
    for prompt in PROMPTS:
        text = decoder.decode(cast, Job(prompt, 20)).tokens
        for end in sorted(set(text[2:12])):
            ended = decoder.decode(cast, Job(prompt, 20, end=(end,))).tokens
            # A beam that ends is one of several; test_beam.py has what comes of it.
            if decoder.start is not start_beams:
                assert ended == text[: text.index(end) + 1]
        if decoder.start is not start_beams:
            # Of several tokens the one that comes first.
            ends = tuple(sorted(set(text[4:12])))
            cut = min(text.index(end) for end in ends) + 1
            assert decoder.decode(cast, Job(prompt, 20, end=ends)).tokens == text[:cut]


@pytest.mark.long
@over()
def test_the_context_is_used_up_and_not_exceeded(cast: Cast, decoder: Decoder) -> None:
    for prompt, sampling in (([4], GREEDY), *product(([4, 9] * 55,), samplings(decoder))):
        room = CONTEXT - len(prompt)
        job = Job(prompt, room, 8, sampling)
        decoder.decode(cast, job)
        with pytest.raises(DecodingError, match="exceed the context") as refusal:
            decoder.start(cast.fresh(), replace(job, wanted=room + 1))
        assert "\n" not in str(refusal.value)


@pytest.mark.long
@over()
def test_side_by_side_is_the_same_as_alone(cast: Cast, decoder: Decoder) -> None:
    """Requests of different lengths, each with caches of its own, three tokens at a time."""
    requests = [([11], 5), ([5, 9, 7, 5, 9, 7, 5, 9], 17), ([30, 31, 5], 30), ([8], 0)]
    for sampling in samplings(decoder):
        jobs = [Job(prompt, wanted, 4, sampling) for prompt, wanted in requests]
        started = [decoder.start(cast.fresh(), job) for job in jobs]
        for goal in range(3, 33, 3):
            for job, decoding in zip(jobs, started, strict=True):
                assert decoding.advance(min(goal, job.wanted)) == (
                    len(decoding.state.tokens) < job.wanted
                )
        for job, decoding in zip(jobs, started, strict=True):
            together, alone = decoding.finish(), decoder.decode(cast, job)
            decoder.check(together, job)
            assert together.tokens == alone.tokens
            assert together.accepted == alone.accepted
            assert together.drafted == alone.drafted
            assert together.target.widths == alone.target.widths
            assert {name: runs.widths for name, runs in together.drafts.items()} == {
                name: runs.widths for name, runs in alone.drafts.items()
            }


WORDS = 8


def counting(step: int) -> CachedModel:
    """A model that counts on in steps, modulo the number of words."""

    def row(text: Tokens) -> np.ndarray:
        return peak(WORDS, (text[-1] + step) % WORDS, 0.9)

    return CachedModel(TextModel(row, WORDS))


def counted(step: int) -> PairCounts:
    return PairCounts(bigram_counts(np.arange(80) * step % WORDS, WORDS))


@pytest.mark.parametrize("gamma", [1, 3, 4])
@pytest.mark.parametrize(
    ("decoder", "step"),
    [
        pytest.param(row, step, id=f"{name}, {'always' if step == 1 else 'never'}")
        for name, row in DECODERS.items()
        for step in row.agreement
    ],
)
def test_a_draft_that_always_agrees_and_one_that_never_does(
    decoder: Decoder, step: int, gamma: int
) -> None:
    """The target counts in ones; drafts do so too, or in other steps."""
    cast = Cast(counting(1), counting(step), counting(step), counted(step))
    # Once round and a bit, so that there is something to copy.
    prompt = [*range(WORDS), 0, 1, 2]
    size = gamma + decoder.bonus
    result = decoder.decode(cast, Job(prompt, 5 * size, gamma))
    assert result.tokens == [(3 + place) % WORDS for place in range(5 * size)]
    if step == 1:
        assert result.accepted == result.drafted == [gamma] * 5
    else:
        assert sum(result.accepted) == 0
        assert len(result.accepted) == 5 * size
