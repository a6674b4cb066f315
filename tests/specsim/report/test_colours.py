"""Colours of pages: texts and charts stand out from what they lie on, and series from each other,
to people with every common colour vision.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from itertools import combinations, pairwise
from pathlib import Path

import pytest

import specsim
from specsim.report.explain_plots import _COLOURS as PICTURED
from specsim.report.page import chart as page_chart
from specsim.report.page.chart import INK, PALETTE, Axis, Chart, Look
from specsim.report.page.content import content_of
from specsim.report.page.explanation import _LOOKS as PARTS
from tests.support.colours import ciede2000, contrast, seen_apart
from tests.support.results import RESULTS

_STYLE = Path(specsim.__file__).parent / "report" / "page" / "page.css"
# Of CIEDE2000.  On a mark of a third of a degree, which is a point of a line, half of all people
# see that two colours differ by 7.3 in lightness, by 10 from green to red, or by 14 from blue to
# yellow (Stone, Szafir and Setlur 2014, "An engineering model for color difference as a function
# of size", in CIELAB), and fields of bars are larger.  CIEDE2000 counts differences of strong
# colours as less than CIELAB does.
LEAST = 10.0


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


# Sharma, Wu and Dalal (2005), table 1: pairs 1, 2, 7, 11, 13, 17, 18, 25 and 34.
@pytest.mark.parametrize(
    ("one", "other", "difference"),
    [
        ((50.0, 2.6772, -79.7751), (50.0, 0.0, -82.7485), 2.0425),
        ((50.0, 3.1571, -77.2803), (50.0, 0.0, -82.7485), 2.8615),
        ((50.0, 0.0, 0.0), (50.0, -1.0, 2.0), 2.3669),
        ((50.0, 2.49, -0.001), (50.0, -2.49, 0.0009), 7.1792),
        ((50.0, 2.49, -0.001), (50.0, -2.49, 0.0011), 7.2195),
        ((50.0, 2.5, 0.0), (73.0, 25.0, -18.0), 27.1492),
        ((50.0, 2.5, 0.0), (61.0, -5.0, 29.0), 22.8977),
        ((60.2574, -34.0099, 36.2677), (60.4626, -34.1751, 39.4387), 1.2644),
        ((2.0776, 0.0795, -1.1350), (0.9033, -0.0636, -0.5514), 0.9082),
    ],
)
def test_ciede2000_is_as_published(
    one: tuple[float, ...], other: tuple[float, ...], difference: float
) -> None:
    assert ciede2000(one, other) == pytest.approx(difference, abs=5e-5)
    assert ciede2000(other, one) == pytest.approx(difference, abs=5e-5)


def test_colours_that_are_taken_for_each_other_are_found() -> None:
    """Pairs that charts had until they were tried: without colour blindness they are far apart."""
    for one, other, vision in (
        ("#009E73", "#808080", "deuteranopia"),
        ("#0072B2", "#AA4499", "protanopia"),
    ):
        apart = seen_apart(one, other)
        assert apart["usual"] > 2 * LEAST
        assert min(apart, key=lambda name: apart[name]) == vision
        assert apart[vision] < LEAST


def in_light_and_dark(colours: set[str]) -> Iterator[list[str]]:
    """The colours as they are in each style: that of text is another in each."""
    for style in grounds():
        yield sorted(style["ink"] if each == INK else each for each in colours)


def check_all_apart(colours: set[str]) -> None:
    for shown in in_light_and_dark(colours):
        for one, other in combinations(shown, 2):
            apart = seen_apart(one, other)
            assert min(apart.values()) >= LEAST, (one, other, apart)


def test_colours_of_the_palette_are_told_apart() -> None:
    """With every common colour vision, also from the colour of text."""
    check_all_apart({*PALETTE, INK})
    named = {
        each for name, each in vars(page_chart).items() if re.fullmatch("#[0-9A-F]{6}", str(each))
    }
    assert named == set(PALETTE)


@pytest.mark.parametrize("name", RESULTS)
def test_series_of_every_chart_are_told_apart(
    name: str, results: Callable[[str], specsim.Result]
) -> None:
    """By their colours alone where they are stacked; others of one colour by dash or shape."""
    for chart in content_of(results(name)).charts:
        looks = [chart.look_of(each) for each in chart.names]
        check_all_apart({look.colour for look in looks})
        stacked = [
            look.colour
            for look, each in zip(looks, chart.names, strict=True)
            if chart.mark_of(each) == "bar"
        ]
        assert len(set(stacked)) == len(stacked), chart.title


def test_all_parts_of_a_step_are_told_apart() -> None:
    """Those that stand in one bar: a draft's runs have one name or two, and a target's as well."""
    of_deployment = {"first draft run", "later draft runs", "target", "look-ups", "communication"}
    others = {"draft runs", "whole step"}
    assert of_deployment | others | {"host"} == PARTS.keys()
    for names in (of_deployment | {"host"}, {"draft runs", "target", "host"}):
        looks: list[Look] = [PARTS[name] for name in sorted(names)]
        assert len({look.colour for look in looks}) == len(names)
        check_all_apart({look.colour for look in looks})
    check_all_apart(set(PICTURED.values()))
