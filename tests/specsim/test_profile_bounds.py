"""How far what a profile says may go before it contradicts itself: the last that is taken, and the
first that is refused.
"""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from msgspec.structs import replace

from specsim import profile_checks
from specsim.checks import InvalidArgumentError
from specsim.profile_checks import check_trace, oddities
from specsim.profiles import MeasuredAcceptance, Missing, Profile, Rate, RunTime, read_profile
from specsim.traces import Trace
from tests.support.profiles import write_grid
from tests.support.refusals import refuses


@pytest.fixture(scope="module")
def profile(tmp_path_factory: pytest.TempPathFactory) -> Profile:
    return read_profile(write_grid(tmp_path_factory.mktemp("profile")))


def test_a_rate_may_leave_its_interval_by_the_width_of_it() -> None:
    Rate(0.5, 0.5, 0.5)
    # Rounding is a millionth.
    for best in (0.3 - 0.9e-6, 0.3, 0.4, 0.5, 0.6, 0.6 + 0.9e-6):
        Rate(0.4, best, 0.5)


test_what_is_no_interval_is_refused = refuses(
    (lambda: Rate(0.5, 0.5, 0.4999), "low must be <= high, got 0.5 and 0.4999"),
    (lambda: Rate(0.4, 0.3 - 1.1e-6, 0.5), r"best must be in \[low, high\] = \[0.4, 0.5\]"),
    (lambda: Rate(0.4, 0.6 + 1.1e-6, 0.5), r"best must be in \[low, high\] = \[0.4, 0.5\]"),
    (lambda: Rate(0.5, 0.5 + 1.1e-6, 0.5), "best must be in"),
)


def curve(*rates: float) -> list[Rate]:
    return [Rate(rate, rate, rate) for rate in rates]


def measured(profile: Profile, survival: list[Rate], conditional: list[Rate]) -> MeasuredAcceptance:
    return replace(profile.acceptance[0], survival=survival, conditional=conditional)


def test_tokens_are_those_of_requests_and_their_limit(profile: Profile) -> None:
    one = profile.acceptance[0]
    for tokens in (one.requests, one.requests * one.max_new_tokens):
        replace(one, tokens=tokens)
    for tokens in (one.requests - 1, one.requests * one.max_new_tokens + 1):
        with pytest.raises(InvalidArgumentError, match=r"tokens must be in \[20, 1000\]"):
            replace(one, tokens=tokens)


def test_curves_are_of_one_another_up_to_rounding(profile: Profile) -> None:
    measured(profile, curve(0.8, 0.4), curve(0.8, 0.5))
    measured(profile, curve(0.8 + 0.9e-6, 0.4), curve(0.8, 0.5))
    measured(profile, curve(1.0, 1.0), curve(1.0, 1.0))
    measured(profile, curve(0.5, 0.5 + 0.9e-6), curve(0.5, 1.0))
    for survival in ((0.8 + 1.1e-6, 0.4), (0.8 - 1.1e-6, 0.4)):
        with pytest.raises(InvalidArgumentError, match=r"survival\[0\].best must be the product"):
            measured(profile, curve(*survival), curve(0.8, 0.5))
    # The second is a product of the first that was measured, not of a plain one.
    with pytest.raises(InvalidArgumentError, match=r"survival\[1\].best must be .* there, 0\.4, g"):
        measured(profile, curve(0.8, 0.5), curve(0.8, 0.5))
    with pytest.raises(InvalidArgumentError, match=r"survival\[2\].low must not rise, got 0\.5"):
        measured(profile, curve(0.5, 0.4, 0.5), curve(0.5, 0.8, 1.0))
    for name, rate in (("low", Rate(0.41, 0.4, 0.42)), ("high", Rate(0.4, 0.4, 0.51))):
        with pytest.raises(InvalidArgumentError, match=rf"survival\[1\].{name} must not rise"):
            measured(profile, [Rate(0.4, 0.5, 0.5), rate], curve(0.5, 0.8))


def test_drafts_may_be_as_long_as_requests(profile: Profile) -> None:
    one = replace(profile.acceptance[0], max_new_tokens=4, tokens=80)
    replace(profile, acceptance=[one])
    with pytest.raises(
        InvalidArgumentError, match=r"acceptance\[0\]: max_new_tokens must be >= ga"
    ):
        replace(profile, acceptance=[replace(one, max_new_tokens=3, tokens=60)])


def test_lists_may_be_so_long() -> None:
    def check(count: int) -> None:
        profile_checks._check_unique("grid", range(count), lambda row: row)

    check(20_000)
    with pytest.raises(InvalidArgumentError, match=r"^grid: must have at most 20,000 entries, got"):
        check(20_001)


