"""Which requests of a profile an engine is asked."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from calibrate.validate.speedups import CheckedPrompts
from specsim.api.result import LeftOut
from specsim.checks import UnsupportedError


@dataclass(frozen=True)
class Asked:
    """Requests of one workload: which of the prompts, and how many tokens behind each.

    So many tokens fewer than the trace has as the longest draft has: then the trace says too how
    drafts fare behind the last token.
    """

    check: CheckedPrompts
    requests: tuple[int, ...]
    tokens: tuple[int, ...]

    @staticmethod
    def of(check: CheckedPrompts, longest: int) -> Asked:
        if "token" not in check.trace.columns:
            raise UnsupportedError(
                "the profile's trace does not say which tokens were emitted (column token); "
                "calibrate again"
            )
        lengths = [int(length) - longest for length in check.trace.lengths]
        kept = [
            number
            for number, (length, prompt) in enumerate(zip(lengths, check.prompts, strict=True))
            # A prompt of one token counts a round more (vLLM 0.32.0, v1/core/sched/scheduler.py).
            if length >= 2 and len(prompt) >= 2
        ]
        if not kept:
            raise UnsupportedError(
                f"no request of the profile's trace has {longest + 2} tokens, which draft length "
                f"{longest} needs; calibrate with a larger --max-new-tokens"
            )
        return Asked(check, tuple(kept), tuple(lengths[number] for number in kept))

    def first(self, requests: int) -> Asked:
        """Those among the first so many requests of the workload.

        Raises UnsupportedError where none is.
        """
        check = replace(self.check, prompts=self.check.prompts[:requests])
        count = sum(number < requests for number in self.requests)
        if not count:
            raise UnsupportedError(
                f"requests must be > {self.requests[0]}, the first that is long enough to be "
                f"asked for, got {requests}"
            )
        return Asked(check, self.requests[:count], self.tokens[:count])

    @property
    def prompts(self) -> list[Sequence[int]]:
        return [self.check.prompts[number] for number in self.requests]

    @property
    def recorded(self) -> list[list[int]]:
        """The texts of the trace, longer than asked for."""
        trace = self.check.trace
        tokens = trace.columns["token"]
        return [
            tokens[trace.starts[number] : trace.starts[number + 1]].tolist()
            for number in self.requests
        ]

    @property
    def left_out(self) -> LeftOut | None:
        """Requests too short to be asked for, if there are any."""
        missing = len(self.check.prompts) - len(self.requests)
        if not missing:
            return None
        temperature = self.check.sampling.temperature
        return LeftOut(
            f"{missing} requests at temperature {temperature:g}",
            "text or prompt is too short for the longest draft",
        )
