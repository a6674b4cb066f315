"""What the decoders share: a model with its cache, run counts, and the result of a request.

Invariant between blocks: a cache holds every token of the request but the last one, which the
next run reads first.  The reading of the prompt's other tokens (``prefill``) is not decoding.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

import torch
from transformers import DynamicCache
from transformers.cache_utils import DynamicSlidingWindowLayer

from calibrate.models.cache_argument import cache_argument
from calibrate.models.sampling import Sampling
from specsim.checks import SpecsimError, UnsupportedError

# What configurations call the longest text: most the first, MPT the second, BLOOM the third.
_LONGEST = ("max_position_embeddings", "max_seq_len", "seq_length")


class DecodingError(SpecsimError):
    """A request that cannot be decoded; the message says why."""


@dataclass
class Runs:
    """Decoding runs of one model: how many, by width, and how long the model took.

    each : new tokens and seconds of every run, in order
    """

    widths: Counter[int] = field(default_factory=Counter)
    seconds: float = 0.0
    each: list[tuple[int, float]] = field(default_factory=list)

    @property
    def count(self) -> int:
        return self.widths.total()

    def add(self, width: int, seconds: float) -> None:
        """One run over ``width`` new tokens."""
        self.widths[width] += 1
        self.seconds += seconds
        self.each.append((width, seconds))

    def __add__(self, other: Runs) -> Runs:
        """Of two models; their order among each other is not known."""
        return Runs(
            self.widths + other.widths, self.seconds + other.seconds, self.each + other.each
        )


class Counted(Protocol):
    """What runs during a request and is counted: a model, or a drafter without one.

    context : the longest text that it can read
    reads_states : whether it reads the target's hidden states, which then are kept
    """

    name: str
    runs: Runs
    context: int
    reads_states: bool

    def prefill(self, prompt: Sequence[int], written: Sequence[int] = ()) -> None:
        """Start a request: forget the last one and its counts, and read what there is of it."""


class CachedModel:
    """A causal model with the key-value cache of one request.

    Counts every decoding run.  On an accelerator each run is waited for only when ``timed``,
    since waiting costs time itself.  ``vocabulary`` cuts the logits to the tokens that target and
    draft share: models of one tokenizer may be padded to different sizes.  ``name`` is what the
    runs are counted under where the model drafts.

    keeps_states : whether runs keep the last hidden states, behind the last norm; set it before
        the prompt is read
    """

    reads_states = False

    def __init__(
        self,
        model: Any,
        vocabulary: int | None = None,
        timed: bool = True,
        name: str = "draft",
    ) -> None:
        self.model, self.timed, self.name = model, timed, name
        self.vocabulary: int = vocabulary or model.config.get_text_config().vocab_size
        self.device = next(model.parameters()).device
        self.context = self._longest_text()
        self.keeps_states = False
        self._cache_argument = cache_argument(model)
        self.reset()

    def reset(self) -> None:
        """Forget the request and the counts."""
        self.cache = self._empty_cache()
        self._states: list[torch.Tensor] = []
        self.runs = Runs()

    def prefill(self, prompt: Sequence[int], written: Sequence[int] = ()) -> None:
        """Read all but the last token of the prompt and what is written behind it; not counted."""
        self.reset()
        text = [*prompt, *written]
        if len(text) > 1:
            ids = torch.tensor([text[:-1]], device=self.device)
            self._forward(ids, keep=1)
            wait(self.device)
            self._check_croppable()
        # Layers that do not hold the whole text keep what a rejection may want back only if told.
        if any(self.cache.is_sliding) or any(getattr(self.cache, "is_linear", ())):
            self.cache.activate_past_recording()

    def read(self, ids: torch.Tensor, **inputs: torch.Tensor) -> torch.Tensor:
        """One decoding run over new tokens of shape (1, n); logits of shape (n, V).

        inputs : what else the model is told, by the model's own names, where the tokens do not
            simply follow those in the cache
        """
        start = time.perf_counter()
        logits = self._forward(ids, keep=0, **inputs)
        if self.timed:
            wait(self.device)
        self.runs.add(ids.shape[1], time.perf_counter() - start)
        return logits[0, :, : self.vocabulary]

    def forget(self, tokens: int) -> None:
        """Drop the last ``tokens`` tokens from the cache."""
        if tokens:
            self._check_croppable()
            for layer in getattr(self.cache, "self_attention_cache", self.cache).layers:
                forget_last(layer, tokens)
            if self._states:
                self._states = [self.states()[:-tokens]]

    def _check_croppable(self) -> None:
        """Once a text was read: before, no layer knows what it will keep."""
        if not getattr(self.cache, "is_croppable", True):  # earlier ones do not say
            raise UnsupportedError(
                f"{type(self.model).__name__} keeps a state of the whole text (a recurrent or "
                "linear-attention layer), from which rejected drafts cannot be taken back here"
            )

    def states(self) -> torch.Tensor:
        """The last hidden state of every token in the cache, (n, h), where they are kept."""
        if not self._states:
            width: int = self.model.config.get_text_config().hidden_size
            return torch.empty((0, width), device=self.device, dtype=self.model.dtype)
        self._states = [torch.cat(self._states)]
        return self._states[0]

    @property
    def turned_anew(self) -> int | None:
        """Tokens beyond which the model turns the positions of a whole text in another way; None:
        it never does.
        """
        config = self.model.config.get_text_config()
        turning = getattr(config, "rope_parameters", None) or {}
        if turning.get("rope_type") != "longrope":
            return None
        border: int | None = turning.get("original_max_position_embeddings")
        return border

    def _longest_text(self) -> int:
        config = self.model.config.get_text_config()
        for name in _LONGEST:
            longest = getattr(config, name, None)
            if isinstance(longest, int) and longest > 0:
                return longest
        raise UnsupportedError(
            f"{type(self.model).__name__} does not say how long a text it reads: its config.json "
            f"has none of {', '.join(_LONGEST)}"
        )

    def _empty_cache(self) -> Any:
        return DynamicCache(config=self.model.config)

    @torch.inference_mode()
    def _forward(self, ids: torch.Tensor, keep: int, **inputs: torch.Tensor) -> torch.Tensor:
        """Logits (1, n, V) of new tokens (1, n), of the last ``keep`` at least; 0 is all."""
        wanted = {"output_hidden_states": True} if self.keeps_states else {}
        output = self.model(
            input_ids=ids,
            use_cache=True,
            logits_to_keep=keep,
            **{self._cache_argument: self.cache},
            **wanted,
            **inputs,
        )
        if self.keeps_states:
            self._states.append(output.hidden_states[-1][0])
        logits: torch.Tensor = output.logits
        return logits


def forget_last(layer: Any, tokens: int) -> None:
    """Drop the last tokens of one layer.

    A sliding layer, asked itself, would keep no more than its window needs for the next run, so
    that of what is dropped after that something is missing; what of its keys a run may see it tells
    in any case.
    """
    if type(layer) is DynamicSlidingWindowLayer and layer.is_initialized:
        layer.keys, layer.values = layer.keys[:, :, :-tokens], layer.values[:, :, :-tokens]
        layer.cumulative_length -= tokens
    else:
        layer.crop(-tokens)


def wait(device: torch.device) -> None:
    """Until everything queued on the device is done."""
    if device.type != "cpu":
        torch.accelerator.synchronize(device)


@dataclass(frozen=True)
class Decoded:
    """One request, decoded.

    tokens : emitted tokens, at most as many as asked for, end-of-text included
    accepted : draft tokens accepted in each block, before the request's end cuts it
    drafted : draft tokens proposed in each block
    target : decoding runs of the target
    drafts : those of everything that drafts, by name
    block_s : wall-clock seconds of each block; the reading of the prompt is in none
    """

    tokens: list[int]
    accepted: list[int]
    drafted: list[int]
    target: Runs
    drafts: Mapping[str, Runs]
    block_s: list[float]

    @property
    def draft(self) -> Runs:
        """Decoding runs of all drafters together."""
        return sum(self.drafts.values(), Runs())

    @property
    def seconds(self) -> float:
        """Of all blocks."""
        return sum(self.block_s)

    @property
    def calls(self) -> int:
        """Target calls."""
        return self.target.count

    @property
    def rejections(self) -> int:
        """Blocks in which a draft token was replaced: BiLD's rollbacks."""
        blocks = zip(self.accepted, self.drafted, strict=True)
        return sum(accepted < drafted for accepted, drafted in blocks)

    @property
    def overhead_s(self) -> float:
        """Host seconds outside the model runs."""
        return self.seconds - self.target.seconds - self.draft.seconds


