"""Acceptance of requests that are served, from the text of a profile."""

from __future__ import annotations

from pathlib import Path

from specsim.acceptance import AcceptanceLaw
from specsim.counts.file import PROFILE_SOURCE, read_acceptance
from specsim.files import file_digest
from specsim.predict.trace_rates import measured_under
from specsim.profiles import read_profile
from specsim.serving.acceptance import RoundAcceptance


def profile_trace(
    path: Path, temperature: float | None, law: AcceptanceLaw | None
) -> RoundAcceptance:
    """The text of a profile, replayed by request and position.

    temperature : None where it has one alone
    """
    profile = read_profile(path)
    (measured,) = profile.sampled(temperature)
    trace = profile.trace(path, measured_under(profile, path, measured, law))
    return RoundAcceptance.trace(trace.acceptance, trace.starts, label="trace of the profile")


def trace_behind(timed: Path) -> tuple[RoundAcceptance | None, tuple[str, ...]]:
    """The text that an engine was timed with, where its profile lies beside the acceptance file.

    Requests accept unlike each other, and the end of a text unlike its beginning, so that outputs
    of other lengths have other rounds than the engine counted.  The second is what to say where
    there is no such text.
    """
    file = read_acceptance(timed)
    source = next((each for each in file.sources if PROFILE_SOURCE in each.recognised), None)
    if source is None or file.temperature is None:
        return None, ()
    profile = timed.with_name(Path(source.file).name)
    if profile.is_file() and file_digest(profile) == source.sha256:
        return profile_trace(profile, file.temperature, file.acceptance_law), ()
    return None, (
        f"the profile that the engine was timed with, {profile.name}, is not beside {timed}: "
        "drafts stand as often as the engine counted them, in all requests alike",
    )
