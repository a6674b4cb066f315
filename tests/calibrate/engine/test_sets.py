"""Sets of requests on servers that answer as vLLM does, and what follows from their seconds."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pytest

from calibrate.engine import sets
from calibrate.engine.asked import Asked
from calibrate.engine.client import Client, EngineClient
from calibrate.engine.rounds import known_rounds, replayed_rounds
from calibrate.engine.sets import (
    TimedSet,
    begun_seed,
    count_drafts,
    request_sets,
    time_set,
    timed_by_starts,
    timed_repeats,
)
from calibrate.engine.steps import batch_warnings, step_times
from calibrate.models.busy import CpuTimes
from calibrate.models.sampling import Sampling
from calibrate.validate.engine_blind import checked_sets, judged, predicted
from specsim.checkpoint import Checkpoint
from specsim.checks import UnsupportedError
from specsim.predict.engine_sets import StepRepeats, rounds_while_running
from specsim.profiles import SamplingSetting
from tests.support.engine_server import EngineState, serving

REQUESTS, TOKENS, LONGEST, BATCHES = 6, 12, 5, (1, 4)


def asked(seed: int = 0) -> Asked:
    """Requests with a trace at temperature 0, made of random acceptance."""
    random = np.random.default_rng(seed)
    length = TOKENS + LONGEST
    trace = SimpleNamespace(
        acceptance=(random.random(REQUESTS * length) < 0.6).astype(float),
        starts=np.arange(REQUESTS + 1) * length,
        lengths=np.full(REQUESTS, length),
        columns={"token": random.integers(2, 60, REQUESTS * length)},
    )
    check: Any = SimpleNamespace(
        trace=trace,
        prompts=[[number + 2, 7, 9] for number in range(REQUESTS)],
        sampling=Sampling(0.0),
        workload=SimpleNamespace(measured=SimpleNamespace(sampling=SamplingSetting(0.0))),
    )
    return Asked.of(check, LONGEST)


def state(of: Asked, gamma: int) -> EngineState:
    """A server that writes the trace's text, with drafts that stand where the trace says so."""
    texts, drafts = {}, {}
    trace = of.check.trace
    for number, (prompt, text) in enumerate(zip(of.prompts, of.recorded, strict=True)):
        stands = trace.acceptance[trace.starts[number] : trace.starts[number + 1]]
        guesses = [token if stand else -1 for token, stand in zip(text, stands, strict=True)]
        texts[tuple(prompt)] = text
        drafts[tuple(prompt)] = {
            place: guesses[place : place + gamma] for place in range(len(text))
        }
    return EngineState(texts, drafts, gamma=gamma)


def test_sets_go_round_the_requests() -> None:
    assert request_sets(1, 32, 0) == [(0,), (1,), (2,), (3,)]
    assert request_sets(4, 6, 3) == [(3, 4, 5, 0), (1, 2, 3, 4), (5, 0, 1, 2), (3, 4, 5, 0)]
    assert request_sets(16, 32, 16) == [tuple(range(16, 32)), tuple(range(16))] * 2


