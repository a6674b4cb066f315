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

from calibrate.decode.engine import CachedModel, Decoded
from calibrate.decode.plain import plain
from calibrate.decode.speculative import speculative
from calibrate.models import Pair
from calibrate.sampling import Sampling
from calibrate.timing import Samples, sample_runs, summarize_runs
from calibrate.trace import generator
from specsim.checks import Floats
from specsim.predict.choice import Workload
from specsim.predict.measured import MeasuredCost, MeasuredPrediction, predict
from specsim.predict.replay import replay
from specsim.profiles import Overhead, RunTime
from specsim.traces import Trace

_BOOTSTRAP_DRAWS = 1000
# Keeps the decoders' random numbers apart from the trace's.
_DECODING = 1


@dataclass(frozen=True)
class Turns:
    """What was decoded on one set of prompts: gamma (0 is plain) to one result per request."""

    decoded: Mapping[int, Sequence[Decoded]]
    run_times: Sequence[RunTime]

    def seconds_per_token(self, gamma: int) -> Floats:
        """Shape (R,)."""
        results = self.decoded[gamma]
        return np.array([result.seconds / len(result.tokens) for result in results])

    def calls_per_token(self, gamma: int) -> Floats:
        """Shape (R,)."""
        results = self.decoded[gamma]
        return np.array([result.calls / len(result.tokens) for result in results])

    def tokens(self, gamma: int) -> int:
        return sum(len(result.tokens) for result in self.decoded[gamma])

    def calls(self, gamma: int) -> int:
        return sum(result.calls for result in self.decoded[gamma])

    def speedup(self, gamma: int, seed: int = 0) -> tuple[float, float, float]:
        """(low, best, high): plain over speculative time, 95 % by bootstrap over requests."""
        ordinary, fast = self.seconds_per_token(0), self.seconds_per_token(gamma)
        draws = np.random.default_rng(seed).integers(len(fast), size=(_BOOTSTRAP_DRAWS, len(fast)))
        ratios = ordinary[draws].sum(1) / fast[draws].sum(1)
        low, high = np.quantile(ratios, [0.025, 0.975]).tolist()
        return low, float(ordinary.sum() / fast.sum()), high


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
    target, draft = CachedModel(pair.target.model), CachedModel(pair.draft.model)
    order = np.random.default_rng([seed, _DECODING])
    samples: Samples = defaultdict(list)
    decoded: dict[int, list[Decoded]] = defaultdict(list)
    gc.collect()
    gc.freeze()  # long-lived models and modules: a collection in mid-turn need not walk them
    for number, prompt in enumerate(prompts):
        for context in contexts:
            sample_runs(target, draft, context, gamma_max, order, samples)
        for gamma in order.permutation([0, *gammas]).tolist():
            random = generator(target.device, seed, _DECODING, number, gamma)
            end = pair.target.end_of_text
            decoded[gamma].append(
                speculative(target, draft, prompt, gamma, max_new_tokens, sampling, random, end)
                if gamma
                else plain(target, prompt, max_new_tokens, sampling, random, end)
            )
        advance()
    return Turns(decoded, summarize_runs(samples))


def interleaved_cost(workload: Workload, turns: Turns) -> MeasuredCost:
    """The cost as measured between the turns.

    The overhead is the profile's, scaled by how much faster or slower a plain target run is now.
    """
    before = MeasuredCost.of(
        workload.profile.run_times,
        workload.profile.overhead,
        workload.measured.sampling.temperature,
    )
    overhead = workload.profile.overhead
    now = MeasuredCost.of(turns.run_times, overhead, workload.measured.sampling.temperature)
    where = np.array([workload.context])
    drift = float(now.target(1, where)[0] / before.target(1, where)[0])
    scaled = [_scaled(row, drift) for row in overhead]
    return MeasuredCost.of(turns.run_times, scaled, workload.measured.sampling.temperature)


def _scaled(row: Overhead, factor: float) -> Overhead:
    return msgspec.structs.replace(
        row,
        median_s=row.median_s * factor,
        low_s=row.low_s * factor,
        high_s=row.high_s * factor,
    )


def compare(
    workload: Workload, trace: Trace, turns: Turns, paired: bool, prompts: str
) -> list[dict[str, object]]:
    """Rows of predicted beside measured, one per gamma.

    ``paired``: request r of the trace and of the turns have the same prompt.  Then z tests
    predicted against counted calls per token, over requests.
    """
    gammas = sorted(gamma for gamma in turns.decoded if gamma)
    predictions = predict(trace, interleaved_cost(workload, turns), gammas)
    rows = []
    for prediction in predictions:
        low, measured, high = turns.speedup(prediction.gamma)
        tokens, calls = turns.tokens(prediction.gamma), turns.calls(prediction.gamma)
        acceptance = prediction.tokens_per_call / (tokens / calls)
        cost = prediction.speedup / measured / acceptance
        rows.append(
            {
                "temperature": workload.measured.sampling.temperature,
                "prompts": prompts,
                "gamma": prediction.gamma,
                "requests": len(turns.decoded[prediction.gamma]),
                "predicted_tokens_per_call": prediction.tokens_per_call,
                "measured_tokens_per_call": tokens / calls,
                "predicted_calls": prediction.calls * tokens / prediction.tokens,
                "measured_calls": calls,
                "z": _z(trace, turns, prediction, paired),
                "predicted_speedup": prediction.speedup,
                "formula_speedup": workload.formula(prediction.gamma),
                "measured_speedup": measured,
                "measured_low": low,
                "measured_high": high,
                "relative_error": prediction.speedup / measured - 1,
                "acceptance_error": acceptance - 1,
                "cost_error": cost - 1,
            }
        )
    return rows


def _z(trace: Trace, turns: Turns, prediction: MeasuredPrediction, paired: bool) -> float:
    """Standard score of counted against replayed calls per token, over requests."""
    counted = turns.calls_per_token(prediction.gamma)
    replayed = replay(trace, [prediction.gamma])[0]
    expected = replayed.calls / replayed.lengths
    if paired:
        gaps = counted - expected
        error = gaps.std(ddof=1) / np.sqrt(len(gaps)) if len(gaps) > 1 else 0.0
        mean = gaps.mean()
    else:
        mean = counted.mean() - expected.mean()
        error = np.sqrt(sum(values.var(ddof=1) / len(values) for values in (counted, expected)))
    if error == 0:
        return 0.0 if mean == 0 else float(np.copysign(np.inf, mean))
    return float(mean / error)
