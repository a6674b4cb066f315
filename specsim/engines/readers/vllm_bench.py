"""Results of ``vllm bench serve``: what it prints and what ``--save-result`` writes.

Read from vllm/benchmarks/serve.py of vLLM 0.33.0: the acceptance rate is in percent in both,
shares by position are in percent on the console and fractions in the file.  A streamed chunk is
a step, so the inter-token latency (ITL) is the step time, and the time per output token (TPOT) is
ITL / tokens per call.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from specsim.checks import InvalidArgumentError, UnsupportedError
from specsim.counts.drafts import DraftCounts
from specsim.counts.steps import StepTime
from specsim.engines.readers.documents import Object, is_json, objects
from specsim.engines.readers.figures import (
    Printed,
    agree,
    count,
    reached_from_rates,
    with_draft_length,
)
from specsim.engines.readers.notes import (
    BATCH_IS_A_MAXIMUM,
    PROMPTS_UNKNOWN,
    RANDOM_PROMPTS,
)
from specsim.engines.readers.reading import Reading

# Labels on the console, and the keys of the same figures in the file.
_LABELS = {
    "Acceptance rate (%)": "spec_decode_acceptance_rate",
    "Acceptance length": "spec_decode_acceptance_length",
    "Drafts": "spec_decode_num_drafts",
    "Draft tokens": "spec_decode_draft_tokens",
    "Accepted tokens": "spec_decode_accepted_tokens",
    "Maximum request concurrency": "max_concurrency",
    "Successful requests": "completed",
    "Total input tokens": "total_input_tokens",
    "Total generated tokens": "total_output_tokens",
    "Mean ITL (ms)": "mean_itl_ms",
    "Median ITL (ms)": "median_itl_ms",
    "Mean TPOT (ms)": "mean_tpot_ms",
}
_POSITIONS = "spec_decode_per_position_acceptance_rates"
_ROUNDS = "spec_decode_num_drafts"

_SECTION = re.compile(r"-+\s*Speculative Decoding\s*-+")
_HEADER = "Serving Benchmark Result"
# SGLang's benchmark prints the same header, and then which engine it asked.
_OTHERS = re.compile(r"^Backend:|\"accept_length\"", re.MULTILINE)
_CUT = "the last block has no last line of ====; give every block whole"
_FIELD = re.compile(r"\s*(?P<label>[A-Z][^:]*?):\s+(?P<word>\S+)\s*")


def recognises(text: str) -> bool:
    """Whether a text is such a result; SGLang's benchmark has the same header and is not."""
    if _OTHERS.search(text):
        return False
    if is_json(text):
        return f'"{_ROUNDS}"' in text or ('"median_itl_ms"' in text and '"max_conc' in text)
    return _SECTION.search(text) is not None or _HEADER in text


def read(text: str) -> list[Reading]:
    """One reading for each result in the text."""
    results: Sequence[tuple[Object, list[Printed]]]
    if is_json(text):
        results = [
            (each, _fractions(each.get(_POSITIONS)))
            for each in objects(text)
            if _ROUNDS in each or ("median_itl_ms" in each and "max_concurrency" in each)
        ]
        source = "result of vllm bench serve"
    else:
        results = list(_blocks(text))
        source = "output of vllm bench serve"
    return [_reading(result, positions, source) for result, positions in results]


def _fractions(words: Any) -> list[Printed]:
    if words is not None and not isinstance(words, list):
        raise InvalidArgumentError(f"{_POSITIONS} must be a list of shares, got {words!r:.40}")
    return [Printed.of(f"{_POSITIONS}[{i}]", word) for i, word in enumerate(words or ())]


def _blocks(text: str) -> Iterator[tuple[Object, list[Printed]]]:
    """Figures by their key in the file, and shares by position, of every block of a console."""
    found: Object = {}
    positions: list[Printed] = []
    for line in text.splitlines():
        if not line.strip():
            continue
        if _HEADER in line or not line.strip().strip("="):
            if found and _HEADER in line:
                raise UnsupportedError(_CUT)
            if found:
                yield found, positions
                found, positions = {}, []
            continue
        if _SECTION.search(line):
            # So that a block whose figures on drafts are cut off is not one without drafts.
            found["section"] = True
        field = _FIELD.fullmatch(line)
        if field is None:
            continue
        label, word = field["label"], field["word"]
        if label.startswith("Position "):
            if label != f"Position {len(positions)}":
                raise UnsupportedError(
                    f"position {len(positions)} is missing before {label!r}; give the block whole"
                )
            positions.append(Printed.of(f"{label} (%)", word).share())
        elif label in _LABELS:
            key = _LABELS[label]
            if key in found:
                raise UnsupportedError(
                    f"{label!r} comes twice in one block; give every block up to its last line "
                    "of ===="
                )
            found[key] = word
    if found or positions:
        raise UnsupportedError(_CUT)


