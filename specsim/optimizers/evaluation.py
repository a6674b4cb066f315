"""What one setting, or an array of settings, does at a draft length: the figures and their result.

Costs are in target runs on one token, speedup is against plain decoding by the same target, and
gamma = 0 is plain decoding: speedup exactly one, no overhead charged.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from specsim import formulas
from specsim.api.result import Result, Row
from specsim.checks import Floats, Ints
from specsim.cost import LinearVerify, VerifyCost, block_cost
from specsim.optimizers.search import blockwise

FIGURES = (
    "gamma",
    "speedup",
    "tokens_per_call",
    "operations_factor",
    "memory_factor",
    "oracle_speedup",
    "at_gamma_max",
)


@dataclass(frozen=True)
class Evaluation(Result):
    """What one setting, or an array of settings, does; scalars if every input was a scalar.

    gamma : draft tokens per target call
    speedup : against plain decoding
    tokens_per_call : E[N], the recovered or bonus token counted (plain decoding is 1)
    operations_factor : arithmetic operations per token, against plain decoding
    memory_factor : bytes of weights and cache read per token, against plain decoding
    oracle_speedup : speedup if each block drafted just the tokens that will be accepted, or one
        where that does not pay and nothing is drafted.  Under i.i.d. acceptance and linear
        verification this is Leviathan23 section 3.5 in closed form.  Otherwise it sums over the
        survival curve, and the oracle drafts no further than the measured curves go (in
        ``optimize`` also no further than ``gamma_max``; in ``evaluate`` with nothing measured, no
        further than the largest gamma).  Over ``speedup`` it is what an adaptive length could win.
    at_gamma_max : whether the best gamma is the largest that was considered, so that a larger one
        might be better; always false for a gamma that was given
    """

    schema: ClassVar[str] = "specsim.evaluation"

    gamma: Any
    speedup: Any
    tokens_per_call: Any
    operations_factor: Any
    memory_factor: Any
    oracle_speedup: Any
    at_gamma_max: Any

    def rows(self) -> list[Row]:
        """One row per setting; of an array of settings with the inputs that vary in front."""
        columns = {name: getattr(self, name) for name in FIGURES}
        shape = np.shape(self.gamma)
        if not shape:
            return [columns]
        varied = {
            name: value for name, value in self.inputs.items() if isinstance(value, np.ndarray)
        }
        columns = {**varied, **columns}
        flat = [np.broadcast_to(value, shape).ravel().tolist() for value in columns.values()]
        return [dict(zip(columns, row, strict=True)) for row in zip(*flat, strict=True)]


class _ArrayEvaluation(Evaluation):
    """An evaluation of many settings that works each figure out when it is first read.

    A sweep over 10^7 settings that asks only for gamma then does not pay for five more arrays.
    """

    def __init__(
        self,
        setting: Setting,
        gamma: Ints,
        end: int | None,
        inputs: Mapping[str, Any],
        warnings: tuple[str, ...],
    ) -> None:
        self.__dict__.update(
            _setting=setting, gamma=gamma, _end=end, inputs=inputs, warnings=warnings
        )

    def __getattr__(self, name: str) -> Any:
        if name not in FIGURES:
            raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")
        if name == "at_gamma_max":
            value = np.asarray(self.gamma == self._end)
        else:
            value = self._setting.figure(name, self.gamma)
        self.__dict__[name] = value
        return value


@dataclass(frozen=True)
class Setting:
    """Checked inputs, and the figures as functions of them and of gamma.

    Either ``alpha`` is known (i.i.d. acceptance) or the tokens per call ``gains`` are, at gamma =
    0, 1, ... as far as any that will be asked for, and ``survival``, S_0, S_1, ... of the longest
    of these.  ``longest`` bounds the oracle where it has no closed form.
    """

    alpha: Floats
    survival: Floats | None
    gains: Floats | None
    c: Floats
    c_ops: Floats
    c_memory: Floats
    verify: VerifyCost
    overhead: float
    longest: int

    def tokens(self, alpha: Floats, gamma: Ints) -> Floats:
        """E[N] = S_0 + ... + S_gamma, with the survival curve of blocks of gamma."""
        if self.gains is None:
            return 1.0 + alpha * formulas.geometric_sum(alpha, gamma)
        return np.asarray(self.gains[gamma])

    def cost(self, c: Floats, gamma: Ints) -> Floats:
        """Of a block, in target runs."""
        return block_cost(gamma, c, self.verify, self.overhead)

    def oracle(self, alpha: Floats, c: Floats) -> Floats:
        """The oracle's speedup: it drafts J tokens, with P(J >= i) = S_i."""
        if self.survival is None and isinstance(self.verify, LinearVerify):
            slope = self.verify.slope
            return formulas.oracle_speedup(alpha, c, verify_slope=slope, overhead=self.overhead)
        survival = self.survival
        if survival is None:
            survival = np.power.outer(alpha, np.arange(self.longest + 1.0))
        drafts = survival[..., 1 : self.longest + 1]
        steps = np.diff(self.verify(np.arange(1, self.longest + 2)))
        overhead = self.overhead * drafts[..., :1].sum(axis=-1)
        accepted = drafts.sum(axis=-1)
        return np.asarray((1.0 + accepted) / (1.0 + drafts @ steps + c * accepted + overhead))

    def figure(self, name: str, gamma: Ints) -> Any:
        """The named field of ``Evaluation``, in the shape of what it depends on, gamma included."""
        of: dict[str, tuple[Callable[..., Floats], tuple[Floats, ...]]] = {
            "speedup": (
                lambda alpha, c, gamma: self.tokens(alpha, gamma) / self.cost(c, gamma),
                (self.alpha, self.c),
            ),
            "tokens_per_call": (self.tokens, (self.alpha,)),
            "operations_factor": (
                lambda alpha, c_ops, gamma: (
                    (gamma * (1.0 + c_ops) + 1.0) / self.tokens(alpha, gamma)
                ),
                (self.alpha, self.c_ops),
            ),
            "memory_factor": (
                lambda alpha, c_memory, gamma: (gamma * c_memory + 1.0) / self.tokens(alpha, gamma),
                (self.alpha, self.c_memory),
            ),
            "oracle_speedup": (
                lambda alpha, c, gamma: np.maximum(1.0, self.oracle(alpha, c)),
                (self.alpha, self.c),
            ),
        }
        formula, operands = of[name]
        return blockwise(formula, *operands, gamma)

    def at(
        self,
        gamma: Ints,
        end: int | None = None,
        inputs: Mapping[str, Any] | None = None,
        notes: tuple[str, ...] = (),
    ) -> Evaluation:
        """The evaluation at ``gamma``.

        end : the largest that a search considered
        notes : what to know of the acceptance there, one line each
        """
        operands = (self.alpha, self.c, self.c_ops, self.c_memory, gamma)
        shape = np.broadcast_shapes(*(each.shape for each in operands))
        figures = _ArrayEvaluation(self, np.broadcast_to(gamma, shape), end, inputs or {}, notes)
        if shape:
            return figures
        values = {name: getattr(figures, name).item() for name in FIGURES}
        warnings = [*notes]
        if values["at_gamma_max"] and end:
            warnings.append(
                f"gamma {end} is the longest that was considered: a longer one may pay more"
            )
        if self.c > 1:
            warnings.append(
                f"a run of the draft costs {self.c:.3g} runs of the target: have target and draft "
                "changed places?"
            )
        return Evaluation(**values, inputs=inputs or {}, warnings=tuple(warnings))
