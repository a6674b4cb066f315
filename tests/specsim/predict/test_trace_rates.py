"""Rates of acceptance by position, with the intervals that few requests leave."""

from __future__ import annotations

from specsim.predict.trace_rates import acceptance_rates
from specsim.profiles import Rate
from tests.support.traces import trace_of


def test_requests_that_never_get_to_a_position_say_nothing_of_it() -> None:
    """Of two requests that are accepted throughout and one that never is, two tell how second
    drafts fare, and one alone does not tell how far requests differ.
    """
    _, survival, conditional = acceptance_rates(trace_of([1.0] * 6, [1.0] * 6, [0.0] * 6), 3, 0)
    assert conditional[1] == conditional[2] == Rate(1.0, 1.0, 1.0)
    _, _, conditional = acceptance_rates(trace_of([1.0] * 6, [0.0] * 6), 3, 0)
    assert conditional[1] == conditional[2] == Rate(0.0, 1.0, 1.0)
    assert (survival[1].low, survival[1].high) == (0.0, 1.0)


def test_of_positions_that_no_draw_gets_to_nothing_is_known() -> None:
    _, survival, conditional = acceptance_rates(trace_of([0.0] * 6, [0.0] * 6), 3, 0)
    assert conditional == [Rate(0.0, 0.0, 0.0), Rate(0.0, 0.0, 1.0), Rate(0.0, 0.0, 1.0)]
    assert survival == [Rate(0.0, 0.0, 0.0)] * 3
