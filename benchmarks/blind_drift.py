"""How far speedups that were predicted before are off together, and calibrations from each other.

    python -m benchmarks.blind_drift studies/measured/blind --without \\
        quiet-plain,quiet-runs,quiet-blocks,quiet-slow

Over all reports of ``benchmarks/blind_accuracy.py`` in quiet* below the folder, and in all of them
whether speedups follow plain decoding as calibrations tell.  All predictions of
a draft are off together, which no repeat of a calibration shows: ``specsim.profiles`` has that of
the batteries that the command above leaves in, so that the others judge it.  Where a check says how
long plain decoding took, predictions are moved there, by elasticities that passes tell: how far
those are off is printed of all such batteries, beside what is explained of it, and how far
elasticities lie from 1, which ``specsim.predict.elasticity`` takes for granted.
"""

from __future__ import annotations

import argparse
from collections.abc import Collection
from pathlib import Path

import numpy as np
import pandas as pd
from scipy.stats import multivariate_normal

from benchmarks.blind_judged import summary
from specsim.intervals import Interval
from specsim.predict.elasticity import pass_slopes
from specsim.profiles import read_profile

# An elasticity is told well with this standard error, and this chance that nothing is told.
_KNOWN, _BY_CHANCE = 0.5, 0.2
# Of a speedup: enough for a few per cent to be seen.
_FOLLOWED = 0.15


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--without", default="", help="batteries to leave out")
    asked = parser.parse_args()
    without = asked.without.split(",")
    print_drift(asked.folder, without)
    found = states(asked.folder)
    print_states(found[~found["battery"].isin(without)])
    known = moved(asked.folder)
    print_moved(known[~known["battery"].isin(without)])
    print_left(asked.folder, without)
    likely = likely_together(asked.folder, without)
    print(
        f"of all of these, likeliest for all lengths of a calibration together: {likely.best:.1%} "
        f"({likely.low:.1%} to {likely.high:.1%})"
    )
    print_followed(followed(asked.folder, without))
    print_told(told(asked.folder, without))


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
    explain ``repeats_error``, and what elasticities are not sure of ``elasticity_error``.
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
                    "elasticity_error": part["elasticity_error"].mean(),
                }
            )
    found = pd.DataFrame(rows)
    groups = [found["battery"], found["draft"]]

    def apart(values: pd.Series) -> pd.Series:
        return values - values.groupby(groups).transform("mean")

    far = apart(np.log(found["plain_ms"]))
    found["apart"] = apart(found["speedup"])
    found["apart_at_plain"] = apart(found["speedup"] - found["elasticity"] * far)
    found["elasticity_error"] *= far.abs()
    return found


def left_at_plain(found: pd.DataFrame) -> float:
    """How far one calibration is from another at one plain step, as a standard deviation, beyond
    what their repeats and elasticities explain.
    """
    explained = (found["repeats_error"] ** 2 + found["elasticity_error"] ** 2).mean()
    return float(np.sqrt(2 * max(_scatter(found, "apart_at_plain") ** 2 - explained, 0.0)))


def print_states(found: pd.DataFrame) -> None:
    for (battery, draft), part in found.groupby(["battery", "draft"]):
        columns = zip(part["plain_ms"], part["apart"], part["apart_at_plain"], strict=True)
        said = ", ".join(f"{off:+.1%} ({left:+.1%}) at {ms:.2f} ms" for ms, off, left in columns)
        print(f"{battery}, {draft}: {said} a token of plain decoding")
    print(
        f"calibrations of a draft scatter by {_scatter(found, 'apart'):.2%}, and by "
        f"{_scatter(found, 'apart_at_plain'):.2%} at one plain step, in brackets; repeats explain "
        f"{_root(found['repeats_error'] ** 2):.2%} of that, elasticities "
        f"{_root(found['elasticity_error'] ** 2):.2%}, and from one to another "
        f"{left_at_plain(found):.1%} is left"
    )


def moved(folder: Path) -> pd.DataFrame:
    """Of every draft whose check says how long plain decoding took, at temperature 0, as logarithms
    and means over calibrations and draft lengths: how much longer that was than in the calibration,
    ``far``, how far the prediction for it is ``off``, and which square of that the check's own
    error, the repeats of run times and what elasticities are not sure of explain, ``explained``.
    Elasticities of calibrations may be off alike.
    """
    rows = []
    for table in sorted(folder.glob("quiet*/cells.csv")):
        cells = pd.read_csv(table).query("temperature == 0 and measured_plain_ms > 0")
        for draft, part in cells.groupby("draft"):
            own = (part["measured_error"] / part["measured_speedup"]).mean()
            repeats = part.groupby("calibration")["repeats_error"].mean()
            far = np.log(part["measured_plain_ms"] / part["profile_plain_ms"])
            unsure = (part["elasticity_error"] * far).mean()
            rows.append(
                {
                    "battery": table.parent.name,
                    "draft": draft,
                    "far": far.mean(),
                    "off": np.log(part["predicted_speedup"] / part["measured_speedup"]).mean(),
                    "explained": own**2 + (repeats**2).sum() / len(repeats) ** 2 + unsure**2,
                }
            )
    return pd.DataFrame(rows, columns=["battery", "draft", "far", "off", "explained"])


