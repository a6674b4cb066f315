"""A workload: requests drawn from laws, or read from a file, scaled and cut.

One seed draws everything.  Arrivals, prompts, outputs and the order of a file's requests have
random streams of their own, so that what is changed in one leaves the others as they were.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, Protocol

import numpy as np

from specsim.checks import Floats, Ints, InvalidArgumentError, integer, number
from specsim.serving.arrivals import Arrivals, ClosedLoop, ScheduledArrivals, check_rate
from specsim.serving.lengths import LONGEST, EmpiricalLength, Lengths
from specsim.serving.prefixes import blocks_of_rounds, scaled_blocks
from specsim.serving.readers.records import RecordedRequests
from specsim.serving.requests import Requests, WorkloadError

# How many requests are drawn where nobody says it, and how many at most.
REQUESTS = 1000
_MOST = 20_000_000

_STREAMS = ("arrivals", "prompts", "outputs", "order", "serving")


def stream(seed: int, replication: int, name: str) -> np.random.Generator:
    """The random numbers of one use, independent of those of others, seeds and replications."""
    return np.random.default_rng(_sequence(seed, replication, name))


def serving_seed(seed: int, replication: int) -> int:
    """The seed of what is drawn while a replication is served: which drafts are accepted,
    and how far single steps scatter.
    """
    state = _sequence(seed, replication, "serving").generate_state(1, np.uint64)[0]
    return int(state >> np.uint64(12))  # below 2**53


def _sequence(seed: int, replication: int, name: str) -> np.random.SeedSequence:
    key = (integer("replication", replication), _STREAMS.index(name))
    return np.random.SeedSequence(integer("seed", seed), spawn_key=key)


class ServingWorkload(Protocol):
    """What is asked of a server."""

    @property
    def concurrency(self) -> int | None:
        """Requests at any time of a closed loop; None where they come by themselves."""
        ...

    @property
    def notes(self) -> tuple[str, ...]:
        """What a reader should know, one sentence each."""
        ...

    @property
    def inputs(self) -> dict[str, Any]:
        """What it was made of, for results."""
        ...

    def draw(self, seed: int, replication: int = 0) -> Requests:
        """The requests of one replication.  Those of a closed loop all arrive at 0, in order."""
        ...


@dataclass(frozen=True, eq=False)
class DrawnWorkload:
    """Requests of independent lengths.

    requests : how many; None: as many as arrive within ``duration_s``, and 1,000 without it
    duration_s : seconds in which they arrive; not of a closed loop
    """

    arrivals: Arrivals | ClosedLoop
    prompt: Lengths
    output: Lengths
    requests: int | None = None
    duration_s: float | None = None

    def __post_init__(self) -> None:
        if self.requests is not None:
            integer("requests", self.requests, low=1, high=_MOST)
        if self.duration_s is None:
            return
        number("duration_s", self.duration_s, low=0.0)
        if self.requests is not None:
            raise InvalidArgumentError("requests and duration_s exclude each other")
        if isinstance(self.arrivals, ClosedLoop):
            raise InvalidArgumentError(
                "duration_s has no meaning in a closed loop, whose times are not known before; "
                "give requests"
            )

    @property
    def concurrency(self) -> int | None:
        return self.arrivals.concurrency if isinstance(self.arrivals, ClosedLoop) else None

    @property
    def notes(self) -> tuple[str, ...]:
        return ()

    @property
    def inputs(self) -> dict[str, Any]:
        lengths = {"prompt": _as_input(self.prompt), "output": _as_input(self.output)}
        return {**vars(self), **lengths}

    def draw(self, seed: int, replication: int = 0) -> Requests:
        """InvalidArgumentError where nothing arrives within ``duration_s``, or far too much."""
        times = self._times(seed, replication)
        return Requests(
            times,
            self.prompt.draw(times.size, stream(seed, replication, "prompts")),
            self.output.draw(times.size, stream(seed, replication, "outputs")),
        )

    def _times(self, seed: int, replication: int) -> Floats:
        if isinstance(self.arrivals, ClosedLoop):
            return np.zeros(self.requests or REQUESTS)
        if self.duration_s is None:
            return self.arrivals.times(
                self.requests or REQUESTS, stream(seed, replication, "arrivals")
            )
        count = REQUESTS
        while True:
            # More of the same stream begin with the same ones.
            times = self.arrivals.times(count, stream(seed, replication, "arrivals"))
            if times[-1] > self.duration_s:
                break
            if count > _MOST:
                raise InvalidArgumentError(
                    f"duration_s {self.duration_s:g} has more than {_MOST:,} requests"
                )
            # One more than there may be, whose time says whether that is all.
            count = min(4 * count, _MOST + 1)
        times = times[: np.searchsorted(times, self.duration_s, side="right")]
        if not times.size:
            raise InvalidArgumentError(f"duration_s {self.duration_s:g} ends before any request")
        return times


@dataclass(frozen=True, eq=False)
class RecordedWorkload:
    """The requests of a file.

    Without ``arrivals`` they come at the file's own times.  With them the file tells the lengths
    and what prompts share: its requests come in random order, and again from the start where more
    are asked for.  One that comes again shares with others what different requests of the file do,
    and nothing beyond that with itself as it came before.

    recorded : what the file says
    arrivals : in place of the file's times
    rate : requests per second that the file's times are stretched to
    scale : factor of the file's rate, > 0; with both, of ``rate``
    scale_prompt, scale_output : factors of the lengths, rounded, at least one token; what prompts
        share is scaled with them
    window_s : (first, last) seconds of the file's own clock; those that arrive from the first on,
        before the last, and time begins anew at the first
    requests : the first so many; with ``arrivals`` any number
    """

    recorded: RecordedRequests
    arrivals: Arrivals | ClosedLoop | None = None
    rate: float | None = None
    scale: float = 1.0
    scale_prompt: float = 1.0
    scale_output: float = 1.0
    window_s: tuple[float, float] | None = None
    requests: int | None = None

    def __post_init__(self) -> None:
        if self.requests is not None:
            integer("requests", self.requests, low=1, high=_MOST)
        if self.rate is not None:
            check_rate("rate", self.rate)
        for name in ("scale", "scale_prompt", "scale_output"):
            if number(name, getattr(self, name), low=0.0, high=1e6) < 1e-6:
                raise InvalidArgumentError(f"{name} must be > 0, got {getattr(self, name):g}")
        if self.recorded.arrival_s is None:
            self._check_times_are_not_needed()
        if self.arrivals is not None and (self.rate is not None or self.scale != 1.0):
            raise InvalidArgumentError(
                "rate and scale stretch a file's own times and have no meaning beside arrivals"
            )
        if self.window_s is not None and not 0 <= self.window_s[0] < self.window_s[1]:
            raise InvalidArgumentError(
                f"window_s must be first < last, both >= 0, got {self.window_s[0]:g},"
                f"{self.window_s[1]:g}"
            )

    @property
    def concurrency(self) -> int | None:
        return self.arrivals.concurrency if isinstance(self.arrivals, ClosedLoop) else None

    @property
    def notes(self) -> tuple[str, ...]:
        count = self._chosen.size
        if self.requests is None or self.requests <= count:
            return self.recorded.notes
        if self.arrivals is None:
            what = "all come once, at the times that the file has; arrivals let them come again"
        elif self.recorded.prefix is None:
            what = "they come again"
        else:
            what = "they come again, with other texts but for what different requests share"
        said = f"the file has {count:,} requests and {self.requests:,} are asked for: {what}"
        return *self.recorded.notes, said

    @property
    def inputs(self) -> dict[str, Any]:
        recorded = self.recorded
        read = {"file": recorded.file, "sha256": recorded.sha256, "recorded": recorded.format}
        return {**vars(self), **read}

    @property
    def _chosen(self) -> Ints:
        """Requests of the file within the window, by index."""
        times = self.recorded.arrival_s
        if self.window_s is None or times is None:
            return np.arange(self.recorded.prompt_tokens.size)
        first, last = self.window_s
        found = np.flatnonzero((times >= first) & (times < last))
        if not found.size:
            raise WorkloadError(
                f"no request arrives in the window from {first:g} s to {last:g} s; the file's are "
                f"from {times[0]:g} s to {times[-1]:g} s"
            )
        return found

    def draw(self, seed: int, replication: int = 0) -> Requests:
        """The file's own times are the same in every replication."""
        chosen, prefix = self._chosen, self.recorded.prefix
        if self.arrivals is None:
            chosen = chosen[: self.requests]
            times = self._own_times(chosen)
            prefix = None if prefix is None else prefix.take(chosen)
        else:
            count, once = self.requests or chosen.size, chosen.size
            random = stream(seed, replication, "order")
            rounds = [random.permutation(chosen) for _ in range(-(-count // once))]
            chosen = np.concatenate(rounds)[:count]
            if prefix is not None:
                prefix = blocks_of_rounds(prefix, chosen, np.arange(count) // once)
            times = (
                np.zeros(count)
                if isinstance(self.arrivals, ClosedLoop)
                else self.arrivals.times(count, stream(seed, replication, "arrivals"))
            )
        prompts = _scaled(self.recorded.prompt_tokens[chosen], self.scale_prompt)
        if prefix is not None and self.scale_prompt != 1.0:
            prefix = scaled_blocks(prefix, self.scale_prompt, prompts)
        outputs = _scaled(self.recorded.output_tokens[chosen], self.scale_output)
        return Requests(times, prompts, outputs, prefix)

    def _own_times(self, chosen: Ints) -> Floats:
        assert self.recorded.arrival_s is not None, "checked on creation"
        times = self.recorded.arrival_s[chosen]
        faster = self.scale
        if self.rate is not None:
            faster *= self.rate / mean_rate(times)
        begin = self.window_s[0] if self.window_s else 0.0
        scaled: Floats = (times - begin) / faster
        return scaled

    def _check_times_are_not_needed(self) -> None:
        if self.arrivals is None:
            raise WorkloadError(
                "the file has no times of arrival: give a rate, or a concurrency of a closed loop"
            )
        if self.window_s is not None:
            raise WorkloadError("window_s has no meaning: the file has no times of arrival")


def mean_rate(times: Floats) -> float:
    """Requests per second between the first and the last of at least two."""
    if times.size < 2 or times[-1] <= times[0]:
        raise WorkloadError(
            "the requests have no rate: there must be two at least, at different times"
        )
    return float((times.size - 1) / (times[-1] - times[0]))


def at_rate(workload: ServingWorkload, rate: float) -> ServingWorkload:
    """The same workload at another rate: the same requests in the same pattern, closer or wider.

    InvalidArgumentError where it has no single rate: of a closed loop and of a schedule.
    """
    if isinstance(workload, RecordedWorkload) and workload.arrivals is None:
        return replace(workload, rate=rate, scale=1.0)
    if isinstance(workload, (DrawnWorkload, RecordedWorkload)):
        arrivals = workload.arrivals
        if arrivals is not None and not isinstance(arrivals, (ClosedLoop, ScheduledArrivals)):
            return replace(workload, arrivals=replace(arrivals, rate=rate))  # type: ignore[type-var]
    raise InvalidArgumentError(
        f"rate {rate:g} has no meaning here: a closed loop or a schedule of rates has no single "
        "rate to change"
    )


def _as_input(lengths: Lengths) -> Any:
    """What stands for lengths among the inputs of a result: for those of a file its name."""
    if isinstance(lengths, EmpiricalLength) and lengths.file:
        kind = type(lengths).__name__
        return {"kind": kind, "file": lengths.file, "sha256": lengths.sha256}
    return lengths


def _scaled(tokens: Ints, scale: float) -> Ints:
    if scale == 1.0:
        return tokens
    scaled: Ints = np.clip(np.rint(tokens * scale), 1, LONGEST).astype(np.int64)
    return scaled
