"""Texts of words that tiny tokenizers know."""

from __future__ import annotations

from pathlib import Path

import numpy as np


def write_words(path: Path, lines: int, words: int, first: int = 2) -> Path:
    """So many lines of so many words, drawn from w``first`` to w63; always the same."""
    random = np.random.default_rng(3)
    drawn = (random.integers(first, 64, words) for _ in range(lines))
    path.write_text("".join(" ".join(f"w{word}" for word in line) + "\n" for line in drawn))
    return path