@dataclass(frozen=True, eq=False)
class DecodeRequest:
    """What is asked of a decoder, whichever it is.

    prompt : at least one token
    limit : the most tokens to emit, >= 0
    sampling : temperature and filters of every token drawn
    random : draws them, on the device of the models; temperature 0 draws nothing
    end_of_text : tokens behind which the text ends, none to go on to the limit
    written : tokens behind the prompt that are there already and do not count against the limit
    """

    prompt: Sequence[int]
    limit: int
    sampling: Sampling
    random: torch.Generator
    end_of_text: frozenset[int] = frozenset()
    written: Sequence[int] = ()

    def __post_init__(self) -> None:
        if not self.prompt:
            raise DecodingError("prompt is empty, expected at least one token")
        if self.limit < 0:
            raise DecodingError(f"limit must be >= 0, got {self.limit}")

    @property
    def text(self) -> list[int]:
        """The prompt and what is written behind it."""
        return [*self.prompt, *self.written]

    def require_greedy(self, what: str) -> None:
        """Refuse to sample with a decoder that cannot."""
        if not self.sampling.greedy:
            raise UnsupportedError(
                f"{what} is decoded at temperature 0, got {self.sampling.temperature:g}"
            )


class RequestState:
    """A request while it is decoded: what was emitted, what is still to come, when it ends."""

    def __init__(self, request: DecodeRequest, target: CachedModel, *drafts: Counted) -> None:
        models = [target, *drafts]
        _check(request, models)
        self.request = request
        self.tokens: list[int] = []
        self.accepted: list[int] = []
        self.drafted: list[int] = []
        self.done = request.limit == 0
        target.keeps_states = any(draft.reads_states for draft in drafts)
        for model in models:
            model.prefill(request.prompt, request.written)
        self._target = target.runs
        self._drafts = {draft.name: draft.runs for draft in drafts}

    @property
    def to_go(self) -> int:
        return self.request.limit - len(self.tokens)

    def emit(self, tokens: list[int], accepted: int = 0, drafted: int = 0) -> None:
        """End a block with these tokens, cut at the limit and behind the first end-of-text."""
        tokens, end = tokens[: self.to_go], self.request.end_of_text
        ends = [place for place, token in enumerate(tokens, start=1) if token in end]
        if ends:
            tokens = tokens[: ends[0]]
            self.done = True
        self.tokens += tokens
        self.accepted.append(accepted)
        self.drafted.append(drafted)
        self.done = self.done or self.to_go == 0

    def result(self, block_s: list[float]) -> Decoded:
        return Decoded(
            self.tokens, self.accepted, self.drafted, self._target, self._drafts, block_s
        )


