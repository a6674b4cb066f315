"""Pages without a browser: what stands on them, and that they need nothing else."""

from __future__ import annotations

import base64
import csv
import io
import json
import re
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import specsim
from specsim.api.result import plain
from specsim.checks import InvalidArgumentError
from specsim.files import FileError
from specsim.report.columns import columns_of, footnote_of
from specsim.report.page.chart import Axis, Chart, Level, with_interval
from specsim.report.page.content import DESCRIBED, content_of
from specsim.report.page.labels import labels_of, two_lines
from specsim.report.page.shown import shown_inputs
from specsim.report.page.vega import specification
from specsim.report.page.words import alternative, cell, sentence
from specsim.report.page.write import check_page_path, page
from specsim.report.tables import render
from tests.support.command_line import SHAPES, fail, run
from tests.support.drawn import expected_marks
from tests.support.html import Element, parse
from tests.support.results import RESULTS

MEGABYTE = 1_000_000
TABLES = ("aria-labelledby", "tables")
_STYLE = Path(specsim.__file__).parent / "report" / "page" / "page.css"


@pytest.fixture(scope="module")
def pages(results: Callable[[str], specsim.Result]) -> Callable[[str], tuple[str, Element]]:
    """Texts and trees of their pages."""
    found: dict[str, tuple[str, Element]] = {}

    def get(name: str) -> tuple[str, Element]:
        if name not in found:
            text = page(results(name), f"specsim {name}")
            found[name] = text, parse(text)
        return found[name]

    return get


Pages = Callable[[str], tuple[str, Element]]
Results = Callable[[str], specsim.Result]


def data_of(element: Element) -> list[str]:
    """The CSV files of all links in it."""
    prefix = "data:text/csv;charset=utf-8;base64,"
    links = [
        each.attributes["href"] or "" for each in element.all("a") if "download" in each.attributes
    ]
    assert all(link.startswith(prefix) for link in links)
    return [base64.b64decode(link.removeprefix(prefix)).decode() for link in links]


def test_every_kind_that_is_described_is_tried(results: Results) -> None:
    tried = {type(results(name)).__name__ for name in RESULTS}
    assert tried >= set(DESCRIBED)


@pytest.mark.parametrize("name", RESULTS)
def test_a_page_is_whole_and_asks_for_nothing(name: str, pages: Pages) -> None:
    text, tree = pages(name)
    assert text.startswith("<!doctype html>")
    assert len(text.encode()) < 6 * MEGABYTE
    for element in tree.walk():
        for attribute in ("src", "srcset", "href", "action", "data", "poster"):
            value = element.attributes.get(attribute) or ""
            assert not value or value.startswith("data:"), (element.tag, attribute, value[:80])
    styles = " ".join(each.raw for each in tree.all("style"))
    assert "@import" not in styles
    assert "url(" not in styles
    (policy,) = tree.all("meta", **{"http-equiv": "Content-Security-Policy"})
    assert (policy.attributes["content"] or "").startswith("default-src 'none';")
    numbers = [each.attributes["id"] for each in tree.walk() if "id" in each.attributes]
    assert len(numbers) == len(set(numbers))


@pytest.mark.parametrize("name", RESULTS)
def test_question_answer_and_order_of_headings(name: str, pages: Pages) -> None:
    _, tree = pages(name)
    (question,) = tree.all("h1")
    assert question.text
    (title,) = tree.all("title")
    assert question.text in title.text
    if name != "no charts":
        assert question.text.endswith("?")
        (answer,) = tree.all("p", class_="answer")
        assert answer.text.endswith((".", ")"))
    levels = [int(each.tag[1]) for each in tree.walk() if re.fullmatch("h[1-6]", each.tag)]
    assert levels[0] == 1
    assert all(after <= before + 1 for before, after in pairwise(levels))


