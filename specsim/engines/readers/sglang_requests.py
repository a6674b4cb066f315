"""SGLang's counts of single requests: ``meta_info`` of a response, in three generations of keys.

    now         spec_num_correct_drafts, spec_num_proposed_drafts, spec_correct_drafts_histogram
    early 2026  spec_accepted_drafts, spec_proposed_drafts, spec_accept_histogram
    until then  spec_accept_token_num, spec_draft_token_num, spec_accept_histogram

beside ``spec_verify_ct``, the rounds (srt/managers/tokenizer_manager.py of SGLang 0.5.23;
sgl-project/sglang pull requests 33518 and 13754).  ``histogram[j]`` is the number of rounds with j
correct drafts.  ``spec_accept_length`` is completion tokens / rounds.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from specsim.checks import InvalidArgumentError, UnsupportedError
from specsim.counts.drafts import DraftCounts
from specsim.counts.pooling import pooled_counts
from specsim.engines.readers.documents import Object, is_json, objects
from specsim.engines.readers.figures import LONGEST, Printed, count, counts_in, counts_of_histogram
from specsim.engines.readers.reading import Reading, many

_ROUNDS = "spec_verify_ct"
_ACCEPTED = ("spec_num_correct_drafts", "spec_accepted_drafts", "spec_accept_token_num")
_DRAFTED = ("spec_num_proposed_drafts", "spec_proposed_drafts", "spec_draft_token_num")
_HISTOGRAM = ("spec_correct_drafts_histogram", "spec_accept_histogram")

_TREE = (
    "K is the draft tokens proposed a round; with speculative-eagle-topk > 1 these are the nodes "
    "of a tree, and the longest branch is speculative-num-steps"
)


# srt/managers/tokenizer_manager.py of SGLang 0.5.23 has proposed drafts as rounds times the
# server's speculative-num-draft-tokens less one, whatever a round really drafted.
_LONGEST_DRAFT = (
    "SGLang counts as many drafts a round as the server was started with: where rounds draft fewer "
    "(speculative-adaptive, lookups), K is too large and acceptance by position too low"
)


def recognises(text: str) -> bool:
    """Whether a text has such counts, in JSON or JSONL."""
    return is_json(text) and f'"{_ROUNDS}"' in text


def read(text: str) -> list[Reading]:
    """One reading for each draft length, over all requests."""
    requests = [each for each in objects(text) if _ROUNDS in each]
    counted = [counts for each in requests if (counts := _counts(each)).rounds]
    if requests and not counted:
        raise UnsupportedError("no request has a round with a draft")
    number = len(requests)
    return [
        Reading(
            engine="sglang",
            source=f"meta_info of {many(number, 'request')}",
            span="request",
            counts=counts,
            acceptance_law="greedy-drafts",
            notes=(_TREE, _LONGEST_DRAFT),
        )
        for counts, _ in pooled_counts(counted)
    ]


def _counts(meta: Object) -> DraftCounts:
    rounds = count(_ROUNDS, meta[_ROUNDS])
    accepted, drafted = (_first(meta, keys) for keys in (_ACCEPTED, _DRAFTED))
    if accepted is None or drafted is None:
        raise UnsupportedError(
            f"a request has {_ROUNDS} but none of {', '.join(_ACCEPTED)} with its draft tokens; "
            "give its meta_info whole"
        )
    stood, proposed = count("accepted drafts", accepted), count("proposed drafts", drafted)
    if not rounds:
        return DraftCounts(gamma=None, rounds=0, accepted=0, drafted=0)
    gamma = proposed // rounds if proposed % rounds == 0 else None
    if gamma is not None and gamma >= LONGEST:
        raise InvalidArgumentError(f"{proposed} proposed drafts in {rounds} rounds is too many")
    found = DraftCounts(gamma, rounds, stood, proposed)
    _check_means(meta, found)
    histogram = _first(meta, _HISTOGRAM)
    if histogram is None:
        return found
    bins = counts_in("the histogram", histogram)
    if len(bins) > LONGEST:
        raise InvalidArgumentError(f"the histogram has {len(bins)} bins")
    if sum(bins) != rounds or sum(j * each for j, each in enumerate(bins)) != stood:
        raise InvalidArgumentError(
            f"the histogram must have {rounds} rounds and {stood} accepted drafts, got "
            f"{sum(bins)} and {sum(j * each for j, each in enumerate(bins))}"
        )
    # Bins behind the last one that was needed may be missing.
    return replace(found, reached=counts_of_histogram(bins, gamma).reached)


def _check_means(meta: Object, counts: DraftCounts) -> None:
    """Refuse a rate or a length that the counts do not explain."""
    assert counts.drafted is not None
    drafts = counts.drafted / counts.rounds
    length = meta.get("spec_accept_length")
    if length is not None:
        printed = Printed.of("spec_accept_length", length)
        # The first token is of the prompt's run; the last round may end beyond the last token.
        tokens, slack = counts.rounds + counts.accepted, drafts + 1
        if not tokens - slack <= printed.high * counts.rounds or not (
            printed.low * counts.rounds <= tokens + slack
        ):
            raise InvalidArgumentError(
                f"spec_accept_length is {printed.value:g}, but {counts.rounds} rounds accepted "
                f"{counts.accepted:g} drafts"
            )
    rate = meta.get("spec_accept_rate")
    if rate is not None and drafts:
        shown = Printed.of("spec_accept_rate", rate)
        share = counts.accepted / counts.drafted
        # The older definition: length / draft slots.
        older = None if length is None else Printed.of("length", length).value / (drafts + 1)
        if not any(each is not None and shown.low <= each <= shown.high for each in (share, older)):
            raise InvalidArgumentError(
                f"spec_accept_rate is {shown.value:g}, but {counts.accepted:g} of "
                f"{counts.drafted:g} drafts were accepted"
            )


def _first(meta: Object, keys: tuple[str, ...]) -> Any:
    return next((meta[key] for key in keys if meta.get(key) is not None), None)
