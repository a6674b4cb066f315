"""The documentation site: it says all that the commands say, and builds without a warning."""

from __future__ import annotations

import re
import subprocess
import sys
from html.parser import HTMLParser
from importlib import import_module
from pathlib import Path

import click
import pytest

from specsim.cli import COMMANDS
from specsim.schemes import SCHEMES
from tools.command_pages import examples, on_page_markdown, pages

ROOT = Path(__file__).parents[1]


@pytest.mark.parametrize("name", list(COMMANDS))
def test_a_page_has_every_option_and_example_of_its_command(name: str) -> None:
    command: click.Command = import_module(f"specsim.commands.{name}").command
    page = pages()[f"commands/{name}.md"]
    for parameter in command.params:
        if isinstance(parameter, click.Option):
            assert all(word in page for word in parameter.opts), parameter.opts
    assert all(example in page for example in examples(command))
    if isinstance(command, click.Group):
        assert all(f"## specsim {name} {scheme}\n" in page for scheme in SCHEMES)


def test_a_command_in_the_place_of_another_is_on_its_page() -> None:
    page = pages()["commands/validate.md"]
    assert "## specsim validate --serving\n" in page
    assert "--step-cost" in page


def test_links_out_of_the_pages_become_names() -> None:
    before = "as [measured](../studies/measured/README.md#how), see [serving](serving.md)"
    named = "`studies/measured/README.md` in the repository"
    after = f"as measured ({named}), see [serving](serving.md)"
    assert on_page_markdown(before, None, None, None) == after  # type: ignore[arg-type]


class _Loaded(HTMLParser):
    """What a browser fetches by itself when it opens a page."""

    def __init__(self) -> None:
        super().__init__()
        self.found: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = {name: value or "" for name, value in attrs}
        if tag in ("script", "img", "iframe", "source"):
            self.found.append(given.get("src", ""))
        if tag == "link" and given.get("rel") in ("stylesheet", "icon", "preconnect", "preload"):
            self.found.append(given.get("href", ""))


def test_the_site_builds_without_a_warning_and_loads_nothing_from_elsewhere(
    tmp_path: Path,
) -> None:
    pytest.importorskip("material", reason="pip install 'specsim[dev]'")
    built = subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(tmp_path)],
        cwd=ROOT,
        capture_output=True,
        text=True,
    )
    assert built.returncode == 0, built.stderr
    names = {path.relative_to(tmp_path).as_posix() for path in tmp_path.rglob("*.html")}
    assert {f"commands/{name}.html" for name in ("index", *COMMANDS)} <= names
    assert {f"{page.stem}.html" for page in (ROOT / "docs").glob("*.md")} <= names
    for page in tmp_path.rglob("*.html"):
        loaded = _Loaded()
        loaded.feed(page.read_text("utf-8"))
        away = [each for each in loaded.found if re.match(r"(https?:)?//", each)]
        assert not away, f"{page.name}: {away}"