def test_every_set_is_sent_and_a_killed_run_goes_on(tmp_path: Path) -> None:
    of = asked()
    sets = {batch: request_sets(batch, REQUESTS, 0) for batch in BATCHES}
    checkpoint = Checkpoint.beside(tmp_path / "out", "test")
    done = 0

    def advance(repeat: int) -> None:
        nonlocal done
        assert repeat == done
        done += 1
        if done == 2:
            raise KeyboardInterrupt

    with serving(state(of, 0)) as plain, serving(state(of, 2)) as drafting:
        clients = {0: EngineClient(plain), 2: EngineClient(drafting)}
        with pytest.raises(KeyboardInterrupt):
            timed_repeats(clients, of, lambda repeat: sets, range(3), 0, checkpoint, advance)
        kept = [path.name for path in checkpoint.folder.iterdir() if path.suffix == ".json"]
        assert sorted(kept) == ["repeat-0.json", "repeat-1.json"]
        before = (checkpoint.folder / "repeat-1.json").read_bytes()
        found = timed_repeats(clients, of, lambda repeat: sets, range(3), 0, checkpoint)
        assert (checkpoint.folder / "repeat-1.json").read_bytes() == before
    counts = Counter((one.gamma, one.batch) for one in found[2])
    assert counts == {(0, 1): 8, (0, 4): 8, (2, 1): 4, (2, 4): 4}
    rounds = replayed_rounds(of, 2)
    assert replayed_rounds(of, 0) == [TOKENS - 1] * REQUESTS
    for one in (one for repeat in found for one in repeat):
        # The server adds so much for each request.
        assert one.seconds > one.first_s == pytest.approx(1e-5)
        assert one.rounds == (sum(rounds[n] for n in one.requests) if one.gamma else None)
    assert [one.requests for one in found[0]] != [one.requests for one in found[1]]
    # Of one set all draft lengths are beside each other.
    for at in range(0, len(found[0]), 3):
        assert len({one.requests for one in found[0][at : at + 3]}) == 1
        assert sorted(one.gamma for one in found[0][at : at + 3]) == [0, 0, 2]


def test_servers_are_started_anew_for_a_share_of_the_repeats(tmp_path: Path) -> None:
    of = asked()
    sets = {1: request_sets(1, REQUESTS, 0)}
    checkpoint = Checkpoint.beside(tmp_path / "out", "test")
    started: list[int] = []

    @contextmanager
    def clients() -> Iterator[dict[int, Client]]:
        started.append(begun_seed(0, 5, checkpoint, check=False))
        with serving(state(of, 0)) as plain, serving(state(of, 2)) as drafting:
            yield {0: EngineClient(plain), 2: EngineClient(drafting)}

    def timed(stop: int) -> list[list[TimedSet]]:
        def advance(repeat: int) -> None:
            if repeat == stop:
                raise KeyboardInterrupt

        return timed_by_starts(clients, of, lambda repeat: sets, 5, 2, 0, checkpoint, advance)

    with pytest.raises(KeyboardInterrupt):
        timed(stop=3)
    # Two repeats, and the three others, each with random numbers of its own.
    assert started == [0, 2]
    found = timed(stop=5)
    assert started == [0, 2, 4]
    assert [len(repeat) for repeat in found] == [12] * 5
    assert timed(stop=5) == found
    assert started == [0, 2, 4]


class AllAtOnce(EngineState):
    """It answers when four requests are there, or fails."""

    there = threading.Barrier(4, timeout=10)

    def complete(self, asked: dict[str, Any]) -> list[int]:
        self.there.wait()
        return super().complete(asked)


def test_a_set_is_sent_at_once() -> None:
    of = asked()
    with serving(AllAtOnce(**vars(state(of, 2)))) as url:
        found = time_set(EngineClient(url), of, 2, 4, (4, 1, 0, 3))
    assert (found.gamma, found.batch, found.requests) == (2, 4, (4, 1, 0, 3))
    assert found.rounds == sum(replayed_rounds(of, 2)[number] for number in found.requests)


def test_rounds_that_lack_a_draft_are_of_their_servers_length(tmp_path: Path) -> None:
    of = asked()
    drafting = state(of, 2)
    for drafts in drafting.drafts.values():
        cast(dict[int, list[int]], drafts)[1] = drafts[1][:1]
    with serving(state(of, 0)) as plain, serving(drafting) as url:
        clients = {0: EngineClient(plain), 2: EngineClient(url)}
        (counts,) = count_drafts(clients, of, 4, Checkpoint.beside(tmp_path / "out", "test"))
    assert counts.gamma == 2
    assert counts.drafted == 2 * counts.rounds - REQUESTS


