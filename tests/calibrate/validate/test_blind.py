"""Which requests a blind check decodes."""

from __future__ import annotations

from collections import Counter
from types import SimpleNamespace
from typing import Any

import pytest

from calibrate.models.sampling import Sampling
from calibrate.validate.blind import decoded_requests, turns


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
