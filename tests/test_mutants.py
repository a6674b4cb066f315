"""What is kept of mutants (make mutants) is what the page says, and of modules that there are."""

from __future__ import annotations

from pathlib import Path

from tests.support.mutants import page
from tests.support.mutants.results import Results, equivalents, killers, read

ROOT = Path(__file__).parents[1]


def test_the_page_is_of_the_results() -> None:
    assert (ROOT / page.PAGE).read_text(encoding="utf-8") == page.text()


def test_a_module_in_which_nothing_can_be_changed_has_a_row() -> None:
    assert page.line(Results("some.module", "", 0)) == "| `some.module` | 0 | 0 | 0 | | | |"


def test_modules_and_their_tests_are_there() -> None:
    for module, tests in killers().items():
        assert (ROOT / Path(*module.split("."))).with_suffix(".py").is_file(), module
        assert tests
        for each in tests:
            assert (ROOT / each.partition("::")[0]).is_file(), each


def test_what_is_explained_survived() -> None:
    for module, was, now in equivalents():
        found = read(module)
        assert found is not None, module
        assert (was, now) in [(each.was, each.now) for each in found.survivors], (module, was)
