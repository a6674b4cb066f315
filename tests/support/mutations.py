"""Texts of engines, cut and changed at random, and what may be answered to them."""

from __future__ import annotations

import random
import re
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from specsim.api.read import EngineCounts, engine_counts
from specsim.checks import SpecsimError
from specsim.engines.readers.pooling import pooled_files

SAMPLES = Path(__file__).parents[1] / "reference" / "engines"

# What replaces a number or a word somewhere in a text.
_HOSTILE = (
    *("nan", "NaN", "inf", "-Infinity", "1e400", "-1", "-0.0", "0", "1e-400", "9" * 500, "true"),
    *(
        "null",
        "",
        "\u0663",
        "\uff11\uff12",
        "0x1f",
        "1_000",
        "1,000",
        "1e5",
        "99999999999",
        "0.5.5",
        "\x00",
    ),
    *(
        "\ud7ff",
        "[" * 5000,
        '{"a":' * 3000,
        '"',
        "}",
        "{}",
        "[]",
        '""',
        "{",
        "%",
        "\N{ZERO WIDTH SPACE}",
    ),
)


def sample(name: str) -> str:
    """A text that an engine printed, with its source in the first lines."""
    return (SAMPLES / name).read_text()


def without_header(name: str) -> str:
    """The text alone, without the lines on its source."""
    return "".join(line for line in sample(name).splitlines(True) if not line.startswith("#"))


def mutations(text: str, number: int, seed: int = 0) -> Iterator[str]:
    """``number`` changed texts, each with one to three changes."""
    rng = random.Random(seed)
    changes = (_cut_character, _double_character, _swap_characters, _change_digit, _cut_line)
    changes += (_double_line, _swap_lines, _truncate, _hostile_number, _hostile_word, _cut_number)
    for _ in range(number):
        changed = text
        for _ in range(rng.choice((1, 1, 1, 2, 3))):
            changed = rng.choice(changes)(changed, rng)
        yield changed


def answer_to(text: str) -> EngineCounts | None:
    """What ``specsim.read`` says of a file with this text; None where it refuses it in one line.

    An answer has shares in [0, 1] that do not rise, and lengths that its draft length allows.
    """
    content = text.encode("utf-8", errors="surrogatepass")
    try:
        found = engine_counts(pooled_files([("changed", content)]), {})
    except SpecsimError as error:
        message = str(error)
        assert message
        assert "\n" not in message
        return None
    check(found)
    return found


def check(found: EngineCounts) -> None:
    """Refuse a rate that is none: above one, rising, not finite, or contradicting its counts."""
    for counts in found.counts:
        assert counts.rounds > 0
        assert np.isfinite([counts.rounds, counts.accepted, *counts.reached]).all()
        assert counts.drafted is None or 0 <= counts.accepted <= counts.drafted
        assert counts.gamma is None or 1 <= counts.tokens_per_call <= counts.gamma + 1
        if counts.reached:
            marginal, conditional = counts.marginal(), counts.conditional()
            for rates in (marginal, conditional):
                curves = np.array([rates.low, rates.best, rates.high])
                assert np.isfinite(curves).all()
                assert ((curves >= 0) & (curves <= 1)).all()
            assert (np.diff([1, *marginal.best]) <= 1e-9).all()
            # Shares are printed to three or four digits.
            off = abs(sum(counts.reached) - counts.accepted)
            assert off <= 1e-3 * counts.rounds * len(counts.reached)
    for length in found.lengths:
        assert np.isfinite(length.tokens_per_call)
        assert length.tokens_per_call >= 1
    for step in found.steps:
        assert np.isfinite(step.seconds)
        assert step.seconds > 0
    assert found.table()
    assert found.to_json()


def _cut_character(text: str, rng: random.Random) -> str:
    i = rng.randrange(len(text) or 1)
    return text[:i] + text[i + rng.choice((1, 1, 5, 50)) :]


def _double_character(text: str, rng: random.Random) -> str:
    i = rng.randrange(len(text) or 1)
    return text[:i] + text[i : i + 1] * 2 + text[i + 1 :]


def _swap_characters(text: str, rng: random.Random) -> str:
    i = rng.randrange(len(text) or 1)
    return text[:i] + text[i + 1 : i + 2] + text[i : i + 1] + text[i + 2 :]


def _change_digit(text: str, rng: random.Random) -> str:
    return _replace(text, r"\d", str(rng.randrange(10)), rng)


def _cut_line(text: str, rng: random.Random) -> str:
    lines = text.splitlines(keepends=True)
    if lines:
        del lines[rng.randrange(len(lines))]
    return "".join(lines)


def _double_line(text: str, rng: random.Random) -> str:
    lines = text.splitlines(keepends=True)
    if lines:
        i = rng.randrange(len(lines))
        lines.insert(rng.randrange(len(lines)), lines[i])
    return "".join(lines)


def _swap_lines(text: str, rng: random.Random) -> str:
    lines = text.splitlines(keepends=True)
    if len(lines) > 1:
        i, j = rng.sample(range(len(lines)), 2)
        lines[i], lines[j] = lines[j], lines[i]
    return "".join(lines)


def _truncate(text: str, rng: random.Random) -> str:
    return text[: rng.randrange(len(text) or 1)]


def _hostile_number(text: str, rng: random.Random) -> str:
    return _replace(text, r"\d+(\.\d+)?", rng.choice(_HOSTILE), rng)


def _cut_number(text: str, rng: random.Random) -> str:
    return _replace(text, r"\d+(\.\d+)?", "", rng)


def _hostile_word(text: str, rng: random.Random) -> str:
    return _replace(text, r"\w+", rng.choice(_HOSTILE), rng)


def _replace(text: str, pattern: str, word: str, rng: random.Random) -> str:
    places = [*re.finditer(pattern, text)]
    if not places:
        return text
    found = rng.choice(places)
    return text[: found.start()] + word + text[found.end() :]
