"""Predicted beside measured: what a profile says, against decoding for real."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import log
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import torch

from calibrate.decode.drafters.copying import PromptLookup
from calibrate.decode.engine import CachedModel, DecodeRequest, Decoding
from calibrate.decode.plain import plain
from calibrate.decode.speculative import speculative
from calibrate.measure.grid import joined
from calibrate.measure.timing import TimedRows
from calibrate.models.load import Pair
from calibrate.models.prompts import PromptError, find_prompts
from calibrate.models.sampling import Sampling
from calibrate.validate.interleave import PLAIN, Interleaved, RequestSet, Start, decode_interleaved
from specsim import formulas
from specsim.acceptance import AcceptanceLaw
from specsim.checkpoint import Checkpoint
from specsim.checks import InvalidArgumentError
from specsim.optimizers.workload import Workload
from specsim.predict.error_decomposition import PARTS, BlockTiming, decompose_error
from specsim.predict.measured import MeasuredCost, predict
from specsim.predict.replay.fixed_gamma import Replay, replay
from specsim.profiles import Overhead, Profile, RunTime, prompts_digest
from specsim.traces import Trace

_NOT_DECOMPOSED = {f"error_{part}": None for part in PARTS}


@dataclass(frozen=True)
class CheckedPrompts:
    """A workload of the profile and the requests that its prediction is checked on.

    ``paired``: these are requests of its trace, in order; otherwise the calibration never saw
    them.
    """

    workload: Workload
    paired: bool
    prompts: Sequence[Sequence[int]]

    @staticmethod
    def find(
        workload: Workload, paired: bool, path: Path | None, tokenizer: Any, requests: int
    ) -> CheckedPrompts:
        """At most ``requests`` prompts, from the file or from the held-out modules."""
        measured = workload.measured
        if paired:
            own = find_prompts(path, tokenizer, measured.prompt_tokens, measured.requests)
            if prompts_digest(own) != measured.prompts_sha256:
                raise InvalidArgumentError(
                    "the prompts are not those of the calibration: give the same file of prompts, "
                    "or check only unseen ones"
                )
            return CheckedPrompts(workload, paired, own[:requests])
        seen = max(each.requests for each in workload.profile.acceptance)
        unseen = find_prompts(path, tokenizer, measured.prompt_tokens, requests, skip=seen)
        if len(unseen) < 2:
            raise PromptError(
                f"prompts {path} has fewer than two prompts that calibration did not see; "
                "add some, or check only those of the calibration"
            )
        return CheckedPrompts(workload, paired, unseen)

    @property
    def name(self) -> str:
        return "calibration" if self.paired else "unseen"

    @property
    def trace(self) -> Trace:
        """What the prediction replays."""
        trace = self.workload.trace
        return trace.take(np.arange(len(self.prompts))) if self.paired else trace

    @property
    def sampling(self) -> Sampling:
        measured = self.workload.measured.sampling
        return Sampling(measured.temperature, measured.top_k, measured.top_p)

    @property
    def certain(self) -> bool:
        """Whether every decoder must write the same text.  In half precision rounding hangs on how
        many tokens a run reads, and so may the most probable of two that are nearly alike.
        """
        return self.sampling.greedy and self.workload.profile.software.dtype == "float32"

    @property
    def max_new_tokens(self) -> int:
        return self.workload.measured.max_new_tokens


def validate(
    profile: Profile,
    pair: Pair,
    checks: Sequence[CheckedPrompts],
    gammas: Sequence[int],
    seed: int,
    checkpoint: Checkpoint,
    advance: Callable[[], None] = lambda: None,
) -> list[dict[str, Any]]:
    """Rows of predicted beside measured, one per check and gamma; ``advance`` once a request.

    checkpoint : keeps the requests that were decoded
    """
    caches = {gamma: pair.with_drafter(timed=False) for gamma in (PLAIN, *gammas)}
    sets = [
        RequestSet(
            each.prompts,
            {
                gamma: decoder(
                    models,
                    gamma,
                    each.sampling,
                    each.max_new_tokens,
                    pair,
                    each.workload.measured.acceptance_law,
                )
                for gamma, models in caches.items()
            },
        )
        for each in checks
    ]
    device = caches[PLAIN][0].device
    decoded = decode_interleaved(sets, device, seed, checkpoint, advance)
    rows: list[dict[str, Any]] = []
    for each, interleaved in zip(checks, decoded, strict=True):
        rows += compare(each, interleaved, waited=device.type == "cpu")
    return rows


def decoder(
    models: tuple[CachedModel, CachedModel | PromptLookup],
    gamma: int,
    sampling: Sampling,
    limit: int,
    pair: Pair,
    law: AcceptanceLaw = "ratio-test",
) -> Start:
    """Speculative decoding of a request with so many draft tokens, or plain decoding with 0."""
    target, drafter = models
    end = pair.target.end_of_text

    def start(prompt: Sequence[int], random: torch.Generator) -> Decoding:
        request = DecodeRequest(prompt, limit, sampling, random, end)
        if gamma == PLAIN:
            return plain(target, request)
        return speculative(target, drafter, request, gamma, acceptance_law=law)

    return start


def interleaved_cost(check: CheckedPrompts, interleaved: Interleaved) -> MeasuredCost:
    """The cost as it was while decoding, smoothed as that of a profile is."""
    temperature = check.sampling.temperature
    rows = TimedRows(temperature)
    for number, prompt in enumerate(check.prompts):
        beside = [interleaved.decoded[PLAIN][number]]
        for gamma, decoded in interleaved.decoded.items():
            assert isinstance(gamma, int)
            rows.add(number, len(prompt), gamma, decoded[number], beside)
    return MeasuredCost.of(
        msgspec.convert(joined(rows.found["run_times"]), list[RunTime]),
        msgspec.convert(joined(rows.found["overhead"]), list[Overhead]),
        temperature,
        check.workload.profile.by_lookup,
    )


def compare(check: CheckedPrompts, interleaved: Interleaved, waited: bool) -> list[dict[str, Any]]:
    """Rows of predicted beside measured, one per gamma.

    ``z`` tests predicted against counted calls per token, over requests; the columns of
    ``decompose_error`` share out log(predicted / measured speedup), where every run was
    ``waited`` for: elsewhere the seconds of the runs are not known apart, so the profile's costs
    are taken and these columns are absent.  ``error_drift`` is what the profile's costs make the
    speedup look faster than those of now: what the machine did since calibration.
    ``exact`` says whether greedy decoding did what it must, request by request: the text of plain
    decoding, and on the trace's own prompts as many calls as replayed.  Both predictions, ours and
    the formula's, take their acceptance from ``check.trace`` and their costs as they were while
    decoding.
    """
    workload, trace, paired = check.workload, check.trace, check.paired
    gammas = sorted(
        gamma for gamma in interleaved.decoded if isinstance(gamma, int) and gamma != PLAIN
    )
    cost = interleaved_cost(check, interleaved) if waited else workload.cost
    c, alpha = cost.draft_cost(workload.context), float(trace.acceptance.mean())
    temperature = workload.measured.sampling.temperature
    rows = []
    limit = workload.measured.max_new_tokens
    # The profile's own costs are those of another day.
    drift = 0.0 if waited else workload.profile.drift
    predictions = predict(trace, cost, gammas, limit, drift=drift)
    before = predict(trace, workload.cost, gammas, limit)
    for prediction, then, replayed in zip(predictions, before, replay(trace, gammas), strict=True):
        gamma = prediction.gamma
        parts = cost.parts(trace, replayed, limit)
        plain_s = cost.plain_seconds(trace)
        measured = interleaved.speedup(gamma, (plain_s, parts.sum(0)) if paired else None)
        draft_s, verify_s, overhead_s = (parts.sum(axis=1) / prediction.calls).tolist()
        predicted = BlockTiming(
            tokens=prediction.tokens_per_call,
            draft_s=draft_s,
            verify_s=verify_s,
            overhead_s=overhead_s,
            plain_step_s=float(plain_s.sum()) / trace.tokens,
        )
        tokens, calls = int(interleaved.lengths(gamma).sum()), int(interleaved.calls(gamma).sum())
        acceptance = prediction.tokens_per_call / (tokens / calls)
        exact = None
        if check.certain:
            as_replayed = not paired or bool((interleaved.calls(gamma) == replayed.calls).all())
            exact = interleaved.same_text(gamma) and as_replayed
        rows.append(
            {
                "temperature": temperature,
                "acceptance_law": workload.measured.acceptance_law,
                "prompts": check.name,
                "gamma": gamma,
                "requests": len(interleaved.decoded[gamma]),
                "predicted_tokens_per_call": prediction.tokens_per_call,
                "measured_tokens_per_call": tokens / calls,
                "predicted_calls": prediction.calls * tokens / prediction.tokens,
                "measured_calls": calls,
                "exact": exact,
                "z": _z(replayed, interleaved, paired, not check.certain),
                "predicted_speedup": prediction.speedup,
                "predicted_low": prediction.low,
                "predicted_high": prediction.high,
                "alpha": alpha,
                "formula_speedup": float(formulas.speedup(alpha, c, gamma)),
                "measured_speedup": measured.best,
                "measured_low": measured.low,
                "measured_high": measured.high,
                "relative_error": prediction.speedup / measured.best - 1,
                "acceptance_error": acceptance - 1,
                "cost_error": prediction.speedup / measured.best / acceptance - 1,
                "profile_speedup": then.speedup,
                "error_drift": log(then.speedup / prediction.speedup) if waited else None,
                **(
                    decompose_error(predicted, interleaved.block_timing(gamma))
                    if waited
                    else _NOT_DECOMPOSED
                ),
            }
        )
    return rows


def _z(replayed: Replay, interleaved: Interleaved, paired: bool, drawn: bool) -> float:
    """Standard score of counted against replayed calls per token, over at least two requests.

    drawn : what is counted is drawn and a whole number, and gaps of a few requests may be alike by
        chance, as where hardly any draft is ever rejected: they are taken to scatter by a call at
        least
    """
    counted = interleaved.calls(replayed.gamma) / interleaved.lengths(replayed.gamma)
    expected = replayed.calls / replayed.lengths
    if paired:
        gaps = counted - expected
        error = gaps.std(ddof=1) / np.sqrt(len(gaps))
        mean = gaps.mean()
    else:
        mean = counted.mean() - expected.mean()
        error = np.sqrt(sum(values.var(ddof=1) / len(values) for values in (counted, expected)))
    if drawn:
        call = (1 / interleaved.lengths(replayed.gamma)).mean() / np.sqrt(len(counted))
        error = max(error, call)
    if error == 0:
        return 0.0 if mean == 0 else float(np.copysign(np.inf, mean))
    return float(mean / error)