def over_explained(found: pd.DataFrame) -> float:
    """How far predictions are off, over what is explained of it, in the root mean square."""
    return _root(found["off"] ** 2 / found["explained"])


def print_moved(found: pd.DataFrame) -> None:
    for battery, part in found.groupby("battery"):
        columns = zip(part["draft"], part["far"], part["off"], strict=True)
        said = ", ".join(f"{draft} {off:+.1%} at {far:+.1%}" for draft, far, off in columns)
        print(f"{battery}, predicted for plain steps that much longer: {said}")
    if len(found):
        print(f"that is {over_explained(found):.2f} of what is explained, in the root mean square")


def left_at_check(cells: pd.DataFrame) -> tuple[float, float]:
    """What predictions for the check's plain step are off by at temperature 0, beyond what the
    check's own error, repeats and elasticities explain, as a standard deviation of the logarithm:
    of one speedup, and of all lengths of a calibration together; 0 where all is explained.
    """
    cells = cells.query("temperature == 0")
    far = np.log(cells["measured_plain_ms"] / cells["profile_plain_ms"])
    off = np.log(cells["predicted_speedup"] / cells["measured_speedup"])
    explained = (
        (cells["measured_error"] / cells["measured_speedup"]) ** 2
        + cells["repeats_error"] ** 2
        + (cells["elasticity_error"] * far) ** 2
    )
    by = [cells["draft"], cells["calibration"]]
    together = off.groupby(by).mean() ** 2 - explained.groupby(by).mean()
    return _root(off**2 - explained), _root(together)


def print_left(folder: Path, without: Collection[str]) -> None:
    for table in sorted(folder.glob("*/cells.csv")):
        cells = pd.read_csv(table)
        if table.parent.name not in without and cells["measured_plain_ms"].notna().all():
            one, together = left_at_check(cells)
            print(
                f"{table.parent.name}: beyond what is explained, speedups at the check's plain "
                f"step are off by {one:.1%}, all lengths of a calibration together by "
                f"{together:.1%}"
            )


def likely_together(folder: Path, without: Collection[str] = ()) -> Interval[float]:
    """The likeliest standard deviation of what all predictions of a calibration are off by together
    at the check's plain step, beyond what repeats, elasticities and the check explain, at
    temperature 0, and all that are within 1.92 of its log-likelihood, which is 95 %.

    As logarithms and normal; the calibrations of a draft share the error of its check.
    """
    known = []
    for table in sorted(folder.glob("*/cells.csv")):
        cells = pd.read_csv(table).query("temperature == 0 and measured_plain_ms > 0")
        if table.parent.name not in without:
            known += [_off_and_explained(part) for _, part in cells.groupby("draft")]
    left = np.arange(0.0, 0.05, 1e-4)
    likelihoods = np.array([sum(_likelihood(each, *one) for one in known) for each in left])
    within = left[likelihoods >= likelihoods.max() - 1.92]
    return Interval(within[0], left[likelihoods.argmax()], within[-1])


def _off_and_explained(part: pd.DataFrame) -> tuple[np.ndarray, np.ndarray]:
    """Of the cells of one draft, in means over draft lengths, how far each calibration is off, and
    the covariance that is explained.
    """
    far = np.log(part["measured_plain_ms"] / part["profile_plain_ms"])
    rows = pd.DataFrame(
        {
            "off": np.log(part["predicted_speedup"] / part["measured_speedup"]),
            "repeats": part["repeats_error"],
            "unsure": part["elasticity_error"] * far,
        }
    )
    means = rows.groupby(part["calibration"]).mean()
    check = (part["measured_error"] / part["measured_speedup"]).mean()
    explained = np.diag(means["repeats"] ** 2 + means["unsure"] ** 2) + check**2
    return means["off"].to_numpy(), explained


def _likelihood(left: float, off: np.ndarray, explained: np.ndarray) -> float:
    covariance = explained + left**2 * np.eye(len(off))
    return float(multivariate_normal.logpdf(off, cov=covariance))


