"""Machines are told apart where a check of a profile begins, and a device must work things out."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

import pytest
from msgspec import structs

from calibrate.models import busy, machine
from calibrate.models.place import find_place
from specsim.api.checked_profile import CheckedProfile, WatchedRun
from specsim.api.models import Models
from specsim.api.progress import quiet
from specsim.api.validation import SpeedupCheck
from specsim.checks import InvalidArgumentError
from specsim.profiles import read_profile
from tests.support.profiles import write


def test_two_machines_are_said_and_go_on_with_nothing_of_each_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = write(tmp_path)
    profile = read_profile(path)
    there = profile.hardware
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    monkeypatch.setattr(busy, "Watch", lambda *_: None)

    def begun(**other: Any) -> WatchedRun:
        monkeypatch.setattr(machine, "hardware", lambda _: structs.replace(there, **other))
        models = Models("t", "d", device="cpu")
        return CheckedProfile(path, profile, models, None, quiet).begin(SpeedupCheck())

    own = begun()
    assert own.resumed == ()
    # Every CPU has the same device name; how many threads there are is for who measures to say, and
    # to be told.
    many = begun(threads=64)
    assert many.checkpoint == own.checkpoint
    assert many.resumed == (
        f"the profile was measured with threads {there.threads}, and this decodes with 64: what "
        "models cost differs",
    )
    for other in ({"processor": "q"}, {"cores": 4}, {"device_name": "H9"}):
        elsewhere = begun(**other)
        (line,) = elsewhere.resumed
        assert line.startswith("the profile was measured on cpu (p, cores 2), and this is ")
        assert line.endswith(": two machines differ")
        assert elsewhere.checkpoint.folder != own.checkpoint.folder


@pytest.mark.parametrize("device", ["meta", "cuda:99", "abacus"])
def test_a_device_that_works_nothing_out_is_refused(device: str) -> None:
    with pytest.raises(InvalidArgumentError, match=f"device {device} is not to be had on this"):
        find_place(device, None, None)
