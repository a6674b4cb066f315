"""How long an engine takes over sets of requests, and how much faster drafts make them.

A set of B requests is sent at once.  After the prompts' run, which gives each its first token,
every round is one step of all requests that still run; a request that is done leaves, and the
batch of the set shrinks.  With n_b rounds while b requests run, a set takes

    T(K) = F(K, B) + sum over b of n_b(K) S(K, b),

F until the first tokens, S(K, b) a step of b requests with K draft tokens each.  n_b follows from
the rounds of each request, which a replay of its text knows exactly at temperature 0.

Steps are linear in b between the batches that were timed, and in units of a plain step of the
same batch, timed in the same moments, on one line in K (``StepCosts.line`` has its law):

    S(K, B) / S(0, B) = 1 + f(B) + K g(B),        K >= 1.

The line is of all K that were timed, so that no K has a price of its own that chance flatters.
Steps of a server under load, timed in the same repeat, tell the same ratios once more: what counts
is the geometric mean of both (``StepRepeats.beside``).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from specsim.checks import Floats, Ints, UnsupportedError
from specsim.counts.steps import StepTime, StreamedSteps
from specsim.intervals import Interval, sum_half_width

# By how much servers of one configuration that are started again differ in how long a step takes,
# standard deviation of the logarithm: vLLM's of the three timings in studies/measured/vllm.  The
# few servers of one timing say little of that, and those of three not much more: it counts as if
# three degrees of freedom told it.
SERVERS_APART, _SERVERS_FREEDOM = 0.0135, 3


# Steps under load that tell a ratio.  In the timings of studies/measured/vllm/three-restless ratios
# of ten and more scatter less from repeat to repeat than those of sets.
_SEEN = 10


def rounds_while_running(rounds: Ints | Floats) -> Floats:
    """n_b: rounds of a set while b = 1, ..., B of its requests run, from those of each, (B,); of
    several sets, a row each, added up.
    """
    ordered = np.sort(np.atleast_2d(np.asarray(rounds, dtype=float)), axis=1)
    found: Floats = np.diff(ordered.sum(axis=0), prepend=0.0)[::-1]
    return found


def rounds_at_batches(rounds: Ints | Floats, batches: Sequence[int]) -> Floats:
    """The same as rounds at the timed ``batches``, rising: (J,), with the same sum.

    A round of b requests between two batches counts at both by its distance, which is what a cost
    linear between them makes of it.  Rounds below the least batch count at it.
    """
    running = rounds_while_running(rounds)
    if running.size > batches[-1]:
        raise UnsupportedError(
            f"a set of {running.size} requests is beyond the batches that were timed, "
            f"{', '.join(map(str, batches))}; time a larger one"
        )
    requests = np.arange(1, running.size + 1)
    shares = [np.interp(requests, batches, row) for row in np.eye(len(batches))]
    return np.array(shares) @ running


def step_seconds(decode_s: Floats, rounds: Floats) -> Floats:
    """S(K, B_j) of one K, (J,), from sets of each batch: ``rounds`` S = ``decode_s``.

    decode_s : shape (J,), seconds behind the first tokens, over all sets of each timed batch
    rounds : shape (J, J), ``rounds_at_batches`` of the same sets, summed; no set has rounds at a
        larger batch than its own
    """
    return np.asarray(np.linalg.solve(rounds, decode_s), dtype=float)


@dataclass(frozen=True)
class AskedSets:
    """Sets of requests of one batch.

    batch : requests of a set, the last one maybe fewer
    rounds : by draft length, for every set the rounds of each of its requests; those of draft
        length 0 are the tokens behind the first.  Where rounds are left to chance, several draws
        of every set
    """

    batch: int
    rounds: Mapping[int, Sequence[Ints]]


@dataclass(frozen=True)
class SetSpeedup:
    """How much faster sets of ``batch`` requests are with ``gamma`` drafts than without any.

    speedup : seconds of plain decoding over seconds with drafts, from sending to the last answer;
        the interval is of a mean over many sets on servers that are started again
    """

    gamma: int
    batch: int
    speedup: Interval[float]


@dataclass(frozen=True)
class StepRepeats:
    """Step times of an engine in R repeats, each at K = 0 and two more at least, and J batches.

    repeats : their numbers, rising, (R,)
    gammas : K >= 1 that were timed, rising, (G,)
    batches : that were timed, rising, (J,)
    plain_s, plain_first_s : S(0, B) and F(0, B), shape (R, J)
    steps, firsts : S(K, B) / S(0, B) and F(K, B) / F(0, B) of each repeat, shape (R, J, G)
    """

    repeats: tuple[int, ...]
    gammas: tuple[int, ...]
    batches: tuple[int, ...]
    plain_s: Floats
    plain_first_s: Floats
    steps: Floats
    firsts: Floats

    @classmethod
    def of(cls, steps: Sequence[StepTime]) -> StepRepeats:
        """From the rows of an acceptance file; those that no repeat has are left out."""
        cells = {
            (row.repeat, row.gamma or 0, round(row.batch)): (row.seconds, row.first_s)
            for row in steps
            if row.repeat is not None and row.gamma is not None and row.first_s is not None
        }
        repeats = sorted({repeat for repeat, _, _ in cells})
        gammas = sorted({gamma for _, gamma, _ in cells} - {0})
        batches = sorted({batch for _, _, batch in cells})
        if len(repeats) < 2 or len(gammas) < 2:
            raise UnsupportedError(
                f"the steps have {len(repeats)} repeats at {len(gammas)} draft lengths, and a "
                "prediction with an interval needs two of both; time them with "
                "specsim calibrate --engine"
            )
        wanted = [[[(r, k, b) for k in (0, *gammas)] for b in batches] for r in repeats]
        for row in wanted:
            for cell in (cell for line in row for cell in line):
                if cell not in cells:
                    raise UnsupportedError(
                        f"repeat {cell[0]} has no step with {cell[1]} drafts at batch {cell[2]}, "
                        "and a ratio is of steps that were timed beside each other"
                    )
        values = np.array([[[cells[cell] for cell in line] for line in row] for row in wanted])
        plain, drafted = values[:, :, 0], values[:, :, 1:]
        ratios = drafted / plain[:, :, None]
        return cls(
            repeats=tuple(repeats),
            gammas=tuple(gammas),
            batches=tuple(batches),
            plain_s=plain[..., 0],
            plain_first_s=plain[..., 1],
            steps=ratios[..., 0],
            firsts=ratios[..., 1],
        )

    def beside(self, streamed: Sequence[StreamedSteps]) -> StepRepeats:
        """The same, with what clients saw of steps under load in the same repeats.

        Where so many steps without a prompt were seen of a timed batch, with these drafts and
        without any, their ratio counts as much as that of the sets.
        """
        seconds: dict[tuple[int, int, int], tuple[float, int]] = {}
        for each in streamed:
            for step in each.steps:
                if not step.prompts:
                    at = each.repeat, each.gamma, step.decodes
                    sum_s, count = seconds.get(at, (0.0, 0))
                    seconds[at] = sum_s + step.steps * step.seconds, count + step.steps
        step_s = {at: sum_s / count for at, (sum_s, count) in seconds.items() if count >= _SEEN}
        logs = np.log(self.steps)
        for at in np.ndindex(*logs.shape):
            repeat, batch, gamma = self.repeats[at[0]], self.batches[at[1]], self.gammas[at[2]]
            drafted, plain = (step_s.get((repeat, k, batch)) for k in (gamma, 0))
            if drafted and plain:
                logs[at] = (logs[at] + np.log(drafted / plain)) / 2
        return replace(self, steps=np.exp(logs))

    def speedup(
        self,
        asked: AskedSets,
        gamma: int,
        resampled: Sequence[AskedSets] = (),
        requests: int = 2,
        *,
        starts: int = 1,
    ) -> SetSpeedup:
        """The mean over repeats of the logarithm, and how sure it is.

        resampled : the same sets with so many ``requests`` drawn again, with replacement, where
            texts are not known beforehand
        starts : of servers with and without drafts, over which the speedup is a mean

        Chance moves the mean of R repeats by what they differ.  The rest is what the line lacks,
        and that servers of one configuration, started again, are not equally fast
        (``servers_variance``).  That enters as often as it can differ, for the servers with and
        without drafts, in the mean over their ``starts``, and the plain one that was timed, and
        through the line.  Requests drawn again tell what their texts leave open.  All
        variances are estimated from few numbers, hence Student's t at Welch and Satterthwaite's
        degrees of freedom.
        """
        logs = self._logs(asked, gamma)
        of_mean = float(logs.var(ddof=1)) / logs.size
        of_repeats = residuals(self.gammas, self.steps).var(axis=0, ddof=1) / logs.size
        off, freedom = servers_variance(self.gammas, self.steps.mean(axis=0), of_repeats)
        leverage = float(np.square(line_weights(self.gammas, gamma)).sum())
        of_servers = off * (1.0 + 2.0 / starts + leverage)
        of_requests = 0.0
        if resampled:
            drawn = [float(self._logs(each, gamma).mean()) for each in resampled]
            of_requests = float(np.var(drawn, ddof=1))
        reach = sum_half_width(
            [(of_mean, logs.size - 1), (of_servers, freedom), (of_requests, requests - 1)]
        )
        best = float(logs.mean())
        low, middle, high = np.exp([best - reach, best, best + reach]).tolist()
        return SetSpeedup(gamma, asked.batch, Interval(low, middle, high))

    def _logs(self, asked: AskedSets, gamma: int) -> Floats:
        """Of the speedup by each repeat, shape (R,)."""
        rounds = {}
        for drafts in (0, gamma):
            same: dict[int, list[Ints]] = {}
            for each in asked.rounds[drafts]:
                same.setdefault(len(each), []).append(each)
            rounds[drafts] = sum(
                rounds_at_batches(np.array(sets), self.batches) for sets in same.values()
            )
        return np.log(
            [self._ratio(repeat, asked, gamma, rounds) for repeat in range(len(self.steps))]
        )

    def _ratio(self, repeat: int, asked: AskedSets, gamma: int, rounds: Mapping[int, Any]) -> float:
        """Seconds of all sets without drafts over those with ``gamma``, by one repeat.

        rounds : of all sets, at the timed batches, (J,)
        """
        plain_s, first_s = self.plain_s[repeat], self.plain_first_s[repeat]
        seconds = []
        for drafts in (0, gamma):
            step, first = plain_s, float(np.interp(asked.batch, self.batches, first_s))
            if drafts:
                step = plain_s * self._line(self.steps[repeat], drafts)
                firsts = self._line(self.firsts[repeat], drafts)
                first *= float(np.interp(asked.batch, self.batches, firsts))
            seconds.append(len(asked.rounds[drafts]) * first + float(rounds[drafts] @ step))
        return seconds[0] / seconds[1]

    def _line(self, ratios: Floats, gamma: int) -> Floats:
        """The line in K through ``ratios``, (..., G), at ``gamma``: (...,)."""
        return ratios @ line_weights(self.gammas, gamma)


def line_weights(gammas: Sequence[int], gamma: int) -> Floats:
    """What each K that was timed counts in the value of their line at ``gamma``, (G,)."""
    columns = np.stack([np.ones(len(gammas)), np.array(gammas, dtype=float)], 1)
    found: Floats = np.array([1.0, gamma]) @ np.linalg.pinv(columns)
    return found


def residuals(gammas: Sequence[int], ratios: Floats) -> Floats:
    """Logarithms of ratios S(K, B) / S(0, B) about the line in K of their batch, (..., J, G)."""
    lines = np.stack([ratios @ line_weights(gammas, gamma) for gamma in gammas], axis=-1)
    found: Floats = np.log(ratios / lines)
    return found


def servers_variance(
    gammas: Sequence[int], ratios: Floats, of_repeats: Floats
) -> tuple[float, int]:
    """Variance of the logarithm of a step, from server to server, and the degrees of freedom that
    it counts with.

    The K that were timed lie off their common line by what servers of one configuration differ, by
    what the line lacks, and by what chance leaves in the means over repeats, which is known and
    taken off.  What is left is of few numbers, so that it counts beside what other servers said, as
    often as each has degrees of freedom; together they are no surer than the surer of them, since
    these servers need not be as far apart as others.  Batches of a server count as independent.

    ratios : S(K, B) / S(0, B) by batch and draft length, (J, G)
    of_repeats : variance that repeats leave in each of their ``residuals``, (J, G)
    """
    freedom = len(ratios) * (len(gammas) - 2)
    squares = float(np.square(residuals(gammas, ratios)).sum() - of_repeats.sum())
    known = _SERVERS_FREEDOM * SERVERS_APART**2
    variance = (known + (max(squares, 0.0) if freedom else 0.0)) / (_SERVERS_FREEDOM + freedom)
    return variance, max(_SERVERS_FREEDOM, freedom)
