"""vLLM under load, measured: its own servers, its own benchmark, and everything that predicts them
measured before.

    specsim study serving --measure --out DIR

makes, in DIR/serving or beside the profile that is given,

    profile.prompts.jsonl   texts like those that will be asked for, and none of them
    profile.json            acceptance of the embedded pair behind them, at temperature 0 (specsim
                            calibrate)
    profile.serving/        requests-N.jsonl, which requests each pass serves, the first ones of
                            them at a rate that is sent fewer; load.json, of which engine

and then, in each pass,

    profile.vllm-N.json     steps and prompts of vLLM's servers (specsim calibrate --engine vllm)
    profile.serving/runs/   SETTING-N.json, what ``vllm bench serve --save-detailed`` saw

The rates of a pass follow from its timing: on a machine that others use too, 0.85 of what an hour
before told is saturation now and then.  Servers that are timed and servers that are under load are
others, and run side by side: what is idle rests.  They change places from pass to pass, and need
20 GiB of memory.  What is there is kept, so that a run that was killed goes on where it was.
"""

from __future__ import annotations

import json
import os
import random
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from itertools import cycle, islice
from pathlib import Path
from typing import Any

import numpy as np

import specsim
from calibrate.engine.client import EngineClient, EngineError, counter
from calibrate.engine.server import Launch, all_started, find_program
from calibrate.engine.warming import warm
from calibrate.models.busy import Watch
from calibrate.models.load import resolve
from calibrate.models.prompts import held_out_prompts
from specsim.api.engine_servers import EngineServers
from specsim.api.progress import Progress, quiet
from specsim.checkpoint import Checkpoint, remove_left_over
from specsim.counts.file import read_acceptance
from specsim.files import file_digest, make_folder, write_atomically
from specsim.profiles import Profile, read_profile
from studies.serving import settings
from studies.serving.bench import Bench, bench_started
from studies.serving.capacity import plain_capacity
from studies.serving.files import LoadFiles
from studies.serving.settings import Drafting, Setting

# Requests of the profile.  Drafts stand in some texts more often than in others, which moves the
# mean of 32 texts by 3 %.
_CALIBRATED = 256
# Texts that requests are drawn from: nearly all that are left of the held-out modules.
_SERVED = 400
_GAMMA_MAX = 5
MEASUREMENT = specsim.Measurement(
    temperature=(0.0,),
    requests=(_CALIBRATED,),
    prompt_tokens=settings.PROMPTS[1],
    # Engines decode as many fewer as the longest draft has.
    max_new_tokens=settings.OUTPUTS[1] + _GAMMA_MAX,
    gamma_max=_GAMMA_MAX,
    repeats=2,
)
_SEED = 7
_TOTAL = settings.PASSES * len(settings.SETTINGS)
# What of a result of ``vllm bench serve`` is kept: what it says of every request, and its sums.
_LISTS = ("input_lens", "output_lens", "start_times", "ttfts", "itls")
_KEPT = (
    *("request_rate", "duration", "completed", "total_input_tokens", "total_output_tokens"),
    *(f"{kind}_{name}_ms" for name in ("ttft", "tpot", "e2el") for kind in ("mean", "p50", "p99")),
)
_DECIMALS = 5
# A timing that is older, whole or half, does not tell what comes now.
_STALE_DAYS = 1 / 24
_PREEMPTIONS = "vllm:num_preemptions_total"


def measure(profile: Path | None, out: Path, progress: Progress = quiet) -> Path:
    """Measure what is not there yet; the profile's path."""
    # Other studies have a profile.json of other requests in OUT.
    files = LoadFiles(profile or out / "serving" / "profile.json")
    if not files.profile.is_file():
        prompts = "".join(json.dumps({"prompt": each}) + "\n" for each in _texts(calibrated=True))
        make_folder(files.prompts.parent)
        write_atomically(files.prompts, prompts.encode())
        models = specsim.Models(settings.TARGET, settings.DRAFT)
        measured = replace(MEASUREMENT, prompts=files.prompts)
        specsim.calibrate(files.profile, models, measured, progress=progress)
    elif profile is None:
        Checkpoint.remove_behind(files.profile)
    make_folder(files.run(settings.SETTINGS[0], 0).parent)
    if not all(files.requests(number).is_file() for number in range(settings.PASSES)):
        texts = _texts(calibrated=False)
        for number in range(settings.PASSES):
            write_atomically(files.requests(number), _requests(texts, number).encode())
    numbers = [number for number in range(settings.PASSES) if _waiting(files, number)]
    checkpoint = Checkpoint.beside(files.folder, "serving")
    if numbers:
        with bench_started() as bench:
            _passes(files, numbers, bench, checkpoint, progress)
    # Servers take seconds to end: a run may be killed behind the last it served.
    checkpoint.done()
    progress("serving", _TOTAL, _TOTAL)
    return files.profile


