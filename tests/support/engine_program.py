"""A ``vllm`` whose Python knows the made-up packages of ``engine_package``."""

from __future__ import annotations

import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]


def engine_program(folder: Path) -> Path:
    """``vllm`` in a folder, with a ``python`` beside it."""
    packages = f"{ROOT}/tests/support/engine_package:{ROOT}"
    python = folder / "python"
    python.write_text(f'#!/bin/sh\nPYTHONPATH={packages} exec {sys.executable} "$@"\n')
    path = folder / "vllm"
    path.write_text("#!/bin/sh\nexit 1\n")
    for each in (python, path):
        each.chmod(0o755)
    return path
