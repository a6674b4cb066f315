"""Everything that is worth measuring on an accelerator, in one visit of ten minutes.

    python -m calibrate.gpu_suite --out results --minutes 9.5

Parts, in this order; docs/gpu-suite.md says what each writes:

pair       a target and a draft of the sizes of Leviathan23 section 4.2, trained on the machine so
           that acceptance is real; calibrated, and decoded for real beside the prediction
synthetic  batches of shipped shapes, decoded at a synthetic acceptance beside the prediction
grids      run times of shipped shapes by batch and context, eager and as CUDA graphs

Nothing is measured here: all of it is ``specsim.calibrate`` and ``specsim.validate``, one process a
stage, so that all memory comes back and no end of one hurts another.  Every result is written when
it is there, and what is there is not measured again: a run that was cut short goes on when it is
started again with the same --out.
"""

from __future__ import annotations

import argparse
import datetime
import json
import multiprocessing
import os
import subprocess
import sys
import time
import traceback
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch

from calibrate.gpu_report import report
from calibrate.measure.grid import OUT_OF_TIME
from calibrate.train.family import MemberShape
from calibrate.train.pair import PairRecipe, train_pair
from calibrate.validate.blind import TooFewPassesError
from specsim.api.calibrate import calibrate
from specsim.api.models import Batches, Measurement, Models
from specsim.api.validate import validate
from specsim.api.validation import AnyCheck, BlindCheck, SyntheticCheck
from specsim.checkpoint import Checkpoint
from specsim.checks import SpecsimError
from specsim.files import write_atomically
from specsim.hardware import read_config
from specsim.profiles import Mode, read_profile

PARTS = ("pair", "synthetic", "grids")
# Ends of a stage's process.
_DONE, _FAILED, _UNFINISHED = 0, 1, 2
# A stage whose process failed is started again, and so is what failed in it, a few times.
_STARTS, _TRIES = 3, 2
# Seconds that a stage may take to finish what it began.
_GRACE_S = 45.0
# Shares of the time of ``pair`` that its two fits may take, and the least that is worth it.
_TARGET_SHARE, _DRAFT_SHARE, _LEAST_SHARE = 0.2, 0.04, 0.25
# The share of a stage's time that its grid may take where batches are decoded after it.
_GRID_SHARE = 0.6
# What nvidia-smi says for the record; profiles have the rest.
_FACTS = "name,driver_version,memory.total,power.limit"

Row = dict[str, Any]


class OutOfTimeError(Exception):
    """The stage has had its minutes; what was measured is kept."""


@dataclass(frozen=True)
class Pair:
    """The stage that trains a pair, and what is measured of it at batch 1, in float32.

    decoded, passes : requests of a pass of its blind check, and passes
    rounds : of its synthetic check
    minutes : its share of a whole visit
    """

    recipe: PairRecipe
    measurement: Measurement
    # Both contexts, and what a segment of blocks adds, lie in one bucket of the caches each.
    contexts: tuple[int, ...] = (132, 384)
    decoded: int = 2
    passes: int = 3
    rounds: int = 4
    minutes: float = 4.6
    name: str = "pair"


@dataclass(frozen=True)
class Shapes:
    """A stage of two shapes with random weights in one mode.

    synthetic : what is decoded; None is nothing
    """

    name: str
    target: str
    draft: str
    mode: Mode
    minutes: float
    measurement: Measurement
    batches: tuple[int, ...]
    contexts: tuple[int, ...] = (512, 4096)
    synthetic: SyntheticCheck | None = None


Plan = Pair | Shapes


def _shapes(
    name: str, target: str, draft: str, mode: Mode, minutes: float, repeats: int, **more: Any
) -> Shapes:
    measurement = Measurement(temperature=(0.0,), gamma_max=8, repeats=repeats)
    return Shapes(f"{name}-{mode}", target, draft, mode, minutes, measurement, **more)


_LLAMA, _QWEN = ("llama-3.1-8b", "llama-3.2-1b"), ("qwen3-32b", "qwen3-0.6b")
_EXPERTS = ("qwen3-30b-a3b", "qwen3-0.6b")
# Few batches and far apart: between them the fit is 4 % off on an H200, beyond them 21 %.  The
# largest is where speculation is to stop paying, and at the longer context outgrows the card.
FULL: tuple[Plan, ...] = (
    Pair(PairRecipe(), Measurement(requests=(24,), prompt_tokens=48, repeats=3)),
    _shapes(
        *("8b-1b", *_LLAMA, "compiled", 3.2, 3),
        batches=(1, 4, 16, 64, 256),
        synthetic=SyntheticCheck(batch=(1, 64, 256), alpha=0.8, rounds=2),
    ),
    _shapes(
        *("8b-1b", *_LLAMA, "eager", 0.6, 2),
        batches=(1,),
        contexts=(512,),
        synthetic=SyntheticCheck(batch=(1,), alpha=0.8, rounds=2),
    ),
    _shapes("32b-0.6b", *_QWEN, "compiled", 0.6, 2, batches=(1, 16), contexts=(512,)),
    _shapes("30b-a3b-0.6b", *_EXPERTS, "compiled", 0.5, 2, batches=(1, 16), contexts=(512,)),
)

