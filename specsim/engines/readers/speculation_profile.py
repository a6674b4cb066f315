"""NVIDIA's speculation_profile.json, read and written.

The file travels with a draft checkpoint and says how often its drafts are accepted.  Its fields
are those of ``build_profile`` in NVIDIA/Model-Optimizer,
examples/specdec_bench/specdec_bench/speculation_profile.py (schema 1.0, commit 095124e9; pull
requests #2247, #2313, #2315 and #2316, open in September 2026):

* lengths count the recovered or bonus token, so a round of length n accepted n - 1 drafts;
* ``acceptance_length_histogram`` {length: rounds} holds the counts that all else follows from;
* ``mean_accept_length`` weighs rounds alike, ``mean_accept_length_per_request`` requests;
* ``conditional_accept_rates`` and ``marginal_accept_rates`` have an entry for each position.

Public sources do not tell what ``per_category`` holds beside a mean length, nor which keys of
``measurement_conditions`` a consumer relies on; both are passed over here.  No source says how
many tokens were drafted, so ``drafted`` is not known.  The schema calls ``chain_analytic``
profiles safe to carry over K.  They are not: long drafts start more often after a rejection, so
the rates of all positions depend on the K they were measured at (vllm-project/vllm pull request
#48892: position 0 at 83.39 % with K = 1, at 76.17 % with K = 8, one drafter).  Files written here
say ``measured_per_k``.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from itertools import pairwise
from typing import Any

import numpy as np

from specsim.acceptance import conditional_rates
from specsim.checks import InvalidArgumentError, UnsupportedError
from specsim.counts.drafts import DraftCounts, MeanLength
from specsim.engines.readers.documents import Object, is_json, objects
from specsim.engines.readers.figures import Printed, count
from specsim.engines.readers.reading import Reading

SCHEMA_VERSION = "1.0"

_NAME = "speculation_profile.json"
_ONE_K = (
    "rates of one K are not safe to carry to another K, whatever accept_length_model says: long "
    "drafts start more often after a rejection"
)
_FIRST = (
    "specdec_bench counts the prompt's own run of each turn as a round that accepted nothing "
    "(models/vllm.py), so its rates are a little low, the more so the shorter the answers"
)
# Rates are written with six digits.
_ROUNDED = 2e-6
# The schema's own tolerance between the mean length and the sum of the marginal rates.
_TOLERANCE = 0.02


def recognises(text: str) -> bool:
    """Whether a text is a speculation profile."""
    return is_json(text) and '"schema_version"' in text and '"marginal_accept_rates"' in text


def read(text: str) -> list[Reading]:
    """The counts of each profile in a text, and the mean length of every other K in it."""
    return [found for each in objects(text) if _is_profile(each) for found in _of_profile(each)]


def write(
    counts: DraftCounts,
    *,
    method: str | None = None,
    conditions: Mapping[str, Any] | None = None,
) -> str:
    """The text of a speculation_profile.json with what was counted at one K.

    counts : rounds of one gamma, with all its positions
    method : how drafts were made, such as "eagle3"
    conditions : the data, the engine and the machine, for ``measurement_conditions``

    Counts tell neither the models nor requests apart, so ``draft_checkpoint``, ``target_model`` and
    ``mean_accept_length_per_request`` are null.
    """
    if counts.gamma is None or len(counts.reached) != counts.gamma:
        raise UnsupportedError(
            "a speculation profile has the rates of every position of one K; these counts have "
            f"{len(counts.reached)} positions and K = {counts.gamma or 'unknown'}"
        )
    mean = counts.tokens_per_call
    marginal = np.array(counts.reached) / counts.rounds
    conditional = conditional_rates(np.append(1.0, marginal))
    lengths = -np.diff([counts.rounds, *counts.reached, 0.0])
    implied = 1.0 + float(marginal.sum())
    profile = {
        "schema_version": SCHEMA_VERSION,
        "measured": True,
        "method": method,
        "draft_checkpoint": None,
        "target_model": None,
        "num_speculative_tokens": counts.gamma,
        "block_size": None,
        "max_supported_k": counts.gamma,
        "verification_method": "longest_prefix",
        "conditional_accept_rates": _rounded(conditional),
        "marginal_accept_rates": _rounded(marginal),
        "mean_accept_length": round(mean, 6),
        "mean_accept_length_per_request": None,
        "accept_length_model": "measured_per_k",
        "accept_length_by_k": {str(counts.gamma): round(mean, 6)},
        "acceptance_length_histogram": {
            str(length): _whole(rounds) for length, rounds in enumerate(lengths.tolist(), start=1)
        },
        "per_category": None,
        "measurement_conditions": {**(conditions or {}), "note": _ONE_K},
        "validation": {
            "mean_consistency": {
                "implied_mean_accept_length": round(implied, 6),
                "reported_mean_accept_length": round(mean, 6),
                "abs_delta": round(abs(implied - mean), 6),
                "tolerance": _TOLERANCE,
                "passed": abs(implied - mean) <= _TOLERANCE,
            },
            "marginal_monotonicity": {"passed": True, "violations": []},
        },
    }
    return json.dumps(profile, indent=2) + "\n"


def _is_profile(document: Object) -> bool:
    return "schema_version" in document and "marginal_accept_rates" in document


def _of_profile(profile: Object) -> list[Reading]:
    version = profile["schema_version"]
    if version != SCHEMA_VERSION:
        raise UnsupportedError(
            f"schema_version {str(version)[:20]!r} of a speculation profile is not read, only "
            f"{SCHEMA_VERSION!r}"
        )
    if profile.get("measured") is False:
        raise UnsupportedError("the profile says measured: false, so it is a form without numbers")
    gamma = count("num_speculative_tokens", profile.get("num_speculative_tokens"))
    if not gamma:
        raise InvalidArgumentError("num_speculative_tokens must be >= 1, got 0")
    notes = [_ONE_K]
    if profile.get("verification_method", "longest_prefix") != "longest_prefix":
        notes.append(
            f"drafts were verified by {str(profile['verification_method'])[:40]!r}, not token by "
            "token, so ratios of these rates are no acceptance of single tokens"
        )
    marginal = _rates(profile, "marginal_accept_rates", gamma)
    _check_conditional(profile, marginal)
    mean = _length(profile, "mean_accept_length")
    histogram = profile.get("acceptance_length_histogram")
    if histogram:
        counts = _counts(histogram, gamma)
        _check_rates(counts, marginal, mean)
        notes.append(_FIRST)
        found = [_reading(notes, counts=counts)]
    else:
        notes.append("the profile has no histogram, so no rounds, no positions and no interval")
        length = MeanLength(gamma, 1.0 + float(sum(marginal)) if mean is None else mean)
        _check_mean(length.tokens_per_call, marginal)
        found = [_reading(notes, length=length)]
    by_length = profile.get("accept_length_by_k") or {}
    if not isinstance(by_length, dict):
        raise InvalidArgumentError("accept_length_by_k must be an object of lengths by K")
    for word in by_length:
        if (other := count("a key of accept_length_by_k", word)) != gamma:
            length = MeanLength(other, _length(by_length, word) or 1.0)
            found.append(
                _reading([f"the mean length of K = {other}, without counts"], length=length)
            )
    return found


def _reading(notes: list[str], **what: Any) -> Reading:
    return Reading(
        engine="speculation-profile", source=_NAME, span="run", notes=tuple(notes), **what
    )


def _counts(histogram: object, gamma: int) -> DraftCounts:
    """Counts from {length: rounds}; a length counts the token beside the drafts."""
    if not isinstance(histogram, dict):
        raise InvalidArgumentError("acceptance_length_histogram must be an object")
    bins = np.zeros(gamma + 2)
    for word, rounds in histogram.items():
        length = count("a key of acceptance_length_histogram", word)
        value = Printed.of(f"acceptance_length_histogram[{length}]", rounds).value
        if value and not 1 <= length <= gamma + 1:
            raise UnsupportedError(
                f"{value:g} rounds have {length} tokens, beyond 1 to K + 1 = {gamma + 1}: K is "
                "understated, or several rounds arrived in one chunk and were counted as one"
            )
        if value:
            bins[length] += value
    reached = np.cumsum(bins[::-1])[::-1]
    return DraftCounts(
        gamma=gamma,
        rounds=float(reached[1]),
        accepted=float(reached[2:].sum()),
        reached=tuple(reached[2:].tolist()),
    )


def _rates(profile: Object, name: str, gamma: int) -> list[float]:
    words = profile.get(name)
    if not isinstance(words, list) or len(words) != gamma:
        raise InvalidArgumentError(f"{name} must be a list of K = {gamma} rates")
    rates = [Printed.of(f"{name}[{i}]", word).value for i, word in enumerate(words)]
    if any(rate > 1 for rate in rates):
        raise InvalidArgumentError(f"{name} must be in [0, 1], got {max(rates):g}")
    return rates


def _check_conditional(profile: Object, marginal: list[float]) -> None:
    """Marginal rates must fall, and conditional ones, where given, be their ratios."""
    if any(after > before + _ROUNDED for before, after in pairwise(marginal)):
        raise InvalidArgumentError("marginal_accept_rates must not rise with the position")
    if profile.get("conditional_accept_rates") is None:
        return
    conditional = _rates(profile, "conditional_accept_rates", len(marginal))
    for i, (before, after) in enumerate(pairwise([1.0, *marginal])):
        if abs(conditional[i] * before - after) > _ROUNDED:
            raise InvalidArgumentError(
                f"conditional_accept_rates[{i}] = {conditional[i]:g} is not the ratio of the "
                f"marginal rates {after:g} and {before:g}; are the two lists swapped?"
            )


def _check_rates(counts: DraftCounts, marginal: list[float], mean: float | None) -> None:
    rates = np.array(counts.reached) / (counts.rounds or 1.0)
    if not counts.rounds:
        raise UnsupportedError("acceptance_length_histogram has no rounds")
    if np.abs(rates - marginal).max() > _ROUNDED:
        raise InvalidArgumentError(
            f"marginal_accept_rates begin with {marginal[0]:g}, the histogram gives {rates[0]:g}; "
            "the two are not of one measurement"
        )
    if mean is not None and abs(counts.tokens_per_call - mean) > _ROUNDED:
        raise InvalidArgumentError(
            f"mean_accept_length is {mean:g}, the histogram gives {counts.tokens_per_call:g}; the "
            "two are not of one measurement"
        )


def _check_mean(mean: float, marginal: list[float]) -> None:
    if abs(1 + sum(marginal) - mean) > _TOLERANCE:
        raise InvalidArgumentError(
            f"mean_accept_length is {mean:g}, the marginal rates give {1 + sum(marginal):g}; they "
            "are not of one measurement, or the rates were cut short"
        )


def _length(document: Object, name: str) -> float | None:
    word = document.get(name)
    return None if word is None else Printed.of(name, word).value


def _rounded(rates: np.ndarray[Any, np.dtype[np.float64]]) -> list[float]:
    return [round(rate, 6) for rate in rates.tolist()]


def _whole(rounds: float) -> float | int:
    """Rounds as a whole number unless they were recovered from printed shares."""
    return int(rounds) if rounds == int(rounds) else round(max(rounds, 0.0), 6)
