"""Service levels as they are typed."""

from __future__ import annotations

import pytest

from specsim.checks import InvalidArgumentError
from specsim.serving.levels import doubts_of, levels_of, request_limits


def test_names_and_seconds() -> None:
    found = levels_of("ttft_p99=1, tpot_mean=0.03,e2e=20")
    assert [(each.name, each.limit_s) for each in found] == [
        ("ttft_p99", 1.0),
        ("tpot_mean", 0.03),
        ("e2e", 20.0),
    ]
    assert request_limits(found) == {"ttft": 1.0, "e2e": 20.0}
    assert doubts_of(found) == ()


@pytest.mark.parametrize("name", ["ttft_p9", "ttft_p49.9", "tpot_p0"])
def test_a_percentile_below_the_median_is_a_typing_error(name: str) -> None:
    with pytest.raises(InvalidArgumentError, match="percentile from p50 on, such as p90 or p99"):
        levels_of({name: 1.0})


def test_milliseconds_are_noticed() -> None:
    more = "is no limit: levels are in seconds; of milliseconds say"
    assert doubts_of(levels_of("ttft_p99=1000,tpot_p99=0.03,tpot_mean=30")) == (
        f"ttft_p99 <= 1,000 s {more} ttft_p99=1000ms",
        f"tpot_mean <= 30 s {more} tpot_mean=30ms",
    )


def test_a_limit_may_have_its_unit() -> None:
    words = levels_of("ttft_p99=500ms,tpot_p99=60 ms,e2e=2s,itl_mean=0.1")
    assert [each.limit_s for each in words] == pytest.approx([0.5, 0.06, 2.0, 0.1])
    for word in ("ttft=1m", "ttft=ms", "ttft=1 sec"):
        with pytest.raises(
            InvalidArgumentError, match="slo ttft must be a number of seconds, or one with its unit"
        ):
            levels_of(word)
