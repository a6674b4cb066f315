"""What arrives: when, with how long prompts and outputs, and what the prompts share."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from specsim.checks import Floats, Ints, InvalidArgumentError, SpecsimError, integer


class WorkloadError(SpecsimError):
    """A workload cannot be used; the message says which file or request, and why."""


@dataclass(frozen=True, eq=False)
class PrefixBlocks:
    """The leading full blocks of prompts, by hashes that stand for all tokens up to their end.

    Two requests share their first k blocks exactly when their first k hashes are equal.

    hashes : (H,) of all requests, one after another
    starts : (N + 1,) rising from 0 to H; request i has ``hashes[starts[i]:starts[i + 1]]``
    block_tokens : tokens of one block
    """

    hashes: Ints
    starts: Ints
    block_tokens: int

    def __post_init__(self) -> None:
        object.__setattr__(self, "hashes", np.asarray(self.hashes, dtype=np.int64))
        object.__setattr__(self, "starts", np.asarray(self.starts, dtype=np.int64))
        integer("prefix.block_tokens", self.block_tokens, low=1)
        if self.hashes.ndim != 1:
            raise InvalidArgumentError(
                f"prefix.hashes must have one axis, got shape {self.hashes.shape}"
            )
        if self.starts.ndim != 1 or not self.starts.size or self.starts[0] != 0:
            raise InvalidArgumentError("prefix.starts must be one axis that begins with 0")
        falls = np.flatnonzero(np.diff(self.starts) < 0)
        if falls.size:
            at = int(falls[0]) + 1
            raise InvalidArgumentError(
                f"prefix.starts must not fall, got {self.starts[at]} at index {at} after "
                f"{self.starts[at - 1]}"
            )
        if self.starts[-1] != self.hashes.size:
            raise InvalidArgumentError(
                f"prefix.starts must end with the number of hashes, {self.hashes.size}, got "
                f"{self.starts[-1]}"
            )

    def __len__(self) -> int:
        return self.starts.size - 1

    def of(self, request: int) -> Ints:
        """The hashes of one request."""
        return self.hashes[self.starts[request] : self.starts[request + 1]]

    def take(self, chosen: Ints) -> PrefixBlocks:
        """Those of some requests, in the order given."""
        counts = np.diff(self.starts)[chosen]
        starts = np.concatenate([[0], np.cumsum(counts)])
        within = np.arange(int(starts[-1])) - np.repeat(starts[:-1], counts)
        places = np.repeat(self.starts[:-1][chosen], counts) + within
        return PrefixBlocks(self.hashes[places], starts, self.block_tokens)


@dataclass(frozen=True, eq=False)
class Requests:
    """N requests in the order of their arrival.

    arrival_s : (N,) seconds from the begin, not falling, >= 0
    prompt_tokens : (N,) >= 1
    output_tokens : (N,) tokens that each emits, >= 1
    prefix : leading full blocks of the prompts that may be shared; None: nothing is

    Raises InvalidArgumentError with the index and the value of the first that is wrong.
    """

    arrival_s: Floats
    prompt_tokens: Ints
    output_tokens: Ints
    prefix: PrefixBlocks | None = None

    def __post_init__(self) -> None:
        arrivals = np.asarray(self.arrival_s, dtype=np.float64)
        if arrivals.ndim != 1 or not arrivals.size:
            raise InvalidArgumentError(
                f"arrival_s must be one axis of at least one request, got shape {arrivals.shape}"
            )
        _refuse("arrival_s", arrivals, ~np.isfinite(arrivals) | (arrivals < 0), "finite and >= 0")
        falls = np.flatnonzero(np.diff(arrivals) < 0)
        if falls.size:
            at = int(falls[0]) + 1
            raise InvalidArgumentError(
                f"arrival_s must not fall, got {arrivals[at]:g} at index {at} after "
                f"{arrivals[at - 1]:g}; sort the requests by arrival"
            )
        object.__setattr__(self, "arrival_s", arrivals)
        for name in ("prompt_tokens", "output_tokens"):
            tokens = np.asarray(getattr(self, name))
            if tokens.shape != arrivals.shape:
                raise InvalidArgumentError(
                    f"{name} must be as many as arrival_s, {arrivals.size}, got shape "
                    f"{tokens.shape}"
                )
            with np.errstate(invalid="ignore"):
                wrong = ~((tokens >= 1) & (tokens == np.floor(tokens)) & (tokens < 2**53))
            _refuse(name, tokens, wrong, "a whole number >= 1")
            object.__setattr__(self, name, tokens.astype(np.int64))
        if self.prefix is not None:
            self._check(self.prefix)

    def _check(self, prefix: PrefixBlocks) -> None:
        if len(prefix) != len(self):
            raise InvalidArgumentError(
                f"prefix must be of as many requests as arrival_s, {len(self)}, got {len(prefix)}"
            )
        blocks = np.diff(prefix.starts)
        beyond = np.flatnonzero(blocks * prefix.block_tokens > self.prompt_tokens)
        if beyond.size:
            at = int(beyond[0])
            raise InvalidArgumentError(
                f"prefix has {blocks[at]} blocks of {prefix.block_tokens} tokens at index {at}, "
                f"more than its prompt of {self.prompt_tokens[at]} tokens"
            )

    def __len__(self) -> int:
        return self.arrival_s.size

    def take(self, chosen: Ints) -> Requests:
        """Some of the requests, by rising index, at their own times."""
        chosen = np.asarray(chosen, dtype=np.int64)
        return Requests(
            self.arrival_s[chosen],
            self.prompt_tokens[chosen],
            self.output_tokens[chosen],
            None if self.prefix is None else self.prefix.take(chosen),
        )


def _refuse(name: str, values: Any, wrong: Any, allowed: str) -> None:
    """Raise with the first value that is wrong."""
    if wrong.any():
        at = int(np.flatnonzero(wrong)[0])
        raise InvalidArgumentError(f"{name} must be {allowed}, got {values[at]:g} at index {at}")
