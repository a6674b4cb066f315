"""Run times from real decoding: what is kept of it, and that a killed calibration goes on."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from calibrate.decode.engine import Decoded, DecodeRequest, Runs
from calibrate.measure import timing
from calibrate.measure.timing import TimedRows, TimedText, host_seconds, runs, time_decoding
from calibrate.models.sampling import Sampling
from specsim.checkpoint import Checkpoint


def ran(*each: tuple[int, float]) -> Runs:
    return Runs(Counter(width for width, _ in each), sum(took for _, took in each), list(each))


def plainly(step_s: float, tokens: int) -> Decoded:
    target = ran(*[(1, step_s)] * tokens)
    return Decoded(list(range(tokens)), [0] * tokens, [0] * tokens, target, {}, [1.5] * tokens)


# Two blocks of two drafts, the first accepted whole, and one that the limit made shorter.
DECODED = Decoded(
    tokens=[5, 6, 7, 8, 9, 10],
    accepted=[2, 1, 0],
    drafted=[2, 2, 0],
    target=ran((3, 4.0), (3, 5.0), (1, 3.0)),
    drafts={"draft": ran((1, 1.0), (1, 0.5), (2, 1.2), (1, 0.6))},
    block_s=[7.5, 8.0, 4.5],
)


def test_every_run_of_a_whole_block_is_told_by_what_ran_before() -> None:
    # The first block begins with 62 tokens in the cache, the second with 65: another bin.
    assert list(runs(DECODED, 2, prompt_tokens=63)) == [
        (("draft", "target", 1, 32), 1.0),
        (("draft", "draft", 1, 32), 0.5),
        (("target", "draft", 3, 32), 4.0),
        (("draft", "target", 2, 96), 1.2),
        (("draft", "draft", 1, 96), 0.6),
        (("target", "draft", 3, 96), 5.0),
    ]


def test_a_lookup_has_target_runs_of_every_width() -> None:
    """Nothing was found at first, then two tokens of three asked for, then three."""
    decoded = Decoded(
        tokens=[5, 6, 7, 8, 9, 10, 11],
        accepted=[0, 1, 3],
        drafted=[0, 2, 3],
        target=ran((1, 3.0), (3, 4.0), (4, 5.0)),
        drafts={},
        block_s=[5.0, 7.0, 8.0],
    )
    assert list(runs(decoded, 3, prompt_tokens=10)) == [
        (("target", "target", 3, 32), 4.0),
        (("target", "target", 4, 32), 5.0),
    ]


def test_runs_are_kept_beside_plain_ones_of_the_same_context() -> None:
    rows = TimedRows(1.0)
    rows.add(4, 63, 2, DECODED, [plainly(2.0, 8)])
    found = {
        (row["model"], row["tokens"], row["context"]): (row["seconds"], row["plain"], row["passes"])
        for row in rows.found["run_times"]
    }
    assert found["target", 3, 96] == ([5.0], [2.0], [4])
    (overhead,) = rows.found["overhead"]
    # 15.5 seconds less 9 of the target and 3.3 of the draft, in two calls; the third has no room.
    assert overhead["seconds"] == [pytest.approx(3.2 / 2)]
    assert (overhead["gamma"], overhead["temperature"], overhead["passes"]) == (2, 1.0, [4])


def test_what_a_run_without_a_draft_takes_longer_is_host_time() -> None:
    """Of a lookup that finds nothing where there is room for a draft, and then one token."""
    decoded = Decoded(
        tokens=[5, 6, 7],
        accepted=[0, 1],
        drafted=[0, 1],
        target=ran((1, 3.0), (2, 4.0)),
        drafts={},
        block_s=[3.5, 4.25],
    )
    assert list(host_seconds(decoded, 1, 10, lambda _: 2.0)) == [pytest.approx(1.5), 0.25]


def test_where_no_block_has_room_all_are_of_the_host() -> None:
    assert len(list(host_seconds(DECODED, 8, 63, lambda _: 2.0))) == 3


def test_a_repeat_says_how_many_runs_it_is_the_mean_of() -> None:
    rows = TimedRows(0.0)
    rows.add(0, 10, 2, DECODED, [plainly(2.0, 8)])
    found = {
        (row["model"], row["follows"], row["tokens"]): (row["seconds"], row["runs"])
        for row in rows.found["run_times"]
    }
    assert found["target", "draft", 3] == ([4.5], [2])
    assert found["draft", "target", 2] == ([1.2], [1])


def test_decoding_begins_at_the_start_and_at_the_end_of_a_text_by_turns() -> None:
    text = TimedText([1, 2], [3, 4, 5, 6])
    assert [text.begun(number, 3) for number in (0, 1, 2)] == [[], [3], []]
    assert text.begun(1, 9) == []


def test_nothing_is_timed_behind_the_end_of_a_text(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of one that is shorter than what is decoded, as much as it has, and a block at least."""
    limits: list[int] = []

    class Pretended:
        device = "cpu"

    def decode(_: Any, *given: Any, **more: Any) -> Any:
        request = next(each for each in given if isinstance(each, DecodeRequest))
        limits.append(request.limit)

        class Finished:
            def finish(self) -> Decoded:
                return plainly(1.0, 4)

        return Finished()

    monkeypatch.setattr(timing, "plain", decode)
    monkeypatch.setattr(timing, "speculative", decode)
    monkeypatch.setattr(timing, "generator", lambda *_: None)
    for written, most in ((9, 9), (2, 3), (40, 16)):
        limits.clear()
        texts = [[TimedText([1, 2], [3] * written)]]
        folder = Checkpoint(tmp_path / str(written))
        time_decoding(Pretended(), None, texts, [Sampling(0.0)], 2, 16, 1, 0, folder)  # type: ignore[arg-type]
        assert max(limits) == most


