"""``specsim.read``: what inference engines counted of their drafts, from what they print."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from os import PathLike
from pathlib import Path
from typing import Any, ClassVar

from specsim import __version__
from specsim.acceptance import AcceptanceLaw
from specsim.api.result import Result, Row
from specsim.checks import InvalidArgumentError, UnsupportedError, check_choice, number, significant
from specsim.counts.drafts import DraftCounts, DraftTotals, MeanLength
from specsim.counts.file import (
    SCHEMA,
    VERSION,
    AcceptanceFile,
    CountedTotals,
    Source,
    counted_length,
    counted_rounds,
    timed_step,
    write_acceptance,
)
from specsim.counts.step_costs import StepCosts, StepLine
from specsim.counts.steps import StepTime
from specsim.engines.drafting import METHODS, Method
from specsim.engines.readers.pooling import PooledFiles, pooled_files
from specsim.engines.readers.speculation_profile import write as write_profile
from specsim.files import (
    LARGEST_TEXT,
    check_replaceable,
    read_regular,
    too_large,
    write_atomically,
)
from specsim.intervals import Interval


@dataclass(frozen=True, kw_only=True)
class EngineCounts(Result):
    """What an engine counted, pooled over all files.

    engine : whose counts
    acceptance_law : how the engine accepts drafts unless it was told otherwise; None where that is
        not known
    counts : sums by draft length
    totals : tokens whose rounds were not counted; None where there are none
    lengths : means of which no counts are known
    steps : how long steps took
    sources : files, and what was recognised in them
    """

    schema: ClassVar[str] = "specsim.read"

    engine: str
    acceptance_law: AcceptanceLaw | None
    counts: tuple[DraftCounts, ...]
    totals: DraftTotals | None
    lengths: tuple[MeanLength, ...]
    steps: tuple[StepTime, ...]
    sources: tuple[Source, ...]

    @property
    def costs(self) -> StepCosts | None:
        """What a step costs by draft length and batch; None where no step of a known K was timed.

        UnsupportedError where the steps are of different contexts.
        """
        known = [each for each in self.steps if each.gamma is not None]
        return StepCosts.of(known) if known else None

    def rows(self) -> list[Row]:
        """Counts, means and totals, with 95 % intervals; positions as lists."""
        found = [_count_row(each) for each in self.counts]
        found += [_row(gamma=each.gamma, tokens=each.tokens_per_call) for each in self.lengths]
        if self.totals is not None:
            found.append(_row(drafted=self.totals.drafted, accepted=self.totals.accepted))
        if not found:
            found = [_row(gamma=step.gamma) for step in self.steps]
        return found

    def table(self) -> list[Row]:
        """One line for all rounds of a draft length, then one a position."""
        lines: list[Row] = []
        for row in self.rows():
            lines.append(
                {
                    "K": "?" if row["gamma"] is None else row["gamma"],
                    "position": "all",
                    "rounds": _whole(row["rounds"]),
                    "drafted": _whole(row["drafted"]),
                    "accepted": _whole(row["accepted"]),
                    "tokens_per_call": _with_interval(row, "tokens_per_call"),
                    "marginal": None,
                    "conditional": None,
                }
            )
            lines += [
                {
                    "K": lines[-1]["K"],
                    "position": i + 1,
                    "accepted": _whole(reached),
                    "marginal": _with_interval(row, "marginal", i),
                    "conditional": _with_interval(row, "conditional", i),
                }
                for i, reached in enumerate(row["reached"])
            ]
        return lines

    @property
    def essential(self) -> tuple[str, ...]:
        return "K", "position", "rounds", "accepted", "tokens_per_call", "marginal"

    def summary(self) -> Row:
        return {
            "engine": self.engine,
            "acceptance_law": self.acceptance_law,
            "steps": list(self.steps),
            "costs": self._step_lines()[0],
            "sources": [
                {"file": each.file, "sha256": each.sha256, "recognised": each.recognised}
                for each in self.sources
            ],
        }

    def sentences(self) -> list[str]:
        alike: dict[str, list[str]] = {}
        for source in self.sources:
            alike.setdefault(_listed(source.recognised), []).append(source.file)
        found = [f"{', '.join(files)}: {self.engine}, {what}" for what, files in alike.items()]
        if self.acceptance_law is not None:
            found.append(f"acceptance law: {_LAWS[self.acceptance_law]}")
        by_batch: dict[float, list[str]] = {}
        for step in sorted(self.steps, key=lambda step: (step.batch, step.gamma or 0)):
            length = "K not told" if step.gamma is None else f"K = {step.gamma}"
            if step.gamma == 0 and step.drafter_loaded:
                length += " with a drafter kept in step"
            took = f"{significant(1e3 * step.seconds)} ms"
            by_batch.setdefault(step.batch, []).append(f"{took} at {length}")
        found += [
            f"step times at batch {batch:g}: {', '.join(times)}"
            for batch, times in by_batch.items()
        ]
        return [*found, *self._costs_in_words()]

    def _step_lines(self) -> tuple[list[StepLine], str]:
        """The law of a step of each batch that tells it; and why there is none of any."""
        try:
            return ([] if self.costs is None else self.costs.lines()), ""
        except UnsupportedError as error:
            return [], str(error)

    def _costs_in_words(self) -> list[str]:
        """The law of a step, a sentence for each batch that tells it."""
        lines, why = self._step_lines()
        found = [f"no law of a step: {why}"] if why else []
        for line in lines:
            plain, fixed, draft = 1e3 * line.plain_s, 1e3 * line.fixed_s, 1e3 * line.per_draft_s
            words = f"at batch {line.batch:g} a step takes {significant(plain)} ms without drafts, "
            words += f"with K drafts {fixed:+.3g} ms and {draft:+.3g} ms a draft"
            if line.draft_run_s is not None:
                words += f", {1e3 * line.draft_run_s:.3g} ms of it to make it"
            if len(line.gammas) > 2:
                words += f" (within {line.deviation:.1%} of all {len(line.gammas)} K)"
            found.append(words)
        return found


_LAWS: dict[AcceptanceLaw, str] = {
    "ratio-test": "ratio-test (sampled drafts, accepted with min(1, p/q))",
    "greedy-drafts": "greedy-drafts, the engine's default (the draft's most probable token, "
    "accepted with the target's probability of it)",
    "exact-match": "exact-match (a sampled draft that equals the target's own sample)",
}


def read(
    *files: str | PathLike[str],
    engine: str | None = None,
    temperature: float | None = None,
    method: Method | None = None,
    out: str | PathLike[str] | None = None,
    speculation_profile: str | PathLike[str] | None = None,
) -> EngineCounts:
    """What inference engines counted of their drafts, from the files that they print.

    Log lines, scrapes of /metrics, results of benchmarks and counts of requests are recognised by
    their content.  Several files are pooled by what was counted, draft lengths apart; two scrapes
    of one server are differenced.

    files : paths; "-" is standard input
    engine : what wrote them, by name; by default the content decides
    temperature : of the requests, for the record: engines do not print it
    method : where the drafts came from (specsim.engines.drafting), which tells how acceptance
        goes on at other draft lengths than were counted
    out : an acceptance file to write, which takes the place of a profile in other calls
    speculation_profile : a file to write in NVIDIA's schema of that name; counts of one K alone
    """
    if not files:
        raise InvalidArgumentError("files must be at least one file that an engine printed, got 0")
    if temperature is not None:
        temperature = number("temperature", temperature, low=0.0)
    if method is not None:
        check_choice("method", method, METHODS)
    asked = {"out": out, "speculation_profile": speculation_profile}
    written = {option: Path(path) for option, path in asked.items() if path is not None}
    for option, path in written.items():
        check_replaceable(path, option)
    if len(set(written.values())) < len(written):
        raise InvalidArgumentError(
            f"out and speculation_profile must be two files, got {out} for both"
        )
    names = [str(file) for file in files]
    pooled = pooled_files([(name, _content(name)) for name in names], engine)
    inputs = {
        "files": names,
        "engine": engine,
        "temperature": temperature,
        "method": method,
        "out": None if out is None else str(out),
        "speculation_profile": None if speculation_profile is None else str(speculation_profile),
    }
    found = engine_counts(pooled, inputs)
    # Before anything is written: it holds the counts of one K, and refuses others.
    profile = None if speculation_profile is None else _profile(found, temperature, method)
    if out is not None:
        write_acceptance(_document(found, temperature, method), Path(out))
    if out is not None and method is None and found.counts:
        unsaid = (
            "where the drafts came from is not told: at longer drafts acceptance will be taken to "
            "fall as that of heads does (EAGLE, MTP), unless a deployment says what drafts; give "
            "--method, draft_model for a draft model"
        )
        found = replace(found, warnings=(*found.warnings, unsaid))
    if speculation_profile is not None and profile is not None:
        write_atomically(Path(speculation_profile), profile.encode())
    return found


def engine_counts(pooled: PooledFiles, inputs: Mapping[str, Any]) -> EngineCounts:
    """The result of what was pooled over files."""
    return EngineCounts(
        engine=pooled.engine,
        acceptance_law=pooled.acceptance_law,
        counts=pooled.counts,
        totals=pooled.totals,
        lengths=pooled.lengths,
        steps=pooled.steps,
        sources=pooled.sources,
        inputs=inputs,
        warnings=pooled.notes,
    )


def _content(name: str) -> bytes:
    if name != "-":
        return read_regular(Path(name), "", InvalidArgumentError)
    content = sys.stdin.buffer.read(LARGEST_TEXT + 1)
    if len(content) > LARGEST_TEXT:
        raise InvalidArgumentError(f"standard input: {too_large(len(content), LARGEST_TEXT)}")
    return content


def _profile(found: EngineCounts, temperature: float | None, method: Method | None) -> str:
    """The text of a speculation_profile.json, which holds the counts of one K."""
    if len(found.counts) != 1:
        lengths = ", ".join("unknown" if c.gamma is None else str(c.gamma) for c in found.counts)
        raise UnsupportedError(
            f"a speculation profile is of one K, the files have {lengths or 'no counts'}; read "
            "those of one K"
        )
    conditions = {
        "engine": found.engine,
        "temperature": temperature,
        "files": [each.file for each in found.sources],
        "specsim": __version__,
    }
    return write_profile(found.counts[0], method=method, conditions=conditions)


def _document(
    found: EngineCounts, temperature: float | None, method: Method | None
) -> AcceptanceFile:
    totals = found.totals
    return AcceptanceFile(
        schema=SCHEMA,
        version=VERSION,
        created=datetime.now(UTC).isoformat(timespec="seconds"),
        specsim=__version__,
        engine=found.engine,
        acceptance_law=found.acceptance_law,
        temperature=temperature,
        method=method,
        counts=[counted_rounds(each) for each in found.counts],
        lengths=[counted_length(each) for each in found.lengths],
        totals=None if totals is None else CountedTotals(totals.accepted, totals.drafted),
        steps=[timed_step(each) for each in found.steps],
        sources=list(found.sources),
        notes=list(found.warnings),
    )


def _row(
    gamma: int | None = None,
    rounds: float | None = None,
    drafted: float | None = None,
    accepted: float | None = None,
    tokens: float | None = None,
) -> Row:
    rates = ("marginal", "conditional")
    return {
        "gamma": gamma,
        "rounds": rounds,
        "drafted": drafted,
        "accepted": accepted,
        "tokens_per_call": tokens,
        "tokens_per_call_low": None,
        "tokens_per_call_high": None,
        "reached": [],
        **{f"{name}{end}": [] for name in rates for end in ("", "_low", "_high")},
    }


def _count_row(counts: DraftCounts) -> Row:
    row = _row(counts.gamma, counts.rounds, counts.drafted, counts.accepted, counts.tokens_per_call)
    length = counts.length()
    if length is not None:
        row |= length.columns("tokens_per_call")
    if counts.reached:
        row["reached"] = list(counts.reached)
        for name, rates in (("marginal", counts.marginal()), ("conditional", counts.conditional())):
            row |= {key: each.tolist() for key, each in rates.columns(name).items()}
    return row


def _listed(words: Sequence[str]) -> str:
    """Each word once, with how often it came."""
    return ", ".join(
        f"{number} times {word}" if number > 1 else word for word, number in Counter(words).items()
    )


def _whole(value: float | None) -> int | None:
    return None if value is None else round(value)


def _with_interval(
    row: Row, name: str, position: int | None = None
) -> Interval[float] | float | None:
    """A figure, with its interval where that is known; None where there is none."""
    values = [row[f"{name}{end}"] for end in ("", "_low", "_high")]
    if position is not None:
        values = [each[position] if position < len(each) else None for each in values]
    best, low, high = values
    return best if low is None else Interval(low, best, high)
