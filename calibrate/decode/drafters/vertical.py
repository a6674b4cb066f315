"""Vertical cascade (Chen23): a model that drafts by speculative steps with a cheaper drafter.

The model reviews what the inner drafter proposes as the target reviews the model, so it never
runs token by token.  How many steps make a proposal is told in two ways, which differ: a fixed
number (the paper's formula) or until at least so many tokens are there, the overshoot kept (the
authors' code).

The inner rule may be lenient and the whole still lossless: every token is handed on with the law
that it was drawn from, which is the model's own q, or m of the inner rule.
"""

from __future__ import annotations

from calibrate.decode.drafters.base import Drafter, sources
from calibrate.decode.drawing import Drawing, Rows, join
from calibrate.decode.engine import CachedModel, DecodingError
from calibrate.decode.text import Text
from calibrate.decode.verification import drawing_for, emitted, lenient, verify_rows, verify_tokens
from specsim.checks import InvalidArgumentError, integer, probability


class Vertical(Drafter):
    """A model that reviews an inner drafter.

    model : reviews; its bonus tokens are its own, whatever the lenience
    inner : proposes to it
    gamma : the most tokens that the inner drafter proposes in one step, >= 0, or None where it
        has a length of its own
    steps, at_least : so many steps a proposal, >= 0, or until at least so many tokens are there,
        >= 0, what the last step has too many proposed too; one of them is None
    lenience : of the model towards the inner drafter, l in [0, 1], 1 for none
    """

    def __init__(
        self,
        model: CachedModel,
        inner: Drafter,
        gamma: int | None = None,
        steps: int | None = None,
        at_least: int | None = None,
        lenience: float = 1.0,
    ) -> None:
        if model in inner.sources:
            raise DecodingError(f"{model.name} cannot review itself: it needs a cache of its own")
        if (steps is None) == (at_least is None):
            raise InvalidArgumentError("give one of steps and at_least")
        self.model, self.inner = model, inner
        self.gamma = None if gamma is None else integer("gamma", gamma)
        self.steps = None if steps is None else integer("steps", steps)
        self.at_least = None if at_least is None else integer("at_least", at_least)
        self.lenience = probability("lenience", lenience)
        self.sources = (model, *sources([inner]))

    def begin(self, text: Text) -> None:
        super().begin(text)
        self.inner.begin(text)
        self.reader = text.reader(self.model)

    def _wants_more(self, steps: int, tokens: int) -> bool:
        """Whether to take another step after so many, which gave so many tokens."""
        if self.steps is not None:
            return steps < self.steps
        return tokens < (self.at_least or 0)

    def propose(self, room: int, drawing: Drawing) -> Rows | None:
        start, steps = len(self.text), 0
        rows = []
        while (tokens := len(self.text) - start) < room and self._wants_more(steps, tokens):
            rows.append(self._step(room - tokens, drawing))
            steps += 1
        return join(rows)

    def _step(self, room: int, drawing: Drawing) -> Rows | None:
        """The model reviews one proposal of the inner drafter: at least one token, or ``room``."""
        rule = lenient(self.lenience, drawing.sampling)
        inside = drawing_for(rule, drawing)
        start = len(self.text)
        most = room - 1 if self.gamma is None else min(self.gamma, room - 1)
        proposed = self.inner.propose(most, inside)
        if not inside.rows:
            verify_tokens(self.text, start, self.reader, inside)
            return None
        block = verify_rows(self.text, start, self.reader, proposed, rule, inside)
        if not drawing.rows:
            return None
        found = emitted(rule, block)
        # Lenience may have wanted rows that whoever reviews these does not.
        return found if drawing.unscaled else Rows(found.q)
