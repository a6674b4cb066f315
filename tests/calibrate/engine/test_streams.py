"""Clients that load the servers of an engine while their steps are timed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pytest

from calibrate.engine.asked import Asked
from calibrate.engine.client import EngineClient
from calibrate.engine.streams import time_streams
from specsim.checkpoint import Checkpoint
from specsim.counts.streamed_costs import StreamedCosts
from specsim.counts.streams import Stream
from tests.support.streamed import REQUEST_S, STEP_S, served

BOS = 0
# Twice as slow is a server for so long after a rest.
COLD_S = 0.1


class Numbers:
    """A tokenizer of numbers, which puts a BOS token before every text.

    apart : of one token, so many when a text is read again
    """

    bos_token_id = BOS

    def __init__(self, apart: int = 1) -> None:
        self.apart = apart

    def decode(self, tokens: Sequence[int]) -> str:
        return " ".join(map(str, tokens))

    def __call__(self, text: str, verbose: bool) -> dict[str, list[int]]:
        assert not verbose
        words = [int(word) for word in text.split() for _ in range(self.apart)]
        return {"input_ids": [BOS, *words]}


class RestingServer(EngineClient):
    """What it does first after a rest takes twice as long.

    tokenizer : that says how many tokens the texts have
    asked : texts, and how many tokens behind each
    loads : clients at once, what each request waits and what was seen of them, load by load
    """

    def __init__(self, tokenizer: Numbers) -> None:
        super().__init__("http://localhost:1")
        self.now = 0.0
        self.rested = True
        self.tokenizer = tokenizer
        self.asked: list[tuple[str, int]] = []
        self.loads: list[tuple[int, Sequence[float], list[Stream]]] = []

    def count(self, text: str) -> int:
        return len(self.tokenizer(text, verbose=False)["input_ids"])

    def stream(
        self,
        prompts: Sequence[str],
        tokens: Sequence[int],
        sampling: Any,
        together: int,
        waits_s: Sequence[float],
    ) -> list[Stream]:
        self.asked += zip(prompts, tokens, strict=True)
        sent = [self.now + 0.1 * number + wait for number, wait in enumerate(waits_s)]
        self.now += 100.0
        lengths = list(map(self.count, prompts))
        streams, _ = served(sent, lengths, list(tokens), 0.0)
        if self.rested:
            begun_s = min(sent)
            streams = [slow_at_first(each, begun_s) for each in streams]
        self.rested = False
        self.loads.append((together, waits_s, streams))
        return streams


def slow_at_first(stream: Stream, begun_s: float) -> Stream:
    """The same, as a server does it that has rested until then."""

    def later(at_s: float) -> float:
        return at_s + min(at_s - begun_s, COLD_S / 2)

    return replace(stream, sent_s=later(stream.sent_s), chunk_s=tuple(map(later, stream.chunk_s)))


@pytest.fixture(autouse=True)
def servers_are_made_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("calibrate.engine.streams.stream", RestingServer.stream)


def asked(*prompts: list[int]) -> Asked:
    check = SimpleNamespace(workload=SimpleNamespace(measured=SimpleNamespace(sampling=None)))
    found = SimpleNamespace(prompts=prompts, tokens=(40, 50, 60), check=check)
    return cast("Asked", found)


def test_what_a_server_does_first_after_a_rest_does_not_count(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    tokenizer = Numbers()
    servers = {gamma: RestingServer(tokenizer) for gamma in (0, 2)}

    def rest() -> None:
        for each in servers.values():
            each.rested = True

    monkeypatch.setattr("calibrate.engine.streams.rest", rest)
    of = asked(*([1] * length for length in (20, 40, 60)))
    checkpoint = Checkpoint.beside(tmp_path / "out", "time_streams")
    found = time_streams(servers, of, tokenizer, 4, 512, 0, 0, checkpoint)
    for law in StreamedCosts(tuple(found)).laws.values():
        expected = [STEP_S + REQUEST_S * batch for batch in law.batches]
        assert law.step_s.tolist() == pytest.approx(expected)


@pytest.mark.parametrize(("apart", "context"), [(1, 512), (3, 512), (3, 80)])
def test_prompts_are_texts_that_there_is_room_for(
    apart: int, context: int, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Pieces of 32 tokens at most, which as texts may have three times as many."""
    monkeypatch.setattr("calibrate.engine.streams.rest", lambda: None)
    tokenizer = Numbers(apart)
    servers = {gamma: RestingServer(tokenizer) for gamma in (0, 2)}
    of = asked([BOS, *range(1, 16)], [BOS, *range(16, 34)])
    checkpoint = Checkpoint.beside(tmp_path / "out", "time_streams")
    found = time_streams(servers, of, tokenizer, 3, context, 0, 0, checkpoint)
    sent = servers[0].asked + servers[2].asked
    longest = max(servers[0].count(text) for text, _ in sent)
    for text, tokens in sent:
        words = [int(word) for word in text.split()]
        # A piece of the profile's prompts, one after another, without a BOS token in its midst.
        assert words == [(words[0] - 1 + place) % 33 + 1 for place in range(len(words))]
        assert servers[0].count(text) + tokens <= context
    if context > 500:
        assert 1 + 20 * apart < longest <= 1 + 32 * apart
    # What is kept are the tokens that servers counted.
    kept = {step.prompt_tokens for each in found for step in each.steps if step.prompts == 1}
    assert kept
    assert kept <= {servers[0].count(text) for text, _ in sent}


@pytest.mark.parametrize(
    ("most", "repeat", "levels"),
    [(4, 0, [1, 3, 4]), (4, 1, [2, 4]), (4, 2, [1, 3, 4]), (1, 0, [1, 2]), (1, 1, [2])],
)
def test_more_and_more_clients_begin_over_as_long_as_a_request_lasts(
    most: int,
    repeat: int,
    levels: list[int],
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
) -> None:
    """Every other number of them by turns, two at least."""
    monkeypatch.setattr("calibrate.engine.streams.rest", lambda: None)
    server = RestingServer(Numbers())
    of = asked(*([1] * length for length in (20, 40, 60)))
    checkpoint = Checkpoint.beside(tmp_path / "out", "time_streams")
    time_streams({0: server}, of, server.tokenizer, most, 512, repeat, 0, checkpoint)
    assert [together for together, _, _ in server.loads] == levels
    lasted: list[float] = []
    gaps: list[float] = []
    for together, waits_s, streams in server.loads:
        assert len(waits_s) == max(4 * together, 8)
        ramp_s = sum(lasted) / len(lasted) if lasted else 0.0
        # Four steps are less than a tenth of a second; the most clients wait no longer.
        longest_s = 4 * np.median(gaps) if gaps and together == max(levels) else 0.1
        for number, wait_s in enumerate(waits_s):
            begins_s = ramp_s * number / together if number < together else 0.0
            assert begins_s <= wait_s < begins_s + longest_s
        gaps += [gap for each in streams for gap in np.diff(each.chunk_s)]
        lasted += [each.chunk_s[-1] - each.sent_s for each in streams]
