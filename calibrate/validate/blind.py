"""Predictions made before, against real decoding in which every decoder runs alone.

What a profile predicts is fixed first (``specsim.predict.prediction_file``).  Then whole requests
are decoded, one decoder at a time, requests of all temperatures in random order and the draft
lengths of each in random order too, and all of that again in every pass: a machine drifts over
minutes, so a pass is one observation and the figure is the mean over them.  Greedy passes decode
the same requests; above temperature 0, where texts differ by chance, each takes the next requests
of the profile, from the first again when they run out.  A decoded request is kept as soon as it is
there.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, partial
from math import sqrt
from typing import Any

import numpy as np
from scipy.stats import t

from calibrate.measure.trace import DECODING, generator
from calibrate.models.collector import models_not_walked
from calibrate.models.load import Pair
from calibrate.validate.interleave import PLAIN, Start
from calibrate.validate.speedups import CheckedPrompts, decoder
from specsim.checkpoint import Checkpoint
from specsim.checks import Floats, SpecsimError
from specsim.intervals import Interval, apart
from specsim.predict.prediction_file import PredictedSpeedup
from specsim.predict.replay.fixed_gamma import replay

Row = dict[str, Any]

# What every decoder decodes before it counts.
_WARM_TOKENS = 8
# Fewer have no error of their own.
_LEAST_PASSES = 2

# By check and draft length, 0 among them, what each pass decoded of each request.
Decoded = dict[tuple[int, int], list[dict[int, list[Row]]]]


class TooFewPassesError(SpecsimError):
    """There was no time for two whole passes; those that were begun are kept."""


@dataclass(frozen=True)
class Turn:
    """One request decoded once: check, request, draft length, and which time in its pass."""

    check: int
    request: int
    gamma: int
    time: int


def turns(
    checks: Sequence[CheckedPrompts],
    gammas: Sequence[int],
    requests: int,
    number: int,
    seed: int,
) -> list[Turn]:
    """Those of the pass with this number, of each check so many requests.

    Requests are in random order, and so are the decoders of each, which follow one another: a
    machine that drifts within a pass is then the same one for all that are compared.
    """
    random = np.random.default_rng([DECODING, seed + number])
    asked = [
        (index, request)
        for index, check in enumerate(checks)
        for request in decoded_requests(check, requests, number)
    ]
    # Twice plainly: every speedup is compared with that.
    decoders = [(PLAIN, 0), (PLAIN, 1), *((gamma, 0) for gamma in gammas)]
    return [
        Turn(*asked[at], *decoders[place])
        for at in random.permutation(len(asked))
        for place in random.permutation(len(decoders))
    ]


def decoded_requests(check: CheckedPrompts, requests: int, number: int) -> list[int]:
    """Which of the check's requests a pass decodes."""
    size = len(check.prompts)
    first = 0 if check.sampling.greedy else number * requests
    return [(first + place) % size for place in range(min(requests, size))]


def decode_passes(
    pair: Pair,
    checks: Sequence[CheckedPrompts],
    gammas: Sequence[int],
    requests: int,
    passes: int,
    seed: int,
    checkpoint: Checkpoint,
    advance: Callable[[], None] = lambda: None,
    more_time: Callable[[], bool] = lambda: True,
) -> Decoded:
    """Every decoder alone, pass by pass.

    requests : of each check that a pass decodes, at most
    checkpoint : keeps what was decoded
    advance : called once a decoded request
    more_time : whether another request may be decoded; a pass that it cuts short does not count

    Raises TooFewPassesError where fewer than two passes are whole.
    """
    models = pair.with_drafter(timed=False)
    device = models[0].device

    def start_of(check: CheckedPrompts, gamma: int, tokens: int) -> Start:
        law = check.workload.measured.acceptance_law
        return decoder(models, gamma, check.sampling, tokens, pair, law)

    @cache
    def warm_up() -> None:
        """First runs of a process load what later ones find, whoever comes first."""
        for check in checks:
            for gamma in (PLAIN, *gammas):
                start = start_of(check, gamma, min(_WARM_TOKENS, check.max_new_tokens))
                start(check.prompts[0], generator(device, DECODING, seed)).finish()

    def decode(number: int, turn: Turn) -> Row:
        warm_up()
        check = checks[turn.check]
        start = start_of(check, turn.gamma, check.max_new_tokens)
        key = (DECODING, seed, number, turn.check, turn.request, turn.gamma, turn.time)
        decoded = start(check.prompts[turn.request], generator(device, *key)).finish()
        return {
            "seconds": decoded.seconds,
            "tokens": len(decoded.tokens),
            "calls": decoded.calls,
            "text": decoded.tokens,
        }

    def decode_pass(number: int) -> Decoded | None:
        """None where there is no time for all of it."""
        found: Decoded = {}
        for turn in turns(checks, gammas, requests, number, seed):
            name = f"{number}-{turn.check}-{turn.request}-{turn.gamma}-{turn.time}.json"
            if name not in checkpoint and not more_time():
                return None
            decoded = checkpoint.keep_json(name, partial(decode, number, turn))
            cell = found.setdefault((turn.check, turn.gamma), [{}])
            cell[0].setdefault(turn.request, []).append(decoded)
            advance()
        return found

    whole: Decoded = {}
    with models_not_walked():
        for number in range(passes):
            found = decode_pass(number)
            if found is None and number < _LEAST_PASSES:
                raise TooFewPassesError(
                    f"there was time for {number} of the two passes that are needed at least; "
                    "started again with the same arguments, the check goes on"
                )
            if found is None:
                break
            for cell, alone in found.items():
                whole.setdefault(cell, []).extend(alone)
    return whole


