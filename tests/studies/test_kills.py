"""What killing long commands came to, as committed."""

from __future__ import annotations

import json
from pathlib import Path

import pandas as pd

from benchmarks.kills import COMMANDS, Place, _has_said

KILLS = Path(__file__).parents[2] / "studies" / "measured" / "kills.csv"


def test_every_long_command_was_killed_twenty_times() -> None:
    found = pd.read_csv(KILLS)
    assert sorted(found["command"]) == sorted(COMMANDS)
    assert (found["kills"] == 20).all()
    assert (found["problems"] == 0).all()
    # What was kept at a kill stood at the next one.  Two of them keep nothing on the way.
    kept = found.set_index("command")["items_that_stood"].drop(["study", "serve"])
    # Of an engine that counts drafts an item is all of a draft length, and a check of one has three
    # passes.
    assert kept.pop("validate --engine") > 0
    assert kept.pop("validate --blind --engine") >= 13
    assert (kept > 20).all()


def test_items_that_are_gone_need_a_result(tmp_path: Path) -> None:
    """A command whose items are all gone at a kill must have said what it found."""
    place = Place(COMMANDS["validate"], tmp_path / "1", tmp_path)
    place.folder.mkdir()
    rows = [{"gamma": 1, "measured_calls": 5, "measured_speedup": 1.2}]
    said = [{"gamma": 1, "measured_calls": 5}]
    assert not _has_said(place, said)  # nothing was printed
    for printed, has_said in (("", False), ('{"answer": {"rows": [', False), ("whole", True)):
        whole = json.dumps({"answer": {"rows": rows}})
        place.folder.with_suffix(".out").write_text(whole if printed == "whole" else printed)
        assert _has_said(place, said) is has_said
