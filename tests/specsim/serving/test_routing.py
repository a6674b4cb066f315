"""Routing between replicas against a router that decides while requests arrive."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from specsim.checks import Floats, Ints, InvalidArgumentError
from specsim.serving.prefixes import blocks_of_tokens
from specsim.serving.requests import Requests
from specsim.serving.routing import PrefixAware, decisions, parts, route


def one_server(requests: Requests, chosen: Ints) -> Floats:
    """When each is done at a replica that serves one after another, a second a token."""
    free, done = 0.0, []
    for at in chosen:
        free = max(free, requests.arrival_s[at]) + float(requests.output_tokens[at])
        done.append(free)
    return np.array(done)


def departures(requests: Requests, replicas: int, split: Ints) -> Floats:
    done = np.zeros(len(requests))
    for chosen in parts(split, replicas):
        done[chosen] = one_server(requests, chosen)
    return done


def as_they_arrive(requests: Requests, replicas: int) -> Ints:
    """The slow twin: each decision from the servers as they are then."""
    split: list[int] = []
    for now in requests.arrival_s:
        so_far = np.array(split, dtype=np.int64)
        outstanding = [
            int((one_server(requests, chosen) > now).sum()) for chosen in parts(so_far, replicas)
        ]
        split.append(int(np.argmin(outstanding)))
    return np.array(split)


@given(
    st.lists(st.tuples(st.floats(0, 3), st.integers(1, 9)), min_size=1, max_size=40),
    st.integers(1, 4),
)
@settings(max_examples=60)
def test_least_outstanding_is_what_a_router_would_do(
    drawn: list[tuple[float, int]], replicas: int
) -> None:
    gaps, outputs = zip(*drawn, strict=True)
    n = len(drawn)
    requests = Requests(np.cumsum(gaps), np.ones(n), np.array(outputs))
    runs = 0

    def served(split: Ints) -> Floats:
        nonlocal runs
        runs += 1
        return departures(requests, replicas, split)

    found = route(requests, replicas, "least-outstanding", served)
    assert found.tolist() == as_they_arrive(requests, replicas).tolist()
    assert runs <= n + 1


def test_round_robin() -> None:
    requests = Requests(np.zeros(5), np.ones(5), np.ones(5))
    assert route(requests, 2, "round-robin", lambda split: split * 1.0).tolist() == [0, 1, 0, 1, 0]


def prompts() -> Requests:
    """Two families of prompts, in turn; the third of the first family comes last."""
    a, b = [1] * 8, [2] * 8
    tokens = [[*a, 3, 3], [*b, 3, 3], [*a, 4, 4], [*a, 5, 5], [*b, 6, 6], [9] * 10]
    return Requests(
        np.arange(6.0), np.full(6, 10), np.ones(6), blocks_of_tokens(tokens, block_tokens=2)
    )


def test_a_prefix_goes_where_it_is_known() -> None:
    never = np.full(6, np.inf)
    # The last is known nowhere and goes to the replica with the fewest requests.
    assert decisions(prompts(), 2, never, PrefixAware()).tolist() == [0, 1, 0, 0, 1, 1]
    # Four of five blocks are 0.8 of a prompt.
    fewest = decisions(prompts(), 2, never, PrefixAware(match=0.81)).tolist()
    assert fewest == decisions(prompts(), 2, never).tolist() == [0, 1, 0, 1, 0, 1]


def test_uneven_replicas_go_before_prefixes() -> None:
    never = np.full(6, np.inf)
    apart = PrefixAware(most_apart=0, most_times=1.0)
    assert decisions(prompts(), 2, never, apart).tolist() == [0, 1, 0, 1, 1, 0]


def test_what_is_refused() -> None:
    with pytest.raises(InvalidArgumentError, match="routing must be one of round-robin, least"):
        route(prompts(), 2, "random", lambda split: split * 1.0)  # type: ignore[arg-type]
