"""What runs cost, in target runs on one token; prices the runs that a law counts.

The papers take v(n) = 1: verifying gamma + 1 tokens costs as much as one.  It does not, so v is a
thing of its own here: unit (the papers'), linear, or a measured curve.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from specsim.checks import (
    Floats,
    InvalidArgumentError,
    UnsupportedError,
    integers,
    number,
    numbers,
)
from specsim.laws import TARGET, Run


@dataclass(frozen=True)
class LinearVerify:
    """v(n) = 1 + slope (n - 1); slope 0 is the papers' assumption that verification is free."""

    slope: float = 0.0

    def __post_init__(self) -> None:
        object.__setattr__(self, "slope", number("verify slope", self.slope, low=0.0))

    def __call__(self, positions: npt.ArrayLike) -> Floats:
        return 1.0 + self.slope * (np.asarray(positions, dtype=float) - 1.0)


@dataclass(frozen=True)
class MeasuredVerify:
    """v(1), v(2), ..., v(n_max) as measured, scaled to v(1) = 1; unknown beyond n_max."""

    curve: tuple[float, ...]

    def __post_init__(self) -> None:
        curve = np.atleast_1d(numbers("verify cost", self.curve, low=0.0))
        if not curve.all():
            tokens = int(np.argmin(curve)) + 1
            raise InvalidArgumentError(f"verify cost of {tokens} tokens must be > 0, got 0")
        object.__setattr__(self, "curve", tuple((curve / curve[0]).tolist()))

    @property
    def longest(self) -> int:
        """n_max, the widest run that was measured."""
        return len(self.curve)

    def check_drafts(self) -> None:
        """Refuse a curve that tells of no draft at all."""
        if self.longest < 2:
            raise InvalidArgumentError(
                "verify cost must have at least two numbers, what runs over 1, 2, ... tokens cost, "
                "or no draft is considered, got 1"
            )

    def __call__(self, positions: npt.ArrayLike) -> Floats:
        index = integers("positions", positions, low=1)
        if index.max() > self.longest:
            raise UnsupportedError(
                f"verify cost is known for 1..{self.longest} tokens, {index.max()} asked for"
            )
        return np.asarray(self.curve)[index - 1]


VerifyCost = LinearVerify | MeasuredVerify


def block_cost(
    gamma: npt.NDArray[np.number],
    c: float | Floats,
    verify: VerifyCost = LinearVerify(),
    overhead: float = 0.0,
    plain_overhead: float = 0.0,
) -> Floats:
    """gamma c + v(gamma + 1) + o, the cost of a block; a step of plain decoding at gamma = 0.

    gamma and c broadcast; ``gamma`` alone where c is one number.  Unchecked: this is a hot path.
    """
    cost: Floats = np.multiply(gamma, c, dtype=np.float64)
    cost += verify(gamma + 1)
    if overhead or plain_overhead:
        cost += np.where(gamma > 0, overhead, plain_overhead)
    return cost


@dataclass(frozen=True)
class Cost:
    """Prices in target runs on one token.

    drafts : cost of one run of each draft model, whatever its width (the papers' c)
    verify : v(n), the cost of one target run on n new tokens
    overhead : host time of one block (sampling, synchronisation)
    plain_overhead : host time of one step of plain decoding, which speedup is measured against
    """

    drafts: Mapping[str, float] = field(default_factory=dict)
    verify: VerifyCost = LinearVerify()
    overhead: float = 0.0
    plain_overhead: float = 0.0

    def __post_init__(self) -> None:
        checked = {name: number(f"cost of {name}", c, low=0.0) for name, c in self.drafts.items()}
        object.__setattr__(self, "drafts", checked)
        for name in ("overhead", "plain_overhead"):
            object.__setattr__(self, name, number(name, getattr(self, name), low=0.0))

    def price(self, run: Run) -> float:
        """Cost of one run."""
        if run.model == TARGET:
            return float(self.verify(run.positions))
        if run.model not in self.drafts:
            known = ", ".join(sorted(self.drafts)) or "none"
            raise UnsupportedError(f"no cost is known for the model {run.model!r} (known: {known})")
        return self.drafts[run.model]

    def blocks(self, gamma_max: int, drafter: str = "draft") -> Floats:
        """Cost of a block of 0..gamma_max drafts, shape (gamma_max + 1,); 0 is plain decoding."""
        c = self.price(Run(drafter, 1))
        gammas = np.arange(gamma_max + 1)
        return block_cost(gammas, c, self.verify, self.overhead, self.plain_overhead)


@dataclass(frozen=True)
class Prices:
    """What a caller says of costs, all in target runs on one token; None is not said.

    c : cost of one run of the draft
    c_ops, c_memory : operations of a draft token and bytes of a draft run, over the target's
    verify_slope : v(n) = 1 + verify_slope (n - 1), free as in the papers if nothing is said; or
        ``verify_cost``, v(1), v(2), ... as measured
    overhead : host time of a block
    """

    c: npt.ArrayLike | None = None
    c_ops: npt.ArrayLike | None = None
    c_memory: npt.ArrayLike | None = None
    verify_slope: float | None = None
    verify_cost: npt.ArrayLike | None = None
    overhead: float | None = None

    def __post_init__(self) -> None:
        if self.verify_slope is not None and self.verify_cost is not None:
            raise InvalidArgumentError("verify_slope and verify_cost exclude each other")

    def said(self) -> dict[str, Any]:
        """By name, without what was not said."""
        return {name: value for name, value in vars(self).items() if value is not None}

    @property
    def verify(self) -> VerifyCost:
        if self.verify_cost is None:
            return LinearVerify(self.verify_slope or 0.0)
        return MeasuredVerify(tuple(np.ravel(numbers("verify cost", self.verify_cost)).tolist()))

    def cost(self, drafts: Mapping[str, float]) -> Cost:
        """Of these draft models, with what is said of verification and overhead."""
        return Cost(drafts, self.verify, self.overhead or 0.0)
