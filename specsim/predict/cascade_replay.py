"""Exact replay of cascades: expected target calls of any nest of drafters, from one text.

``specsim.predict.replay`` does this for one model that drafts a fixed number of tokens.  Here the
drafter may give up, copy, review another drafter, or hand over to one, and the same argument holds
at every level: given the output x of a verifier with law v, a draft token of law d was accepted
with probability

    a_t = P(token = x_t and accepted) / P(output = x_t) = min(1, d(x_t) / v(x_t)),

independently of the rest.  In a vertical cascade (Chen23) the reviewer's own tokens are verified by
the target with min(1, r/p)(x_t) and, given that they are x_t, come from its inner drafter with
min(1, d/r)(x_t).  So one pass of each model over one text predicts every cascade of them.  Under
a rule that changes the law (Narasimhan24) the text must be drawn from the emitted law m and
a_t = min(q, pi)(x_t) / m(x_t).

Tokens and target calls are exact, and so are the runs of drafters of fixed length.  What a drafter
does behind a token that the target will reject is off the text: a drafter of free length runs on
there as it does on the text on average.  That is the one approximation, and it concerns draft
runs only.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import NamedTuple

import numpy as np

from specsim.checks import Floats, InvalidArgumentError, whole
from specsim.laws import TARGET

# Room where none is known: longer than any proposal.
_ANY = 1 << 20


class Kind(NamedTuple):
    """Runs of one model; ``fresh`` ones follow a run of another model, and so take longer."""

    model: str
    fresh: bool


class Tally:
    """Expected runs, and expected positions read in them, by kind; additive."""

    def __init__(self) -> None:
        self.counts: dict[Kind, float] = {}
        self.positions: dict[Kind, float] = {}

    def add(self, kind: Kind, count: float, positions: float) -> None:
        self.counts[kind] = self.counts.get(kind, 0.0) + count
        self.positions[kind] = self.positions.get(kind, 0.0) + positions

    def merge(self, other: Tally, weight: float = 1.0) -> None:
        """Add all of another tally, times a weight."""
        if weight:
            for kind, count in other.counts.items():
                self.add(kind, weight * count, weight * other.positions[kind])

    def runs(self, model: str) -> float:
        """Expected runs of one model."""
        return sum(count for kind, count in self.counts.items() if kind.model == model)

    def read(self, model: str) -> float:
        """Expected positions that one model reads."""
        return sum(count for kind, count in self.positions.items() if kind.model == model)


@dataclass(frozen=True)
class Proposal:
    """What a drafter proposes at one place of the text, as its verifier takes it.

    rejected : {j: probability that the j-th token, from 0, is the first to be rejected}
    complete : {j: probability that the proposal has j tokens, all accepted}
    length : expected number of positions proposed, which is tokens but for beams
    runs : expected runs of all drafters
    """

    rejected: Mapping[int, float]
    complete: Mapping[int, float]
    length: float
    runs: Tally


_NOTHING = Proposal({}, {0: 1.0}, 0.0, Tally())


class Drafting(ABC):
    """A drafter on one text of T tokens, verified by somebody who emitted that text."""

    @property
    @abstractmethod
    def reach(self) -> int:
        """The most tokens that it ever proposes."""

    @property
    def catching_up(self) -> tuple[str, ...]:
        """Models whose first run in a block has one more token to read after a bonus token."""
        return ()

    @property
    def text_readers(self) -> tuple[str, ...]:
        """Models that read every token of the text once besides what they propose."""
        return ()

    def propose(self, start: int, room: int) -> Proposal:
        """At the text before position ``start``, with at most ``room`` tokens to propose."""
        room = min(room, self.reach)
        if room <= 0:
            return self._nothing
        known = self._known.get((start, room))
        if known is None:
            known = self._known[start, room] = self._propose(start, room)
        return known

    @property
    def _nothing(self) -> Proposal:
        """Where there is no room."""
        return _NOTHING

    @cached_property
    def _known(self) -> dict[tuple[int, int], Proposal]:
        return {}

    @abstractmethod
    def _propose(self, start: int, room: int) -> Proposal:
        """The same for 1 <= room <= reach."""

    @abstractmethod
    def beyond(self, room: int) -> tuple[Tally, float]:
        """Off the text: expected runs and tokens of a proposal there."""


@dataclass(frozen=True, eq=False)
class TokenByToken(Drafting):
    """One run a token.

    accepted : shape (T,), a_t
    most : the most tokens of a proposal
    unsure : shape (T,), bool: it gives up at the run that would write this token (Kim23)
    then : shape (T,): tokens that it writes behind a rejected one at t before it gives up; only
        with ``unsure``
    row_for_bonus : one run more where all was accepted, since the bonus token depends on it
    """

    name: str
    accepted: Floats
    most: int
    unsure: np.ndarray | None = None
    then: np.ndarray | None = None
    row_for_bonus: bool = False

    def __post_init__(self) -> None:
        whole("most", self.most)
        if (self.unsure is None) != (self.then is None):
            raise InvalidArgumentError("unsure and then must be given together")

    @property
    def reach(self) -> int:
        return self.most

    @property
    def catching_up(self) -> tuple[str, ...]:
        return (self.name,)

    @property
    def _nothing(self) -> Proposal:
        return Proposal({}, {0: 1.0}, 0.0, self._tally(float(self.row_for_bonus)))

    def _propose(self, start: int, room: int) -> Proposal:
        rejected, complete = {}, {}
        alive, runs, length = 1.0, 0.0, 0.0
        size = len(self.accepted)
        for place in range(room):
            here = start + place
            # Behind the end of the text, a drafter that may give up has written end-of-text.
            ended = here >= size
            if self.unsure is not None and (ended or self.unsure[here]):
                complete[place] = alive
                runs += alive * (place + (not ended))
                length, alive = length + alive * place, 0.0
                break
            rate = 0.0 if ended else float(self.accepted[here])
            if rate < 1.0:
                lost, rejected[place] = alive * (1 - rate), alive * (1 - rate)
                left = room - place - 1
                more = left
                if self.then is not None:
                    more = min(int(self.then[here]), left)
                runs += lost * (place + 1 + more + (more < left))
                length += lost * (place + 1 + more)
                alive *= rate
            if not alive:
                break
        if alive:
            complete[room] = alive
            runs += alive * (room + self.row_for_bonus)
            length += alive * room
        return Proposal(rejected, complete, length, self._tally(runs))

    def beyond(self, room: int) -> tuple[Tally, float]:
        room = min(room, self.most)
        if self.unsure is None:
            return self._tally(float(room)), float(room)
        # Tokens before the first unsure one, at an average place.
        stay = 1 - float(np.mean(self.unsure))
        tokens = float(sum(stay**count for count in range(1, room + 1)))
        return self._tally(tokens + 1 - stay**room), tokens

    def _tally(self, runs: float) -> Tally:
        tally = Tally()
        first = min(runs, 1.0)
        if first:
            tally.add(Kind(self.name, fresh=True), first, first)
        if runs > first:
            tally.add(Kind(self.name, fresh=False), runs - first, runs - first)
        return tally


@dataclass(frozen=True, eq=False)
class AtOnce(Drafting):
    """One run a proposal: copied tokens, or masks filled in together (Xia22).

    agrees : shape (T, most): token i of a proposal made at t is accepted, given all before it
    lengths : shape (T,): how many tokens it has to propose there
    reads_text : does it read the text, besides what it proposes?
    positions : positions read for each token of a proposal, by drafter and verifier alike; more
        than one for beams
    run_each : a run for each token all the same
    """

    name: str
    agrees: Floats
    lengths: np.ndarray
    reads_text: bool = False
    positions: int = 1
    run_each: bool = False

    @property
    def reach(self) -> int:
        return int(self.agrees.shape[1])

    @property
    def text_readers(self) -> tuple[str, ...]:
        return (self.name,) if self.reads_text else ()

    def _propose(self, start: int, room: int) -> Proposal:
        tally = self._tally(room)
        if start >= len(self.agrees):
            return Proposal({0: 1.0}, {}, float(room * self.positions), tally)
        length = min(room, int(self.lengths[start]))
        rejected, alive = {}, 1.0
        for place in range(length):
            rate = float(self.agrees[start, place])
            if rate < 1.0:
                rejected[place] = alive * (1 - rate)
            alive *= rate
        complete = {length: alive} if alive else {}
        return Proposal(rejected, complete, float(length * self.positions), tally)

    def beyond(self, room: int) -> tuple[Tally, float]:
        if not room:
            return Tally(), 0.0
        return self._tally(room), float(np.minimum(self.lengths, room).mean())

    def _tally(self, room: int) -> Tally:
        tally = Tally()
        runs = room if self.run_each else 1
        read = float(room * self.positions)
        tally.add(Kind(self.name, fresh=True), 1.0, read / runs)
        if runs > 1:
            tally.add(Kind(self.name, fresh=False), runs - 1.0, read - read / runs)
        return tally


@dataclass(frozen=True, eq=False)
class Reviewed(Drafting):
    """A model that drafts by reviewing another drafter, step by step (vertical cascade, Chen23).

    accepted : shape (T,), a_t of the model's own tokens before its verifier
    inner : verified by the model
    aside : the inner drafter on texts of the model's own, each beginning with a token that its
        verifier rejects, and long enough for a step from every place up to ``reach``
    gamma : the most tokens that ``inner`` proposes in a step, or None for as many as it has
    steps, at_least : so many steps, or until there are at least so many tokens; one is None
    """

    name: str
    accepted: Floats
    inner: Drafting
    aside: tuple[Drafting, ...]
    gamma: int | None
    steps: int | None = None
    at_least: int | None = None

    def __post_init__(self) -> None:
        if (self.steps is None) == (self.at_least is None):
            raise InvalidArgumentError("give either steps or at_least")
        if not self.aside:
            raise InvalidArgumentError("aside must have at least one text of the model's own")

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

    @property
    def catching_up(self) -> tuple[str, ...]:
        return (self.name, *self.inner.catching_up)

    def _more(self, steps: int, tokens: int) -> bool:
        return steps < self.steps if self.steps is not None else tokens < (self.at_least or 0)

    def _propose(self, start: int, room: int) -> Proposal:
        rejected: dict[int, float] = {}
        complete: dict[int, float] = {}
        runs, length = Tally(), 0.0
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
            pushed, step_runs = self._step(start + tokens, room - tokens)
            runs.merge(step_runs, mass)
            kept, at_least = 1.0, 1.0  # all so far accepted; the step has a token here
            for place in range(max(pushed)):
                here = start + tokens + place
                rate = float(self.accepted[here]) if here < len(self.accepted) else 0.0
                lost = mass * kept * at_least * (1 - rate)
                if lost:
                    first = tokens + place
                    rejected[first] = rejected.get(first, 0.0) + lost
                    rest, total = self._off(tokens, place + 1, steps + 1, room)
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

    def _step(self, start: int, room: int) -> tuple[dict[int, float], Tally]:
        """P(a step has k tokens) given that they are the text's, and its runs."""
        return self._reviewed(self.inner, start, room)

    def _reviewed(
        self, drafting: Drafting, start: int, room: int
    ) -> tuple[dict[int, float], Tally]:
        """A step on any text that the inner drafter is known on."""
        most = room - 1 if self.gamma is None else min(self.gamma, room - 1)
        inner = drafting.propose(start, most)
        pushed: dict[int, float] = {}
        for ends in (inner.rejected, inner.complete):
            for tokens, mass in ends.items():
                pushed[tokens + 1] = pushed.get(tokens + 1, 0.0) + mass
        runs = Tally()
        runs.merge(inner.runs)
        runs.add(Kind(self.name, fresh=True), 1.0, 1.0 + inner.length)
        # After the model's bonus token the inner models have one more to read in the next step.
        bonus = sum(mass for tokens, mass in inner.complete.items() if tokens)
        for model in drafting.catching_up:
            runs.add(Kind(model, fresh=True), 0.0, bonus)
        return pushed, runs

    @cached_property
    def _dying_step(self) -> dict[int, float]:
        """P(a step has k tokens from a rejected one on, that one included)."""
        return self._mean(0, 1)[0]

    @cached_property
    def _mean_step(self) -> tuple[dict[int, float], Tally]:
        """A later step, somewhere behind a rejected token."""
        return self._mean(1, 1 + max(self.at_least or 0, self.steps or 0))

    def _mean(self, first: int, end: int) -> tuple[dict[int, float], Tally]:
        """The mean step over these places of all texts aside."""
        pushed: dict[int, float] = {}
        runs = Tally()
        share = 1 / (len(self.aside) * (end - first))
        for drafting in self.aside:
            for start in range(first, end):
                law, step_runs = self._reviewed(drafting, start, _ANY)
                for tokens, mass in law.items():
                    pushed[tokens] = pushed.get(tokens, 0.0) + mass * share
                runs.merge(step_runs, share)
        return pushed, runs

    def _off(self, before: int, already: int, steps: int, room: int) -> tuple[Tally, float]:
        """From a rejected token inside a step: further runs, and all tokens of the proposal.

        before : tokens of the steps before this one
        already : tokens of this step, the rejected one included
        """
        # The last token that a step can have is the model's own and ends it.
        law = self._dying_step if already < self._widest else {1: 1.0}
        runs, length = Tally(), 0.0
        for more, mass in law.items():
            tokens = before + min(already - 1 + more, self._widest)
            rest, ends = self._rest(steps, min(tokens, room), room)
            runs.merge(rest, mass)
            length += mass * ends
        return runs, length

    @cached_property
    def _rests(self) -> dict[tuple[int, int, int], tuple[Tally, float]]:
        return {}

    def _rest(self, steps: int, tokens: int, room: int) -> tuple[Tally, float]:
        """Further runs and all tokens of a proposal that has so many steps and tokens."""
        if tokens >= room or not self._more(steps, tokens):
            return Tally(), float(tokens)
        key = steps if self.steps is not None else 0, tokens, room
        if key not in self._rests:
            law, step_runs = self._mean_step
            runs, length = Tally(), 0.0
            runs.merge(step_runs)
            for pushed, mass in law.items():
                rest, ends = self._rest(steps + 1, min(tokens + pushed, room), room)
                runs.merge(rest, mass)
                length += mass * ends
            self._rests[key] = runs, length
        return self._rests[key]

    def beyond(self, room: int) -> tuple[Tally, float]:
        return self._rest(0, 0, room)


