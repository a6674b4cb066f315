"""A recorded text and the models that read it: what the replays of every scheme are made from.

Implements ``specsim.predict.replay.recorded.RecordedText``.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np
import torch

from calibrate.decode.build import build_drafter
from calibrate.decode.drawing import Drawing
from calibrate.decode.engine import CachedModel, DecodeRequest
from calibrate.decode.plain import plain
from calibrate.decode.text import Text
from calibrate.measure.trace import OFF_TEXT, generator, ranks
from calibrate.models.eagle import unrolled
from calibrate.models.pool import ModelSet
from calibrate.models.sampling import Sampling
from specsim.acceptance import AcceptanceLaw
from specsim.checks import Floats, InvalidArgumentError, UnsupportedError
from specsim.laws import TARGET
from specsim.schemes.drafters import CopyDrafter, EagleDrafter, MaskDrafter
from specsim.traces import LARGEST_RANK

# Places of a text where a reviewer is let write on by itself, and how far: beyond any proposal.
_OFF_TEXT_PLACES = 6
_OFF_TEXT_TOKENS = 24
# Weight of places where nothing is ever rejected, in case there are no others.
_NEVER = 1e-9


@dataclass(frozen=True, eq=False)
class ReadableText:
    """A prompt, and the text that the target emitted behind it under some sampling.

    tokens : the text, at most ``limit`` tokens, end-of-text included
    model_set : who reads it; its caches hold one text at a time
    before : tokens between the prompt and the text, in which it began
    """

    prompt: Sequence[int]
    tokens: Sequence[int]
    limit: int
    sampling: Sampling
    model_set: ModelSet
    before: Sequence[int] = ()
    # What was read or written already, so that it is not again.
    _at_tokens: dict[str, Floats] = field(default_factory=dict, init=False)
    _off_text: dict[tuple[str, str | int], list[ReadableText]] = field(
        default_factory=dict, init=False
    )
    _chosen: dict[str, list[int]] = field(default_factory=dict, init=False)
    _states: list[torch.Tensor] = field(default_factory=list, init=False)

    def rows(self, name: str) -> torch.Tensor:
        """Distributions of a model, or of counts, where each token of the text came; (T, V).

        Read anew each time: kept for every model they would fill the memory.
        """
        return self.sampling.probabilities(self._logits(name))

    def _logits(self, name: str) -> torch.Tensor:
        size = len(self.tokens)
        if name in ("bigram", "unigram"):
            counts = self.model_set.pair_counts(name)
            laws = np.array(
                [
                    counts.bigram(token) if name == "bigram" else counts.unigram
                    for token in [*self._front, *self.tokens][-size - 1 : -1]
                ]
            )
            target = self.model_set.target
            if laws.shape[1] > target.vocabulary:
                raise InvalidArgumentError(
                    f"pair counts must be of at most {target.vocabulary} tokens, those that all "
                    f"models share, got {laws.shape[1]}"
                )
            logits = torch.full((size, target.vocabulary), -torch.inf)
            logits[:, : laws.shape[1]] = torch.from_numpy(np.log(laws))
            return logits.to(target.device)
        model = self._model(name)
        return self._read_on(model, (), self.tokens[:-1])

    @property
    def _front(self) -> list[int]:
        """All tokens in front of the text."""
        return [*self.prompt, *self.before]

    @torch.inference_mode()
    def _read_on(
        self, model: CachedModel, text: Sequence[int], tokens: Sequence[int]
    ) -> torch.Tensor:
        """The model's logits (n + 1, V) for each of n tokens and the one behind them.

        text : what stands between the front and the tokens
        """
        model.prefill(self.prompt, [*self.before, *text])
        last = [*self._front, *text][-1]
        return model.read(torch.tensor([[last, *tokens]], device=model.device))

    def _model(self, name: str) -> CachedModel:
        return self.model_set.target if name == TARGET else self.model_set[name]

    def at_tokens(self, name: str) -> Floats:
        """The probability of each token of the text by a model, or by counts, (T,)."""
        if name not in self._at_tokens:
            rows = self.rows(name)
            here = torch.tensor(self.tokens, device=rows.device)[:, None]
            self._at_tokens[name] = rows.gather(1, here)[:, 0].double().cpu().numpy()
        return self._at_tokens[name]

    def chosen(self, name: str) -> list[int]:
        """The most probable token of a model, or of counts, at every place, (T,)."""
        if name not in self._chosen:
            self._chosen[name] = self._logits(name).argmax(-1).tolist()
        return self._chosen[name]

    def accepted(self, drafter: str, verifier: str, law: AcceptanceLaw = "ratio-test") -> Floats:
        """a_t under a law of acceptance, shape (T,).

        min(1, d(x_t) / v(x_t)), zero where the verifier never says x_t; of greedy drafts
        1[x_t = argmax d]; by exact match d(x_t).
        """
        if law == "greedy-drafts":
            return np.equal(self.chosen(drafter), self.tokens).astype(np.float64)
        if law == "exact-match":
            return self.at_tokens(drafter)
        draft, verified = (self.at_tokens(name) for name in (drafter, verifier))
        rates = np.divide(draft, verified, out=np.zeros_like(draft), where=verified > 0)
        return np.asarray(np.minimum(rates, 1.0))

    def ranks_by_depth(self, drafter: EagleDrafter) -> np.ndarray:
        """R[s, j], the rank of token x_{s+j} in a head's distribution at depth j, from 0, of a
        block that starts at s: (T, K) of uint8, 1 for its top token and 255 for all from there on.

        0 where there is no such token behind the start, or no feature in front of it.  Whether
        a greedy draft is accepted, and any tree of its top tokens, follows from the ranks.
        """
        found = np.zeros((len(self.tokens), drafter.tokens), dtype=np.uint8)
        for depth, first, logits, here in self._by_depth(drafter):
            place = ranks(logits, here[:, 0]).clamp(max=LARGEST_RANK)
            found[first : first + len(place), depth] = place.cpu().numpy()
        return found

    def accepted_by_depth(
        self, drafter: EagleDrafter, verifier: str, law: AcceptanceLaw = "ratio-test"
    ) -> tuple[Floats, np.ndarray]:
        """a_{s,j} of a head under a law of acceptance, (T, K), and how much it proposes, (T,).

        As ``accepted``, of the token j behind start s, given that all drafts before it were
        accepted.  Raises UnsupportedError where another than the head's target verifies.
        """
        if verifier != TARGET:
            raise UnsupportedError(
                f"{drafter.name} reads the target's hidden states: {verifier} cannot review it"
            )
        found = np.zeros((len(self.tokens), drafter.tokens))
        if self.sampling.greedy or law == "greedy-drafts":
            found[:] = self.ranks_by_depth(drafter) == 1
        else:
            verified = self.at_tokens(verifier)
            for depth, first, logits, here in self._by_depth(drafter):
                rows = self.sampling.probabilities(logits).gather(1, here)[:, 0]
                rates = rows.double().cpu().numpy()
                if law == "ratio-test":
                    target = verified[first + depth :]
                    rates = np.divide(rates, target, out=np.zeros_like(rates), where=target > 0)
                found[first : first + len(rates), depth] = np.minimum(rates, 1.0)
        lengths = np.full(len(self.tokens), drafter.tokens)
        lengths[: self._first_start] = 0
        return found, lengths

    @property
    def _first_start(self) -> int:
        """The first place of the text with a feature in front of the token in front of it."""
        return max(2 - len(self._front), 0)

    @torch.inference_mode()
    def _by_depth(
        self, drafter: EagleDrafter
    ) -> Iterator[tuple[int, int, torch.Tensor, torch.Tensor]]:
        """A head on this text, at every depth of blocks that start at every place of it.

        Yields depth, from 0, the first start, the head's logits (n, V) for the token at that depth
        of n starts one behind the other, and those tokens, (n, 1).
        """
        head, read = self.model_set.head(drafter.name), [*self._front, *self.tokens]
        first = self._first_start
        if not drafter.tokens or len(self.tokens) <= first:
            return
        ids = torch.tensor([read[:-1]], device=head.model.device)
        # Features of all but the last token that is read: it has none behind it.
        features = self._target_states(read[:-2])[None]
        before = len(self._front) + first - 2
        logits = unrolled(head.model, ids, features, drafter.tokens, before)
        text = torch.tensor(self.tokens, device=head.model.device)[:, None]
        for depth, rows in enumerate(logits):
            yield depth, first, rows[0, :, : head.target.vocabulary], text[first + depth :]

    def _target_states(self, read: Sequence[int]) -> torch.Tensor:
        """The target's last hidden states at tokens from the first of the prompt on, (n, h)."""
        if not self._states:
            target = self.model_set.target
            target.keeps_states = True
            target.reset()
            target.read(torch.tensor([read], device=target.device))
            self._states.append(target.states())
            target.keeps_states = False
        return self._states[0]

    def off_text_samples(
        self, reviewer: str, verifier: str, place: int | None
    ) -> list[ReadableText]:
        """Texts of a reviewer's own that begin with a token that its verifier rejects.

        place : at temperature 0 the reviewer writes one text there, if it fits.  None is for
            places drawn as rejections come, with a first token drawn from what is rejected,
            norm(max(0, r - v)); raises UnsupportedError where the context has no room for any
        """
        if place is None:
            return self._anywhere(reviewer, verifier)
        return self._there(reviewer, place) if self.sampling.greedy else []

    def _anywhere(self, reviewer: str, verifier: str) -> list[ReadableText]:
        key = reviewer, verifier
        if key not in self._off_text:
            size, model = len(self.tokens), self.model_set[reviewer]
            own, verified = self.rows(reviewer), self.rows(verifier)
            rejected = 1 - self.accepted(reviewer, verifier) + _NEVER
            random = np.random.default_rng([OFF_TEXT, size])
            places = random.choice(
                size, min(size, _OFF_TEXT_PLACES), replace=False, p=rejected / rejected.sum()
            )
            found = []
            for place in sorted(places.tolist()):
                draws = generator(model.device, OFF_TEXT, place)
                excess = (own[place] - verified[place]).clamp(min=0)
                weights = excess if excess.sum() > 0 else own[place]
                first = int(torch.multinomial(weights, 1, generator=draws))
                found += self._written(reviewer, place, first, draws)
            if not found:
                raise UnsupportedError(
                    f"{reviewer} has no room behind the prompt for a text of its own, in a context "
                    f"of {model.context} tokens"
                )
            self._off_text[key] = found
        return self._off_text[key]

    def _there(self, reviewer: str, place: int) -> list[ReadableText]:
        key = reviewer, place
        if key not in self._off_text:
            draws = generator(self.model_set[reviewer].device, OFF_TEXT, place)
            written = self._written(reviewer, place, self.chosen(reviewer)[place], draws)
            self._off_text[key] = written
        return self._off_text[key]

    def _written(
        self, reviewer: str, place: int, first: int, draws: torch.Generator
    ) -> list[ReadableText]:
        """The text of a model's own from a place and this token on; none without room for it."""
        model, text = self.model_set[reviewer], self.tokens[:place]
        room = model.context - len(self._front) - place
        limit = min(_OFF_TEXT_TOKENS, room - _OFF_TEXT_TOKENS)
        if limit < 1:
            return []
        before = [*self.before, *text]
        request = DecodeRequest(
            self.prompt, limit - 1, self.sampling, draws, written=[*before, first]
        )
        written = [first, *plain(model, request).finish().tokens]
        return [ReadableText(self.prompt, written, limit, self.sampling, self.model_set, before)]

    @torch.inference_mode()
    def proposals(self, drafter: CopyDrafter | MaskDrafter) -> list[list[int]]:
        """What a drafter whose proposal follows from its place proposes before each token."""
        target, built = self.model_set.target, build_drafter(drafter, self.model_set)
        for source in built.sources:
            source.prefill(self._front)
        capacity = len(self._front) + len(self.tokens) + drafter.tokens
        text = Text(self._front, capacity, target.vocabulary, target.device)
        built.begin(text)
        drawing = Drawing(Sampling(0.0), torch.Generator(), rows=False)
        proposed = []
        for token in self.tokens:
            start = len(text)
            built.propose(drafter.tokens, drawing)
            proposed.append(list(text.tokens()[start:]))
            text.cut(start)
            text.push_all([token])
        return proposed

    def behind(self, place: int, proposed: Sequence[int]) -> torch.Tensor:
        """The target's logits for each of n tokens behind the text before ``place``; (n, V)."""
        return self._read_on(self.model_set.target, self.tokens[:place], proposed[:-1])

    def respond(self, name: str, request: DecodeRequest) -> tuple[list[int], Floats]:
        """A model's own answer to a request, and the log probability of each of its tokens.

        The logarithms are of its distribution at temperature 1, whatever tokens are drawn from.
        """
        seen: list[torch.Tensor] = []
        tokens = plain(self.model_set[name], request, seen.append).finish().tokens
        logs = torch.cat(seen).float().log_softmax(-1)
        chosen = logs.gather(1, torch.tensor(tokens, device=logs.device)[:, None])
        return tokens, np.asarray(chosen[:, 0].double().cpu().numpy())
