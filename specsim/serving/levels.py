"""Service levels: limits of latency, of single requests and of their percentiles."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from specsim.checks import InvalidArgumentError, check_choice, number

# Latencies of a request, in the words of vllm bench serve (whose e2el is e2e here).
LATENCIES = ("ttft", "tpot", "itl", "e2e")

# A percentile below is a typing error: p9 for p99.
_LEAST_PERCENTILE = 50.0
# Seconds that a user would not wait, whatever is served: such a limit was typed in milliseconds.
_LONG_S = {"ttft": 100.0, "tpot": 2.0, "itl": 10.0, "e2e": 3600.0}

_NAME = re.compile(r"(?P<latency>[a-z0-9]+?)(_(?P<statistic>mean|p\d{1,2}(\.\d+)?))?")


@dataclass(frozen=True)
class ServiceLevel:
    """A limit of one latency.

    latency : ttft, tpot, itl or e2e
    statistic : mean, or a percentile such as p99, which is met or not; None: of single requests
        alone, which count for goodput or do not
    limit_s : seconds, > 0
    """

    latency: str
    statistic: str | None
    limit_s: float

    def __post_init__(self) -> None:
        check_choice("the latency of a level", self.latency, LATENCIES)
        if self.limit_s <= 0 or number(self.name, self.limit_s) <= 0:
            raise InvalidArgumentError(f"{self.name} must be > 0 seconds, got {self.limit_s:g}")
        percentile = (self.statistic or "").removeprefix("p")
        if percentile not in ("", "mean") and float(percentile) < _LEAST_PERCENTILE:
            raise InvalidArgumentError(
                f"{self.name}: a level is a mean or a percentile from p50 on, such as p90 or p99"
            )
        if self.latency == "itl" and self.statistic is None:
            raise InvalidArgumentError(
                "itl is a latency of tokens, not of requests: give a statistic of it, itl_p99 or "
                "itl_mean, or tpot"
            )

    @property
    def name(self) -> str:
        """As it was typed: ttft_p99, or ttft."""
        return self.latency if self.statistic is None else f"{self.latency}_{self.statistic}"

    def met(self, seconds: float) -> bool:
        """Whether a figure is within the limit; nan, of a latency that no request has, is."""
        return not seconds > self.limit_s


def levels_of(
    given: str | Mapping[str, float] | Sequence[ServiceLevel] | None,
) -> tuple[ServiceLevel, ...]:
    """From words (``"ttft_p99=1,tpot_p99=60ms"``, in seconds unless they say ms) or a mapping of
    them; () for None.
    """
    if given is None:
        return ()
    if isinstance(given, str):
        pairs = []
        for part in given.split(","):
            name, equals, limit = part.partition("=")
            if not equals:
                raise InvalidArgumentError(
                    f"slo must be NAME=SECONDS,..., such as ttft_p99=1,tpot_p99=0.06, got {part!r}"
                )
            pairs.append((name.strip(), limit.strip()))
    elif isinstance(given, Mapping):
        pairs = [(name, str(limit)) for name, limit in given.items()]
    else:
        return tuple(given)
    found = [_level(name, limit) for name, limit in pairs]
    if len({each.name for each in found}) < len(found):
        raise InvalidArgumentError("slo has one level twice")
    return tuple(found)


def _level(name: str, limit: str) -> ServiceLevel:
    match = _NAME.fullmatch(name)
    if match is None or match["latency"] not in LATENCIES:
        raise InvalidArgumentError(
            f"slo must name {', '.join(LATENCIES)}, each alone or with _mean or a percentile such "
            f"as _p99, got {name!r}"
        )
    milliseconds = limit.endswith("ms")
    digits = limit.removesuffix("ms").removesuffix("s").strip()
    try:
        float(digits)
    except ValueError:
        raise InvalidArgumentError(
            f"slo {name} must be a number of seconds, or one with its unit such as 60ms, got "
            f"{limit!r}"
        ) from None
    seconds = number(f"slo {name}", digits)
    return ServiceLevel(
        match["latency"], match["statistic"], seconds * 1e-3 if milliseconds else seconds
    )


def doubts_of(levels: Sequence[ServiceLevel]) -> tuple[str, ...]:
    """Limits that were hardly meant, one line each."""
    return tuple(
        f"{each.name} <= {each.limit_s:,.10g} s is no limit: levels are in seconds; of "
        f"milliseconds say {each.name}={each.limit_s:.10g}ms"
        for each in levels
        if each.limit_s >= _LONG_S[each.latency]
    )


def request_limits(levels: Sequence[ServiceLevel]) -> dict[str, float]:
    """What a request must keep to count for goodput: the least limit of each of its latencies.

    As ``vllm bench serve --goodput`` counts: all of ttft, tpot and e2e that have a limit, of single
    requests or of a percentile.  Requests above a mean are what makes it one, so a limit of a mean
    is none of theirs; and the gaps between tokens (itl) are not a request's.
    """
    found: dict[str, float] = {}
    for each in levels:
        if each.latency != "itl" and each.statistic != "mean":
            found[each.latency] = min(each.limit_s, found.get(each.latency, each.limit_s))
    return found
