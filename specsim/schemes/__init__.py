"""Decoding schemes: what a block may do, as frozen descriptions.

A scheme (specsim.schemes.base) says structure and numbers; what its law must know beside them is
in specsim.schemes.known.  Readers (specsim.predict, the optimisers) take its law.  A new scheme is
one file here and one line in ``SCHEMES``; docs/law-of-a-block.md walks through one.
"""

from __future__ import annotations

from specsim.schemes.adaptive import AdaptiveEstimate, AdaptiveHeuristic
from specsim.schemes.base import Scheme
from specsim.schemes.beam import BeamSearch
from specsim.schemes.bild import BigLittle
from specsim.schemes.deferral import SequenceCascade, TokenCascade
from specsim.schemes.full_cascade import FullCascade
from specsim.schemes.horizontal import HorizontalCascade
from specsim.schemes.known import (
    Acceptances,
    Deferral,
    DraftedAccepted,
    FallbackRollback,
    Known,
)
from specsim.schemes.oracle import OracleGamma
from specsim.schemes.plain import PlainDecoding
from specsim.schemes.specdec import SpecDec
from specsim.schemes.speculative import SpeculativeCascade, SpeculativeDecoding
from specsim.schemes.vertical import VerticalCascade

SCHEMES: dict[str, type[Scheme]] = {
    "plain": PlainDecoding,
    "speculative": SpeculativeDecoding,
    "specdec": SpecDec,
    "oracle": OracleGamma,
    "bild": BigLittle,
    "horizontal-cascade": HorizontalCascade,
    "vertical-cascade": VerticalCascade,
    "full-cascade": FullCascade,
    "token-cascade": TokenCascade,
    "sequence-cascade": SequenceCascade,
    "speculative-cascade": SpeculativeCascade,
    "beam-search": BeamSearch,
    "adaptive-heuristic": AdaptiveHeuristic,
    "adaptive-estimate": AdaptiveEstimate,
}


def scheme_name(scheme: Scheme | type[Scheme]) -> str:
    """What commands call a scheme; the name of its class where it is not in the dict."""
    kind = scheme if isinstance(scheme, type) else type(scheme)
    names = (name for name, known in SCHEMES.items() if known is kind)
    return next(names, kind.__name__)
