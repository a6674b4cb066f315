"""What a replay reads: one recorded text, and what every drafter makes of it.

Whoever has the models implements ``RecordedText`` (calibrate.measure.recorded_text); the replays
and laws here see numbers only.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import numpy as np

from specsim.acceptance import AcceptanceLaw
from specsim.checks import Floats
from specsim.schemes.drafters import CopyDrafter, EagleDrafter, MaskDrafter


class RecordedText(Protocol):
    """A text of T tokens that its verifier emitted."""

    @property
    def tokens(self) -> Sequence[int]:
        """The text, end-of-text included, (T,)."""
        ...

    @property
    def limit(self) -> int:
        """Tokens that were asked for, >= T; more than T where the text ends with end-of-text."""
        ...

    def accepted(self, drafter: str, verifier: str, law: AcceptanceLaw = "ratio-test") -> Floats:
        """a_t of a model or of counts under a law of acceptance, shape (T,).

        min(1, d(x_t) / v(x_t)) by the ratio test, 1[x_t = argmax d] of greedy drafts, d(x_t) by
        exact match.
        """
        ...

    def proposals(self, drafter: CopyDrafter | MaskDrafter) -> Sequence[Sequence[int]]:
        """What a drafter whose proposal follows from its place proposes before each token."""
        ...

    def accepted_by_depth(
        self, drafter: EagleDrafter, verifier: str, law: AcceptanceLaw = "ratio-test"
    ) -> tuple[Floats, np.ndarray]:
        """a_{s,j} of a head under a law of acceptance, (T, K), and how much it proposes, (T,).

        Of token x_{s+j} as the j-th, from 0, of a block that starts at s, given that those before
        it were accepted; 0 behind the text.  A head proposes K tokens, or none where it has
        nothing to read.  Raises UnsupportedError where the verifier is not the head's target.
        """
        ...

    def off_text_samples(
        self, reviewer: str, verifier: str, place: int | None
    ) -> Sequence[RecordedText]:
        """Texts of a reviewer's own that begin with a token that its verifier rejects.

        place : of that token in this text: then one text, or none where what the reviewer writes
            there is not known.  None for anywhere: one text at least, or UnsupportedError where
            the context has no room for any
        """
        ...


def agreement(text: RecordedText, drafter: CopyDrafter | MaskDrafter) -> tuple[Floats, np.ndarray]:
    """How proposals agree with the text: (T, most), 1 where token i of the one made at t is its.

    Returns the lengths of the proposals too, (T,).
    """
    proposed = text.proposals(drafter)
    agrees = np.zeros((len(text.tokens), drafter.tokens))
    for place, tokens in enumerate(proposed):
        pairs = zip(tokens, text.tokens[place:], strict=False)
        for index, (draft, real) in enumerate(pairs):
            agrees[place, index] = draft == real
    return agrees, np.array([len(tokens) for tokens in proposed])
