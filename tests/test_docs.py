"""The pages in docs that hold examples: every one of them is run."""

from __future__ import annotations

import ast
import doctest
import re
from pathlib import Path

import pytest

from tests.support.console import Example, examples, printed
from tests.support.typed_commands import PAGES

DOCS = Path(__file__).parents[1] / "docs"
DOCTESTS = (
    "acceptance-over-gamma",
    "deployments",
    "gpu-suite",
    "law-of-a-block",
    "python",
    "sweep",
)
_PYTHON = re.compile(r"^```python\n(.*?)^```$", re.MULTILINE | re.DOTALL)
# Behind a value that is not kept, what it is.
_VALUE = re.compile(r"  # (.+)$")


def python_of(page: Path) -> list[str]:
    """The blocks of a page, in order."""
    return _PYTHON.findall(page.read_text("utf-8"))


def run_python(block: str, names: dict[str, object]) -> int:
    """Run it line by line; how many values were as the page says."""
    lines, compared = block.splitlines(), 0
    for each in ast.parse(block).body:
        if not isinstance(each, ast.Expr):
            exec(compile(ast.Module([each], []), "<page>", "exec"), names)
            continue
        value = eval(compile(ast.Expression(each.value), "<page>", "eval"), names)
        if said := _VALUE.search(lines[(each.end_lineno or 1) - 1]):
            assert repr(value) == said[1], lines[each.lineno - 1]
            compared += 1
    return compared


@pytest.mark.parametrize("page", DOCTESTS)
def test_a_page_runs(page: str) -> None:
    failed, tried = doctest.testfile(str(DOCS / f"{page}.md"), module_relative=False)
    assert tried > 5
    assert not failed


@pytest.mark.parametrize(("page", "least"), [("questions", 11), ("serving", 3)])
def test_a_page_has_its_examples(page: str, least: int) -> None:
    assert len(list(examples(DOCS / f"{page}.md"))) >= least


# What Python says of itself on standard error is nothing that a page shows.
@pytest.mark.filterwarnings("error::UserWarning", "error::RuntimeWarning", "error::FutureWarning")
@pytest.mark.parametrize(
    "example",
    [each for page in PAGES for each in examples(page)],
    ids=lambda example: " ".join(example.words),
)
def test_questions_are_answered_as_printed(example: Example) -> None:
    """At a terminal of 80 columns, which they fit, as all commands of the pages do: those without
    their output on the page are tried by test_at_a_terminal.py.
    """
    screen = example.run()
    assert screen.code in (0, 1), screen.err
    assert printed(screen) == example.output
    assert screen.tables or example.words[0] == "export"
    screen.check()


@pytest.mark.parametrize(
    "page", [page for page in PAGES if python_of(page)], ids=lambda page: page.name
)
def test_blocks_of_python_run(page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """In an empty folder, each going on from those before it, with the values that the page says;
    those with prompts are tried by test_a_page_runs.
    """
    monkeypatch.chdir(tmp_path)
    names: dict[str, object] = {}
    for block in python_of(page):
        run_python(block, names)
    if page.name == "pages.md":
        assert (tmp_path / "page.html").read_text("utf-8").startswith("<!doctype html>")


def test_pages_have_blocks_of_python_whose_values_are_compared() -> None:
    assert {page.name for page in PAGES if python_of(page)} >= {"README.md", "pages.md"}
    assert run_python(python_of(PAGES[0])[0], {}) == 1
    assert run_python("1 + 1  # 2\n(2,\n 3)  # (2, 3)\nx = 3  # a number\nx + 1", {}) == 2
    with pytest.raises(AssertionError):
        run_python("1 + 1  # 3", {})


def test_no_page_has_prompts_that_are_not_run() -> None:
    with_prompts = {page.stem for page in PAGES if re.search(r"^\s*>>> ", page.read_text(), re.M)}
    assert with_prompts == set(DOCTESTS)
