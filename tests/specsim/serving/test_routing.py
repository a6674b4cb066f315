"""Routing between replicas against a router that decides while requests arrive."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from specsim.serving.prefixes import blocks_of_tokens
from specsim.serving.requests import Requests
from specsim.serving.routing import PrefixAware, parts, round_robin, route


class OneByOne:
    """Serves one after another, a second a token."""

    def __init__(self, requests: Requests) -> None:
        self.requests = requests
        self.ends: list[float] = []

    def give(self, request: int) -> None:
        begin = max(float(self.requests.arrival_s[request]), *self.ends[-1:], 0.0)
        self.ends.append(begin + float(self.requests.output_tokens[request]))

    def outstanding(self, now: float) -> int:
        return sum(end > now for end in self.ends)


class Never(OneByOne):
    """Is never done."""

    def give(self, request: int) -> None:
        self.ends.append(np.inf)


@given(
    st.lists(st.tuples(st.floats(0, 3), st.integers(1, 9)), min_size=1, max_size=40),
    st.integers(1, 4),
)
def test_least_outstanding_goes_to_the_fewest(
    drawn: list[tuple[float, int]], replicas: int
) -> None:
    """Against counts from the whole history, taken anew at every arrival."""
    gaps, outputs = zip(*drawn, strict=True)
    requests = Requests(np.cumsum(gaps), np.ones(len(drawn)), np.array(outputs))
    found = route(requests, [OneByOne(requests) for _ in range(replicas)])
    for at, now in enumerate(requests.arrival_s):
        counts = []
        for chosen in parts(found[:at], replicas):
            server = OneByOne(requests)
            for each in chosen:
                server.give(each)
            counts.append(server.outstanding(now))
        assert found[at] == int(np.argmin(counts))


def test_round_robin() -> None:
    assert round_robin(5, 2).tolist() == [0, 1, 0, 1, 0]


def prompts() -> Requests:
    """Two families of prompts, in turn; the third of the first family comes last."""
    a, b = [1] * 8, [2] * 8
    tokens = [[*a, 3, 3], [*b, 3, 3], [*a, 4, 4], [*a, 5, 5], [*b, 6, 6], [9] * 10]
    return Requests(
        np.arange(6.0), np.full(6, 10), np.ones(6), blocks_of_tokens(tokens, block_tokens=2)
    )


def decisions(prefix_aware: PrefixAware | None) -> list[int]:
    return route(prompts(), [Never(prompts()), Never(prompts())], prefix_aware).tolist()


def test_a_prefix_goes_where_it_is_known() -> None:
    # The last is known nowhere and goes to the replica with the fewest requests.
    assert decisions(PrefixAware()) == [0, 1, 0, 0, 1, 1]
    # Four of five blocks are 0.8 of a prompt.
    assert decisions(PrefixAware(match=0.81)) == decisions(None) == [0, 1, 0, 1, 0, 1]


def test_uneven_replicas_go_before_prefixes() -> None:
    assert decisions(PrefixAware(most_apart=0, most_times=1.0)) == [0, 1, 0, 1, 1, 0]
