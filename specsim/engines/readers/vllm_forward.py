"""Times of ``vllm bench forward --output-json``: the target's and the drafter's runs by shape.

Read from vllm/benchmarks/forward/main.py, shapes.py and speculator.py of vLLM 0.33.0.  A case is
a batch of requests, each with its query length, its length in the cache and the draft tokens that
it verifies (query length = 1 + draft tokens); ``timing_scope`` says whether the drafter ran too,
which then makes its configured number of drafts whatever the case verifies.  Sampling, rejection
and the host's work are not timed, so a real step is longer.
"""

from __future__ import annotations

from statistics import fmean

from specsim.checks import InvalidArgumentError, UnsupportedError
from specsim.counts.steps import StepTime
from specsim.engines.readers.documents import Object, is_json, objects
from specsim.engines.readers.figures import Printed, count
from specsim.engines.readers.reading import Reading, many

_FORWARDS = (
    "vllm bench forward times forward runs alone, without sampling, rejection and the host's "
    "work: a real step is longer by what a round costs beside them"
)
_VERIFICATION = (
    "step times with draft_s = 0 are verifications alone; give the file of a run without "
    "--exclude-drafter too for the drafts"
)
_LEFT_OUT = "{number} of {cases} cases are no step of one draft length ({why}) and are left out"


def recognises(text: str) -> bool:
    """Whether a text is such a file."""
    return is_json(text) and all(f'"{key}"' in text for key in ("case", "median_us", "query_len"))


def read(text: str) -> list[Reading]:
    """One reading with a step time for each case that is a batch of alike requests."""
    cases = [each for each in objects(text) if "case" in each and "median_us" in each]
    steps: list[StepTime] = []
    left_out: list[str] = []
    for case in cases:
        found = _step(case)
        if isinstance(found, StepTime):
            steps.append(found)
        else:
            left_out.append(found)
    if not steps:
        raise UnsupportedError(
            f"none of {len(cases)} cases is a step of one draft length "
            f"({', '.join(dict.fromkeys(left_out))})"
        )
    notes = [_FORWARDS]
    if any(step.gamma and step.draft_s == 0 for step in steps):
        notes.append(_VERIFICATION)
    if left_out:
        why = ", ".join(dict.fromkeys(left_out))
        notes.append(_LEFT_OUT.format(number=len(left_out), cases=len(cases), why=why))
    source = f"{many(len(cases), 'case')} of vllm bench forward"
    return [
        Reading(engine="vllm", source=source, span="run", steps=tuple(steps), notes=tuple(notes))
    ]


def _step(case: Object) -> StepTime | str:
    """The time of a case, or why it is no step."""
    requests = case.get("requests")
    if not isinstance(requests, list) or not all(isinstance(each, dict) for each in requests):
        raise InvalidArgumentError("requests of a case must be a list of objects")
    if not requests:
        raise InvalidArgumentError("a case must have at least one request")
    shapes = [
        [count(key, each.get(key, 0)) for key in ("query_len", "kv_len", "num_draft_tokens")]
        for each in requests
    ]
    if any(query != 1 + drafts or cached <= query for query, cached, drafts in shapes):
        return "prompts"
    lengths = {drafts for _, _, drafts in shapes}
    if len(lengths) > 1:
        return "drafts of several lengths"
    (gamma,) = lengths
    seconds = Printed.of("median_us", case["median_us"]).value * 1e-6
    scope, drafter_k = _scope(case)
    if scope == "target_and_drafter" and drafter_k != gamma:
        return f"{gamma} tokens verified and another number drafted"
    return StepTime(
        gamma,
        len(requests),
        seconds,
        draft_s=0.0 if gamma and scope == "target_only" else None,
        drafter_loaded=None if gamma else False,
        context=fmean(cached - query for query, cached, _ in shapes),
    )


def _scope(case: Object) -> tuple[str, int | None]:
    """What was timed, and how many tokens the drafter made; all ranks ran the same."""
    ranks = case.get("ranks")
    first = ranks[0] if isinstance(ranks, list) and ranks else None
    if not isinstance(first, dict) or first.get("timing_scope") not in (
        "target_only",
        "target_and_drafter",
    ):
        raise InvalidArgumentError("a case must say its timing_scope, target_only or with drafter")
    drafter = first.get("drafter")
    made = drafter.get("num_draft_tokens") if isinstance(drafter, dict) else None
    return first["timing_scope"], None if made is None else count("num_draft_tokens", made)
