"""How far speedups that were predicted before are off together, and calibrations from each other.

    python -m benchmarks.blind_drift studies/measured/blind --without \\
        quiet-plain,quiet-runs,quiet-blocks

Over all reports of ``benchmarks/blind_accuracy.py`` in quiet* below the folder.  All predictions of
a draft are off together, which no repeat of a calibration shows, and calibrations differ at one
plain step: both are in ``specsim.profiles`` and ``specsim.predict.elasticity`` as the command above
says them, so that the batteries it leaves out judge them.
"""

from __future__ import annotations

import argparse
from collections.abc import Collection
from pathlib import Path

import numpy as np
import pandas as pd

from benchmarks.blind_accuracy import summary


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--without", default="", help="batteries to leave out")
    asked = parser.parse_args()
    without = asked.without.split(",")
    print_drift(asked.folder, without)
    found = states(asked.folder)
    print_states(found[~found["battery"].isin(without)])


def together(cells: pd.DataFrame) -> pd.Series:
    """By draft the square of how far its predictions are off in the mean over calibrations and
    draft lengths, as a logarithm, less the check's own error; predicted as if plain decoding took
    as long as in the calibration, at temperature 0, where calls are known exactly.  The error is
    taken as common to all draft lengths, as plain decoding is.
    """
    greedy = cells[cells["temperature"] == 0]
    off = np.log(greedy["speedup_at_profile_plain"] / greedy["measured_speedup"])
    known = greedy["measured_error"] / greedy["measured_speedup"]
    return off.groupby(greedy["draft"]).mean() ** 2 - known.groupby(greedy["draft"]).mean() ** 2


def print_drift(folder: Path, without: Collection[str]) -> None:
    batteries = {each.parent.name: pd.read_csv(each) for each in folder.glob("quiet*/cells.csv")}
    for each in without:
        batteries.pop(each, None)
    if not batteries:
        raise SystemExit(f"{folder} has no quiet*/cells.csv that is not left out")
    squares = {name: together(cells) for name, cells in sorted(batteries.items())}
    for name, found in squares.items():
        print(f"{name}: predictions of a draft are off together by {_root(found):.1%}")
    print(f"in the root mean square of all: {_root(pd.concat(squares.values())):.1%}")
    # Each battery has a check of its own.
    every = [cells.assign(draft=cells["draft"] + name) for name, cells in batteries.items()]
    said = summary(pd.concat(every).to_dict("records"))
    print(
        f"all {sum(map(len, every))} cells: median {said['median']:.1%}, worst "
        f"{said['worst']:.1%}, mean {said['mean']:+.2%}; 95 % intervals hold {said['inside']:.1%}; "
        f"recommended length within 2 % of the best in {said['within_2_percent_of_best']:.0%}, its "
        f"own prediction {said['chosen_mean']:+.2%} (standard error "
        f"{said['chosen_mean_error']:.2%})"
    )
    for temperature, part in pd.concat(every).groupby("temperature"):
        print(f"at temperature {temperature:g} intervals hold {part['inside'].mean():.1%}")


def states(folder: Path) -> pd.DataFrame:
    """Of every calibration at temperature 0: how long a token of plain decoding took, and how far
    its speedups are, as logarithms, from the mean of the calibrations of that draft: as they are,
    ``apart``, and all moved to one plain step, ``apart_at_plain``; of which repeats of run times
    explain ``repeats_error``.
    """
    rows = []
    for table in sorted(folder.glob("quiet*/cells.csv")):
        cells = pd.read_csv(table).query("temperature == 0")
        for (draft, number), part in cells.groupby(["draft", "calibration"]):
            rows.append(
                {
                    "battery": table.parent.name,
                    "draft": draft,
                    "calibration": number,
                    "plain_ms": part["profile_plain_ms"].mean(),
                    "speedup": np.log(part["speedup_at_profile_plain"]).mean(),
                    "elasticity": part["elasticity"].mean(),
                    "repeats_error": part["repeats_error"].mean(),
                }
            )
    found = pd.DataFrame(rows)
    groups = [found["battery"], found["draft"]]

    def apart(values: pd.Series) -> pd.Series:
        return values - values.groupby(groups).transform("mean")

    far = apart(np.log(found["plain_ms"]))
    found["apart"] = apart(found["speedup"])
    found["apart_at_plain"] = apart(found["speedup"] - found["elasticity"] * far)
    return found


def left_at_plain(found: pd.DataFrame) -> float:
    """How far one calibration is from another at one plain step, as a standard deviation, beyond
    what their repeats explain.
    """
    explained = (found["repeats_error"] ** 2).mean()
    return float(np.sqrt(2 * max(_scatter(found, "apart_at_plain") ** 2 - explained, 0.0)))


def print_states(found: pd.DataFrame) -> None:
    for (battery, draft), part in found.groupby(["battery", "draft"]):
        columns = zip(part["plain_ms"], part["apart"], part["apart_at_plain"], strict=True)
        said = ", ".join(f"{off:+.1%} ({left:+.1%}) at {ms:.2f} ms" for ms, off, left in columns)
        print(f"{battery}, {draft}: {said} a token of plain decoding")
    print(
        f"calibrations of a draft scatter by {_scatter(found, 'apart'):.2%}, and by "
        f"{_scatter(found, 'apart_at_plain'):.2%} at one plain step, in brackets; repeats explain "
        f"{_root(found['repeats_error'] ** 2):.2%} of that, and from one to another "
        f"{left_at_plain(found):.1%} is left"
    )


def _scatter(found: pd.DataFrame, name: str) -> float:
    """Within drafts; every mean of a draft's calibrations takes a degree of freedom."""
    freedom = len(found) - found.groupby(["battery", "draft"]).ngroups
    return float(np.sqrt((found[name] ** 2).sum() / freedom))


def _root(squares: pd.Series) -> float:
    return float(np.sqrt(max(squares.mean(), 0.0)))


if __name__ == "__main__":
    main()
