"""The pages in docs that hold examples: every one of them is run."""

from __future__ import annotations

import doctest
from pathlib import Path

import pytest

from tests.support.console import examples

DOCS = Path(__file__).parents[1] / "docs"


@pytest.mark.parametrize(
    "page", ["acceptance-over-gamma", "deployments", "law-of-a-block", "python", "sweep"]
)
def test_a_page_runs(page: str) -> None:
    failed, tried = doctest.testfile(str(DOCS / f"{page}.md"), module_relative=False)
    assert tried > 5
    assert not failed


@pytest.mark.parametrize(("page", "least"), [("questions", 11), ("serving", 3)])
def test_questions_are_answered_as_printed(page: str, least: int) -> None:
    found = list(examples(DOCS / f"{page}.md"))
    assert len(found) >= least
    for example in found:
        assert example.run() == example.output, example.command
