"""The best draft length: in closed form where acceptance is i.i.d., by exhaustive search elsewhere.

Closed form (not in the papers).  EWIF(g) = (1 - a^(g+1)) / ((1 - a)(1 + g c)) is stationary in a
real g where, with y = ln(1/a) and s = y (1 - c)/c,

    e^v - v = 1 + s,    v = y (g + 1),

so v = -ln(-W), W the lower branch of Lambert's function at -e^(-1-s), and g = v/y - 1.  EWIF is
unimodal, so the best whole g is a neighbour of the root.  Which one needs no two values of EWIF,
that nearly tie there: EWIF(g + 1) > EWIF(g) if and only if

    1 + g c > E[N] (c + (1 - a)(1 + g c)),    E[N] at g.

A verify slope b and an overhead o make the cost of a call 1 + o + g (c + b), which is 1 + o times
1 + g c' with c' = (c + b)/(1 + o): the same problem at c'.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from specsim.checks import Floats, Ints, numbers

AnyFloats = npt.NDArray[np.floating[Any]]

# Numbers to a block: its arrays stay in a core's own cache, and a call of numpy costs little.
BLOCK = 1 << 14

# The start of the root is within 0.15 %, and a quarter of a token is close enough: up to this
# gamma the start alone decides.
_COARSE = 128

# A margin that single precision cannot have made up: there its error stays under 1e-6.
_CLEAR = np.float32(3e-5)
_CLEAR_DOUBLE = 1e-13


def blockwise(
    function: Callable[..., npt.NDArray[Any]],
    *operands: npt.ArrayLike,
    dtype: npt.DTypeLike = np.float64,
) -> npt.NDArray[Any]:
    """``function`` of the operands broadcast together, a cache-sized block of each at a time.

    The operands need one dtype each, as they are; the result has ``dtype``.
    """
    flags: Any = [["readonly"]] * len(operands) + [["writeonly", "allocate"]]
    operands_and_result: Any = [*operands, None]
    iterator = np.nditer(
        operands_and_result,
        flags=["external_loop", "buffered"],
        op_flags=flags,
        op_dtypes=[None] * len(operands) + [np.dtype(dtype)],
        buffersize=BLOCK,
    )
    with iterator:
        for *block, result in iterator:
            result[...] = function(*block)
        return iterator.operands[-1]


def effective_cost(
    c: npt.ArrayLike, verify_slope: npt.ArrayLike = 0.0, overhead: npt.ArrayLike = 0.0
) -> Floats:
    """c' = (c + b)/(1 + o): the draft cost that has the same best gamma with v = 1 and o = 0."""
    slope = numbers("verify slope", verify_slope, low=0.0)
    extra = numbers("overhead", overhead, low=0.0)
    return np.asarray((numbers("c", c, low=0.0) + slope) / (1.0 + extra))


def _stationary(log_alpha: AnyFloats, c: AnyFloats, *, steps: int) -> AnyFloats:
    """gamma + 1 at the root of e^v - v = 1 + s, in the arguments' precision; void where c >= 1.

    The start is one exact step, v = ln(1 + s + v'), from v' = t/(1 + t/6), t = sqrt(2 s), which
    is v to third order in t.  Each of the ``steps`` after it is Halley's and triples the digits.
    """
    number = log_alpha.dtype.type
    s = np.asarray(log_alpha - log_alpha / c)
    np.abs(s, out=s)
    v = np.asarray(np.sqrt(s))
    np.divide(number(np.sqrt(0.5)), v, out=v)
    v += number(1.0 / 6.0)
    np.divide(number(1.0), v, out=v)
    v += s
    np.log1p(v, out=v)
    for _ in range(steps):
        slope = np.expm1(v)
        residual = slope - v - s
        step = residual / (slope - residual * (slope + 1.0) / (2.0 * slope))
        # Near v = 0 the residual is all rounding, and the start is good to 1e-12.
        v = np.where((v > 1e-3) & np.isfinite(step), v - step, v)
    return np.asarray(v / -log_alpha)


