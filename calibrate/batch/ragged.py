"""A causal model that reads a batch of sequences at once, each of a length of its own.

Rows of a batch accept different numbers of draft tokens, so a cache with one length for all of
them would have to be moved about after every block.  Here the keys and values of a row go where
that row's text ends, in tensors (B, H, slots, D) that are never moved, and a mask hides every
slot behind a query's own position: what a rewind leaves behind is never seen, and is written over
later.  Attention reads the slots up to the longest text, rounded up to a *bucket*, so that shapes
rarely change; they are what a recorded or compiled run is kept by.
"""

from __future__ import annotations

import gc
from collections.abc import Callable, Sequence
from typing import Any

import torch
from transformers.cache_utils import Cache

from calibrate.batch.cache import (
    BUCKET,
    Destination,
    RaggedLayer,
    check_model,
    grouped,
    ordinary_layers,
    round_up,
)
from calibrate.decode.engine import CachedModel
from calibrate.models.cache_argument import cache_argument
from specsim.checks import InvalidArgumentError, SpecsimError, integer

# Runs before a recording: libraries choose kernels and take their memory in the first ones.
_WARM_UP = 3
# Tokens of a prompt that are read at once.
_PIECE = 256
# Every pair of width and bucket is compiled; the default limit of 8 would end that silently.
_COMPILED_SHAPES = 512


class CompileError(SpecsimError):
    """A run that cannot be compiled or recorded; the message has the first line of the cause."""


class RaggedModel:
    """A causal model with static caches of a batch of sequences, each as long as it likes.

    lengths, known_lengths : tokens in the cache of each sequence, (B,), on the device of the model
        and on the host
    compiled : record every shape of run as a CUDA graph, or compile it where there is no CUDA;
        the first run of a shape is slow, see ``prepare``
    vocabulary : cuts the logits to the tokens that target and draft share

    Raises UnsupportedError for models whose caches are not one key and one value of every token,
    or which would read a row differently beside other rows than alone.
    """

    def __init__(
        self,
        model: Any,
        batch: int,
        slots: int,
        *,
        compiled: bool = False,
        vocabulary: int | None = None,
    ) -> None:
        self.model, self.compiled = model, compiled
        self.batch = integer("batch", batch, low=1)
        self.slots = integer("slots", slots, low=1, high=CachedModel(model).context)
        self.vocabulary: int = vocabulary or model.config.get_text_config().vocab_size
        self.device: torch.device = next(model.parameters()).device
        check_model(model, self.slots)
        with torch.inference_mode():
            room = round_up(self.slots)
            self._destination = Destination()
            self._layers = [
                RaggedLayer(layer.keys, layer.values, self.batch, room, self._destination)
                for layer in ordinary_layers(model)
            ]
            self._cache = Cache(layers=self._layers)
            self._cache_argument = cache_argument(model)
            self._slot = torch.arange(room, device=self.device)
            self.lengths = torch.zeros(self.batch, dtype=torch.long, device=self.device)
        # The host knows the lengths too, so that nothing has to wait for the device to say them.
        self.known_lengths = [0] * self.batch
        self._runs: dict[tuple[int, int], Callable[[torch.Tensor], torch.Tensor]] = {}
        self._pool: Any = None

    @property
    def longest(self) -> int:
        """Tokens in the longest cache."""
        return max(self.known_lengths)

    @torch.inference_mode()
    def fill(self, context: int, generator: torch.Generator) -> None:
        """Caches of ``context`` made-up tokens; the time of a run depends on no values."""
        context = integer("context", context, high=self.slots)
        for layer in self._layers:
            # Not zeros and nothing tiny: arithmetic on denormal numbers is slow on a CPU.
            layer.keys[:, :, :context].normal_(generator=generator)
            layer.values[:, :, :context].normal_(generator=generator)
        self._set([context] * self.batch)

    @torch.inference_mode()
    def cut(self, length: int) -> None:
        """Make every text so long, shorter or longer, of whatever its slots hold up to there."""
        self._set([integer("length", length, high=self.slots)] * self.batch)

    @torch.inference_mode()
    def prefill(self, prompts: Sequence[Sequence[int]]) -> None:
        """Read all but the last token of each prompt; prompts may differ in length."""
        if len(prompts) != self.batch:
            raise InvalidArgumentError(f"prompts must be {self.batch}, got {len(prompts)}")
        if not all(prompts):
            raise InvalidArgumentError("prompt is empty, expected at least one token")
        self._set([0] * self.batch)
        texts = [list(prompt[:-1]) for prompt in prompts]
        width = self._fits(max(map(len, texts)))
        # The filling lies behind the end of its row, where nothing looks.
        padded = [text + [0] * (width - len(text)) for text in texts]
        ids = torch.tensor(padded, dtype=torch.long, device=self.device)
        # The mask of a long text at once would be larger than the caches.
        for start in range(0, width, _PIECE):
            piece = ids[:, start : start + _PIECE]
            self._set([start] * self.batch)
            with grouped(self.model):
                self._step(piece, round_up(start + piece.shape[1]), keep=1)
        self._set([len(text) for text in texts])

    @torch.inference_mode()
    def read(self, ids: torch.Tensor) -> torch.Tensor:
        """One run over new tokens (B, n): logits (B, n, V), and n tokens more in every cache."""
        rows, width = ids.shape
        if rows != self.batch:
            raise InvalidArgumentError(f"ids must have {self.batch} rows, got {rows}")
        bucket = round_up(self._fits(width))
        logits = self._run(ids, bucket)
        self.lengths.add_(width)
        self.known_lengths = [length + width for length in self.known_lengths]
        return logits[..., : self.vocabulary]

    @torch.inference_mode()
    def rewind(self, tokens: torch.Tensor | int) -> None:
        """Drop the last tokens of each sequence, (B,) or one number for all.

        A tensor is best given on the CPU: one on an accelerator has to be waited for.
        """
        dropped = [tokens] * self.batch if isinstance(tokens, int) else tokens.tolist()
        left = [length - drop for length, drop in zip(self.known_lengths, dropped, strict=True)]
        if min(dropped) < 0 or min(left) < 0:
            raise InvalidArgumentError(
                "tokens to drop must be between 0 and the lengths of the caches "
                f"{self.known_lengths}, got {dropped}"
            )
        if any(dropped):
            amount = (
                tokens if isinstance(tokens, int) else tokens.to(self.device, non_blocking=True)
            )
            self.lengths.sub_(amount)
            self.known_lengths = left

    @torch.inference_mode()
    def prepare(self, width: int, longest: int) -> None:
        """Run once in every bucket that ``width`` tokens can meet until a text is ``longest``.

        What is compiled is compiled then, and libraries are warm.  The caches stay as they were.
        """
        ids = torch.zeros((self.batch, width), dtype=torch.long, device=self.device)
        first = self._fits(width)
        for bucket in range(round_up(first), round_up(min(longest, self.slots)) + 1, BUCKET):
            self._run(ids, bucket)

    def _set(self, lengths: list[int]) -> None:
        self.lengths.copy_(torch.tensor(lengths))
        self.known_lengths = lengths

    def _fits(self, width: int) -> int:
        """Tokens in the longest cache after ``width`` more."""
        longest = self.longest + width
        if longest > self.slots:
            raise InvalidArgumentError(
                f"slots ({self.slots}) are too few for {width} new tokens behind a text of "
                f"{self.longest}; make the model with at least {longest}"
            )
        return longest

    def _run(self, ids: torch.Tensor, bucket: int) -> torch.Tensor:
        with grouped(self.model):
            if not self.compiled:
                return self._step(ids, bucket)
            shape = (ids.shape[1], bucket)
            if shape not in self._runs:
                self._runs[shape] = self._compile(ids, bucket)
            return self._runs[shape](ids)

    def _step(self, ids: torch.Tensor, bucket: int, keep: int = 0) -> torch.Tensor:
        """Logits of new tokens (B, n), of the last ``keep`` at least; 0 is all."""
        at = self.lengths[:, None] + self._slot[: ids.shape[1]]
        hidden = self._slot[:bucket] > at[:, :, None]
        mask = torch.zeros_like(hidden, dtype=self._layers[0].keys.dtype)
        mask.masked_fill_(hidden, -torch.inf)
        self._destination.at, self._destination.bucket = at, bucket
        logits: torch.Tensor = self.model(
            input_ids=ids,
            position_ids=at,
            attention_mask=mask[:, None],
            use_cache=True,
            logits_to_keep=keep,
            **{self._cache_argument: self._cache},
        ).logits
        return logits

    def _compile(self, ids: torch.Tensor, bucket: int) -> Callable[[torch.Tensor], torch.Tensor]:
        """The run for one shape, which has then run once or more."""

        def step(ids: torch.Tensor) -> torch.Tensor:
            return self._step(ids, bucket)

        if self.device.type == "cuda":
            # An ordinary run, which fails as one does: nothing is broken where memory is short.
            _warm_up(step, ids)
        try:
            if self.device.type == "cuda":
                self._pool = self._pool or torch.cuda.graph_pool_handle()
                return _Recorded(step, ids, self._pool)
            at_once = torch.compile(step, dynamic=False, fullgraph=True)
            # Tensors made outside inference mode count as another kind, to be compiled for anew.
            held = ids.clone()
            with torch._dynamo.config.patch(recompile_limit=_COMPILED_SHAPES):
                at_once(held)
            return lambda ids: at_once(held.copy_(ids))
        # Compilers and drivers raise errors of many kinds, all meaning that this cannot be done.
        except Exception as error:
            reason = (str(error).strip() or type(error).__name__).splitlines()[0]
            raise CompileError(
                f"a run of {self.batch} x {ids.shape[1]} tokens cannot be compiled: {reason}"
            ) from error