# Sizes of a shape that a CPU core runs at once.
_SMALL = {
    "hidden_size": 32,
    "intermediate_size": 64,
    "moe_intermediate_size": 32,
    "num_experts": 4,
    "num_experts_per_tok": 2,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 8,
    "vocab_size": 128,
    "max_position_embeddings": 512,
    "rope_scaling": None,
    "max_window_layers": 2,
    "bos_token_id": 0,
    "eos_token_id": 0,
}


def _tiny(plan: Plan) -> Plan:
    """The same at sizes that say nothing, to try whether it runs."""
    measurement = replace(plan.measurement, gamma_max=2, repeats=1)
    if isinstance(plan, Pair):
        recipe = PairRecipe(
            tokens_per_step=1024,
            vocabulary=320,
            corpus_bytes=300_000,
            tokenizer_bytes=60_000,
            target=MemberShape(layers=2, width=48, heads=3, feed_forward=96, tied=False),
            draft=MemberShape(layers=1, width=32, heads=2, feed_forward=64, tied=False),
        )
        few = replace(measurement, requests=(3,), prompt_tokens=12, max_new_tokens=16)
        return Pair(recipe, few, contexts=(20, 40), decoded=2, passes=2, rounds=2)
    return replace(
        plan,
        measurement=measurement,
        batches=(1, 2),
        contexts=(16, 40),
        synthetic=plan.synthetic and replace(plan.synthetic, batch=(1, 2), rounds=2),
    )


@dataclass(frozen=True)
class Job:
    """What a stage's process is told.

    out : folder of the results
    work : folder of weights and of what is half done, which are no results
    until : seconds of ``time.time`` when it must not begin anything new
    """

    plan: Plan
    out: Path
    work: Path
    until: float
    command: str
    synthetic: bool = True
    tiny: bool = False

    def more_time(self) -> bool:
        return time.time() <= self.until

    def check_time(self) -> None:
        if not self.more_time():
            raise OutOfTimeError

    def told(self, activity: str, done: int, total: int) -> None:
        """Says where it is."""
        if done in (0, total):
            say(f"{self.plan.name}: {activity} {done}/{total}")

    def progress(self, activity: str, done: int, total: int) -> None:
        """The same; stops what has had its time, between two steps that are kept."""
        self.told(activity, done, total)
        if done < total:
            self.check_time()

    def shape(self, name: str) -> str:
        """The shape, or with ``tiny`` the file of a small one of its kind."""
        if not self.tiny:
            return name
        config = read_config(name)
        small = {**config, **{key: _SMALL[key] for key in _SMALL if key in config}}
        file = self.work / f"{name}.json"
        write_atomically(file, json.dumps(small).encode())
        return str(file)

    def validate(self, profile: Path, name: str, check: AnyCheck) -> None:
        """One answer in the stage's file of checks, unless it is there or failed too often."""
        file = self.out / f"checks-{self.plan.name}.json"
        answers: dict[str, Row] = json.loads(file.read_text()) if file.is_file() else {}
        before = answers.get(name, {})
        tries = before.get("tries", 0)
        if "answer" in before or tries >= _TRIES:
            return

        def keep(answer: Row) -> None:
            answers[name] = answer
            write_atomically(file, json.dumps(answers).encode())

        # A device that fails takes the process with it, and what it was at is not tried for ever.
        keep({"why": "the process ended in it", "tries": tries + 1})
        # A blind check that is cut short has an answer from the passes that are whole.
        progress = self.told if isinstance(check, BlindCheck) else self.progress
        try:
            self.check_time()
            found = validate(profile, check, more_time=self.more_time, progress=progress)
            keep(found.document())
        except (OutOfTimeError, TooFewPassesError):
            keep({"why": OUT_OF_TIME, "tries": tries})
            raise OutOfTimeError from None
        except Exception as error:
            keep({"why": f"{type(error).__name__}: {error}".splitlines()[0], "tries": tries + 1})
            raise


