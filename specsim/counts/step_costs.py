"""What a step costs by draft length and batch, from the steps that an engine timed.

With K draft tokens and B requests a step takes, in seconds,

    S(K, B) = S(0, B) + f(B) + K (d(B) + b(B)),        K >= 1

where S(0) is a step of plain decoding, d a draft run, b what one more position adds to the
verification (the *verify slope*) and f what a round costs whatever its length: the draft's first
run over what was accepted, its sampling and the host's work.  Step times alone give f and d + b;
d and b come apart where the source also tells how long the drafts took.

A streamed chunk is a step, so the inter-token latency of a benchmark of a server is S(K, B), and
its time per output token S(K, B) / tokens per call.  A public run of ``vllm bench serve`` at
concurrency 1 bears this out: 40.50 ms, 3.20 tokens, 12.65 ms a token.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from specsim.checks import Floats, InvalidArgumentError, UnsupportedError, integer, number
from specsim.counts.steps import StepTime

# Contexts further apart than this are different costs and are not put in one grid.
CONTEXTS_APART = 2.0


@dataclass(frozen=True)
class StepLine:
    """The law S(K) = S(0) + f + K (d + b) of one batch, fitted to all K >= 1 that were timed.

    plain_s : S(0), without a drafter where that was timed
    fixed_s : f, seconds of a round beside its drafts and positions; may be < 0 by noise
    per_draft_s : d + b, seconds that one more draft token adds
    draft_run_s, verify_slope_s : d and b; None where the drafts were not timed apart
    deviation : largest |S(K) - fit| / S(K) of the K that were timed; 0 of as many K as were fitted:
        two, or one where f was said
    gammas : K that were timed at this batch, or on both sides of it
    """

    batch: float
    plain_s: float
    fixed_s: float
    per_draft_s: float
    draft_run_s: float | None
    verify_slope_s: float | None
    deviation: float
    gammas: tuple[int, ...]

    def step_s(self, gamma: int) -> float:
        """S(gamma) by the law: also between and beyond the K that were timed."""
        if integer("gamma", gamma) == 0:
            return self.plain_s
        return self.plain_s + self.fixed_s + gamma * self.per_draft_s


@dataclass(frozen=True)
class StepCosts:
    """Step times of one target, drafter and context, pooled by draft length and batch.

    times : one row per (gamma, batch), in seconds; rows of gamma 0 without a loaded drafter, or
        where nothing is said of one
    loaded : rows of gamma 0 that kept a drafter in memory and in step
    verification : rows of gamma > 0 that timed the verification alone, without drafts

    Values between measured draft lengths >= 1 and batches are linear; beyond them is an error.
    Lengths that were timed on one side of a batch alone say nothing there.
    """

    times: tuple[StepTime, ...]
    loaded: tuple[StepTime, ...] = ()
    verification: tuple[StepTime, ...] = ()

    @classmethod
    def of(cls, steps: Iterable[StepTime]) -> StepCosts:
        """Pool ``steps``: rows of one cell are averaged, weighted by their steps where all know.

        A row with gamma > 0 and ``draft_s`` = 0 timed the verification alone.  Where its cell was
        also timed as a whole, the difference is the time of the drafts.
        """
        cells: dict[str, dict[tuple[int, float], list[StepTime]]] = defaultdict(dict)
        contexts = []
        for row in steps:
            cell = (_gamma_of(row), float(row.batch))
            cells[_kind(row)].setdefault(cell, []).append(row)
            if row.context:
                contexts.append(row.context)
        if not cells:
            raise InvalidArgumentError("steps is empty, expected at least one step time")
        if contexts and max(contexts) > CONTEXTS_APART * min(contexts):
            raise UnsupportedError(
                f"step times at contexts from {min(contexts):g} to {max(contexts):g} tokens are "
                "different costs; pass those of one context"
            )
        pooled = {
            kind: {cell: _pooled(rows) for cell, rows in sorted(found.items())}
            for kind, found in cells.items()
        }
        alone = pooled.get("verification", {})
        times = [
            _with_drafts(row, alone.get(cell)) for cell, row in pooled.get("times", {}).items()
        ]
        return cls(tuple(times), tuple(pooled.get("loaded", {}).values()), tuple(alone.values()))

    @property
    def gammas(self) -> tuple[int, ...]:
        """Draft lengths that were timed as whole steps, 0 included."""
        return tuple(sorted({_gamma_of(row) for row in self.times}))

    @property
    def batches(self) -> tuple[float, ...]:
        """Batches that were timed, at any draft length."""
        return tuple(sorted({row.batch for row in (*self.times, *self.loaded)}))

    def plain_s(self, batch: float, drafter_loaded: bool = False) -> float:
        """S(0): a step of plain decoding; with a drafter kept in step it is timed apart."""
        rows = self.loaded if drafter_loaded else [row for row in self.times if row.gamma == 0]
        what = "plain decoding" + (" with a drafter loaded" if drafter_loaded else "")
        return _between(rows, batch, what)

    def step_s(self, gamma: int, batch: float) -> float:
        """S(gamma) at ``batch``, seconds: exact where timed, linear between, an error beyond.

        Plain decoding is another kind of step, so nothing is interpolated between K = 0 and the
        shortest draft: ``line`` says what a round costs beside its drafts.
        """
        if integer("gamma", gamma) == 0:
            return self.plain_s(batch)
        timed = [each for each in self.gammas if each > 0]
        if not timed or not timed[0] <= gamma <= timed[-1]:
            raise UnsupportedError(
                f"no step with {gamma} draft tokens was timed, only with "
                f"{', '.join(map(str, timed)) or 'none'}; time it, or take the law of "
                f"line({batch:g})"
            )
        known = [gamma] if gamma in timed else self._timed_at(batch)
        if not known or not known[0] <= gamma <= known[-1]:
            known = timed  # one of them was not timed there, and says at which batches it was
        seconds = [self._of_gamma(each, batch) for each in known]
        return float(np.interp(gamma, known, seconds))

    def relative(self, gamma: int, batch: float) -> float:
        """S(gamma) / S(0): a step in steps of plain decoding."""
        return self.step_s(gamma, batch) / self.plain_s(batch)

    def line(self, batch: float, fixed_s: float | None = None) -> StepLine:
        """The law in K of one batch, by least squares over the K >= 1 that were timed there.

        fixed_s : f, where only one K was timed and it must be said; 0 puts all of S(K) - S(0)
            on the drafts
        """
        plain = self.plain_s(batch)
        timed = np.array(self._timed_at(batch), dtype=float)
        seconds = np.array([self._of_gamma(int(each), batch) for each in timed])
        if timed.size < 2 and (fixed_s is None or not timed.size):
            raise UnsupportedError(
                f"{timed.size} draft lengths were timed at batch {batch:g}, and a slope in K needs "
                "two; time a second one, or say what a round costs beside its drafts (fixed_s)"
            )
        fitted = 2 if fixed_s is None else 1
        if fixed_s is None:
            slope, start = np.polyfit(timed, seconds, 1)
            fixed_s = float(start) - plain
        else:
            fixed_s = number("fixed_s", fixed_s)
            slope = float(timed @ (seconds - plain - fixed_s) / (timed @ timed))
        off = np.abs(plain + fixed_s + slope * timed - seconds) / seconds
        run = self._draft_run(timed, batch)
        return StepLine(
            batch=float(batch),
            plain_s=plain,
            fixed_s=fixed_s,
            per_draft_s=float(slope),
            draft_run_s=run,
            verify_slope_s=None if run is None else float(slope) - run,
            deviation=float(off.max()) if timed.size > fitted else 0.0,
            gammas=tuple(int(each) for each in timed),
        )

    def lines(self) -> list[StepLine]:
        """The law of every batch at which plain decoding and two draft lengths were timed."""
        found = []
        for batch in self.batches:
            try:
                found.append(self.line(batch))
            except UnsupportedError:
                continue
        return found

    def _timed_at(self, batch: float) -> list[int]:
        """Draft lengths >= 1 that were timed at this batch, or on both sides of it, rising."""
        batch = number("batch", batch, low=0)
        batches: dict[int, list[float]] = defaultdict(list)
        for row in self.times:
            batches[_gamma_of(row)].append(row.batch)
        return [
            gamma
            for gamma, timed in sorted(batches.items())
            if gamma > 0 and min(timed) <= batch <= max(timed)
        ]

    def _of_gamma(self, gamma: int, batch: float) -> float:
        rows = [row for row in self.times if row.gamma == gamma]
        return _between(rows, batch, f"{gamma} draft tokens")

    def _draft_run(self, timed: Floats, batch: float) -> float | None:
        """d: how much a draft token adds to the drafts' own time; of one K, its mean share."""
        drafts = []
        for gamma in timed:
            rows = [row for row in self.times if row.gamma == gamma]
            if any(row.draft_s is None for row in rows):
                return None
            points = {row.batch: float(row.draft_s or 0.0) for row in rows}
            drafts.append(float(np.interp(batch, list(points), list(points.values()))))
        if timed.size == 1:
            return drafts[0] / float(timed[0])
        return float(np.polyfit(timed, drafts, 1)[0])