@pytest.mark.parametrize("name", RESULTS)
def test_every_chart_has_a_text_and_its_data(name: str, pages: Pages, results: Results) -> None:
    _, tree = pages(name)
    charts = content_of(results(name)).charts
    assert charts or name == "no charts"
    plots = tree.all("div", class_="plot")
    assert [each.attributes["id"] for each in plots] == [f"chart-{each.name}" for each in charts]
    (embedded,) = tree.all("script", id="specifications")
    drawn = json.loads(embedded.raw)
    for chart, plot, spec, figure_of in zip(charts, plots, drawn, tree.all("figure"), strict=True):
        said = plot.attributes["aria-label"] or ""
        assert said == spec["spec"]["description"] == alternative(chart)
        assert chart.title in said
        assert len(said) > len(chart.title) + 20
        (text,) = data_of(figure_of)
        assert text.removesuffix("\n") == render(chart.rows, "csv")
        boxes = [each.attributes["value"] for each in figure_of.all("input")]
        assert boxes == (chart.names if any(chart.names) else [])


@pytest.mark.parametrize("name", RESULTS)
def test_the_rows_are_there_as_csv(name: str, pages: Pages, results: Results) -> None:
    _, tree = pages(name)
    result = results(name)
    tables = [each for each in tree.all("section") if each.has("aria-labelledby", "tables")]
    first, *others = data_of(tables[0])
    assert first == render(result.rows(), "csv") + "\n"
    assert len(list(csv.DictReader(io.StringIO(first)))) == len(result.rows())
    assert len(others) == len(content_of(result).tables)


@pytest.mark.parametrize("name", RESULTS)
def test_warnings_inputs_and_command_are_there(name: str, pages: Pages, results: Results) -> None:
    _, tree = pages(name)
    result = results(name)
    said = [each.text for each in tree.all("li", class_="warning")]
    assert said == [" ".join(each.split()) for each in result.warnings]
    left_out = [each.text for each in tree.all("li", class_="left-out")]
    assert len(left_out) == len(result.left_out)
    for text, each in zip(left_out, result.left_out, strict=True):
        assert each.what in text
        assert each.why in text
    (command,) = tree.all("code")
    assert command.text == f"specsim {name}"
    shown = [each.text for each in tree.all("dt")]
    for given_name, value in plain(result.inputs).items():
        if list(shown_inputs({given_name: value})):
            start = given_name.replace("_", " ")
            assert any(each.startswith(start) for each in shown), given_name
    assert shown


def sweep_of(folder: Path, **columns: Any) -> specsim.Result:
    """One that is complete, with these columns beside the number of the setting."""
    folder.mkdir()
    count = len(next(iter(columns.values())))
    table = pa.table({"setting": range(count), **columns})
    pq.write_table(table, folder / "part-00000.parquet")
    named = {"folder": folder, "settings": count, "failed": 0, "parts": 1, "found": 0}
    return specsim.SettingsSweep(**named, inputs={"command": "plan"})


@pytest.mark.parametrize("cell", [['H100 "x" & y', "<b>"] * 49, "x" * 3_000_000])
def test_a_fat_sweep_has_a_page_of_bounded_size(cell: Any, tmp_path: Path) -> None:
    """400 settings whose answers have 98 rows in 16 columns, or three million letters."""
    columns: dict[str, Any] = {"input_rate": range(400)}
    columns |= (
        {f"column_{number}": [cell] * 400 for number in range(16)}
        if (isinstance(cell, list))
        else {"long": [cell] * 3 + [None] * 397}
    )
    columns["speedup"] = [1 + number / 7 for number in range(400)]
    text = page(sweep_of(tmp_path / "out", **columns))
    assert len(text.encode()) < 5 * MEGABYTE
    tree = parse(text)
    said = [each.text for each in tree.all("ul", class_="said")[0].all("li")]
    assert said[0] == f"All settings are in {tmp_path / 'out'}, as Parquet."
    shown = re.fullmatch(r"The table of settings shows the first (\d+) of 400\.", said[1])
    assert shown
    (figure,) = tree.all("figure")
    assert len(list(csv.DictReader(io.StringIO(data_of(figure)[0])))) == 400
    tables = data_of(next(each for each in tree.all("section") if each.has(*TABLES)))
    rows = list(csv.DictReader(io.StringIO(tables[1]))) if len(tables) > 1 else []
    assert len(rows) == int(shown[1])
    assert bool(rows) == isinstance(cell, list)


