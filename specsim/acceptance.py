"""What is known of acceptance, weak to strong; all answer ``survival`` and ``conditional``.

S_i, the *survival curve*, is the probability that the first i draft tokens of a block are all
accepted; alpha_i = S_i / S_{i-1} is the *conditional* rate at position i.  Under i.i.d.
acceptance S_i = alpha^i (theory: Leviathan23 Def 3.1 and Thm 3.8).

The laws in this module are the same for blocks of every draft length.  What was measured is not:
long blocks start in harder text, or acceptance falls with depth (``specsim.extrapolation``).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, Protocol, get_args, runtime_checkable

import numpy as np
import numpy.typing as npt

from specsim.checks import (
    Floats,
    InvalidArgumentError,
    UnsupportedError,
    number,
    probabilities,
    probability,
)

# How a draft token is accepted; engines differ.  At temperature 0 all agree.
#   ratio-test      sampled drafts, accepted with min(1, p/q) (Leviathan23 A.2): sum_x min(p, q)
#   greedy-drafts   the draft's most probable token, accepted with p of it: p(argmax q)
#   exact-match     a sampled draft that equals the target's own sample: sum_x p q
AcceptanceLaw = Literal["ratio-test", "greedy-drafts", "exact-match"]
ACCEPTANCE_LAWS: tuple[AcceptanceLaw, ...] = get_args(AcceptanceLaw)


@runtime_checkable
class Acceptance(Protocol):
    """What every kind of knowledge about acceptance answers."""

    def survival(self, length: int) -> Floats:
        """S_0..S_length, shape (length + 1,); S_0 = 1, non-increasing."""
        ...

    def conditional(self, length: int) -> Floats:
        """alpha_1..alpha_length, shape (length,)."""
        ...


@runtime_checkable
class AcceptanceByLength(Acceptance, Protocol):
    """Acceptance whose survival curve depends on the draft length: ``survival(gamma)`` is that of
    blocks of gamma drafts, and no prefix of a longer one.
    """

    def tokens_per_call(self, longest: int) -> Floats:
        """E[N] at gamma = 0..longest, shape (longest + 1,)."""
        ...


@runtime_checkable
class Measured(Protocol):
    """What was measured along a text or at one draft length, and tells of others."""

    def over_gamma(self) -> Acceptance:
        """What it says of every draft length."""
        ...


@runtime_checkable
class Limited(Protocol):
    """What knows how far it was measured."""

    def notes(self, gamma: int) -> tuple[str, ...]:
        """Lines for people on what the answer at this draft length rests on; often none."""
        ...


def tokens_per_call(acceptance: Acceptance, longest: int) -> Floats:
    """E[N] at gamma = 0..longest, the recovered or bonus token counted, shape (longest + 1,)."""
    if isinstance(acceptance, AcceptanceByLength):
        return acceptance.tokens_per_call(longest)
    return np.asarray(np.cumsum(acceptance.survival(longest)))


def of_every_length(acceptance: Acceptance) -> Acceptance:
    """The same, where it is one law for blocks of every draft length.

    Raises UnsupportedError where it depends on the length: long blocks of a text start in harder
    places than short ones, so that a scheme whose blocks differ in length has no one curve.
    """
    if isinstance(acceptance, AcceptanceByLength):
        raise UnsupportedError(
            "blocks of several draft lengths have no law under acceptance that depends on the "
            "length: replay a trace (specsim replay), or give rates by position"
        )
    return acceptance


# A running product of n factors errs by up to n roundings, which all go the same way where the
# factors are near one.  Above this length logarithms are summed instead, in two levels.
_SHORT = 1024


def running_survival(rates: Floats) -> Floats:
    """S_0..S_n from alpha_1..alpha_n along the last axis, shape (..., n) to (..., n + 1)."""
    *rest, length = rates.shape
    survival = np.ones((*rest, length + 1))
    if length <= _SHORT:
        np.cumprod(rates, axis=-1, out=survival[..., 1:])
        return survival
    width = int(np.sqrt(length))
    rows = -(-length // width)
    logs = np.zeros((*rest, rows * width))
    with np.errstate(divide="ignore"):  # log 0 = -inf, and exp of it is 0 again
        np.log(rates, out=logs[..., :length])
    logs = np.cumsum(logs.reshape(*rest, rows, width), axis=-1)
    logs[..., 1:, :] += np.cumsum(logs[..., :-1, -1], axis=-1)[..., None]
    np.exp(logs.reshape(*rest, rows * width)[..., :length], out=survival[..., 1:])
    return survival


def conditional_rates(survival: Floats) -> Floats:
    """alpha_1..alpha_n of S_0..S_n, shape (n + 1,) to (n,).

    Beyond a position that is never reached the rate is free; zero keeps laws finite.
    """
    before = survival[:-1]
    return np.divide(survival[1:], before, out=np.zeros(before.size), where=before > 0)


@dataclass(frozen=True)
class ConstantAcceptance:
    """The same rate at every position: the papers' i.i.d. assumption."""

    alpha: float

    def __post_init__(self) -> None:
        object.__setattr__(self, "alpha", probability("alpha", self.alpha))

    def survival(self, length: int) -> Floats:
        curve: Floats = np.power(self.alpha, np.arange(length + 1.0))
        return curve

    def conditional(self, length: int) -> Floats:
        return np.full(length, self.alpha)