def measure_pair(job: Job, plan: Pair) -> None:
    """Train, calibrate, and decode with speculation at every draft length."""
    device = torch.device("cuda" if _cuda() else "cpu")
    folder, left = job.work / plan.name, max(job.until - time.time(), 0.0)
    whole = 1.0 if job.tiny else 60 * plan.minutes
    if not (folder / "draft.json").is_file() and left < _LEAST_SHARE * whole:
        raise OutOfTimeError
    seconds = {"target": _TARGET_SHARE * left, "draft": _DRAFT_SHARE * left}
    if job.tiny:
        seconds = {name: min(each, 1.0) for name, each in seconds.items()}
    train_pair(plan.recipe, folder, device, seconds)
    profile = job.out / f"{plan.name}.json"
    if not profile.is_file():
        calibrate(
            profile,
            # In float32, so that at temperature 0 a text does not hang on rounding.
            Models(str(folder / "target"), str(folder / "draft"), dtype="float32"),
            plan.measurement,
            Batches((1,), plan.contexts, modes=("eager", "compiled") if _cuda() else ("eager",)),
            command=job.command,
            progress=job.progress,
        )
    else:
        Checkpoint.remove_behind(profile)
    blind = BlindCheck(requests=plan.decoded, passes=plan.passes)
    job.validate(profile, "predicted before", blind)
    for mode in sorted({row.mode for row in read_profile(profile).grid}):
        synthetic = SyntheticCheck(mode=mode, rounds=plan.rounds)
        job.validate(profile, f"its own acceptance, {mode}", synthetic)


def measure_shapes(job: Job, plan: Shapes) -> None:
    """The grid of run times, and batches decoded at a synthetic acceptance."""
    profile = job.out / f"costs-{plan.name}.json"
    check = plan.synthetic if job.synthetic else None
    if not profile.is_file() or OUT_OF_TIME in [m.reason for m in read_profile(profile).missing]:
        left = job.until - time.time()
        grid_until = job.until - (1 - _GRID_SHARE) * left if check else job.until
        calibrate(
            profile,
            Models(job.shape(plan.target), job.shape(plan.draft)),
            plan.measurement,
            Batches(plan.batches, plan.contexts, modes=(plan.mode,)),
            cost_only=True,
            command=job.command,
            more_time=lambda: time.time() < grid_until,
            progress=lambda activity, done, total: say(f"{plan.name}: {activity} {done}/{total}"),
        )
    else:
        Checkpoint.remove_behind(profile)
    cells = {(row.batch, row.context) for row in read_profile(profile).grid}
    for batch in (check.batch or ()) if check else ():
        # One by one, so that each is there when it is done, whatever happens to the next.
        contexts = tuple(sorted(context for size, context in cells if size == batch))
        if check and contexts:
            job.validate(
                profile, f"batch {batch}", replace(check, batch=(batch,), context=contexts)
            )


def _stage(job: Job) -> None:
    """The process of a stage."""
    say(f"{job.plan.name} begins, {job.until - time.time():.0f} s")
    try:
        if isinstance(job.plan, Pair):
            measure_pair(job, job.plan)
        else:
            measure_shapes(job, job.plan)
    except OutOfTimeError:
        sys.exit(_UNFINISHED)
    except Exception:
        traceback.print_exc()
        sys.exit(_FAILED)


def run(out: Path, minutes: float, parts: Sequence[str], tiny: bool) -> int:
    """Every stage of these parts, and the report; the exit code, 1 if a stage failed."""
    began = time.time()
    work = out.with_name(f"{out.name}.work")
    for folder in (out, work):
        folder.mkdir(parents=True, exist_ok=True)
    # What the calls keep while they are not done yet.
    os.environ["TMPDIR"] = str(work.resolve())
    command = f"python -m calibrate.gpu_suite {' '.join(sys.argv[1:])}"
    machine = _machine(out, command, minutes, parts, tiny)
    plans = _plans(parts, tiny)
    while plans:
        plan = plans.pop(0)
        left = max(began + 60 * minutes - time.time(), 0.0)
        share = plan.minutes / (plan.minutes + sum(each.minutes for each in plans))
        job = Job(plan, out, work, time.time() + left * share, command, "synthetic" in parts, tiny)
        machine["errors"].pop(plan.name, None)
        reason = _run_stage(job)
        if reason:
            machine["errors"][plan.name] = reason
            say(f"{plan.name}: {reason}")
        if isinstance(plan, Shapes) and plan.mode == "compiled" and _nothing_recorded(job):
            eager = replace(plan, name=plan.name.replace("compiled", "eager"), mode="eager")
            plans += [eager] if eager.name not in [each.name for each in plans] else []
        write_atomically(out / "machine.json", json.dumps(machine, indent=1).encode())
        try:
            (out / "report.md").write_text(report(out))
        except Exception:  # the results are there, and what is left is worth more than a table
            traceback.print_exc()
    print((out / "report.md").read_text())
    failed = {*machine["errors"].values(), *_failed_checks(out)} - {OUT_OF_TIME}
    return 1 if failed else 0


