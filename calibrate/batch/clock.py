"""Time along a piece of work, without waiting for a device in the middle of it.

Waiting after every run would time what no engine does.  On CUDA marks are events that the device
passes when it gets there, so intervals between marks add up to the whole.
"""

from __future__ import annotations

import time
from typing import Any

import torch

from calibrate.decode.engine import wait


class Clock:
    """Marks along a piece of work; read when all of it is done."""

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self._marks: list[Any] = []

    def mark(self) -> None:
        """Here an interval ends and the next one begins."""
        if self._device.type == "cuda":
            event: Any = torch.cuda.Event(enable_timing=True)  # type: ignore[no-untyped-call]
            event.record(torch.cuda.current_stream(self._device))
            self._marks.append(event)
        else:
            wait(self._device)
            self._marks.append(time.perf_counter())

    def intervals(self) -> list[float]:
        """Seconds between the marks, which are forgotten; waits for the device."""
        wait(self._device)
        pairs = zip(self._marks, self._marks[1:], strict=False)
        if self._device.type == "cuda":
            seconds = [before.elapsed_time(after) / 1000 for before, after in pairs]
        else:
            seconds = [after - before for before, after in pairs]
        self._marks = []
        return seconds
