"""What an acceptance file says of acceptance, at every draft length."""

from __future__ import annotations

from pathlib import Path

from specsim.checks import InvalidArgumentError, UnsupportedError
from specsim.counts.file import AcceptanceFile, read_acceptance
from specsim.extrapolation.over_gamma import AcceptanceOverGamma, acceptance_from_counts

# Drafts that depend on the text alone; acceptance of heads falls with depth.
_READS_TEXT_ALONE = ("draft_model", "ngram", "suffix")


def counted_acceptance(path: Path, temperature: float | None = None) -> AcceptanceOverGamma:
    """The counts of an acceptance file, carried to every draft length; where the file does not say
    what drafted, as what drafts in a deployment does, elsewhere as a head's.

    temperature : must be the file's, where one is given

    Raises UnsupportedError where the file has no counts of one draft length.
    """
    file = read_acceptance(path)
    check_temperature(path, file, temperature)
    counts = [each for each in file.draft_counts() if each.gamma is not None]
    if not counts:
        raise UnsupportedError(
            f"{path} has no counts of one draft length, only means or totals: read what counts "
            "rounds (a scrape of /metrics, benchmark results, request statistics)"
        )
    heads = None if file.method is None else file.method not in _READS_TEXT_ALONE
    return acceptance_from_counts(counts, heads)


def check_temperature(path: Path, file: AcceptanceFile, temperature: float | None) -> None:
    """Refuse another temperature than that of the file; None is the file's."""
    if temperature is not None and temperature != file.temperature:
        known = (
            "not said (specsim read --temperature records it)"
            if file.temperature is None
            else f"{file.temperature:g}"
        )
        raise InvalidArgumentError(
            f"temperature must be that of {path}, which is {known}, got {temperature:g}"
        )