def followed(folder: Path, without: Collection[str] = ()) -> pd.DataFrame:
    """Of every calibration that tells an elasticity of the speedup above 0.15, in the mean over its
    cells, and whose check says how long plain decoding took, in any battery: as logarithms, how
    much longer that was, ``far``, how far the prediction for the calibration's plain step is
    ``off``, and ``off_moved`` the one for the check's; and the ``elasticity``.
    """
    rows = []
    for table in sorted(folder.glob("*/cells.csv")):
        if table.parent.name in without:
            continue
        cells = pd.read_csv(table).query("measured_plain_ms > 0")
        for names, part in cells.groupby(["draft", "calibration"]):
            if (elasticity := part["elasticity"].mean()) <= _FOLLOWED:
                continue
            measured = np.log(part["measured_speedup"])
            far = np.log(part["measured_plain_ms"] / part["profile_plain_ms"])
            rows.append(
                {
                    "battery": table.parent.name,
                    **dict(zip(("draft", "calibration"), names, strict=True)),
                    "far": far.mean(),
                    "off": (np.log(part["speedup_at_profile_plain"]) - measured).mean(),
                    "off_moved": (np.log(part["predicted_speedup"]) - measured).mean(),
                    "elasticity": elasticity,
                }
            )
    return pd.DataFrame(
        rows,
        columns=["battery", "draft", "calibration", "far", "off", "off_moved", "elasticity"],
    )


def slopes(found: pd.DataFrame) -> tuple[float, float]:
    """What speedups followed plain steps with, by least squares through the origin, and what was
    told of that, with the same weights.
    """
    weights = found["far"] ** 2
    seen = -(found["off"] * found["far"]).sum() / weights.sum()
    return float(seen), float(np.average(found["elasticity"], weights=weights))


def print_followed(found: pd.DataFrame) -> None:
    if not len(found):
        return
    seen, said = slopes(found)
    print(
        f"{len(found)} calibrations tell an elasticity of the speedup above {_FOLLOWED:g}: their "
        f"predictions are {_root(found['off'] ** 2):.1%} off, and moved to the check's plain step "
        f"{_root(found['off_moved'] ** 2):.1%} (root mean squares); speedups followed it with "
        f"{seen:.2f}, and told was {said:.2f}"
    )


def told(folder: Path, without: Collection[str] = ()) -> pd.DataFrame:
    """What the passes of every calibration say of the elasticity of a kind of run, with its error,
    and how likely it is that they say nothing; the host's at each temperature.
    """
    rows = []
    for path in sorted(folder.glob("quiet*/*-[0-9].json")):
        if path.parent.name in without:
            continue
        profile = read_profile(path)
        for number, measured in enumerate(profile.acceptance):
            target, draft, host = pass_slopes(
                profile.run_times, profile.overhead, measured.sampling.temperature
            )
            kinds = {"host": host}
            if not number:  # the same at every temperature
                kinds["target"] = target
                if not profile.by_lookup:
                    kinds["draft"] = draft
            battery = {"battery": path.parent.name}
            rows += [{**battery, "kind": kind, **vars(each)} for kind, each in kinds.items()]
    return pd.DataFrame(rows, columns=["battery", "kind", "best", "error", "by_chance"])


def around_one(found: pd.DataFrame) -> float:
    """Standard deviation about 1 of what was told well, without its own error."""
    known = _told_well(found)
    return _root((known["best"] - 1) ** 2 - known["error"] ** 2)


def _told_well(found: pd.DataFrame) -> pd.DataFrame:
    return found[(found["error"] < _KNOWN) & (found["by_chance"] < _BY_CHANCE)]


def print_told(found: pd.DataFrame) -> None:
    for kind, part in found.groupby("kind"):
        known = _told_well(part)
        print(
            f"elasticity of {kind}: told well by {len(known)} of {len(part)} calibrations and "
            f"temperatures, {known['best'].mean():.2f} in the mean, {around_one(part):.2f} about 1"
        )
    if len(found):
        print(f"of all: {around_one(found):.2f} about 1")
    for battery, part in found[found["kind"] == "target"].groupby("battery"):
        print(f"{battery}: {len(_told_well(part))} of {len(part)} tell the target's well")


def _scatter(found: pd.DataFrame, name: str) -> float:
    """Within drafts; every mean of a draft's calibrations takes a degree of freedom."""
    freedom = len(found) - found.groupby(["battery", "draft"]).ngroups
    return float(np.sqrt((found[name] ** 2).sum() / freedom))


def _root(squares: pd.Series) -> float:
    return float(np.sqrt(max(squares.mean(), 0.0)))


if __name__ == "__main__":
    main()
