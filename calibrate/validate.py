"""Decode for real and compare with the prediction.

Machines drift by tens of percent within minutes, so nothing is compared across minutes.  Work
goes in turns, one request each: a short calibration of the run times, then plain decoding and
speculative decoding with every gamma in random order.  A turn takes seconds; drift hits all of
its parts alike and leaves ratios alone.
"""

from __future__ import annotations

import gc
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import msgspec
import numpy as np

from calibrate.decode.engine import Decoded
from calibrate.decode.plain import plain
from calibrate.decode.speculative import speculative
from calibrate.models import Pair
from calibrate.sampling import Sampling
from calibrate.timing import Samples, sample_runs, summarize_runs
from calibrate.trace import DECODING, generator
from specsim.checks import Floats
from specsim.predict.choice import Workload
from specsim.predict.measured import MeasuredCost, predict
from specsim.predict.replay import Replay, replay
from specsim.profiles import Overhead, RunTime
from specsim.traces import Trace

_BOOTSTRAP_DRAWS = 1000
_PLAIN_REPEATS = 2


@dataclass(frozen=True)
class Turns:
    """What was decoded on one set of prompts.

    decoded : by gamma (0 is plain decoding) and request, the results of its repeats
    samples : run times measured between the turns
    """

    decoded: Mapping[int, Sequence[Sequence[Decoded]]]
    samples: Samples

    def seconds(self, gamma: int) -> Floats:
        """Shape (R,)."""
        return self._total(gamma, lambda result: result.seconds)

    def lengths(self, gamma: int) -> Floats:
        """Tokens emitted, shape (R,)."""
        return self._total(gamma, lambda result: len(result.tokens))

    def calls(self, gamma: int) -> Floats:
        """Target calls, shape (R,)."""
        return self._total(gamma, lambda result: result.calls)

    def _total(self, gamma: int, figure: Callable[[Decoded], float]) -> Floats:
        return np.array([float(sum(map(figure, repeats))) for repeats in self.decoded[gamma]])

    def speedup(
        self, gamma: int, expected: tuple[Floats, Floats] | None = None, seed: int = 0
    ) -> tuple[float, float, float]:
        """(low, best, high): plain over speculative time a token, 95 % by bootstrap over requests.

        ``expected`` seconds of each request, plain and speculative: where the prediction is for
        these very requests, how requests differ in it is no uncertainty of the measurement, so
        the interval is that of measured over expected, times expected.
        """
        figures = [self.seconds(0), self.lengths(0), self.seconds(gamma), self.lengths(gamma)]
        size = len(figures[0])
        draws = np.random.default_rng(seed).integers(size, size=(_BOOTSTRAP_DRAWS, size))

        def ratio(plain_s: Floats, plain: Floats, fast_s: Floats, fast: Floats) -> Floats:
            return np.asarray(plain_s / plain / (fast_s / fast))

        best = float(ratio(*(figure.sum() for figure in figures)))
        drawn = ratio(*(figure[draws].sum(1) for figure in figures))
        if expected is not None:
            ordinary, fast = expected
            drawn /= ordinary[draws].sum(1) / fast[draws].sum(1)
            drawn *= ordinary.sum() / fast.sum()
        low, high = np.quantile(drawn, [0.025, 0.975]).tolist()
        return low, best, high

    def same_text(self, gamma: int) -> bool:
        """Whether every request has the text of plain decoding; so it must be at temperature 0."""
        pairs = zip(self.decoded[0], self.decoded[gamma], strict=True)
        return all(plain.tokens == fast.tokens for (plain, *_), (fast, *_) in pairs)


def decode_in_turns(
    pair: Pair,
    prompts: Sequence[Sequence[int]],
    max_new_tokens: int,
    sampling: Sampling,
    gammas: Sequence[int],
    contexts: Sequence[int],
    gamma_max: int,
    seed: int,
    advance: Callable[[], None] = lambda: None,
) -> Turns:
    """Decode every prompt plainly and with every gamma, run times measured in between."""
    timed, untimed = pair.cached(), pair.cached(timed=False)
    target, draft = untimed
    order = np.random.default_rng([DECODING, seed])
    samples: Samples = defaultdict(list)
    decoded: dict[int, list[list[Decoded]]] = defaultdict(list)
    gc.collect()
    gc.freeze()  # long-lived models and modules: a collection in mid-turn need not walk them
    for number, prompt in enumerate(prompts):
        for context in contexts:
            sample_runs(*timed, context, gamma_max, order, samples)
        for gamma in (0, *gammas):
            decoded[gamma].append([])
        # Every speedup is against plain decoding, so its noise is in all of them: repeat it.
        turn = order.permutation([0] * _PLAIN_REPEATS + list(gammas))
        for place, gamma in enumerate(turn.tolist()):
            random = generator(target.device, DECODING, seed, number, place)
            end = pair.target.end_of_text
            decoded[gamma][-1].append(
                speculative(target, draft, prompt, gamma, max_new_tokens, sampling, random, end)
                if gamma
                else plain(target, prompt, max_new_tokens, sampling, random, end)
            )
        advance()
    gc.unfreeze()
    return Turns(decoded, samples)