def test_an_entry_is_told_by_all_that_it_was_measured_under(profile: Profile) -> None:
    """One that differs in any of it is another."""
    row = replace(profile.grid[3], tokens=999)
    others = {"model": "draft", "follows": "target", "tokens": 1000, "batch": 1000, "context": 1000}
    for name, value in {**others, "mode": "compiled"}.items():
        assert getattr(row, name) != value
        replace(profile, grid=[row, replace(row, **{name: value})])
    host = replace(profile.batch_overhead[1], context=999)
    changes: dict[str, Any] = {"temperature": 0.5, "gamma": 1, "batch": 7, "context": 7}
    for name, value in {**changes, "mode": "compiled"}.items():
        assert getattr(host, name) != value
        replace(profile, batch_overhead=[host, replace(host, **{name: value})])
    cell = Missing(1000, 64, "eager", "out of memory")
    others = {"batch": 1001, "context": 65, "mode": "compiled"}
    for name, value in others.items():
        replace(profile, missing=[cell, replace(cell, **{name: value})])
    with pytest.raises(InvalidArgumentError, match=r"missing\[1\]: is of the same as missing\[0\]"):
        replace(profile, missing=[cell, replace(cell, reason="slow")])
    # A cell of the grid in another mode may be missing.
    there = profile.grid[0]
    replace(profile, missing=[Missing(there.batch, there.context, "compiled", "slow")])


def trace_of(accepted: float, lengths: list[int], prompt: int = 3) -> Trace:
    starts = np.concatenate([[0], np.cumsum(lengths)])
    context = np.concatenate([prompt + np.arange(length) for length in lengths])
    return Trace(np.full(starts[-1], accepted), starts, {"context": context})


def said(**changes: object) -> Any:
    best = SimpleNamespace(best=0.5)
    return SimpleNamespace(
        **{"requests": 2, "tokens": 7, "max_new_tokens": 4, "alpha": best} | changes
    )


def test_a_trace_may_be_off_by_so_much() -> None:
    check_trace(said(), trace_of(0.5, [3, 4]), own=True)
    check_trace(said(), trace_of(0.5009, [3, 4]), own=True)
    check_trace(said(), trace_of(0.5, [3, 4], prompt=1), own=True)
    check_trace(said(), trace_of(0.6, [3, 4]), own=False)
    for trace, message in (
        (trace_of(0.5011, [3, 4]), "has a mean acceptance of 0.5011, the profile says 0.5000"),
        (trace_of(0.4989, [3, 4]), "has a mean acceptance of 0.4989, the profile says 0.5000"),
        (trace_of(0.5, [2, 5]), "has a request of 5 tokens, the profile says max_new_tokens 4"),
        (trace_of(0.5, [3, 3]), "has 6 tokens, the profile says 7"),
        (trace_of(0.5, [2, 2, 3]), "has 3 requests, the profile says 2"),
        (trace_of(0.5, [3, 4], prompt=0), "context must be the prompt's tokens, at least one"),
    ):
        with pytest.raises(InvalidArgumentError, match=message):
            check_trace(said(), trace, own=True)
    # Prompts of two lengths in one request.
    trace = trace_of(0.5, [3, 4])
    trace.columns["context"][6] += 1
    with pytest.raises(InvalidArgumentError, match="context must be the prompt's tokens"):
        check_trace(said(), trace, own=True)
    # And of two requests, which may differ.
    trace = trace_of(0.5, [3, 4])
    trace.columns["context"][3:] += 5
    check_trace(said(), trace, own=True)


def slow(profile: Profile, count: int, times: float) -> Profile:
    """So many runs over five tokens that take so many times as long as a plain step."""
    rows = [row for row in profile.grid if row.tokens == 5]

    def taking(row: RunTime) -> RunTime:
        return replace(
            row, seconds=[times, times * 0.5, times * 1.5], plain=[1.0, 1.0, 1.0], passes=[]
        )

    found = [taking(row) for row in rows[:count]]
    return replace(profile, grid=found, run_times=[], missing=[])


def test_what_is_odd_begins_at_ten_times_what_a_run_costs_at_most(profile: Profile) -> None:
    """A run over n tokens and the plain step beside it: 1 + n steps."""
    assert oddities(slow(profile, 1, 60.0)) == []
    (line,) = oddities(slow(profile, 1, 60.1))
    assert (
        line == "grid[0]: a run of the target over 5 tokens takes 60 times as long as a plain step"
    )
    assert len(oddities(slow(profile, 3, 61.0))) == 3
    *named, rest = oddities(slow(profile, 5, 61.0))
    assert [line.partition(":")[0] for line in named] == ["grid[0]", "grid[1]", "grid[2]"]
    assert rest == "and 2 more runs that take far longer than plain steps"


def test_a_draft_larger_than_its_target_is_odd(profile: Profile) -> None:
    same = replace(profile, draft=replace(profile.draft, parameters=profile.target.parameters))
    assert oddities(same) == []
    larger = replace(profile, draft=replace(profile.draft, parameters=1001))
    (line,) = oddities(larger)
    assert "the draft d has 1,001 parameters, the target t 1,000: were the two exchanged?" in line


def test_drafts_of_host_times_are_those_of_the_profile(profile: Profile) -> None:
    for name in ("overhead", "batch_overhead"):
        rows = getattr(profile, name)
        assert max(row.gamma for row in rows) == profile.gamma_max
        with pytest.raises(InvalidArgumentError, match=rf"{name}\[0\]: gamma must be <= .* got 5"):
            replace(profile, **{name: [replace(rows[0], gamma=5)]})


def test_a_target_has_one_parameter_at_least(profile: Profile) -> None:
    replace(profile, target=replace(profile.target, parameters=1))
    with pytest.raises(InvalidArgumentError, match="target: parameters must be >= 1, got 0"):
        replace(profile, target=replace(profile.target, parameters=0))
