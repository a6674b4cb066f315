"""Host seconds of a block outside the model runs, by draft length, from repeats.

Blocks that draft one token more need about as much more of the host, so that draft lengths lie
about a line, and each is drawn to what its neighbours say as far as its repeats scatter
(``neighbours``): of a lookup, whose search is all that it takes, stretches of a few dozen tokens
scatter by several per cent of a plain step.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np

from specsim.checks import Floats, UnsupportedError
from specsim.hardware.neighbours import interpolated, smoothing_of
from specsim.hardware.repeats import PassDraws, Repeats, spread_of_means

if TYPE_CHECKING:
    from specsim.profiles import Overhead


@dataclass(frozen=True)
class HostTimes:
    """Of one temperature, batch and mode.

    by_gamma : repeats, in seconds at the machine's usual speed
    plain_s : what a plain step beside them takes in the mean; 1 where nothing was beside
    rows : what it is made of
    """

    by_gamma: Mapping[int, Repeats]
    plain_s: float
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
            {gamma: Repeats.of(*zip(*each, strict=True)) for gamma, each in found.items()},
            float(np.mean([*usual.values()])),
            chosen,
        )

    def __call__(self, gamma: int) -> float:
        """Seconds of a block of a measured gamma."""
        return float(self._smoothed[gamma].item())

    def drawn(self, gamma: int, draws: PassDraws) -> Floats:
        """The same, drawn from what the repeats leave open; shape (D,)."""
        if draws not in self._drawn:
            off = {each: repeats.drawn(draws) for each, repeats in self.by_gamma.items()}
            self._drawn[draws] = self._to_neighbours(off)
        return self._drawn[draws][gamma]

    @cached_property
    def _smoothed(self) -> dict[int, Floats]:
        return self._to_neighbours(dict.fromkeys(self.by_gamma, np.zeros(1)))

    @cached_property
    def _drawn(self) -> dict[PassDraws, dict[int, Floats]]:
        return {}

    def _to_neighbours(self, off: Mapping[int, Floats]) -> dict[int, Floats]:
        """Seconds of each draft length if repeats were so far ``off``, shape (D,); blocks without
        drafts, which are plain steps, are no neighbours.
        """
        seconds = {gamma: each.mean + off[gamma] for gamma, each in self.by_gamma.items()}
        drafted = [gamma for gamma in seconds if gamma]
        if self._smoothing.any():
            where = np.array(drafted, dtype=float)[:, None]
            left = np.array([seconds[gamma] for gamma in drafted])
            found = interpolated(where, left, self._smoothing, degree=1)(where)
            seconds |= dict(zip(drafted, found, strict=True))
        # What is told from small differences may fall below nothing.
        return {gamma: np.maximum(each, 0.0) for gamma, each in seconds.items()}

    @cached_property
    def _smoothing(self) -> Floats:
        drafted = {gamma: each for gamma, each in self.by_gamma.items() if gamma}
        means = np.array([each.mean for each in drafted.values()])
        errors = spread_of_means([*drafted.values()])
        where = np.array([*drafted], dtype=float)[:, None]
        return smoothing_of(where, means / self.plain_s, errors / self.plain_s, degree=1)
