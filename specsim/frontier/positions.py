"""Labelled positions: what two models thought of tokens whose right answer is known.

One row per position of held-out text.  Per-position statistics only: no file holds a row of a
distribution, so its size does not depend on the vocabulary.  ``specsim score`` writes one, and the
columns are:

=============================== ================================================================
``request``                     id; positions of one request are not independent of one another
``logp_target, logp_draft``     log p(y), log q(y) of the label y, after temperature and filters
``tv``                          TV(p, q) = sum_v max(0, p(v) - q(v)), after temperature and filters
``target_top_is_label``         is argmax p the label (0 or 1); likewise ``draft_top_is_label``
``unscaled_...``, optional      statistics that deferral rules decide on, at temperature 1 without
                                filters: those in ``STATISTICS``
``tempered_...``, optional      the same after temperature and filters
``target_log_range``, optional  max_v |log p(v)|, the B_p of Narasimhan24 Lemma 8; and the draft's
``RULE(settings).rejection``    1 - sum_v min(q, pi) of a rule whose threshold was fixed when
                                measuring, with ``.logp`` (log m(y) of its emitted law m) and
                                ``.top`` (is argmax m the label)
=============================== ================================================================

A deferral rule emits p or q whole, so these columns give it at every threshold afterwards.  A
rule that cuts single tokens (Token, Lossy, lenient, top-beta) emits another law at every
threshold, so its thresholds are those measured.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pandas as pd

from specsim.checks import Floats, Ints, InvalidArgumentError, SpecsimError, number
from specsim.files import column_numbers, read_frame
from specsim.rules import DecideOn

Loss = Literal["0-1", "log", "sampled"]

STATISTICS = (
    "target_max",  # max_v p(v)
    "draft_max",
    "target_entropy",  # nats
    "draft_entropy",
    "bild_greedy",  # -log p(argmax q)
    "bild_expectation",  # -sum_v q(v) log p(v)
)
_LOGS = ("logp_target", "logp_draft")
_TOPS = ("target_top_is_label", "draft_top_is_label")
REQUIRED = ("request", *_LOGS, "tv", *_TOPS)

# Sums over a vocabulary in float32 may leave their range by this much.
_ROUNDING = 1e-5

_FIXED = re.compile(r"(?P<rule>\w+)\((?P<setting>.*)\)\.(?P<part>rejection|logp|top)")


class PositionsError(SpecsimError):
    """The file of positions cannot be used; the message says which file and why."""


@dataclass(frozen=True)
class Outcome:
    """What a rule does at every position: probability of rejection and loss, each (T,)."""

    rejection: Floats
    loss: Floats


@dataclass(frozen=True)
class LabelledPositions:
    """Positions of one workload, grouped by request.

    starts : shape (R + 1,), request r is rows starts[r]:starts[r + 1]
    columns : numbers of shape (T,), by name
    about : what the writer says of them (models, sampling); may be empty
    """

    starts: Ints
    columns: dict[str, Floats] = field(repr=False)
    about: dict[str, Any] = field(default_factory=dict)

    @property
    def requests(self) -> int:
        return len(self.starts) - 1

    @property
    def positions(self) -> int:
        return int(self.starts[-1])

    @property
    def tv(self) -> Floats:
        """TV(p, q), shape (T,)."""
        return self.columns["tv"]

    def by_request(self, values: Floats) -> Floats:
        """Sums over the positions of each request, shape (..., T) to (..., R)."""
        return np.add.reduceat(values, self.starts[:-1], axis=-1)

    def losses(self, loss: Loss) -> tuple[Floats, Floats]:
        """The draft's and the target's loss at every position, each of shape (T,).

        0-1 : 1[y != argmax], the paper's, whatever the temperature
        log : -log of the label's probability, nats
        sampled : 1 - the label's probability, the expected 0-1 loss of a sampled token
        """
        draft, target = (
            _loss(loss, self.columns[f"logp_{who}"], self.columns[f"{who}_top_is_label"])
            for who in ("draft", "target")
        )
        unbounded = int(np.isinf(draft + target).sum())
        if unbounded:
            raise PositionsError(
                f"log loss is infinite at {unbounded} of {self.positions} positions, where a model "
                "gives the label probability 0 (temperature 0, top-k or top-p); take the 0-1 loss"
            )
        return draft, target

    def statistic(self, decide_on: DecideOn, name: str) -> Floats | None:
        """A statistic that deferral rules decide on, or None where it was not measured."""
        return self.columns.get("tv" if name == "tv" else f"{decide_on}_{name}")

    def fixed(self, loss: Loss) -> dict[str, dict[str, Outcome]]:
        """Rules whose thresholds were fixed when measuring: rule, setting, what it does.

        A loss may be infinite here: some rules give labels probability zero.
        """
        found: dict[str, dict[str, Outcome]] = {}
        for name, rejection in self.columns.items():
            match = _FIXED.fullmatch(name)
            if match and match["part"] == "rejection":
                stem = name.removesuffix("rejection")
                outcome = Outcome(
                    rejection,
                    _loss(loss, self.columns[stem + "logp"], self.columns[stem + "top"]),
                )
                found.setdefault(match["rule"], {})[match["setting"]] = outcome
        return found


def _loss(loss: Loss, logp: Floats, top_is_label: Floats) -> Floats:
    if loss == "0-1":
        return 1.0 - top_is_label
    return -logp if loss == "log" else -np.expm1(logp)


def read_positions(path: Path) -> LabelledPositions:
    """Load and check a file of labelled positions, Parquet or CSV."""
    frame = read_frame(path, "positions", PositionsError, _wanted)
    missing = [name for name in REQUIRED if name not in frame]
    if missing:
        raise PositionsError(
            f"positions {path}: missing column {', '.join(missing)} "
            f"(at least {', '.join(REQUIRED)} are needed)"
        )
    if frame.empty:
        raise PositionsError(f"positions {path}: has no rows")
    if frame["request"].isna().any():
        row = int(frame["request"].isna().to_numpy().argmax())
        raise PositionsError(f"positions {path}: column request is empty in row {row}")
    if "position" in frame and frame.duplicated(["request", "position"]).any():
        row = int(frame.duplicated(["request", "position"]).to_numpy().argmax())
        raise PositionsError(
            f"positions {path}: row {row} is of the same position of the same request as one before"
        )
    request = pd.factorize(frame["request"])[0]
    order = np.argsort(request, kind="stable")
    starts = np.concatenate([np.flatnonzero(np.diff(request[order], prepend=-1)), [len(request)]])
    columns = {
        name: _checked(path, name, frame[name])[order]
        for name in frame.columns
        if _range(name) is not None
    }
    for name in columns:
        match = _FIXED.fullmatch(name)
        if match:
            stem = name.removesuffix(match["part"])
            absent = [stem + part for part in ("rejection", "logp", "top")]
            absent = [name for name in absent if name not in columns]
            if absent:
                raise PositionsError(f"positions {path}: missing column {absent[0]}")
    return LabelledPositions(starts, columns, _about(path, frame.attrs))


def _wanted(name: str) -> bool:
    return name in ("request", "position") or _range(name) is not None


def _about(path: Path, attributes: Mapping[Any, Any]) -> dict[str, Any]:
    """What the writer says, as far as anything rests on it."""
    found = {str(key): value for key, value in attributes.items()}
    if found.get("temperature") is None:
        found.pop("temperature", None)
    else:
        try:
            found["temperature"] = number("temperature", found["temperature"], low=0.0)
        except InvalidArgumentError as error:
            raise PositionsError(f"positions {path}: {error}") from None
    return found


def _range(name: str) -> tuple[float, float] | None:
    """Allowed values of a column; None for a column that is not read."""
    match = _FIXED.fullmatch(name)
    kind = match["part"] if match else name.removeprefix("unscaled_").removeprefix("tempered_")
    if kind in _LOGS or kind == "logp":
        return -np.inf, 0.0
    if kind in ("tv", "rejection", "top", "target_max", "draft_max") or kind in _TOPS:
        return 0.0, 1.0
    if kind in STATISTICS or kind in ("target_log_range", "draft_log_range"):
        return 0.0, np.inf
    return None


def _checked(path: Path, name: str, column: pd.Series[Any]) -> Floats:
    """A column as float64 in its range, rounding cut off."""
    values = column_numbers(column)
    low, high = _range(name) or (-np.inf, np.inf)
    wrong = ~((values >= low - _ROUNDING) & (values <= high + _ROUNDING))
    if name in _TOPS or name.endswith(".top"):
        wrong |= (values != 0) & (values != 1)
    if wrong.any():
        row = int(wrong.argmax())
        raise PositionsError(
            f"positions {path}: {name} must be a number in [{low:g}, {high:g}], "
            f"got {str(column.iloc[row])[:80]} in row {row}"
        )
    return np.asarray(np.clip(values, low, high))
