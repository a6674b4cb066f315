"""All decoders in one table: how each is started, and what its runs must add up to."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import Any

from calibrate.decode.beam import beam_search
from calibrate.decode.bild import bild
from calibrate.decode.build import build_drafter
from calibrate.decode.drafters import (
    Bigram,
    CachedHead,
    Drafter,
    EagleHead,
    Horizontal,
    MaskFiller,
    MaxGram,
    Neural,
    PairCounts,
    PromptLookup,
    Unigram,
    Vertical,
    first_layers,
)
from calibrate.decode.engine import CachedModel, Decoded, DecodeRequest, Decoding
from calibrate.decode.plain import plain
from calibrate.decode.sequence_cascade import sequence_cascade
from calibrate.decode.specdec import specdec
from calibrate.decode.speculative import speculative
from calibrate.decode.token_cascade import token_cascade
from calibrate.measure.trace import generator
from calibrate.models.pool import ModelSet
from calibrate.models.sampling import Sampling
from specsim import rules
from specsim.rules.confidence import sum_log_probability
from specsim.schemes import BeamSearch, FullCascade, TokenCascade
from tests.support.heads import unlike
from tests.support.imitations import CPU, GREEDY, Remembered, big_little


@dataclass(frozen=True)
class Cast:
    """A target, two models that draft, and counts for drafters without a model."""

    target: CachedModel
    draft: CachedModel
    second: CachedModel
    counts: PairCounts

    def fresh(self) -> Cast:
        """The same with caches of their own."""
        names = ("target", "draft", "second")
        return Cast(
            *(CachedModel(getattr(self, name).model, name=name) for name in names), self.counts
        )

    def early(self) -> CachedModel:
        return CachedModel(_first_layer(self.target.model), name="early")

    def head(self) -> EagleHead:
        return EagleHead(CachedHead(unlike(_layered(self.target.model)), self.target))


def _layered(model: Any) -> Any:
    """The model itself, of one that is remembered."""
    return model.model if isinstance(model, Remembered) else model


@cache
def _first_layer(model: Any) -> Any:
    """Of a model that is remembered, one that is remembered, too."""
    early = first_layers(_layered(model), 1)
    return Remembered(early) if isinstance(model, Remembered) else early


@dataclass(frozen=True)
class Job:
    """A request, and ``gamma``: the most that is drafted in a block, whatever it is called.

    own_length : drafters fill the room, or have a length of their own, instead
    """

    prompt: list[int]
    wanted: int
    gamma: int = 4
    sampling: Sampling = GREEDY
    end: tuple[int, ...] = ()
    own_length: bool = False
    seed: int = 0

    @property
    def request(self) -> DecodeRequest:
        random = generator(CPU, len(self.prompt), self.wanted, self.seed)
        return DecodeRequest(self.prompt, self.wanted, self.sampling, random, frozenset(self.end))


Start = Callable[[Cast, Job], Decoding]
Bounds = tuple[int, int]


def a_token(result: Decoded) -> Bounds:
    """A draft run for every token drafted."""
    return sum(result.drafted), sum(result.drafted)


def a_block(result: Decoded) -> Bounds:
    """A draft run for every block that has a draft."""
    blocks = sum(drafted > 0 for drafted in result.drafted)
    return blocks, blocks


def once_more(result: Decoded) -> Bounds:
    """A draft run for every token, and one a block that may give none."""
    return sum(result.drafted), sum(result.drafted) + len(result.drafted)


def in_vain(result: Decoded) -> Bounds:
    """A draft run for every block, which may find nothing."""
    return a_block(result)[0], len(result.drafted)


def many(result: Decoded) -> Bounds:
    """Drafters below drafters: test_cascades_decode.py counts them."""
    return a_block(result)[0], 10 * sum(result.drafted)


def and_a_bonus(result: Decoded) -> Counter[int]:
    """The target reads the draft and the token before it."""
    return Counter(drafted + 1 for drafted in result.drafted)


def and_rescored(result: Decoded) -> Counter[int]:
    return and_a_bonus(result) + Counter({1: result.rejections})


def without_bonus(result: Decoded) -> Counter[int]:
    return Counter(max(drafted, 1) for drafted in result.drafted)


def unless_ended(result: Decoded) -> Counter[int]:
    """In the last block the draft may have ended the text."""
    assert result.calls in (len(result.drafted), len(result.drafted) - 1)
    assert sum(result.drafted) + result.calls == len(result.tokens)
    return Counter(drafted + 1 for drafted in result.drafted[: result.calls])


def all_or_nothing(result: Decoded) -> Counter[int]:
    """No target run, or one for every token."""
    return Counter({1: 0 if sum(result.accepted) else len(result.tokens)})


def tree(result: Decoded) -> Counter[int]:
    """Two beams, three of the draft; at first there is one, the prompt."""
    beams = [1, *[2] * len(result.drafted)]
    return Counter(mine + 3 * steps for mine, steps in zip(beams, result.drafted, strict=False))


@dataclass(frozen=True)
class Decoder:
    """A decoder, and what is said of it.

    widths : of the target's runs, as its blocks say
    draft_runs : the fewest and the most runs of all drafters together, as its blocks say
    lossless : the text is that of plain decoding, and a sampled one has the target's law
    plain : with gamma 0 it is plain decoding, at any temperature
    sampled : it can sample
    agreement : steps of the ``counting`` drafts for which it is known what is accepted
    bonus : tokens that a block has on top of a draft that is wholly accepted
    """

    start: Start
    widths: Callable[[Decoded], Counter[int]] = and_a_bonus
    draft_runs: Callable[[Decoded], Bounds] = a_token
    lossless: bool = True
    plain: bool = True
    sampled: bool = True
    agreement: tuple[int, ...] = (1, 3)
    bonus: int = 1

    def decode(self, cast: Cast, job: Job) -> Decoded:
        """Decode a request, and check all that holds of any."""
        result = self.start(cast.fresh(), job).finish()
        self.check(result, job)
        return result

    def check(self, result: Decoded, job: Job) -> None:
        ends = [place for place, token in enumerate(result.tokens, start=1) if token in job.end]
        if ends:
            assert ends == [len(result.tokens)]
            assert len(result.tokens) <= job.wanted
        else:
            assert len(result.tokens) == job.wanted
        assert len(result.accepted) == len(result.drafted)
        for accepted, drafted in zip(result.accepted, result.drafted, strict=True):
            assert 0 <= accepted <= drafted <= job.wanted - self.bonus
        assert +result.target.widths == +self.widths(result)
        fewest, most = self.draft_runs(result)
        assert fewest <= result.draft.count <= most


def start_plain(cast: Cast, job: Job) -> Decoding:
    return plain(cast.target, job.request)


def drafted_by(
    make: Callable[[Cast], Drafter | CachedModel], rule: rules.Rule | None = None
) -> Start:
    def start(cast: Cast, job: Job) -> Decoding:
        gamma = None if job.own_length else job.gamma
        return speculative(cast.target, make(cast), job.request, gamma, rule or rules.Lossless())

    return start


def start_bild(
    small: Callable[[Cast], CachedModel], rollback: float = 2.0, rescore: bool = False
) -> Start:
    return lambda cast, job: bild(
        cast.target,
        small(cast),
        job.request,
        big_little(0.2, rollback, window=job.gamma, rescore=rescore),
    )


def start_token_cascade(cast: Cast, job: Job) -> Decoding:
    rule = rules.Chow(0.6, decide_on="unscaled")
    return token_cascade(cast.target, cast.draft, job.request, TokenCascade(job.gamma, rule=rule))


def responding(threshold: float) -> Start:
    return lambda cast, job: sequence_cascade(
        cast.target, cast.draft, job.request, sum_log_probability, threshold
    )


def in_blocks(
    make: Callable[[Cast], Drafter], rule: rules.GreedyMatch | rules.TopBeta, bonus: bool = True
) -> Start:
    return lambda cast, job: specdec(
        cast.target, make(cast), job.request, job.gamma, rule, bonus=bonus
    )


def start_beams(cast: Cast, job: Job) -> Decoding:
    """On models that can read trees."""
    target, draft = (CachedModel(_layered(each.model)) for each in (cast.target, cast.draft))
    return beam_search(target, draft, job.request, BeamSearch(job.gamma, 2, 3))


def mine(cast: Cast) -> CachedModel:
    return cast.draft


def neural(cast: Cast) -> Drafter:
    return Neural(cast.draft)


def horizontal(cast: Cast) -> Drafter:
    return Horizontal([(Neural(cast.draft), 2), (Neural(cast.second), 2)])


def two_deep(cast: Cast) -> Drafter:
    inner = Vertical(cast.second, Unigram(cast.counts), 1, steps=2)
    return Vertical(cast.draft, inner, steps=2, lenience=0.5)


def all_below(lenience: float) -> Callable[[Cast], Drafter]:
    def make(cast: Cast) -> Drafter:
        scheme = FullCascade(("draft", "second", "max-gram"), ((2, 1, 4), (2, 1), (2,)))
        models = {"draft": cast.draft, "second": cast.second}
        return build_drafter(scheme.drafter, ModelSet(cast.target, models, cast.counts), lenience)

    return make


# Drafters that can fill whatever room there is, and those with a length of their own.
FILLING = ("model", "bigram", "unigram", "copy", "Max-Gram", "early exit", "EAGLE head")
CASCADES = (
    *("horizontal", "vertical", "vertical, at least", "vertical, two deep"),
    *("full cascade", "full cascade, lenient"),
)
MATCH = rules.GreedyMatch()
DECODERS = {
    "plain": Decoder(start_plain, agreement=()),
    "model": Decoder(drafted_by(mine)),
    "early exit": Decoder(drafted_by(Cast.early), agreement=()),
    "EAGLE head": Decoder(drafted_by(Cast.head), agreement=()),
    "bigram": Decoder(drafted_by(lambda cast: Bigram(cast.counts))),
    "unigram": Decoder(drafted_by(lambda cast: Unigram(cast.counts)), agreement=()),
    "copy": Decoder(drafted_by(lambda _: PromptLookup()), draft_runs=in_vain, agreement=(1,)),
    "Max-Gram": Decoder(
        drafted_by(lambda cast: MaxGram(cast.counts)), draft_runs=a_block, agreement=(1,)
    ),
    "horizontal": Decoder(drafted_by(horizontal)),
    "vertical": Decoder(
        drafted_by(lambda cast: Vertical(cast.draft, Neural(cast.second), 1, steps=2)),
        draft_runs=many,
    ),
    "vertical, at least": Decoder(
        drafted_by(
            lambda cast: Vertical(cast.draft, Neural(cast.second), 1, at_least=3, lenience=0.5)
        ),
        draft_runs=many,
    ),
    "vertical, two deep": Decoder(drafted_by(two_deep), draft_runs=many, agreement=()),
    "full cascade": Decoder(drafted_by(all_below(1.0)), draft_runs=many),
    "full cascade, lenient": Decoder(drafted_by(all_below(0.5)), draft_runs=many),
    # Its bonus token is the draft's affair too, so with gamma 0 it is not plain decoding.
    "lenient": Decoder(
        drafted_by(mine, rules.Lenient(0.4)), draft_runs=once_more, lossless=False, plain=False
    ),
    "BiLD": Decoder(start_bild(mine), draft_runs=once_more, lossless=False),
    "BiLD, rescored": Decoder(
        start_bild(mine, rescore=True), and_rescored, once_more, lossless=False
    ),
    # test_bild.py holds its greedy text to plain decoding; a sampled one has a law of its own.
    "BiLD, early exit": Decoder(
        start_bild(Cast.early, rollback=0.0), draft_runs=once_more, lossless=False, agreement=()
    ),
    "token cascade": Decoder(
        start_token_cascade, unless_ended, once_more, lossless=False, agreement=(), bonus=0
    ),
    "sequence cascade, kept": Decoder(
        responding(-math.inf), all_or_nothing, lossless=False, plain=False, agreement=(), bonus=0
    ),
    "sequence cascade, deferred": Decoder(
        responding(math.inf), all_or_nothing, plain=False, agreement=(), bonus=0
    ),
    "SpecDec": Decoder(in_blocks(neural, MATCH), sampled=False),
    "SpecDec, no bonus": Decoder(
        in_blocks(neural, MATCH, bonus=False), without_bonus, sampled=False, bonus=0
    ),
    "SpecDec, masks": Decoder(
        in_blocks(lambda cast: MaskFiller(cast.draft, 1), MATCH),
        draft_runs=a_block,
        sampled=False,
        agreement=(),
    ),
    "SpecDec++": Decoder(in_blocks(neural, rules.TopBeta(3, 1.0)), lossless=False, sampled=False),
    "beam search": Decoder(
        start_beams, tree, lossless=False, plain=False, sampled=False, agreement=()
    ),
}
