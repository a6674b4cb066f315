"""Seconds of a step as a sum of coefficients that a person types."""

from __future__ import annotations

from collections.abc import Mapping

from specsim.checks import InvalidArgumentError, did_you_mean, number
from specsim.serving.step_model import HOST, VARIATIONS, StepModel, StepTerm

_MS, _US, _NS = 1e-3, 1e-6, 1e-9
# By name: the part, the unit in seconds, and what it is for each of; see QUANTITIES.
_TERMS: dict[str, tuple[str, float, str | None]] = {
    "step_ms": ("target", _MS, None),
    "token_us": ("target", _US, "tokens"),
    "sequence_us": ("target", _US, "sequences"),
    "context_token_ns": ("target", _NS, "decode_context"),
    "prefill_token_us": ("target", _US, "prefill_tokens"),
    "prefill_pair_ns": ("target", _NS, "prefill_pairs"),
    "draft_prefill_token_us": ("draft", _US, "prefill_tokens"),
    "host_ms": (HOST, _MS, None),
    "host_sequence_us": (HOST, _US, "sequences"),
    "arrival_ms": (HOST, _MS, "arrivals"),
}
# What each draft of a round costs: a run of the drafter, and each of its requests in it.
_DRAFTS: dict[str, tuple[float, str | None]] = {
    "draft_run_ms": (_MS, None),
    "draft_token_us": (_US, "drafting"),
}
_FRONTENDS = ("frontend_ms", "frontend_decode_ms", "frontend_prompt_ms")
# What every step has some of.
_EVERY_STEP = ("step_ms", "token_us", "sequence_us", "host_ms", "host_sequence_us")
COEFFICIENTS = (*_TERMS, *_DRAFTS, *_FRONTENDS, *VARIATIONS)


def coefficients(**values: float) -> StepModel:
    """A step by its coefficients, each >= 0, and one > 0 that every step has some of.

    step_ms : every step
    token_us : a token that the target reads, of prompts and of decodes with their drafts
    sequence_us : a request in the step
    context_token_ns : a token in the cache of a request that decodes
    prefill_token_us : a token of a prompt, beside ``token_us``
    prefill_pair_ns : a token of a prompt and one before it, or itself: attention
    draft_run_ms, draft_token_us : a draft of a round, and each request that gets it
    draft_prefill_token_us : a token of a prompt that the drafter reads
    host_ms, host_sequence_us, arrival_ms : of the host, of the host for each request, and for each
        that came since the step before; an engine that schedules ahead hides them behind the device
    frontend_ms, frontend_decode_ms, frontend_prompt_ms : of every request outside of all steps, for
        which no step waits, and what comes to it for each that decodes in the step of its first
        token, and for each other that has its first token there
    step_variation, prompt_step_variation, frontend_variation : coefficients of variation of a step
        without a prompt, of one with some, and of what a request spends outside of steps
    """
    if not values:
        raise InvalidArgumentError(f"coefficients must be some of {', '.join(COEFFICIENTS)}")
    terms = []
    beside: dict[str, float] = {}
    for name, value in values.items():
        if name not in COEFFICIENTS:
            raise InvalidArgumentError(
                f"a coefficient of a step must be one of {', '.join(COEFFICIENTS)}, got {name!r}"
                f"{did_you_mean(name, COEFFICIENTS)}"
            )
        value = number(name, value, low=0.0)
        if name in _FRONTENDS:
            beside[name.removesuffix("_ms") + "_s"] = value * _MS
        elif name in VARIATIONS:
            beside[name] = value
        elif name in _DRAFTS:
            unit, per = _DRAFTS[name]
            terms.append(StepTerm("draft", [0.0, value * unit], ("gamma",), ([0, 1],), per=per))
        else:
            part, unit, per = _TERMS[name]
            terms.append(StepTerm(part, value * unit, per=per))
    if not any(values.get(name) for name in _EVERY_STEP):
        raise InvalidArgumentError(
            f"one of {', '.join(_EVERY_STEP)} must be > 0, got {', '.join(values)}: every step "
            "takes time"
        )
    return StepModel(tuple(terms), **beside)


def coefficients_of(words: str | Mapping[str, float]) -> StepModel:
    """``step_ms=5,token_us=20,host_ms=1``."""
    if not isinstance(words, str):
        return coefficients(**words)
    found: dict[str, float] = {}
    for part in filter(None, (part.strip() for part in words.split(","))):
        name, equals, value = part.partition("=")
        if not equals:
            raise InvalidArgumentError(
                f"coefficients of a step must be NAME=VALUE,... of {', '.join(COEFFICIENTS)}, got "
                f"{part!r}"
            )
        name = name.strip()
        if name in found:
            raise InvalidArgumentError(f"coefficients of a step have {name} twice, got {words!r}")
        found[name] = number(name, value.strip(), low=0.0)
    return coefficients(**found)
