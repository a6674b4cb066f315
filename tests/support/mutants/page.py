"""docs/mutants.md, made of what is kept: the score of every module and each survivor."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from specsim.intervals import wilson_interval
from tests.support.mutants.results import Results, explained, killers, read

PAGE = Path("docs/mutants.md")

_HEAD = """\
# What the tests would miss

A *mutant* is a module with one thing changed: `<` by `<=`, a number by its neighbour, an `and` by
an `or`. A test that fails kills it; a mutant that no test kills is a mistake that nobody would
notice, or no mistake at all. `make mutants` draws mutants of the modules that everything rests on,
with a fixed seed, runs the tests of the module on each (`modules.toml` in `tests/support/mutants`),
keeps what came of it (`results`, there) and writes this page; `make mutants MUTANTS=--all` tries
all of them. The interval is that of a sample (Wilson, 95 %). Mutants that compute the same are not
taken out: they count as survivors, and are explained below.

| module | places | tried | killed | score | 95 % | survivors explained |
|---|---|---|---|---|---|---|
"""


def line(results: Results) -> str:
    """The row of a module."""
    tried = len(results.tried)
    if not tried:
        return f"| `{results.module}` | {results.places} | 0 | 0 | | | |"
    known = sum(bool(why) for _, why in explained(results.module, results.survivors))
    found = wilson_interval(np.array(results.killed / tried), np.array(float(tried)), 0.95)
    survived = f"{known} of {tried - results.killed}" if results.killed < tried else ""
    return (
        f"| `{results.module}` | {results.places} | {tried} | {results.killed} | "
        f"{found.best:.0%} | {found.low:.0%} to {found.high:.0%} | {survived} |"
    )


def text() -> str:
    """The whole page."""
    kept = [found for module in killers() if (found := read(module))]
    places, tried = sum(each.places for each in kept), sum(len(each.tried) for each in kept)
    killed = sum(each.killed for each in kept)
    total = f"| all | {places} | {tried} | {killed} | {killed / max(tried, 1):.1%} | | |"
    lines = [_HEAD + "\n".join([*map(line, kept), total]), "", "## Survivors", ""]
    for results in kept:
        for each, why in explained(results.module, results.survivors):
            lines += [
                f"- `{results.module}`: {_code(each.was)} becomes {_code(each.now)}. "
                f"{why or 'Not explained yet.'}"
            ]
    return "\n".join(lines) + "\n"


def write() -> None:
    PAGE.write_text(text(), encoding="utf-8")


def _code(line: str) -> str:
    fence = "``" if "`" in line else "`"
    return f"{fence}{line}{fence}"


if __name__ == "__main__":
    write()
