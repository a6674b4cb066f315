"""Changes modules in one place at a time, and sees whether their tests notice.

    python -m tests.support.mutants.run [--module specsim.rules] [--mutants 60 | --all] [--again]

Of each module of modules.toml so many mutants are drawn, with a fixed seed; the first n of a longer
run are those of a shorter one.  A mutant runs the tests of its module with few examples, and where
it survives, with all.  What came of it is kept in results/ at once: a run that was stopped goes on,
and a module that was changed begins anew.  ``--again`` tries those once more that survived and of
which equivalent.toml does not say why.  ``python -m tests.support.mutants.page`` makes
docs/mutants.md of what is kept.
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from dataclasses import replace
from itertools import islice
from pathlib import Path

from tests.support.mutants import page
from tests.support.mutants.listing import Mutant, digest, places, sample
from tests.support.mutants.results import Result, Results, equivalents, killers, read
from tests.support.mutants.trial import load, try_out

_SEED = 0
_FEW, _ALL = "mutants", "specsim"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--module", default="", help="those whose names begin so")
    parser.add_argument("--mutants", type=int, default=60)
    parser.add_argument("--all", action="store_true")
    parser.add_argument("--again", action="store_true")
    asked = parser.parse_args()
    if os.geteuid() == 0:
        raise SystemExit(
            "a mutant of what writes files may replace all that its user may, devices too: run "
            "this as a user without such rights"
        )
    for module, tests in killers().items():
        if module.startswith(asked.module):
            most = sys.maxsize if asked.all else asked.mutants
            print(page.line(_module(module, tests, most, asked.again)), flush=True)
    return 0


def _module(module: str, tests: list[str], most: int, again: bool) -> Results:
    """Try what is not tried yet."""
    source = Path(*module.split(".")).with_suffix(".py").read_text(encoding="utf-8")
    found = read(module)
    if found is None or found.digest != digest(source):
        found = Results(module, digest(source), len(places(source)))
    if again:
        known = equivalents()
        kept = [
            each for each in found.tried if each.killed_by or (module, each.was, each.now) in known
        ]
        found = replace(found, tried=tuple(kept))
    done = {each.key for each in found.tried}
    if len(done) >= most:
        return found
    seconds = [_seconds(module, source, tests, profile) for profile in (_FEW, _ALL)]
    for mutant in islice(sample(source, _SEED), most):
        if mutant.key in done:
            continue
        begun = time.monotonic()
        result = _try(module, mutant, tests, seconds)
        found = replace(found, tried=(*found.tried, result))
        found.write()
        took = time.monotonic() - begun
        said = result.killed_by or f"SURVIVED  {result.was}  ->  {result.now}"
        print(f"  {module}:{result.line} {took:.1f} s  {said}", flush=True)
    return found


def _seconds(module: str, source: str, tests: list[str], profile: str) -> float:
    """What the tests take with the module as it is, which they must accept."""
    for _ in range(2):  # the second time with everything loaded
        trial = try_out(module, source, tests, profile)
        if trial.killed_by:
            raise SystemExit(f"{module}: {trial.killed_by} fails without a change")
        load(trial.loaded)
    print(f"{module}: {trial.cpu_s:.1f} s with the examples of {profile}", flush=True)
    return trial.cpu_s


def _try(module: str, mutant: Mutant, tests: list[str], seconds: list[float]) -> Result:
    killed = ""
    for profile, usual in zip((_FEW, _ALL), seconds, strict=True):
        killed = killed or try_out(module, mutant.source, tests, profile, usual).killed_by
    return Result(mutant.operator, mutant.occurrence, mutant.line, mutant.was, mutant.now, killed)


if __name__ == "__main__":
    sys.exit(main())