def _gamma_of(row: StepTime) -> int:
    """The draft length of a row that has a place among costs."""
    if row.gamma is None:
        raise UnsupportedError(
            f"a step of {row.seconds:g} s at batch {row.batch:g} has no draft length, so it has no "
            "place among costs; say how long its drafts were (gamma)"
        )
    if row.draft_s is not None and not 0 <= row.draft_s < row.seconds:
        raise InvalidArgumentError(
            f"draft_s must be in [0, seconds = {row.seconds:g}), got {row.draft_s:g}"
        )
    return integer("gamma", row.gamma)


def _kind(row: StepTime) -> str:
    """The field of StepCosts that a row belongs to."""
    if row.gamma == 0:
        return "loaded" if row.drafter_loaded else "times"
    return "verification" if row.draft_s == 0 else "times"


def _pooled(rows: Sequence[StepTime]) -> StepTime:
    """The mean of rows of one cell; what not all of them tell is not told."""
    counts = [row.steps for row in rows if row.steps]
    weights = np.array(counts if len(counts) == len(rows) else [1.0] * len(rows))

    def mean(values: Sequence[float | None]) -> float | None:
        known = np.array([value for value in values if value is not None])
        return float(np.average(known, weights=weights)) if known.size == len(rows) else None

    loaded = {row.drafter_loaded for row in rows}
    return StepTime(
        gamma=rows[0].gamma,
        batch=float(rows[0].batch),
        seconds=float(np.average(np.array([row.seconds for row in rows]), weights=weights)),
        steps=sum(counts) if len(counts) == len(rows) else None,
        draft_s=mean([row.draft_s for row in rows]),
        drafter_loaded=loaded.pop() if len(loaded) == 1 else None,
        context=mean([row.context for row in rows]),
    )


def _with_drafts(row: StepTime, verification: StepTime | None) -> StepTime:
    """``row`` with the time of its drafts, where the same verification was timed alone."""
    if verification is None or row.draft_s is not None or verification.seconds >= row.seconds:
        return row
    return replace(row, draft_s=row.seconds - verification.seconds)


def _between(rows: Iterable[StepTime], batch: float, what: str) -> float:
    """Seconds at ``batch``, linear between the batches of ``rows``."""
    batch = number("batch", batch, low=0)
    points = {row.batch: row.seconds for row in sorted(rows, key=lambda row: row.batch)}
    if not points:
        raise UnsupportedError(f"no step of {what} was timed")
    if not min(points) <= batch <= max(points):
        raise UnsupportedError(
            f"steps of {what} were timed at batch {', '.join(f'{each:g}' for each in points)}, "
            f"{batch:g} is beyond; time it there"
        )
    return float(np.interp(batch, list(points), list(points.values())))