def release_unused(device: torch.device) -> None:
    """Give the device the memory of models that nobody uses any more.

    A recorded run and its model refer to each other, so they stay until somebody looks for them.
    """
    if device.type == "cuda":
        gc.collect()
        torch.cuda.empty_cache()


def _warm_up(step: Callable[[torch.Tensor], torch.Tensor], ids: torch.Tensor) -> None:
    """Runs beside the stream of the others, as a recording is."""
    with torch.cuda.device(ids.device):
        aside = torch.cuda.Stream()  # type: ignore[no-untyped-call]
        aside.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(aside):
            for _ in range(_WARM_UP):
                step(ids)
        torch.cuda.current_stream().wait_stream(aside)


class _Recorded:
    """A run as a CUDA graph: its kernels are started by one call, not one by one from Python.

    What is recorded reads ``ids``, the lengths and the caches from where they lay at first.  The
    graphs of a model share their memory, so logits are copied out before another one runs.
    """

    def __init__(
        self, step: Callable[[torch.Tensor], torch.Tensor], ids: torch.Tensor, pool: Any
    ) -> None:
        with torch.cuda.device(ids.device):
            self._ids = ids.clone()
            self._graph = torch.cuda.CUDAGraph()
            with torch.cuda.graph(self._graph, pool=pool):
                self._logits = step(self._ids)

    def __call__(self, ids: torch.Tensor) -> torch.Tensor:
        self._ids.copy_(ids)
        self._graph.replay()
        return self._logits.clone()