def test_a_sweep_of_plan_draws_cards_cost_and_gain_with_units(tmp_path: Path) -> None:
    found = sweep_of(
        tmp_path / "out",
        input_rate=[1, 2, 4],
        input_drafter=["eagle3", None, None],
        workload_duration_s=[3.0, 2.0, 1.0],
        metrics_ttft_p99=[0.1, 0.2, 0.15],
        plan_gain_goodput_per_card=[1.1, 1.2, 1.3],
        plan_cost_per_million_tokens=[0.3, 0.2, 0.1],
        plan_cards=[1, 2, 4],
    )
    content = content_of(found)
    assert content.answer == (
        "3 of 3 settings have an answer; cards lies between 1 (rate 1, drafter eagle3) and 4 "
        "(rate 4)."
    )
    assert [each.y.title for each in content.charts] == [
        *("cards", "cost per million tokens", "gain goodput per card"),
    ]
    assert {each.x.title for each in content.charts} == {"rate (1/s)"}
    timed = sweep_of(
        tmp_path / "timed", input_c=[0.1, 0.2], x_s=[30.0, 20.0], metrics_ttft_p99=[0.1, 0.15]
    )
    first, second = content_of(timed).charts
    assert [each.y.title for each in (first, second)] == ["ttft p99 (ms)", "x (s)"]
    assert [row["figure"] for row in first.rows] == pytest.approx([100.0, 150.0])
    assert "ttft p99 lies between 100 ms (c 0.1) and 150 ms (c 0.2)" in content_of(timed).answer


def test_a_sweep_whose_answers_have_rows_by_load_draws_those_of_all_settings(
    tmp_path: Path,
) -> None:
    found = sweep_of(
        tmp_path / "out",
        input_alpha=[0.6, 0.7, 0.8],
        batch=[[1, 8], [1, 4, 8], None],
        context=[[512] * 2, [512] * 3, None],
        speedup=[[1.5, 1.4], [1.7, 1.65, 1.6], None],
        low=[[1.4, 1.3], [1.6, 1.5, 1.4], None],
        high=[[1.6, 1.5], [1.8, 1.75, 1.7], None],
        margin=[0.05] * 3,
    )
    content = content_of(found)
    (chart,) = content.charts
    assert "speedup lies between 1.4 (alpha 0.6, batch 8) and 1.7 (alpha 0.7" in content.answer
    assert chart.names == ["batch 1", "batch 8"]
    assert [(row["input_alpha"], row["figure"], row["high"]) for row in chart.of("batch 8")] == [
        *((0.6, 1.4, 1.5), (0.7, 1.6, 1.7)),
    ]


def _figures_of(*rows: dict[str, Any]) -> dict[str, Any]:
    """The JSON form of a result with these rows."""
    return {"schema": "specsim.load-plan", "inputs": {}, "answer": {"rows": list(rows)}}


def test_figures_with_intervals_are_drawn_before_those_without() -> None:
    def side(more: float) -> dict[str, Any]:
        bare = [{"batch": batch, "tokens": 1.0 + batch * more} for batch in range(1, 101)]
        judged = {"batch": 1, "speedup": 1.5 + more, "low": 1.2, "high": 1.9}
        return _figures_of(*bare, {"context": 512, **judged})

    found = specsim.compare(side(0.0), side(0.1))
    content = content_of(found)
    assert content.answer.startswith("No: nothing differs by more than chance")
    series = [row["series"] for row in content.charts[0].rows]
    assert series == ["chance", *["not judged"] * 29]
    alone = specsim.compare(*(_figures_of({"batch": 1, "tokens": each}) for each in (1.0, 2.0)))
    assert content_of(alone).answer == (
        "Cannot be told: no figure has an interval on both sides, so that every difference counts."
    )
    (figure,) = parse(page(alone)).all("figure")
    assert [each.text for each in figure.all("label")] == ["not judged"]
    same = specsim.compare(*[_figures_of({"batch": 1, "tokens": 1.0})] * 2)
    assert content_of(same).answer == "No: nothing differs."


