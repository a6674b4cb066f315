"""Rules of verification: target distributions made of p and q, and the laws they really emit.

See ``specsim.rules.base`` for what a rule is and what a new one needs.
"""

from __future__ import annotations

from specsim.rules.accept_sets import GreedyLenient, GreedyMatch, TopBeta
from specsim.rules.acceptance_laws import acceptance_given, expected_acceptance
from specsim.rules.base import Array, DecideOn, DecidingRule, Distributions, Rule
from specsim.rules.custom import Custom
from specsim.rules.deferral import (
    BildStar,
    Chow,
    ChowLog,
    DeferralRule,
    Diff,
    DiffLog,
    DraftDeferralRule,
    Opt,
    OptLog,
)
from specsim.rules.lossy import (
    Lenient,
    LenientRedraw,
    LenientScaledResidual,
    Lossless,
    Lossy,
    LossyStar,
)
from specsim.rules.token import TokenV1, TokenV2, TokenV3

RULES: dict[str, type[Rule]] = {
    rule.__name__: rule
    for rule in (
        Lossless,
        Lenient,
        LenientScaledResidual,
        LenientRedraw,
        Lossy,
        LossyStar,
        Chow,
        ChowLog,
        Diff,
        DiffLog,
        Opt,
        OptLog,
        BildStar,
        TokenV1,
        TokenV2,
        TokenV3,
        TopBeta,
        GreedyMatch,
        GreedyLenient,
        Custom,
    )
}
