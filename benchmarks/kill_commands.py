"""The long commands that ``benchmarks.kills`` kills, and what of each must not depend on kills."""

from __future__ import annotations

import hashlib
import json
import os
import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from fnmatch import fnmatch
from pathlib import Path
from typing import Any


def files_in(folder: Path) -> Iterator[Path]:
    """Every file; a folder that is removed meanwhile is passed over."""
    for base, _, names in os.walk(folder):
        yield from (Path(base, name) for name in names)


def contents(folder: Path) -> dict[str, str]:
    """Digest by name of everything in a folder."""
    found = {}
    for path in sorted(files_in(folder)):
        # What is gone again was written or removed just then.
        with suppress(FileNotFoundError):
            if path.is_file():
                name = str(path.relative_to(folder))
                found[name] = hashlib.sha256(path.read_bytes()).hexdigest()
    return found


# Of the embedded pair, in seconds.
_PAIR = (
    "calibrate --out p.json --requests 6 --max-new-tokens 24 --prompt-tokens 24 --gamma-max 3 "
    "--repeats 4"
)
_GRID = "--batch 1,2 --context 48,64"
_LOOSE = "--tolerance 1000 --median-tolerance 1000 --format json"
# Two passes of two rates, of plain decoding and one draft length; eight requests run together.
# Servers of all that are timed change places.
_SMALL_LOAD = """
from dataclasses import replace
from studies.serving import settings as s
s.GAMMAS, s.SCHEDULE, s.PASSES = (1, 2), [(1, 8, 1)], 2
s.MAX_NUM_SEQS, s.TIMED_BATCHES, s.TIMED_REQUESTS = 8, (8,), 8
s.REQUESTS = dict.fromkeys(s.RATES, 40)
s.DRAFTINGS = s.fixed(0), s.fixed(1), s.fixed(2)
s.SETTINGS = tuple(s.Setting(each, r) for each in s.DRAFTINGS[:2] for r in ("light", "heavy"))
import calibrate.engine.streams
import studies.serving.measure as m
calibrate.engine.streams._EACH = 2
m._CALIBRATED, m._SERVED = 8, 40
m.MEASUREMENT = replace(m.MEASUREMENT, requests=(8,))
"""
# Whose profile the checks are made on.
_GIVEN = "calibrate --batch"
# What a row of a check counts, which is the same in every run; the rest rests on times.
_COUNTED = (
    *("temperature", "prompts", "scheme", "setting", "batch", "context", "gamma", "requests"),
    *("predicted_tokens_per_call", "measured_tokens_per_call", "measured_calls", "exact", "z"),
    *("predicted_runs", "measured_runs", "measured_rejections", "log_loss", "accuracy"),
    *("agreement", "segments", "drawn_tokens_per_call"),
)


@dataclass(frozen=True)
class Command:
    """A command, and what of its result must not depend on kills.

    words : typed in a folder of its own
    after : the command that was run in that folder before
    said : of that folder and what the command printed
    files : contents of files that lie there, by name
    smaller : Python that is run before, which makes what takes an hour smaller: as much code, and
        fewer requests
    results : patterns of what it writes as it goes on, which stands once it is there
    """

    words: str
    after: str | None
    said: Callable[[Path, str], Any]
    files: Mapping[str, str] = field(default_factory=dict)
    smaller: str = ""
    results: tuple[str, ...] = ()

    def is_kept(self, name: str) -> bool:
        """Whether a file is an item of a checkpoint, or a result that stands."""
        folder, _, item = name.rpartition("/")
        # Dot files are a lock and what is half written; how busy the machine was is written anew
        # all the time, and when a load was begun each time.
        if item.startswith(".") or item in ("others.json", "begun.json"):
            return False
        # Those of an engine go with it.
        if folder.endswith(".work") or re.match(r"specsim-\d", folder):
            return True
        return any(fnmatch(name, pattern) for pattern in self.results)


def _profile(folder: Path, printed: str, name: str = "p.json") -> Any:
    """The profile without its times: traces by their hashes, numbers of samples by length."""
    profile = json.loads((folder / name).read_text())
    # Neither when it was made, nor whether the machine was busy then, nor the digest of a profile
    # with times; and whether steps of a server under load can be told apart rests on times.
    timely = ("created", "notes", "streamed")
    kept = {name: profile[name] for name in profile if name not in timely}
    for source in kept.get("sources", ()):
        del source["sha256"]
    return _timeless(kept)


def _engine_profile(folder: Path, printed: str) -> Any:
    """The same of the pair and of the engine's steps."""
    return _profile(folder, printed), _profile(folder, printed, "p.vllm.json")


def _timeless(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _timeless(each) for name, each in value.items()}
    if isinstance(value, list):
        if value and all(isinstance(each, float) for each in value):
            return f"{len(value)} numbers"
        return [_timeless(each) for each in value]
    return "a number" if isinstance(value, float) else value


