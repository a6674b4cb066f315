"""The lines of llama.cpp's log on drafts: requests, and statistics of drafters.

Read from ggml-org/llama.cpp 0c1e57098 (tools/server/server-context.cpp, ``print_timing``;
common/speculative.cpp, ``common_speculative_print_stats``) and, for the older wordings, from
pull requests #24536, #23269 and #22673.  After each request the server prints

    eval time = 2296.72 ms / 256 tokens (...)
    draft acceptance = 0.64479 (167 accepted / 259 generated), mean len = 2.92
    acc per pos = (0.805, 0.632, 0.483)                                (trace level)
    statistics draft-eagle3: #calls(b,g,a) = 1 87 87, #gen drafts = 87, ..., dur(b,g,a) = ... ms

The three numbers of calls and times are of beginning a request, drafting, and accepting.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field

from specsim.checks import InvalidArgumentError, SpecsimError, UnsupportedError
from specsim.counts.drafts import DraftCounts
from specsim.engines.readers.figures import FIGURE, Printed, agree, count, reached_from_rates
from specsim.engines.readers.llama_cpp_rounds import gamma_of

_EVAL = re.compile(rf"(?<!prompt )(?<!\w)eval time =\s*({FIGURE}) ms /\s*({FIGURE}) tokens")
_REQUEST = re.compile(
    rf"draft acceptance(?: rate)? =\s*(?P<rate>{FIGURE}) \(\s*(?P<accepted>{FIGURE}) accepted /"
    rf"\s*(?P<drafted>{FIGURE}) generated\)"
    rf"(?:, mean (?:len|acceptance length) =\s*(?P<length>{FIGURE}))?"
)
_BY_POSITION = re.compile(
    r"(?:acceptance rate per position|acc per pos|#acc rate/pos) = \(([^)]*)\)"
)
_STATISTICS = re.compile(r"statistics\s+(?P<drafter>[\w-]+): #calls\(b,g,a\) =(?P<fields>.*)")
_SLOT = re.compile(r"slot print_timing: id\s+(\d+)")
_PROCESS = re.compile(r"^\s*\[(\d+)\]")


@dataclass(frozen=True)
class Statistics:
    """A statistics line: one drafter, since the server started."""

    drafter: str
    requests: int
    counts: DraftCounts
    drafts: int
    draft_s: float | None

    def goes_on(self, after: Statistics, drafted: float = 0.0) -> bool:
        """Whether ``after`` can be a later line of the same series.

        drafted : what the request before ``after`` drafted by itself, which the series must grow by
        """
        before, then = self.counts, after.counts
        grown = (then.drafted or 0.0) - (before.drafted or 0.0)
        return (
            grown >= drafted
            and before.rounds <= then.rounds
            and before.accepted <= then.accepted
            and self.requests <= after.requests
        )


@dataclass
class Request:
    """The lines of one request, as they come.

    process : the server, where several write one log
    slot : the server's slot that it ran in
    """

    process: str
    slot: str
    eval_s: float | None = None
    tokens: int = 0
    found: re.Match[str] | None = None
    rates: tuple[Printed, ...] = ()
    statistics: list[Statistics] = field(default_factory=list)


def recognises(text: str) -> bool:
    """Whether a text has such lines."""
    if _REQUEST.search(text) or _STATISTICS.search(text):
        return True
    return "print_timing" in text and _EVAL.search(text) is not None


def requests_of(text: str) -> list[Request]:
    """Requests in the order of the log: lines up to the next eval time or acceptance."""
    found: list[Request] = []
    slots: dict[str, str] = {}
    for number, line in enumerate(text.splitlines(), start=1):
        process = _first(_PROCESS, line)
        # Earlier builds name the slot on a line above the others.
        slots[process] = _first(_SLOT, line) or slots.get(process, "")
        try:
            _take(line, Request(process, slots[process]), found)
        except SpecsimError as error:
            raise type(error)(f"line {number}: {error}") from None
    return found


def _take(line: str, new: Request, found: list[Request]) -> None:
    """Put a line to the request that it belongs to, the last one or a ``new`` one."""
    if evaluated := _EVAL.search(line):
        found.append(new)
        found[-1].eval_s = Printed.of("eval time", evaluated[1]).value / 1000
        found[-1].tokens = count("tokens of eval time", evaluated[2])
    elif "draft acceptance" in line:
        request = _REQUEST.search(line)
        if request is None:
            raise UnsupportedError("a line with 'draft acceptance' is not whole; give it whole")
        if not found or found[-1].found or found[-1].statistics:
            found.append(new)
        found[-1].found = request
        found[-1].rates = _rates(line)
    elif "statistics" in line and "#calls" in line:
        if not found:
            found.append(new)
        statistics = _statistics(line)
        if statistics is not None and statistics not in found[-1].statistics:
            found[-1].statistics.append(statistics)
    elif "acc per pos" in line and found and found[-1].found:
        found[-1].rates = _rates(line)


def _rates(line: str) -> tuple[Printed, ...]:
    positions = _BY_POSITION.search(line)
    words = positions[1].split(",") if positions and positions[1].strip() else []
    rates = tuple(Printed.of("acceptance by position", word) for word in words)
    if len({each.half for each in rates}) > 1:
        raise InvalidArgumentError(
            "acceptance by position must have as many digits at all positions; the line was cut "
            "or changed"
        )
    return rates


def _statistics(line: str) -> Statistics | None:
    """None where a drafter made no draft, or tokens were not counted yet (before 2026)."""
    found = _STATISTICS.search(line)
    if found is None:
        raise UnsupportedError("a statistics line is not whole; give it whole")
    fields = found["fields"]
    words = fields.partition(",")[0].split()
    if len(words) != 3:
        raise UnsupportedError("#calls(b,g,a) of a statistics line must be three numbers")
    begun, calls, accepts = (count("#calls(b,g,a)", word) for word in words)
    if "#gen tokens" not in fields:
        return None
    made, kept, drafted, accepted = (
        count(name, _field(fields, name))
        for name in ("#gen drafts", "#acc drafts", "#gen tokens", "#acc tokens")
    )
    if not made:
        return None
    if not kept <= min(made, accepted) or accepts > made:
        raise InvalidArgumentError(
            f"{made} drafts cannot be {accepts} times verified, {kept} times with some of "
            f"{accepted} tokens accepted; the line was cut or changed"
        )
    rates = _rates(line)
    # Before the mean length was printed, drafts of which nothing was accepted were not counted
    # among the calls of accepting.
    rounds = accepts if "#mean acc len" in fields or accepts > kept else made
    if "#mean acc len" in fields and rounds:
        length = Printed.of("#mean acc len", _field(fields, "#mean acc len"))
        agree("#mean acc len", length, 1 + accepted / rounds, "1 + accepted / calls")
    counts = DraftCounts(
        gamma=gamma_of(rounds, drafted, begun, len(rates)),
        rounds=rounds,
        accepted=accepted,
        drafted=drafted,
        reached=reached_from_rates("#acc rate/pos", rates, rounds, accepted) if rates else (),
    )
    return Statistics(found["drafter"], begun, counts, made, _draft_s(fields, calls))


def _draft_s(fields: str, calls: int) -> float | None:
    """Seconds of drafting in a step."""
    found = re.search(rf"dur\(b,g,a\) =\s*{FIGURE},\s*({FIGURE}),\s*{FIGURE} ms", fields)
    if found is None or not calls:
        return None
    return Printed.of("dur(b,g,a)", found[1]).value / 1000 / calls


def _field(fields: str, name: str) -> str:
    found = re.search(rf"{re.escape(name)} =\s*({FIGURE})", fields)
    if found is None:
        raise UnsupportedError(f"a statistics line lacks {name}; give it whole")
    return found[1]


def _first(pattern: re.Pattern[str], line: str) -> str:
    found = pattern.search(line)
    return found[1] if found else ""
