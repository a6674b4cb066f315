"""Pages in a headless Chromium: everything is drawn, answers the mouse and the keyboard, fits the
screen, and stays on this machine.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import specsim
from specsim.report.page.content import content_of
from specsim.report.tables import render
from tests.support.browser import Opened, chromium, opened
from tests.support.drawn import expected_marks

pytest.importorskip("playwright.sync_api")
pytestmark = [pytest.mark.browser, pytest.mark.long]

# One of every kind of page, and of every kind of mark.
PAGES = (
    *("by load", "many contexts", "calibration", "engine calibration", "blind", "schemes"),
    *("synthetic", "demonstration", "serving", "serving verdict", "deferral at a price"),
    *("plan", "explanation", "study", "sweep of many", "comparison"),
)


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    from playwright.sync_api import Error

    try:
        with chromium() as found:
            yield found
    except Error as error:
        pytest.skip(f"no Chromium: {str(error).splitlines()[0]}")


@pytest.fixture(scope="module")
def written(
    tmp_path_factory: pytest.TempPathFactory, results: Callable[[str], specsim.Result]
) -> Callable[[str], tuple[specsim.Result, Path]]:
    """Results and their pages by name, each written once."""
    folder = tmp_path_factory.mktemp("pages")
    found: dict[str, tuple[specsim.Result, Path]] = {}

    def get(name: str) -> tuple[specsim.Result, Path]:
        if name not in found:
            place = folder / name.replace(" ", "-")
            place.mkdir()
            result = results(name)
            specsim.write_page(result, place / "page.html", f"specsim {name}")
            found[name] = result, place / "page.html"
        return found[name]

    return get


Written = Callable[[str], tuple[specsim.Result, Path]]


def marks(page: Opened, chart: str, kind: str) -> int:
    return page.count(f"#chart-{chart} g.mark-{kind}.role-mark > *")


@pytest.mark.parametrize(("width", "dark"), [(1600, False), (360, True)])
@pytest.mark.parametrize("name", PAGES)
def test_a_page_is_drawn_fits_the_screen_and_no_request_leaves(
    name: str, width: int, dark: bool, browser: Any, written: Written
) -> None:
    """Every chart with all its marks, as wide as its place; where axe is there, it finds nothing
    serious.
    """
    result, path = written(name)
    with opened(browser, path, width, dark) as page:
        charts = content_of(result).charts
        assert page.count(".plot svg") == len(charts) > 0
        assert page.count(".plot.failed") == 0
        for chart in charts:
            for kind, count in expected_marks(chart).items():
                assert marks(page, chart.name, kind) == count, (chart.title, kind)
        assert page.is_as_wide_as_the_screen()
        for plot in page.page.locator(".plot").all():
            drawn, place = plot.locator("svg").bounding_box(), plot.bounding_box()
            assert drawn["width"] <= place["width"] + 1
            assert drawn["width"] >= 0.8 * place["width"]
        assert page.said == []
        assert page.requests == []
        assert serious(page) == []


def serious(page: Opened) -> list[Any]:
    """What axe says is serious; nothing where it is not there."""
    try:
        from axe_playwright_python.sync_playwright import Axe
    except ImportError:
        return []
    found = Axe().run(page.page).response["violations"]
    return [
        (each["id"], [node["html"][:120] for node in each["nodes"][:3]])
        for each in found
        if each["impact"] in ("serious", "critical")
    ]


def test_a_tooltip_answers_the_mouse(browser: Any, written: Written) -> None:
    _, path = written("by load")
    with opened(browser, path) as page:
        point = page.page.locator("#chart-speedup g.mark-symbol.role-mark > *").first
        point.scroll_into_view_if_needed()
        point.hover(force=True)
        page.page.wait_for_selector("#vg-tooltip-element.visible", timeout=5000)
        said = page.page.locator("#vg-tooltip-element").inner_text()
        assert "speedup over plain decoding" in said
        # Two lines begin at one place; the upper one answers.
        assert "context 4,096" in said
        assert "draft tokens, gamma" in said


def test_the_legend_switches_series(browser: Any, written: Written) -> None:
    with opened(browser, written("by load")[1]) as page:
        before = marks(page, "speedup", "symbol")
        first, second = page.page.locator("figure:has(#chart-speedup) .keys input").all()
        first.focus()
        page.page.keyboard.press("Space")
        selector = "#chart-speedup g.mark-line.role-mark > *"
        page.page.wait_for_function(f"document.querySelectorAll('{selector}').length === 1")
        assert 0 < marks(page, "speedup", "symbol") < before
        second.click()
        assert second.is_checked(), "the last series stays"
        first.click()
        page.page.wait_for_function(f"document.querySelectorAll('{selector}').length === 2")
        assert marks(page, "speedup", "symbol") == before
        assert page.said == []


def test_a_file_of_data_is_downloaded(browser: Any, written: Written) -> None:
    result, path = written("blind")
    with opened(browser, path) as page:
        with page.page.expect_download() as coming:
            page.page.locator("a[download='result.csv']").click()
        file = Path(coming.value.path())
        assert file.read_text() == render(result.rows(), "csv") + "\n"


def test_text_follows_light_and_dark(browser: Any, written: Written) -> None:
    ink = "getComputedStyle(document.querySelector('#chart-speedup text')).fill"
    ground = "getComputedStyle(document.body).backgroundColor"
    found = {}
    for dark in (False, True):
        with opened(browser, written("by load")[1], dark=dark) as page:
            found[dark] = page.page.evaluate(ink), page.page.evaluate(ground)
    assert found[False] == ("rgb(27, 31, 36)", "rgb(244, 245, 247)")
    assert found[True] == ("rgb(230, 237, 243)", "rgb(13, 17, 23)")


def test_a_page_prints(browser: Any, written: Written) -> None:
    with opened(browser, written("by load")[1], dark=True) as page:
        page.page.emulate_media(media="print")
        ground = page.page.evaluate("getComputedStyle(document.body).backgroundColor")
        assert ground == "rgb(255, 255, 255)"
        assert not page.page.locator("details").first.is_visible()
        assert page.page.pdf(format="A4").startswith(b"%PDF")
