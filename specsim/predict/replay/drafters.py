"""A drafter on one text: what it proposes at each place, as who wrote the text verifies it.

``specsim.predict.replay.blocks`` has the argument.  Here are drafters of one model or of none;
those made of others are in ``vertical`` and ``horizontal``; ``build`` makes any of them from its
description.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from specsim.checks import Floats, InvalidArgumentError, UnsupportedError, integer
from specsim.predict.replay.run_counts import RunCounts


@dataclass(frozen=True)
class Proposal:
    """What a drafter proposes at one place of the text, as its verifier takes it.

    rejected : {j: probability that the j-th token, from 0, is the first to be rejected}
    complete : {j: probability that the proposal has j tokens, all accepted}
    length : expected number of tokens proposed
    runs : expected runs of all drafters
    """

    rejected: Mapping[int, float]
    complete: Mapping[int, float]
    length: float
    runs: RunCounts


NOTHING = Proposal({}, {0: 1.0}, 0.0, RunCounts())


class DrafterReplay(ABC):
    """A drafter on one text of T tokens, verified by somebody who emitted that text."""

    @property
    @abstractmethod
    def reach(self) -> int:
        """The most tokens that it ever proposes."""

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
        return NOTHING

    @cached_property
    def _known(self) -> dict[tuple[int, int], Proposal]:
        return {}

    @abstractmethod
    def _propose(self, start: int, room: int) -> Proposal:
        """The same for 1 <= room <= reach."""

    @abstractmethod
    def expected_off_text(self, room: int) -> tuple[RunCounts, float]:
        """Off the text: expected runs and tokens of a proposal there."""


@dataclass(frozen=True, eq=False)
class AutoregressiveReplay(DrafterReplay):
    """A drafter that writes token by token, one run each.

    accepted : shape (T,), a_t
    tokens : the most of a proposal
    unsure : shape (T,), bool: it gives up at the run that would write this token (Kim23)
    written_on : shape (T,): tokens that it writes behind a rejected one at t before it gives up;
        only with ``unsure``
    bonus_needs_draft : one run more where all was accepted, since the bonus token depends on it
    """

    name: str
    accepted: Floats
    tokens: int
    unsure: np.ndarray | None = None
    written_on: np.ndarray | None = None
    bonus_needs_draft: bool = False

    def __post_init__(self) -> None:
        integer("tokens", self.tokens)
        if (self.unsure is None) != (self.written_on is None):
            raise InvalidArgumentError("unsure and written_on must be given together")

    @property
    def reach(self) -> int:
        return self.tokens

    @property
    def _nothing(self) -> Proposal:
        runs = self._tally(float(self.bonus_needs_draft))
        return Proposal({}, {0: 1.0}, 0.0, runs)

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
                if self.written_on is not None:
                    more = min(int(self.written_on[here]), left)
                runs += lost * (place + 1 + more + (more < left))
                length += lost * (place + 1 + more)
                alive *= rate
            if not alive:
                break
        if alive:
            complete[room] = alive
            runs += alive * (room + self.bonus_needs_draft)
            length += alive * room
        return Proposal(rejected, complete, length, self._tally(runs))

    def expected_off_text(self, room: int) -> tuple[RunCounts, float]:
        if self.unsure is not None:
            raise UnsupportedError(f"{self.name} gives up, so it cannot be part of a cascade")
        room = min(room, self.tokens)
        return self._tally(float(room)), float(room)

    def _tally(self, runs: float) -> RunCounts:
        tally = RunCounts()
        if runs:
            tally.add(self.name, runs)
        return tally


@dataclass(frozen=True, eq=False)
class DeterministicReplay(DrafterReplay):
    """A drafter whose proposal follows from its place: copies, masks (Xia22), beams.

    accepted : shape (T, most): token i of a proposal made at t is accepted, given all before it
    lengths : shape (T,): how many tokens it has to propose there
    runs_per_token : a run for each token, not one for all
    """

    name: str
    accepted: Floats
    lengths: np.ndarray
    runs_per_token: bool = False

    @property
    def reach(self) -> int:
        return int(self.accepted.shape[1])

    def _propose(self, start: int, room: int) -> Proposal:
        tally = self._tally(room)
        if start >= len(self.accepted):
            return Proposal({0: 1.0}, {}, float(room), tally)
        length = min(room, int(self.lengths[start]))
        rejected, alive = {}, 1.0
        for place in range(length):
            rate = float(self.accepted[start, place])
            if rate < 1.0:
                rejected[place] = alive * (1 - rate)
            alive *= rate
        complete = {length: alive} if alive else {}
        return Proposal(rejected, complete, float(length), tally)

    def expected_off_text(self, room: int) -> tuple[RunCounts, float]:
        room = min(room, self.reach)
        if room <= 0:
            return RunCounts(), 0.0
        return self._tally(room), float(np.minimum(self.lengths, room).mean())

    def _tally(self, room: int) -> RunCounts:
        tally = RunCounts()
        tally.add(self.name, float(room if self.runs_per_token else 1))
        return tally
