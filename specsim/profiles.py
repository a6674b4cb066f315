"""The profile file: what a calibration measured, and on what.

JSON with a schema name and version and no unknown keys.  Owned here, written by ``calibrate``,
read by every command that takes ``--profile``.  Anything that was not measured is absent.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterable, Sequence
from math import hypot
from pathlib import Path
from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta

from specsim.acceptance import AcceptanceLaw
from specsim.checks import InvalidArgumentError, SpecsimError, UnsupportedError
from specsim.files import Format, check_file_name, check_regular, file_digest
from specsim.profile_checks import (
    check_acceptance,
    check_profile,
    check_rate,
    check_trace,
    oddities,
)
from specsim.traces import Trace, TraceError, read_trace

SCHEMA = "specsim-profile"
VERSION = 3


# The name of what drafts without a model: it copies what followed the longest match of the text's
# last tokens.
PROMPT_LOOKUP = "prompt-lookup"

# What a note about a machine that other programs used begins with.
BUSY = "busy machine: "
# Standard deviations of the logarithm of a speedup beyond what repeats tell.  DRIFT: where
# calibrations and their check are ten minutes to two hours apart, with nothing beside them, all
# predictions of a draft are so far off together in the root mean square (``python -m
# benchmarks.blind_drift studies/measured/blind --without
# quiet-plain,quiet-runs,quiet-blocks,quiet-slow`` prints 3.4 %, and printed 3.5 % before lookups
# were priced by temperature): draft, target and host slow down unlike.
# DRIFT_AT_PLAIN: where one knows how long plain decoding takes meanwhile, and moves the prediction
# there, this is the likeliest of what predictions of a calibration are off by together beyond what
# repeats, elasticities and the check are not sure of (the same command, ``--without
# both-cores,spread,t5-spread``, prints 0.9 %, and 0.6 to 1.2 % as 95 %; with these two, which were
# measured after it, 0.8 %).  Calibrations of a few passes hide it, long ones do not.
# _DISTURBED: programs beside a measurement share caches and memory with it, and may slow draft and
# target unlike.  Of 48 predicted and measured beside others, the intervals hold 46 without it and
# all with it (studies/measured/blind/busy/estimators.csv).
DRIFT = 0.035
DRIFT_AT_PLAIN = 0.009
_DISTURBED = 0.05


class ProfileError(SpecsimError):
    """The profile file cannot be used; the message says which file and why."""


Count = Annotated[int, Meta(ge=0)]
Positive = Annotated[int, Meta(ge=1)]
# Longer than any run, and any draft, that is measured; numbers of passes decide how much is drawn.
Seconds = Annotated[float, Meta(ge=0, le=3600)]
PositiveSeconds = Annotated[float, Meta(gt=0, le=3600)]
# A difference of two times.
SignedSeconds = Annotated[float, Meta(ge=-3600, le=3600)]
LONGEST_DRAFT = 1000
MOST_PASSES = 10_000
Pass = Annotated[int, Meta(ge=0, lt=MOST_PASSES)]
Sha256 = Annotated[str, Meta(pattern="^[0-9a-f]{64}$")]
Probability = Annotated[float, Meta(ge=0, le=1)]
Temperature = Annotated[float, Meta(ge=0)]
Role = Literal["target", "draft"]
Dtype = Literal["float32", "bfloat16", "float16"]
# How a model ran: as written, or as a CUDA graph (on a CPU: through torch.compile).
Mode = Literal["eager", "compiled"]


class _Part(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """A part of the file: frozen, and closed to keys it does not know."""


class MeasuredModel(_Part, frozen=True):
    """A model as measured.  ``sha256`` is over its config and, where it has them, its weights.

    Prompt lookup stands in a draft's place without a model: it has no parameters, the context of
    its target, and ``sha256`` is over its rule.
    """

    name: str
    parameters: Count
    context: Positive
    sha256: str
    config: dict[str, Any] | None = None  # of a model measured by its shape: its config.json
    longest_match: Positive | None = None  # of prompt lookup: the most tokens that are matched


class Hardware(_Part, frozen=True):
    """The machine.  ``threads`` is what the models ran on where the device is a CPU."""

    device: str  # "cpu", "cuda", ...
    device_name: str
    processor: str
    cores: Positive
    threads: Positive


class Software(_Part, frozen=True):
    specsim: str
    python: str
    torch: str
    transformers: str
    dtype: Dtype


class SamplingSetting(_Part, frozen=True):
    """How tokens are drawn from logits."""

    temperature: Temperature
    top_k: Positive | None = None
    top_p: Probability | None = None


class Rate(_Part, frozen=True):
    """A measured rate with its 95 % interval."""

    low: Probability
    best: Probability
    high: Probability

    def __post_init__(self) -> None:
        check_rate(self)


class FileReference(_Part, frozen=True):
    """A file in the same folder as the profile."""

    file: str
    sha256: Sha256

    def __post_init__(self) -> None:
        check_file_name(self.file)


class MeasuredAcceptance(_Part, frozen=True):
    """How often drafts were accepted under one sampling setting, on target-sampled text.

    ``survival[i - 1]`` is S_i and ``conditional[i - 1]`` is alpha_i, averaged over all positions
    as block starts; intervals by bootstrap over requests.  ``prompt_tokens`` is the most that a
    prompt was allowed; ``prompts_sha256`` is over the token ids (``prompts_digest``).
    ``acceptance_law`` is what alpha, survival and conditional are of; at temperature 0 all agree.
    """

    sampling: SamplingSetting
    requests: Annotated[int, Meta(ge=2)]
    prompt_tokens: Positive
    prompts_sha256: str
    max_new_tokens: Positive
    tokens: Positive
    seed: Count
    alpha: Rate
    survival: list[Rate]
    conditional: list[Rate]
    trace: FileReference
    acceptance_law: AcceptanceLaw = "ratio-test"

    def __post_init__(self) -> None:
        check_acceptance(self)


class RunTime(_Part, frozen=True):
    """Every repeat of one cell, in seconds, outliers included: a run, or the mean of some.

    A run over ``tokens`` new tokens of each of ``batch`` sequences with ``context`` tokens in
    their caches, right after a run of ``follows``: a run is slower when the other model has used
    the processor's caches in between.  ``plain`` is what a target run of plain decoding took in
    the same moments: machines drift, and of two runs close together the ratio drifts least.
    ``passes`` says which pass through all measurements each belongs to; empty is one pass.
    ``runs`` says how many runs each is the mean of, and so how much it counts: a width that a
    decoding has seldom takes longer there than where it is the usual one.  Empty is as many each.
    ``gammas``, of draft runs, is the draft length of the blocks that each is of: of later runs the
    first ones are the slowest, and what the first run of a block finds in the caches depends on
    how wide the target's run before it was.  Empty is not told.
    """

    model: Role
    follows: Role
    tokens: Positive
    batch: Positive
    context: Count
    mode: Mode
    seconds: Annotated[list[PositiveSeconds], Meta(min_length=1)]
    plain: Annotated[list[PositiveSeconds], Meta(min_length=1)]
    passes: list[Pass] = []
    runs: list[Positive] = []
    gammas: list[Positive] = []

    def __post_init__(self) -> None:
        _check_lengths(self, "plain", "passes", "runs", "gammas")


class Overhead(_Part, frozen=True):
    """Host seconds of a block of ``batch`` requests outside the model runs.

    Of one request they are of blocks with room for all their drafts, and also what the target's
    runs without a draft took longer than in plain decoding, by chance < 0 of a stretch.
    Every stretch of blocks that was decoded gives its mean; gamma 0 is a step of plain decoding.
    ``plain`` and ``passes`` as of run times; an empty ``plain`` says that nothing was beside it.
    """

    temperature: Temperature
    gamma: Count
    batch: Positive
    context: Count
    mode: Mode
    seconds: Annotated[list[SignedSeconds], Meta(min_length=1)]
    plain: list[PositiveSeconds] = []
    passes: list[Pass] = []

    def __post_init__(self) -> None:
        _check_lengths(self, "plain", "passes")


def _check_lengths(row: RunTime | Overhead, *names: str) -> None:
    for name in names:
        if getattr(row, name) and len(getattr(row, name)) != len(row.seconds):
            raise ValueError(f"{name} must be as long as seconds")


class Missing(_Part, frozen=True):
    """Cells of the grid that could not be measured, and why."""

    batch: Positive
    context: Count
    mode: Mode
    reason: str


class Profile(_Part, frozen=True):
    """Everything a prediction needs, and where it came from.

    ``run_times`` and ``overhead`` are of one sequence, decoded alone; ``grid``, ``batch_overhead``
    and ``missing`` are what was asked for beyond that.  A measurement of costs alone has those and
    no ``acceptance``.  Of prompt lookup there are no run times of a draft: its searches are host
    time, so that ``overhead`` has them.
    """

    schema: str
    version: int
    created: str
    command: str
    target: MeasuredModel
    draft: MeasuredModel
    hardware: Hardware
    software: Software
    gamma_max: Annotated[int, Meta(ge=1, le=LONGEST_DRAFT)]
    acceptance: list[MeasuredAcceptance]
    run_times: list[RunTime]
    overhead: list[Overhead]
    notes: list[str]
    grid: list[RunTime] = []
    batch_overhead: list[Overhead] = []
    missing: list[Missing] = []

    def __post_init__(self) -> None:
        check_profile(self)

    @property
    def warnings(self) -> list[str]:
        """What whoever relies on the profile should know."""
        return [*self._busy, *oddities(self)]

    @property
    def _busy(self) -> list[str]:
        return [note for note in self.notes if note.startswith(BUSY)]

    @property
    def drift(self) -> float:
        """Standard deviation that the machine's drift, and other programs where there were some,
        add to the logarithm of a speedup.
        """
        return self._disturbed(DRIFT)

    @property
    def drift_at_plain(self) -> float:
        """The same where it is known how long plain decoding takes meanwhile."""
        return self._disturbed(DRIFT_AT_PLAIN)

    def _disturbed(self, drift: float) -> float:
        return hypot(drift, _DISTURBED) if self._busy else drift

    @property
    def by_lookup(self) -> bool:
        """Whether prompt lookup drafts, without a model."""
        return self.draft.longest_match is not None

    def require_draft_model(self, what: str) -> None:
        """Refuse ``what`` where prompt lookup drafts."""
        if self.by_lookup:
            raise lacks_draft_model(what)

    def trace(self, path: Path, measured: MeasuredAcceptance) -> Trace:
        """The trace of one setting under its law, checked against the hash that is named."""
        file = path.parent / measured.trace.file
        if path.is_symlink() and not os.path.exists(file):  # the profile itself lies elsewhere
            file = Path(os.path.realpath(path)).with_name(measured.trace.file)
        check_regular(file, f"trace {file}", TraceError)
        if file_digest(file) != measured.trace.sha256:
            raise ProfileError(
                f"profile {path}: {measured.trace.file} is not the trace that was measured "
                "(its hash differs); calibrate again or restore the file"
            )
        # At temperature 0 the ratio is 0 or 1 and every law has the same: no column is lacking.
        greedy = measured.sampling.temperature == 0
        law: AcceptanceLaw = "ratio-test" if greedy else measured.acceptance_law
        trace = read_trace(file, acceptance_law=law)
        try:
            if trace.by_lookup != self.by_lookup:
                drafts = "prompt lookup" if trace.by_lookup else "a draft model"
                raise InvalidArgumentError(f"is of {drafts}, the profile of {self.draft.name}")
            check_trace(measured, trace, own=measured in self.acceptance)
        except InvalidArgumentError as error:
            raise ProfileError(f"profile {path}: {measured.trace.file} {error}") from None
        return trace

    def sampled(self, temperature: float | None) -> list[MeasuredAcceptance]:
        """The settings with this temperature, or all of them."""
        if not self.acceptance:
            raise ProfileError("the profile has no acceptance, only costs (calibrate --cost-only)")
        found = [
            measured
            for measured in self.acceptance
            if temperature is None or measured.sampling.temperature == temperature
        ]
        if not found:
            known = ", ".join(f"{a.sampling.temperature:g}" for a in self.acceptance)
            raise ProfileError(
                f"temperature {temperature:g} is not in the profile (measured: {known})"
            )
        return found


def lacks_draft_model(what: str) -> UnsupportedError:
    """What is said where prompt lookup drafts, and ``what`` needs a model that does."""
    return UnsupportedError(
        f"{what} needs a draft model, and {PROMPT_LOOKUP} has none: name a model as the draft"
    )


def _from_version_2(content: dict[str, Any]) -> dict[str, Any]:
    """Of one sequence that version had medians alone, so nothing is known of how sure they are."""
    for name in ("run_times", "overhead"):
        for at, row in enumerate(content[name]):
            if not row["low_s"] <= row["median_s"] <= row["high_s"]:
                raise InvalidArgumentError(
                    f"{name}[{at}]: median_s must be in [low_s, high_s], got {row['median_s']}"
                )
    plain = {
        row["context"]: row["median_s"]
        for row in content["run_times"]
        if row["model"] == "target" and row["tokens"] == 1
    }
    alone = {"batch": 1, "mode": "eager"}
    run_times = [
        {name: row[name] for name in ("model", "follows", "tokens", "context")}
        | alone
        | {"seconds": [row["median_s"]], "plain": [plain.get(row["context"], row["median_s"])]}
        for row in content["run_times"]
    ]
    overhead = [
        {"temperature": row["temperature"], "gamma": row["gamma"], "context": 0}
        | alone
        | {"seconds": [row["median_s"]]}
        for row in content["overhead"]
    ]
    return {**content, "version": 3, "run_times": run_times, "overhead": overhead}


_FORMAT = Format(
    "profile",
    "a specsim profile",
    SCHEMA,
    VERSION,
    "calibrate again",
    error=ProfileError,
    upgrades={2: _from_version_2},
    made_by="specsim calibrate",
)


def is_profile(path: Path) -> bool:
    """Whether a file is meant as a profile, by the schema that it names."""
    return _FORMAT.is_meant(path)


def read_profile(path: Path) -> Profile:
    """Load and check a profile."""
    return _FORMAT.read(path, Profile)


def write_profile(profile: Profile, path: Path) -> None:
    """Write whole or not at all."""
    _FORMAT.write(profile, path)


def prompts_digest(prompts: Iterable[Sequence[int]]) -> str:
    """SHA-256 over the token ids of prompts, so that a check can tell whether they are the same."""
    sha = hashlib.sha256()
    for prompt in prompts:
        sha.update(" ".join(map(str, prompt)).encode() + b"\n")
    return sha.hexdigest()
