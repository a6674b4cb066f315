"""What rows of predicted beside measured say: how far off they are, and what fails.

Counts must be what the replay says, exactly at temperature 0 and statistically elsewhere; speedups
may be no further off than the intervals of both explain, or than a tolerance.  Rows are those of
``calibrate.validate.speedups``, ``schemes``, ``batching`` and ``engine``.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean, median
from typing import Any

from scipy.stats import norm, t

from calibrate.validate.schemes import SHARE
from specsim.api.validation import Tolerance
from specsim.checks import significant
from specsim.intervals import FALSE_ALARM, Interval, apart, chance_limit
from specsim.laws import TARGET

Row = Mapping[str, Any]

# Speed that following the prediction may cost in a cell, against the best that was measured: less
# is no reason to choose again.
_MOST_LOSS = 0.02
_PLAIN = ("measured", "profile")


@dataclass(frozen=True)
class Findings:
    """errors : sentences on how close the predictions were; failures : what did not pass"""

    errors: tuple[str, ...]
    failures: tuple[str, ...]


def speedup_findings(rows: Sequence[Row], tolerance: Tolerance | None) -> Findings:
    """Of speculative decoding at every draft length.

    A handful of sampled or unseen requests accepts more or less than predicted by chance; that is
    part of the error of a speedup, and no reason to pass.  The cost's share is said beside it.
    """
    errors = []
    for name, what in (("relative_error", "the speedup"), ("cost_error", "its cost")):
        worst = max(rows, key=lambda row: abs(row[name]))
        middle = median(abs(row[name]) for row in rows)
        errors.append(
            f"relative error of {what}: median {middle:.1%}, worst {abs(worst[name]):.1%} "
            f"(temperature {worst['temperature']:g}, {worst['prompts']} prompts, "
            f"gamma {worst['gamma']})"
        )
    return Findings(tuple(errors), (*check_counts(rows), *beyond(rows, tolerance)))


def blind_findings(rows: Sequence[Row], tolerance: Tolerance | None) -> Findings:
    """Of predictions made before, each decoder alone."""
    errors = [row["relative_error"] for row in rows]
    worst = max(rows, key=lambda row: abs(row["relative_error"]))
    inside = sum(row["inside"] for row in rows)
    sentences = [
        f"relative error of the predicted speedup: median {median(map(abs, errors)):.1%}, worst "
        f"{abs(worst['relative_error']):.1%} (temperature {worst['temperature']:g}, gamma "
        f"{worst['gamma']}), mean {fmean(errors):+.1%}; the measurement's own standard error: "
        f"median {median(row['measured_error'] / row['measured_speedup'] for row in rows):.1%}",
        f"95 % intervals hold {inside} of {len(rows)} speedups",
        _since_calibration(rows),
    ]
    for temperature in sorted({row["temperature"] for row in rows}):
        found = [row for row in rows if row["temperature"] == temperature]
        best = max(found, key=lambda row: row["measured_speedup"])
        chosen = next((row for row in found if row["chosen"]), None)
        recommended = best["recommended"]
        words = f"gamma {recommended}" if recommended else "plain decoding"
        # Plain decoding is 1, and may be recommended, or best.
        fastest = max(best["measured_speedup"], 1.0)
        what = f"gamma {best['gamma']}" if best["measured_speedup"] > 1 else "plain decoding"
        if recommended and chosen is None:
            how_far = f", which was not decoded here; the fastest measured is {what}"
        else:
            speedup = chosen["measured_speedup"] if chosen else 1.0
            how_far = f", {speedup / fastest - 1:+.1%} from the fastest measured ({what})"
            how_far += _of_fewer(found, chosen)
        sentences.append(f"temperature {temperature:g}: recommended {words}{how_far}")
    exact = [
        f"temperature 0, gamma {row['gamma']}: text or number of calls is not what it must be"
        for row in rows
        if row["exact"] is False
    ]
    return Findings(tuple(sentences), (*exact, *beyond(rows, tolerance)))


def _since_calibration(rows: Sequence[Row]) -> str:
    """What plain decoding takes now, and what predictions would be off without knowing."""
    now, before = (fmean(row[f"{when}_plain_ms"] for row in rows) for when in _PLAIN)
    still = [row["speedup_at_profile_plain"] / row["measured_speedup"] - 1 for row in rows]
    held = sum(row["inside_at_profile_plain"] for row in rows)
    return (
        f"plain decoding takes {significant(now, 3)} ms a token, {now / before - 1:+.0%} since the "
        "profile was written: predicted is the speedup there; as if it took what it did then, "
        f"errors are {median(map(abs, still)):.1%} in the median, {max(map(abs, still)):.1%} at "
        f"worst, {fmean(still):+.1%} in the mean, and the intervals that optimize prints hold "
        f"{held} of {len(rows)}"
    )


def _of_fewer(rows: Sequence[Row], chosen: Row | None) -> str:
    """What is predicted of the requests that were decoded, where these are fewer than the length is
    recommended for, and another one suits them; predictions of drawn texts are of all.
    """
    foreseen = max(rows, key=lambda row: row["predicted_speedup"])
    decoded, known = foreseen["requests"], foreseen["profile_requests"]
    if foreseen["temperature"] > 0 or decoded == known or foreseen is chosen:
        return ""
    pays = foreseen["predicted_speedup"] > 1
    if not pays and chosen is None:
        return ""
    fastest = f"gamma {foreseen['gamma']}" if pays else "plain decoding"
    return (
        f"; it is recommended for all {known} requests of the profile, and of the {decoded} "
        f"decoded here {fastest} was predicted the fastest"
    )


def scheme_findings(rows: Sequence[Row], tolerance: Tolerance | None) -> Findings:
    """Of every decoding scheme.

    Where the replay knows runs approximately it says nothing of how far, so that intervals judge
    the other settings alone; a tolerance judges all.
    """
    judged = [row for row in rows if tolerance is not None or not row["approximate"]]
    sizes = [abs(row["relative_error"]) for row in rows]
    kept = sum(row["counts_as_predicted"] for row in rows)
    exact = [row["exact"] for row in rows if row["exact"] is not None]
    said = [f"runs as predicted, within 3 % or two standard errors: {kept} of {len(rows)} settings"]
    if exact:
        said.append(
            f"at temperature 0 every target call as predicted: {sum(exact)} of {len(exact)}"
        )
    said.append(
        f"relative error of the speedup: median {median(sizes):.1%}, worst {max(sizes):.1%}"
    )
    said.append(_explained(rows))
    if others := len(rows) - len(judged):
        said.append(
            f"speedups of {others}, whose runs are known approximately, are not judged without "
            "--tolerance"
        )
    return Findings(("; ".join(said),), (*contradictions(rows), *beyond(judged, tolerance)))


def synthetic_findings(rows: Sequence[Row], tolerance: Tolerance | None) -> Findings:
    """Of batches at a synthetic acceptance, and of the draft length that was predicted best."""
    sizes = [abs(row["relative_error"]) for row in rows]
    cells = {(row["temperature"], row["context"], row["batch"]): row for row in rows}.values()
    same = sum(cell["predicted_best"] == cell["measured_best"] for cell in cells)
    apart = sum(cell["loss_low"] > 0 for cell in cells)
    errors = (
        f"relative error of the speedup: median {median(sizes):.1%}, worst {max(sizes):.1%}; "
        f"{_explained(rows)}; best draft length as predicted in {same} of {len(cells)} cells, and "
        f"in {len(cells) - same - apart} more too close to tell; following the prediction costs "
        f"{max(cell['loss'] for cell in cells):.1%} of speed at most"
    )
    changes = [row["measured_plain_ms"] / row["profile_plain_ms"] - 1 for row in rows]
    since = f"plain steps take {max(changes, key=abs):+.0%} since the profile was written, at most"
    slow = [
        f"batch {cell['batch']}, context {cell['context']}: gamma {cell['predicted_best']} was "
        f"predicted best and is {cell['loss']:.1%} slower than gamma {cell['measured_best']}"
        for cell in cells
        if cell["loss_low" if tolerance is None else "loss"] > _MOST_LOSS
    ]
    return Findings((errors, since), (*slow, *beyond(rows, tolerance)))


def engine_findings(rows: Sequence[Row]) -> Findings:
    """Of what an engine counts; at temperature 0, and wherever its text decides, all is exact."""
    exact = [row for row in rows if row["exact"] is not None]
    sentences = []
    if exact:
        equal = sum(row["exact"] for row in exact)
        sentences.append(
            f"counts are equal to the replayed ones in {equal} of {len(exact)} settings where "
            "nothing is left to chance"
        )
    drawn = [row for row in rows if row["exact"] is None]
    if drawn:
        largest = max(row["largest_z"] for row in drawn)
        sentences.append(f"largest |z| of counted against replayed elsewhere: {largest:.1f}")
    tests = sum(2 + row["gamma"] for row in rows)
    limit = float(norm.isf(FALSE_ALARM / (2 * tests)))
    failures = []
    for row in rows:
        where = f"temperature {row['temperature']:g}, gamma {row['gamma']}"
        if row["same_text"] is False:
            failures.append(
                f"{where}: the text is not that of plain decoding in the profile; is it the same "
                "model, in the same number type?"
            )
        if row["largest_z"] > limit:
            failures.append(
                f"{where}: {row['counted_rounds']:g} rounds counted and "
                f"{row['replayed_rounds']:.1f} replayed, largest z {row['largest_z']:.1f} where "
                f"{limit:.1f} is allowed; does it draft as assumed ({row['method']}, "
                f"{row['drafts']})?"
            )
    return Findings(tuple(sentences), tuple(failures))


def check_counts(rows: Sequence[Row]) -> list[str]:
    """What contradicts the replay: exactly at temperature 0, statistically elsewhere."""
    failures = [
        f"temperature 0, {row['prompts']} prompts, gamma {row['gamma']}: text or number of calls "
        "is not what it must be"
        for row in rows
        if row["exact"] is False
    ]
    for row in rows:
        limit = _largest_z(len(rows), row)
        if abs(row["z"]) > limit:
            failures.append(
                f"temperature {row['temperature']:g}, {row['prompts']} prompts, gamma "
                f"{row['gamma']}: counted calls contradict the replay, z {row['z']:.1f} where "
                f"{limit:.1f} is allowed"
            )
    return failures


def contradictions(rows: Sequence[Row]) -> list[str]:
    """Settings whose greedy text or calls are wrong, or whose counts chance does not explain.

    At temperature 0 every target call must be as predicted, of lossy settings too.  Runs that are
    predicted approximately are shown, and cannot fail.
    """
    failures = [
        f"{row['scheme']} {row['setting']}, temperature 0: not the text of plain decoding, or not "
        "the predicted calls"
        for row in rows
        if row["exact"] is False and TARGET not in row["approximate"]
    ]
    tests = sum(len(row["runs_z"]) for row in rows)
    for row in rows:
        for model, z in row["runs_z"].items():
            expected, counted = row["predicted_runs"][model], row["measured_runs"][model]
            if model in row["approximate"]:
                continue
            if abs(expected - counted) > SHARE * counted and abs(z) > _largest_z(tests, row):
                failures.append(
                    f"{row['scheme']} {row['setting']}, temperature {row['temperature']:g}: runs "
                    f"of {model} {expected:.1f} predicted, {counted:.1f} counted (z {z:.1f})"
                )
    return failures


def _largest_z(tests: int, row: Row) -> float:
    """The largest standard score that chance explains, where so many are tested in a table."""
    return float(t.isf(FALSE_ALARM / (2 * tests), df=row["requests"] - 1))


def beyond(rows: Sequence[Row], tolerance: Tolerance | None) -> list[str]:
    """Which tolerance the speedups are beyond; without one, which are further off than the
    intervals of both explain.
    """
    if tolerance is None:
        return _beyond_chance(rows)
    return tolerance.exceeded([row["relative_error"] for row in rows])


def _beyond_chance(rows: Sequence[Row]) -> list[str]:
    """Speedups whose prediction and measurement lie further apart than their intervals explain.

    The limit is where a normal error lies once in 10,000 tables.  Errors that are known from few
    passes alone have longer tails (Student's t): a correct table of 16 rows then fails in 0.3 % of
    cases with 16 passes, 1.5 % with 8, 5 % with 5 and 15 % with 3.
    """
    if not rows:
        return []
    limit = chance_limit(len(rows), 1 - FALSE_ALARM)
    return [
        f"{_setting(row)}: predicted {row['predicted_speedup']:.3f} ({row['predicted_low']:.3f} to "
        f"{row['predicted_high']:.3f}), measured {row['measured_speedup']:.3f} "
        f"({row['measured_low']:.3f} to {row['measured_high']:.3f})"
        for row in rows
        if _apart(row) > limit
    ]


def _apart(row: Row) -> float:
    """How far apart prediction and measurement lie, in what their 95 % intervals explain."""
    predicted, measured = (
        Interval(row[f"{name}_low"], row[f"{name}_speedup"], row[f"{name}_high"])
        for name in ("predicted", "measured")
    )
    return apart(predicted, measured)


def _explained(rows: Sequence[Row]) -> str:
    held = sum(_apart(row) <= 1 for row in rows)
    return f"95 % intervals of both explain {held} of {len(rows)} speedups"


def _setting(row: Row) -> str:
    """What a row is of."""
    where = f"temperature {row['temperature']:g}"
    if "scheme" in row:
        return f"{row['scheme']} {row['setting']}, {where}"
    if "batch" in row:
        where += f", batch {row['batch']}"
    if "context" in row:
        where += f", context {row['context']}"
    return f"{where}, gamma {row['gamma']}"
