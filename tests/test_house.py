"""The structure of the repository: what may import what, and how large rooms may get."""

from __future__ import annotations

import ast
import re
import tomllib
from collections.abc import Iterator
from graphlib import CycleError, TopologicalSorter
from itertools import chain
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PACKAGES = ("specsim", "calibrate", "studies")
# Where a person's terminal is spoken to.
TERMINAL = ("specsim/cli.py", "specsim/__main__.py", "specsim/commands/", "specsim/report/")


def modules() -> dict[str, Path]:
    """All modules of the three packages by dotted name."""
    found = {}
    for package in PACKAGES:
        for path in sorted((ROOT / package).rglob("*.py")):
            parts = path.relative_to(ROOT).with_suffix("").parts
            found[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path
    return found


MODULES = modules()


def imports(path: Path) -> Iterator[tuple[str, bool]]:
    """What a module imports anywhere, by dotted name, and whether it only does so for types."""
    tree = ast.parse(path.read_text())
    typing_only = {
        id(child)
        for node in ast.walk(tree)
        if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING"
        for child in ast.walk(node)
    }
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield alias.name, id(node) in typing_only
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path} has a relative import"
            for alias in node.names:
                yield f"{node.module}.{alias.name}", id(node) in typing_only


def module_of(name: str) -> str | None:
    """The module of this house that an imported name lies in."""
    while name:
        if name in MODULES:
            return name
        name = name.rpartition(".")[0]
    return None


@pytest.mark.parametrize("library", ["click", "rich"])
def test_only_the_terminal_imports(library: str) -> None:
    guilty = [
        str(path.relative_to(ROOT))
        for path in MODULES.values()
        if not str(path.relative_to(ROOT)).startswith(TERMINAL)
        and any(name.partition(".")[0] == library for name, _ in imports(path))
    ]
    assert not guilty


def test_commands_are_small() -> None:
    """A hundred lines a file in the mean: there may be as many commands as users need, but each
    parses, calls and renders, and what it does otherwise belongs into a call.
    """
    files = list((ROOT / "specsim/commands").glob("*.py"))
    lines = sum(len(path.read_text().splitlines()) for path in files)
    assert lines <= 100 * len(files)


def test_few_modules_at_the_root() -> None:
    assert len(list((ROOT / "specsim").glob("*.py"))) <= 15


def test_calibrate_knows_no_command() -> None:
    guilty = [
        name
        for name, path in MODULES.items()
        if name.startswith(("calibrate", "studies"))
        and any(imported.startswith("specsim.commands") for imported, _ in imports(path))
    ]
    assert not guilty


def test_no_circle_of_imports() -> None:
    """Imports inside functions count too; only what is for types alone does not.

    The front door ``specsim`` loads every call on first use, so it is left out.
    """
    graph = {
        name: {
            found
            for imported, typing_only in imports(path)
            if not typing_only
            and (found := module_of(imported)) is not None
            and found not in (name, "specsim")
        }
        for name, path in MODULES.items()
        if name != "specsim"
    }
    try:
        TopologicalSorter(graph).prepare()
    except CycleError as error:
        pytest.fail(" -> ".join(reversed(error.args[1])))


def test_no_test_module_imports_another() -> None:
    """What several need is in ``tests/support`` and in fixtures of ``conftest.py``."""
    tests = ROOT / "tests"
    guilty = [
        f"{path.relative_to(ROOT)}: {name}"
        for path in tests.rglob("*.py")
        for name, _ in imports(path)
        if re.match(r"tests\.(?!support\b)", name)
    ]
    assert not guilty


def test_what_is_asked_for_is_pinned() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    asked = [*project["dependencies"], *chain(*project["optional-dependencies"].values())]
    pins = (ROOT / "constraints.txt").read_text().splitlines()[1:]
    names = {_normalized(line.partition("==")[0]) for line in pins}
    assert {_normalized(re.split("[<>=]", each)[0]) for each in asked} <= names


def _normalized(name: str) -> str:
    return re.sub("[-_.]+", "-", name).lower()
