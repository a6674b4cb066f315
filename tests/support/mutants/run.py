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
from dataclasses import dataclass, field, replace
from itertools import islice
from pathlib import Path

from tests.support.mutants import page
from tests.support.mutants.listing import digest, places, sample
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
        found.write()  # also where nothing can be changed
    if again:
        most = max(most, len(found.tried))
        known = equivalents()
        kept = [
            each for each in found.tried if each.killed_by or (module, each.was, each.now) in known
        ]
        found = replace(found, tried=tuple(kept))
    done = {each.key for each in found.tried}
    if len(done) >= most:
        return found
    tried = _Tried(module, source, tests)
    for mutant in islice(sample(source, _SEED), most):
        if mutant.key in done:
            continue
        begun = time.monotonic()
        killed = tried.killed_by(mutant.source, _FEW) or tried.killed_by(mutant.source, _ALL)
        place = (mutant.operator, mutant.occurrence, mutant.line, mutant.was, mutant.now)
        found = replace(found, tried=(*found.tried, Result(*place, killed)))
        found.write()
        took = time.monotonic() - begun
        said = killed or f"SURVIVED  {mutant.was}  ->  {mutant.now}"
        print(f"  {module}:{mutant.line} {took:.1f} s  {said}", flush=True)
    return found


@dataclass
class _Tried:
    """The tests of a module, and what they take of the processor with the module as it is."""

    module: str
    source: str
    tests: list[str]
    seconds: dict[str, float] = field(default_factory=dict)

    def killed_by(self, source: str, profile: str) -> str:
        """What kills a mutant, with the examples of a profile of hypothesis."""
        if profile not in self.seconds:
            self.seconds[profile] = self._take(profile)
        return try_out(self.module, source, self.tests, profile, self.seconds[profile]).killed_by

    def _take(self, profile: str) -> float:
        while True:
            trial = try_out(self.module, self.source, self.tests, profile)
            if trial.killed_by:
                raise SystemExit(f"{self.module}: {trial.killed_by} fails without a change")
            if not load(trial.loaded):
                break  # what is loaded once for all does not count
        print(f"{self.module}: {trial.cpu_s:.1f} s with the examples of {profile}", flush=True)
        return trial.cpu_s


if __name__ == "__main__":
    sys.exit(main())