def test_names_that_are_cut_are_still_told_apart() -> None:
    names = [
        f"run times, {model}, tokens {tokens}, context {context}, plain steps"
        for model in ("first draft", "next draft", "target")
        for tokens in (1, 2)
        for context in (32, 96)
    ]
    found = labels_of(names)
    shown = json.loads(found["labelExpr"].removeprefix("(").removesuffix(")[datum.label]"))
    assert list(shown) == names
    assert len(set(map(tuple, shown.values()))) == len(names)
    assert shown[names[0]] == ["run times, first draft,", "tokens 1, cont…2, plain steps"]
    assert shown[names[-1]] == ["run times, target, tokens 2,", "context 96, plain steps"]
    assert found["labelLimit"] >= 6 * max(len(line) for label in shown.values() for line in label)
    assert labels_of(["draft", 3]) == {"labelLimit": 151}
    assert two_lines("x" * 50) == ("x" * 25, "x" * 25)
    rows = [{"series": "", "of": name, "ratio": 1.0} for name in names]
    chart = Chart("c", "", rows, Axis("ratio", "times"), Axis("of", "", "name"), mark="point")
    said = "".join(drawn(specification(chart)).itertext())
    assert all(line in said for label in shown.values() for line in label)


def test_captions_stand_outside_of_what_scrolls_and_wide_tables_fit_on_paper(
    results: Results, pages: Pages
) -> None:
    _, tree = pages("plan")
    boxes = tree.all("div", class_="scroll")
    assert boxes
    assert not tree.all("caption")
    assert not any(box.all("p") for box in boxes)
    captions = [each.text for each in tree.all("p", class_="caption")]
    assert captions == [each.attributes["aria-label"] for each in tree.all("table")]
    for table in tree.all("table"):
        count = len(table.all("th"))
        assert ("wide" in (table.attributes.get("class") or "")) == (count > 6)
    style = _STYLE.read_text()
    assert ".wide td:nth-child(n + 15) { display: none; }" in style.partition("@media print")[2]


@pytest.mark.parametrize("name", RESULTS)
def test_a_table_with_empty_cells_says_what_they_mean(name: str, pages: Pages) -> None:
    """Below it, in the words of tables on a terminal; others say nothing."""
    _, tree = pages(name)
    pieces = [each for each in tree.walk() if each.tag in ("div", "p")]
    for box, below in pairwise(pieces):
        if not box.has("class_", "scroll"):
            continue
        is_empty = any(cell.text == "-" for cell in box.all("td"))
        assert (below.text == "-: does not apply, or is not known") == is_empty, box.attributes


def test_some_tables_have_empty_cells_and_some_have_none(results: Results) -> None:
    rows = results("explanation").table()
    said = footnote_of(columns_of(rows))
    assert said == "-: does not apply, or is not known"
    assert render(rows, "table").endswith(said)
    assert footnote_of(columns_of(results("blind").table())) == ""


def test_the_same_result_is_the_same_page(results: Results, tmp_path: Path) -> None:
    for number in (1, 2):
        specsim.write_page(results("by load"), tmp_path / f"{number}.html")
    one, other = ((tmp_path / f"{number}.html").read_bytes() for number in (1, 2))
    assert one == other
    assert b"no command was typed" in one


def test_nothing_gets_out_of_its_place(results: Results) -> None:
    """Markup in names and warnings stays text, in the HTML and in the script's JSON."""
    evil = "</script><script>alert(1)</script>\"'&"
    rows = tuple({**row, "prompts": evil} for row in results("blind").rows())
    validation = results("blind")
    assert isinstance(validation, specsim.Validation)
    found = specsim.Validation(
        check=validation.check,
        measured=rows,
        errors=(evil,),
        failures=(evil,),
        inputs={evil: evil},
        warnings=(evil,),
    )
    tree = parse(page(found, evil))
    usual = parse(page(validation, "specsim"))
    assert len(tree.all("script")) == len(usual.all("script"))
    (warning,) = tree.all("li", class_="warning")
    assert warning.text == evil
    (command,) = tree.all("code")
    assert command.text == evil


def test_a_path_that_is_no_page_is_refused(results: Results, tmp_path: Path) -> None:
    for path in (tmp_path / "page.htm", tmp_path / "none" / "page.html"):
        with pytest.raises(InvalidArgumentError, match=r"must be an \.html in a folder"):
            specsim.write_page(results("blind"), path)
    folder = tmp_path / "folder.html"
    folder.mkdir()
    with pytest.raises(FileError, match="is a folder; name a file in it"):
        check_page_path("--report", folder)


