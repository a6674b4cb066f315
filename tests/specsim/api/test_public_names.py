"""``import specsim``: its public names, what ``dir`` and ``help`` show, and that it is lazy."""

from __future__ import annotations

import ast
import inspect
import pydoc
import subprocess
import sys
from pathlib import Path

import specsim


def test_dir_shows_exactly_the_public_names() -> None:
    assert dir(specsim) == sorted(specsim.__all__)


def test_every_public_name_is_found_and_is_of_the_house() -> None:
    for name in specsim.__all__:
        assert getattr(specsim, name).__module__.startswith("specsim."), name


def test_type_checkers_are_told_of_the_same_names_in_the_same_homes() -> None:
    told = {
        alias.name: statement.module
        for branch in ast.parse(Path(inspect.getfile(specsim)).read_text()).body
        if isinstance(branch, ast.If)
        for statement in branch.body
        if isinstance(statement, ast.ImportFrom)
        for alias in statement.names
        if alias.asname == alias.name
    }
    assert told == specsim._HOME


def test_help_shows_the_signature_of_every_call() -> None:
    text = pydoc.render_doc(specsim, renderer=pydoc.plaintext)
    for name in specsim.__all__:
        value = getattr(specsim, name)
        if inspect.isfunction(value):
            first = next(iter(inspect.signature(value).parameters.values()))
            stars = "*" if first.kind is first.VAR_POSITIONAL else ""
            assert f"{name}({stars}{first.name}" in text


def test_import_loads_nothing_of_the_house_and_no_numpy() -> None:
    code = "import specsim, sys; print(*sys.modules)"
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    loaded = found.stdout.split()
    assert [name for name in loaded if name.split(".")[0] in ("specsim", "numpy")] == ["specsim"]
