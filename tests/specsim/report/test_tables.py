"""Tables for people: units from names, as many columns as have room, no broken cell."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from specsim.api.result import Result, Row
from specsim.intervals import Interval
from specsim.report.columns import columns_of, fitting
from specsim.report.tables import render, show, show_table
from tests.support.command_line import run

# An explanation has columns of all kinds, more than 80 characters of them.
WIDE = ["explain", "--target", "llama-3.1-8b", "--drafter", "eagle3", "--accelerator", "H100"]
WIDE += ["--gamma", "5", "--batch", "4", "--context", "2048", "--alpha", "0.7"]


@pytest.mark.parametrize(
    ("name", "values", "heading", "cells"),
    [
        ("p99_ms", [283.52, 26973.1], "p99 (ms)", ["283.5", "26,973"]),
        ("p99_ms_low", [0.25, 0.5], "p99 low (us)", ["250", "500"]),
        ("ms", [0.02, 2.5], "time (ms)", ["0.020", "2.5"]),
        ("plain_ms_per_token", [38.29], "plain time per token (ms)", ["38.29"]),
        ("step_s", [0.012], "step (ms)", ["12"]),
        ("step_s", [0.000012], "step (us)", ["12"]),
        ("duration_s", [94.02], "duration (s)", ["94.02"]),
        ("wait_s", [0.0], "wait (s)", ["0"]),
        ("plain_tokens_per_s", [636.5, 10570.2], "plain tokens/s", ["636.5", "10,570"]),
        ("cache_bytes", [3 * 2**30, 2**29], "cache (GiB)", ["3", "0.5"]),
        ("cache_bytes", [2048], "cache (KiB)", ["2"]),
        ("gb", [25.1], "traffic (GB)", ["25.1"]),
        ("share", [0.03613, 0.8857], "share (%)", ["3.6", "88.6"]),
        ("relative_error", [0.0123, -0.2], "relative error (%)", ["+1.2", "-20.0"]),
        ("error_draft", [0.0123], "error draft", ["+0.012"]),
        ("prompt_mean", [1155.25], "prompt tokens mean", ["1,155"]),
        ("speedup", [2.15, 1.0], "speedup", ["2.15", "1.00"]),
        ("temperature", [0.0, 1.0], "temperature", ["0", "1"]),
        ("temperature", [0.0, 0.7], "temperature", ["0", "0.7"]),
        ("context", [60000, np.int64(7)], "context", ["60,000", "7"]),
        ("tokens", [2048.0, 256.0], "tokens", ["2,048", "256"]),
        ("tiny", [1.2e-10, 0.5], "tiny", ["1.2e-10", "0.5"]),
        ("met", [True, False], "met", ["yes", "no"]),
        ("met", [np.True_, None], "met", ["yes", "-"]),
        ("K", [3, "?"], "K", ["3", "?"]),
        ("drafter", ["", "eagle3\n"], "drafter", ["-", "eagle3"]),
        ("low", [1.05, float("nan")], "low", ["1.05", "-"]),
        ("gammas", [[1, 2], [3]], "gammas", ["1, 2", "3"]),
        ("marginal", [Interval(0.774, 0.8212, 0.8603)], "marginal", ["0.821 (0.774 to 0.860)"]),
        ("rate_of", [Interval(math.nan, 2.5, math.nan), None], "rate of", ["2.5", "-"]),
    ],
)
def test_a_name_says_how_figures_are_written(
    name: str, values: list[Any], heading: str, cells: list[str]
) -> None:
    (column,) = columns_of([{name: value} for value in values])
    assert (column.heading, list(column.cells)) == (heading, cells)


def test_figures_of_one_kind_have_one_unit() -> None:
    found = columns_of([{"mean_ms": 0.4, "p99_ms": 1.2, "runs": 3}])
    assert [column.heading for column in found] == ["mean (ms)", "p99 (ms)", "runs"]


def test_words_begin_at_the_left_and_figures_end_at_the_right() -> None:
    rows: list[Row] = [
        {"rule": "Chow", "quality": Interval(0.1, 0.2, 0.3), "gamma": "1-81: 4", "n": 5},
        {"rule": "LenientRedraw", "quality": None, "gamma": "off", "n": 12345},
    ]
    assert [column.is_text for column in columns_of(rows)] == [True, False, True, False]
    lines = render(rows, "table").splitlines()
    assert lines[2:4] == [
        f"{'Chow':13}  0.200 (0.100 to 0.300)  {'1-81: 4':7}  {'5':>6}",
        f"{'LenientRedraw':13}  {'-':>22}  {'off':7}  12,345",
    ]
    assert lines[4] == "-: does not apply, or is not known"


def test_headings_break_at_spaces_and_stand_at_the_bottom() -> None:
    text = render([{"sustained_count_per_card": 22.08, "gamma": 2}], "table")
    assert text.splitlines() == [
        "sustained",
        "count per",
        "     card  gamma",
        "─" * 16,
        "    22.08      2",
    ]


def test_one_row_is_a_row() -> None:
    one, two = (render([{"gamma": 8, "speedup": 3.2}] * n, "table").splitlines() for n in (1, 2))
    assert two[:3] == one
    assert two[3] == one[2]


def test_what_looks_like_markup_is_shown() -> None:
    assert "TopBeta [bold] :smile:" in render([{"rule": "TopBeta [bold] :smile:"}], "table")


def test_a_title_is_broken_too() -> None:
    title = "best draft length by load, step times at a bound: peak rates, " * 3
    lines = render([{"gamma": 8}], "table", title).splitlines()
    assert max(map(len, lines)) <= 80
    assert " ".join(" ".join(lines).split()).startswith(title.strip())


def test_nothing_to_show() -> None:
    assert render([], "table", "title") == "title\nnothing to show"
    assert render([{"gamma": None}], "table") == "nothing to show"


CELLS = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-(10**9), 10**9),
    st.floats(-1e9, 1e9),
    st.text("abc :=,[]", max_size=70),
    st.floats(0, 1).map(lambda best: Interval(best / 2, best, 1.0)),
)
NAMES = st.lists(
    st.from_regex(r"[a-z]{1,9}(_[a-z]{1,9}){0,3}(_ms|_s|_low|_high)?", fullmatch=True),
    min_size=1,
    max_size=12,
    unique=True,
)


@given(st.data(), NAMES, st.integers(1, 5), st.integers(40, 200))
def test_a_table_fits_and_its_cells_are_whole(
    data: st.DataObject, names: list[str], count: int, width: int
) -> None:
    rows = [{name: data.draw(CELLS) for name in names} for _ in range(count)]
    everything = columns_of(rows)
    shown, hidden = fitting(everything, width)
    assert [column.name for column in (*shown, *hidden)] == [column.name for column in everything]
    assert fitting(everything, None) == (everything, ())
    if len(shown) > 1:
        assert sum(column.width + 2 for column in shown) - 2 <= width
    for column, whole in zip(shown, everything, strict=False):
        assert column.is_text or column.cells == whole.cells
        assert max(map(len, column.heading_lines)) <= column.width


def test_a_drawn_table_is_as_wide_as_its_columns() -> None:
    rows = [{f"name_of_{n}_ms": 10.0**n for n in range(9)}, {"rule": "x" * 50, "last": True}]
    shown, hidden = fitting(columns_of(rows), 80)
    lines = render(rows, "table").splitlines()
    assert max(map(len, lines)) == sum(column.width + 2 for column in shown) - 2 <= 80
    # One line a row below the headings: no cell is broken.
    rule = next(i for i, line in enumerate(lines) if set(line) == {"─"})
    assert len(lines) - rule - 1 == len(rows) + 1  # and the footnote
    assert hidden


def test_the_ends_of_an_interval_go_together() -> None:
    row = {"speedup": 1.0, "speedup_low": 1.0, "speedup_high": 1.0, "low": 2.5, "high": 3.5}
    columns = columns_of([row])
    for width in range(1, 60):
        shown, _ = fitting(columns, width)
        names = {column.name for column in shown}
        assert ("speedup_low" in names) == ("speedup_high" in names)
        assert ("low" in names) == ("high" in names)


def test_long_words_lose_their_middle_before_a_column_is_lost() -> None:
    rows = [{"drafter": f"parallel:layers=5,hidden={n},{'x' * 60}", "gamma": n} for n in (1, 2)]
    columns = columns_of(rows)
    (words, gamma), hidden = fitting(columns, 80)
    assert not hidden
    assert gamma == columns[1]
    assert all("…" in cell for cell in words.cells)
    assert words.width + 2 + gamma.width == 80
    assert fitting(columns, 200)[0] == columns


@dataclass(frozen=True)
class _Answer(Result):
    schema: ClassVar[str] = "specsim.test"

    def rows(self) -> list[Row]:
        return [{f"figure_{n:02}": 1000.0 + n for n in range(30)}]

    @property
    def essential(self) -> tuple[str, ...]:
        return "figure_29", "figure_03", "not_there"


def test_what_matters_comes_first(capsys: pytest.CaptureFixture[str]) -> None:
    show(_Answer(), "table")
    out, err = capsys.readouterr()
    assert out.splitlines()[1].split()[:3] == ["29", "03", "00"]
    assert max(map(len, out.splitlines())) <= 80
    left = 30 - len(out.splitlines()[1].split())
    assert err == f"{left} columns more with --wide\n"
    show(_Answer(), "csv")
    assert capsys.readouterr().out.startswith("figure_00,figure_01,")


def test_few_columns_without_room_are_named(capsys: pytest.CaptureFixture[str]) -> None:
    show_table([{"gamma": 3, "part": "x" * 30, "bound": "y" * 30, "assumes": "z" * 60}])
    assert capsys.readouterr().err == "1 column more with --wide: assumes\n"


def test_wide_shows_all(capsys: pytest.CaptureFixture[str]) -> None:
    code, narrow, err = run(capsys, *WIDE)
    assert code == 0
    assert " more with --wide" in err
    assert max(map(len, narrow.splitlines())) <= 80
    code, wide, err = run(capsys, *WIDE, "--wide")
    assert code == 0
    assert "--wide" not in err
    assert "its drafts are accepted as often" in wide
    assert max(map(len, wide.splitlines())) > 80


def test_a_pipe_does_not_change_with_the_window(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    found = []
    for columns in ("40", "200"):
        monkeypatch.setenv("COLUMNS", columns)
        found.append(run(capsys, *WIDE))
    assert found[0] == found[1]


def test_figures_by_name_keep_every_digit_in_csv() -> None:
    third = 1 / 3
    said = render([{"of": {"draft": third, "target": 12_345_678, "none": math.nan}}], "csv")
    assert said == f"of\ndraft={third!r} target=12345678 none="


def test_markdown_has_a_dash_for_what_is_not_known() -> None:
    nan = math.nan
    row = {"low": nan, "at": Interval(nan, 2.5, nan), "each": [1.0, nan], "drafter": "", "gamma": 3}
    assert render([row], "markdown").splitlines()[-1] == "| - | 2.5 | 1, - | - | 3 |"
