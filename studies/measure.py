"""Everything that the studies read of a pair of models, measured by specsim's own commands."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import click

from specsim.files import write_atomically
from specsim.report.tables import to_json
from studies.study import SCORED, Measured

# What is decoded for the tables; ``specsim validate`` alone shows all of it.
_REQUESTS = 6


def measure_all(profile: Path | None, out: Path) -> Path:
    """Measure what is not there yet beside ``profile``, or of the embedded family in ``out``.

    What was measured is kept: a run that was killed goes on where it was.
    """
    path = profile or out / "profile.json"
    if not path.is_file():
        _run("calibrate", ["--out", str(path)])
    measured = Measured.at(path)
    models = ["--target", measured.profile.target.name, "--draft", measured.profile.draft.name]
    for temperature in SCORED:
        file = measured.positions_file(temperature)
        if not file.is_file():
            _run("score", [*models, "--temperature", f"{temperature:g}", "--out", str(file)])
    if not measured.beside("decoders").is_file():
        from specsim.commands import _scheme_check

        rows = _scheme_check.run(
            path, ["all"], {}, None, _REQUESTS, None, 0, **_AS_THE_PROFILE_SAYS
        )
        write_atomically(measured.beside("decoders"), to_json(rows).encode())
    if not measured.beside("speedups").is_file():
        from specsim.commands import validate

        rows = validate.run(path, None, None, _REQUESTS, None, None, 0, **_AS_THE_PROFILE_SAYS)
        write_atomically(measured.beside("speedups"), to_json(rows).encode())
    return path


_AS_THE_PROFILE_SAYS = {"device": None, "threads": None, "trust_remote_code": False}


def _run(command: str, arguments: Sequence[str]) -> None:
    """One of specsim's commands, as it would be typed."""
    from specsim.cli import specsim

    click.echo(f"specsim {command} {' '.join(arguments)}", err=True)
    specsim.main([command, *arguments], prog_name="specsim", standalone_mode=False)
