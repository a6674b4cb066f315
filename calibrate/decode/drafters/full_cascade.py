"""Cascade Speculative Drafting, the full algorithm (Chen23 Algorithm 1): vertical and horizontal.

Every reviewer, the target first, is served by a horizontal cascade of all drafters below it; every
neural drafter fills its share by steps in which it is a reviewer itself.  The last drafter has no
model (Max-Gram), so no model ever runs token by token.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from calibrate.decode.drafters.base import Drafter
from calibrate.decode.drafters.horizontal import Horizontal
from calibrate.decode.drafters.vertical import VerticalAtLeast
from calibrate.decode.engine import CachedModel, Decoded
from specsim.checks import InvalidArgumentError, integer, number


def full_cascade(
    models: Sequence[CachedModel],
    last: Drafter,
    lengths: Sequence[Sequence[int]],
    lenience: float = 1.0,
) -> Drafter:
    """A drafter for the target out of all others.

    models : drafting models, best first
    last : the drafter without a model
    lengths : the triangular matrix of ``specsim.schemes.FullCascade``, row by reviewer (the target
        first) and column by drafter below it: at least so many tokens from a model, at most so
        many from ``last``
    lenience : of every model towards the ones below it, l in [0, 1]; Chen23's is 1 / l.  The
        text is the target's whatever it is.
    """
    rows = [[integer("lengths", length) for length in row] for row in lengths]
    wanted = list(range(len(models) + 1, 0, -1))
    if [len(row) for row in rows] != wanted:
        raise InvalidArgumentError(
            f"lengths must have rows of {', '.join(map(str, wanted))} numbers for "
            f"{len(models)} models, got rows of {', '.join(str(len(row)) for row in rows)}"
        )

    def below(reviewer: int) -> Drafter:
        """All that proposes to the reviewer of this row."""
        shares = rows[reviewer]
        parts: list[tuple[Drafter, int | None]] = [
            (VerticalAtLeast(model, below(drafter + 1), share, None, lenience), None)
            for drafter, (model, share) in enumerate(
                zip(models[reviewer:], shares[:-1], strict=True), start=reviewer
            )
            if share
        ]
        return Horizontal([*parts, (last, shares[-1])])

    return below(0)


def standardized_improvement(decoded: Sequence[Decoded], costs: Mapping[str, float]) -> float:
    """SWI = tokens / sum_i c_i runs_i, counted and not timed (Chen23 section 5).

    costs : c of each drafter by name, in target runs; the target's own is 1
    """
    charged = {name: number(f"cost of {name}", cost, low=0.0) for name, cost in costs.items()}
    missing = {name for each in decoded for name in each.drafts} - set(charged)
    if missing:
        raise InvalidArgumentError(f"costs must have all drafters, lacks {', '.join(missing)}")
    spent = sum(
        each.calls + sum(charged[name] * runs.count for name, runs in each.drafts.items())
        for each in decoded
    )
    return sum(len(each.tokens) for each in decoded) / spent