def _reading(result: Object, positions: Sequence[Printed], source: str) -> Reading:
    counts = _counts(result, positions)
    notes = []
    if counts is not None:
        # A result says which prompts it sent where its user saved that beside it.
        dataset = result.get("dataset_name")
        if dataset is None:
            notes.append(PROMPTS_UNKNOWN)
        elif dataset == "random":
            notes.append(RANDOM_PROMPTS)
    steps: tuple[StepTime, ...] = ()
    try:
        steps = _steps(result, counts)
        notes += [BATCH_IS_A_MAXIMUM] * len(steps)
    except UnsupportedError as error:
        if counts is None:
            raise UnsupportedError(
                f"a result without drafts and without step time: {error}"
            ) from None
        notes.append(f"no step time: {error}")
    return Reading(
        engine="vllm",
        source=source,
        span="run",
        counts=counts,
        steps=steps,
        acceptance_law=None if counts is None else "greedy-drafts",
        notes=tuple(notes),
    )


def _counts(result: Mapping[str, Any], positions: Sequence[Printed]) -> DraftCounts | None:
    """None where no drafts were counted: the server did not speculate."""
    if "diffusion_denoising_steps" in result:
        raise UnsupportedError("the model decodes by diffusion; its counters are not of drafts")
    keys = list(_LABELS.values())[:5]
    missing = [key for key in keys if key not in result]
    if len(missing) == len(keys) and not positions and "section" not in result:
        return None
    if missing:
        raise UnsupportedError(f"the result lacks {', '.join(missing)}; give it whole")
    rate, length = (Printed.of(key, result[key]) for key in keys[:2])
    rounds, drafted, accepted = (count(key, result[key]) for key in keys[2:])
    if not rounds:
        raise UnsupportedError("the result has no draft; speculation was on, but nothing drafted")
    if accepted > drafted:
        raise InvalidArgumentError(
            f"accepted tokens must be at most the {drafted} draft tokens, got {accepted}"
        )
    if drafted:
        agree("the acceptance rate", rate.share(), accepted / drafted, "accepted / draft tokens")
    agree("the acceptance length", length, 1 + accepted / rounds, "1 + accepted / drafts")
    reached = reached_from_rates("acceptance", positions, rounds, accepted) if positions else ()
    found = DraftCounts(None, rounds, accepted, drafted, reached)
    return with_draft_length(found, len(positions) or round(drafted / rounds))


def _steps(result: Mapping[str, Any], counts: DraftCounts | None) -> tuple[StepTime, ...]:
    """The step time of the run; UnsupportedError says why there is none."""
    gamma = 0 if counts is None else counts.gamma
    if gamma is None:
        raise UnsupportedError("the draft length varied")
    if result.get("max_concurrency") is None:
        raise UnsupportedError("the run had no --max-concurrency, so its batch is not known")
    if result.get("median_itl_ms") is None:
        raise UnsupportedError("the result has no median ITL")
    batch = count("max_concurrency", result["max_concurrency"])
    if result.get("completed") is not None:
        batch = min(batch, count("completed", result["completed"]))
    median = Printed.of("median_itl_ms", result["median_itl_ms"]).value
    if not median or not batch:
        raise UnsupportedError("no time between chunks was measured")
    if not _chunk_is_step(result, 1.0 if counts is None else counts.tokens_per_call):
        raise UnsupportedError(
            "mean ITL is not mean TPOT times the tokens per call, so a chunk was not a step"
        )
    return (
        StepTime(gamma=gamma, batch=batch, seconds=median / 1000, context=_mean_context(result)),
    )


def _chunk_is_step(result: Mapping[str, Any], tokens_per_call: float) -> bool:
    """Whether ITL / TPOT is nearer to the tokens per call than to 1; True where one is missing."""
    if result.get("mean_itl_ms") is None or result.get("mean_tpot_ms") is None:
        return True
    itl = Printed.of("mean_itl_ms", result["mean_itl_ms"]).value
    tpot = Printed.of("mean_tpot_ms", result["mean_tpot_ms"]).value
    if tpot <= 0:
        return False
    off = abs(itl / tpot - tokens_per_call)
    nearer = tokens_per_call <= 1.05 or off < abs(itl / tpot - 1)
    return nearer and off <= max(0.25 * tokens_per_call, 0.05)


def _mean_context(result: Mapping[str, Any]) -> float | None:
    """Tokens in the cache of a request halfway through its output."""
    keys = ("completed", "total_input_tokens", "total_output_tokens")
    if any(result.get(key) is None for key in keys):
        return None
    requests, prompts, output = (count(key, result[key]) for key in keys)
    return (prompts + output / 2) / requests if requests else None