def closed_form(alpha: Floats, c: Floats, gamma_max: int) -> Ints:
    """The whole gamma in 0..gamma_max that maximises EWIF at v = 1, o = 0; of equals the smaller.

    0 where alpha <= c (Leviathan23 Cor 3.9: only alpha > c can pay); gamma_max where EWIF grows
    for ever, at c = 0 < alpha and at alpha = 1 > c.  The arguments are taken as they are.
    """

    def best(alpha: Floats, c: Floats) -> AnyFloats:
        return _best(alpha, c, gamma_max)

    with np.errstate(all="ignore"):
        return blockwise(best, alpha, c, dtype=np.int64)


def _best(alpha: Floats, c: Floats, gamma_max: int) -> AnyFloats:
    """``closed_form`` of one block; nan and infinity on the way are sorted out at the end.

    Single precision decides where it can, in half the time; double precision decides the rest,
    but for near-ties that only more digits can tell apart (where the platform has them).
    """
    unsure = pays = alpha > c
    if coarse := gamma_max <= _COARSE:
        n, margin = _neighbour(alpha.astype(np.float32), c.astype(np.float32), steps=0)
        # Up to 0.99, 1 - a and ln a keep five digits of single precision's seven.
        unsure = ~(margin > _CLEAR)  # nan too
        unsure |= alpha > 0.99
        unsure &= pays
    else:
        n = np.ones(alpha.shape)
    at = np.flatnonzero(unsure)
    for number in (np.float64, np.longdouble):
        a, cost = alpha[at].astype(number), c[at].astype(number)
        n[at], margin = _neighbour(a, cost, steps=0 if coarse else 2)
        at = at[margin < _CLEAR_DOUBLE]
    # Where EWIF grows for ever n is infinite or nan.
    np.fmin(n, n.dtype.type(gamma_max), out=n)
    n *= pays
    return n


def _neighbour(alpha: Any, c: Any, *, steps: int) -> tuple[AnyFloats, AnyFloats]:
    """The better neighbour of the real root, and by how much, relative to the cost.

    The whole optimum is ceil(root - theta) with theta in (0, 1/2], so with the root known within
    a quarter it is n or n + 1, n = floor(root + 1/4).
    """
    number = alpha.dtype.type
    log_alpha = np.log(alpha)
    n = _stationary(log_alpha, c, steps=steps)
    n -= number(0.75)
    np.floor(n, out=n)
    np.maximum(n, number(1.0), out=n)  # alpha > c: at least one; nan stays

    # In place from here on: this is the hot path, and a temporary costs as much as its sum.
    # The test of n against n + 1 is the module's, both sides times 1 - a: 1 - a^(n+1) for E[N].
    miss = number(1.0) - alpha
    tokens = np.multiply(log_alpha, n, out=log_alpha)
    np.expm1(tokens, out=tokens)
    tokens *= alpha
    np.subtract(miss, tokens, out=tokens)
    cost = n * c
    cost += number(1.0)
    cost *= miss
    tokens *= np.add(cost, c, out=miss)
    n += cost > tokens
    tokens -= cost
    np.abs(tokens, out=tokens)
    tokens /= cost
    return n, tokens


def fastest(speedups: Mapping[int, float]) -> int:
    """The gamma of the best speedup, of equals the smaller."""
    return max(speedups, key=lambda gamma: (speedups[gamma], -gamma))


def search(tokens: Callable[[Ints], Floats], c: Floats, undrafted: Floats) -> Ints:
    """The best gamma in 0..len(undrafted) - 1 for any survival curve and any verify curve.

    ``tokens(gamma)`` is E[N], shape (G, n) or (G, 1) for gamma of shape (G,); ``c`` has shape (n,)
    and so has the result; ``undrafted[gamma]`` is the cost of a block but for its drafts.
    Exhaustive, because EWIF may have several local maxima; of equals the smaller; gamma = 0 is
    worth one.
    """
    best, gamma = np.ones(c.shape), np.zeros(c.shape, dtype=np.int64)
    at_once = max(1, BLOCK // c.size)
    for first in range(1, len(undrafted), at_once):
        lengths = np.arange(first, min(first + at_once, len(undrafted)))
        value = tokens(lengths) / (lengths[:, None] * c + undrafted[lengths, None])
        winner = np.argmax(value, axis=0)
        top = np.take_along_axis(value, winner[None, :], axis=0)[0]
        gamma = np.where(top > best, lengths[winner], gamma)
        best = np.maximum(top, best)
    return gamma
