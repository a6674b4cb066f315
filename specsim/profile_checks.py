"""What a profile says must agree with itself and with the traces that it names.

What cannot be is refused, with the place in the file: cells that are there twice, curves that rise,
intervals with their ends exchanged, settings that nothing was measured for.  What is merely odd is
a warning of everything that rests on the profile.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import pairwise
from statistics import median
from typing import TYPE_CHECKING, TypeVar

import numpy as np

from specsim.checks import InvalidArgumentError

if TYPE_CHECKING:
    from specsim.profiles import MeasuredAcceptance, Overhead, Profile, Rate, RunTime
    from specsim.traces import Trace

Entry = TypeVar("Entry")

# Rates are written in full, and are quotients of sums of up to millions of terms.
_ROUNDING = 1e-6
# How far the mean over a trace may be from the rate that a profile says of it.
_RATE_OFF = 1e-3
# Cells of a list: a fit to more would take hours.
_MOST_CELLS = 20_000
# A run over n tokens costs at most about n plain steps; beyond ten times that it is odd.
_ODD_STEPS = 10
# Odd cells that are named.
_NAMED = 3


def check_rate(rate: Rate) -> None:
    """Refuse an interval whose ends are exchanged, or whose rate is far outside."""
    if rate.low > rate.high:
        raise InvalidArgumentError(f"low must be <= high, got {rate.low:g} and {rate.high:g}")
    # Percentiles of a bootstrap may leave the rate just outside.
    slack = rate.high - rate.low + _ROUNDING
    if not rate.low - slack <= rate.best <= rate.high + slack:
        raise InvalidArgumentError(
            f"best must be in [low, high] = [{rate.low:g}, {rate.high:g}], got {rate.best:g}"
        )


def check_acceptance(measured: MeasuredAcceptance) -> None:
    """Refuse counts that no requests have, and curves that are not of one another."""
    most = measured.requests * measured.max_new_tokens
    if not measured.requests <= measured.tokens <= most:
        raise InvalidArgumentError(
            f"tokens must be in [{measured.requests}, {most}], as {measured.requests} requests of "
            f"at most {measured.max_new_tokens} tokens have, got {measured.tokens}"
        )
    survival, conditional = measured.survival, measured.conditional
    if len(survival) != len(conditional):
        raise InvalidArgumentError(
            f"survival and conditional must be of equal length, got {len(survival)} and "
            f"{len(conditional)}"
        )
    for name in ("low", "best", "high"):
        curve = [getattr(rate, name) for rate in survival]
        for at, (before, after) in enumerate(pairwise(curve), 1):
            if after > before + _ROUNDING:
                raise InvalidArgumentError(
                    f"survival[{at}].{name} must not rise, got {after:g} after {before:g}"
                )
    before = 1.0
    for at, (reached, rate) in enumerate(zip(survival, conditional, strict=True)):
        if abs(reached.best - before * rate.best) > _ROUNDING:
            raise InvalidArgumentError(
                f"survival[{at}].best must be the product of conditional up to there, "
                f"{before * rate.best:g}, got {reached.best:g}"
            )
        before = reached.best


def check_profile(profile: Profile) -> None:
    """Refuse what contradicts itself between the parts of a profile."""
    _check_roles(profile)
    for at, measured in enumerate(profile.acceptance):
        if len(measured.survival) != profile.gamma_max:
            raise InvalidArgumentError(
                f"acceptance[{at}]: survival must have gamma_max = {profile.gamma_max} rates, got "
                f"{len(measured.survival)}"
            )
        if measured.max_new_tokens < profile.gamma_max:
            raise InvalidArgumentError(
                f"acceptance[{at}]: max_new_tokens must be >= gamma_max = {profile.gamma_max}, got "
                f"{measured.max_new_tokens}"
            )
    _check_unique("acceptance", profile.acceptance, lambda measured: measured.sampling)
    _check_unique("run_times", profile.run_times, _run)
    _check_unique("grid", profile.grid, _run)
    _check_unique("overhead", profile.overhead, _host)
    _check_unique("batch_overhead", profile.batch_overhead, _host)
    _check_unique("missing", profile.missing, lambda cell: (cell.batch, cell.context, cell.mode))
    for name, rows in (("overhead", profile.overhead), ("batch_overhead", profile.batch_overhead)):
        for at, row in enumerate(rows):
            if row.gamma > profile.gamma_max:
                raise InvalidArgumentError(
                    f"{name}[{at}]: gamma must be <= gamma_max = {profile.gamma_max}, got "
                    f"{row.gamma}"
                )
    alone: tuple[tuple[str, Sequence[RunTime | Overhead]], ...] = (
        ("run_times", profile.run_times),
        ("overhead", profile.overhead),
    )
    for name, found in alone:
        for at, each in enumerate(found):
            if each.batch != 1:
                raise InvalidArgumentError(
                    f"{name}[{at}]: batch must be 1, as of one sequence, got {each.batch}"
                )
    measured_cells = {(row.batch, row.context, row.mode) for row in profile.grid}
    for at, cell in enumerate(profile.missing):
        if (cell.batch, cell.context, cell.mode) in measured_cells:
            raise InvalidArgumentError(
                f"missing[{at}]: batch {cell.batch} with context {cell.context} is in the grid"
            )


def check_trace(measured: MeasuredAcceptance, trace: Trace, own: bool) -> None:
    """Refuse a trace of other counts than the profile says.

    own : whether the rates of ``measured`` are the profile's own, and so of this trace
    """
    for name, found in (("requests", trace.requests), ("tokens", trace.tokens)):
        if found != getattr(measured, name):
            raise InvalidArgumentError(
                f"has {found} {name}, the profile says {getattr(measured, name)}"
            )
    longest = int(trace.lengths.max())
    if longest > measured.max_new_tokens:
        raise InvalidArgumentError(
            f"has a request of {longest} tokens, the profile says max_new_tokens "
            f"{measured.max_new_tokens}"
        )
    if "context" in trace.columns:
        prompts = trace.columns["context"] - trace.positions
        steady = np.repeat(prompts[trace.starts[:-1]], trace.lengths)
        if (prompts != steady).any() or prompts.min() < 1:
            raise InvalidArgumentError(
                "context must be the prompt's tokens, at least one, and those of the request so far"
            )
    mean = float(trace.acceptance.mean())
    if own and abs(mean - measured.alpha.best) > _RATE_OFF:
        raise InvalidArgumentError(
            f"has a mean acceptance of {mean:.4f}, the profile says {measured.alpha.best:.4f}"
        )


def oddities(profile: Profile) -> list[str]:
    """What a profile says that can be, and rarely is; one line each."""
    found = []
    draft, target = profile.draft, profile.target
    if draft.parameters > target.parameters:
        found.append(
            f"the draft {draft.name} has {draft.parameters:,} parameters, the target {target.name} "
            f"{target.parameters:,}: were the two exchanged?"
        )
    slow = list(_slow_cells(profile))
    found += slow[:_NAMED]
    if len(slow) > _NAMED:
        found.append(f"and {len(slow) - _NAMED} more runs that take far longer than plain steps")
    return found


def _slow_cells(profile: Profile) -> Iterator[str]:
    for name, rows in (("run_times", profile.run_times), ("grid", profile.grid)):
        for at, row in enumerate(rows):
            steps = median(row.seconds) / median(row.plain)
            if steps > _ODD_STEPS * (1 + row.tokens):
                yield (
                    f"{name}[{at}]: a run of the {row.model} over {row.tokens} tokens takes "
                    f"{steps:,.0f} times as long as a plain step"
                )


def _check_roles(profile: Profile) -> None:
    if profile.target.longest_match is not None:
        raise InvalidArgumentError(
            "target: has longest_match, and prompt lookup is what drafts (were target and draft "
            "exchanged?)"
        )
    if not profile.target.parameters:
        raise InvalidArgumentError("target: parameters must be >= 1, got 0")
    if not profile.by_lookup:
        return
    if profile.draft.parameters:
        raise InvalidArgumentError(
            f"draft: prompt lookup has no parameters, got {profile.draft.parameters}"
        )
    for at, row in enumerate(profile.run_times):
        if row.model == "draft":
            raise InvalidArgumentError(
                f"run_times[{at}]: is of the draft, and prompt lookup has no runs"
            )


def _run(row: RunTime) -> tuple[object, ...]:
    return row.model, row.follows, row.tokens, row.batch, row.context, row.mode


def _host(row: Overhead) -> tuple[object, ...]:
    return row.temperature, row.gamma, row.batch, row.context, row.mode


def _check_unique(name: str, rows: Sequence[Entry], key: Callable[[Entry], object]) -> None:
    """Refuse an entry of a list that is there already, and a list longer than any."""
    if len(rows) > _MOST_CELLS:
        raise InvalidArgumentError(
            f"{name}: must have at most {_MOST_CELLS:,} entries, got {len(rows):,}"
        )
    seen: dict[object, int] = {}
    for at, what in enumerate(map(key, rows)):
        if what in seen:
            raise InvalidArgumentError(
                f"{name}[{at}]: is of the same as {name}[{seen[what]}] ({_said(what)})"
            )
        seen[what] = at


def _said(what: object) -> str:
    parts: Iterable[object] = what if isinstance(what, tuple) else (what,)
    return ", ".join(map(str, parts))
