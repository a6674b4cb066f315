"""Everything that the studies read of a pair of models, measured by specsim's own commands."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import redirect_stdout
from pathlib import Path
from typing import Any

import click

from specsim.checks import SpecsimError
from specsim.files import write_atomically
from specsim.profiles import Profile, read_profile
from specsim.report.tables import to_json
from studies.common.measured import SCORED, Measured

# The embedded family, batches included: 448 tokens of context are what it can read.
_CALIBRATED = (
    *("--target", "embedded/target", "--draft", "embedded/small"),
    *("--batch", "1,2,4,8,16,32", "--context", "112,448", "--repeats", "60"),
)
# Requests decoded, and turns of a batch: a cell's best draft lengths are a few percent apart.
_REQUESTS, _TURNS = 12, 100
_SEED = 0
_AS_THE_PROFILE_SAYS = {"device": None, "threads": None, "trust_remote_code": False}

# Texts that are scored; each is 90 kB above temperature 0.
_TEXTS = 32


def measure_all(profile: Path | None, out: Path) -> Path:
    """Measure what is not there yet beside ``profile``, or of the embedded family in ``out``.

    What was measured is kept: a run that was killed goes on where it was.
    """
    path = profile or out / "profile.json"
    if not path.is_file():
        _run("calibrate", [*_CALIBRATED, "--out", str(path)])
    measured = Measured.at(path)
    if measured.profile.grid:
        # Before the rest: it rests on run times of the calibration, and machines drift.
        _keep(measured.beside("synthetic"), _synthetic, path)
    for temperature in SCORED:
        file = measured.positions_file(temperature)
        if not file.is_file():
            asked = ["--temperature", f"{temperature:g}", "--requests", str(_TEXTS)]
            asked += ["--out", str(file)]
            _run("score", [*_models(measured.profile), *asked])
    _keep(measured.beside("decoders"), _decoders, path)
    _keep(measured.beside("speedups"), _speedups, path)
    return path


def _keep(file: Path, decode: Callable[[Path], list[dict[str, Any]]], profile: Path) -> None:
    """Rows of decoding beside the profile, unless they are there."""
    if not file.is_file():
        click.echo(f"decoding for {file.name}", err=True)
        write_atomically(file, to_json(decode(profile)).encode())


def _models(profile: Profile) -> list[str]:
    """The options that name a profile's models and where they ran."""
    options: Mapping[str, object] = {
        "target": profile.target.name,
        "draft": profile.draft.name,
        "dtype": profile.software.dtype,
        "device": profile.hardware.device,
        "threads": profile.hardware.threads,
    }
    return [word for name, value in options.items() for word in (f"--{name}", str(value))]


def _decoders(path: Path) -> list[dict[str, Any]]:
    from specsim.commands import _scheme_check

    return _scheme_check.run(
        path, ["all"], {}, None, _REQUESTS, None, _SEED, **_AS_THE_PROFILE_SAYS
    )


def _speedups(path: Path) -> list[dict[str, Any]]:
    from specsim.commands import validate

    return validate.run(path, None, None, _REQUESTS, None, None, _SEED, **_AS_THE_PROFILE_SAYS)


def _synthetic(path: Path) -> list[dict[str, Any]]:
    from specsim.commands import _load_check

    # Runs cost the same at every temperature; the host's draws are dearest at the highest.
    hottest = max(row.temperature for row in read_profile(path).batch_overhead)
    return _load_check.run(
        path, None, None, None, hottest, None, None, _TURNS, _SEED, **_AS_THE_PROFILE_SAYS
    )


def _run(command: str, arguments: Sequence[str]) -> None:
    """One of specsim's commands, as it would be typed; stdout is for the studies."""
    from specsim.cli import specsim

    click.echo(f"specsim {command} {' '.join(arguments)}", err=True)
    with redirect_stdout(sys.stderr):
        code = specsim.main([command, *arguments], prog_name="specsim", standalone_mode=False)
    if code:
        raise SpecsimError(f"specsim {command} ended with {code}")
