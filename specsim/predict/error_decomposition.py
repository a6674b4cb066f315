"""Where the error of a predicted speedup comes from.

With N tokens a block and the block's draft runs, verify run and overhead in plain steps (d, v, o),
the speedup is N / (d + v + o), so its error as a logarithm is that of N less that of the sum; the
second is shared out in proportion to what each part adds to the gap.  The shares add up exactly.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import log


@dataclass(frozen=True)
class BlockTiming:
    """What a block yields and where its time goes.

    tokens : tokens of a request that one block emits
    draft_s, verify_s, overhead_s : seconds of a block in draft runs, in the target run, outside
    plain_step_s : seconds of a step of plain decoding, overhead included
    """

    tokens: float
    draft_s: float
    verify_s: float
    overhead_s: float
    plain_step_s: float

    @property
    def block_s(self) -> float:
        return self.draft_s + self.verify_s + self.overhead_s

    @property
    def speedup(self) -> float:
        return self.tokens * self.plain_step_s / self.block_s


PARTS = ("acceptance", "draft", "verify", "overhead")


def decompose_error(predicted: BlockTiming, measured: BlockTiming) -> dict[str, float]:
    """Shares of log(predicted / measured speedup); positive where they make it look faster."""
    gaps = {
        name: getattr(predicted, f"{name}_s") / predicted.plain_step_s
        - getattr(measured, f"{name}_s") / measured.plain_step_s
        for name in PARTS[1:]
    }
    acceptance = log(predicted.tokens / measured.tokens)
    whole = log(predicted.speedup / measured.speedup) - acceptance
    gap = sum(gaps.values())
    # Where gaps cancel, the rate of the logarithm itself, which is the limit of whole / gap.
    block = measured.tokens / measured.speedup
    rate = whole / gap if abs(gap) > 1e-9 * block else -1.0 / block
    return {
        "error_acceptance": acceptance,
        **{f"error_{name}": value * rate for name, value in gaps.items()},
    }
