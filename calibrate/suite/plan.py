"""What the battery measures, at full size and at one that a CPU core does in a minute."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from specsim.hardware import read_config

SEED = 23
TEMPERATURES = (0.0, 1.0)


@dataclass(frozen=True)
class Gpt:
    """A decoder of the kind of GPT-2, trained with AdamW at ``rate``."""

    layers: int
    width: int
    heads: int
    feed_forward: int
    rate: float


@dataclass(frozen=True)
class PairPlan:
    """A pair that is trained, and what is measured of it.

    target, draft : Leviathan23 section 4.2
    corpus_bytes, tokenizer_bytes : most text to train the models and the tokenizer on
    window, windows : tokens of a window of text, and windows of a step
    warm_up : steps until the full learning rate
    target_s, draft_s : seconds of training at most
    requests, prompt_tokens, new_tokens : the traces
    decoded : prompts that are decoded speculatively for real
    contexts : of the grid of run times; forced decoding starts at the first
    repeats, turns : of the grid, and of forced decoding
    """

    target: Gpt
    draft: Gpt
    vocabulary: int
    corpus_bytes: int
    tokenizer_bytes: int
    window: int
    windows: int
    warm_up: int
    target_s: float
    draft_s: float
    requests: int
    prompt_tokens: int
    new_tokens: int
    decoded: int
    gamma_max: int
    contexts: tuple[int, ...]
    repeats: int
    turns: int


@dataclass(frozen=True)
class CostPlan:
    """A pair of shapes with random weights, and what is measured of it.

    temperatures : at which host time is measured
    modes : what to measure where there is CUDA, best first
    forced : batches of forced decoding by mode; at batch 1 at all ``temperatures``
    repeats, turns : of the grid and of forced decoding, by mode
    """

    name: str
    target: str
    draft: str
    batches: tuple[int, ...]
    contexts: tuple[int, ...]
    gamma_max: int
    temperatures: tuple[float, ...]
    modes: tuple[str, ...]
    forced: Mapping[str, tuple[int, ...]]
    repeats: Mapping[str, int]
    turns: Mapping[str, int]
    shrunk: bool = False

    def repeats_at(self, mode: str, batch: int) -> int:
        """Turns of a cell of the grid."""
        return _fewer(self.repeats[mode], batch)

    def turns_at(self, mode: str, batch: int) -> int:
        """Turns of a cell of forced decoding."""
        return _fewer(self.turns[mode], batch)

    def config(self, shape: str) -> dict[str, Any]:
        """The config.json of a shape; when ``shrunk``, of a small one of its kind."""
        config = read_config(shape)
        if not self.shrunk:
            return config
        return {**config, **{key: _SMALL[key] for key in _SMALL if key in config}}


def _fewer(turns: int, batch: int) -> int:
    """Large batches take longest, and differ least from turn to turn."""
    return max(turns - 1, 1) if batch >= _LARGE_BATCH else turns


_LARGE_BATCH = 32

_SMALL = {
    "hidden_size": 32,
    "intermediate_size": 64,
    "moe_intermediate_size": 32,
    "num_experts": 4,
    "num_experts_per_tok": 2,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 8,
    "vocab_size": 128,
    "max_position_embeddings": 512,
    "rope_scaling": None,
    "max_window_layers": 2,
    "bos_token_id": 0,
    "eos_token_id": 0,
}


@dataclass(frozen=True)
class Plan:
    """The battery; ``alpha`` is the acceptance that forced decoding is given."""

    pair: PairPlan
    costs: tuple[CostPlan, ...]
    alpha: float = 0.8

    def cost(self, name: str) -> CostPlan:
        return next(plan for plan in self.costs if plan.name == name)


_BATCHES = (1, 2, 4, 8, 16, 32, 64, 128)
_SHAPES = {
    "8b-1b": ("llama-3.1-8b", "llama-3.2-1b"),
    "32b-0.6b": ("qwen3-32b", "qwen3-0.6b"),
    "30b-a3b-0.6b": ("qwen3-30b-a3b", "qwen3-0.6b"),
}


def _costs(name: str, **given: Any) -> CostPlan:
    target, draft = _SHAPES[name]
    usual: dict[str, Any] = {
        "batches": _BATCHES,
        "contexts": (512, 4096),
        "gamma_max": 8,
        "temperatures": (0.0,),
        "modes": ("compiled",),
        "forced": {},
        "repeats": {"compiled": 3, "eager": 2},
        "turns": {"compiled": 4, "eager": 2},
    }
    return CostPlan(name, target, draft, **{**usual, **given})


FULL = Plan(
    pair=PairPlan(
        target=Gpt(layers=12, width=768, heads=12, feed_forward=3072, rate=6e-4),
        draft=Gpt(layers=2, width=256, heads=4, feed_forward=1024, rate=2e-3),
        vocabulary=8192,
        corpus_bytes=64_000_000,
        tokenizer_bytes=24_000_000,
        window=512,
        windows=64,
        warm_up=100,
        target_s=240.0,
        draft_s=120.0,
        requests=64,
        prompt_tokens=48,
        new_tokens=128,
        decoded=12,
        gamma_max=8,
        # Both, and what a stretch of blocks adds, lie in one bucket of the caches each.
        contexts=(132, 384),
        repeats=4,
        turns=8,
    ),
    costs=(
        _costs(
            "8b-1b",
            temperatures=TEMPERATURES,
            modes=("compiled", "eager"),
            forced={"compiled": _BATCHES[:-1], "eager": (1,)},
        ),
        _costs("32b-0.6b", repeats={"compiled": 2, "eager": 1}),
        _costs("30b-a3b-0.6b", repeats={"compiled": 2, "eager": 1}),
    ),
)

_FEW: dict[str, Any] = {
    "batches": (1, 2),
    "contexts": (16, 40),
    "gamma_max": 2,
    "repeats": {"compiled": 1, "eager": 1},
    "turns": {"compiled": 2, "eager": 2},
    "shrunk": True,
}

TINY = Plan(
    pair=PairPlan(
        target=Gpt(layers=2, width=48, heads=3, feed_forward=96, rate=3e-3),
        draft=Gpt(layers=1, width=32, heads=2, feed_forward=64, rate=3e-3),
        vocabulary=320,
        corpus_bytes=1_200_000,
        tokenizer_bytes=60_000,
        window=128,
        windows=4,
        warm_up=5,
        target_s=1.0,
        draft_s=0.5,
        requests=4,
        prompt_tokens=12,
        new_tokens=24,
        decoded=2,
        gamma_max=2,
        contexts=(20, 40),
        repeats=1,
        turns=2,
    ),
    costs=(
        _costs(
            "8b-1b",
            **_FEW,
            temperatures=TEMPERATURES,
            modes=("compiled", "eager"),
            forced={"compiled": (1, 2), "eager": (1, 2)},
        ),
        _costs("30b-a3b-0.6b", **_FEW),
    ),
)
