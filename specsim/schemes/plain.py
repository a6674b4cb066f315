"""Plain decoding: the null scheme that every speedup is measured against."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

from specsim.laws import BlockLaw
from specsim.schemes.base import Scheme, plain_decoding
from specsim.schemes.known import Known, Pair


@dataclass(frozen=True)
class PlainDecoding(Scheme):
    """One target run on one token emits one token."""

    example: ClassVar[str] = ""
    knows: ClassVar[tuple[type[Known], ...]] = ()

    @property
    def lossless(self) -> bool:
        return True

    @property
    def pairs(self) -> tuple[Pair, ...]:
        return ()

    def law(self, known: Any = None) -> BlockLaw:
        return plain_decoding()

    @property
    def label(self) -> str:
        return "plain decoding"
