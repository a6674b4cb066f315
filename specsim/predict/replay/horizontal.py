"""Replay of a horizontal cascade (Chen23): drafters one after the other.

The description is ``specsim.schemes.drafters.HorizontalDrafter``, the decoder
``calibrate.decode.drafters.horizontal``.
"""

from __future__ import annotations

from dataclasses import dataclass

from specsim.predict.replay.drafters import DrafterReplay, Proposal
from specsim.predict.replay.run_counts import RunCounts


@dataclass(frozen=True, eq=False)
class HorizontalReplay(DrafterReplay):
    """Drafters one after the other (horizontal cascade, Chen23), verified by the same model."""

    parts: tuple[DrafterReplay, ...]

    @property
    def reach(self) -> int:
        return sum(part.reach for part in self.parts)

    def _propose(self, start: int, room: int) -> Proposal:
        rejected: dict[int, float] = {}
        runs, length = RunCounts(), 0.0
        alive = {0: 1.0}
        lost: list[tuple[float, float]] = []  # tokens so far and probability, off the text
        for part in self.parts:
            still_lost = []
            for used, mass in lost:
                rest, tokens = part.expected_off_text(max(room - round(used), 0))
                runs.merge(rest, mass)
                length += mass * tokens
                still_lost.append((used + tokens, mass))
            following: dict[int, float] = {}
            for before, mass in alive.items():
                found = part.propose(start + before, room - before)
                runs.merge(found.runs, mass)
                length += mass * found.length
                failed = whole_length = 0.0
                for tokens, share in found.rejected.items():
                    first = before + tokens
                    rejected[first] = rejected.get(first, 0.0) + mass * share
                    failed += share
                for tokens, share in found.complete.items():
                    ends = before + tokens
                    following[ends] = following.get(ends, 0.0) + mass * share
                    whole_length += share * tokens
                if failed:
                    used = before + (found.length - whole_length) / failed
                    still_lost.append((used, mass * failed))
            alive, lost = following, still_lost
        return Proposal(rejected, alive, length, runs)

    def expected_off_text(self, room: int) -> tuple[RunCounts, float]:
        runs, length = RunCounts(), 0.0
        for part in self.parts:
            rest, tokens = part.expected_off_text(max(room - round(length), 0))
            runs.merge(rest)
            length += tokens
        return runs, length
