"""What prompts share: leading blocks named by numbers that stand for all tokens up to their end."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Sequence
from dataclasses import replace
from itertools import islice

import numpy as np

from specsim.checks import Ints, integer
from specsim.serving.requests import PrefixBlocks

# Quotients of whole numbers and a factor that should be whole are, but for rounding.
_EXACT = 1e-9


def blocks_of_names(
    names: Iterable[Sequence[Hashable]], prompt_tokens: Ints, block_tokens: int
) -> PrefixBlocks:
    """From what names the blocks of each prompt, such as ``hash_ids`` of a trace.

    A name may stand for its block alone: here blocks are equal only where all before them are, too.

    names : for each request, in order; behind the last full block they are left out
    """
    integer("block_tokens", block_tokens, low=1)
    known: dict[tuple[int, Hashable], int] = {}
    hashes: list[int] = []
    starts = [0]
    for request, tokens in zip(names, prompt_tokens, strict=True):
        before = -1
        for name in islice(request, int(tokens) // block_tokens):
            before = known.setdefault((before, name), len(known))
            hashes.append(before)
        starts.append(len(hashes))
    return PrefixBlocks(np.array(hashes, np.int64), np.array(starts, np.int64), block_tokens)


def blocks_of_tokens(prompts: Iterable[Sequence[int]], block_tokens: int = 16) -> PrefixBlocks:
    """From the token ids of each prompt; an engine shares blocks of 16 (vLLM) by default."""
    integer("block_tokens", block_tokens, low=1)
    prompts = [tuple(each) for each in prompts]
    cut = (
        [each[at : at + block_tokens] for at in range(0, len(each), block_tokens)]
        for each in prompts
    )
    lengths = np.array([len(each) for each in prompts], np.int64)
    return blocks_of_names(cut, lengths, block_tokens)


def scaled_blocks(prefix: PrefixBlocks, scale: float, prompt_tokens: Ints) -> PrefixBlocks:
    """The same sharing of prompts whose lengths were multiplied, in blocks of the same size.

    A block is shared where all tokens that it was stretched from are: block j ends with block
    ceil((j + 1) / scale) of the prompt as it was, counted from 1.

    prompt_tokens : (N,) after the scaling
    """
    before = np.diff(prefix.starts)
    counts = np.minimum(prompt_tokens // prefix.block_tokens, np.floor(before * scale + _EXACT))
    counts = counts.astype(np.int64)
    starts = np.concatenate([[0], np.cumsum(counts)])
    places = np.arange(int(starts[-1])) - np.repeat(starts[:-1], counts)
    old = np.ceil((places + 1) / scale - _EXACT).astype(np.int64) - 1
    known = prefix.hashes[np.repeat(prefix.starts[:-1], counts) + old]
    # Several blocks may be stretched from one.
    pairs = np.stack([known, places], axis=1)
    _, names = np.unique(pairs, axis=0, return_inverse=True)
    return PrefixBlocks(names.reshape(-1), starts, prefix.block_tokens)


def blocks_of_rounds(prefix: PrefixBlocks, chosen: Ints, rounds: Ints) -> PrefixBlocks:
    """Those of some requests, of which a request may be one several times: blocks that different
    requests have are shared, and one that a single request has is another one in every round.

    chosen : (M,) which requests, in the order given
    rounds : (M,) how often each was among them before
    """
    if not rounds.any():
        return prefix.take(chosen)
    found, numbers = np.unique(prefix.hashes, return_inverse=True)
    whose = np.repeat(np.arange(len(prefix)), np.diff(prefix.starts))
    # A request counts once for each of its blocks.
    pairs = np.unique(numbers * len(prefix) + whose)
    is_shared = np.bincount(pairs // len(prefix), minlength=found.size) > 1
    renamed = PrefixBlocks(numbers.astype(np.int64), prefix.starts, prefix.block_tokens)
    taken = renamed.take(chosen)
    before = np.repeat(rounds, np.diff(taken.starts))
    own = np.where(is_shared[taken.hashes], 0, before)
    return replace(taken, hashes=taken.hashes + own * found.size)


def joined_blocks(prefix: PrefixBlocks, count: int) -> PrefixBlocks:
    """The same in blocks of ``count`` of these: a hash stands for all tokens up to its end, so that
    every ``count``-th one is left.  What follows the last whole block is left out.
    """
    counts = np.diff(prefix.starts) // count
    starts = np.concatenate([[0], np.cumsum(counts)])
    places = np.arange(int(starts[-1])) - np.repeat(starts[:-1], counts)
    last = np.repeat(prefix.starts[:-1], counts) + (places + 1) * count - 1
    return PrefixBlocks(prefix.hashes[last], starts, prefix.block_tokens * count)


def shared_tokens(prefix: PrefixBlocks) -> int:
    """Tokens of blocks that an earlier request already had, as an endless cache would find them."""
    return prefix.block_tokens * (prefix.hashes.size - np.unique(prefix.hashes).size)
