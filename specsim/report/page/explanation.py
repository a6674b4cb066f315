"""The page of ``specsim explain``: a round and a plain step, part by part, and what would help."""

from __future__ import annotations

from typing import TYPE_CHECKING

from specsim.report.page.chart import (
    BLUE,
    BROWN,
    GREEN,
    GREY,
    PURPLE,
    VERMILLION,
    Axis,
    Chart,
    Content,
    Level,
    Look,
    Row,
    Table,
    with_interval,
)
from specsim.report.page.words import sentence

if TYPE_CHECKING:
    from specsim.api.explain import Explanation

# The target's runs have one colour in both bars.
_LOOKS = {
    "first draft run": Look(VERMILLION),
    "draft runs": Look(VERMILLION),
    "later draft runs": Look(BROWN),
    "target": Look(BLUE),
    "whole step": Look(BLUE),
    "look-ups": Look(PURPLE),
    "communication": Look(GREEN),
    "host": Look(GREY),
}
_TARGET = ("verification", "target run")
_HERE = "as it is"


def explanation(found: Explanation) -> Content:
    """Milliseconds of a token, part by part, and the speedup of every single change."""
    said = [sentence(line) for line in found.sentences()]
    tables = []
    if found.changes:
        tables.append(Table("changes", "Single changes, the best first", found.change_rows()))
    charts = [_parts(found), _changes(found)]
    question = "Where does the time of a round go, and why is it no faster?"
    return Content(question, " ".join(said[:2]), said[2:], charts, tables)


def _parts(found: Explanation) -> Chart:
    """What a request waits for a token: the shorter bar is faster."""
    point = found.point
    bars = {
        f"gamma {point.gamma}": (found.round, 1e3 / point.tokens_per_call),
        "plain decoding": (found.plain, 1e3),
    }
    rows = [
        {
            "step": name,
            "series": "target" if part.name in _TARGET else part.name,
            "ms": part.seconds * scale,
            "step_ms": 1e3 * part.seconds,
            "share": 100 * part.seconds / step.seconds,
            "bound": part.bound,
        }
        for name, (step, scale) in bars.items()
        for part in step.parts
    ]
    details = {"step_ms": "ms of the step", "share": "% of the step", "bound": "waits for"}
    return Chart(
        "parts",
        "Time of a token, part by part",
        rows,
        Axis("ms", "ms per token, shorter is faster"),
        Axis("step", "", "name"),
        mark="bar",
        looks=_LOOKS,
        details=details,
        note=f"A round yields {point.tokens_per_call:.3g} tokens.",
    )


def _changes(found: Explanation) -> Chart:
    """The speedup as it is, with its interval, and with every single change."""
    known = found.decision.speedup
    here = {
        "change": _HERE,
        "speedup": found.point.speedup,
        "low": None if known is None else known.low,
        "high": None if known is None else known.high,
        "ms_per_token": found.ms_per_token,
    }
    rows: list[Row] = [{"series": _HERE, **here}]
    rows += [{"series": "one change", **row} for row in found.change_rows()]
    interval = with_interval(rows, "low", "high")
    return Chart(
        "speedup",
        "Speedup, and what one change would make of it",
        rows,
        Axis("speedup", "speedup over plain decoding (times)"),
        Axis("change", "", "name"),
        mark="point",
        interval=interval,
        details={"ms_per_token": "ms per token"},
        levels=[Level(1.0, "plain decoding", "x")],
        note="The bar is the 95 % interval." if interval else "",
    )
