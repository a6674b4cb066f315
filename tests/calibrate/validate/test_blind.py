"""Which requests a blind check decodes, and what it says of them."""

from __future__ import annotations

from collections import Counter
from types import SimpleNamespace
from typing import Any

import pytest

from calibrate.models.sampling import Sampling
from calibrate.validate.blind import compare, decoded_requests, turns
from calibrate.validate.findings import blind_findings
from specsim.predict.prediction_file import PredictedSpeedup
from tests.support.traces import trace_of


def check_of(prompts: int, temperature: float) -> Any:
    return SimpleNamespace(prompts=[[1, 2]] * prompts, sampling=Sampling(temperature))


def test_greedy_passes_decode_the_same_requests_and_others_the_next() -> None:
    greedy, drawn = check_of(5, 0.0), check_of(5, 1.0)
    assert [decoded_requests(greedy, 2, number) for number in range(4)] == [[0, 1]] * 4
    assert [decoded_requests(drawn, 2, number) for number in range(4)] == [
        [0, 1],
        [2, 3],
        [4, 0],
        [1, 2],
    ]


@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_no_request_is_decoded_twice_in_a_pass(temperature: float) -> None:
    assert sorted(decoded_requests(check_of(3, temperature), 8, 1)) == [0, 1, 2]


def test_a_pass_decodes_every_length_once_and_plainly_twice() -> None:
    found = turns([check_of(5, 0.0), check_of(4, 1.0)], (1, 3), 2, 1, seed=0)
    counts = Counter((each.check, each.request, each.gamma) for each in found)
    assert counts == {
        (check, request, gamma): 1 if gamma else 2
        for check, requests in ((0, (0, 1)), (1, (2, 3)))
        for request in requests
        for gamma in (0, 1, 3)
    }
    assert found != turns([check_of(5, 0.0), check_of(4, 1.0)], (1, 3), 2, 1, seed=1)
    # All of a request before the next one.
    requests = [(each.check, each.request) for each in found]
    assert [requests[at] for at in range(0, 16, 4)] == list(dict.fromkeys(requests))


def row(gamma: int, predicted: float, measured: float, **more: Any) -> dict[str, Any]:
    """A draft length at temperature 0, of 8 of 16 requests."""
    return {
        "temperature": 0.0,
        "gamma": gamma,
        "requests": 8,
        "profile_requests": 16,
        "predicted_speedup": predicted,
        "predicted_low": predicted - 0.1,
        "predicted_high": predicted + 0.1,
        "measured_speedup": measured,
        "speedup_at_profile_plain": predicted,
        "inside_at_profile_plain": True,
        "profile_plain_ms": 4.0,
        "measured_plain_ms": 4.1,
        "measured_error": 0.02,
        "measured_low": measured - 0.05,
        "measured_high": measured + 0.05,
        "relative_error": predicted / measured - 1,
        "inside": True,
        "exact": True,
        "chosen": gamma == 2,
        "recommended": 2,
        **more,
    }


def test_what_the_machine_did_since_calibration_is_said() -> None:
    said = blind_findings([row(2, 1.2, 1.19)], None).errors[2]
    assert said.startswith("plain decoding takes 4.1 ms a token, +2% since the profile was written")
    before = {"speedup_at_profile_plain": 1.5, "inside_at_profile_plain": False}
    moved = row(2, 1.2, 1.2, measured_plain_ms=3.0, **before)
    found = blind_findings([moved], None).errors
    assert "median 0.0%" in found[0]
    assert found[2].startswith("plain decoding takes 3 ms a token, -25% since the profile")
    assert found[2].endswith(
        "errors are 25.0% in the median, 25.0% at worst, +25.0% in the mean, and the intervals "
        "that optimize prints hold 0 of 1"
    )


FEWER = (
    "it is recommended for all 16 requests of the profile, and of the 8 decoded here gamma 4 was "
    "predicted the fastest"
)


def test_a_check_of_fewer_requests_says_what_was_predicted_of_them() -> None:
    """The profile's requests together want 2 drafts, the first eight of them 4."""
    said = blind_findings([row(2, 1.2, 1.19), row(4, 1.25, 1.27)], None).errors[-1]
    assert said == (
        "temperature 0: recommended gamma 2, -6.3% from the fastest measured (gamma 4); " + FEWER
    )


