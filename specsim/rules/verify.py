"""GenSpecSample (Narasimhan24 Algorithm 4) on arrays, for any rule, in NumPy and PyTorch.

All randomness comes in as uniform numbers, so the same code serves every generator, and a test
can find the exact law of what it does.  Nothing branches on values: on a GPU no step waits for
the host.  Work goes through a few rows at a time, so that memory stays bounded and what was read
once is still in the cache; of a block, only the row that is emitted from is ever made whole.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from array_api_compat import array_namespace
from numpy.random import Generator

from specsim.checks import InvalidArgumentError
from specsim.rules.base import Array, Distributions, Rule, at, check_values

# Entries of p handled at once: 2 MiB in float32.  With q and what is made of the two they stay in
# the last cache of a CPU, and the allocator hands the same memory out again.
CELLS_AT_ONCE = 2**19
# Entries that a draw from a row searches at once.
_SEGMENT = 256


class Verdict(NamedTuple):
    """accepted : (B,), draft tokens kept, 0..gamma; token : (B,), the recovered or bonus one."""

    accepted: Array
    token: Array


def gen_spec_sample(
    rule: Rule,
    p: Array,
    q: Array,
    drafts: Array,
    rng: Generator,
    unscaled_p: Array | None = None,
    unscaled_q: Array | None = None,
) -> Verdict:
    """``verify`` in NumPy with numbers drawn from ``rng``, after a look at every value.

    One block may come without the axis B: p (gamma + 1, V), q and drafts (gamma,) alike; then the
    verdict has no axis either.
    """
    if drafts.ndim == 1:
        scaled = (_one(unscaled_p), _one(unscaled_q))
        accepted, token = gen_spec_sample(rule, _one(p), _one(q), _one(drafts), rng, *scaled)
        return Verdict(accepted[0], token[0])
    for name, rows in (("p", p), ("q", q), ("unscaled_p", unscaled_p), ("unscaled_q", unscaled_q)):
        if rows is not None:
            check_values(name, rows)
    if drafts.size and not 0 <= drafts.min() <= drafts.max() < p.shape[-1]:
        raise InvalidArgumentError(f"drafts must be tokens in [0, {p.shape[-1] - 1}]")
    coins, draws = rng.random(drafts.shape), rng.random(len(drafts))
    return verify(rule, p, q, drafts, coins, draws, unscaled_p, unscaled_q)


def verify(
    rule: Rule,
    p: Array,
    q: Array,
    drafts: Array,
    coins: Array,
    draws: Array,
    unscaled_p: Array | None = None,
    unscaled_q: Array | None = None,
    cells_at_once: int = CELLS_AT_ONCE,
) -> Verdict:
    """Verify B blocks of gamma draft tokens.

    p : (B, gamma + 1, V), the target's distributions, the last one behind the last draft token
    q : (B, gamma + 1, V), or (B, gamma, V) where the rule's bonus does not need the draft
        (``rule.bonus_needs_draft``); the last row costs the draft one more run
    drafts : (B, gamma), whole numbers, token j drawn from q[:, j]
    coins, draws : (B, gamma) and (B,), uniform on [0, 1), best in float64
    unscaled_p, unscaled_q : as p and q, for a rule that decides on unscaled rows
    cells_at_once : entries of p handled at once
    """
    _check_shapes(rule, p, q, drafts, coins, draws, unscaled_p, unscaled_q)
    xp = array_namespace(p)
    blocks, gamma = drafts.shape
    at_once = max(1, cells_at_once // p.shape[-1])
    kept = xp.ones((blocks, gamma), dtype=xp.bool, device=p.device)
    for part in _parts(blocks, gamma, at_once):
        given = (p, q, unscaled_p, unscaled_q)
        rows = Distributions(*(None if array is None else array[part] for array in given))
        kept[part] = accepts(rule, rows, drafts[part], coins[part])
    accepted = leading(kept)
    token = xp.empty_like(accepted)
    for some, _ in _parts(blocks, 1, at_once):
        # Where q has no row behind the last draft token, any row will do: the bonus ignores it.
        drafted = xp.clip(accepted[some], max=max(q.shape[1] - 1, 0))
        rows = Distributions(
            _row(p[some], accepted[some]),
            _row((q if q.shape[1] else p)[some], drafted),
            None if unscaled_p is None else _row(unscaled_p[some], accepted[some]),
            None if unscaled_q is None else _row((unscaled_q if q.shape[1] else p)[some], drafted),
        )
        token[some] = draw(rule.replacement(rows, accepted[some] == gamma), draws[some])
    return Verdict(accepted, token)


def accepts(rule: Rule, rows: Distributions, drafts: Array, coins: Array) -> Array:
    """Is each draft token accepted?  drafts and coins (...) on rows (..., V); shape (...).

    u q(x) < min(q, pi)(x), which divides by nothing; a token that the draft cannot draw,
    q(x) = 0, is rejected, and one with pi(x) = q(x) never is.
    """
    xp = array_namespace(coins)
    chance = xp.astype(rule.accepted_at(rows, drafts), coins.dtype)
    return coins * xp.astype(at(rows.q, drafts), coins.dtype) < chance


def leading(kept: Array) -> Array:
    """How many tokens of each block are accepted: those before the first that is not.

    kept : (B, n); the result is (B,)
    """
    xp = array_namespace(kept)
    # A product along the block stays one up to the first rejection.
    return xp.sum(xp.cumulative_prod(xp.astype(kept, xp.int64), axis=1), axis=1)


def draw(weights: Array, draws: Array) -> Array:
    """The inverse cumulative distribution of each row: weights (N, V), uniform draws (N,).

    The draw picks a segment of the row by its sum, then an entry in it, so that what is summed
    up stays short; an entry of weight zero is never picked.  Shape (N,).
    """
    xp = array_namespace(weights)
    rows, size = weights.shape
    if size <= _SEGMENT:
        return _pick(xp.astype(weights, draws.dtype), draws)[0]
    missing = -size % _SEGMENT
    if missing:
        nothing = xp.zeros((rows, missing), dtype=weights.dtype, device=weights.device)
        weights = xp.concat([weights, nothing], axis=1)
    segments = xp.reshape(weights, (rows, -1, _SEGMENT))
    sums = xp.astype(xp.sum(segments, axis=-1), draws.dtype)
    segment, left = _pick(sums, draws)
    inside = xp.take_along_axis(segments, segment[:, None, None], axis=1)[:, 0]
    entry, _ = _pick(xp.astype(inside, draws.dtype), left)
    return segment * _SEGMENT + entry


def _pick(weights: Array, draws: Array) -> tuple[Array, Array]:
    """The entry of each row that a draw falls on, and where within it on [0, 1)."""
    xp = array_namespace(weights)
    ends = xp.cumulative_sum(weights, axis=-1)
    wanted = draws * ends[:, -1]
    # Rounding may leave nothing behind the draw; then the last entry with weight is meant.
    positive = xp.astype(weights > 0, xp.int8)
    last = weights.shape[-1] - 1 - xp.argmax(xp.flip(positive, axis=-1), axis=-1)
    behind = xp.astype(ends > wanted[:, None], xp.int8) * positive
    found = xp.where(xp.max(behind, axis=-1) > 0, xp.argmax(behind, axis=-1), last)
    weight = at(weights, found)
    share = (wanted - (at(ends, found) - weight)) / weight
    return found, xp.clip(share, min=0.0, max=1.0)


def _parts(blocks: int, gamma: int, at_once: int) -> Iterator[tuple[slice, slice]]:
    """Slices over (blocks, gamma) of at most ``at_once`` rows each."""
    long = max(1, min(gamma, at_once))
    wide = max(1, at_once // long)
    for block in range(0, blocks, wide):
        for position in range(0, gamma, long):
            end = min(position + long, gamma)
            yield slice(block, min(block + wide, blocks)), slice(position, end)


def _one(rows: Array | None) -> Array | None:
    return None if rows is None else rows[None]


def _row(rows: Array, position: Array) -> Array:
    """One row of each block: rows (B, n, V) at position (B,), shape (B, V)."""
    xp = array_namespace(rows)
    blocks, length, size = rows.shape
    start = length * xp.arange(blocks, dtype=position.dtype, device=position.device)
    return xp.take(xp.reshape(rows, (blocks * length, size)), start + position, axis=0)


def _check_shapes(
    rule: Rule,
    p: Array,
    q: Array,
    drafts: Array,
    coins: Array,
    draws: Array,
    unscaled_p: Array | None,
    unscaled_q: Array | None,
) -> None:
    if drafts.ndim != 2:
        raise InvalidArgumentError(f"drafts must have shape (B, gamma), got {tuple(drafts.shape)}")
    blocks, gamma = drafts.shape
    drafted = (gamma + 1,) if rule.bonus_needs_draft else (gamma, gamma + 1)
    for name, rows, lengths in (("p", p, (gamma + 1,)), ("q", q, drafted)):
        found = tuple(rows.shape)
        if len(found) != 3 or found[0] != blocks or found[1] not in lengths:
            wanted = " or ".join(f"({blocks}, {length}, V)" for length in lengths)
            raise InvalidArgumentError(
                f"{name} must have shape {wanted} for {type(rule).__name__}, got {found}"
            )
    if q.shape[-1] != p.shape[-1]:
        raise InvalidArgumentError(
            f"q must have the vocabulary of p, {p.shape[-1]} tokens, got {q.shape[-1]}"
        )
    for name, array, shape in (
        ("coins", coins, (blocks, gamma)),
        ("draws", draws, (blocks,)),
        ("unscaled_p", unscaled_p, tuple(p.shape)),
        ("unscaled_q", unscaled_q, tuple(q.shape)),
    ):
        if array is not None and tuple(array.shape) != shape:
            raise InvalidArgumentError(f"{name} must have shape {shape}, got {tuple(array.shape)}")
