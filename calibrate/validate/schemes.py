"""Every decoding scheme predicted beside decoded: tokens, runs of each model, time, quality.

The calibration's text is what the target wrote; models that the calibration did not have read it
now, and schemes with a law of their own write a text of theirs.  From that alone follow tokens and
runs.  Then the same prompts are decoded for real with all settings side by side.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from scipy.stats import t

from calibrate.decode.engine import Decoded, Decoding
from calibrate.decode.plain import plain
from calibrate.measure.timing import price_runs, sample_model_set
from calibrate.measure.trace import LOSSY, OVERHEAD, generator
from calibrate.schemes.base import ModelPool, ModelSet, Setting, Source
from calibrate.validate.interleave import PLAIN, Interleaved, Requests, Start, decode_interleaved
from calibrate.validate.quality import Quality, quality
from calibrate.validate.speedups import Check
from specsim.checks import Floats, UnsupportedError
from specsim.laws import TARGET
from specsim.predict.measured import RunPrices
from specsim.predict.replay.blocks import Expected
from specsim.predict.replay.run_counts import RunKind

# Of short decodings before the others, for what happens outside the model runs.
_OVERHEAD_REQUESTS = 3
_OVERHEAD_TOKENS = 48
# Counts are as predicted within this share, or within two standard errors.
_SHARE, _ERRORS = 0.03, 2.0
# Chance that a correct run fails for its counts, over all rows of a table.
_FALSE_ALARM = 1e-4
_ROUNDING = 1e-9


@dataclass(frozen=True, eq=False)
class Predicted:
    """A setting before it is decoded.

    requests : expectations, one a request
    overhead_s : host seconds a token, outside the model runs
    flat_s : seconds a run of drafters without a model
    """

    setting: Setting
    requests: Sequence[Expected]
    overhead_s: float
    flat_s: Mapping[str, float]

    @property
    def tokens(self) -> float:
        return float(sum(each.tokens for each in self.requests))

    def seconds(self, tables: Mapping[RunKind, Any], context: float) -> float:
        """Seconds a token."""
        prices = RunPrices(tables, self.flat_s)
        spent = sum(prices.seconds(each.runs, context) for each in self.requests)
        return spent / self.tokens + self.overhead_s

    @property
    def widest(self) -> float:
        """The widest runs of a kind, on average."""
        tallies = [each.runs for each in self.requests]
        return max(
            tally.positions[kind] / count
            for tally in tallies
            for kind, count in tally.counts.items()
            if count
        )

    def per_token(self, model: str) -> Floats:
        """Expected runs a token, one figure a request."""
        return np.array([each.runs.runs(model) / each.tokens for each in self.requests])


def sources(check: Check, model_set: ModelSet) -> list[Source]:
    """The texts of the calibration behind its prompts, to be read by anybody in the party."""
    trace = check.trace
    if "token" not in trace.columns:
        raise UnsupportedError("the trace has no column token, the text itself: calibrate again")
    ends = zip(trace.starts[:-1], trace.starts[1:], strict=True)
    texts = [trace.columns["token"][start:end].astype(int).tolist() for start, end in ends]
    return [
        Source(prompt, text, check.max_new_tokens, check.sampling, model_set)
        for prompt, text in zip(check.prompts, texts, strict=True)
    ]


def validate_schemes(
    pool: ModelPool,
    checks: Sequence[tuple[Check, Sequence[Setting]]],
    contexts: Sequence[int],
    end_of_text: int | None,
    seed: int,
    folder: Path,
    advance: Callable[[str], None] = lambda stage: None,
) -> list[dict[str, Any]]:
    """Rows of predicted beside measured, one per setting; ``advance`` at every step of a stage.

    folder : keeps the requests that were decoded, for a run that is killed and started again
    """
    device = next(pool.target.parameters()).device
    predicted: list[list[Predicted]] = []
    kinds: list[list[Quality | None]] = []
    plain_overhead: list[float] = []
    for check, chosen in checks:
        model_set = pool.new()
        read = sources(check, model_set)
        plain_overhead.append(_plain_overhead(check, model_set))
        predicted.append([])
        kinds.append([])
        for number, setting in enumerate(chosen):
            draws = [generator(device, LOSSY, seed, number, index) for index in range(len(read))]
            expected = [
                setting.expect(source, random, end_of_text)
                for source, random in zip(read, draws, strict=True)
            ]
            predicted[-1].append(_with_overhead(setting, expected, check, model_set))
            kinds[-1].append(quality(setting, check.prompts, model_set))
            advance("predicting")
    widest = max(each.widest for found in predicted for each in found)
    timed = pool.new()
    models = {TARGET: timed.target, **timed.models}

    measurements = [partial(sample_model_set, models, context, widest) for context in contexts]
    sets = [
        Requests(check.prompts, _decoders(check, chosen, pool, end_of_text))
        for check, chosen in checks
    ]
    # A round of this many decoders takes long enough for a measurement after each.
    decoded, samples = decode_interleaved(
        sets,
        device,
        seed,
        measurements,
        every=1,
        folder=folder,
        advance=lambda: advance("decoding"),
    )
    tables = price_runs(samples)
    rows = []
    for (check, _), turns, found, overhead, how_good in zip(
        checks, decoded, predicted, plain_overhead, kinds, strict=True
    ):
        context = float(np.mean([len(prompt) for prompt in check.prompts]))
        context += float(turns.lengths(PLAIN).mean()) / 2
        plainly = float(tables[RunKind(TARGET, False)](1, np.array([context]))[0]) + overhead
        for each, good in zip(found, how_good, strict=True):
            rows.append(_row(check, each, turns, plainly / each.seconds(tables, context), good))
    return rows


def _decoders(
    check: Check, chosen: Sequence[Setting], pool: ModelPool, end_of_text: int | None
) -> dict[Any, Start]:
    """Every setting with models of its own, and plain decoding."""
    limit = check.max_new_tokens

    def plainly(model_set: ModelSet) -> Start:
        def start(prompt: Sequence[int], random: torch.Generator) -> Decoding:
            return plain(model_set.target, prompt, limit, check.sampling, random, end_of_text)

        return start

    def with_setting(setting: Setting, model_set: ModelSet) -> Start:
        def start(prompt: Sequence[int], random: torch.Generator) -> Decoding:
            return setting.start(model_set, prompt, limit, random, end_of_text)

        return start

    decoders: dict[Any, Start] = {PLAIN: plainly(pool.new(timed=False))}
    for setting in chosen:
        decoders[key(setting)] = with_setting(setting, pool.new(timed=False))
    return decoders


def key(setting: Setting) -> tuple[str, str]:
    """What a setting is called in a table."""
    return setting.scheme, setting.name


def _with_overhead(
    setting: Setting, expected: Sequence[Expected], check: Check, model_set: ModelSet
) -> Predicted:
    """The expectation, with what a few short decodings spend outside the models."""
    limit = min(_OVERHEAD_TOKENS, check.max_new_tokens)
    decoded = []
    for number, prompt in enumerate(check.prompts[:_OVERHEAD_REQUESTS]):
        random = generator(model_set.target.device, OVERHEAD, number)
        decoded.append(setting.start(model_set, prompt, limit, random, None).finish())
    flat: dict[str, float] = {}
    for name in set(decoded[0].drafts) - set(model_set.models):
        runs = [each.drafts[name] for each in decoded]
        count = sum(each.count for each in runs)
        flat[name] = sum(each.seconds for each in runs) / count if count else 0.0
    return Predicted(setting, expected, _overhead(decoded), flat)


def _plain_overhead(check: Check, model_set: ModelSet) -> float:
    limit = min(_OVERHEAD_TOKENS, check.max_new_tokens)
    decoded = []
    for number, prompt in enumerate(check.prompts[:_OVERHEAD_REQUESTS]):
        random = generator(model_set.target.device, OVERHEAD, number)
        decoded.append(plain(model_set.target, prompt, limit, check.sampling, random).finish())
    return _overhead(decoded)


def _overhead(decoded: Sequence[Decoded]) -> float:
    """Host seconds a token."""
    return float(np.median([each.overhead_s / len(each.tokens) for each in decoded]))


def _row(
    check: Check, predicted: Predicted, turns: Interleaved, speedup: float, good: Quality | None
) -> dict[str, Any]:
    setting = predicted.setting
    name = key(setting)
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
    if setting.sampling.greedy:
        calls = np.array([each.calls for each in predicted.requests])
        exact = bool((np.abs(calls - turns.calls(name)) < _ROUNDING * calls.clip(1)).all())
        if setting.lossless:
            exact = exact and turns.same_text(name)
    measured = turns.speedup(name)
    calls_expected = sum(each.calls for each in predicted.requests)
    measured_calls = float(turns.calls(name).sum())
    return {
        "temperature": setting.sampling.temperature,
        "scheme": setting.scheme,
        "setting": setting.name,
        "lossless": setting.lossless,
        "requests": len(decoded),
        "predicted_tokens_per_call": _ratio(predicted.tokens, calls_expected),
        "measured_tokens_per_call": _ratio(float(lengths.sum()), measured_calls),
        "exact": exact,
        "predicted_runs": {model: 100 * each[0] for model, each in figures.items()},
        "measured_runs": {model: 100 * each[1] for model, each in figures.items()},
        "measured_rejections": 100
        * sum(each.rejections for each in decoded)
        / float(lengths.sum()),
        "runs_z": {model: each[2] for model, each in figures.items()},
        "approximate": sorted(setting.approximate),
        "counts_as_predicted": all(_as_predicted(*each) for each in figures.values()),
        "predicted_speedup": speedup,
        "measured_speedup": measured.best,
        "measured_low": measured.low,
        "measured_high": measured.high,
        "relative_error": speedup / measured.best - 1,
        "log_loss": good.log_loss if good else None,
        "accuracy": good.accuracy if good else None,
        "agreement": _agreement(turns, name) if setting.sampling.greedy else None,
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
    return abs(expected - counted) <= _SHARE * counted or abs(z) <= _ERRORS


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


def contradictions(rows: Sequence[Mapping[str, Any]]) -> list[str]:
    """Settings whose greedy text or calls are wrong, or whose counts chance does not explain.

    At temperature 0 every target call must be as predicted, of lossy settings too.  Runs that are
    predicted approximately are shown, and not judged.
    """
    failures = [
        f"{row['scheme']} {row['setting']}, temperature 0: not the text of plain decoding, or not "
        "the predicted calls"
        for row in rows
        if row["exact"] is False and TARGET not in row["approximate"]
    ]
    tests = sum(len(row["runs_z"]) for row in rows)
    for row in rows:
        limit = float(t.isf(_FALSE_ALARM / (2 * tests), df=row["requests"] - 1))
        for model, z in row["runs_z"].items():
            expected, counted = row["predicted_runs"][model], row["measured_runs"][model]
            if model in row["approximate"]:
                continue
            if abs(expected - counted) > _SHARE * counted and abs(z) > limit:
                failures.append(
                    f"{row['scheme']} {row['setting']}, temperature {row['temperature']:g}: runs "
                    f"of {model} {expected:.1f} predicted, {counted:.1f} counted (z {z:.1f})"
                )
    return failures
