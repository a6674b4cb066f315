"""Everything that is worth measuring on an accelerator, in one visit of less than 20 minutes.

    python -m calibrate.gpu_suite --out results/raw --minutes 18

Parts, in this order; docs/gpu-suite.md says what each writes:

pair    a GPT-like pair of the sizes of Leviathan23 section 4.2, trained on the machine, its
        acceptance, and real decoding beside what is predicted of it
forced  blocks of shipped shapes at a forced acceptance, by batch and context
grids   run times of shipped shapes, by batch and context

It needs torch, transformers and numpy, and no network.  Every stage runs in a process of its own,
which gives back all memory, and whose end hurts no other.  What is in the files is not measured
again, so a run that was cut short goes on when it is started again with the same --out.
"""

from __future__ import annotations

import argparse
import datetime
import multiprocessing
import os
import platform
import subprocess
import sys
import time
import traceback
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
import torch

from calibrate.suite.plan import FULL, TINY
from calibrate.suite.raw import Deadline, Raw, cannot_be_recorded, first_line, here, say
from specsim import __version__

PARTS = ("pair", "forced", "grids")
# Ends of a stage's process.
_DONE, _FAILED, _ANEW = 0, 1, 3
# A stage that is started anew has one more cell each time that it need not try.
_STARTS = 4
# Seconds that a stage may take to finish what it began.
_GRACE_S = 45.0


@dataclass(frozen=True)
class Stage:
    """One process: the pair, or one pair of shapes in one mode; ``weight`` is its share of time."""

    name: str
    weight: float
    parts: tuple[str, ...]
    mode: str = ""

    @property
    def label(self) -> str:
        return f"{self.name}-{self.mode}" if self.mode else self.name


# Minutes on an H200, as planned.
_WEIGHTS = {
    "pair": 9.0,
    "8b-1b-compiled": 4.0,
    "8b-1b-eager": 2.0,
    "32b-0.6b-compiled": 1.7,
    "30b-a3b-0.6b-compiled": 1.3,
}


@dataclass(frozen=True)
class Job:
    """What a stage's process is told."""

    stage: Stage
    out: Path
    work: Path
    until: float
    tiny: bool


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--out", type=Path, required=True, help="folder of the raw files")
    parser.add_argument("--minutes", type=float, default=18.0, help="for all parts [default: 18]")
    parser.add_argument("--only", default=",".join(PARTS), help="some of pair,forced,grids")
    parser.add_argument("--tiny", action="store_true", help="small sizes, to try it out")
    arguments = parser.parse_args()
    parts = tuple(part for part in PARTS if part in arguments.only.split(","))
    unknown = sorted(set(arguments.only.split(",")) - set(PARTS))
    if unknown:
        parser.error(f"--only must name some of {', '.join(PARTS)}, got {', '.join(unknown)}")
    if not arguments.minutes > 0:
        parser.error(f"--minutes must be > 0, got {arguments.minutes:g}")
    before = Raw(arguments.out / "machine.json").content.get("visits", [])
    if any(visit["tiny"] != arguments.tiny for visit in before):
        parser.error(f"--out {arguments.out} holds results of the other size; choose another one")
    sys.exit(run(arguments.out, arguments.minutes, parts, arguments.tiny))


def run(out: Path, minutes: float, parts: tuple[str, ...], tiny: bool) -> int:
    """The exit code: 1 if any stage failed."""
    began = time.time()
    out.mkdir(parents=True, exist_ok=True)
    # Weights and tokens are no results, and too large to be sent back with them.
    work = out.with_name(f"{out.name}.work")
    work.mkdir(exist_ok=True)
    machine = Raw(out / "machine.json")
    machine.content.setdefault("visits", []).append(_machine(minutes, parts, tiny))
    machine.save()
    stages = _stages(parts, tiny)
    failed = False
    while stages:
        stage = stages.pop(0)
        left = began + 60 * minutes - time.time()
        share = stage.weight / (stage.weight + sum(each.weight for each in stages))
        job = Job(stage, out, work, time.time() + max(left, 0.0) * share, tiny)
        if not _run_stage(job, machine):
            failed = True
        if stage.mode == "compiled" and cannot_be_recorded(out, stage.name):
            eager = Stage(stage.name, stage.weight, stage.parts, "eager")
            if eager.label not in [each.label for each in stages]:
                stages.append(eager)
    say(f"done after {(time.time() - began) / 60:.1f} minutes, {'with' if failed else 'no'} errors")
    return 1 if failed else 0


