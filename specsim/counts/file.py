"""The file acceptance.json: what engines counted of their drafts, and where the counts are from.

JSON with a schema name and version and no unknown keys, written by ``specsim read``.  Anything
that was not counted is absent.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import msgspec
from msgspec import Meta

from specsim.acceptance import AcceptanceLaw
from specsim.checks import InvalidArgumentError, SpecsimError
from specsim.counts.drafts import DraftCounts, DraftTotals, MeanLength
from specsim.counts.steps import FrontendTime, PromptTime, StepTime, StreamedStep, StreamedSteps
from specsim.engines.drafting import Method
from specsim.files import Format

SCHEMA = "specsim-acceptance"
VERSION = 1


class AcceptanceFileError(SpecsimError):
    """The acceptance file cannot be used; the message says which file and why."""


Number = Annotated[float, Meta(ge=0)]
Above = Annotated[float, Meta(gt=0)]
# Longer than any step of an engine.
Seconds = Annotated[float, Meta(gt=0, le=3600)]
# Of what is told from two moments, which chance may turn about.
Offset = Annotated[float, Meta(ge=-3600, le=3600)]
# Longer than any draft: a file that says more was not written from counts of drafts.
Gamma = Annotated[int, Meta(ge=0, le=1000)]
Count = Annotated[int, Meta(ge=1, le=10**9)]


class _Part(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """A part of the file: frozen, and closed to keys it does not know."""


class CountedRounds(_Part, frozen=True):
    """``DraftCounts`` of one draft length; ``gamma`` is absent where the length varied."""

    rounds: Number
    accepted: Number
    gamma: Gamma | None = None
    drafted: Number | None = None
    reached: Annotated[list[Number], Meta(max_length=1000)] = []

    def __post_init__(self) -> None:
        self.counts()

    def counts(self) -> DraftCounts:
        """The counts, checked."""
        return DraftCounts(
            self.gamma, self.rounds, self.accepted, self.drafted, tuple(self.reached)
        )


class CountedLength(_Part, frozen=True):
    """A ``MeanLength``: nothing but a mean acceptance length was printed."""

    tokens_per_call: Annotated[float, Meta(ge=1)]
    weight: Above
    weight_of: str
    gamma: Gamma | None = None

    def __post_init__(self) -> None:
        self.length()

    def length(self) -> MeanLength:
        """The mean, checked."""
        return MeanLength(self.gamma, self.tokens_per_call, self.weight, self.weight_of)


class CountedTotals(_Part, frozen=True):
    """``DraftTotals``: tokens without their rounds."""

    accepted: Number
    drafted: Number

    def __post_init__(self) -> None:
        self.totals()

    def totals(self) -> DraftTotals:
        """The totals, checked."""
        return DraftTotals(self.accepted, self.drafted)


class TimedStep(_Part, frozen=True):
    """A ``StepTime``, in seconds."""

    batch: Above
    seconds: Seconds
    gamma: Gamma | None = None
    steps: Number | None = None
    draft_s: Number | None = None
    drafter_loaded: bool | None = None
    context: Number | None = None
    repeat: Annotated[int, Meta(ge=0)] | None = None
    first_s: Seconds | None = None

    def __post_init__(self) -> None:
        if self.draft_s is not None and self.draft_s >= self.seconds:
            raise InvalidArgumentError(
                f"draft_s must be < seconds = {self.seconds:g}, got {self.draft_s:g}"
            )
        self.step()

    def step(self) -> StepTime:
        """The step time, checked."""
        return StepTime(**{name: getattr(self, name) for name in self.__struct_fields__})


class TimedPrompt(_Part, frozen=True):
    """A ``PromptTime``, in seconds."""

    gamma: Gamma
    tokens: Annotated[int, Meta(ge=1, le=10**9)]
    seconds: Seconds
    answer_s: Seconds
    repeat: Annotated[int, Meta(ge=0)] = 0

    def __post_init__(self) -> None:
        self.prompt()

    def prompt(self) -> PromptTime:
        """The time, checked."""
        return PromptTime(**{name: getattr(self, name) for name in self.__struct_fields__})


class TimedStreamedStep(_Part, frozen=True):
    """A ``StreamedStep``, in seconds."""

    decodes: Count
    seconds: Seconds
    prompts: Annotated[int, Meta(ge=0, le=10**9)] = 0
    prompt_tokens: Annotated[int, Meta(ge=0, le=10**9)] = 0
    steps: Count = 1
    decode_context: Number = 0.0
    variance_s2: Number | None = None
    arrivals: Annotated[int, Meta(ge=0, le=10**9)] | None = None

    def __post_init__(self) -> None:
        self.step()

    def step(self) -> StreamedStep:
        """The step, checked."""
        return StreamedStep(**{name: getattr(self, name) for name in self.__struct_fields__})


class TimedFrontend(_Part, frozen=True):
    """A ``FrontendTime``, in seconds."""

    seconds: Offset
    requests: Count
    decodes: Annotated[int, Meta(ge=0, le=10**9)] | None = None
    prompts: Annotated[int, Meta(ge=1, le=10**9)] | None = None
    variance_s2: Offset | None = None

    def frontend(self) -> FrontendTime:
        """The time, checked."""
        return FrontendTime(**{name: getattr(self, name) for name in self.__struct_fields__})


class TimedStreams(_Part, frozen=True):
    """``StreamedSteps``, in seconds.

    frontend_s, requests : of files of before, which have one mean over so many requests
    """

    gamma: Gamma
    steps: list[TimedStreamedStep]
    frontend_s: Offset = 0.0
    requests: Annotated[int, Meta(ge=0, le=10**9)] = 0
    frontends: list[TimedFrontend] = []
    context: Number = 0.0
    repeat: Annotated[int, Meta(ge=0)] = 0

    def streamed(self) -> StreamedSteps:
        """All of them, checked."""
        frontends = tuple(each.frontend() for each in self.frontends)
        if self.requests and not frontends:
            frontends = (FrontendTime(self.frontend_s, self.requests),)
        steps = tuple(each.step() for each in self.steps)
        return StreamedSteps(self.gamma, steps, frontends, self.context, self.repeat)


# What is recognised in the profile that an engine was timed with.
PROFILE_SOURCE = "profile whose prompts were decoded"


class Source(_Part, frozen=True):
    """A file that was read, and what was recognised in it."""

    file: str
    sha256: str
    recognised: list[str]


class AcceptanceFile(_Part, frozen=True):
    """What was counted of drafts under one engine.

    acceptance_law : how drafts were accepted; absent where the sources do not tell or differ
    temperature, method : as its user said; engines do not print how they sample or draft
    counts : one for each draft length, those with positions before those without
    """

    schema: str
    version: int
    created: str
    specsim: str
    engine: str
    counts: list[CountedRounds]
    lengths: list[CountedLength]
    steps: list[TimedStep]
    sources: Annotated[list[Source], Meta(min_length=1)]
    notes: list[str]
    acceptance_law: AcceptanceLaw | None = None
    temperature: Number | None = None
    method: Method | None = None
    totals: CountedTotals | None = None
    prompts: list[TimedPrompt] = []
    streamed: list[TimedStreams] = []

    def __post_init__(self) -> None:
        counted = [(each.gamma, "with" if each.reached else "without") for each in self.counts]
        _check_once("counts", counted, "draft length {} {} positions")
        means = [(each.gamma, each.weight_of) for each in self.lengths]
        _check_once("lengths", means, "draft length {} weighed by {}")
        timed = [
            None
            if each.repeat is None
            else (each.repeat, each.gamma, each.batch, each.context, each.drafter_loaded)
            for each in self.steps
        ]
        _check_once("steps", timed, "repeat {}, draft length {}, batch {}")
        streamed = [(each.repeat, each.gamma) for each in self.streamed]
        _check_once("streamed", streamed, "repeat {}, draft length {}")
        _check_once("sources", [(each.sha256,) if each.sha256 else None for each in self.sources])

    def draft_counts(self) -> list[DraftCounts]:
        """The counts by draft length."""
        return [each.counts() for each in self.counts]

    def step_times(self) -> list[StepTime]:
        """The step times."""
        return [each.step() for each in self.steps]

    def prompt_times(self) -> list[PromptTime]:
        """What was timed of prompts."""
        return [each.prompt() for each in self.prompts]

    def streamed_steps(self) -> list[StreamedSteps]:
        """What clients saw of the steps of servers under load."""
        return [each.streamed() for each in self.streamed]


def _check_once(
    name: str, keys: Sequence[tuple[object, ...] | None], words: str = "content {}"
) -> None:
    """Refuse what a list has twice: of one of them nobody knows which counts.  None is not told."""
    seen: dict[tuple[object, ...], int] = {}
    for at, key in enumerate(keys):
        if key is None:
            continue
        if key in seen:
            raise InvalidArgumentError(
                f"{name}[{at}] is of the same as {name}[{seen[key]}], {words.format(*key)}"
            )
        seen[key] = at


def counted_rounds(counts: DraftCounts) -> CountedRounds:
    """Counts as the file has them."""
    return CountedRounds(**{**asdict(counts), "reached": list(counts.reached)})


def counted_length(length: MeanLength) -> CountedLength:
    """A mean length as the file has it."""
    return CountedLength(**asdict(length))


def timed_step(step: StepTime) -> TimedStep:
    """A step time as the file has it."""
    return TimedStep(**asdict(step))


_FORMAT = Format(
    "acceptance",
    "an acceptance file",
    SCHEMA,
    VERSION,
    "read the engine's files again",
    error=AcceptanceFileError,
    made_by="specsim read",
)


def timed_prompt(prompt: PromptTime) -> TimedPrompt:
    """The time of a prompt as the file has it."""
    return TimedPrompt(**asdict(prompt))


def timed_streams(streamed: StreamedSteps) -> TimedStreams:
    """What clients of a server saw, as the file has it."""
    steps = [TimedStreamedStep(**asdict(each)) for each in streamed.steps]
    return TimedStreams(
        gamma=streamed.gamma,
        steps=steps,
        frontends=[TimedFrontend(**asdict(each)) for each in streamed.frontends],
        context=streamed.context,
        repeat=streamed.repeat,
    )


def is_acceptance(path: Path) -> bool:
    """Whether a file is meant as an acceptance file, by the schema that it names."""
    return _FORMAT.is_meant(path)


def read_acceptance(path: Path) -> AcceptanceFile:
    """Load and check an acceptance file."""
    return _FORMAT.read(path, AcceptanceFile)


def write_acceptance(acceptance: AcceptanceFile, path: Path) -> None:
    """Write whole or not at all."""
    _FORMAT.write(acceptance, path)