@dataclass(frozen=True)
class PerPositionAcceptance:
    """Conditional rates alpha_1, alpha_2, ... at every draft length; the last one holds on."""

    alphas: tuple[float, ...]

    def __post_init__(self) -> None:
        rates = np.atleast_1d(probabilities("alpha", self.alphas))
        object.__setattr__(self, "alphas", tuple(rates.tolist()))

    def survival(self, length: int) -> Floats:
        return running_survival(self.conditional(length))

    def conditional(self, length: int) -> Floats:
        known = np.array(self.alphas[:length])
        return np.concatenate([known, np.full(length - known.size, self.alphas[-1])])

    def notes(self, gamma: int) -> tuple[str, ...]:
        """That the last of several rates holds on, where it has to."""
        known = len(self.alphas)
        if gamma <= known or known == 1:
            return ()
        return (
            f"alpha is given for {known} positions, and the last, {self.alphas[-1]:g}, is taken to "
            f"hold on to gamma {gamma}; measured rates are carried on as --conditional or "
            "--marginal (specsim.Conditional, specsim.Marginal)",
        )


@dataclass(frozen=True)
class SurvivalAcceptance:
    """A survival curve S_1, S_2, ..., S_K at every draft length; nothing is known beyond K.

    Rates that were measured in blocks of K drafts are ``specsim.Marginal``.
    """

    marginal: tuple[float, ...]

    def __post_init__(self) -> None:
        curve = np.atleast_1d(probabilities("survival", self.marginal))
        if (np.diff(curve) > 0).any():
            raise InvalidArgumentError("survival must be non-increasing in the position")
        object.__setattr__(self, "marginal", tuple(curve.tolist()))

    def survival(self, length: int) -> Floats:
        if length > len(self.marginal):
            raise UnsupportedError(
                f"the survival curve ends at position {len(self.marginal)}, {length} asked for; "
                "extend it with specsim.extrapolate, or give measured rates as specsim.Marginal"
            )
        return np.concatenate([[1.0], self.marginal[:length]])

    def conditional(self, length: int) -> Floats:
        return conditional_rates(self.survival(length))


@dataclass(frozen=True)
class BetaAcceptance:
    """alpha differs between requests, Beta(a, b), and is constant within one: S_i = E[alpha^i].

    The law is that of alpha over target CALLS, where blocks start, at every draft length alike.  At
    the same mean over calls, S_1, such a mixture yields more tokens per call than the i.i.d.
    formula (Jensen).  A mean over TOKENS, as that of a trace is, is another one: requests with high
    alpha have more tokens a call, and at the same mean over tokens a mixture yields fewer than the
    formula (``specsim.extrapolation.mixtures``).
    """

    a: float
    b: float

    def __post_init__(self) -> None:
        for name in ("a", "b"):
            value = number(name, getattr(self, name), low=0.0)
            if value == 0:
                raise InvalidArgumentError(f"{name} must be > 0, got 0")
            object.__setattr__(self, name, value)

    def survival(self, length: int) -> Floats:
        return running_survival(self.conditional(length))

    def conditional(self, length: int) -> Floats:
        step = np.arange(length, dtype=float)
        return (self.a + step) / (self.a + self.b + step)


@dataclass(frozen=True)
class DecayingAcceptance:
    """alpha_i = floor + (alpha_1 - floor) decay^(i-1): a draft that loses hold as it goes on."""

    alpha: float
    decay: float
    floor: float = 0.0

    def __post_init__(self) -> None:
        for name in ("alpha", "decay", "floor"):
            object.__setattr__(self, name, probability(name, getattr(self, name)))

    def survival(self, length: int) -> Floats:
        return running_survival(self.conditional(length))

    def conditional(self, length: int) -> Floats:
        return self.floor + (self.alpha - self.floor) * self.decay ** np.arange(length, dtype=float)


# What the argument ``alpha`` of every call takes.
AlphaLike = Acceptance | Measured | npt.ArrayLike


def acceptance_of(alpha: AlphaLike) -> Acceptance:
    """What ``alpha`` says of acceptance, as on the command line.

    A number is one rate at every position; a list or tuple is one conditional rate for each
    position (the last one holds on); ``Marginal`` and ``Conditional`` are rates measured at one
    draft length, carried to others; a curve of ``extrapolate`` is known as far as it goes; a trace
    is replayed at every draft length; an ``Acceptance`` is itself.  A numpy array stands for
    several settings and is refused.
    """
    if isinstance(alpha, Measured):
        return alpha.over_gamma()
    if isinstance(alpha, Acceptance):
        return alpha
    rates = probabilities("alpha", alpha)
    if rates.ndim and (rates.ndim > 1 or not isinstance(alpha, (list, tuple))):
        raise InvalidArgumentError(
            "alpha must be one acceptance here, a number or a list by position, got an array of "
            f"shape {rates.shape}"
        )
    if rates.size == 1:
        return ConstantAcceptance(rates.item())
    return PerPositionAcceptance(tuple(rates.tolist()))


def notes_on(alpha: AlphaLike, acceptance: Acceptance, gamma: int) -> tuple[str, ...]:
    """How ``alpha`` was read where it could have meant two things, and how far it was measured.

    acceptance : what ``acceptance_of`` made of it
    gamma : the draft length that is answered for
    """
    lines: list[str] = []
    if isinstance(alpha, (list, tuple)) and len(alpha) > 1 and not (np.diff(alpha) > 0).any():
        lines.append(
            f"alpha {','.join(f'{each:g}' for each in alpha)} was read as conditional rates, "
            "accepted of the drafts that got to a position; shares of all rounds are --marginal "
            "(specsim.Marginal)"
        )
    known = alpha if isinstance(alpha, Limited) else acceptance
    if isinstance(known, Limited):
        lines += known.notes(gamma)
    return tuple(lines)