def test_the_command_writes_a_page(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    path = tmp_path / "page.html"
    words = ("optimize", *SHAPES, "--alpha", "0.8", "--batch", "1,8", "--report", str(path))
    code, _, err = run(capsys, *words)
    assert code == 0, err
    assert err.splitlines()[-1] == f"page: {path}"
    tree = parse(path.read_text())
    assert len(tree.all("figure")) == 3
    assert tree.all("code")[0].text.startswith("specsim")


def test_the_demo_ends_with_its_page(
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    results: Results,
) -> None:
    """What takes minutes is taken as done."""
    monkeypatch.setattr("specsim.api.demo.demonstrate", lambda *_, **__: results("demonstration"))
    code, _, err = run(capsys, "demo", "--out", str(tmp_path))
    assert code == 0, err
    assert err.splitlines()[-1] == f"page: {tmp_path / 'page.html'}"
    assert len(parse((tmp_path / "page.html").read_text()).all("figure")) == 2


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ("optimize --alpha 0.8 --c 0.1 --report p.html", "--report needs --profile, or --target"),
        ("explain --gamma 2 --report p.txt", "--report p.txt must be an .html in a folder"),
        ("study all --out o --report no/p.html", "--report no/p.html must be an .html in a folder"),
    ],
)
def test_bad_input_has_one_line(words: str, said: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert said in fail(capsys, *words.split())


# --- charts


def drawn(spec: dict[str, Any]) -> ElementTree.Element:
    """The picture that the library draws of a specification, as SVG, without a browser."""
    import vl_convert

    fixed = {**spec, "width": 400}
    return ElementTree.fromstring(vl_convert.vegalite_to_svg(fixed))


def marks(picture: ElementTree.Element, kind: str) -> int:
    """Marks of a kind, such as symbol, in a picture."""
    return sum(
        len(list(group))
        for group in picture.iter()
        if {f"mark-{kind}", "role-mark"} <= set(group.get("class", "").split())
    )


@pytest.mark.parametrize("name", RESULTS)
def test_every_chart_is_drawn_with_all_its_points(name: str, results: Results) -> None:
    for chart in content_of(results(name)).charts:
        picture = drawn(specification(chart))
        wanted = expected_marks(chart)
        assert sum(wanted.values()) > 0, chart.title
        for kind, count in wanted.items():
            assert marks(picture, kind) == count, (chart.title, kind)
        banded = [
            each
            for each in chart.names
            if chart.mark_of(each) in ("line", "step")
            and chart.interval
            and with_interval(chart.of(each), *chart.interval)
        ]
        assert marks(picture, "area") == len(banded), chart.title


LINES = Chart(
    "c",
    "Times",
    [
        {"series": name, "x": x, "ms": 10.0 * x, "low": 9.0 * x, "high": 12.0 * x}
        for name in ("a", "b")
        for x in (1, 2, 16)
    ],
    Axis("x", "requests", "log"),
    Axis("ms", "time (ms)"),
    interval=("low", "high"),
    levels=[Level(100.0, "the limit")],
)


def test_a_switched_off_series_is_not_drawn() -> None:
    spec = specification(LINES)
    assert marks(drawn(spec), "symbol") == 6
    spec["params"] = [{"name": "hidden", "value": ["a"]}]
    picture = drawn(spec)
    assert marks(picture, "symbol") == 3
    assert marks(picture, "area") == marks(picture, "line") == 1


def test_a_chart_in_words() -> None:
    assert alternative(LINES) == (
        "Times: lines. Time (ms) by requests. a: 10 at 1 to 160 at 16; highest 160 at 16, lowest "
        "10 at 1, 3 points. b: 10 at 1 to 160 at 16; highest 160 at 16, lowest 10 at 1, 3 points. "
        "A line at 100: the limit. Intervals are drawn."
    )


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (10213, "10,213"),
        (10213.4, "10,213"),
        (0.0123456, "0.01235"),
        (9.99996, "10"),
        (1.0, "1"),
        (3.5e-12, "3.5e-12"),
        (None, "-"),
        (float("nan"), "-"),
        (True, "yes"),
        ([1, 2000], "1, 2,000"),
        ({"draft": 0.5}, "draft 0.5"),
        ("a", "a"),
    ],
)
def test_cells(value: Any, text: str) -> None:
    assert cell(value) == text


def test_sentences() -> None:
    assert [sentence(each) for each in ("it pays", "It pays.", "")] == ["It pays.", "It pays.", ""]
