"""Texts that engines printed, with their sources in the first lines."""

from __future__ import annotations

from pathlib import Path

SAMPLES = Path(__file__).parents[1] / "reference" / "engines"


def sample(name: str) -> str:
    """A text as a person would save it, its source in comment lines above."""
    return (SAMPLES / name).read_text()


def without_header(name: str) -> str:
    """The text alone."""
    return "".join(line for line in sample(name).splitlines(True) if not line.startswith("#"))
