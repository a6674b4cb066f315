"""How often a draft token is accepted at one position, under each law of acceptance in use.

With p the target's distribution and q the draft's (``specsim.acceptance.AcceptanceLaw``):

    ratio-test      x ~ q, accepted with min(1, p(x) / q(x))    sum_x min(p, q)(x)
    greedy-drafts   x = argmax q, accepted with p(x)            p(argmax q)
    exact-match     x ~ q, accepted if a draw from p is x       sum_x p(x) q(x)

Each emits exactly p: the first by Leviathan23 A.1, the second is the first with the one-hot row at
argmax q for q, and the third emits the target's own draw.  Given the token that came out, the draft
was accepted with P(draft is x, and accepted) / p(x): min(1, q(x) / p(x)), 1[x = argmax q], q(x).
"""

from __future__ import annotations

from array_api_compat import array_namespace

from specsim.acceptance import ACCEPTANCE_LAWS, AcceptanceLaw
from specsim.checks import check_choice
from specsim.rules.base import Array, Distributions, at, one_hot_top
from specsim.rules.lossy import Lossless


def expected_acceptance(law: AcceptanceLaw, rows: Distributions) -> Array:
    """beta, P(the draft token is accepted), shape (...).

    exact-match <= ratio-test, since p q <= min(p, q); greedy-drafts may be above or below.
    """
    xp = array_namespace(rows.p)
    check_choice("law", law, ACCEPTANCE_LAWS)
    match law:
        case "greedy-drafts":
            return Lossless().acceptance(Distributions(rows.p, one_hot_top(rows.q)))
        case "exact-match":
            total = xp.sum(rows.p * rows.q, axis=-1)
            return xp.minimum(total, xp.ones_like(total))
        case _:
            return Lossless().acceptance(rows)


def acceptance_given(law: AcceptanceLaw, rows: Distributions, tokens: Array) -> Array:
    """P(the draft token was accepted | x was emitted) at ``tokens`` (...) on rows (..., V).

    min(1, q(x) / p(x)); 1 if x = argmax q, else 0; q(x).  Where the target cannot emit x, 0.
    """
    xp = array_namespace(rows.p)
    check_choice("law", law, ACCEPTANCE_LAWS)
    p, q = at(rows.p, tokens), at(rows.q, tokens)
    possible = p > 0
    match law:
        case "greedy-drafts":
            found = at(one_hot_top(rows.q), tokens)
        case "exact-match":
            found = q
        case _:
            found = xp.minimum(p, q) / xp.where(possible, p, xp.ones_like(p))
    return xp.where(possible, found, xp.zeros_like(found))