def _passes(
    files: LoadFiles,
    numbers: Sequence[int],
    bench: Bench,
    checkpoint: Checkpoint,
    progress: Progress,
) -> None:
    """The passes of these numbers."""
    remove_left_over(files.profile.parent, _STALE_DAYS, f".{files.profile.stem}.vllm-")
    checkpoint.replace_json("begun.json", _now())  # nobody else measures here now
    for first in range(0, len(numbers), settings.PASSES_OF_SERVERS):
        with (
            specsim.engine_servers(files.profile, files.timing) as timed,
            _loaded(files, bench) as loaded,
        ):
            for number in numbers[first : first + settings.PASSES_OF_SERVERS]:
                servers = _exchanged(timed, loaded) if settings.swapped(number) else (timed, loaded)
                _pass(files, number, *servers, bench, checkpoint, progress)


def _texts(*, calibrated: bool) -> list[str]:
    """Windows of the held-out modules, cut to random lengths and in random order: those that the
    profile is calibrated with, or those that are served.
    """
    from transformers import AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(str(resolve(settings.TARGET)))
    shortest, longest = settings.PROMPTS
    every = held_out_prompts(tokenizer, longest, _CALIBRATED + _SERVED)
    chosen = _evenly(_CALIBRATED, len(every))
    windows = [each for each, one in zip(every, chosen, strict=True) if one == calibrated]
    order = random.Random(_SEED)
    order.shuffle(windows)
    return [tokenizer.decode(each[: order.randint(shortest, longest)]) for each in windows]


def _evenly(count: int, every: int) -> list[bool]:
    """Which of so many are chosen, evenly over all: the first windows are how modules begin, and
    with four drafts the first 256 emit 2 % fewer tokens a round than the 400 behind them.
    """
    return [number * count % every < count for number in range(every)]


def _requests(texts: Sequence[str], number: int) -> str:
    """Texts of other windows than the profile's, as ``vllm bench serve`` reads them.

    Each pass begins a little later in the circle of all, so that over the passes every rate is sent
    each text as often as any other, as nearly as can be: drafts stand in some more often.
    """
    order = random.Random(_SEED + number)
    first = number * len(texts) // settings.PASSES
    rows = [
        {"prompt": text, "output_tokens": order.randint(*settings.OUTPUTS)}
        for text in islice(cycle(texts), first, first + max(settings.REQUESTS.values()))
    ]
    return "".join(json.dumps(row) + "\n" for row in rows)


def _load() -> str:
    """Which engine, and on how many cores."""
    found = {
        "created": _now(),
        "engine": f"vllm {settings.VERSION}",
        "cores": os.cpu_count(),
    }
    return json.dumps(found, indent=1) + "\n"


def _rates(files: LoadFiles, number: int) -> dict[str, float]:
    """Of a pass, by name: shares of what plain decoding is predicted to serve by its own timing."""
    timed = files.timed(number)
    if not read_acceptance(timed).streamed:
        raise EngineError(
            f"{timed} does not tell how long steps under load take: while they were timed, other "
            "programs kept the machine busy; stop those and start this command again, which then "
            "times them anew"
        )
    rows = [json.loads(line) for line in files.requests(number).read_text().splitlines()]
    outputs = np.array([row["output_tokens"] for row in rows])
    capacity = plain_capacity(timed, outputs)
    return {name: float(f"{share * capacity:.3g}") for name, share in settings.RATES.items()}


def _waiting(files: LoadFiles, number: int) -> list[Setting]:
    """What is not there yet of a pass, rate by rate, and of each in random order: a machine that is
    slower for some seconds then slows no draft length more than another.

    Raises EngineError where the rest was served behind another timing than is there.
    """
    every, rates = settings.SETTINGS, settings.rates_of(number)
    found = [each for each in every if not files.run(each, number).is_file()]
    timed = files.timed(number)
    known = file_digest(timed) if timed.is_file() else None
    for setting in every if found else ():
        if setting in found:
            continue
        said = json.loads(files.run(setting, number).read_text())
        if said["specsim"]["timed_sha256"] != known:
            raise EngineError(
                f"{timed} is another file than when {setting.name} was served; remove "
                f"{files.run(setting, number)} and what else was served in pass {number} to "
                "measure that pass again"
            )
    shuffled = random.Random(_SEED + number).sample(found, len(found))
    return sorted(shuffled, key=lambda setting: rates.index(setting.rate))


