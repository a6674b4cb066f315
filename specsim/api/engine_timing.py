"""``specsim.calibrate_engine``: how long steps of an inference engine take, on its own servers."""

from __future__ import annotations

from contextlib import nullcontext
from dataclasses import dataclass
from datetime import UTC, datetime
from os import PathLike
from pathlib import Path
from typing import ClassVar, Literal

import numpy as np

from specsim import __version__
from specsim.api.checked_profile import resumed_warnings
from specsim.api.engine_question import asked_of, engine_check, engine_context, engine_file
from specsim.api.engine_servers import EngineServers, engine_servers
from specsim.api.models import need_torch
from specsim.api.progress import Progress, quiet, steps
from specsim.api.result import Result, Row, plain
from specsim.api.validation import EngineCheck
from specsim.checkpoint import Checkpoint
from specsim.checks import (
    Floats,
    InvalidArgumentError,
    SpecsimError,
    UnsupportedError,
    check_rising,
    integer,
    significant,
)
from specsim.counts.drafts import DraftCounts
from specsim.counts.file import (
    PROFILE_SOURCE,
    SCHEMA,
    VERSION,
    AcceptanceFile,
    Source,
    counted_rounds,
    read_acceptance,
    timed_prompt,
    timed_step,
    timed_streams,
    write_acceptance,
)
from specsim.counts.prompt_costs import PromptCosts
from specsim.counts.steps import PromptTime, StepTime, StreamedSteps
from specsim.counts.streamed_costs import StreamedCosts
from specsim.files import check_replaceable, file_digest
from specsim.intervals import t_quantile
from specsim.predict.engine_sets import StepRepeats
from specsim.profiles import read_profile

# Prompts are timed as if models read no more: hardly any is longer.
_LONGEST_PROMPT = 8192


