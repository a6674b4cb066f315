"""Every decoding scheme predicted beside decoded: tokens, runs of each model, time, quality.

The calibration's text is what the target wrote; models that the calibration did not have read it
now, and schemes with a law of their own write a text of theirs.  From that alone follow tokens and
runs.  Then the same prompts are decoded for real with all settings side by side, each of them twice
at least: what runs take is told by other decodings than those that predictions are compared with.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from math import ceil
from typing import Any

import numpy as np
import torch

from calibrate.decode.build import start
from calibrate.decode.engine import DecodeRequest, Decoding
from calibrate.measure.recorded_text import ReadableText
from calibrate.measure.trace import LOSSY, generator
from calibrate.models.pool import ModelPool, ModelSet
from calibrate.validate.catalogue import drawn_with
from calibrate.validate.interleave import PLAIN, Interleaved, RequestSet, Start, decode_interleaved
from calibrate.validate.predict import Predicted, as_json, from_json, predict
from calibrate.validate.quality import quality
from calibrate.validate.scheme_costs import setting_costs
from calibrate.validate.scheme_speedups import measured_speedups, predicted_speedups
from calibrate.validate.speedups import CheckedPrompts
from specsim.checkpoint import Checkpoint
from specsim.checks import Floats, UnsupportedError
from specsim.intervals import Interval
from specsim.laws import TARGET
from specsim.predict.replay.build import approximate_runs
from specsim.predict.replay.rates import named_rates
from specsim.schemes import PlainDecoding, Scheme, scheme_name

# Requests that are timed, at least: fewer say little of how sure their mean is.
_TIMED = 6
# Counts are as predicted within this share, or within two standard errors.
SHARE, _ERRORS = 0.03, 2.0
_ROUNDING = 1e-9


def recorded_texts(check: CheckedPrompts, model_set: ModelSet) -> list[ReadableText]:
    """The texts of the calibration behind its prompts, to be read by any model of the set."""
    trace = check.trace
    if "token" not in trace.columns:
        raise UnsupportedError("the trace has no column token, the text itself: calibrate again")
    ends = zip(trace.starts[:-1], trace.starts[1:], strict=True)
    texts = [trace.columns["token"][start:end].astype(int).tolist() for start, end in ends]
    return [
        ReadableText(prompt, text, check.max_new_tokens, check.sampling, model_set)
        for prompt, text in zip(check.prompts, texts, strict=True)
    ]


def validate_schemes(
    pool: ModelPool,
    checks: Sequence[tuple[CheckedPrompts, Sequence[Scheme]]],
    end_of_text: frozenset[int],
    seed: int,
    checkpoint: Checkpoint,
    advance: Callable[[str], None] = lambda stage: None,
) -> list[dict[str, Any]]:
    """Rows of predicted beside measured, one per setting; ``advance`` at every step of a stage.

    checkpoint : keeps the settings that were predicted and the requests that were decoded
    """
    device = next(pool.target.parameters()).device
    expected: list[list[Predicted]] = []
    for place, (check, chosen) in enumerate(checks):
        model_set = pool.new()
        texts = recorded_texts(check, model_set)
        expected.append([])
        for number, scheme in enumerate(chosen):
            draws = [generator(device, LOSSY, seed, number, index) for index in range(len(texts))]
            make = partial(_predicted, scheme, check, texts, draws, end_of_text)
            kept = checkpoint.keep_json(f"predicted-{place}-{number}.json", make)
            expected[-1].append(from_json(scheme, kept))
            advance("predicting")
    sets = [
        RequestSet(timed_prompts(check), _decoders(check, chosen, pool, end_of_text, timed=True))
        for check, chosen in checks
    ]
    # Behind those that are timed: the first run of a width is a slow one.
    sets += [
        RequestSet(check.prompts, _decoders(check, chosen, pool, end_of_text, timed=False))
        for check, chosen in checks
    ]
    decoded = decode_interleaved(
        sets, device, seed, checkpoint, advance=lambda: advance("decoding")
    )
    names = [name for _, chosen in checks for each in chosen for name in each.row_fields()]
    fields = dict.fromkeys(names)
    halves = zip(decoded[: len(checks)], decoded[len(checks) :], strict=True)
    return [
        {**_named(each.scheme, check, fields), **row}
        for (check, _), found, (timed, measured) in zip(checks, expected, halves, strict=True)
        for each, row in zip(found, _rows(check, found, timed, measured), strict=True)
    ]


def _rows(
    check: CheckedPrompts, expected: Sequence[Predicted], timed: Interleaved, measured: Interleaved
) -> list[dict[str, Any]]:
    """Of the settings on these prompts.

    timed, measured : what tells what runs take, and what the prediction is compared with
    """
    settings = {key(each.scheme): each for each in expected}
    known = {
        name for name, each in settings.items() if drawn_with(each.scheme, check.sampling).greedy
    }
    foreseen = predicted_speedups(settings, known, setting_costs(timed))
    speedups = measured_speedups(measured, foreseen, known)
    return [
        _row(each, measured, foreseen[name].speedup, speedups[name], check)
        for name, each in settings.items()
    ]


def timed_prompts(check: CheckedPrompts) -> list[Sequence[int]]:
    """Of the requests that tell what runs take: those that are predicted, each as often."""
    return ceil(_TIMED / len(check.prompts)) * list(check.prompts)


def _request(
    scheme: Scheme,
    check: CheckedPrompts,
    prompt: Sequence[int],
    random: torch.Generator,
    end_of_text: frozenset[int],
) -> DecodeRequest:
    sampling = drawn_with(scheme, check.sampling)
    return DecodeRequest(prompt, check.max_new_tokens, sampling, random, end_of_text)


def _decoders(
    check: CheckedPrompts,
    chosen: Sequence[Scheme],
    pool: ModelPool,
    end_of_text: frozenset[int],
    timed: bool,
) -> dict[Any, Start]:
    """Every setting with models of its own, and plain decoding.

    timed : every run of a model is waited for, so that its seconds are its own
    """

    def starter(scheme: Scheme, model_set: ModelSet) -> Start:
        def begin(prompt: Sequence[int], random: torch.Generator) -> Decoding:
            request = _request(scheme, check, prompt, random, end_of_text)
            return start(scheme, model_set, request)

        return begin

    decoders: dict[Any, Start] = {PLAIN: starter(PlainDecoding(), pool.new(timed))}
    for scheme in chosen:
        decoders[key(scheme)] = starter(scheme, pool.new(timed))
    return decoders


def key(scheme: Scheme) -> tuple[str, str]:
    """What a setting is called in a table."""
    return scheme_name(scheme), scheme.label


def _predicted(
    scheme: Scheme,
    check: CheckedPrompts,
    texts: Sequence[ReadableText],
    draws: Sequence[torch.Generator],
    end_of_text: frozenset[int],
) -> dict[str, Any]:
    """From the recorded texts, as JSON."""
    requests = [
        predict(scheme, text, _request(scheme, check, text.prompt, random, end_of_text))
        for text, random in zip(texts, draws, strict=True)
    ]
    model_set = texts[0].model_set
    good = quality(scheme, drawn_with(scheme, check.sampling), check.prompts, model_set)
    return as_json(Predicted(scheme, requests, good))


def _named(scheme: Scheme, check: CheckedPrompts, fields: Mapping[str, Any]) -> dict[str, Any]:
    """What a row is of; ``fields`` are those that any scheme of the table has."""
    name, label = key(scheme)
    return {
        "temperature": drawn_with(scheme, check.sampling).temperature,
        "scheme": name,
        "setting": label,
        **fields,
        **scheme.row_fields(),
        "lossless": scheme.lossless,
    }


def _row(
    predicted: Predicted,
    turns: Interleaved,
    speedup: Interval[float],
    measured: Interval[float],
    check: CheckedPrompts,
) -> dict[str, Any]:
    scheme, good = predicted.scheme, predicted.quality
    name = key(scheme)
    decoded = turns.decoded[name]
    lengths = turns.lengths(name)
    models = [TARGET, *decoded[0].drafts]
    counted = {TARGET: turns.calls(name)}
    for model in models[1:]:
        counted[model] = np.array([float(each.drafts[model].count) for each in decoded])
    figures = {
        model: _compare(predicted.per_token(model), counts / lengths)
        for model, counts in counted.items()
    }
    exact = None
    if check.certain:
        calls = np.array([each.calls for each in predicted.expected])
        exact = bool((np.abs(calls - turns.calls(name)) < _ROUNDING * calls.clip(1)).all())
        if scheme.lossless:
            exact = exact and turns.same_text(name)
    calls_expected = sum(each.calls for each in predicted.expected)
    measured_calls = float(turns.calls(name).sum())
    return {
        "requests": len(decoded),
        "acceptance": named_rates(predicted.rates),
        "law_tokens_per_call": predicted.law_tokens_per_call,
        "predicted_tokens_per_call": _ratio(predicted.tokens.sum(), calls_expected),
        "measured_tokens_per_call": _ratio(float(lengths.sum()), measured_calls),
        "exact": exact,
        "predicted_runs": {model: 100 * each[0] for model, each in figures.items()},
        "measured_runs": {model: 100 * each[1] for model, each in figures.items()},
        "measured_rejections": 100
        * sum(each.rejections for each in decoded)
        / float(lengths.sum()),
        "runs_z": {model: each[2] for model, each in figures.items()},
        "approximate": sorted(approximate_runs(scheme)),
        "counts_as_predicted": all(_as_predicted(*each) for each in figures.values()),
        "predicted_speedup": speedup.best,
        "predicted_low": speedup.low,
        "predicted_high": speedup.high,
        "measured_speedup": measured.best,
        "measured_low": measured.low,
        "measured_high": measured.high,
        "relative_error": speedup.best / measured.best - 1,
        "log_loss": good.log_loss if good else None,
        "accuracy": good.accuracy if good else None,
        "agreement": _agreement(turns, name) if check.sampling.greedy else None,
    }


def _ratio(tokens: float, calls: float) -> float:
    return tokens / calls if calls else float("inf")


def _compare(expected: Floats, counted: Floats) -> tuple[float, float, float]:
    """Mean runs a token, expected and counted, and the standard score of their gap.

    The score is nan where all gaps are the same number: that says nothing of chance.
    """
    gaps = counted - expected
    error = gaps.std(ddof=1) / np.sqrt(len(gaps))
    mean = float(gaps.mean())
    # The expectation is a float64 sum of probabilities, so equal means differ by rounding.
    if abs(mean) < _ROUNDING:
        return float(expected.mean()), float(counted.mean()), 0.0
    z = mean / error if error > _ROUNDING else float("nan")
    return float(expected.mean()), float(counted.mean()), float(z)


def _as_predicted(expected: float, counted: float, z: float) -> bool:
    return abs(expected - counted) <= SHARE * counted or abs(z) <= _ERRORS


def _agreement(turns: Interleaved, name: Any) -> float:
    """Mean share of a text that stands before its first difference from plain decoding."""
    shares = []
    for own, other in zip(turns.decoded[name], turns.decoded[PLAIN], strict=True):
        same = 0
        for mine, theirs in zip(own.tokens, other.tokens, strict=False):
            if mine != theirs:
                break
            same += 1
        shares.append(same / len(other.tokens))
    return float(np.mean(shares))
