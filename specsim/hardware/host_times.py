"""Host seconds of a block outside the model runs, by draft length, from repeats."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from specsim.checks import Floats, UnsupportedError
from specsim.hardware.repeats import PassDraws, Repeats

if TYPE_CHECKING:
    from specsim.profiles import Overhead


@dataclass(frozen=True)
class HostTimes:
    """Of one temperature, batch and mode.

    by_gamma : repeats, in seconds at the machine's usual speed
    rows : what it is made of
    """

    by_gamma: Mapping[int, Repeats]
    rows: Sequence[Overhead]

    @staticmethod
    def of(rows: Sequence[Overhead], temperature: float) -> HostTimes:
        """Seconds beside plain runs are scaled to what those take in the mean."""
        chosen = [row for row in rows if row.temperature == temperature]
        if not any(row.gamma == 0 for row in chosen):
            raise UnsupportedError(
                f"the profile has no overhead of plain decoding at temperature {temperature:g}"
            )
        beside: dict[int, list[float]] = {}
        for row in chosen:
            beside.setdefault(row.context, []).extend(row.plain)
        # A plain step over a longer context takes longer by nature, and not by drift.
        usual = {context: Repeats.of(plain or [1.0]).mean for context, plain in beside.items()}
        found: dict[int, list[tuple[float, int]]] = {}
        for row in sorted(chosen, key=lambda row: row.gamma):
            plain = row.plain or [usual[row.context]] * len(row.seconds)
            passes = row.passes or [0] * len(row.seconds)
            found.setdefault(row.gamma, []).extend(
                (usual[row.context] * seconds / step, number)
                for seconds, step, number in zip(row.seconds, plain, passes, strict=True)
            )
        return HostTimes(
            {gamma: Repeats.of(*zip(*each, strict=True)) for gamma, each in found.items()}, chosen
        )

    def __call__(self, gamma: int) -> float:
        """Seconds of a block of a measured gamma."""
        return self.by_gamma[gamma].mean

    def drawn(self, gamma: int, draws: PassDraws) -> Floats:
        """The same, drawn from what the repeats leave open; shape (D,)."""
        # Far out in the tails of few passes it would fall below nothing.
        found: Floats = np.maximum(self(gamma) + self.by_gamma[gamma].drawn(draws), 0.0)
        return found