def pooled_run_times(turns: Sequence[Turns]) -> list[RunTime]:
    """Run times over all turns: they depend on neither the prompts nor the temperature."""
    pooled: Samples = defaultdict(list)
    for each in turns:
        for kind, seconds in each.samples.items():
            pooled[kind] += seconds
    return summarize_runs(pooled)


def interleaved_cost(workload: Workload, run_times: Sequence[RunTime]) -> MeasuredCost:
    """The cost as measured between the turns.

    The overhead is the profile's, scaled by how much faster or slower a plain target run is now.
    """
    before = MeasuredCost.of(
        workload.profile.run_times,
        workload.profile.overhead,
        workload.measured.sampling.temperature,
    )
    overhead = workload.profile.overhead
    now = MeasuredCost.of(run_times, overhead, workload.measured.sampling.temperature)
    where = np.array([workload.context])
    drift = float(now.target(1, where)[0] / before.target(1, where)[0])
    scaled = [_scaled(row, drift) for row in overhead]
    return MeasuredCost.of(run_times, scaled, workload.measured.sampling.temperature)


def _scaled(row: Overhead, factor: float) -> Overhead:
    return msgspec.structs.replace(
        row,
        median_s=row.median_s * factor,
        low_s=row.low_s * factor,
        high_s=row.high_s * factor,
    )


def compare(
    workload: Workload,
    trace: Trace,
    turns: Turns,
    run_times: Sequence[RunTime],
    paired: bool,
    prompts: str,
) -> list[dict[str, object]]:
    """Rows of predicted beside measured, one per gamma.

    ``paired``: request r of the trace and of the turns have the same prompt.  Then z tests
    predicted against counted calls per token, over requests.  ``exact`` says whether greedy
    decoding did what it must, request by request: the text of plain decoding, and on the trace's
    own prompts as many calls as replayed.  Both predictions, ours and the formula's, take their
    costs from ``run_times``, measured between the turns.
    """
    gammas = sorted(gamma for gamma in turns.decoded if gamma)
    cost = interleaved_cost(workload, run_times)
    c = cost.draft_cost(workload.context)
    temperature = workload.measured.sampling.temperature
    rows = []
    predictions = predict(trace, cost, gammas, workload.measured.max_new_tokens)
    for prediction, replayed in zip(predictions, replay(trace, gammas), strict=True):
        gamma = prediction.gamma
        expected = None
        if paired:
            limit = workload.measured.max_new_tokens
            expected = cost.plain_seconds(trace), cost.seconds(trace, replayed, limit)
        low, measured, high = turns.speedup(gamma, expected)
        tokens, calls = int(turns.lengths(gamma).sum()), int(turns.calls(gamma).sum())
        acceptance = prediction.tokens_per_call / (tokens / calls)
        exact = None
        if temperature == 0:
            as_replayed = not paired or bool((turns.calls(gamma) == replayed.calls).all())
            exact = turns.same_text(gamma) and as_replayed
        rows.append(
            {
                "temperature": temperature,
                "prompts": prompts,
                "gamma": gamma,
                "requests": len(turns.decoded[gamma]),
                "predicted_tokens_per_call": prediction.tokens_per_call,
                "measured_tokens_per_call": tokens / calls,
                "predicted_calls": prediction.calls * tokens / prediction.tokens,
                "measured_calls": calls,
                "exact": exact,
                "z": _z(replayed, turns, paired),
                "predicted_speedup": prediction.speedup,
                "formula_speedup": workload.formula(gamma, c),
                "measured_speedup": measured,
                "measured_low": low,
                "measured_high": high,
                "relative_error": prediction.speedup / measured - 1,
                "acceptance_error": acceptance - 1,
                "cost_error": prediction.speedup / measured / acceptance - 1,
            }
        )
    return rows


def _z(replayed: Replay, turns: Turns, paired: bool) -> float:
    """Standard score of counted against replayed calls per token, over at least two requests."""
    counted = turns.calls(replayed.gamma) / turns.lengths(replayed.gamma)
    expected = replayed.calls / replayed.lengths
    if paired:
        gaps = counted - expected
        error = gaps.std(ddof=1) / np.sqrt(len(gaps))
        mean = gaps.mean()
    else:
        mean = counted.mean() - expected.mean()
        error = np.sqrt(sum(values.var(ddof=1) / len(values) for values in (counted, expected)))
    if error == 0:
        return 0.0 if mean == 0 else float(np.copysign(np.inf, mean))
    return float(mean / error)