def _rows(folder: Path, printed: str) -> Any:
    rows = json.loads(printed)["answer"]["rows"]
    return [{name: row[name] for name in _COUNTED if name in row} for row in rows]


def _demonstrated(folder: Path, printed: str) -> Any:
    """The same of the draft lengths that are checked in any case: which one is recommended besides,
    and is checked with them, rests on times.
    """
    return [row for row in _rows(folder, printed) if row["gamma"] in (1, 2, 3, 4, 6, 8)]


def _files(folder: Path, printed: str) -> Any:
    return contents(folder)


def _measured(folder: Path, printed: str) -> Any:
    """Of a study: the texts that were scored, and rows of all checks."""
    checks = ("synthetic", "decoders", "speedups")
    rows = [_rows(folder, (folder / f"p.{check}.json").read_text()) for check in checks]
    scored = {name: digest for name, digest in contents(folder).items() if "positions" in name}
    return rows, scored


def _served(folder: Path, printed: str) -> Any:
    """Of an engine under load: the profile, what it was asked, and how many tokens it answered."""
    results = folder / "results" / "serving"
    runs = {}
    for path in sorted(results.glob("profile.serving/runs/*.json")):
        said = json.loads(path.read_text())
        runs[path.name] = said["input_lens"], said["output_lens"]
    asked = {name: each for name, each in contents(results).items() if "/requests-" in name}
    return _profile(results, printed, "profile.json"), asked, runs


COMMANDS = {
    "calibrate": Command(_PAIR, None, _profile),
    "calibrate --batch": Command(f"{_PAIR} {_GRID} --temperature 1", None, _profile),
    "calibrate --cost-only": Command(
        f"calibrate --cost-only --out p.json {_GRID} --repeats 4", None, _profile
    ),
    "calibrate --spread-minutes": Command(f"{_PAIR} --spread-minutes 0.2", None, _profile),
    "calibrate lookup": Command(f"{_PAIR} --draft prompt-lookup", None, _profile),
    "validate": Command(f"validate p.json --gamma 1:3 --requests 4 {_LOOSE}", _GIVEN, _rows),
    "validate --blind": Command(
        f"validate p.json --blind --gamma 1:2 --requests 3 --passes 3 {_LOOSE}", _GIVEN, _rows
    ),
    "validate --scheme": Command(
        f"validate p.json --scheme speculative --requests 3 {_LOOSE}", _GIVEN, _rows
    ),
    "validate --synthetic": Command(
        f"validate p.json --synthetic --requests 8 --temperature 1 {_LOOSE}", _GIVEN, _rows
    ),
    "demo": Command("demo --out demo --format json", None, _demonstrated),
    "score": Command("score --requests 48 --tokens 128 --out s.parquet", None, _files),
    "study": Command("study leviathan --out results", None, _files),
    "study --measure": Command(
        "study fidelity --profile p.json --measure --out results",
        _GIVEN,
        _measured,
        smaller="import studies.common.measure as m; m._REQUESTS, m._ROUNDS, m._TEXTS = 3, 8, 8",
        results=("p.synthetic.json", "p.positions-*", "p.decoders.json", "p.speedups.json"),
    ),
    "study serving --measure": Command(
        "study serving --measure --out results",
        None,
        _served,
        smaller=_SMALL_LOAD,
        results=tuple(
            f"results/serving/{name}" for name in ("profile*.json", "*.jsonl", "profile.serving/*")
        ),
    ),
    "serve": Command(
        "serve --rate 40 --prompt uniform:50,400 --output uniform:1,60 --requests 20000 --seed 3 "
        "--step-cost step_ms=5,token_us=20 --engine vllm:num_gpu_blocks=600 "
        "--save-requests r.parquet --save-steps s.csv",
        None,
        _files,
    ),
    "sweep": Command(
        "sweep settings.toml --out results --workers 2 --chunk 1",
        None,
        _files,
        {
            "settings.toml": 'command = "simulate speculative"\n[inputs]\nalpha = [0.7, 0.8]\n'
            "gamma = { first = 1, last = 8 }\nc = 0.05\nblocks = 1_000_000\n"
            "seed = { first = 0, last = 5 }\n"
        },
    ),
    "calibrate --engine": Command(
        f"{_PAIR} --gamma-max 2 --temperature 0 --engine vllm --batch 1,2",
        None,
        _engine_profile,
        results=("p.json",),
    ),
    "validate --engine": Command(
        "validate p.json --engine vllm --gamma 1:2 --requests 4 --temperature 1 --format json",
        _GIVEN,
        _rows,
    ),
    "validate --blind --engine": Command(
        f"validate p.json --blind --engine vllm --gamma 1:2 --passes 3 --requests 4 {_LOOSE}",
        "calibrate --engine",
        _rows,
    ),
}
# They need ``make engine``, and start servers each time, or take minutes a run.
ONLY_IF_ASKED = (
    *("calibrate --engine", "validate --engine", "validate --blind --engine"),
    *("demo", "study --measure", "study serving --measure"),
)
