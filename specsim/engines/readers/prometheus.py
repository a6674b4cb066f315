"""Scrapes of /metrics: the counters of drafts, which vLLM and llama.cpp name alike.

``PREFIX:spec_decode_num_drafts_total``, ``..._num_draft_tokens_total``,
``..._num_accepted_tokens_total`` and ``..._num_accepted_tokens_per_pos_total{position="j"}``
(vllm/v1/spec_decode/metrics.py of vLLM 0.33.0; tools/server/server-task.cpp of llama.cpp
0c1e57098).  They count since the server started, one series for each engine process.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from itertools import pairwise, zip_longest

from specsim.acceptance import AcceptanceLaw
from specsim.checks import InvalidArgumentError, UnsupportedError
from specsim.counts.drafts import DraftCounts
from specsim.engines.readers.figures import LONGEST, Printed, with_draft_length
from specsim.engines.readers.reading import Reading

_ROUNDS, _DRAFTED, _ACCEPTED = "num_drafts", "num_draft_tokens", "num_accepted_tokens"
_REACHED = "num_accepted_tokens_per_pos"
_NAMES = (_ROUNDS, _DRAFTED, _ACCEPTED, _REACHED)
# When a counter was made, which differs where the server was started again.
_CREATED = "num_drafts_created"

_TURNED_ROUND = (
    "the scrape that was given later counts less and is taken for the earlier one; if the server "
    "was started again between them, the difference is of neither life: read each on its own"
)

_ONE_SERVER = (
    "the scrapes are taken for two of one server; of two servers the difference is of neither: "
    "read each on its own"
)
# Rounding of both scrapes, as a share of the rounds between them, that is still no matter.
_MOST_OFF = 0.005

# A sample as the format has it, NAME{LABELS} VALUE [TIMESTAMP], or as a table with " | " has it.
_SAMPLE = re.compile(
    r"^\s*(?P<name>[\w:]+?)(?:_total)?\s*(?:\{(?P<labels>[^}]*)\})?\s*[|\s]\s*(?P<value>[^\s|{}]+)"
    r"(?:\s+\d+)?\s*$"
)
_LABEL = re.compile(r'(\w+)="((?:[^"\\]|\\.)*)"')


def has_counters(text: str, prefix: str) -> bool:
    """Whether a text has any sample of the counters of drafts."""
    return bool(
        re.search(rf"^\s*{re.escape(prefix)}:spec_decode_num_\w+[\s{{]", text, re.MULTILINE)
    )


def read_scrapes(
    text: str, prefix: str, engine: str, law: AcceptanceLaw | None, notes: Sequence[str] = ()
) -> list[Reading]:
    """A reading of every scrape in a text; a series that comes again begins the next one."""
    scrapes: list[dict[str, Printed]] = [{}]
    for series, value in _samples(text, prefix):
        if series in scrapes[-1]:
            scrapes.append({})
        scrapes[-1][series] = value
    return [
        Reading(
            engine=engine,
            source="/metrics scrape",
            span="server",
            counts=_counts(
                {series: each for series, each in scrape.items() if not _is_time(series)}, prefix
            ),
            acceptance_law=law,
            notes=tuple(notes),
            counters={series: each.value for series, each in scrape.items()},
            counters_off=max(
                (each.half for series, each in scrape.items() if not _is_time(series)), default=0.0
            ),
        )
        for scrape in scrapes
        if scrape
    ]


def differenced(readings: Iterable[Reading]) -> list[Reading]:
    """The readings, with scrapes of one server replaced by what was counted between them.

    Scrapes belong together if they have the same series; the earlier one has the smaller
    counters.  A counter that fell means that the server was started again in between.
    """
    found: list[Reading] = []
    scrapes: list[list[Reading]] = []
    for reading in readings:
        if reading.counters is None:
            found.append(reading)
            continue
        same = [
            group
            for group in scrapes
            if group[0].engine == reading.engine and _share_series(group[0], reading)
        ]
        if same:
            same[0].append(reading)
        else:
            scrapes.append([reading])
    return found + [_between(group) for group in scrapes]


def _samples(text: str, prefix: str) -> Iterable[tuple[str, Printed]]:
    """Series, written as ``name position other labels``, and their values."""
    start = f"{prefix}:spec_decode_"
    for line in text.splitlines():
        if not line.lstrip().startswith(start):
            continue
        sample = _SAMPLE.match(line)
        if sample is None:
            raise InvalidArgumentError(f"not a sample of a scrape: {line.strip()[:80]!r}")
        name = sample["name"].removeprefix(start)
        if name not in (*_NAMES, _CREATED):
            continue
        labels = dict(_LABEL.findall(sample["labels"] or ""))
        position = labels.pop("position", "")
        if (name == _REACHED) != position.isdecimal() or int(position or 0) >= LONGEST:
            raise InvalidArgumentError(f"{name} has the position {position[:20]!r}")
        process = ",".join(f"{key}={labels[key]}" for key in sorted(labels))
        yield f"{name}|{position}|{process}", Printed.of(name, sample["value"])


def _counts(scrape: Mapping[str, Printed], prefix: str) -> DraftCounts:
    """The counters of all engine processes of one model together, checked against each other."""
    processes: dict[str, dict[str, Printed]] = {}
    for series, value in scrape.items():
        name, position, process = series.split("|", 2)
        processes.setdefault(process, {})[f"{name}{position}"] = value
    models = {part for each in processes for part in each.split(",") if "model_name=" in part}
    if len(models) > 1:
        raise UnsupportedError(
            f"the scrape has {len(models)} models ({', '.join(sorted(models))[:100]}); give the "
            "lines of one model"
        )
    if not any(name in each for each in processes.values() for name in (_ROUNDS, _DRAFTED)):
        sums: dict[int, float] = {}
        for series, value in scrape.items():
            name, position, _ = series.split("|", 2)
            if name == _REACHED:
                sums[int(position)] = sums.get(int(position), 0.0) + value.value
        known = ", ".join(f"{total:.10g} at position {place}" for place, total in sums.items())
        raise UnsupportedError(
            f"the scrape has accepted tokens ({known}) and neither {prefix}:spec_decode_{_ROUNDS} "
            f"nor {prefix}:spec_decode_{_DRAFTED}, so no rate; give all its lines"
        )
    one, *others = (_of_process(each, prefix) for each in processes.values())
    for other in others:
        if len(other.reached) != len(one.reached):
            raise UnsupportedError(
                "the engine processes of the scrape have not the same positions; the scrape is "
                "incomplete, or they draft different lengths: give those of one length"
            )
        one += other
    return one


def _of_process(values: Mapping[str, Printed], prefix: str) -> DraftCounts:
    missing = [name for name in (_ROUNDS, _DRAFTED, _ACCEPTED) if name not in values]
    if missing:
        raise UnsupportedError(
            f"the scrape lacks {', '.join(f'{prefix}:spec_decode_{each}' for each in missing)} "
            f"for some engine; give all lines of {prefix}:spec_decode_ of one scrape"
        )
    rounds, drafted, accepted = (values[name] for name in (_ROUNDS, _DRAFTED, _ACCEPTED))
    length = len(values) - 3
    try:
        reached = [values[f"{_REACHED}{position}"] for position in range(length)]
    except KeyError as gap:
        raise UnsupportedError(
            f"the scrape has {length} positions but no {gap.args[0].removeprefix(_REACHED)}; give "
            f"all lines of {prefix}:spec_decode_ of one scrape"
        ) from None
    # Totals may be printed to six digits, such as 1.55024e+06.
    rounding = _rounding(accepted)
    total = sum(each.value for each in reached)
    if reached and abs(total - accepted.value) > rounding:
        raise InvalidArgumentError(
            f"the positions of the scrape add up to {total:.10g} accepted tokens, the counter says "
            f"{accepted.value:.10g}; the scrape is incomplete or was changed"
        )
    most = (rounds.value + _rounding(rounds)) * length + _rounding(drafted)
    if reached and drafted.value > most:
        raise InvalidArgumentError(
            f"the scrape has {drafted.value:.10g} draft tokens, more than {length} positions in "
            f"each of {rounds.value:.10g} drafts; the scrape is incomplete or was changed"
        )
    found = DraftCounts(
        gamma=None,
        rounds=rounds.value,
        accepted=total if reached else accepted.value,
        drafted=min(drafted.value, rounds.value * length) if reached else drafted.value,
        reached=tuple(each.value for each in reached),
    )
    return _with_length(found)


def _is_time(series: str) -> bool:
    return series.startswith(_CREATED)


def _rounding(counter: Printed) -> float:
    """How far a counter may be off: it is whole unless its digits ended before that."""
    return counter.half if counter.half > 0.5 else 0.0


def _with_length(counts: DraftCounts) -> DraftCounts:
    """The draft length: that of the positions, or the one that gives all drafted tokens."""
    assert counts.drafted is not None
    length = len(counts.reached)
    if not counts.rounds:
        return replace(counts, gamma=length or None)
    return with_draft_length(counts, length or round(counts.drafted / counts.rounds))


def _share_series(one: Reading, other: Reading) -> bool:
    assert one.counters is not None
    assert other.counters is not None
    return not one.counters.keys().isdisjoint(other.counters)


def _between(scrapes: list[Reading]) -> Reading:
    """What was counted between the first and the last of the scrapes of one server."""
    if len(scrapes) == 1:
        (alone,) = scrapes
        note = "one scrape counts everything since the server started; give a second to difference"
        return replace(alone, notes=(*alone.notes, note))
    series = _same_series(scrapes)
    ordered = sorted(zip(series, scrapes, strict=True), key=lambda each: _size(each[0]))
    for (before, _), (after, _) in pairwise(ordered):
        if any(after[name] != value for name, value in before.items() if _is_time(name)):
            raise UnsupportedError(
                f"{_CREATED} differs between two scrapes: the server was started again, or these "
                "are two servers; give two scrapes of one life"
            )
        fallen = [name for name, value in before.items() if after[name] < value]
        if fallen:
            raise UnsupportedError(
                f"{fallen[0].split('|')[0]} fell from {before[fallen[0]]:g} to "
                f"{after[fallen[0]]:g} between two scrapes: the server was started again, or these "
                "are two servers; give two scrapes of one life"
            )
    first, last = ordered[0][1].counts, ordered[-1][1].counts
    assert first is not None
    assert last is not None
    try:
        counts = _minus(last, first)
    except InvalidArgumentError as error:
        raise UnsupportedError(
            f"no server counts what is between two scrapes ({error}): these are two servers; give "
            "two scrapes of one life"
        ) from None
    notes = scrapes[0].notes
    if not any(_is_time(name) for name in series[0]):
        in_order = all(one is other for (_, one), other in zip(ordered, scrapes, strict=True))
        notes = (*notes, _ONE_SERVER if in_order else _TURNED_ROUND)
    # Whole numbers that are printed whole have half a unit, which is no error.
    off = sum(each.counters_off for _, each in (ordered[0], ordered[-1]) if each.counters_off > 0.5)
    if off > _MOST_OFF * (last.rounds - first.rounds):
        raise UnsupportedError(
            f"counters are printed to so few digits that both may be {off:g} off together, and "
            f"{last.rounds - first.rounds:g} rounds lie between the scrapes; take scrapes that lie "
            "further apart, or start the server again"
        )
    return replace(
        scrapes[0],
        notes=notes,
        source=f"difference of {len(scrapes)} /metrics scrapes",
        span="run",
        counts=counts,
        counters=None,
        counters_off=0.0,
    )


def _size(counters: Mapping[str, float]) -> float:
    return sum(value for series, value in counters.items() if not _is_time(series))


def _same_series(scrapes: Sequence[Reading]) -> list[Mapping[str, float]]:
    """The counters of every scrape; a position that it does not have yet is 0."""
    every = {series for each in scrapes if each.counters for series in each.counters}
    found: list[Mapping[str, float]] = []
    for scrape in scrapes:
        assert scrape.counters is not None
        assert scrape.counts is not None
        missing = every - scrape.counters.keys()
        # Where positions are printed they add up to all that was accepted.
        later = scrape.counts.reached or not scrape.counts.accepted
        if missing and not (later and all(each.startswith(f"{_REACHED}|") for each in missing)):
            raise UnsupportedError(
                "the scrapes share some counters and not others; give scrapes of one server and "
                "one configuration, whole"
            )
        found.append({**scrape.counters, **dict.fromkeys(missing, 0.0)})
    return found


def _minus(last: DraftCounts, first: DraftCounts) -> DraftCounts:
    assert last.drafted is not None
    assert first.drafted is not None
    pairs = zip_longest(first.reached, last.reached, fillvalue=0.0)
    found = DraftCounts(
        gamma=None,
        rounds=last.rounds - first.rounds,
        accepted=last.accepted - first.accepted,
        drafted=last.drafted - first.drafted,
        reached=tuple(after - before for before, after in pairs),
    )
    return _with_length(found)