@dataclass(frozen=True, eq=False)
class InTurn(Drafting):
    """Drafters one after the other (horizontal cascade, Chen23), verified by the same model."""

    parts: tuple[Drafting, ...]

    @property
    def reach(self) -> int:
        return sum(part.reach for part in self.parts)

    @property
    def catching_up(self) -> tuple[str, ...]:
        return self.parts[0].catching_up if self.parts else ()

    def _propose(self, start: int, room: int) -> Proposal:
        rejected: dict[int, float] = {}
        runs, length = Tally(), 0.0
        alive, lost = {0: 1.0}, 0.0
        for index, part in enumerate(self.parts):
            off = 0.0  # tokens off the text
            if lost:
                rest, tokens = part.beyond(min(part.reach, room))
                runs.merge(rest, lost)
                off += lost * tokens
            on = 0.0  # accepted ones
            following: dict[int, float] = {}
            for before, mass in alive.items():
                found = part.propose(start + before, room - before)
                runs.merge(found.runs, mass)
                taken = 0.0
                for tokens, share in found.rejected.items():
                    first = before + tokens
                    rejected[first] = rejected.get(first, 0.0) + mass * share
                    lost += mass * share
                    taken += share * tokens
                for tokens, share in found.complete.items():
                    ends = before + tokens
                    following[ends] = following.get(ends, 0.0) + mass * share
                    taken += share * tokens
                on += mass * taken
                off += mass * (found.length - taken)
            alive = following
            length += on + off
            # Who else drafts reads the accepted tokens sooner or later, and the others if later.
            for other, reader in enumerate(self.parts):
                unread = on * (other != index) + off * (other > index)
                for model in reader.catching_up if unread else ():
                    runs.add(Kind(model, fresh=True), 0.0, unread)
        return Proposal(rejected, alive, length, runs)

    def beyond(self, room: int) -> tuple[Tally, float]:
        runs, length = Tally(), 0.0
        for part in self.parts:
            rest, tokens = part.beyond(room)
            runs.merge(rest)
            length += tokens
        return runs, min(length, float(room))


