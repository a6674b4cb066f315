"""Several files that one engine printed, pooled by what was counted."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from hashlib import sha256

from specsim.acceptance import AcceptanceLaw
from specsim.checks import InvalidArgumentError, UnsupportedError
from specsim.counts.drafts import DraftCounts, DraftTotals, MeanLength
from specsim.counts.file import Source
from specsim.counts.pooling import pooled_counts, pooled_lengths, pooled_totals
from specsim.counts.steps import StepTime
from specsim.engines.readers import read_text
from specsim.engines.readers.notes import NO_POSITIONS, VARIED, short_drafts
from specsim.engines.readers.prometheus import differenced
from specsim.engines.readers.reading import Reading


@dataclass(frozen=True)
class PooledFiles:
    """Sums over files; the fields are those of ``specsim.EngineCounts``."""

    engine: str
    acceptance_law: AcceptanceLaw | None
    counts: tuple[DraftCounts, ...]
    totals: DraftTotals | None
    lengths: tuple[MeanLength, ...]
    steps: tuple[StepTime, ...]
    sources: tuple[Source, ...]
    notes: tuple[str, ...]


def pooled_files(files: Iterable[tuple[str, bytes]], engine: str | None = None) -> PooledFiles:
    """Names and contents, of one engine; two scrapes of one server are differenced.

    engine : what wrote them, by name; by default the content decides
    """
    sources, readings = _readings(files, engine)
    readings, notes = _one_drafter(differenced(readings))
    engines = sorted({each.engine for each in readings})
    if len(engines) > 1:
        raise UnsupportedError(
            f"files of {' and '.join(engines)} do not pool, engines count differently; read each "
            "on its own"
        )
    laws = {each.acceptance_law for each in readings if each.acceptance_law is not None}
    notes += [note for each in readings for note in each.notes]
    if len(laws) > 1:
        notes.append(f"the files are of different acceptance laws: {', '.join(sorted(laws))}")
    counted = [each.counts for each in readings if each.counts is not None]
    notes += _twice(counted)
    drafted = [each for each in counted if each.rounds]
    notes += [short_drafts(each) for each in drafted if _short(each)]
    notes += [VARIED] * any(each.gamma is None for each in drafted)
    notes += [NO_POSITIONS] * any(not each.reached for each in drafted)
    if counted and not drafted:
        names = ", ".join(each.file for each in sources)
        raise UnsupportedError(f"{names}: no round was drafted; send requests and read again")
    return PooledFiles(
        engine=engines[0],
        acceptance_law=laws.pop() if len(laws) == 1 else None,
        counts=tuple(each for each, _ in pooled_counts(drafted)),
        totals=pooled_totals(each.totals for each in readings if each.totals is not None),
        lengths=tuple(pooled_lengths(each.length for each in readings if each.length is not None)),
        steps=tuple(step for each in readings for step in each.steps),
        sources=tuple(sources),
        notes=tuple(dict.fromkeys(notes)),
    )


def _readings(
    files: Iterable[tuple[str, bytes]], engine: str | None
) -> tuple[list[Source], list[Reading]]:
    sources: list[Source] = []
    readings: list[Reading] = []
    for name, content in files:
        digest = sha256(content).hexdigest()
        same = [each.file for each in sources if each.sha256 == digest]
        if same:
            raise InvalidArgumentError(
                f"{name} has the same content as {same[0]}, which would count twice; give it once"
            )
        found = read_text(_text(content), name, engine)
        sources.append(Source(file=name, sha256=digest, recognised=[each.source for each in found]))
        readings += found
    return sources, readings


def _one_drafter(readings: Sequence[Reading]) -> tuple[list[Reading], list[str]]:
    """The readings of the drafter with the most rounds, and notes on the others of a server."""
    rounds: dict[str | None, float] = {}
    for each in readings:
        if each.counts is not None:
            rounds[each.drafter] = rounds.get(each.drafter, 0.0) + each.counts.rounds
    if len(rounds) < 2:
        return [*readings], []
    main = max(rounds, key=lambda drafter: rounds[drafter])
    kept, notes = [], []
    for each in readings:
        if each.counts is None or each.drafter == main:
            kept.append(each)
        else:
            notes.append(
                f"{each.source} left out ({each.counts.accepted:g} tokens accepted in "
                f"{each.counts.rounds:g} rounds): drafters do not pool, and "
                f"{main or 'requests that name none'} had more rounds"
            )
    return kept, notes


def _text(content: bytes) -> str:
    """UTF-8, or UTF-16 as a Windows shell redirects; what is neither is left for the readers."""
    if content[:2] in (b"\xff\xfe", b"\xfe\xff"):
        return content.decode("utf-16", errors="replace")
    return content.decode("utf-8-sig", errors="replace")


def _short(counts: DraftCounts) -> bool:
    """Whether some rounds drafted less than the others."""
    if counts.gamma is None or counts.drafted is None:
        return False
    return counts.drafted < counts.rounds * counts.gamma * (1 - 1e-6)


def _twice(counts: Sequence[DraftCounts]) -> list[str]:
    """A warning where two sources counted the very same, as two forms of one run do."""
    many = [each for each in counts if each.rounds > 1]
    if len({(each.gamma, each.rounds, each.accepted) for each in many}) == len(many):
        return []
    return [
        "two sources have the same rounds and accepted tokens; if both are of one run, they are "
        "counted twice: give one of them"
    ]
