"""The pages in docs that hold examples: every one of them is run."""

from __future__ import annotations

import doctest
from pathlib import Path

import pytest

from tests.support.console import Example, examples, printed
from tests.support.typed_commands import PAGES

DOCS = Path(__file__).parents[1] / "docs"


@pytest.mark.parametrize(
    "page", ["acceptance-over-gamma", "deployments", "law-of-a-block", "python", "sweep"]
)
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
