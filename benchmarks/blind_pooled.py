"""How far off speedups are where one profile has the passes of several calibrations.

    python -m benchmarks.blind_pooled studies/measured/blind     # two minutes

Of every battery with three calibrations of a draft, minutes apart, and a check that says how long
plain decoding took: all single calibrations, all pairs and all three together, each predicted with
the acceptance of its first, in FOLDER/pooled.csv.  Passes of several calibrations are drawn as
those of one are, and no two of different ones are neighbours.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Hashable, Iterator, Sequence
from itertools import combinations
from pathlib import Path
from typing import Any, TypeVar

import msgspec
import numpy as np
import pandas as pd

from benchmarks.blind_judged import (
    CALIBRATIONS,
    checked_drafts,
    measured_rows,
    profile_of,
    within,
)
from specsim.optimizers.workload import Workload
from specsim.predict.prediction_file import predicted_speedups
from specsim.profiles import Overhead, Profile, RunTime, read_profile

_Row = TypeVar("_Row", RunTime, Overhead)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--without", default="both-cores,busy", help="batteries to leave out")
    asked = parser.parse_args()
    found = []
    for table in sorted(asked.folder.glob("*/cells.csv")):
        battery = table.parent
        if battery.name not in asked.without.split(",") and tells_plain_steps(battery):
            found.append(pd.DataFrame(pooled_cells(battery)).assign(battery=battery.name))
            print(battery.name, flush=True)
    if not found:
        raise SystemExit(f"{asked.folder} has no battery whose check tells plain steps")
    every = pd.concat(found)
    said = said_of(pd.concat([every, every.assign(battery="all")]))
    said.to_csv(asked.folder / "pooled.csv")
    print(said.map("{:.1%}".format).to_string())


def tells_plain_steps(battery: Path) -> bool:
    """Whether its checks say how long plain decoding took, of all three calibrations."""
    cells = pd.read_csv(battery / "cells.csv")
    every = set(cells["calibration"]) == set(CALIBRATIONS)
    return every and bool(cells["measured_plain_ms"].notna().all())


def said_of(cells: pd.DataFrame) -> pd.DataFrame:
    """By battery and number of calibrations."""
    groups = cells.assign(far=cells["relative_error"].abs()).groupby(["battery", "calibrations"])
    columns = {
        "median": groups["far"].median(),
        "worst": groups["far"].max(),
        "mean": groups["relative_error"].mean(),
        "inside": groups["inside"].mean(),
    }
    return pd.DataFrame(columns)


def pooled_cells(battery: Path) -> Iterator[dict[str, Any]]:
    """Every speedup that calibrations of a draft predict, some of them together."""
    for draft in checked_drafts(battery):
        measured = measured_rows(battery, draft)
        checked = max(row["requests"] for row in measured.values())
        paths = [profile_of(battery, draft, number) for number in CALIBRATIONS]
        for several in (each for n in (1, 2, 3) for each in combinations(paths, n)):
            profile = pooled([read_profile(path) for path in several])
            workloads = Workload.all_of(profile, several[0], None)
            for said in predicted_speedups(several[0], workloads, checked).predictions:
                row = measured[said.temperature, said.gamma]
                expected = said.at(row["measured_plain_ms"])
                yield {
                    "draft": draft,
                    "calibrations": len(several),
                    "relative_error": expected.best / row["measured_speedup"] - 1,
                    "inside": within(expected, row),
                }


def pooled(profiles: Sequence[Profile]) -> Profile:
    """The first one with the run times and host times of all."""
    last = [max(each for row in one.run_times for each in row.passes) for one in profiles]
    # Two further than the last, so that it is nobody's neighbour.
    begin = np.cumsum([0, *(2 + each for each in last)]).tolist()
    return msgspec.structs.replace(
        profiles[0],
        run_times=_joined(
            [(begin[at], one.run_times) for at, one in enumerate(profiles)],
            lambda row: (row.model, row.follows, row.tokens, row.batch, row.context, row.mode),
        ),
        overhead=_joined(
            [(begin[at], one.overhead) for at, one in enumerate(profiles)],
            lambda row: (row.temperature, row.gamma, row.batch, row.context, row.mode),
        ),
    )


def _joined(
    several: Sequence[tuple[int, Sequence[_Row]]], key: Callable[[_Row], Hashable]
) -> list[_Row]:
    """Rows of one kind as one, with passes counted from where each profile's begin."""
    found: dict[Hashable, tuple[_Row, dict[str, list[Any]]]] = {}
    for begin, rows in several:
        for row in rows:
            _, lists = found.setdefault(key(row), (row, {}))
            for name, values in _lists(row, begin).items():
                lists.setdefault(name, []).extend(values)
    return [msgspec.structs.replace(row, **lists) for row, lists in found.values()]


def _lists(row: RunTime | Overhead, begin: int) -> dict[str, list[Any]]:
    lists: dict[str, list[Any]] = {
        "seconds": row.seconds,
        "plain": row.plain,
        "passes": [begin + each for each in row.passes],
    }
    if isinstance(row, RunTime):
        lists |= {"runs": row.runs or [1] * len(row.seconds), "gammas": row.gammas}
    return lists


if __name__ == "__main__":
    main()
