"""``specsim.write_page``: a result as one HTML file that needs nothing else.

The library that draws, Vega with Vega-Lite and Vega-Embed, comes out of vl-convert-python, which
the Vega project keeps up; docs/pages.md says why it was chosen.  It takes some three seconds to put
its script together, once in a process.
"""

from __future__ import annotations

import json
from functools import cache
from os import PathLike
from pathlib import Path

from specsim import __version__
from specsim.api.result import Result, plain
from specsim.checks import InvalidArgumentError
from specsim.files import check_replaceable, write_atomically
from specsim.report.page.content import content_of
from specsim.report.page.shown import ShownChart, ShownTable, name_of_input, shown_inputs
from specsim.report.page.vega import specification

_HERE = Path(__file__).parent


def write_page(result: Result, path: str | PathLike[str], command: str | None = None) -> None:
    """Write a page of ``result``: the question and its answer, charts, tables, every warning, the
    inputs, and the data as CSV.

    path : an .html in a folder that exists
    command : what repeats it; None: nothing was typed, and the page says so

    The file opens from disk and asks the network for nothing.  The same result gives the same
    bytes.  Raises InvalidArgumentError for a path that cannot be a page, FileError where it cannot
    be written.
    """
    path = Path(path)
    check_page_path("path", path)
    write_atomically(path, page(result, command).encode())


def check_page_path(name: str, path: Path) -> None:
    """Refuse, before anything is worked out, a page that could not be written."""
    if path.suffix != ".html" or not path.parent.is_dir():
        raise InvalidArgumentError(f"{name} {path} must be an .html in a folder that exists")
    check_replaceable(path, name)


def page(result: Result, command: str | None = None) -> str:
    """The HTML of ``write_page``."""
    import jinja2

    content = content_of(result)
    specifications = [
        {"id": f"chart-{chart.name}", "spec": specification(chart)} for chart in content.charts
    ]
    templates = jinja2.Environment(
        loader=jinja2.FileSystemLoader(_HERE),
        autoescape=True,
        trim_blocks=True,
        lstrip_blocks=True,
        undefined=jinja2.StrictUndefined,
    )
    return templates.get_template("page.html").render(
        content=content,
        kind=result.schema.removeprefix("specsim."),
        version=__version__,
        figures=[ShownChart.of(chart) for chart in content.charts],
        tables=[
            ShownTable.of(
                "result",
                result.title or "Result",
                result.table(),
                result.rows(),
                result.essential,
            ),
            *(ShownTable.of(each.name, each.title, each.rows) for each in content.tables),
        ],
        warnings=result.warnings,
        left_out=result.left_out,
        inputs=[(name_of_input(name), text) for name, text in shown_inputs(plain(result.inputs))],
        command=command,
        specifications=_for_script(
            json.dumps(specifications, allow_nan=False, separators=(",", ":"))
        ),
        library=_library(),
        style=(_HERE / "page.css").read_text("utf-8"),
        program=(_HERE / "page.js").read_text("utf-8"),
    )


@cache
def _library() -> str:
    """The script that draws, as it may stand in a ``<script>``."""
    import vl_convert

    bundle: str = vl_convert.javascript_bundle("window.vegaEmbed = vegaEmbed;")
    # What would end the element; inside strings of JavaScript the two are the same.
    return bundle.replace("</script", "<\\/script")


def _for_script(text: str) -> str:
    """JSON without anything that a ``<script>`` would end at."""
    return text.replace("<", "\\u003c")
