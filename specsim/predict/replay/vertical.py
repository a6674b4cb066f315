"""Replay of a vertical cascade (Chen23): a model that drafts by reviewing another drafter.

The description is ``specsim.schemes.drafters.VerticalDrafter``, the decoder
``calibrate.decode.drafters.vertical``.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property

from specsim.checks import Floats, InvalidArgumentError
from specsim.predict.replay.drafters import DrafterReplay, Proposal
from specsim.predict.replay.run_counts import RunCounts

# Room where none is known: longer than any proposal.
_ANY = 1 << 20


@dataclass(frozen=True, eq=False)
class VerticalReplay(DrafterReplay):
    """A model that drafts by reviewing another drafter, step by step (vertical cascade, Chen23).

    accepted : shape (T,), a_t of the model's own tokens before its verifier
    inner : verified by the model
    off_text_samples : the inner drafter on texts of the model's own, one at least, that begin with
        a token that its verifier rejects: at one place of the text, or with None anywhere.  Behind
        their end every step is taken to have one token, so they should be as long as ``reach``
    gamma : the most tokens that ``inner`` proposes in a step, or None for as many as it has
    steps, at_least : so many steps, or until there are at least so many tokens; one is None
    """

    name: str
    accepted: Floats
    inner: DrafterReplay
    off_text_samples: Callable[[int | None], Sequence[DrafterReplay]]
    gamma: int | None
    steps: int | None = None
    at_least: int | None = None

    def __post_init__(self) -> None:
        if (self.steps is None) == (self.at_least is None):
            raise InvalidArgumentError("give either steps or at_least")

    @cached_property
    def _widest(self) -> int:
        """The most tokens of a step."""
        inner = self.inner.reach
        return 1 + (inner if self.gamma is None else min(self.gamma, inner))

    @property
    def reach(self) -> int:
        if self.steps is not None:
            return self.steps * self._widest
        return self.at_least - 1 + self._widest if self.at_least else 0

    def _more(self, steps: int, tokens: int) -> bool:
        return steps < self.steps if self.steps is not None else tokens < (self.at_least or 0)

    def _propose(self, start: int, room: int) -> Proposal:
        rejected: dict[int, float] = {}
        complete: dict[int, float] = {}
        runs, length = RunCounts(), 0.0
        # A step has at least one token, so states in order of tokens are settled when reached.
        alive: dict[tuple[int, int], float] = {(0, 0): 1.0}
        while alive:
            state = min(alive)
            tokens, steps = state
            mass = alive.pop(state)
            if tokens >= room or not self._more(steps, tokens):
                complete[tokens] = complete.get(tokens, 0.0) + mass
                length += mass * tokens
                continue
            pushed, step_runs = self._step(self.inner, start + tokens, room - tokens)
            runs.merge(step_runs, mass)
            kept, at_least = 1.0, 1.0  # all so far accepted; the step has a token here
            for place in range(max(pushed)):
                here = start + tokens + place
                rate = float(self.accepted[here]) if here < len(self.accepted) else 0.0
                lost = mass * kept * at_least * (1 - rate)
                if lost:
                    first = tokens + place
                    rejected[first] = rejected.get(first, 0.0) + lost
                    rest, total = self._off(here, tokens, place + 1, steps + 1, room)
                    runs.merge(rest, lost)
                    length += lost * total
                kept *= rate
                here_ends = pushed.get(place + 1, 0.0)
                if kept * here_ends:
                    following = (tokens + place + 1, steps + 1)
                    alive[following] = alive.get(following, 0.0) + mass * kept * here_ends
                at_least -= here_ends
                if not kept or at_least <= 0:
                    break
        return Proposal(rejected, complete, length, runs)

    def _step(
        self, drafter: DrafterReplay, start: int, room: int
    ) -> tuple[dict[int, float], RunCounts]:
        """P(a step has k tokens) given that they are the text's, and its runs.

        drafter : the inner drafter on that text
        """
        most = room - 1 if self.gamma is None else min(self.gamma, room - 1)
        inner = drafter.propose(start, most)
        pushed: dict[int, float] = {}
        for ends in (inner.rejected, inner.complete):
            for tokens, mass in ends.items():
                pushed[tokens + 1] = pushed.get(tokens + 1, 0.0) + mass
        runs = RunCounts()
        runs.merge(inner.runs)
        runs.add(self.name, 1.0)
        return pushed, runs

    def _off(
        self, here: int, before: int, already: int, steps: int, room: int
    ) -> tuple[RunCounts, float]:
        """From a rejected token inside a step: further runs, and all tokens of the proposal.

        here : its place in the text
        before : tokens of the steps before this one
        already : tokens of this step, the rejected one included
        """
        runs, length = RunCounts(), 0.0
        texts = self.off_text_samples(here)
        for drafter in texts:
            # The last token that a step can have is the model's own and ends it.
            law = {1: 1.0}
            if already < self._widest:
                law, _ = self._step(drafter, 0, _ANY)
            for more, mass in law.items():
                tokens = before + min(already - 1 + more, self._widest)
                rest, ends = self._rest(drafter, more, steps, min(tokens, room), room)
                runs.merge(rest, mass / len(texts))
                length += mass / len(texts) * ends
        return runs, length

    @cached_property
    def _rests(self) -> dict[tuple[DrafterReplay, int, int, int, int], tuple[RunCounts, float]]:
        return {}

    def _rest(
        self, drafter: DrafterReplay, place: int, steps: int, tokens: int, room: int
    ) -> tuple[RunCounts, float]:
        """Further runs and all tokens of a proposal that has so many steps and tokens.

        drafter, place : where the next step begins, in a text of the model's own.  One text all
            the way: where an inner drafter finds nothing, it will hardly find more a token later
        """
        if tokens >= room or not self._more(steps, tokens):
            return RunCounts(), float(tokens)
        key = drafter, place, steps if self.steps is not None else 0, tokens, room
        if key not in self._rests:
            law, step_runs = self._step(drafter, place, room - tokens)
            runs, length = RunCounts(), 0.0
            runs.merge(step_runs)
            for pushed, mass in law.items():
                rest, ends = self._rest(drafter, place + pushed, steps + 1, tokens + pushed, room)
                runs.merge(rest, mass)
                length += mass * ends
            self._rests[key] = runs, length
        return self._rests[key]

    def expected_off_text(self, room: int) -> tuple[RunCounts, float]:
        runs, length = RunCounts(), 0.0
        texts = self.off_text_samples(None)
        for drafter in texts:
            rest, ends = self._rest(drafter, 1, 0, 0, room)
            runs.merge(rest, 1 / len(texts))
            length += ends / len(texts)
        return runs, length
