"""The profile file: what a calibration measured, and on what.

JSON with a schema name and version and no unknown keys.  Owned here, written by ``calibrate``,
read by every command that takes ``--profile``.  Anything that was not measured is absent.
"""

from __future__ import annotations

import hashlib
import os
from pathlib import Path

import msgspec

from specsim.checks import SpecsimError
from specsim.traces import Trace, read_trace

SCHEMA = "specsim-profile"
VERSION = 1


class ProfileError(SpecsimError):
    """The profile file cannot be used; the message says which file and why."""


class _Part(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """A part of the file: frozen, and closed to keys it does not know."""


class Model(_Part, frozen=True):
    """A model as measured.  ``sha256`` is over its weights and config."""

    name: str
    parameters: int
    context: int
    sha256: str


class Hardware(_Part, frozen=True):
    """The machine.  ``threads`` is what the models ran on where the device is a CPU."""

    device: str
    processor: str
    cores: int
    threads: int


class Software(_Part, frozen=True):
    specsim: str
    python: str
    torch: str
    transformers: str
    dtype: str


class Sampling(_Part, frozen=True):
    """How tokens are drawn from logits."""

    temperature: float
    top_k: int | None = None
    top_p: float | None = None


class Rate(_Part, frozen=True):
    """A measured rate with its 95 % interval."""

    low: float
    best: float
    high: float


class FileReference(_Part, frozen=True):
    """A file beside the profile."""

    file: str
    sha256: str


class Acceptance(_Part, frozen=True):
    """How often drafts were accepted under one sampling setting, on target-sampled text.

    ``survival[i - 1]`` is S_i and ``conditional[i - 1]`` is alpha_i, averaged over all positions
    as block starts; intervals by bootstrap over requests.
    """

    sampling: Sampling
    requests: int
    prompt_tokens: int
    tokens: int
    seed: int
    alpha: Rate
    survival: list[Rate]
    conditional: list[Rate]
    trace: FileReference


class RunTime(_Part, frozen=True):
    """Seconds of one run over ``tokens`` new tokens with ``context`` tokens in the cache."""

    model: str  # "target" or "draft"
    tokens: int
    context: int
    batch: int
    repeats: int
    median_s: float
    low_s: float  # quartiles
    high_s: float


class Overhead(_Part, frozen=True):
    """Host seconds of one block outside the model runs; gamma 0 is a step of plain decoding."""

    temperature: float
    gamma: int
    blocks: int
    median_s: float
    low_s: float
    high_s: float


class Profile(_Part, frozen=True):
    """Everything a prediction needs, and where it came from."""

    schema: str
    version: int
    created: str
    command: str
    target: Model
    draft: Model
    hardware: Hardware
    software: Software
    gamma_max: int
    acceptance: list[Acceptance]
    run_times: list[RunTime]
    overhead: list[Overhead]
    notes: list[str]

    def trace(self, path: Path, measured: Acceptance) -> Trace:
        """The trace of one setting, checked against the hash that the profile names."""
        file = path.parent / measured.trace.file
        if file.is_file() and file_digest(file) != measured.trace.sha256:
            raise ProfileError(
                f"profile {path}: {measured.trace.file} is not the trace that was measured "
                "(its hash differs); calibrate again or restore the file"
            )
        return read_trace(file)

    def sampled(self, temperature: float | None) -> list[Acceptance]:
        """The settings with this temperature, or all of them."""
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


def read_profile(path: Path) -> Profile:
    """Load and check a profile."""
    if not path.is_file():
        raise ProfileError(f"profile {path}: no such file")
    content = path.read_bytes()
    try:
        header = msgspec.json.decode(content)
    except msgspec.DecodeError as error:
        raise ProfileError(f"profile {path}: not complete JSON ({error})") from None
    if not isinstance(header, dict) or header.get("schema") != SCHEMA:
        raise ProfileError(f'profile {path}: not a specsim profile (no "schema": "{SCHEMA}")')
    version = header.get("version")
    if version != VERSION:
        raise ProfileError(
            f"profile {path}: has version {version}, this specsim reads version {VERSION}; "
            "use the specsim that wrote it or calibrate again"
        )
    try:
        return msgspec.json.decode(content, type=Profile)
    except msgspec.ValidationError as error:
        raise ProfileError(f"profile {path}: {error}") from None


def write_profile(profile: Profile, path: Path) -> None:
    """Write whole or not at all."""
    write_atomically(path, msgspec.json.format(msgspec.json.encode(profile)) + b"\n")


def write_atomically(path: Path, content: bytes) -> None:
    """Through a temporary file beside ``path``, so that a kill leaves the old file or none."""
    partial = path.with_name(f".{path.name}.{os.getpid()}.partial")
    try:
        partial.write_bytes(content)
        partial.replace(path)
    except OSError as error:
        partial.unlink(missing_ok=True)
        raise ProfileError(f"{path}: cannot be written ({error.strerror})") from None


def file_digest(path: Path) -> str:
    """SHA-256 of a file, in hexadecimal."""
    with path.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()