@dataclass(frozen=True)
class EngineTiming:
    """What is timed of an inference engine.

    engine : vllm
    api : its server, ``vllm serve``, or ``LLM.generate``
    temperature : one of the profile's
    gamma : draft lengths beside plain decoding, two at least; the others are on a line.  None is
        the shortest, a middle one and the profile's longest
    batch : requests that are sent at once; as many clients at most put servers under load
    prompt_tokens : lengths of prompts that are timed alone, two at least; None is a 32nd, an 8th
        and half of what the models read, or of 8,192 tokens if they read more
    repeats : of all draft lengths and batches; an interval comes of what they differ
    sets : of each batch in a repeat
    requests : of the profile, at most, in sets; those under load are like all of them
    prompts : the file that was calibrated with; None is the held-out modules
    engine_bin : the program to start; None is as in ``EngineCheck``
    drafts : how the draft model's tokens are chosen; at temperature 0 both draft alike
    engine_args : further words of ``vllm serve``, as in ``EngineCheck``
    """

    engine: Literal["vllm"] = "vllm"
    api: Literal["serve", "generate"] = "serve"
    temperature: float = 0.0
    gamma: tuple[int, ...] | None = None
    batch: tuple[int, ...] = (1, 4, 16)
    prompt_tokens: tuple[int, ...] | None = None
    repeats: int = 6
    sets: int = 4
    requests: int = 32
    prompts: Path | None = None
    engine_bin: Path | None = None
    drafts: Literal["greedy", "probabilistic"] = "greedy"
    engine_args: tuple[str, ...] = ()
    seed: int = 0

    def __post_init__(self) -> None:
        _ = self.check  # which refuses what no engine is started with
        for name, least in (("repeats", 2), ("sets", 1), ("requests", 1)):
            integer(name, getattr(self, name), low=least)
        for name in ("gamma", "batch", "prompt_tokens"):
            check_rising(name, getattr(self, name))

    def gammas(self, longest: int) -> tuple[int, ...]:
        """The draft lengths to time of a profile whose longest is ``longest``."""
        gammas = (
            tuple(sorted({1, (1 + longest) // 2, longest})) if self.gamma is None else self.gamma
        )
        if len(gammas) < 2 or gammas[-1] > longest:
            raise InvalidArgumentError(
                f"gamma must be two draft lengths at least, in [1, {longest}] with this profile, "
                f"got {', '.join(map(str, gammas))}"
            )
        return gammas

    def prompt_lengths(self, context: int) -> tuple[int, ...]:
        """The lengths of prompts to time, of models that read ``context`` tokens."""
        lengths = self.prompt_tokens
        if lengths is None:
            most = min(context, _LONGEST_PROMPT)
            lengths = tuple(sorted({max(most // 32, 2), most // 8, most // 2}))
        if len(lengths) < 2 or lengths[-1] >= context:
            raise InvalidArgumentError(
                f"prompt_tokens must be two lengths at least, below the models' {context} tokens, "
                f"got {', '.join(map(str, lengths))}"
            )
        return lengths

    def find_program(self) -> Path:
        """The program that would be started; an error of one line where there is none, before
        anything is measured.
        """
        from calibrate.engine.server import find_program  # needs what calibrating needs

        return find_program(self.engine_bin)

    @property
    def check(self) -> EngineCheck:
        """How the engines are started."""
        return engine_check(self)


@dataclass(frozen=True, kw_only=True)
class EngineCalibration(Result):
    """What was timed.

    path : the acceptance file, which takes the place of a profile in other calls
    counts : what the engine counted of all requests, by draft length
    steps : a row for every repeat, draft length and batch
    prompts : prompts that were timed alone
    streamed : what clients saw of the steps of servers under load, by draft length and repeat; none
        of ``LLM.generate``
    """

    schema: ClassVar[str] = "specsim.calibrate_engine"

    path: Path
    counts: tuple[DraftCounts, ...]
    steps: tuple[StepTime, ...]
    prompts: tuple[PromptTime, ...]
    streamed: tuple[StreamedSteps, ...] = ()

    @property
    def title(self) -> str:
        return "steps of the engine, in milliseconds and in plain steps"

    def rows(self) -> list[Row]:
        """Each draft length and batch, as means over repeats with 95 % intervals by Student's t."""
        timed = StepRepeats.of(self.steps)
        tokens = {count.gamma: count.tokens_per_call for count in self.counts}
        found: list[Row] = []
        for place, batch in enumerate(timed.batches):
            plain_s = timed.plain_s[:, place]
            found.append(
                _step_row(0, batch, plain_s, np.ones(plain_s.size)) | {"tokens_per_call": 1.0}
            )
            for column, gamma in enumerate(timed.gammas):
                ratios = timed.steps[:, place, column]
                row = _step_row(gamma, batch, plain_s * ratios, ratios)
                found.append(row | {"tokens_per_call": tokens.get(gamma)})
        return found

    def summary(self) -> Row:
        return {"acceptance_file": str(self.path), "repeats": len(StepRepeats.of(self.steps).steps)}

    def sentences(self) -> list[str]:
        """What prompts take without drafts, and a request outside of the engine."""
        costs = PromptCosts(self.prompts)
        lengths = sorted({each.tokens for each in self.prompts})
        seconds = {each: costs.seconds(0, each) for each in lengths}
        times = ", ".join(f"{significant(1e3 * s, 3)} ms for {n}" for n, s in seconds.items())
        found = [f"prompts alone: {times} tokens"]
        if not self.streamed:
            outside = f"{1e3 * costs.frontend_s:.2g} ms"
            return [*found, f"{outside} of a request are spent outside of the engine"]
        loaded = StreamedCosts(self.streamed)
        law = loaded.laws[0]
        alone = significant(1e3 * law.seconds(1), 3)
        beside = ", ".join(
            f"{significant(1e3 * law.seconds(2, 1, n), 3)} ms for {n}" for n in lengths
        )
        return [
            *found,
            f"a step of one request: {alone} ms; with a prompt beside it, {beside} tokens; "
            f"{1e3 * loaded.arrival_s:.2g} ms more for each that is sent while it runs",
            f"{1e3 * loaded.frontend_s:.2g} ms of a request are spent outside of steps, "
            f"{1e3 * loaded.frontend_decode_s:.2g} ms more for each that decodes beside it, and "
            f"{1e3 * loaded.frontend_prompt_s:.2g} ms more for each other that comes with it",
            *([_scatter(loaded)] if loaded.knows_variations else []),
        ]


def _scatter(loaded: StreamedCosts) -> str:
    """Of single steps and requests."""
    return (
        f"single steps scatter by {loaded.step_variation:.0%} (coefficient of variation), those "
        f"with a prompt by {loaded.prompt_step_variation:.0%}, and what a request spends outside "
        f"of steps by {loaded.frontend_variation:.0%}"
    )


def _step_row(gamma: int, batch: int, seconds: Floats, ratios: Floats) -> Row:
    logs = np.log(ratios)
    reach = t_quantile(0.95, logs.size - 1) * float(logs.std(ddof=1)) / np.sqrt(logs.size)
    best = float(logs.mean())
    return {
        "batch": batch,
        "gamma": gamma,
        "step_ms": 1e3 * float(seconds.mean()),
        "plain_steps": float(np.exp(best)),
        "plain_steps_low": float(np.exp(best - reach)),
        "plain_steps_high": float(np.exp(best + reach)),
    }


def calibrate_engine(
    profile: str | PathLike[str],
    out: str | PathLike[str] | None = None,
    timing: EngineTiming = EngineTiming(),
    *,
    servers: EngineServers | None = None,
    trust_remote_code: bool = False,
    progress: Progress = quiet,
) -> EngineCalibration:
    """Time an engine with the models of a profile, and write an acceptance file.

    One server for plain decoding and one for each draft length run side by side and decode the
    profile's prompts, in sets sent at once; how many rounds a set takes while so many of its
    requests run is known from the replay of the profile's trace, so that seconds of a step follow
    from those of whole sets.  Prompts of some lengths are sent alone, for one token.  Then one
    client, two and so on up to the largest batch send one request after another, and the moments at
    which their chunks come tell the steps of a server under load (``specsim.counts.streams``).  A
    run that was killed goes on with the repeats that are done.

    Above temperature 0 the rounds of a set are those of the texts that the engine wrote, which both
    models read behind it.

    profile : of ``specsim.calibrate``, with a trace at this temperature
    out : the acceptance file; None is PROFILE.vllm.json for PROFILE.json (PROFILE.vllm-generate-t1
        of ``LLM.generate`` at temperature 1)
    servers : of ``specsim.engine_servers`` with this profile and timing; None starts them, and
        stops them again
    trust_remote_code : run the code that comes with the models here; engines have words of their
        own for it (``engine_args``)
    """
    path = Path(profile)
    out = engine_file(path, timing) if out is None else Path(out)
    check_replaceable(out, "out")
    need_torch()
    content = read_profile(path)
    content.require_draft_model("the timing of an engine")
    every, pair = asked_of(content, path, timing, trust_remote_code)
    asked, tokenizer = every.first(timing.requests), pair.target.tokenizer
    from calibrate.engine.server import engine_told_apart_by

    # Of servers that run already who started them knows what they are.
    here = [] if servers else engine_told_apart_by(timing.find_program())
    checkpoint = Checkpoint.beside(out, "calibrate_engine", plain(timing), file_digest(path), here)
    resumed = resumed_warnings(checkpoint)
    from calibrate.engine.prompts import time_prompts
    from calibrate.engine.rates import LAWS
    from calibrate.engine.rounds import known_rounds, read_rounds, replayed_rounds
    from calibrate.engine.sets import begun_seed, count_drafts, request_sets, timed_repeats
    from calibrate.engine.steps import batch_warnings, step_times
    from calibrate.engine.streams import time_streams
    from calibrate.models.busy import Watch

    gammas = timing.gammas(content.gamma_max)
    if servers is not None and set(servers) != {0, *gammas}:
        raise InvalidArgumentError(
            f"servers must be of the draft lengths 0, {', '.join(map(str, gammas))} of the timing, "
            f"got {', '.join(map(str, sorted(servers)))}"
        )
    context = engine_context(every, content, timing)
    lengths = timing.prompt_lengths(context)
    seed = begun_seed(timing.seed, timing.repeats, checkpoint, check=False)
    sets = {
        batch: request_sets(batch, len(asked.requests), 0, timing.sets) for batch in timing.batch
    }
    greedy = asked.check.sampling.greedy
    rounds = {gamma: replayed_rounds(asked, gamma) for gamma in (0, *gammas) if greedy}
    watch = Watch(checkpoint, progress, threads=1)
    if servers is None:
        watch.progress("starting engines", 0, len(gammas) + 1)
    running = engine_servers(path, timing, seed=seed) if servers is None else nullcontext(servers)
    with running as clients:
        watch.progress("counting drafts", 0, len(gammas) + 1)
        counts = count_drafts(clients, asked, max(timing.batch), checkpoint)
        advance = steps(watch.progress, "timing", timing.repeats)
        prompts: list[PromptTime] = []
        streamed: list[StreamedSteps] = []

        def with_load(repeat: int) -> None:
            prompts.extend(time_prompts(clients, asked, lengths, repeat, timing.seed, checkpoint))
            most, room = max(timing.batch), context - content.gamma_max
            # Steps depend on the lengths of requests, which those of a few texts are not.
            streamed.extend(
                time_streams(
                    *(clients, every, tokenizer, most, room, repeat, timing.seed, checkpoint),
                    behind_each=watch.look_if_due,
                )
            )
            advance()

        repeats = timed_repeats(
            clients,
            asked,
            lambda repeat: sets,
            range(timing.repeats),
            timing.seed,
            checkpoint,
            with_load,
            watch.look_if_due,
        )
        busy = watch.warnings()
    read = read_rounds(pair, asked, LAWS[timing.drafts], timing.seed)
    times = step_times(repeats, asked, known_rounds(rounds) if greedy else read)
    warnings = [
        f"draft length {each.gamma}: {each.rounds:g} rounds were counted, "
        f"{sum(rounds[each.gamma or 0])} replayed; batches of another size may break ties of "
        "logits in another way"
        for each in (counts if greedy else ())
        if each.rounds != sum(rounds[each.gamma or 0])
    ]
    if len(gammas) == 2:
        warnings.append(
            "two draft lengths lie on any line, so that intervals take servers to be as far apart "
            "as those of other timings: time a third"
        )
    warnings += [*batch_warnings(timing.batch, times), *resumed, *busy]
    try:
        _ = StreamedCosts(tuple(streamed))
    except UnsupportedError as reason:
        # Sets and prompts alone are known nevertheless.
        streamed = []
        if timing.api == "serve":
            warnings.append(
                f"steps under load could not be told apart ({reason}): does the engine stream "
                "every step (--stream-interval 1), and read prompts whole?"
            )
    written = _document(path, timing, counts, times, prompts, streamed, warnings)
    write_acceptance(written, out)
    checkpoint.done()
    return EngineCalibration(
        path=out,
        counts=tuple(counts),
        steps=tuple(times),
        prompts=tuple(prompts),
        streamed=tuple(streamed),
        inputs={"profile": str(path), "timing": timing},
        warnings=tuple(warnings),
    )


def awaits_timing(profile: Path, timing: EngineTiming, command: str) -> bool:
    """Whether the same command, as it was typed, wrote the profile and was killed before it had
    timed the engine: then the profile is not to be measured again.
    """
    try:
        if not profile.is_file() or read_profile(profile).command != command:
            return False
        timed = engine_file(profile, timing)
        sources = read_acceptance(timed).sources if timed.is_file() else []
    except SpecsimError:
        return False  # what cannot be read is made anew
    return file_digest(profile) not in {each.sha256 for each in sources}


def _document(
    profile: Path,
    timing: EngineTiming,
    counts: list[DraftCounts],
    times: list[StepTime],
    prompts: list[PromptTime],
    streamed: list[StreamedSteps],
    warnings: list[str],
) -> AcceptanceFile:
    return AcceptanceFile(
        schema=SCHEMA,
        version=VERSION,
        created=datetime.now(UTC).isoformat(timespec="seconds"),
        specsim=__version__,
        engine=timing.engine,
        acceptance_law="greedy-drafts" if timing.drafts == "greedy" else "ratio-test",
        temperature=timing.temperature,
        method="draft_model",
        counts=[counted_rounds(each) for each in counts],
        lengths=[],
        steps=[timed_step(each) for each in times],
        # Wherever both are taken, the profile is looked for beside this file.
        sources=[Source(profile.name, file_digest(profile), [PROFILE_SOURCE])],
        notes=warnings,
        prompts=[timed_prompt(each) for each in prompts],
        streamed=[timed_streams(each) for each in streamed],
    )
