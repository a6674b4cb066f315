"""Run times between and beyond the points of a measured grid, and what repeats leave open of them.

The law of run times (``run_time_law``) carries the trend over new tokens, batch and context, and
what is left of the measured run times, as a logarithm, is what neighbouring points say of each
other (``neighbours``).  Points without repeats are met exactly, and points beyond follow the law
with the nearest points' residual.

    >>> rows = [GridPoint(n, b, 64, 1e-3 + 1e-4 * n * b) for n in (1, 2, 4) for b in (1, 2, 4, 8)]
    >>> times = FittedRunTimes.of(rows)
    >>> round(times(3, 4, 64) * 1e3, 1)
    2.2
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from statistics import median
from typing import TYPE_CHECKING, Literal, TypeVar

import msgspec
import numpy as np

from specsim.checks import Floats, InvalidArgumentError, UnsupportedError
from specsim.hardware.neighbours import interpolated, smoothing_of
from specsim.hardware.repeats import PassDraws, Repeats, spread_of_means
from specsim.hardware.routing import Experts
from specsim.hardware.run_time_law import Growth, fit_trend, growth_of, trend_s

if TYPE_CHECKING:
    from scipy.interpolate import RBFInterpolator

    from specsim.profiles import Mode, Overhead, RunTime

Row = TypeVar("Row", "RunTime", "Overhead")
# A draft's run is slower right after the target has used the caches of the processor.
Kind = Literal["target", "first draft", "next draft"]


@dataclass(frozen=True)
class GridPoint:
    """Seconds of a run over ``tokens`` new tokens of ``batch`` sequences, ``context`` each.

    repeats : what they are the mean of, over that mean; None where nobody knows
    exact : whether it is its own measure, as plain runs are, so that nothing of it is open
    """

    tokens: int
    batch: int
    context: int
    seconds: float
    repeats: Repeats | None = None
    exact: bool = False


@dataclass(frozen=True, eq=False)
class FittedRunTimes:
    """Seconds of a run of one model, anywhere; see ``covers`` for what was measured.

    known : what was known of the growth before; None: nothing
    experts : that tokens choose from; None: there are none, or nobody knows
    """

    points: tuple[GridPoint, ...]
    trend: Floats  # w, k, d, e, f, a, s
    known: Growth | None = None
    experts: Experts | None = None

    @staticmethod
    def of(
        points: Iterable[GridPoint],
        known: Growth | None = None,
        experts: Experts | None = None,
    ) -> FittedRunTimes:
        found = tuple(sorted(points, key=lambda p: (p.batch, p.context, p.tokens)))
        if not found:
            raise UnsupportedError("no run times were measured for this model")
        if min(point.seconds for point in found) <= 0:
            raise InvalidArgumentError("run times must be > 0")
        trend = fit_trend(_with_experts(_where(found), experts), _seconds(found), known)
        return FittedRunTimes(found, trend, known, experts)

    @property
    def growth(self) -> Growth:
        """As fitted; nan where the runs say little of it."""
        return growth_of(self.trend, _with_experts(_where(self.points), self.experts))

    @property
    def widest(self) -> int:
        """Most new tokens of a sequence that were measured."""
        return max(point.tokens for point in self.points)

    def covers(self, tokens: int, batch: int, context: float) -> bool:
        """Whether the point lies between measured ones."""
        low, high = self._box
        return bool(np.all((low <= (tokens, batch, context)) & ((tokens, batch, context) <= high)))

    def __call__(self, tokens: float, batch: int, context: float) -> float:
        """Seconds of one run."""
        # Neighbouring draft lengths share runs, and an interpolation takes its time.
        key = tokens, batch, context
        if key not in self._priced:
            asked, where = self._asked(tokens, batch, context)
            seconds = trend_s(self.trend, asked)[0] * np.exp(self._residual(where)[0])
            self._priced[key] = float(seconds)
        return self._priced[key]

    @cached_property
    def _priced(self) -> dict[tuple[float, int, float], float]:
        return {}

    def drawn(self, tokens: float, batch: int, context: float, draws: PassDraws) -> Floats:
        """The same, drawn from what the repeats leave open; shape (D,)."""
        asked, where = self._asked(tokens, batch, context)
        if draws not in self._residuals:
            points = zip(self.points, self._errors, strict=True)
            off = np.array([_drawn(*each, draws) for each in points])
            self._residuals[draws] = self._interpolated(self._left[:, None] + off)
        seconds: Floats = trend_s(self.trend, asked)[0] * np.exp(self._residuals[draws](where)[0])
        return seconds

    @cached_property
    def _box(self) -> tuple[Floats, Floats]:
        where = _where(self.points)
        return where.min(axis=0), where.max(axis=0)

    def _asked(self, tokens: float, batch: int, context: float) -> tuple[Floats, Floats]:
        """The point as the law has it, and where its residual is looked up."""
        low, high = self._box
        asked = np.array([[tokens, batch, context]], dtype=float)
        return _with_experts(asked, self.experts), _coordinates(np.clip(asked, low, high))

    @cached_property
    def _left(self) -> Floats:
        """What the trend leaves of the logarithms, shape (P,)."""
        where = _with_experts(_where(self.points), self.experts)
        left: Floats = np.log(_seconds(self.points) / trend_s(self.trend, where))
        return left

    @cached_property
    def _residual(self) -> RBFInterpolator:
        return self._interpolated(self._left)

    @cached_property
    def _residuals(self) -> dict[PassDraws, RBFInterpolator]:
        return {}

    def _interpolated(self, left: Floats) -> RBFInterpolator:
        return interpolated(_coordinates(_where(self.points)), left, self._smoothing)

    @cached_property
    def _errors(self) -> Floats:
        """Standard error of each point's mean, as a share, pooled over all points, shape (P,); one
        that was measured once has it, too.
        """
        errors = np.zeros(len(self.points))
        open_ = [at for at, point in enumerate(self.points) if not point.exact]
        repeats = [each for at in open_ if (each := self.points[at].repeats) is not None]
        if len(repeats) == len(open_) > 0:
            errors[open_] = spread_of_means(repeats)
        return errors

    @cached_property
    def _smoothing(self) -> Floats:
        return smoothing_of(_coordinates(_where(self.points)), self._left, self._errors)


def fits(rows: Iterable[RunTime]) -> dict[tuple[Mode, Kind], FittedRunTimes]:
    """Run times by mode and kind of run, where nothing else is known of the models."""
    return {key: FittedRunTimes.of(found) for key, found in grid_points(rows).items()}


def grid_points(rows: Iterable[RunTime]) -> dict[tuple[Mode, Kind], list[GridPoint]]:
    """Points of a profile, by mode and kind of run.

    Seconds are those of the plain steps beside a cell's runs times the mean ratio of a run to those
    beside it, so that runs of one cell stand in the ratio that they have at any speed of the
    machine.
    """
    rows = list(rows)
    beside: dict[tuple[Mode, int, int], list[RunTime]] = {}
    for row in rows:
        beside.setdefault((row.mode, row.batch, row.context), []).append(row)
    plain = {cell: _plain_s(found) for cell, found in beside.items()}
    points: dict[tuple[Mode, Kind], list[GridPoint]] = {}
    for row in rows:
        repeats = repeats_of(row)
        seconds = plain[row.mode, row.batch, row.context] * repeats.mean
        where = row.tokens, row.batch, row.context
        point = GridPoint(*where, seconds, repeats.over_mean, exact=row.seconds == row.plain)
        points.setdefault((row.mode, kind_of(row)), []).append(point)
    return points


def _plain_s(rows: Sequence[RunTime]) -> float:
    """Seconds of the plain steps beside the runs of one cell: their mean, as plain decoding takes
    it, where each repeat is itself the mean of many runs, from all over a calibration.  The single
    runs of a grid are of the minute that their cell was timed in, and what disturbed it is in many
    of them: the median.
    """
    seconds = [each for row in rows for each in row.plain]
    runs = [each for row in rows for each in row.runs]
    return Repeats.of(seconds, (), runs).mean if len(runs) == len(seconds) else median(seconds)


def in_passes(rows: Iterable[Row], passes: Container[int]) -> list[Row]:
    """What was measured in these passes; rows that tell no passes stay whole."""
    found = []
    for row in rows:
        if not row.passes:
            found.append(row)
        elif kept := [at for at, each in enumerate(row.passes) if each in passes]:
            found.append(_repeats_at(row, kept))
    return found


def of_length(row: RunTime, gamma: int) -> RunTime:
    """The repeats of one draft length."""
    return _repeats_at(row, [at for at, each in enumerate(row.gammas) if each == gamma])


def _repeats_at(row: Row, kept: Sequence[int]) -> Row:
    # Host time has neither runs nor draft lengths of their own.
    names = ("seconds", "plain", "passes", "runs", "gammas")
    lists = {name: getattr(row, name, []) for name in names}
    taken = {name: [each[at] for at in kept] for name, each in lists.items() if each}
    return msgspec.structs.replace(row, **taken)


def pass_draws(rows: Iterable[RunTime | Overhead], seed: int = 0) -> PassDraws:
    """Draws of the passes that these were measured in."""
    return PassDraws(tuple(sorted({each for row in rows for each in row.passes or (0,)})), seed)


def ratios(row: RunTime) -> list[float]:
    """Every run of a cell over the plain steps beside it."""
    return [run / plain for run, plain in zip(row.seconds, row.plain, strict=True)]


def repeats_of(row: RunTime) -> Repeats:
    """The same as repeats, each counted as often as there were runs."""
    return Repeats.of(ratios(row), row.passes, row.runs)


def kind_of(row: RunTime) -> Kind:
    """Which of the three kinds of run a cell of the grid is."""
    if row.model == "target":
        return "target"
    return "first draft" if row.follows == "target" else "next draft"


def _where(points: Sequence[GridPoint]) -> Floats:
    return np.array([(p.tokens, p.batch, p.context) for p in points], dtype=float)


def _with_experts(where: Floats, experts: Experts | None) -> Floats:
    """Points (P, 3) as the law has them, (P, 4)."""
    tokens = where[:, 0] * where[:, 1]
    touched = np.zeros(len(where)) if experts is None else experts.beyond_one(tokens)
    return np.column_stack([where, touched])


def _seconds(points: Sequence[GridPoint]) -> Floats:
    return np.array([point.seconds for point in points])


def _drawn(point: GridPoint, error: float, draws: PassDraws) -> Floats:
    """What a draw of the repeats changes the logarithm by, shape (D,).

    error : of the mean, where it is of one pass of several
    """
    if point.repeats is None or point.exact:
        return np.zeros(draws.draws)
    passes = point.repeats.by_pass[0]
    if passes.size == 1 < len(draws.passes):
        deviation = error * draws.alone(int(passes[0]))
    else:
        deviation = point.repeats.drawn(draws)
    # Far out in the tails of few passes a mean would fall below nothing.
    off: Floats = np.log(np.maximum(1.0 + deviation, 0.1))
    return off


def _coordinates(where: Floats) -> Floats:
    """Where neighbours are near: doubling the batch is a step, and so is a token more."""
    tokens, batch, context = where.T
    return np.column_stack([tokens, 2 * np.log2(batch), 2 * np.log2(context + 32)])
