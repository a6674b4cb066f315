"""Speculative decoding of a batch: what a block costs at a synthetic acceptance, and real
decoding.

What a block costs depends on the shapes of the models and on how many tokens each row gains, and
on no weights.  So the wall-clock of a pair that does not exist, or has not been trained, can be
measured: every block is decoded for real (draft runs and draws, one target run, verification),
and then the number of accepted tokens is drawn from a given survival curve instead.

All rows go through a block together and each gains its own tokens, as in an engine with
continuous batching.  Between blocks the target's cache of a row holds all but its last token.  So
does the draft's, but of a row that accepted everything it lacks one more; if there is such a row,
the first draft run of the next block reads two tokens of every row.  The other rows read their
last but one again, in its place.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import torch

from calibrate.batch.clock import Clock
from calibrate.batch.ragged import RaggedModel
from calibrate.decode.engine import wait
from calibrate.decode.verification import draw_any, verify_exact, verify_greedy, verify_lossless
from calibrate.models.sampling import Sampling
from specsim.acceptance import ACCEPTANCE_LAWS, AcceptanceLaw, SurvivalAcceptance
from specsim.checks import InvalidArgumentError, check_choice, integer

# The tokens that every row gains in a block, given how many drafts the verification accepted.
Gains = Callable[[list[int]], list[int]]


@dataclass(frozen=True)
class Timed:
    """What a segment of decoding cost: a number of blocks, one after another.

    batch : rows decoded together
    context : tokens in the longest cache at the start
    gamma : draft tokens a row in each block, 0 in plain decoding
    blocks : target runs
    tokens : tokens that all rows gained together
    seconds : wall-clock of the segment
    target_s, draft_s : seconds in the runs of the models
    draft_runs : runs of the draft, those over two tokens included
    wide_first_runs : draft runs over two tokens, each the first of its block
    """

    batch: int
    context: int
    gamma: int
    blocks: int
    tokens: int
    seconds: float
    target_s: float
    draft_s: float
    draft_runs: int
    wide_first_runs: int

    @property
    def overhead_s(self) -> float:
        """Seconds outside the runs: draws, verification, bookkeeping."""
        return self.seconds - self.target_s - self.draft_s


@torch.inference_mode()
def decode_synthetic(
    target: RaggedModel,
    draft: RaggedModel | None,
    gamma: int,
    survival: Sequence[float],
    blocks: int,
    temperature: float,
    random: np.random.Generator,
    *,
    top_k: int | None = None,
    top_p: float | None = None,
    acceptance_law: AcceptanceLaw = "ratio-test",
) -> Timed:
    """Decode so many blocks from the caches as they are, with acceptance from a survival curve.

    The segment begins in the midst of a text: whether the draft lacks a token there follows from a
    block drawn like the others.  The caches grow with the text; ``fill`` them anew before the next
    segment.

    survival : S_1, S_2, ..., at least gamma of them; S_i is the chance that the first i draft
        tokens of a block are all accepted.  Every row draws for itself
    gamma : 0, or no draft, is plain decoding: a target run of one token and a draw
    temperature, top_k, top_p, acceptance_law : how tokens are drawn and drafts verified, which the
        host pays for whatever is then taken as accepted
    """
    gamma = integer("gamma", gamma) if draft else 0
    draft = draft if gamma else None
    blocks = integer("blocks", blocks, low=1)
    start = target.longest
    _check(target, draft, start + blocks * (gamma + 1))
    drawn = 1 + draw_accepted(survival, gamma, (blocks + 1, target.batch), random)
    before, gains = drawn[0], drawn[1:]
    longest = start + int(gains[:-1].sum(axis=0).max()) + gamma + 1
    sampling = Sampling(temperature, top_k, top_p)
    decoding = _Decoding(target, draft, gamma, sampling, random, acceptance_law)
    if draft and gamma + 1 in before:
        decoding.fall_behind()
    target.prepare(gamma + 1, longest)
    if draft:
        for width in (1, 2):
            draft.prepare(width, longest)
    plan = iter(gains.tolist())
    wait(target.device)
    began = time.perf_counter()
    for _ in range(blocks):
        decoding.block(lambda _: next(plan))
    wait(target.device)
    seconds = time.perf_counter() - began
    runs = decoding.runs()
    return Timed(
        batch=target.batch,
        context=start,
        gamma=gamma,
        blocks=blocks,
        tokens=int(gains.sum()),
        seconds=seconds,
        target_s=sum(took for model, took in runs if model is target),
        draft_s=sum(took for model, took in runs if model is draft),
        draft_runs=decoding.draft_runs,
        wide_first_runs=decoding.wide_first_runs,
    )


@torch.inference_mode()
def speculate(
    target: RaggedModel,
    draft: RaggedModel,
    prompts: Sequence[Sequence[int]],
    gamma: int,
    max_new_tokens: int,
    temperature: float,
    random: np.random.Generator,
    acceptance_law: AcceptanceLaw = "ratio-test",
) -> list[list[int]]:
    """Decode a batch of prompts by the same blocks with real acceptance; the tokens of each row.

    Lossless (Leviathan23 Thm 3.5): each row follows the target alone, whatever the others do.  A
    row that has all its tokens is read on with the others and gains nothing.
    """
    gamma = integer("gamma", gamma)
    wanted = integer("max_new_tokens", max_new_tokens)
    target.prefill(prompts)
    draft.prefill(prompts)
    # The longest row, with all its tokens, may be read on with the others.
    _check(target, draft, target.longest + wanted + gamma + 1)
    decoding = _Decoding(target, draft, gamma, Sampling(temperature), random, acceptance_law)
    decoding.begin(prompts)
    texts: list[list[int]] = [[] for _ in prompts]

    def gains(accepted: list[int]) -> list[int]:
        return [
            min(count + 1, wanted - len(text))
            for count, text in zip(accepted, texts, strict=True)
        ]  # fmt: skip

    while min(map(len, texts)) < wanted:
        for text, tokens in zip(texts, decoding.block(gains), strict=True):
            text += tokens
    return texts


class _Decoding:
    """A batch between blocks, and what its runs cost so far."""

    def __init__(
        self,
        target: RaggedModel,
        draft: RaggedModel | None,
        gamma: int,
        sampling: Sampling,
        random: np.random.Generator,
        acceptance_law: AcceptanceLaw,
    ) -> None:
        check_choice("acceptance_law", acceptance_law, ACCEPTANCE_LAWS)
        self.target, self.draft, self.gamma = target, draft, gamma
        self.sampling = sampling
        self._drafting = Sampling(0.0) if acceptance_law == "greedy-drafts" else sampling
        # Otherwise drafts stand while they are equal to what the target draws.
        self._by_ratio = not sampling.greedy and acceptance_law != "exact-match"
        self.draft_runs = self.wide_first_runs = 0
        device = target.device
        # Marked before and after every run, of the models listed.
        self._clock, self._ran = Clock(device), list[RaggedModel]()
        self._random = torch.Generator(device).manual_seed(int(random.integers(2**63)))
        # The last two tokens of each row, made up until ``begin`` says what they are.
        self._last_two = torch.randint(
            target.vocabulary, (target.batch, 2), generator=self._random, device=device
        )
        # Whether a draft cache lacks two tokens of its row; then all lack two.
        self._behind = False

    def begin(self, prompts: Sequence[Sequence[int]]) -> None:
        """The rows end as these prompts do; the last token but one is not read in a first block."""
        ends = [[prompt[-1]] * 2 for prompt in prompts]
        self._last_two = torch.tensor(ends, device=self.target.device)

    def fall_behind(self) -> None:
        """As after a block that a row accepted all of."""
        assert self.draft is not None
        self.draft.rewind(1)
        self._behind = True

    def block(self, gains: Gains) -> list[list[int]]:
        """One block; the tokens that each row gained."""
        drafts, q = self._propose()
        ids = torch.cat([self._last_two[:, 1:], drafts], dim=1)
        logits = self._read(self.target, ids)
        if self.sampling.greedy:
            count, token = verify_greedy(logits, drafts)
        else:
            p = self.sampling.probabilities(logits)
            if self._by_ratio:
                q = p[:, :0] if q is None else q
                count, token = verify_lossless(p, q, drafts, self._random)
            else:
                count, token = verify_exact(p, drafts, self._random)
        # All that the host learns of a block, in one transfer.
        rows = torch.cat([drafts, token, count[:, None]], dim=1).tolist()
        accepted = [row[-1] for row in rows]
        gained = gains(accepted)
        self._settle(drafts, token, gained)
        return [
            [*row[:kept], row[self.gamma]][:gain]
            for row, kept, gain in zip(rows, accepted, gained, strict=True)
        ]

    def _propose(self) -> tuple[torch.Tensor, torch.Tensor | None]:
        """gamma draft tokens of each row, (B, gamma), and what they were drawn from."""
        drafts = [self._last_two[:, :0]]
        laws = []
        ids = self._last_two if self._behind else self._last_two[:, 1:]
        if self.draft is None:
            return drafts[0], None
        for _ in range(self.gamma):
            logits = self._read(self.draft, ids)
            self.draft_runs += 1
            self.wide_first_runs += ids.shape[1] - 1
            ids, law = self._draw(logits[:, -1])
            drafts.append(ids)
            if law is not None:
                laws.append(law)
        return torch.cat(drafts, dim=1), torch.stack(laws, dim=1) if laws else None

    def _draw(self, logits: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor | None]:
        """A draft token of each row, (B, 1), and its law, (B, V), where the ratio decides."""
        if self._drafting.greedy:
            token = logits.argmax(dim=-1, keepdim=True)
            return token, self._drafting.probabilities(logits) if self._by_ratio else None
        law = self._drafting.probabilities(logits)
        return draw_any(law, self._random), law if self._by_ratio else None

    def runs(self) -> list[tuple[RaggedModel, float]]:
        """Every run so far: of which model, and its seconds."""
        # Between two runs lies an interval that is nobody's.
        return list(zip(self._ran, self._clock.intervals()[::2], strict=True))

    def _read(self, model: RaggedModel, ids: torch.Tensor) -> torch.Tensor:
        """Logits of a run."""
        self._clock.mark()
        logits = model.read(ids)
        self._clock.mark()
        self._ran.append(model)
        return logits

    def _settle(self, drafts: torch.Tensor, token: torch.Tensor, gained: list[int]) -> None:
        """Cut the caches back to what each row gained, 0..gamma + 1 tokens."""
        gain = torch.tensor(gained)
        self.target.rewind(self.gamma + 1 - gain)
        if self.draft and self.gamma:
            self._behind = self.gamma + 1 in gained
            self.draft.rewind(self.gamma + self._behind - gain)
        text = torch.cat([self._last_two, drafts], dim=1)
        before = text.gather(1, gain[:, None].to(text.device))
        self._last_two = torch.cat([before, token], dim=1)


def draw_accepted(
    survival: Sequence[float], gamma: int, shape: tuple[int, int], random: np.random.Generator
) -> np.ndarray[tuple[int, ...], np.dtype[np.int64]]:
    """Numbers of accepted tokens J with P(J >= i) = S_i, i = 1..gamma, in an array of a shape."""
    if not gamma:
        return np.zeros(shape, dtype=np.int64)
    curve = SurvivalAcceptance(tuple(survival)).survival(gamma)[1:]
    reached: np.ndarray[tuple[int, ...], np.dtype[np.int64]] = (
        random.random(shape)[..., None] < curve
    ).sum(axis=-1)
    return reached


def _check(target: RaggedModel, draft: RaggedModel | None, needed: int) -> None:
    """The models must go together, and their caches hold ``needed`` tokens a row."""
    models = [target, draft] if draft else [target]
    if draft:
        if draft is target:
            raise InvalidArgumentError("draft must have caches of its own, got the target itself")
        for name in ("batch", "vocabulary", "known_lengths"):
            mine, theirs = getattr(target, name), getattr(draft, name)
            if mine != theirs:
                raise InvalidArgumentError(
                    f"draft must have the {name} of the target, {mine}, got {theirs}"
                )
    slots = min(model.slots for model in models)
    if needed > slots:
        raise InvalidArgumentError(
            f"slots ({slots}) are too few for texts that may grow to {needed} tokens; make the "
            "models with more, or decode fewer blocks"
        )
