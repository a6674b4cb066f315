"""Exact replay of a trace file that is larger than one would hold: in one pass, piece by piece.

The chain of ``specsim.predict.replay.fixed_gamma`` flows forwards and reaches no further than its
longest draft, so that a piece of the text needs what flows in from those before it and as many
tokens more behind its end.  Calls are added up over the whole trace; nothing is kept of positions.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from specsim.acceptance import AcceptanceLaw
from specsim.checks import Floats, InvalidArgumentError, SpecsimError, reason_of
from specsim.files import check_regular, parquet_columns
from specsim.predict.replay.fixed_gamma import CHUNK_TOKENS, solve
from specsim.traces import (
    OPTIONAL_COLUMNS,
    REQUIRED_COLUMNS,
    TraceError,
    check_rows,
    row_acceptance,
)

# Rows beyond which a trace is replayed like this, and rows that are read at once.
LARGE = 2**20
_ROWS = 2**18
# Longest draft; a piece is worked out with as many rows of a table as that has tokens.
_LONGEST = 256
# What acceptance is read off, and how rows go together.
_WANTED = {*REQUIRED_COLUMNS, "argmax_equal", "draft_rank"}


@dataclass(frozen=True)
class StreamedReplay:
    """What draft lengths do on a whole trace.

    tokens : of the trace
    calls : by draft length, expected target calls of all requests
    """

    tokens: int
    calls: dict[int, float]


class WorkError(InvalidArgumentError):
    """More is asked of a replay than it does in a sensible time."""


class _InterleavedError(Exception):
    """Rows of a request do not stand together, so that the text cannot be gone through once."""


def replay_streamed(
    path: Path,
    gammas: Sequence[int],
    greedy: bool,
    law: AcceptanceLaw,
    check_tokens: Callable[[int], None] = lambda tokens: None,
) -> StreamedReplay | None:
    """The replay of a Parquet file; None where it is small, interleaved, of prompt lookup or
    asked for longer drafts than pieces are made for: ``read_trace`` holds it then.

    check_tokens : is told how many tokens there are, and may refuse them

    Raises TraceError as ``read_trace`` does; rows are counted from the begin of the file.
    """
    import pyarrow.parquet as parquet

    if path.suffix != ".parquet" or max(gammas) > _LONGEST:
        return None
    check_regular(path, f"trace {path}", TraceError)
    try:
        with parquet.ParquetFile(path) as file:
            known = {*REQUIRED_COLUMNS, *OPTIONAL_COLUMNS}
            names = parquet_columns(file, known.__contains__)
            if file.metadata.num_rows <= LARGE or "matched" in names:
                return None
            check_tokens(file.metadata.num_rows)
            wanted = [name for name in names if name in _WANTED]
            pieces = _Pieces(sorted(set(gammas)))
            for acceptance, begins in _rows(path, file, wanted, greedy, law):
                pieces.add(acceptance, begins)
            return pieces.finish()
    except _InterleavedError:
        return None
    except (TraceError, WorkError):
        raise
    except SpecsimError as error:
        raise TraceError(f"trace {path}: {error}") from None
    # A damaged file leads its reader to exceptions of any kind, which all mean the same.
    except Exception as error:
        raise TraceError(f"trace {path}: cannot be read: {reason_of(error)}") from None


def _rows(
    path: Path, file: Any, wanted: list[str], greedy: bool, law: AcceptanceLaw
) -> Iterator[tuple[Floats, np.ndarray]]:
    """Acceptance of the rows, and which of them begin a request."""
    import pandas as pd

    seen: list[np.ndarray] = []
    request, position, first = None, -1, 0
    for batch in file.iter_batches(batch_size=_ROWS, columns=wanted):
        frame = batch.replace_schema_metadata(None).to_pandas()
        if frame.empty:
            continue
        try:
            check_rows(path, frame)
        except TraceError as error:
            said = f"{error} (counted from row {first})" if first else str(error)
            raise TraceError(said) from None
        names, where = frame["request"].to_numpy(), frame["position"].to_numpy()
        begins = np.append(first == 0 or names[0] != request, names[1:] != names[:-1])
        expected = np.append(position, where[:-1]) + 1
        if (where != np.where(begins, 0, expected)).any():
            raise _InterleavedError
        seen.append(names[begins])
        request, position = names[-1], int(where[-1])
        first += len(frame)
        yield row_acceptance(path, frame, "argmax_equal" if greedy else law), begins
    if pd.Series(np.concatenate(seen)).duplicated().any():
        raise _InterleavedError


@dataclass
class _Pieces:
    """The text that is not gone through yet, and what flows into it.

    gammas : draft lengths, rising
    """

    gammas: list[int]
    acceptance: Floats = field(default_factory=lambda: np.zeros(0))
    begins: np.ndarray = field(default_factory=lambda: np.zeros(0, dtype=bool))
    tokens: int = 0

    def __post_init__(self) -> None:
        self.halo = self.gammas[-1] + 1
        self.flow = {gamma: np.zeros(self.halo) for gamma in self.gammas}
        self.calls = dict.fromkeys(self.gammas, 0.0)

    def add(self, acceptance: Floats, begins: np.ndarray) -> None:
        """Further rows; those that are not among the last few are gone through."""
        self.acceptance = np.concatenate([self.acceptance, acceptance])
        self.begins = np.concatenate([self.begins, begins])
        self.tokens += len(acceptance)
        done = 0
        while len(self.acceptance) - done >= CHUNK_TOKENS + self.halo:
            self._go(done, CHUNK_TOKENS)
            done += CHUNK_TOKENS
        self.acceptance, self.begins = self.acceptance[done:], self.begins[done:]

    def finish(self) -> StreamedReplay:
        """The rest, behind which another request would begin."""
        rest = len(self.acceptance)
        self.acceptance = np.append(self.acceptance, np.zeros(self.halo))
        self.begins = np.append(self.begins, np.ones(self.halo, dtype=bool))
        for first in range(0, rest, CHUNK_TOKENS):
            self._go(first, min(CHUNK_TOKENS, rest - first))
        return StreamedReplay(self.tokens, self.calls)

    def _go(self, first: int, size: int) -> None:
        window = slice(first, first + size + self.halo)
        begins = self.begins[window]
        rows = np.arange(begins.size)
        # Tokens to the end of the request, as far as can be seen: no draft reaches further.
        ends = np.append(np.flatnonzero(begins), begins.size)
        remaining = ends[np.searchsorted(ends, rows, side="right")] - rows
        starts = {}
        for gamma in self.gammas:
            starts[gamma] = np.zeros(begins.size)
            starts[gamma][: self.halo] += self.flow[gamma]
            starts[gamma][:size][begins[:size]] = 1.0
        unused = {gamma: np.zeros(begins.size) for gamma in self.gammas}
        solve(self.acceptance[window], remaining, size, starts, unused)
        for gamma in self.gammas:
            self.calls[gamma] += float(starts[gamma][:size].sum())
            self.flow[gamma] = starts[gamma][size:].copy()