def _failed_checks(out: Path) -> list[str]:
    """Why checks have no answer, whether they may still be tried or not."""
    files = [json.loads(file.read_text()) for file in out.glob("checks-*.json")]
    return [answer["why"] for answers in files for answer in answers.values() if "why" in answer]


def _plans(parts: Sequence[str], tiny: bool) -> list[Plan]:
    """The stages of these parts on this machine."""
    found: list[Plan] = []
    for plan in FULL:
        if isinstance(plan, Pair):
            wanted = "pair" in parts
        else:
            wanted = "grids" in parts or ("synthetic" in parts and plan.synthetic is not None)
            if plan.mode == "compiled" and not _cuda():
                # Compiling for a CPU takes longer than a visit.
                eager = plan.name.replace("compiled", "eager")
                wanted = wanted and eager not in [each.name for each in FULL]
                plan = replace(plan, name=eager, mode="eager")
        # Tried out, one dense pair says as much as two.
        if wanted and not (tiny and plan.name.startswith("32b")):
            found.append(_tiny(plan) if tiny else plan)
    return found


def _run_stage(job: Job) -> str:
    """Why it is not complete, or nothing; started in another visit, it goes on."""
    # Started fresh, not forked: a fork would have this process's threads cut off in the middle.
    processes = multiprocessing.get_context("spawn")
    reason = ""
    for _ in range(_STARTS):
        process = processes.Process(target=_stage, args=(job,))
        process.start()
        process.join(max(job.until - time.time(), 0.0) + _GRACE_S)
        if process.is_alive():
            process.kill()
            process.join()
            return f"stopped: still at it {_GRACE_S:g} s after its time"
        if process.exitcode in (_DONE, _UNFINISHED):
            return OUT_OF_TIME if process.exitcode == _UNFINISHED else ""
        reason = f"failed with exit code {process.exitcode}; the reason is on stderr"
        if time.time() > job.until:
            break
    return reason


def _nothing_recorded(job: Job) -> bool:
    """Whether no run of the shapes could be recorded as a CUDA graph, and not for want of time."""
    file = job.out / f"costs-{job.plan.name}.json"
    if not file.is_file():
        return False
    profile = read_profile(file)
    return not profile.grid and OUT_OF_TIME not in [each.reason for each in profile.missing]


def _machine(
    out: Path, command: str, minutes: float, parts: Sequence[str], tiny: bool
) -> dict[str, Any]:
    """``machine.json`` with this visit in it: where and with what, for the record."""
    file = out / "machine.json"
    found: dict[str, Any] = json.loads(file.read_text()) if file.is_file() else {"visits": []}
    if any(visit["tiny"] != tiny for visit in found["visits"]):
        raise SpecsimError(f"--out {out} holds results of the other size; choose another one")
    found["visits"].append(
        {
            "date": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
            "command": command,
            "minutes": minutes,
            "parts": " ".join(parts),
            "tiny": tiny,
            "device": _output(["nvidia-smi", f"--query-gpu={_FACTS}", "--format=csv,noheader"]),
        }
    )
    found.setdefault("errors", {})
    write_atomically(file, json.dumps(found, indent=1).encode())
    return found


def _output(command: list[str]) -> str | None:
    """What a command prints, or None where there is no such command or it fails."""
    try:
        found = subprocess.run(command, capture_output=True, text=True, timeout=20, check=True)
    except (OSError, subprocess.SubprocessError):
        return None
    return found.stdout.strip() or None


def _cuda() -> bool:
    return torch.cuda.is_available()


def say(text: str) -> None:
    """Progress, on stderr."""
    print(f"{time.strftime('%H:%M:%S')} {text}", file=sys.stderr, flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--out", type=Path, required=True, help="folder of the results")
    parser.add_argument("--minutes", type=float, default=9.5, help="for all parts [default: 9.5]")
    parser.add_argument("--only", default=",".join(PARTS), help=f"some of {','.join(PARTS)}")
    parser.add_argument("--tiny", action="store_true", help="small sizes, to try it out")
    arguments = parser.parse_args()
    parts = arguments.only.split(",")
    unknown = sorted(set(parts) - set(PARTS))
    if unknown:
        parser.error(f"--only must name some of {', '.join(PARTS)}, got {', '.join(unknown)}")
    if not arguments.minutes > 0:
        parser.error(f"--minutes must be > 0, got {arguments.minutes:g}")
    try:
        sys.exit(run(arguments.out, arguments.minutes, parts, arguments.tiny))
    except SpecsimError as error:
        parser.error(str(error))


if __name__ == "__main__":
    main()