class Decoding:
    """A decoder at work on a request; can be stopped after any block and taken up again.

    ``blocks`` emits one block into the state each time it is advanced.
    """

    def __init__(self, state: RequestState, blocks: Iterator[None]) -> None:
        self.state = state
        self._blocks = blocks
        self._block_s: list[float] = []

    def advance(self, tokens: int) -> bool:
        """Decode until so many tokens are emitted in all; whether there is more to decode."""
        while len(self.state.tokens) < tokens and not self.state.done:
            start = time.perf_counter()
            next(self._blocks)
            self._block_s.append(time.perf_counter() - start)
        return not self.state.done

    def finish(self) -> Decoded:
        """Decode to the end."""
        self.advance(self.state.request.limit)
        return self.state.result(self._block_s)


def _check(request: DecodeRequest, models: Sequence[Counted]) -> None:
    """A request must fit the models' contexts, each with a cache of its own."""
    if len({id(model) for model in models}) < len(models):
        raise DecodingError("each model needs a cache of its own: wrap it in its own CachedModel")
    names = [model.name for model in models[1:]]
    if len(set(names)) < len(names):
        raise DecodingError(f"drafters need names of their own, got {', '.join(names)}")
    context = min(model.context for model in models)
    if len(request.text) + request.limit > context:
        raise DecodingError(
            f"prompt ({len(request.text)} tokens) and limit ({request.limit}) exceed the context "
            f"of the models ({context})"
        )
    for model in models:
        border = getattr(model, "turned_anew", None)
        # Of a prompt the last token is read with the first run.
        if border and len(request.text) - 1 <= border < len(request.text) + request.limit:
            raise UnsupportedError(
                f"the {model.name} turns the positions of all tokens otherwise once a text has "
                f"more than {border} (longrope), which a cache of before cannot follow: prompt "
                f"({len(request.text)} tokens) and limit ({request.limit}) must stay on one side"
            )
