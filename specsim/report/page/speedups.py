"""Pages of what was predicted and what was measured: ``specsim validate`` and ``specsim demo``."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from specsim.api.validation import (
    CountsCheck,
    EngineCheck,
    SchemeCheck,
    SyntheticCheck,
    Validation,
)
from specsim.report.page.chart import (
    BLUE,
    DASHED,
    INK,
    VERMILLION,
    Axis,
    Chart,
    Content,
    Level,
    Look,
    Mark,
    Row,
    with_interval,
)
from specsim.report.page.words import listed, sentence

if TYPE_CHECKING:
    from specsim.api.demo import Demonstration
    from specsim.api.engine_blind import EngineVerdict

FORMULA, PREDICTED = "papers' formula (alpha, c)", "predicted"
MEASURED, CHOSEN = "measured", "recommended"
_MARKS: dict[str, Mark] = {MEASURED: "point", CHOSEN: "ring"}
_LOOKS = {
    FORMULA: Look(VERMILLION, DASHED, "triangle-up"),
    PREDICTED: Look(BLUE),
    MEASURED: Look(INK, (), "square"),
    CHOSEN: Look(BLUE),
}
_GAMMA = Axis("gamma", "draft tokens per target call, gamma", zero=False)
_SPEEDUP = Axis("speedup", "speedup over plain decoding (times)")
_TOKENS = Axis("tokens", "tokens per target call")
_INTERVALS = "Bands and bars are 95 % intervals."
_INTERVAL = ("low", "high")
# Batches with a colour each; of more, points say theirs in the tooltip alone.
_BATCHES = 10


def validation(found: Validation) -> Content:
    """Predicted beside measured, as the check has it."""
    answer = "Yes: nothing is further off than it may be."
    if not found.passed:
        answer = f"No: {listed([each.removesuffix('.') for each in found.failures])}."
    said = [sentence(each) for each in found.errors]
    return Content("Does what was predicted hold?", answer, said, _charts(found))


def demonstration(found: Demonstration) -> Content:
    """As a blind check, and what was recommended before it."""
    said = [sentence(line) for line in found.sentences()]
    return Content(
        f"How many tokens should {found.draft} draft, and is the prediction true?",
        " ".join(said[: len(found.chosen)]),
        said[len(found.chosen) :],
        speedup_charts(found.rows()),
    )


def engine_verdict(found: EngineVerdict) -> Content:
    """Speedups of an engine by batch."""
    verdict = "Yes" if found.passed else f"No, {len(found.failures)} settings are further off"
    said = [sentence(line) for line in found.sentences()]
    return Content(
        "Do the engine's speedups come out as predicted?",
        f"{verdict}. {said[0]}",
        said[1:],
        speedup_charts(found.rows()),
    )


def _charts(found: Validation) -> list[Chart]:
    rows = found.rows()
    match found.check:
        case SchemeCheck():
            return _scheme_charts(rows)
        case SyntheticCheck():
            return _cell_charts(rows)
        case EngineCheck():
            return _count_charts(rows, "replayed_tokens_per_call", "counted_tokens_per_call")
        case CountsCheck():
            return _count_charts(rows, "predicted_tokens_per_call", "measured_tokens_per_call")
    return [*speedup_charts(rows), *_tokens_charts(rows)]


def speedup_charts(rows: Sequence[Row]) -> list[Chart]:
    """A chart for each temperature, set of prompts and batch, as far as rows have them: the papers'
    formula, the prediction, what was measured, and a ring around the recommended draft length.
    """
    return [
        Chart(
            f"speedup{name}",
            f"Speedup by draft length{at}",
            _speedups(of_panel),
            _GAMMA,
            _SPEEDUP,
            marks=_MARKS,
            looks=_LOOKS,
            interval=_INTERVAL,
            details={"tokens": "tokens per target call"},
            levels=[Level(1.0, "plain decoding")],
            note=_INTERVALS,
        )
        for name, at, of_panel in _panels(rows)
    ]


def _panels(rows: Sequence[Row]) -> list[tuple[str, str, list[Row]]]:
    """Name, title and rows of each, by rising draft length."""
    if not rows:
        return []
    names = [name for name in ("temperature", "prompts", "batch") if name in rows[0]]
    several = [name for name in names if len({row[name] for row in rows}) > 1]
    places = sorted({tuple(row[name] for name in names) for row in rows})
    found = []
    for number, place in enumerate(places):
        where = dict(zip(names, place, strict=True))
        told = several or names[:1]
        words = "".join(f", {_words(name, where[name])}" for name in told)
        here = [row for row in rows if all(row[name] == where[name] for name in names)]
        suffix = f"-{number + 1}" if len(places) > 1 else ""
        found.append((suffix, words, sorted(here, key=lambda row: int(row["gamma"]))))
    return found


def _words(name: str, value: Any) -> str:
    return f"{value} prompts" if name == "prompts" else f"{name} {value:g}"


def _speedups(rows: Sequence[Row]) -> list[Row]:
    """A row for each line and point."""
    found: list[Row] = []
    kinds = ((FORMULA, "formula"), (PREDICTED, "predicted"), (MEASURED, "measured"))
    for series, kind in kinds:
        found += [
            {
                "series": series,
                "gamma": row["gamma"],
                "speedup": row[f"{kind}_speedup"],
                "low": row.get(f"{kind}_low"),
                "high": row.get(f"{kind}_high"),
                "tokens": row.get(f"{kind}_tokens_per_call"),
            }
            for row in rows
            if f"{kind}_speedup" in row
        ]
    if "chosen" in rows[0]:
        chosen = [(row["gamma"], row["predicted_speedup"]) for row in rows if row["chosen"]]
        # Where plain decoding is recommended no draft length is.
        gamma, speedup = chosen[0] if chosen else (0, 1.0)
        found.append({"series": CHOSEN, "gamma": gamma, "speedup": speedup})
    return found


def _tokens_charts(rows: Sequence[Row]) -> list[Chart]:
    """Tokens per call, where both were counted."""
    if not rows or "measured_tokens_per_call" not in rows[0]:
        return []
    return _count_charts(rows, "predicted_tokens_per_call", "measured_tokens_per_call")


def _count_charts(rows: Sequence[Row], expected: str, counted: str) -> list[Chart]:
    """Tokens per target call that were expected, and counted."""
    charts = []
    for name, at, of_panel in _panels(rows):
        points = [
            {
                "series": column.partition("_")[0],
                "gamma": row["gamma"],
                "tokens": row[column],
                "low": row.get(f"{column}_low"),
                "high": row.get(f"{column}_high"),
            }
            for column in (expected, counted)
            for row in of_panel
        ]
        before, after = (column.partition("_")[0] for column in (expected, counted))
        charts.append(
            Chart(
                f"tokens{name}",
                f"Tokens per target call, {before} and {after}{at}",
                points,
                _GAMMA,
                _TOKENS,
                marks={after: "point"},
                looks={before: Look(BLUE), after: Look(INK, (), "square")},
                interval=with_interval(points, *_INTERVAL),
            )
        )
    return charts


def _scheme_charts(rows: Sequence[Row]) -> list[Chart]:
    """A line for every setting of every scheme, a chart for each temperature."""
    charts = []
    temperatures = sorted({row["temperature"] for row in rows})
    for number, temperature in enumerate(temperatures):
        here = [row for row in rows if row["temperature"] == temperature]
        points = [
            {
                "series": kind,
                "setting": ": ".join(filter(None, (row["scheme"], row["setting"]))),
                "speedup": row[f"{kind}_speedup"],
                "low": row.get(f"{kind}_low"),
                "high": row.get(f"{kind}_high"),
                "tokens": row.get(f"{kind}_tokens_per_call"),
            }
            for kind in (PREDICTED, MEASURED)
            for row in here
        ]
        charts.append(
            Chart(
                f"schemes-{number + 1}",
                f"Speedup of every setting, temperature {temperature:g}",
                points,
                _SPEEDUP,
                Axis("setting", "", "name"),
                marks={PREDICTED: "pale", MEASURED: "point"},
                looks=_LOOKS,
                interval=_INTERVAL,
                details={"tokens": "tokens per target call"},
                levels=[Level(1.0, "plain decoding", "x")],
                note="Pale bars and thin bars are 95 % intervals.",
            )
        )
    return charts


def _cell_charts(rows: Sequence[Row]) -> list[Chart]:
    """Predicted against measured, a point for every batch, context and draft length."""
    coloured = len({row["batch"] for row in rows}) <= _BATCHES
    points = [{**row, "series": f"batch {row['batch']:,}" if coloured else ""} for row in rows]
    details = {"batch": "batch", "context": "context", "gamma": "draft tokens, gamma"}
    return [
        Chart(
            "cells",
            "Speedup of batches, measured against predicted",
            points,
            Axis("predicted_speedup", "predicted speedup (times)", zero=False),
            Axis("measured_speedup", "measured speedup (times)", zero=False),
            mark="point",
            interval=with_interval(points, "measured_low", "measured_high"),
            details=details,
            diagonal=True,
            note="Bars are 95 % intervals; on the line both are equal.",
        )
    ]
