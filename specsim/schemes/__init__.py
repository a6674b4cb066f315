"""Decoding schemes: what a block may do, as frozen descriptions.

A scheme is a frozen dataclass with ``law() -> BlockLaw``.  It knows how often tokens are accepted
and nothing of time; readers (specsim.predict, the optimisers) take its law.  A new scheme is one
file here and one line in ``SCHEMES``; docs/law-of-a-block.md walks through one.

A scheme that carries state across blocks has no law of one block: its ``law()`` raises
UnsupportedError, it has ``policy()`` for replay and Monte Carlo, and ``stationary_law()`` where the
long run is exactly known.
"""

from __future__ import annotations

from specsim.laws import BlockLaw
from specsim.schemes.adaptive import AdaptiveEstimate, AdaptiveHeuristic
from specsim.schemes.beam import BeamSearch
from specsim.schemes.bild import BigLittle, BigLittleJoint
from specsim.schemes.deferral import SequenceCascade, TokenCascade
from specsim.schemes.full_cascade import FullCascade
from specsim.schemes.horizontal import HorizontalCascade
from specsim.schemes.oracle import OracleGamma
from specsim.schemes.plain import PlainDecoding
from specsim.schemes.speculative import SpecDec, SpeculativeDecoding
from specsim.schemes.vertical import VerticalCascade, VerticalCascadeAtLeast

SCHEMES: dict[str, type] = {
    "plain": PlainDecoding,
    "speculative": SpeculativeDecoding,
    "specdec": SpecDec,
    "oracle": OracleGamma,
    "bild": BigLittle,
    "bild-joint": BigLittleJoint,
    "horizontal-cascade": HorizontalCascade,
    "vertical-cascade": VerticalCascade,
    "vertical-cascade-at-least": VerticalCascadeAtLeast,
    "full-cascade": FullCascade,
    "token-cascade": TokenCascade,
    "sequence-cascade": SequenceCascade,
    "beam-search": BeamSearch,
    "adaptive-heuristic": AdaptiveHeuristic,
    "adaptive-estimate": AdaptiveEstimate,
}


def stationary_law(scheme: object) -> BlockLaw:
    """The law of a block in a long run: ``law()``, or ``stationary_law()`` where state is carried.

    Raises UnsupportedError, naming the scheme, where neither is known.
    """
    known = getattr(scheme, "stationary_law", None) or scheme.law  # type: ignore[attr-defined]
    law: BlockLaw = known()
    return law
