"""The number of threads that a trial finds: clearly faster, or as few as will do."""

from __future__ import annotations

import importlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

from calibrate.models import threads
from calibrate.models.place import MOST_THREADS, find_place
from calibrate.models.threads import fewest_of_the_fastest, keep_threads, set_fastest_threads
from specsim.api.models import Models
from specsim.checkpoint import Checkpoint


@pytest.fixture(autouse=True)
def _as_before() -> Iterator[None]:
    before = torch.get_num_threads()
    yield
    torch.set_num_threads(before)


@pytest.mark.parametrize(
    ("seconds", "best"),
    [
        ({1: [1.0, 1.0, 9.0], 2: [0.95, 0.95, 0.95]}, 1),  # no tie is broken by noise
        ({1: [1.0], 2: [0.6], 4: [0.58]}, 2),
        ({1: [1.0], 2: [0.8], 4: [0.5]}, 4),
        ({1: [1.0], 2: [3.0]}, 1),
        ({4: [0.5], 1: [1.0], 2: [0.5]}, 2),
    ],
)
def test_more_threads_must_be_clearly_faster(seconds: dict[int, list[float]], best: int) -> None:
    assert fewest_of_the_fastest(seconds) == best


def test_a_model_gets_what_the_trial_finds(
    tiny_family: dict[str, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    tried: list[int] = []

    def timed(step: Any, counts: list[int]) -> dict[int, list[float]]:
        step()
        tried.extend(counts)
        return {1: [3.0], 2: [1.0], 4: [1.0], 6: [1.0]}

    monkeypatch.setattr(threads, "_MOST", 6)
    monkeypatch.setattr(threads, "_timed", timed)
    names = str(tiny_family["target"]), str(tiny_family["draft"])
    Models(*names, device="cpu").load()
    assert torch.get_num_threads() == 2
    assert tried == [1, 2, 4, 6]
    Models(*names, device="cpu", threads=1).load()
    assert torch.get_num_threads() == 1, "what is asked for is not tried"
    assert len(tried) == 4


def test_the_trial_really_steps(
    tiny_family: dict[str, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(threads, "_MOST", 2)
    monkeypatch.setattr(threads, "_SECONDS", 0.01)
    pair = Models(str(tiny_family["target"]), str(tiny_family["draft"]), device="cpu").load()
    assert set_fastest_threads(pair.target.model) == torch.get_num_threads()
    assert torch.get_num_threads() in (1, 2)


def test_the_most_is_what_torch_takes_by_itself() -> None:
    """And not what an earlier call asked for, before this module was needed."""
    find_place("cpu", None, MOST_THREADS + 1)
    assert importlib.reload(threads)._MOST == MOST_THREADS


def test_a_run_that_was_killed_keeps_its_threads(tmp_path: Path) -> None:
    checkpoint = Checkpoint(tmp_path / "work")
    said: list[str] = []

    def progress(activity: str, done: int, total: int) -> None:
        assert total == 0, "it is a note"
        said.append(activity)

    torch.set_num_threads(2)
    assert keep_threads(checkpoint, progress) == 2
    assert keep_threads(checkpoint, progress) == 2
    assert not said
    torch.set_num_threads(1)
    assert keep_threads(checkpoint, progress) == 2
    assert torch.get_num_threads() == 2
    (line,) = said
    assert line.startswith("goes on with threads 2, as it began, not 1; to measure with 1, remove ")
    assert str(checkpoint.folder) in line
