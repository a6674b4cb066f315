"""What a run has kept goes only once its answer is out."""

from __future__ import annotations

import tempfile
from pathlib import Path

import pytest

from specsim import cli
from specsim.api.answering import answering, once_answered
from specsim.checkpoint import Checkpoint


def test_what_waits_is_done_once_the_answer_is_out() -> None:
    done: list[str] = []
    once_answered(lambda: done.append("outside"))
    with answering():
        once_answered(lambda: done.append("first"))
        once_answered(lambda: done.append("second"))
        assert done == ["outside"]
    assert done == ["outside", "first", "second"]


def test_without_an_answer_it_is_not_done() -> None:
    done: list[str] = []

    def fails() -> None:
        with answering():
            once_answered(lambda: done.append("lost"))
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        fails()
    once_answered(lambda: done.append("outside again"))
    assert done == ["outside again"]


@pytest.mark.parametrize("error", [OSError(28, "No space left on device"), BrokenPipeError()])
def test_a_command_that_cannot_say_its_answer_keeps_what_it_measured(
    error: OSError, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A run that writes no file; one that writes one has its result there."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    monkeypatch.setattr(cli, "_give_up_stdout", lambda: None)  # which is pytest's own
    unsaid, wrote = Checkpoint.temporary("a"), Checkpoint.beside(tmp_path / "out.json", "a")

    def measures(fails: bool) -> None:
        for each in (unsaid, wrote):
            each.keep_json("sample.json", lambda: 1)
            each.done()
        if fails:
            raise error

    monkeypatch.setattr(cli.specsim, "main", lambda *_, **__: measures(fails=True))
    assert cli._status([]) in (2, 141)
    assert (unsaid.begun, wrote.folder.exists()) == (True, False)
    monkeypatch.setattr(cli.specsim, "main", lambda *_, **__: measures(fails=False))
    assert cli._status([]) == 0
    assert not unsaid.folder.exists()