def test_where_no_draft_is_predicted_to_pay_plain_decoding_is_the_fastest() -> None:
    said = blind_findings([row(2, 0.9, 0.91), row(4, 0.95, 0.96)], None).errors[-1]
    assert said.endswith("of the 8 decoded here plain decoding was predicted the fastest")
    rows = [row(gamma, 0.9, 0.91, chosen=False, recommended=0) for gamma in (2, 4)]
    said = blind_findings(rows, None).errors[-1]
    assert said.endswith(
        "recommended plain decoding, +0.0% from the fastest measured (plain decoding)"
    )


def test_a_recommended_length_that_was_not_decoded_is_not_taken_for_plain_decoding() -> None:
    rows = [row(gamma, 1.2, 1.25, chosen=False, recommended=5) for gamma in (1, 4)]
    said = blind_findings(rows, None).errors[-1]
    assert said == (
        "temperature 0: recommended gamma 5, which was not decoded here; the fastest measured is "
        "gamma 1"
    )


@pytest.mark.parametrize(
    "more", [{"requests": 16}, {"temperature": 1.0, "exact": None}], ids=["all", "drawn"]
)
def test_a_check_of_what_was_asked_of_the_profile_says_no_more(more: dict[str, Any]) -> None:
    said = blind_findings([row(2, 1.2, 1.19, **more), row(4, 1.25, 1.27, **more)], None).errors[-1]
    assert said.endswith("-6.3% from the fastest measured (gamma 4)")


def test_a_recommended_length_that_suits_the_few_too_says_no_more() -> None:
    said = blind_findings([row(2, 1.3, 1.31), row(4, 1.25, 1.27)], None).errors[-1]
    assert said == "temperature 0: recommended gamma 2, +0.0% from the fastest measured (gamma 2)"


PREDICTED = PredictedSpeedup(
    temperature=0.0,
    gamma=2,
    tokens_per_call=1.75,
    speedup=1.2,
    low=1.0,
    high=1.4,
    plain_ms=250.0,
    known_low=1.1,
    known_high=1.3,
    elasticity=0.3,
    elasticity_error=0.1,
    formula_speedup=1.2,
    chosen=True,
)


def exact(
    more_calls: int = 0, last: int = 8, paired: bool = True, certain: bool = True
) -> bool | None:
    """Of two passes over two requests, where one request of the last pass has another number of
    calls, or another last token.
    """
    # With two drafts a block of the first request ends at its second token, and the next block has
    # the other two; in the second request the first token alone is a block.
    trace = trace_of([1.0, 0.0, 1.0, 1.0], [0.0, 1.0, 1.0])
    measured = SimpleNamespace(acceptance_law="ratio-test", requests=2)
    check: Any = SimpleNamespace(
        sampling=Sampling(0.0),
        workload=SimpleNamespace(measured=measured),
        name="calibration",
        trace=trace,
        paired=paired,
        certain=certain,
    )
    texts = {0: [5, 6, 7, 8], 1: [6, 7, 8]}

    def decoded(request: int, calls: int, end: int = 8) -> dict[str, Any]:
        text = [*texts[request][:-1], end]
        return {"seconds": 1.0, "tokens": len(text), "calls": calls, "text": text}

    plain = [{each: [decoded(each, len(texts[each]))] * 2 for each in texts}] * 2
    right = {each: [decoded(each, 2)] for each in texts}
    wrong = {**right, 1: [decoded(1, 2 + more_calls, last)]}
    found: bool | None = compare(check, 2, PREDICTED, plain, [right, wrong])["exact"]
    return found


def test_every_greedy_pass_has_the_text_of_plain_decoding_in_as_many_calls_as_replayed() -> None:
    assert exact() is True
    assert exact(more_calls=1) is False
    assert exact(more_calls=-1) is False
    assert exact(last=9) is False
    # Of texts that calibration did not see nobody knows the calls.
    assert exact(more_calls=1, paired=False) is True
    assert exact(last=9, paired=False) is False
    # In half precision rounding decides.
    assert exact(more_calls=1, last=9, certain=False) is None


def test_what_is_not_exact_at_temperature_0_fails() -> None:
    rows = [row(2, 1.2, 1.2), row(4, 1.2, 1.2, exact=False), row(5, 1.2, 1.2, exact=None)]
    assert blind_findings(rows, None).failures == (
        "temperature 0, gamma 4: text or number of calls is not what it must be",
    )
