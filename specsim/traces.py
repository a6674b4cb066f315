"""A trace: one row per token of target-sampled text, with what target and draft thought of it.

It is the strongest kind of knowledge about acceptance (``specsim.acceptance``): it answers
``survival`` and ``conditional`` like the others, and can be replayed exactly besides.

The file is Parquet or CSV with the columns ``request`` (id), ``position`` (0-based in the
request), ``logp_target`` and ``logp_draft`` (natural logs of the emitted token's probability
under p and q, after temperature, top-k and top-p; -inf allowed for the draft), and optionally
those in ``OPTIONAL_COLUMNS``.

Of prompt lookup, whose drafts depend on where their block starts, it has ``found`` and ``matched``
besides.  Its drafts are certain, so ``logp_draft`` is 0 where a block that starts here would draft
the emitted token first, else -inf, and every law of acceptance is the same: given the text, a draft
was accepted where the text has it.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from specsim.acceptance import ACCEPTANCE_LAWS, AcceptanceLaw, conditional_rates
from specsim.checks import Floats, Ints, SpecsimError, UnsupportedError, check_choice
from specsim.files import column_numbers, read_frame

if TYPE_CHECKING:
    import pandas as pd

    from specsim.extrapolation.gaps import GapLaw

REQUIRED_COLUMNS = ("request", "position", "logp_target", "logp_draft")
OPTIONAL_COLUMNS = (
    "beta",  # sum_x min(p, q) at this position
    "target_top",  # largest probability of the target, before temperature and filters
    "draft_top",
    "target_entropy",  # nats, before temperature and filters
    "draft_entropy",
    "token",  # its id
    "context",  # tokens in front of this one, those of the prompt included
    "argmax_equal",  # do target and draft agree on the most probable token
    # rank of the emitted token in the draft's distribution: 1 is the one that a greedy draft
    # proposes, the argmax of its logits; then by falling logit, equal ones by rising token id
    "draft_rank",
    "found",  # tokens that a lookup finds to draft in a block that starts here, of any length
    "matched",  # how many of them, from the first on, the text goes on with
)
# Ranks of this size and above are written as it.
LARGEST_RANK = 255

# float32 log-softmax may land this far above zero, and sums over a vocabulary so far above one.
_LOG_ROUNDING = 1e-6
_SUM_ROUNDING = 1e-5
# Beyond this a float holds not every whole number.
_LARGEST_WHOLE = 2.0**53


class TraceError(SpecsimError):
    """The trace file cannot be used; the message says which file and why."""


@dataclass(frozen=True)
class Trace:
    """Acceptance along texts.

    acceptance : shape (T,), a_t, P(the draft for token t is accepted | it was x_t that came out),
        under one law of acceptance: min(1, q(x_t) / p(x_t)) by the ratio test; 0/1 of a greedy text
    starts : shape (R + 1,), request r is rows starts[r]:starts[r + 1]
    columns : the optional columns that the file had, each of shape (T,)
    """

    acceptance: Floats
    starts: Ints
    columns: dict[str, np.ndarray[Any, Any]] = field(default_factory=dict, repr=False)

    @property
    def requests(self) -> int:
        return len(self.starts) - 1

    @property
    def tokens(self) -> int:
        return len(self.acceptance)

    @property
    def lengths(self) -> Ints:
        """Tokens of each request, shape (R,)."""
        return np.diff(self.starts)

    @property
    def by_lookup(self) -> bool:
        """Whether drafts are copied from the text (prompt lookup), and so depend on where their
        block starts: acceptance is then that of the first draft of a block at each position.
        """
        return "matched" in self.columns

    def require_model(self, what: str) -> None:
        """Refuse ``what`` where drafts depend on where their block starts."""
        if self.by_lookup:
            raise UnsupportedError(
                f"{what} needs the trace of a draft model: what prompt lookup drafts depends on "
                "where its block starts"
            )

    @property
    def positions(self) -> Ints:
        """Position of each row in its request, shape (T,)."""
        return np.arange(self.tokens) - np.repeat(self.starts[:-1], self.lengths)

    def rows(self) -> Iterator[Floats]:
        """Acceptance of each request in turn."""
        for start, end in zip(self.starts[:-1], self.starts[1:], strict=True):
            yield self.acceptance[start:end]

    def survived(self, length: int) -> Floats:
        """Sums of a_t ... a_{t+i-1} over the positions t with ``length`` tokens left.

        Shape (R, length + 1), one row per request; column 0 counts those positions.  Of a lookup
        the product is whether a block that starts at t has i drafts accepted.
        """
        sums = np.zeros((self.requests, length + 1))
        if self.by_lookup:
            enough = np.arange(length + 1)
            for request, (start, end) in enumerate(pairwise(self.starts.tolist())):
                matched = self.columns["matched"][start : max(end - length + 1, start)]
                sums[request] = (matched[:, None] >= enough).sum(axis=0)
            return sums
        for request, row in enumerate(self.rows()):
            alive = np.ones(max(len(row) - length + 1, 0))
            sums[request, 0] = alive.sum()
            for i in range(length):
                alive = alive * row[i : i + len(alive)]
                sums[request, i + 1] = alive.sum()
        return sums

    def survival(self, length: int) -> Floats:
        """S_0..S_length, every position with ``length`` tokens left a block start alike."""
        sums = self.survived(length).sum(axis=0)
        if not sums[0]:
            raise TraceError(f"no request of the trace has {length} tokens")
        return np.asarray(sums / sums[0])

    def conditional(self, length: int) -> Floats:
        """alpha_1..alpha_length = S_i / S_{i-1}; 0 behind a position that is never reached."""
        return conditional_rates(self.survival(length))

    def over_gamma(self) -> GapLaw:
        """The same text in blocks of any draft length, which start where those before them end."""
        from specsim.extrapolation.gaps import GapLaw

        self.require_model("another draft length than that of the trace's blocks")
        return GapLaw.of_trace(self)

    def take(self, requests: Ints) -> Trace:
        """The trace of the given requests, in that order; repeats allowed (bootstrap)."""
        lengths = self.lengths[requests]
        starts = np.concatenate([[0], np.cumsum(lengths)])
        index = np.repeat(self.starts[requests] - starts[:-1], lengths) + np.arange(starts[-1])
        columns = {name: column[index] for name, column in self.columns.items()}
        return Trace(self.acceptance[index], starts, columns)


def read_trace(
    path: Path, greedy: bool = False, acceptance_law: AcceptanceLaw = "ratio-test"
) -> Trace:
    """Load and check a trace file.

    greedy : the text was decoded at temperature 0, where all laws agree: the column
        ``argmax_equal`` decides acceptance
    acceptance_law : how drafts are accepted at other temperatures.  Given the emitted token x, the
        ratio test accepted it with min(1, q(x) / p(x)), exact match with q(x), and a greedy draft
        was accepted if x has rank 1: a draw from p is the draft's argmax with p of it.  So only
        greedy drafts need the column ``draft_rank``
    """
    import pandas as pd  # only files need it

    check_choice("acceptance_law", acceptance_law, ACCEPTANCE_LAWS)
    known = {*REQUIRED_COLUMNS, *OPTIONAL_COLUMNS}
    frame = read_frame(path, "trace", TraceError, known.__contains__)
    check_rows(path, frame)
    frame = frame.assign(request=pd.factorize(frame["request"])[0])
    if not frame["request"].is_monotonic_increasing:
        frame = frame.sort_values("request", kind="stable")
    request = frame["request"].to_numpy()
    starts = np.concatenate([np.flatnonzero(np.diff(request, prepend=-1)), [len(request)]])
    position = frame["position"].to_numpy()
    expected = np.arange(len(request)) - np.repeat(starts[:-1], np.diff(starts))
    wrong = np.flatnonzero(position != expected)
    if wrong.size:
        at = wrong[0]
        raise TraceError(
            f"trace {path}: positions of a request must be 0, 1, 2, ... without a gap; "
            f"row {frame.index[at]} has position {position[at]}, expected {expected[at]}"
        )
    acceptance = row_acceptance(path, frame, "argmax_equal" if greedy else acceptance_law)
    # Numbers may be written as words.
    columns = {
        name: pd.to_numeric(frame[name]).to_numpy() for name in OPTIONAL_COLUMNS if name in frame
    }
    return Trace(acceptance, starts, columns)


def row_acceptance(
    path: Path, frame: pd.DataFrame, decides: AcceptanceLaw | Literal["argmax_equal"]
) -> Floats:
    """a_t of checked rows, shape (T,)."""

    def column(name: str) -> Floats:
        return np.asarray(frame[name], dtype=np.float64)

    if "matched" in frame:
        return np.asarray(column("matched") >= 1, dtype=np.float64)
    match decides:
        case "argmax_equal":
            if decides not in frame:
                raise TraceError(f"trace {path}: temperature 0 needs the column argmax_equal")
            return column(decides)
        case "greedy-drafts":
            if "draft_rank" not in frame:
                raise TraceError(
                    f"trace {path}: the acceptance law greedy-drafts needs the column draft_rank, "
                    "the rank of each token in the draft's distribution; calibrate again"
                )
            return np.asarray(column("draft_rank") == 1, dtype=np.float64)
        case "exact-match":
            return np.asarray(np.exp(np.minimum(column("logp_draft"), 0.0)))
        case _:
            gap = column("logp_draft") - column("logp_target")
            return np.asarray(np.exp(np.minimum(gap, 0.0)))


def check_rows(path: Path, frame: pd.DataFrame) -> None:
    """Refuse rows whose values no trace has; how they go together is not looked at."""
    import pandas as pd

    missing = [name for name in REQUIRED_COLUMNS if name not in frame]
    if missing:
        raise TraceError(
            f"trace {path}: missing column {', '.join(missing)} "
            f"(a trace has {', '.join(REQUIRED_COLUMNS)})"
        )
    if frame.empty:
        raise TraceError(f"trace {path}: has no rows")
    for name in ("position", "logp_target", "logp_draft"):
        if not pd.api.types.is_numeric_dtype(frame[name]):
            raise TraceError(f"trace {path}: column {name} must hold numbers")
    for name in ("request", "position", "logp_target", "logp_draft"):
        if frame[name].isna().any():
            row = int(frame[name].isna().to_numpy().argmax())
            raise TraceError(f"trace {path}: column {name} is empty or nan in row {row}")
    for name in ("logp_target", "logp_draft"):
        values = frame[name].to_numpy(np.float64)
        if values.max() > _LOG_ROUNDING:
            row = int(values.argmax())
            raise TraceError(
                f"trace {path}: {name} must be <= 0 (a natural log of a probability), "
                f"got {values[row]:g} in row {row}"
            )
    for name, allowed, low, high in (
        ("argmax_equal", "0 or 1", 0, 1),
        ("context", "a whole number >= 0", 0, _LARGEST_WHOLE),
        ("token", "a whole number >= 0", 0, _LARGEST_WHOLE),
        ("draft_rank", f"a whole number in [1, {LARGEST_RANK}]", 1, LARGEST_RANK),
        ("found", "a whole number >= 0", 0, _LARGEST_WHOLE),
        ("matched", "a whole number >= 0", 0, _LARGEST_WHOLE),
    ):
        if name in frame:
            column = column_numbers(frame[name])
            wrong = ~((column == np.floor(column)) & (column >= low) & (column <= high))
            if wrong.any():
                row = int(wrong.argmax())
                found = str(frame[name].iloc[row])[:80]
                raise TraceError(
                    f"trace {path}: {name} must be {allowed}, got {found} in row {row}"
                )
    for name, high in (
        *((name, 1.0) for name in ("beta", "target_top", "draft_top")),
        *((name, np.inf) for name in ("target_entropy", "draft_entropy")),
    ):
        if name in frame:
            column = column_numbers(frame[name])
            wrong = ~((column >= -_SUM_ROUNDING) & (column <= high + _SUM_ROUNDING))
            wrong |= np.isinf(column)
            if wrong.any():
                row = int(wrong.argmax())
                found = str(frame[name].iloc[row])[:80]
                raise TraceError(
                    f"trace {path}: {name} must be in [0, {high:g}], got {found} in row {row}"
                )
    if ("found" in frame) != ("matched" in frame):
        raise TraceError(f"trace {path}: found and matched go together, and one of them is missing")
    if "found" in frame:
        wrong = column_numbers(frame["matched"]) > column_numbers(frame["found"])
        if wrong.any():
            row = int(wrong.argmax())
            raise TraceError(
                f"trace {path}: matched must be <= found, got {frame['matched'].iloc[row]} of "
                f"{frame['found'].iloc[row]} in row {row}"
            )
    target = frame["logp_target"].to_numpy(np.float64)
    if np.isneginf(target).any():
        row = int(target.argmin())
        raise TraceError(
            f"trace {path}: logp_target must be finite, since the target emitted the token; "
            f"got -inf in row {row}"
        )
