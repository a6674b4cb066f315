"""What requests must be, and how some of them are taken."""

from __future__ import annotations

import numpy as np
import pytest

from specsim.checks import InvalidArgumentError
from specsim.serving.requests import PrefixBlocks, Requests

BLOCKS = PrefixBlocks(np.array([7, 8, 7, 9, 7]), np.array([0, 2, 2, 5]), 4)


@pytest.mark.parametrize(
    ("arrivals", "prompts", "outputs", "said"),
    [
        ([0.0, 2.0, 1.5], [1, 1, 1], [1, 1, 1], "got 1.5 at index 2 after 2; sort"),
        ([-1.0, 2.0], [1, 1], [1, 1], "arrival_s must be finite and >= 0, got -1 at index 0"),
        ([0.0, np.nan], [1, 1], [1, 1], "arrival_s must be finite and >= 0, got nan at index 1"),
        ([0.0, 1.0], [1, 0], [1, 1], "prompt_tokens must be a whole number >= 1, got 0 at index 1"),
        ([0.0, 1.0], [1, 1], [1.5, 1], "output_tokens must be a whole number >= 1, got 1.5 at in"),
        ([0.0, 1.0], [1, 1], [np.nan, 1], "output_tokens must be a whole number >= 1, got nan at"),
        ([0.0, 1.0], [1, 1], [1], "output_tokens must be as many as arrival_s, 2, got shape (1,)"),
        ([], [], [], "arrival_s must be one axis of at least one request"),
    ],
)
def test_what_is_refused(
    arrivals: list[float], prompts: list[float], outputs: list[float], said: str
) -> None:
    with pytest.raises(InvalidArgumentError) as error:
        Requests(np.array(arrivals), np.array(prompts), np.array(outputs))
    assert said in str(error.value)
    assert "\n" not in str(error.value)


def test_blocks_must_lie_in_their_prompts() -> None:
    with pytest.raises(InvalidArgumentError, match="prefix has 3 blocks of 4 tokens at index 2"):
        Requests(np.zeros(3), np.array([8, 1, 11]), np.ones(3), BLOCKS)


@pytest.mark.parametrize(
    ("starts", "said"),
    [([0, 2, 1, 5], "must not fall, got 1 at index 2"), ([0, 4], "the number of hashes, 5, got 4")],
)
def test_starts_of_blocks(starts: list[int], said: str) -> None:
    with pytest.raises(InvalidArgumentError, match=said):
        PrefixBlocks(np.arange(5), np.array(starts), 4)


def test_some_requests_keep_their_own_blocks() -> None:
    requests = Requests(
        np.array([0.0, 1.0, 2.0]), np.array([8, 1, 12]), np.array([1, 2, 3]), BLOCKS
    )
    some = requests.take(np.array([0, 2]))
    assert some.output_tokens.tolist() == [1, 3]
    assert some.prefix is not None
    assert [some.prefix.of(each).tolist() for each in range(2)] == [[7, 8], [7, 9, 7]]
