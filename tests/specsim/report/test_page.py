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

import pytest

import specsim
from specsim.api.result import plain
from specsim.checks import InvalidArgumentError
from specsim.report.page.chart import INK, PALETTE, Axis, Chart, Level, with_interval
from specsim.report.page.content import DESCRIBED, content_of
from specsim.report.page.shown import shown_inputs
from specsim.report.page.vega import specification
from specsim.report.page.words import alternative, cell, sentence
from specsim.report.page.write import page
from specsim.report.tables import render
from tests.support.command_line import SHAPES, fail, run
from tests.support.drawn import expected_marks
from tests.support.html import Element, parse
from tests.support.results import RESULTS

MEGABYTE = 1_000_000
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
        assert boxes == (chart.names if len(chart.names) > 1 else [])


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


# --- colours


def luminance(colour: str) -> float:
    """WCAG 2.2, relative luminance."""
    parts = [int(colour[at : at + 2], 16) / 255 for at in (1, 3, 5)]
    linear = [
        part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts
    ]
    return sum(weight * part for weight, part in zip((0.2126, 0.7152, 0.0722), linear, strict=True))


def contrast(one: str, other: str) -> float:
    """WCAG 2.2, contrast ratio."""
    light, dark = sorted((luminance(one), luminance(other)), reverse=True)
    return (light + 0.05) / (dark + 0.05)


def grounds() -> list[dict[str, str]]:
    """The colours of the page by name: light, dark, printed."""
    blocks = re.findall(r":root \{(.*?)\}", _STYLE.read_text(), re.DOTALL)
    return [dict(re.findall(r"--(\w+): (#[0-9a-f]{6});", block)) for block in blocks]


def test_there_is_a_light_a_dark_and_a_printed_style() -> None:
    style = _STYLE.read_text()
    assert "@media (prefers-color-scheme: dark)" in style
    assert "@media print" in style
    light, dark, printed = grounds()
    assert light.keys() == dark.keys() == printed.keys()
    for colours in (light, dark, printed):
        for name in ("ink", "quiet", "link", "warning"):
            # WCAG 2.2, 1.4.3: text.
            assert contrast(colours[name], colours["card"]) >= 4.5, name
            assert contrast(colours[name], colours["ground"]) >= 4.5, name


@pytest.mark.parametrize("colour", PALETTE)
def test_colours_of_charts_stand_out_in_light_and_dark(colour: str) -> None:
    for colours in grounds():
        # WCAG 2.2, 1.4.11: graphics.
        assert contrast(colour, colours["card"]) >= 3.0


def test_series_differ_in_more_than_colour() -> None:
    rows = [{"series": str(number), "x": 1, "y": 1} for number in range(20)]
    chart = Chart("c", "", rows, Axis("x", ""), Axis("y", ""))
    looks = [chart.look_of(name) for name in chart.names]
    assert len({(look.colour, look.dash) for look in looks}) == 20
    for before, after in pairwise(looks):
        assert before.shape != after.shape
    assert INK not in PALETTE
