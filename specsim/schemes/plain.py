"""Plain decoding: the null scheme that every speedup is measured against."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from specsim.laws import TARGET, BlockLaw, Run


@dataclass(frozen=True)
class PlainDecoding:
    """One target run on one token emits one token."""

    def law(self) -> BlockLaw:
        return BlockLaw(np.ones(1), np.ones(1, dtype=np.int64), {Run(TARGET, 1): np.ones(1)})