@dataclass(frozen=True)
class Expected:
    """What decoding a text of ``tokens`` tokens is expected to run; additive over requests.

    calls : target calls
    runs : of all models, the target's among them
    """

    tokens: int
    calls: float
    runs: Tally = field(default_factory=Tally)


def replay_blocks(
    drafting: Drafting, tokens: int, limit: int, verdict: bool = True, own: int = 1
) -> Expected:
    """Decoding the whole text, block by block.

    tokens : T, of the text
    limit : tokens that were asked for, >= T; more than T where the text ends with end-of-text
    verdict : is every block ended by the target?  In a sequential cascade (Narasimhan24
        Algorithm 2) the draft may end the text by itself
    own : positions that the target reads in a block besides the proposal
    """
    tokens, limit = whole("tokens", tokens, low=1), whole("limit", limit, low=tokens)
    starts, bonus = np.zeros(limit + 2), np.zeros(limit + 2)
    starts[0] = 1.0
    runs, calls = Tally(), 0.0
    for start in range(tokens):
        mass = float(starts[start])
        if not mass:
            continue
        room = limit - start - 1 if verdict else limit - start
        found = drafting.propose(start, room)
        runs.merge(found.runs, mass)
        last = 0.0 if verdict else _ended_by_draft(found, tokens - start)
        calls += mass * (1 - last)
        runs.add(
            Kind(TARGET, fresh=found.length > 0),
            mass * (1 - last),
            mass * (1 - last) * (own + found.length),
        )
        for ends, after in ((found.rejected, 0.0), (found.complete, 1.0)):
            for count, share in ends.items():
                following = min(start + count + 1, limit + 1)
                starts[following] += mass * share
                bonus[following] += after * mass * share * (count > 0)
    caught_up = float(bonus[:tokens].sum())
    for model in drafting.catching_up:
        runs.add(Kind(model, fresh=True), 0.0, caught_up)
    for model in drafting.text_readers:
        runs.add(Kind(model, fresh=True), 0.0, float(tokens))
    return Expected(tokens, calls, runs)


def _ended_by_draft(found: Proposal, left: int) -> float:
    """P(the drafter itself writes the last of the tokens that are left)."""
    return sum(share for count, share in found.complete.items() if count >= left)