def compare_passes(
    checks: Sequence[CheckedPrompts],
    predictions: Mapping[float, Mapping[int, PredictedSpeedup]],
    gammas: Sequence[int],
    decoded: Decoded,
) -> list[Row]:
    """Rows of predicted beside measured, one per check and gamma; ``recommended`` is the gamma that
    the profile recommends at that temperature, decoded here or not.

    predictions : by temperature and gamma
    """
    rows = []
    for index, check in enumerate(checks):
        asked = predictions[check.sampling.temperature]
        recommended = next((gamma for gamma, each in asked.items() if each.chosen), PLAIN)
        for gamma in gammas:
            plain, fast = decoded[index, PLAIN], decoded[index, gamma]
            row = compare(check, gamma, asked[gamma], plain, fast)
            rows.append({**row, "recommended": recommended})
    return rows


def compare(
    check: CheckedPrompts,
    gamma: int,
    predicted: PredictedSpeedup,
    plain: Sequence[Mapping[int, Sequence[Row]]],
    fast: Sequence[Mapping[int, Sequence[Row]]],
) -> Row:
    """One draft length: what was predicted, and what came of it.

    plain, fast : by pass and request, what was decoded

    ``inside``: the two differ by no more than the prediction's interval and the measurement's own
    together explain, as logarithms.  ``profile_plain_ms``, ``measured_plain_ms``: of a token of
    plain decoding, when the profile was written and now; the prediction is the one at what plain
    decoding takes now, ``speedup_at_profile_plain`` the one at what it took then, as ``optimize``
    prints it, and ``inside_at_profile_plain`` whether it differs by no more than that interval and
    the measurement's explain.
    """
    plain_s = np.array([_per_token(each) for each in plain])
    measured = mean_of_passes(plain_s / np.array([_per_token(each) for each in fast]))
    calls = np.array([[each["calls"] for each in turn[r]] for turn in fast for r in sorted(turn)])
    tokens = sum(each["tokens"] for turn in fast for found in turn.values() for each in found)
    exact = None
    if check.certain:
        texts = {r: found[0]["text"] for r, found in plain[0].items()}
        same = all(
            each["text"] == texts[r] for turn in fast for r, found in turn.items() for each in found
        )
        replayed = replay(check.trace, [gamma])[0].calls
        as_replayed = not check.paired or all(
            each["calls"] == round(replayed[r])
            for turn in fast
            for r, found in turn.items()
            for each in found
        )
        exact = same and as_replayed
    plain_ms = 1e3 * float(plain_s.mean())
    expected = predicted.at(plain_ms)
    low, high = measured["measured_low"], measured["measured_high"]
    seen = Interval(low, measured["measured_speedup"], high)
    before = Interval(predicted.low, predicted.speedup, predicted.high)
    return {
        "temperature": check.sampling.temperature,
        "acceptance_law": check.workload.measured.acceptance_law,
        "prompts": check.name,
        "gamma": gamma,
        "requests": len(plain[0]),
        "profile_requests": check.workload.measured.requests,
        "passes": len(plain),
        "predicted_tokens_per_call": predicted.tokens_per_call,
        "measured_tokens_per_call": tokens / float(calls.sum()),
        "exact": exact,
        "predicted_speedup": expected.best,
        "predicted_low": expected.low,
        "predicted_high": expected.high,
        "formula_speedup": predicted.formula_speedup,
        "speedup_at_profile_plain": predicted.speedup,
        "inside_at_profile_plain": apart(before, seen) <= 1,
        "profile_plain_ms": predicted.plain_ms,
        "measured_plain_ms": plain_ms,
        **measured,
        "relative_error": expected.best / measured["measured_speedup"] - 1,
        "inside": apart(expected, seen) <= 1,
        "chosen": predicted.chosen,
    }


def mean_of_passes(speedups: Floats) -> Row:
    """The mean over passes, shape (P,), its standard error and its 95 % interval (Student's t),
    whose low end is a tenth of the mean at least: times have no sign; and the passes themselves,
    which all draft lengths have in common.
    """
    size = speedups.size
    mean, error = float(speedups.mean()), float(speedups.std(ddof=1) / sqrt(size))
    half = float(t.ppf(0.975, size - 1)) * error
    return {
        "measured_speedup": mean,
        "measured_error": error,
        "measured_low": max(mean - half, 0.1 * mean),
        "measured_high": mean + half,
        "measured_by_pass": speedups.tolist(),
    }


def _per_token(decoded: Mapping[int, Sequence[Row]]) -> float:
    """Seconds a token, over all requests of a pass."""
    seconds = sum(each["seconds"] for found in decoded.values() for each in found)
    return float(seconds / sum(each["tokens"] for found in decoded.values() for each in found))
