"""The papers' closed forms, one function each, on float64 arrays that broadcast.

They are the fast path of big sweeps and the independent twin of the laws (``specsim.laws``).
Costs are in target runs on one token.  ``gamma = 0`` is plain decoding everywhere: one token a
call at cost one, no overhead, so its speedup is exactly one.

Almost every form here is one geometric sum, 1 + x + ... + x^(n-1).  Written with ``expm1`` it
keeps its relative precision from x = 0 to x = 1, both ends included, which the printed quotient
(1 - x^n)/(1 - x) does not.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from specsim.checks import (
    Floats,
    InvalidArgumentError,
    integer,
    integers,
    number,
    numbers,
    probabilities,
    probability,
)


def geometric_sum(x: Floats, n: npt.NDArray[np.number]) -> Floats:
    """1 + x + ... + x^(n-1) = (1 - x^n)/(1 - x) for x in [0, 1] and whole n >= 0; unchecked."""
    with np.errstate(divide="ignore", invalid="ignore"):
        exponent = np.log(x) * n
        ratio = np.asarray(np.expm1(exponent) / (x - 1.0))
    # nan exactly where x = 1 (the sum is n) and where x = 0 = n (it is 0, which is n too).
    total: Floats = np.fmin(ratio, n)
    return total


# --- One draft, one target (Leviathan23) ---------------------------------------------------------


def tokens_per_call(alpha: npt.ArrayLike, gamma: npt.ArrayLike, *, bonus: bool = True) -> Floats:
    """E[N] = (1 - alpha^(gamma+1))/(1 - alpha): Leviathan23 eq. (1); gamma + 1 at alpha = 1.

    Without the bonus token (Xia22) it is (1 - alpha^gamma)/(1 - alpha), and still 1 at gamma = 0.
    """
    alpha, gamma = probabilities("alpha", alpha), integers("gamma", gamma)
    drafted = geometric_sum(alpha, gamma)
    # The first form is exactly 1 at gamma = 0, where the printed quotient is 1 up to rounding.
    return 1.0 + alpha * drafted if bonus else np.maximum(drafted, 1.0)


def generating_function(x: npt.ArrayLike, alpha: npt.ArrayLike, gamma: npt.ArrayLike) -> Floats:
    """E[x^N] = 1 + (x - 1)(1 - (alpha x)^(gamma+1))/(1 - alpha x) for x in [0, 1].

    The law of N is the capped geometric one of Leviathan23 section 3.1; Chen23 calls this phi.
    """
    x, alpha = probabilities("x", x), probabilities("alpha", alpha)
    gamma = integers("gamma", gamma)
    step = alpha * x
    # The same, summed over N: no two terms cancel.
    return np.asarray(x * ((1.0 - alpha) * geometric_sum(step, gamma) + step**gamma))


def draft_cost(c: npt.ArrayLike, gamma: npt.ArrayLike, *, draft_once: bool = False) -> Floats:
    """gamma c for a drafter that runs once a token; c if one run drafts all of them (Xia22)."""
    c, gamma = numbers("c", c, low=0.0), integers("gamma", gamma)
    return np.asarray(c * (np.minimum(gamma, 1) if draft_once else gamma))


def call_cost(
    c: npt.ArrayLike,
    gamma: npt.ArrayLike,
    *,
    verify_slope: npt.ArrayLike = 0.0,
    overhead: npt.ArrayLike = 0.0,
    draft_once: bool = False,
    bonus: bool = True,
) -> Floats:
    """Cost of one block: drafts + v(positions) + overhead, with v(n) = 1 + verify_slope (n - 1).

    The target reads gamma + 1 positions, one less without the bonus token.
    """
    gamma = integers("gamma", gamma)
    slope = numbers("verify slope", verify_slope, low=0.0)
    extra = numbers("overhead", overhead, low=0.0)
    further = gamma if bonus else np.maximum(gamma - 1, 0)
    drafts = draft_cost(c, gamma, draft_once=draft_once)
    return np.asarray(1.0 + drafts + slope * further + extra * (gamma > 0))


def speedup(
    alpha: npt.ArrayLike,
    c: npt.ArrayLike,
    gamma: npt.ArrayLike,
    *,
    verify_slope: npt.ArrayLike = 0.0,
    overhead: npt.ArrayLike = 0.0,
    draft_once: bool = False,
    bonus: bool = True,
) -> Floats:
    """EWIF = E[N] / (gamma c + v(gamma + 1) + o): Leviathan23 Thm 3.8, where v = 1 and o = 0.

    With ``draft_once`` and without the bonus token it is Xia22's E[N] / (c + v(k) + o), k = gamma.
    """
    return tokens_per_call(alpha, gamma, bonus=bonus) / call_cost(
        c,
        gamma,
        verify_slope=verify_slope,
        overhead=overhead,
        draft_once=draft_once,
        bonus=bonus,
    )


def guaranteed_speedup(alpha: npt.ArrayLike, c: npt.ArrayLike) -> Floats:
    """What the best gamma reaches at least: (1 + alpha)/(1 + c) if alpha > c (Leviathan23 Cor 3.9).

    That is EWIF at gamma = 1; where alpha <= c it is 1, plain decoding.
    """
    alpha, c = probabilities("alpha", alpha), numbers("c", c, low=0.0)
    return np.maximum((1.0 + alpha) / (1.0 + c), 1.0)


def operations_factor(
    alpha: npt.ArrayLike, gamma: npt.ArrayLike, c_ops: npt.ArrayLike = 0.0
) -> Floats:
    """Arithmetic operations per token, against plain decoding: Leviathan23 Thm 3.11.

    (1 - alpha)(gamma c_ops + gamma + 1)/(1 - alpha^(gamma+1)), with c_ops the draft's operations
    per token over the target's.
    """
    ratio, drafted = numbers("c_ops", c_ops, low=0.0), integers("gamma", gamma)
    return (drafted * (1.0 + ratio) + 1.0) / tokens_per_call(alpha, drafted)


def memory_factor(
    alpha: npt.ArrayLike,
    gamma: npt.ArrayLike,
    c_memory: npt.ArrayLike = 0.0,
    *,
    draft_once: bool = False,
) -> Floats:
    """Bytes read per token, against plain decoding: (1 + gamma c_memory)/E[N].

    The target's weights and cache are read once a call (Leviathan23 section 3.4), the draft's once
    a run; ``c_memory`` is the bytes of a draft run over those of a target run.
    """
    ratio = numbers("c_memory", c_memory, low=0.0)
    return (1.0 + draft_cost(ratio, gamma, draft_once=draft_once)) / tokens_per_call(alpha, gamma)


def oracle_speedup(
    alpha: npt.ArrayLike,
    c: npt.ArrayLike,
    *,
    verify_slope: npt.ArrayLike = 0.0,
    overhead: npt.ArrayLike = 0.0,
) -> Floats:
    """Speedup if each block drafted just what will be accepted: Leviathan23 section 3.5.

    1/(1 - alpha + c alpha), with v(n) = 1 + b (n - 1) and an overhead o on blocks that draft at
    all: 1/((1 - alpha)(1 + alpha o) + (c + b) alpha).  Infinite at alpha = 1, c = b = 0.  Below
    one where a drafted token costs more than a target run: this oracle drafts all the same, the
    one of ``specsim.optimize`` then drafts nothing.
    """
    alpha, c = probabilities("alpha", alpha), numbers("c", c, low=0.0)
    slope = numbers("verify slope", verify_slope, low=0.0)
    extra = numbers("overhead", overhead, low=0.0)
    with np.errstate(divide="ignore"):
        return np.asarray(1.0 / ((1.0 - alpha) * (1.0 + alpha * extra) + (c + slope) * alpha))


def lenience_bound(p: npt.ArrayLike, lenience: npt.ArrayLike) -> Floats:
    """The most that lenience can make of a token's probability p: min(1, p/l), Leviathan23 A.4.

    It holds for the residuals norm(max(0, p - q)) and norm(max(0, p - l q)), not for a redraw
    from p.  l = 0 accepts everything, and the bound is then 1.
    """
    p, factor = probabilities("p", p), probabilities("lenience", lenience)
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.fmin(1.0, p / factor)


def calls_for(tokens: int, alpha: float, gamma: int) -> float:
    """E[target calls] until ``tokens`` are there, a last block that overshoots counted once.

    Renewal: u_0 = 1, u_j = sum_n P(N = n) u_(j-n) is the chance that a block starts at j, and the
    calls are u_0 + ... + u_(tokens-1).  O(tokens).  The speedup of Leviathan23 Thm 3.8 is for long
    generations; for finite ones it is tokens / (calls * cost of a call), so at most ``tokens``.
    """
    tokens, gamma = integer("tokens", tokens), integer("gamma", gamma)
    alpha = probability("alpha", alpha)
    miss, full = 1.0 - alpha, alpha**gamma
    starts = [1.0] * min(tokens, 1)
    # started = sum_(n=1..gamma) alpha^(n-1) u_(j-n), kept from one j to the next.
    started = 0.0
    for j in range(1, tokens):
        before = starts[j - 1 - gamma] if j > gamma else 0.0
        started = starts[j - 1] + alpha * started - full * before if gamma else 0.0
        starts.append(miss * started + full * before)
    return float(np.sum(starts))


# --- Cascades (Chen23) ---------------------------------------------------------------------------


def _positions(alphas: npt.ArrayLike, costs: npt.ArrayLike) -> tuple[Floats, Floats]:
    """The acceptance and the cost of each drafted position, shape (n,) both."""
    if np.size(alphas) == 0 and np.size(costs) == 0:
        return np.empty(0), np.empty(0)
    rates = np.atleast_1d(probabilities("alpha", alphas))
    prices = np.atleast_1d(numbers("c", costs, low=0.0))
    if rates.ndim != 1 or rates.shape != prices.shape:
        raise InvalidArgumentError(
            "alpha and c must be two rows of one length, "
            f"got shapes {rates.shape} and {prices.shape}"
        )
    return rates, prices


def horizontal_speedup(alphas: npt.ArrayLike, costs: npt.ArrayLike) -> float:
    """EWIF = (sum_(i=0..n) prod_(j<=i) alpha_j) / (1 + sum_i c_i): Chen23 Thm 4.1.

    Position i of the draft comes from a drafter with acceptance alpha_i and cost c_i.
    """
    rates, prices = _positions(alphas, costs)
    return float((1.0 + np.cumprod(rates).sum()) / (1.0 + prices.sum()))


def horizontal_gradient(alphas: npt.ArrayLike, costs: npt.ArrayLike) -> Floats:
    """dEWIF/dalpha_l = (sum_(i>=l) prod_(j<=i, j!=l) alpha_j)/(1 + sum_i c_i): Chen23 Cor 4.3.

    Shape (n,).  The corollary's other half, the chance that token i is accepted, is the survival
    curve prod_(j<=i) alpha_j.
    """
    rates, prices = _positions(alphas, costs)
    before = np.concatenate([[1.0], np.cumprod(rates[:-1])])[: rates.size]
    beyond = np.ones(rates.size)
    for position in range(rates.size - 2, -1, -1):
        beyond[position] = 1.0 + rates[position + 1] * beyond[position + 1]
    return np.asarray(before * beyond / (1.0 + prices.sum()))


def vertical_speedup(
    alpha: npt.ArrayLike,
    alpha_inner: npt.ArrayLike,
    steps: npt.ArrayLike,
    gamma_inner: npt.ArrayLike,
    c_reviewer: npt.ArrayLike,
    c_inner: npt.ArrayLike,
) -> Floats:
    """EWIF = (1 - alpha phi(alpha)^n) / ((1 - alpha)(1 + n c_1 + n k c_2)): Chen23 section 3.2.

    The reviewer d_1 (accepted by the target at ``alpha``, one run costs ``c_reviewer``) proposes
    the tokens of exactly n = ``steps`` speculative steps, each over k = ``gamma_inner`` tokens of
    d_2 (accepted by d_1 at ``alpha_inner``, one run costs ``c_inner``); phi is the generating
    function of one such step.
    """
    alpha, inner = probabilities("alpha", alpha), probabilities("alpha_inner", alpha_inner)
    steps, k = integers("steps", steps), integers("gamma_inner", gamma_inner)
    reviewer = numbers("c_reviewer", c_reviewer, low=0.0)
    drafter = numbers("c_inner", c_inner, low=0.0)
    # 1 - phi = (1 - alpha) * reach, so the factor 1 - alpha cancels on paper, not in rounding.
    reach = geometric_sum(alpha * inner, k + 1)
    phi = 1.0 - (1.0 - alpha) * reach
    tokens = 1.0 + alpha * reach * geometric_sum(np.clip(phi, 0.0, 1.0), steps)
    return np.asarray(tokens / (1.0 + steps * (reviewer + k * drafter)))


# --- BiLD (Kim23) --------------------------------------------------------------------------------


def bild_tokens_per_call(
    fallback: npt.ArrayLike, rollback: npt.ArrayLike, window: npt.ArrayLike
) -> Floats:
    """E[N] = (1 - E[s^(J+1)])/r for independent fallback f and rollback r, s = 1 - r (Kim23).

    J, the drafted tokens, is geometric with f and capped at the window W.  Since the i-th token is
    reached at (1 - f)^i and survives at (1 - r)^i, this is Leviathan23's eq. (1) with
    alpha = (1 - f)(1 - r) and gamma = W.
    """
    f, r = probabilities("fallback", fallback), probabilities("rollback", rollback)
    return tokens_per_call((1.0 - f) * (1.0 - r), integers("window", window))


def bild_runs_per_call(fallback: npt.ArrayLike, window: npt.ArrayLike) -> Floats:
    """Small-model runs a call: (1 - (1 - f)^W)/f, W at f = 0; the run that falls back counts."""
    f = probabilities("fallback", fallback)
    return geometric_sum(1.0 - f, integers("window", window))


def bild_speedup(
    fallback: npt.ArrayLike,
    rollback: npt.ArrayLike,
    window: npt.ArrayLike,
    c: npt.ArrayLike,
    *,
    verify_slope: float = 0.0,
    overhead: float = 0.0,
) -> Floats:
    """E[N] / (c runs + E[v(J + 1)] + o) with v(n) = 1 + verify_slope (n - 1); window >= 1."""
    window = integers("window", window, low=1)
    f, c = probabilities("fallback", fallback), numbers("c", c, low=0.0)
    slope = number("verify slope", verify_slope, low=0.0)
    extra = number("overhead", overhead, low=0.0)
    runs = bild_runs_per_call(f, window)
    cost = c * runs + 1.0 + slope * (1.0 - f) * runs + extra
    return np.asarray(bild_tokens_per_call(f, rollback, window) / cost)