@contextmanager
def _loaded(files: LoadFiles, bench: Bench) -> Iterator[Mapping[Drafting, EngineClient]]:
    """The servers of all draft lengths and caches, warm."""
    program, profile = find_program(None), read_profile(files.profile)
    launches = [_launch(program, profile, each) for each in settings.DRAFTINGS]
    with all_started(launches) as clients:
        servers: dict[Drafting, EngineClient] = {}
        for drafting, launch, client in zip(settings.DRAFTINGS, launches, clients, strict=True):
            assert isinstance(client, EngineClient), "of a server"
            servers[drafting] = client
            # As wide as those that are timed, with which they change places.
            warm(client, launch, 2 * settings.PROMPTS[1])
            # Steps of many requests are wide, too, and slow at first.
            bench.serve(client, files.requests(0), 2 * settings.MAX_NUM_SEQS, "inf", 0)
        yield servers


def _exchanged(
    timed: EngineServers, loaded: Mapping[Drafting, EngineClient]
) -> tuple[EngineServers, Mapping[Drafting, EngineClient]]:
    """The servers of one draft length in each other's places."""
    under_load = dict(loaded)
    for gamma, client in timed.items():
        assert isinstance(client, EngineClient), "of a server"
        under_load[settings.fixed(gamma)] = client
    return {gamma: loaded[settings.fixed(gamma)] for gamma in timed}, under_load


def _pass(
    files: LoadFiles,
    number: int,
    timed: EngineServers,
    loaded: Mapping[Drafting, EngineClient],
    bench: Bench,
    checkpoint: Checkpoint,
    progress: Progress,
) -> None:
    """Steps are timed, and then settings are served that are not there yet."""
    waiting, path = _waiting(files, number), files.timed(number)
    is_served = len(waiting) < len(settings.SETTINGS)
    if not (is_served or _is_of_now(path)):
        timing = files.timing_before(number)
        specsim.calibrate_engine(files.profile, path, timing, servers=timed, progress=progress)
    if not files.load.is_file():
        write_atomically(files.load, _load().encode())
    rates = _rates(files, number)
    done = sum(len(files.passes(each)) for each in settings.SETTINGS)
    watch, digest = Watch(checkpoint, progress, threads=1), file_digest(path)
    for setting in waiting:
        watch.progress("serving", done, _TOTAL)
        client, rate = loaded[setting.drafting], rates[setting.rate]
        found = _served(client, files, bench, setting, rate, number)
        found["specsim"] |= {"timed_sha256": digest, "notes": watch.warnings()}
        write_atomically(files.run(setting, number), (json.dumps(found) + "\n").encode())
        done += 1


def _is_of_now(timed: Path) -> bool:
    """Whether there is a timing that tells what comes next: not of long ago, and not of a machine
    that was so busy that no steps were told apart.
    """
    if not timed.is_file():
        return False
    found = read_acceptance(timed)
    age = datetime.now(UTC) - datetime.fromisoformat(found.created)
    return bool(found.streamed) and age < timedelta(days=_STALE_DAYS)


def _launch(program: Path, profile: Profile, drafting: Drafting) -> Launch:
    cache = () if drafting.blocks is None else ("--num-gpu-blocks-override", str(drafting.blocks))
    return Launch(
        program=program,
        target=str(resolve(profile.target.name)),
        speculative=drafting.speculative(str(resolve(profile.draft.name))),
        dtype=profile.software.dtype,
        context=settings.CONTEXT,
        requests=settings.MAX_NUM_SEQS,
        more=(*settings.ENGINE_ARGS, *cache),
    )


def _served(
    client: EngineClient, files: LoadFiles, bench: Bench, setting: Setting, rate: float, number: int
) -> dict[str, Any]:
    """What the benchmark says, and what the server counted meanwhile."""
    requests = settings.REQUESTS[setting.rate]
    before = client.metrics()
    # Arrivals of their own at every rate.
    seed = _SEED + number + settings.PASSES * list(settings.RATES).index(setting.rate)
    said = bench.serve(client, files.requests(number), requests, repr(rate), seed)
    after = client.metrics()
    found: dict[str, Any] = {name: said[name] for name in _KEPT if name in said}
    found |= {name: _rounded(said[name]) for name in _LISTS}
    found["specsim"] = {
        "created": _now(),
        "preemptions": counter(after, _PREEMPTIONS, client.where)
        - counter(before, _PREEMPTIONS, client.where),
        "num_gpu_blocks": _setting(after, "num_gpu_blocks"),
        "block_size": _setting(after, "block_size"),
    }
    return found


def _rounded(values: Sequence[Any]) -> list[Any]:
    """Seconds, clocks too, to a hundredth of a millisecond; whole numbers as they are."""
    if values and isinstance(values[0], list):
        return [_rounded(each) for each in values]
    return [round(each, _DECIMALS) if isinstance(each, float) else each for each in values]


def _setting(metrics: str, name: str) -> int:
    """Of the engine's own description of its cache."""
    found = re.search(rf'^vllm:cache_config_info{{.*\b{name}="(\d+)"', metrics, re.MULTILINE)
    if found is None:
        raise EngineError(f"/metrics does not tell {name}")
    return int(found[1])


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds")