def test_passes_that_were_timed_are_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Killed in the third pass: two are there, and the resumed run measures one and no more."""
    decoded = 0

    class Pretended:
        device = "cpu"

    def decode(*given: Any, **more: Any) -> Any:
        nonlocal decoded
        if decoded == killed_at:
            raise KeyboardInterrupt
        decoded += 1

        class Finished:
            def finish(self) -> Decoded:
                return plainly(float(decoded), 4)

        return Finished()

    monkeypatch.setattr(timing, "plain", decode)
    monkeypatch.setattr(timing, "speculative", decode)
    monkeypatch.setattr(timing, "generator", lambda *_: None)
    asked: Any = (Pretended(), None, [[TimedText([1, 2], [3] * 9)]], [Sampling(0.0)], 2, 4, 3, 0)
    # Each pass decodes plainly three times and with both draft lengths once.
    killed_at = 12
    with pytest.raises(KeyboardInterrupt):
        time_decoding(*asked, Checkpoint(tmp_path / "killed"))
    decoded, killed_at = 10, -1
    waited = list[int]()
    resumed = time_decoding(*asked, Checkpoint(tmp_path / "killed"), wait=waited.append)
    assert decoded == 15
    assert waited == [2]
    decoded = 0
    assert time_decoding(*asked, Checkpoint(tmp_path / "whole")) == resumed
    assert {tuple(row["passes"]) for row in resumed["overhead"]} == {(0, 0, 1, 1, 2, 2), (0, 1, 2)}


def test_passes_are_spread_evenly(monkeypatch: pytest.MonkeyPatch) -> None:
    """Four over 30 s, of which each takes 2 s and the third 15 s: the fourth is late then, and is
    not waited for.  What is waited for is no measurement.
    """
    now, begun, said = 100.0, list[float](), list[tuple[str, int, int]]()

    def sleep(seconds: float) -> None:
        nonlocal now
        now += seconds

    monkeypatch.setattr(timing.time, "monotonic", lambda: now)
    monkeypatch.setattr(timing.time, "sleep", sleep)
    wait = timing.spread_evenly(30.0, 4, lambda *told: said.append(told))
    for number, seconds in enumerate((2.0, 2.0, 15.0, 2.0)):
        wait(number)
        begun.append(now)
        now += seconds
    assert begun == [100.0, 110.0, 120.0, 135.0]
    waited = [(words, number, 4) for number in (1, 2) for words in (timing.WAITING, "run times")]
    assert said == waited
    # All at once, as is usual, and a run that goes on with its last pass.
    for over_s, passes, first in ((0.0, 4, 0), (30.0, 4, 3), (30.0, 1, 0)):
        before = now
        wait = timing.spread_evenly(over_s, passes, lambda *told: said.append(told))
        for number in range(first, passes):
            wait(number)
        assert now == before
    assert said == waited
