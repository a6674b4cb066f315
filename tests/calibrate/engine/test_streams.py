"""Clients that load the servers of an engine while their steps are timed."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from calibrate.engine.asked import Asked
from calibrate.engine.client import EngineClient
from calibrate.engine.streams import time_streams
from specsim.checkpoint import Checkpoint
from specsim.counts.streamed_costs import StreamedCosts
from specsim.counts.streams import Stream
from tests.support.streamed import REQUEST_S, STEP_S, served


class RestingServer(EngineClient):
    """Steps of what it is sent first after a rest take twice as long."""

    def __init__(self) -> None:
        super().__init__("http://localhost:1")
        self.now = 0.0
        self.rested = True

    def stream(
        self,
        prompts: Sequence[Sequence[int]],
        tokens: Sequence[int],
        sampling: Any,
        together: int,
        waits_s: Sequence[float],
    ) -> list[Stream]:
        sent = [self.now + 0.1 * number + wait for number, wait in enumerate(waits_s)]
        self.now += 100.0
        extra_s = STEP_S if self.rested else 0.0
        self.rested = False
        return served(sent, list(map(len, prompts)), list(tokens), 0.0, extra_s=extra_s)[0]


def test_what_a_server_does_first_after_a_rest_does_not_count(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    servers = {gamma: RestingServer() for gamma in (0, 2)}

    def rest() -> None:
        for each in servers.values():
            each.rested = True

    monkeypatch.setattr("calibrate.engine.streams.rest", rest)
    asked = cast(
        "Asked",
        SimpleNamespace(
            prompts=[[1] * length for length in (20, 40, 60)],
            tokens=(40, 50, 60),
            check=SimpleNamespace(
                workload=SimpleNamespace(measured=SimpleNamespace(sampling=None))
            ),
        ),
    )
    checkpoint = Checkpoint.beside(tmp_path / "out", "time_streams")
    found = time_streams(servers, asked, 4, 512, 0, 0, checkpoint)
    for law in StreamedCosts(tuple(found)).laws.values():
        expected = [STEP_S + REQUEST_S * batch for batch in law.batches]
        assert law.step_s.tolist() == pytest.approx(expected)
