"""Replay of a horizontal cascade (Chen23): drafters one after the other.

The description is ``specsim.schemes.drafters.HorizontalDrafter``, the decoder
``calibrate.decode.drafters.horizontal``.
"""

from __future__ import annotations

from dataclasses import dataclass

from specsim.predict.replay.drafters import DrafterReplay, Proposal
from specsim.predict.replay.run_counts import RunCounts, RunKind


@dataclass(frozen=True, eq=False)
class HorizontalReplay(DrafterReplay):
    """Drafters one after the other (horizontal cascade, Chen23), verified by the same model."""

    parts: tuple[DrafterReplay, ...]

    @property
    def reach(self) -> int:
        return sum(part.reach for part in self.parts)

    @property
    def catching_up(self) -> tuple[str, ...]:
        return self.parts[0].catching_up if self.parts else ()

    def _propose(self, start: int, room: int) -> Proposal:
        rejected: dict[int, float] = {}
        runs, length, unread, ran = RunCounts(), 0.0, 0.0, False
        alive = {0: 1.0}
        lost: list[tuple[float, float]] = []  # tokens so far and probability, off the text
        for index, part in enumerate(self.parts):
            on = off = 0.0  # expected tokens of this part, accepted and not
            still_lost = []
            for used, mass in lost:
                rest, tokens = part.expected_off_text(max(room - round(used), 0))
                runs.merge(rest, mass)
                off += mass * tokens
                still_lost.append((used + tokens, mass))
            following: dict[int, float] = {}
            unread = 0.0
            for before, mass in alive.items():
                found = part.propose(start + before, room - before)
                runs.merge(found.runs, mass)
                unread += mass * found.unread
                ran = ran or found.ran
                failed = whole_length = taken = 0.0
                for tokens, share in found.rejected.items():
                    first = before + tokens
                    rejected[first] = rejected.get(first, 0.0) + mass * share
                    failed += share
                    taken += share * tokens
                for tokens, share in found.complete.items():
                    ends = before + tokens
                    following[ends] = following.get(ends, 0.0) + mass * share
                    whole_length += share * tokens
                if failed:
                    used = before + (found.length - whole_length) / failed
                    still_lost.append((used, mass * failed))
                on += mass * (taken + whole_length)
                off += mass * (found.length - taken - whole_length)
            alive, lost = following, still_lost
            length += on + off
            # Who else drafts reads the accepted tokens sooner or later, and the others if later.
            for other, reader in enumerate(self.parts):
                extra = on * (other != index) + off * (other > index)
                for model in reader.catching_up if extra else ():
                    runs.add(RunKind(model, after_other_model=True), 0.0, extra)
        return Proposal(rejected, alive, length, runs, unread, ran)

    def expected_off_text(self, room: int) -> tuple[RunCounts, float]:
        runs, length = RunCounts(), 0.0
        for part in self.parts:
            rest, tokens = part.expected_off_text(max(room - round(length), 0))
            runs.merge(rest)
            length += tokens
        return runs, length