def _stages(parts: tuple[str, ...], tiny: bool) -> list[Stage]:
    found = [Stage("pair", _WEIGHTS["pair"], ("pair",))] if "pair" in parts else []
    rest = tuple(part for part in parts if part != "pair")
    for plan in (TINY if tiny else FULL).costs:
        # Without CUDA nothing is recorded, and compiling for a CPU takes longer than a visit.
        for mode in plan.modes if here().type == "cuda" else ("eager",):
            if "grids" in rest or (plan.forced.get(mode) and rest):
                weight = _WEIGHTS.get(f"{plan.name}-{mode}", 1.0)
                found.append(Stage(plan.name, weight, rest, mode))
    return found


def _run_stage(job: Job, machine: Raw) -> bool:
    """Whether it ended well; a stage that asks for it is started anew."""
    errors = machine.content.setdefault("errors", {})
    errors.pop(job.stage.label, None)
    # Started fresh, not forked: a fork would have this process's threads cut off in the middle.
    processes = multiprocessing.get_context("spawn")
    for _ in range(_STARTS):
        process = processes.Process(target=_stage, args=(job,))
        process.start()
        process.join(max(job.until - time.time(), 0.0) + _GRACE_S)
        if process.is_alive():
            process.kill()
            process.join()
            errors[job.stage.label] = f"stopped: still at it {_GRACE_S:g} s after its time"
            break
        if process.exitcode == _DONE:
            machine.save()
            return True
        if process.exitcode != _ANEW:
            if process.exitcode != _FAILED:
                errors[job.stage.label] = f"the process died (exit code {process.exitcode})"
            else:
                errors[job.stage.label] = "failed; the reason is in its file or on stderr"
            break
    else:
        errors[job.stage.label] = f"not complete after {_STARTS} starts"
    say(f"{job.stage.label}: {errors[job.stage.label]}")
    machine.save()
    return False


def _stage(job: Job) -> None:
    """The process of a stage."""
    # What only stages need takes seconds to import.
    import transformers

    from calibrate.suite.costs import StartAnewError, measure_costs
    from calibrate.suite.pair import measure_pair

    stage, plan, device = job.stage, TINY if job.tiny else FULL, here()
    transformers.utils.logging.set_verbosity_error()
    deadline = Deadline(job.until)
    say(f"{stage.label} begins, {deadline.left_s:.0f} s")
    try:
        if stage.name == "pair":
            if not measure_pair(plan.pair, job.out, job.work, deadline, device):
                sys.exit(_FAILED)
        else:
            measure_costs(
                plan.cost(stage.name),
                plan.alpha,
                stage.mode,
                stage.parts,
                job.out,
                job.work,
                deadline,
                device,
            )
    except StartAnewError:
        sys.exit(_ANEW)
    except Exception as error:
        traceback.print_exc()
        name = "pair" if stage.name == "pair" else f"costs-{stage.name}"
        raw = Raw(job.out / f"{name}.json")
        raw.content.setdefault("errors", {})[stage.label] = first_line(error)
        raw.save()
        sys.exit(_FAILED)


def _machine(minutes: float, parts: tuple[str, ...], tiny: bool) -> dict[str, Any]:
    """Where and with what, for the record."""
    query = ["nvidia-smi", "--query-gpu=name,driver_version,memory.total,clocks.max.sm,power.limit"]
    return {
        "date": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
        "command": f"python -m calibrate.gpu_suite {' '.join(sys.argv[1:])}",
        "commit": _output(["git", "-C", str(Path(__file__).parent), "rev-parse", "HEAD"]),
        "minutes": minutes,
        "parts": parts,
        "tiny": tiny,
        "gpu": _output([*query, "--format=csv,noheader"]),
        "cuda": torch.version.cuda,
        "cores": os.cpu_count(),
        "processor": platform.processor() or platform.machine(),
        "python": platform.python_version(),
        "torch": str(torch.__version__),
        "transformers": version("transformers"),
        "numpy": np.__version__,
        "specsim": __version__,
    }


def _output(command: list[str]) -> str | None:
    """What a command prints, or None where there is no such command or it fails."""
    try:
        found = subprocess.run(command, capture_output=True, text=True, timeout=20, check=True)
    except (OSError, subprocess.SubprocessError):
        return None
    return found.stdout.strip() or None


if __name__ == "__main__":
    main()
