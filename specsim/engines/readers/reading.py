"""One thing that was recognised in what an engine printed, and what the numbers in it mean."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal, Protocol

from specsim.acceptance import AcceptanceLaw
from specsim.counts.drafts import DraftCounts, DraftTotals, MeanLength
from specsim.counts.steps import StepTime

# What the numbers cover:
#   server   everything since the server started: two of the same server overlap
#   window   what happened since the line before
#   run      one run of a benchmark
#   request  single requests
Span = Literal["server", "window", "run", "request"]


@dataclass(frozen=True, kw_only=True)
class Reading:
    """Counts, lengths and step times of one source within a text.

    engine : whose numbers these are, by its name among ``READERS``
    source : what was recognised, in words, such as "/metrics scrape" or "4 log lines"
    span : what the numbers cover
    counts : rounds and what was accepted in them; one draft length in one reading
    totals : accepted and drafted tokens where rounds were not counted
    length : the mean acceptance length where nothing but a mean is printed
    steps : how long steps took
    drafter : which one of several in one server, by the name that the source gives it
    acceptance_law : how the engine accepts drafts unless it is told otherwise; None where it is
        not known
    notes : what a number cannot tell, one sentence each
    counters : the counters of a scrape by series, so that two scrapes can be differenced
    counters_off : by how much the largest of them may be off, where they are printed to some digits
    """

    engine: str
    source: str
    span: Span
    counts: DraftCounts | None = None
    totals: DraftTotals | None = None
    length: MeanLength | None = None
    steps: tuple[StepTime, ...] = ()
    drafter: str | None = None
    acceptance_law: AcceptanceLaw | None = None
    notes: tuple[str, ...] = ()
    counters: Mapping[str, float] | None = None
    counters_off: float = 0.0


def many(number: int, what: str) -> str:
    """ "1 log line", "4 log lines"."""
    return f"{number} {what}{'s' * (number > 1)}"


class Reader(Protocol):
    """A module that reads what one engine, or one benchmark of engines, prints."""

    def recognises(self, text: str) -> bool:
        """Whether ``read`` finds something in this text; never raises."""
        ...

    def read(self, text: str) -> list[Reading]:
        """All that was recognised; a SpecsimError of one line where figures contradict."""
        ...