def test_engines_that_go_on_with_a_run_draw_other_random_numbers(tmp_path: Path) -> None:
    checkpoint = Checkpoint.beside(tmp_path / "out", "test")
    seeds = [begun_seed(3, 2, checkpoint, check=False)]
    for name in ("counts.json", "repeat-0.json", "repeat-1.json"):
        checkpoint.keep_json(name, dict)
        seeds.append(begun_seed(3, 2, checkpoint, check=False))
    assert seeds == [6000, 6001, 6002, 6003]
    assert begun_seed(3, 2, checkpoint, check=True) == 7003


def made_up(of: Asked, sets: dict[int, list[tuple[int, ...]]], noise: float) -> list[Any]:
    """Repeats on servers with a law of steps of their own."""
    random = np.random.default_rng(5)
    rounds = {gamma: np.array(replayed_rounds(of, gamma)) for gamma in range(6)}

    def one(gamma: int, batch: int, requests: tuple[int, ...]) -> TimedSet:
        running = rounds_while_running(rounds[gamma][list(requests)])
        prices = [(1 + 0.1 * left) * (1 + 0.2 * gamma) for left in range(1, batch + 1)]
        first_s = 0.5 * batch
        seconds = (first_s + float(running @ prices)) * np.exp(noise * random.standard_normal())
        counted = float(rounds[gamma][list(requests)].sum()) if gamma else None
        return TimedSet(gamma, batch, requests, seconds, first_s, counted)

    return [
        [
            one(gamma, batch, requests)
            for gamma in (0, 0, 1, 2, 3, 4, 5)
            for batch in sets
            for requests in sets[batch]
        ]
        for _ in range(4)
    ]


def test_a_prediction_from_some_draft_lengths_is_what_others_measure() -> None:
    of = asked()
    timed = {batch: request_sets(batch, REQUESTS, 0) for batch in BATCHES}
    rounds = {gamma: replayed_rounds(of, gamma) for gamma in range(6)}
    repeats = [
        [one for one in repeat if one.gamma in (0, 1, 3, 5)] for repeat in made_up(of, timed, 0.0)
    ]
    times = step_times(repeats, of, known_rounds(rounds))
    (first, *_) = times
    assert (first.gamma, first.batch, first.repeat) == (0, 1, 0)
    assert first.seconds == pytest.approx(1.1)
    assert first.steps == 8 * (TOKENS - 1)
    assert first.context == 3 + TOKENS / 2
    sets = checked_sets(of, BATCHES, 3)
    predictions = predicted(times, of, sets, range(1, 6))
    rows = judged(
        predictions,
        made_up(of, sets, 0.0),
        {gamma: np.array(each) for gamma, each in rounds.items()},
    )
    assert [(row["batch"], row["gamma"]) for row in rows] == [
        (batch, gamma) for batch in BATCHES for gamma in range(1, 6)
    ]
    for row in rows:
        assert row["relative_error"] == pytest.approx(0.0, abs=1e-9)
        assert row["counted_rounds"] == row["replayed_rounds"]
        assert row["measured_error"] == pytest.approx(0.0, abs=1e-9)


def test_a_batch_whose_steps_come_out_as_nothing_is_left_out() -> None:
    """In one repeat and at one draft length sets of 4 are over before steps of 1 explain it."""
    of = asked()
    timed = {batch: request_sets(batch, REQUESTS, 0) for batch in (1, 2, 4)}
    rounds = known_rounds({gamma: replayed_rounds(of, gamma) for gamma in range(6)})
    repeats = made_up(of, timed, 0.0)
    assert batch_warnings(tuple(timed), step_times(repeats, of, rounds)) == []
    repeats[2] = [
        replace(one, seconds=one.first_s) if (one.gamma, one.batch) == (3, 4) else one
        for one in repeats[2]
    ]
    times = step_times(repeats, of, rounds)
    assert [(row.repeat, row.gamma, row.batch) for row in times] == [
        (repeat, gamma, batch) for repeat in range(4) for gamma in range(6) for batch in (1, 2)
    ]
    for row in times:
        assert row.gamma is not None
        assert row.seconds == pytest.approx((1 + 0.1 * row.batch) * (1 + 0.2 * row.gamma))
    (said,) = batch_warnings(tuple(timed), times)
    assert said.startswith("batch 4 is left out of the steps of sets")
    # Which other commands take for sets that were never timed at that batch.
    assert StepRepeats.of(times).batches == (1, 2)


