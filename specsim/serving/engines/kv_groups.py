"""Groups of layers whose caches vLLM hands out block by block: vllm/v1/core/kv_cache_utils.py,
0.32.0.

Where some layers see a window and others everything, layers of one kind form groups of one size.
Every group has blocks of its own, all of one size in bytes and from one pool; those that lie behind
the window are free again.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import NamedTuple

import numpy as np

from specsim.checks import Ints
from specsim.hardware.parallel import Parallelism
from specsim.hardware.shapes import Shape


class KvGroup(NamedTuple):
    """Groups of one kind.

    window : tokens that its layers see; None: all
    spans : its blocks hold so many of the engine's ``block_size`` tokens
    number : how many groups there are of the kind
    """

    window: int | None
    spans: int
    number: int


class KvPool(NamedTuple):
    """The groups of a model, and what a token takes.

    token_bytes : bytes on a card of one token in a block of one span
    """

    groups: tuple[KvGroup, ...]
    token_bytes: float


def kv_pool(models: Iterable[tuple[Shape, Parallelism]]) -> KvPool | None:
    """Of a target and what drafts for it, each on its cards; None: no layer sees a window, and all
    have their blocks together, or they are of kinds whose groups were not read (states of constant
    size, chunks, encoders).

    A group has as many layers as the kind of which there are fewest, or of which there are most
    where those are less than 1.5 times as many.  Layers that keep less of a token have blocks of
    more tokens, where a whole number of them makes a block, and unused bytes where none does.
    """
    kinds: Counter[tuple[float, int | None]] = Counter()
    stages = 1
    for shape, parallel in models:
        stages = max(stages, parallel.pipeline)
        for layer, count in shape.distinct_layers:
            for part in layer.attentions:
                if part.of_encoder or part.state or (part.chunked and part.window is not None):
                    return None
                held = part.kv_width * shape.precision.kv_bytes
                kinds[held / min(parallel.tensor, part.kv_heads), part.window] += count
    if all(window is None for _, window in kinds):
        return None
    largest = max(held for held, _ in kinds)
    alike: Counter[tuple[int | None, int]] = Counter()
    for (held, window), count in kinds.items():
        spans = largest / held
        alike[window, int(spans) if spans.is_integer() else 1] += count
    layers = min(alike.values())
    if max(alike.values()) < 1.5 * layers:
        layers = max(alike.values())
    groups = (
        KvGroup(window, spans, -(-count // layers)) for (window, spans), count in alike.items()
    )
    return KvPool(tuple(groups), -(-layers // stages) * largest)


def group_table(groups: Sequence[KvGroup], block_size: int) -> Ints:
    """(G, 3) as the loop reads them: window, 0 for none, tokens of a block, count."""
    rows = [(each.window or 0, each.spans * block_size, each.number) for each in groups]
    return np.array(rows, dtype=np.int64).reshape(-1, 3)


def most_blocks(table: Ints, tokens: int, in_flight: int, max_model_len: int) -> int:
    """Blocks that a request holds at most on its way to so many tokens (the loop compiles it): of a
    window's, what is in flight as well, and one more where it begins within a block
    (``max_admission_blocks_per_request``).

    table : as of ``group_table``
    in_flight : tokens of all steps that may run at once
    """
    found = 0
    for at in range(table.shape[0]):
        window, size, count = table[at, 0], table[at, 1], table[at, 2]
        blocks = (tokens + size - 1) // size
        if window > 0:
            most = min(window - 1 + in_flight, max_model_len)
            blocks = min(blocks, (most + size - 1) // size + 1)
        found += count * blocks
    return found


def mean_blocks(table: Ints, tokens: float) -> float:
    """Of a request of so many tokens that ends, and whose windows begin, anywhere in a block."""
    found = 0.0
    for window, size, count in table:
        seen = tokens if not window else min(tokens, window - 1)
        found += count * (seen / size + (0.5 if seen == tokens else 1.0))
    return found
