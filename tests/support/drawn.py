"""How many marks a chart must have when it is drawn."""

from __future__ import annotations

from specsim.report.page.chart import Chart, is_known

# What Vega calls the marks of each kind of series.
_CALLED = {
    "symbol": ("line", "step", "point", "pale", "ring"),
    "rect": ("bar", "cell"),
}


def expected_marks(chart: Chart) -> dict[str, int]:
    """Points and fields: one of every row that has a place in the chart."""
    found = dict.fromkeys(_CALLED, 0)
    axes = [axis.column for axis in (chart.x, chart.y, chart.figure) if axis is not None]
    for row in chart.rows:
        kind = chart.mark_of(str(row.get(chart.series, "")))
        if all(is_known(row.get(column)) for column in axes):
            (called,) = [name for name, kinds in _CALLED.items() if kind in kinds]
            found[called] += 1
    return found
