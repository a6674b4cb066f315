"""A trace that is gone through piece by piece gives what one gives that is held."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import specsim
from specsim.acceptance import ACCEPTANCE_LAWS, AcceptanceLaw
from specsim.checks import InvalidArgumentError
from specsim.predict.replay import streamed
from specsim.predict.replay.fixed_gamma import replay
from specsim.predict.replay.streamed import replay_streamed
from specsim.traces import TraceError, read_trace

GAMMAS = [0, 1, 3, 8]


@pytest.fixture(autouse=True)
def small_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(streamed, "LARGE", 0)
    monkeypatch.setattr(streamed, "_ROWS", 7)
    monkeypatch.setattr(streamed, "CHUNK_TOKENS", 5)


def frame(lengths: list[int], seed: int = 0) -> pd.DataFrame:
    random = np.random.default_rng(seed)
    size = sum(lengths)
    return pd.DataFrame(
        {
            "request": np.repeat([f"r{n}" for n in range(len(lengths))], lengths),
            "position": np.concatenate([np.arange(length) for length in lengths]),
            "logp_target": np.log(random.uniform(0.1, 1, size)),
            "logp_draft": np.log(random.uniform(0.1, 1, size)),
            "argmax_equal": random.integers(0, 2, size),
            "draft_rank": random.integers(1, 4, size),
        }
    )


def written(folder: Path, table: pd.DataFrame) -> Path:
    path = folder / "trace.parquet"
    table.to_parquet(path, index=False)
    return path


@settings(max_examples=30)
@given(lengths=st.lists(st.integers(1, 30), min_size=1, max_size=8), seed=st.integers(0, 99))
def test_calls_are_those_of_the_whole_trace(
    tmp_path_factory: pytest.TempPathFactory, lengths: list[int], seed: int
) -> None:
    path = written(tmp_path_factory.mktemp("trace"), frame(lengths, seed))
    found = replay_streamed(path, GAMMAS, False, "ratio-test")
    assert found is not None
    assert found.tokens == sum(lengths)
    for each in replay(read_trace(path), GAMMAS):
        assert found.calls[each.gamma] == pytest.approx(each.total_calls, rel=1e-12)


@pytest.mark.parametrize("law", ACCEPTANCE_LAWS)
def test_every_law_and_greedy_text(tmp_path: Path, law: AcceptanceLaw) -> None:
    path = written(tmp_path, frame([9, 4, 20]))
    for greedy in (False, True):
        found = replay_streamed(path, GAMMAS, greedy, law)
        (held,) = replay(read_trace(path, greedy, law), [3])
        assert found is not None
        assert found.calls[3] == pytest.approx(held.total_calls, rel=1e-12)


def test_the_answer_is_the_same(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = written(tmp_path, frame([40, 3, 60]))
    asked = {"c": 0.1, "verify_slope": 0.02}
    large = specsim.replay(path, [3, 0, 3, 5], **asked)
    monkeypatch.setattr(streamed, "LARGE", 10**9)
    held = specsim.replay(path, [3, 0, 3, 5], **asked)
    assert large.inputs == held.inputs
    for one, other in zip(large.lengths, held.lengths, strict=True):
        assert (one.gamma, one.tokens) == (other.gamma, other.tokens)
        assert one.calls == pytest.approx(other.calls, rel=1e-12)
        assert one.speedup == pytest.approx(other.speedup, rel=1e-12)


def test_what_does_not_stand_together_is_held(tmp_path: Path) -> None:
    table = frame([10, 10])
    mixed = table.sort_values("position", kind="stable")
    assert replay_streamed(written(tmp_path, mixed), GAMMAS, False, "ratio-test") is None
    found = specsim.replay(tmp_path / "trace.parquet", [3]).lengths[0]
    assert found.calls == pytest.approx(
        specsim.replay(written(tmp_path, table), [3]).lengths[0].calls, rel=1e-12
    )
    lookup = table.assign(found=1, matched=1)
    assert replay_streamed(written(tmp_path, lookup), GAMMAS, False, "ratio-test") is None
    assert replay_streamed(written(tmp_path, table), [300], False, "ratio-test") is None


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda f: f.assign(position=f["position"].replace(9, 8)), "without a gap"),
        (lambda f: f.assign(request="r0"), "without a gap"),
        (lambda f: pd.concat([f, f]), "without a gap"),
        (lambda f: f.assign(logp_draft=0.5), "logp_draft must be <= 0"),
        (
            lambda f: f.assign(logp_draft=f["logp_draft"].where(f.index != 15, 0.5)),
            r"got 0.5 in row 1 \(counted from row 14\)",
        ),
        (lambda f: f.drop(columns="logp_draft"), "missing column logp_draft"),
    ],
)
def test_what_cannot_be_is_refused_as_ever(tmp_path: Path, change: object, message: str) -> None:
    path = written(tmp_path, change(frame([10, 10])))  # type: ignore[operator]
    with pytest.raises(TraceError, match=message) as refused:
        specsim.replay(path, [3])
    assert "\n" not in str(refused.value)


def test_a_damaged_file_is_one_line(tmp_path: Path) -> None:
    path = written(tmp_path, frame([300] * 20))
    whole = path.read_bytes()
    for content in (b"", whole[:-9], whole[: len(whole) // 2], whole.replace(b"PAR1", b"PAR2")):
        path.write_bytes(content)
        with pytest.raises(TraceError) as refused:
            specsim.replay(path, [3])
        assert "\n" not in str(refused.value)


def test_work_of_hours_is_refused_before_it_is_begun(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import importlib

    call = importlib.import_module("specsim.api.replay")
    monkeypatch.setattr(call, "_MOST_WORK", 1000)
    path = written(tmp_path, frame([50] * 10))
    with pytest.raises(InvalidArgumentError, match=r"gamma: 3 draft lengths up to 8, of 500 tok"):
        specsim.replay(path, [1, 3, 8])


def test_large_is_more_rows_than_are_held(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = written(tmp_path, frame([10, 10]))
    told: list[int] = []

    def found(gammas: list[int]) -> bool:
        return replay_streamed(path, gammas, False, "ratio-test", told.append) is not None

    monkeypatch.setattr(streamed, "LARGE", 20)
    assert not found([3])
    assert told == []
    monkeypatch.setattr(streamed, "LARGE", 19)
    assert found([3])
    assert told == [20]
    assert found([3, 256])
    assert not found([3, 257])
    assert replay_streamed(path.rename(tmp_path / "trace.csv"), [3], False, "ratio-test") is None


def test_pieces_are_as_the_whole_at_every_length_of_a_request(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Requests end at every place of a piece, and of what is read at once."""
    path = written(tmp_path, frame([*range(1, 16), 40]))
    wanted = {each.gamma: each.total_calls for each in replay(read_trace(path), GAMMAS)}
    for chunk, rows in ((1, 1000), (2, 5), (8, 1), (9, 5), (10, 1000), (1000, 7)):
        monkeypatch.setattr(streamed, "CHUNK_TOKENS", chunk)
        monkeypatch.setattr(streamed, "_ROWS", rows)
        found = replay_streamed(path, GAMMAS, False, "ratio-test")
        assert found is not None
        assert found.calls == pytest.approx(wanted, rel=1e-12)
