"""What killing long commands came to, as committed."""

from __future__ import annotations

from pathlib import Path

import pandas as pd

from benchmarks.kills import COMMANDS

KILLS = Path(__file__).parents[2] / "studies" / "measured" / "kills.csv"


def test_every_long_command_without_an_engine_was_killed_twenty_times() -> None:
    found = pd.read_csv(KILLS)
    known = {name for name in COMMANDS if "--engine" not in name}
    assert sorted(found["command"]) == sorted(known)
    assert (found["kills"] == 20).all()
    assert (found["problems"] == 0).all()
    # What was kept at a kill stood at the next one.  Two of them keep nothing on the way.
    kept = found[~found["command"].isin(["study", "serve"])]
    assert (kept["items_that_stood"] > 20).all()