def test_steps_that_took_no_time_at_all_are_refused() -> None:
    of = asked()
    rounds = known_rounds({gamma: replayed_rounds(of, gamma) for gamma in range(6)})
    repeats = made_up(of, {4: request_sets(4, REQUESTS, 0)}, 0.0)
    repeats[0][0] = replace(repeats[0][0], seconds=repeats[0][0].first_s - 1000.0)
    with pytest.raises(UnsupportedError, match=r"sets of 4 requests took no longer .* time anoth"):
        step_times(repeats, of, rounds)


def test_it_is_said_that_fewer_requests_count_as_the_least_batch() -> None:
    of = asked()
    rounds = known_rounds({gamma: replayed_rounds(of, gamma) for gamma in range(6)})
    times = step_times(made_up(of, {4: request_sets(4, REQUESTS, 0)}, 0.0), of, rounds)
    # Steps of the fewer that are left of a set take less than those of 4.
    shares = [row.seconds / (1.4 * (1 + 0.2 * row.gamma)) for row in times if row.gamma]
    assert min(shares) < 0.999
    assert max(shares) < 1 + 1e-9
    (said,) = batch_warnings((4,), times)
    assert "a step counts as one of 4, which then looks shorter than it is" in said
    assert said.endswith("time batch 1, too")


def test_the_error_of_a_measured_speedup_is_of_the_mean_over_repeats() -> None:
    of = asked()
    sets = checked_sets(of, (1,), 0)
    of_requests = {gamma: replayed_rounds(of, gamma) for gamma in range(6)}
    times = step_times(made_up(of, sets, 0.0), of, known_rounds(of_requests))
    predictions = predicted(times, of, sets, [2])
    rounds = {2: np.array(replayed_rounds(of, 2))}
    (row,) = judged(predictions, made_up(of, sets, 0.05), rounds)
    logs = []
    for repeat in made_up(of, sets, 0.05):
        plain = [one.seconds for one in repeat if one.gamma == 0]
        drafted = [one.seconds for one in repeat if one.gamma == 2]
        logs.append(np.log(sum(plain) / 2 / sum(drafted)))
    assert row["measured_speedup"] == pytest.approx(np.exp(np.mean(logs)))
    speedup = np.exp(np.mean(logs))
    assert row["measured_error"] == pytest.approx(speedup * np.std(logs, ddof=1) / 2)
    assert row["measured_low"] < row["measured_speedup"] < row["measured_high"]
    assert cast(bool, row["inside"]) == (
        row["predicted_low"] <= row["measured_speedup"] <= row["predicted_high"]
    )


@pytest.mark.parametrize(("busy_looks", "looks"), [(0, 2), (3, 5), (99, 14)])
def test_servers_are_waited_for_until_they_rest(
    busy_looks: int, looks: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Looked at every tenth of a second, for 1.3 s at most; a busy one uses all of a core."""
    monkeypatch.setattr(sets, "_RESTED_S", 1.25)
    monkeypatch.setattr(sets, "_LOOK_S", 0.0)
    asked_at: list[CpuTimes] = []

    def look() -> CpuTimes:
        at_s, used_s = 0.1 * len(asked_at), 0.1 * min(len(asked_at), busy_looks)
        asked_at.append(CpuTimes(at_s, None, used_s))
        return asked_at[-1]

    sets.rest(look)
    assert len(asked_at) == looks
