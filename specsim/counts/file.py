"""The file acceptance.json: what engines counted of their drafts, and where the counts are from.

JSON with a schema name and version and no unknown keys, written by ``specsim read``.  Anything
that was not counted is absent.
"""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import msgspec
from msgspec import Meta

from specsim.acceptance import AcceptanceLaw
from specsim.checks import SpecsimError
from specsim.counts.drafts import DraftCounts, DraftTotals, MeanLength
from specsim.counts.steps import PromptTime, StepTime
from specsim.engines.drafting import Method
from specsim.files import Format

SCHEMA = "specsim-acceptance"
VERSION = 1


class AcceptanceFileError(SpecsimError):
    """The acceptance file cannot be used; the message says which file and why."""


Number = Annotated[float, Meta(ge=0)]
Above = Annotated[float, Meta(gt=0)]
# Longer than any draft: a file that says more was not written from counts of drafts.
Gamma = Annotated[int, Meta(ge=0, le=1000)]


class _Part(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """A part of the file: frozen, and closed to keys it does not know."""


class CountedRounds(_Part, frozen=True):
    """``DraftCounts`` of one draft length; ``gamma`` is absent where the length varied."""

    rounds: Number
    accepted: Number
    gamma: Gamma | None = None
    drafted: Number | None = None
    reached: list[Number] = []

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
    seconds: Above
    gamma: Gamma | None = None
    steps: Number | None = None
    draft_s: Number | None = None
    drafter_loaded: bool | None = None
    context: Number | None = None
    repeat: Annotated[int, Meta(ge=0)] | None = None
    first_s: Above | None = None

    def step(self) -> StepTime:
        """The step time, checked."""
        return StepTime(**{name: getattr(self, name) for name in self.__struct_fields__})


class TimedPrompt(_Part, frozen=True):
    """A ``PromptTime``, in seconds."""

    gamma: Gamma
    tokens: Annotated[int, Meta(ge=1)]
    seconds: Above
    answer_s: Above
    repeat: Annotated[int, Meta(ge=0)] = 0

    def __post_init__(self) -> None:
        self.prompt()

    def prompt(self) -> PromptTime:
        """The time, checked."""
        return PromptTime(**{name: getattr(self, name) for name in self.__struct_fields__})


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

    def draft_counts(self) -> list[DraftCounts]:
        """The counts by draft length."""
        return [each.counts() for each in self.counts]

    def step_times(self) -> list[StepTime]:
        """The step times."""
        return [each.step() for each in self.steps]

    def prompt_times(self) -> list[PromptTime]:
        """What was timed of prompts."""
        return [each.prompt() for each in self.prompts]


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
)


def timed_prompt(prompt: PromptTime) -> TimedPrompt:
    """The time of a prompt as the file has it."""
    return TimedPrompt(**asdict(prompt))


def is_acceptance(path: Path) -> bool:
    """Whether a file is meant as an acceptance file, by the schema that it names."""
    return _FORMAT.is_meant(path)


def read_acceptance(path: Path) -> AcceptanceFile:
    """Load and check an acceptance file."""
    return _FORMAT.read(path, AcceptanceFile)


def write_acceptance(acceptance: AcceptanceFile, path: Path) -> None:
    """Write whole or not at all."""
    _FORMAT.write(acceptance, path)
