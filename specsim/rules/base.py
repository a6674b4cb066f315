"""What a rule of verification is: a target distribution made of p and q, and the law it emits.

A *rule* says which distribution pi = T(q, p) a block of draft tokens is verified against
(Narasimhan24 Algorithm 4, GenSpecSample): the draft token x ~ q is accepted with probability
min(1, pi(x) / q(x)); a rejected one is replaced by a draw from the residual
norm(max(0, pi - q)).  What comes out at one position is

    m = min(q, pi) + (1 - sum_x min(q, pi)(x)) norm(max(0, pi - q)),

and m = pi if and only if pi sums to one.  Where the residual is zero everywhere although a
rejection is possible, the replacement is drawn from p.

A new rule is a frozen dataclass with its thresholds as fields, its ``pi``, and one line in
``specsim.rules.RULES``.  It is written once for NumPy and PyTorch: arrays come in and go out in
the library of the rows given (``array_api_compat``), and nothing branches on their values, so a
rule on a GPU never waits for the host.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, field
from typing import Any, ClassVar, Literal, get_args

import numpy as np
from array_api_compat import array_namespace, is_torch_array

from specsim.checks import InvalidArgumentError, UnsupportedError, check_choice, number

Array = Any
DecideOn = Literal["tempered", "unscaled"]

# A softmax in float32 over 10^5 tokens errs by some 10^-5, whatever type its result is kept in.
_SUM_TOLERANCE = 1e-4


@dataclass(frozen=True, eq=False)
class Distributions:
    """Next-token distributions of target and draft at the same positions.

    p, q : shape (..., V), of the target and of the draft, after temperature, top-k and top-p
    unscaled_p, unscaled_q : the same rows at temperature 1 without filters, where decisions are
        made on those (as the authors' code does: errata Narasimhan24 7)

    Rows kept in less than 32 bits become float32 rows that sum to one.  Only shapes and types are
    checked here, because reading values would stall a GPU; ``Distributions.checked`` reads them.
    """

    p: Array
    q: Array
    unscaled_p: Array | None = None
    unscaled_q: Array | None = None

    def __post_init__(self) -> None:
        for name, rows in self._given():
            xp = _namespace(name, rows)
            if not xp.isdtype(rows.dtype, "real floating"):
                raise InvalidArgumentError(
                    f"{name} must hold floating-point numbers, got {rows.dtype}"
                )
            if rows.ndim == 0 or rows.shape[-1] == 0:
                raise InvalidArgumentError(
                    f"{name} must have shape (..., V) with V >= 1, got {tuple(rows.shape)}"
                )
            if rows.shape != self.p.shape:
                raise InvalidArgumentError(
                    f"{name} must have the shape of p, {tuple(self.p.shape)}, "
                    f"got {tuple(rows.shape)}"
                )
            if rows.dtype.itemsize < 4:
                wide = xp.astype(rows, xp.float32)
                object.__setattr__(self, name, wide / xp.sum(wide, axis=-1, keepdims=True))

    def _given(self) -> list[tuple[str, Array]]:
        names = ("p", "q", "unscaled_p", "unscaled_q")
        rows = [(name, getattr(self, name)) for name in names]
        return [(name, array) for name, array in rows if array is not None]

    @classmethod
    def checked(
        cls, p: Array, q: Array, unscaled_p: Array | None = None, unscaled_q: Array | None = None
    ) -> Distributions:
        """The rows, after a look at every value: >= 0, and summing to one up to rounding."""
        result = cls(p, q, unscaled_p, unscaled_q)
        given = {"p": p, "q": q, "unscaled_p": unscaled_p, "unscaled_q": unscaled_q}
        for name, rows in given.items():
            if rows is not None:
                check_values(name, rows)
        return result


def _namespace(name: str, rows: Array) -> Any:
    try:
        return array_namespace(rows)
    except TypeError:
        raise InvalidArgumentError(
            f"{name} must be an array of NumPy or PyTorch, got {type(rows).__name__}"
        ) from None


def check_values(name: str, rows: Array) -> None:
    """Every value is >= 0 and every row (..., V) sums to one, up to the rounding of its type."""
    xp = array_namespace(rows)
    if 0 in rows.shape:
        return
    lowest = float(xp.min(rows))
    if not lowest >= 0:  # a nan fails too
        raise InvalidArgumentError(f"{name} must be >= 0 everywhere, got {lowest:g}")
    kind = xp.finfo(rows.dtype)
    # The second half is what numbers too small for the type may have lost (float16).
    lost = rows.shape[-1] * float(kind.smallest_normal) * float(kind.eps)
    tolerance = max(_SUM_TOLERANCE, 2 * float(kind.eps)) + lost
    wide = rows if rows.dtype.itemsize >= 4 else xp.astype(rows, xp.float32)
    totals = xp.reshape(xp.sum(wide, axis=-1), (-1,))
    worst = float(totals[int(xp.argmax(xp.abs(totals - 1)))])
    if not abs(worst - 1) <= tolerance:
        raise InvalidArgumentError(f"{name} must sum to one over its last axis, got {worst:.6g}")


class Rule(ABC):
    """Base of all rules; every array has the leading shape of the rows given.

    sums_to_one : is pi a distribution whenever p and q are?  Then m = pi
    bonus_needs_draft : does the token after a block accepted whole depend on q?  Where it does,
        the draft has to run once more at the last position
    """

    sums_to_one: ClassVar[bool] = True
    bonus_needs_draft: ClassVar[bool] = True

    @abstractmethod
    def pi(self, rows: Distributions) -> Array:
        """pi, shape (..., V); non-negative, and not always summing to one."""

    def accepted(self, rows: Distributions) -> Array:
        """min(q, pi), shape (..., V): P(the draft token is v, and accepted)."""
        xp = array_namespace(rows.p)
        return xp.minimum(rows.q, self.pi(rows))

    def accepted_at(self, rows: Distributions, tokens: Array) -> Array:
        """min(q, pi) at one token of each row, shape (...), without computing the others."""
        return at(self.accepted(rows), tokens)

    def acceptance(self, rows: Distributions) -> Array:
        """beta = sum_x min(q, pi)(x), shape (...) (Leviathan23 Thm 3.5 for pi = p)."""
        xp = array_namespace(rows.p)
        total = xp.sum(self.accepted(rows), axis=-1)
        return xp.minimum(total, xp.ones_like(total))

    def excess(self, rows: Distributions) -> Array:
        """max(0, pi - q), shape (..., V): the residual before it is normalised."""
        xp = array_namespace(rows.p)
        return xp.maximum(self.pi(rows), rows.q) - rows.q

    def residual(self, rows: Distributions) -> Array:
        """Law of the token that replaces a rejected one, shape (..., V); p where it is zero."""
        return normalised(self.excess(rows), rows.p)

    def emitted(self, rows: Distributions) -> Array:
        """m, the law of what comes out, shape (..., V); equals pi iff pi sums to one."""
        xp = array_namespace(rows.p)
        accepted = self.accepted(rows)
        # A sum of q - min(q, pi) rather than one less a sum: zero exactly where nothing is
        # rejected, and exact where little is.
        rejection = xp.sum(rows.q - accepted, axis=-1, keepdims=True)
        return accepted + rejection * self.residual(rows)

    def bonus(self, rows: Distributions) -> Array:
        """Law of the token after a block accepted whole, shape (..., V).

        Algorithm 4 draws it from pi, which is no distribution under some rules.  There it is m,
        as everywhere else: so the law of a text does not depend on where its blocks ended.
        """
        return self.pi(rows) if self.sums_to_one else self.emitted(rows)

    def replacement(self, rows: Distributions, whole: Array) -> Array:
        """Weights (..., V), not normalised, of the token after the accepted ones.

        whole : (...), bool; true asks for the bonus token, false for the recovered one
        """
        xp = array_namespace(rows.p)
        if self.sums_to_one:
            # max(0, pi - q) with q = 0 is the bonus: one target for both.
            q = rows.q * xp.astype(~whole, rows.q.dtype)[..., None]
            weights = xp.maximum(self.pi(rows), q) - q
        else:
            weights = xp.where(whole[..., None], self.bonus(rows), self.excess(rows))
        none = xp.sum(weights, axis=-1, keepdims=True) == 0
        # Adding to rows of zeros costs a fifth of choosing between two arrays.
        return weights + rows.p * xp.astype(none, weights.dtype)


@dataclass(frozen=True)
class DecidingRule(Rule):
    """A rule that compares probabilities: with each other, or with a threshold.

    decide_on : "tempered" compares p and q as given, "unscaled" the rows at temperature 1; what
        is emitted is made of p and q either way
    """

    decide_on: DecideOn = field(default="tempered", kw_only=True)

    def __post_init__(self) -> None:
        check_choice("decide_on", self.decide_on, get_args(DecideOn))

    def decision_p(self, rows: Distributions) -> Array:
        """The target's rows to decide on."""
        return rows.p if self.decide_on == "tempered" else self._unscaled(rows.unscaled_p, "p")

    def decision_q(self, rows: Distributions) -> Array:
        """The draft's rows to decide on."""
        return rows.q if self.decide_on == "tempered" else self._unscaled(rows.unscaled_q, "q")

    def _unscaled(self, rows: Array | None, name: str) -> Array:
        if rows is None:
            raise UnsupportedError(
                f"{type(self).__name__} decides on unscaled rows: give unscaled_{name}, "
                "or decide on the tempered ones"
            )
        return rows


@dataclass(frozen=True)
class ThresholdRule(DecidingRule):
    """A rule with one number, in the range ``allowed``."""

    threshold: float
    allowed: ClassVar[tuple[float, float]]

    def __post_init__(self) -> None:
        super().__post_init__()
        low, high = self.allowed
        object.__setattr__(
            self, "threshold", number("threshold", self.threshold, low=low, high=high)
        )


def at(rows: Array, tokens: Array) -> Array:
    """One entry of each row: rows (..., V) at tokens (...), shape (...)."""
    xp = array_namespace(rows)
    return xp.take_along_axis(rows, tokens[..., None], axis=-1)[..., 0]


def normalised(weights: Array, otherwise: Array) -> Array:
    """Weights (..., V) over their sum; rows that sum to zero become those of ``otherwise``."""
    xp = array_namespace(weights)
    total = xp.sum(weights, axis=-1, keepdims=True)
    some = total > 0
    return xp.where(some, weights / xp.where(some, total, xp.ones_like(total)), otherwise)


def one_hot_top(rows: Array) -> Array:
    """One at the first most probable token of each row, zero elsewhere; shape (..., V)."""
    xp = array_namespace(rows)
    top = xp.argmax(rows, axis=-1, keepdims=True)
    tokens = xp.arange(rows.shape[-1], dtype=top.dtype, device=rows.device)
    return xp.astype(tokens == top, rows.dtype)


def kth_largest(rows: Array, k: int) -> Array:
    """The k-th largest entry of each row, equal ones counted apart; shape (...)."""
    if is_torch_array(rows):
        return rows.topk(k, dim=-1).values[..., -1]
    return np.partition(rows, -k, axis=-1)[..., -k]


def distance(p: Array, q: Array) -> Array:
    """D_TV = D_LK = 1 - sum_x min(p, q)(x) in [0, 1], shape (...) (Leviathan23 Lemma 3.3)."""
    xp = array_namespace(p)
    common = xp.sum(xp.minimum(p, q), axis=-1)
    return 1 - xp.minimum(common, xp.ones_like(common))


def entropy(rows: Array) -> Array:
    """-sum_x p log p in nats, with 0 log 0 = 0; shape (...)."""
    xp = array_namespace(rows)
    return -xp.sum(rows * xp.log(xp.where(rows > 0, rows, xp.ones_like(rows))), axis=-1)


def cross_entropy(weights: Array, rows: Array) -> Array:
    """-sum_x w log p in nats, with 0 log 0 = 0; inf where w > 0 = p; shape (...)."""
    xp = array_namespace(weights)
    possible, counted = rows > 0, weights > 0
    logs = xp.log(xp.where(possible, rows, xp.ones_like(rows)))
    logs = xp.where(possible, logs, xp.full_like(rows, -float("inf")))
    logs = xp.where(counted, logs, xp.zeros_like(rows))
    return -xp.sum(weights * logs, axis=-1)
