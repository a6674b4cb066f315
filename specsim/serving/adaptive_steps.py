"""Draft lengths that follow what was accepted lately, as SGLang's ``--speculative-adaptive`` does
(sglang/srt/speculative/adaptive_spec_params.py at commit 015c872628e3 of sgl-project/sglang; its
defaults have changed between versions, and its strategy ``throughput_aware`` is not here).

Batches fall into slots.  A slot has some draft lengths to choose from and a moving average of the
accepted drafts of a request; every few rounds the next length above is taken where the average is
above its own, less a half, and the next below where it is below that one's.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, fields
from os import PathLike
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from specsim.checks import (
    Ints,
    InvalidArgumentError,
    UnsupportedError,
    did_you_mean,
    integer,
    number,
    reason_of,
)
from specsim.files import read_regular

# The name of a slot in a file: its first batch.
_BATCH = re.compile(r"[0-9]{1,9}")
# Bytes of a file of slots.
_LARGEST = 2**20
# Of each slot at that commit: the first batch of it, and what is not the usual.
_USUAL: Mapping[int, Mapping[str, Any]] = {
    1: {"candidate_steps": (1, 3, 5, 7)},
    8: {"candidate_steps": (0, 1, 3), "down_hysteresis": 0.0},
    32: {"candidate_steps": (0, 1), "down_hysteresis": 0.0},
    64: {"candidate_steps": (0,), "down_hysteresis": 0.0},
}
# Of a slot, as it was described.
_SETTINGS = {
    "ema_alpha": np.float64,
    "update_interval": np.int64,
    "warmup_batches": np.int64,
    "up_hysteresis": np.float64,
    "down_hysteresis": np.float64,
    "ceiling_coeff": np.float64,
}
_SLOT = np.dtype(
    [
        ("average", np.float64),
        ("current", np.int64),  # place among the candidates
        ("rounds", np.int64),
        ("candidates", np.int64),
        *_SETTINGS.items(),
    ],
    align=True,
)


class CompiledSteps(NamedTuple):
    """As the compiled loop reads it, and changes it; no slot: draft lengths do not change.

    slots : (S,) records; candidates : (S, C) draft lengths, rising; of_batch : (R + 1,) the slot
    """

    slots: Any
    candidates: Ints
    of_batch: Ints


@dataclass(frozen=True)
class StepSlot:
    """Batches that share a draft length; names and defaults are SGLang's.

    batch : the first of them; they end before the next slot's
    candidate_steps : draft lengths, 0 is no draft
    up_hysteresis, down_hysteresis : added to the averages at which the length changes
    ceiling_coeff : above 0 the length is at most so many times the average, when it falls
    ema_alpha : what the newest round counts in the average
    update_interval, warmup_batches : rounds between two looks at it, and before the first
    """

    batch: int
    candidate_steps: tuple[int, ...]
    up_hysteresis: float = 0.0
    down_hysteresis: float = -0.25
    ceiling_coeff: float = 0.0
    ema_alpha: float = 0.2
    update_interval: int = 5
    warmup_batches: int = 10

    def __post_init__(self) -> None:
        integer("batch of a slot", self.batch, low=1)
        steps = tuple(integer("candidate_steps", each, high=1000) for each in self.candidate_steps)
        if not steps:
            raise InvalidArgumentError("candidate_steps must be one draft length at least")
        object.__setattr__(self, "candidate_steps", tuple(sorted(set(steps))))
        for name in ("up_hysteresis", "down_hysteresis"):
            number(name, getattr(self, name))
        number("ceiling_coeff", self.ceiling_coeff, low=0.0)
        number("ema_alpha", self.ema_alpha, low=0.0, high=1.0)
        integer("update_interval", self.update_interval, low=1)
        integer("warmup_batches", self.warmup_batches)

    def first(self, initial_steps: int) -> int:
        """The place of the length that it begins with: the one asked for, or the middle one."""
        if initial_steps in self.candidate_steps:
            return self.candidate_steps.index(initial_steps)
        return len(self.candidate_steps) // 2


@dataclass(frozen=True)
class AdaptiveSteps:
    """Slots in the order of their batches, from 1 on.

    initial_steps : SGLang's ``--speculative-num-steps``, where a slot begins if it has it
    """

    slots: tuple[StepSlot, ...]
    initial_steps: int = 3

    def __post_init__(self) -> None:
        batches = [each.batch for each in self.slots]
        if batches != sorted(set(batches)) or not batches:
            raise InvalidArgumentError(f"slots must begin at rising batches, got {batches}")
        integer("initial_steps", self.initial_steps, high=1000)

    @staticmethod
    def usual(initial_steps: int = 3) -> AdaptiveSteps:
        """SGLang's own configuration, at the commit above."""
        slots = tuple(StepSlot(batch, **more) for batch, more in _USUAL.items())
        return AdaptiveSteps(slots, initial_steps)

    @staticmethod
    def read(path: str | PathLike[str], initial_steps: int = 3) -> AdaptiveSteps:
        """A file of ``--speculative-adaptive-config``: slots by their first batch, and what is
        beside them holds for all.
        """
        written = read_regular(Path(path), "steps", InvalidArgumentError, _LARGEST)
        try:
            content = json.loads(written)
        except (ValueError, RecursionError) as error:
            raise InvalidArgumentError(f"{path} cannot be read ({reason_of(error)})") from None
        if not isinstance(content, dict):
            raise InvalidArgumentError(f"{path} must hold an object, got {str(content)[:40]}")
        slots = {name: entry for name, entry in content.items() if _BATCH.fullmatch(name)}
        shared = {name: value for name, value in content.items() if name not in slots}
        strategy = shared.pop("strategy", "ema")
        if strategy != "ema":
            raise UnsupportedError(
                f"{path}: strategy {str(strategy)[:40]!r} is not simulated, only ema, the default"
            )
        found = []
        for name, entry in sorted(slots.items(), key=lambda item: int(item[0])):
            if not isinstance(entry, dict):
                raise InvalidArgumentError(f"{path}: slot {name} must be an object")
            given = {**shared, **entry}
            known = [each.name for each in fields(StepSlot) if each.name != "batch"]
            for key in given:
                if key not in known:
                    raise InvalidArgumentError(
                        f"{path}: slot {name} takes {', '.join(known)}, got {key[:40]!r}"
                        f"{did_you_mean(key, known)}"
                    )
            steps = given.pop("candidate_steps", None)
            if not isinstance(steps, list):
                raise InvalidArgumentError(f"{path}: slot {name}: candidate_steps must be a list")
            found.append(StepSlot(int(name), tuple(steps), **given))
        return AdaptiveSteps(tuple(found), initial_steps)

    @property
    def gamma_max(self) -> int:
        """The longest draft that any slot may take."""
        return max(max(each.candidate_steps) for each in self.slots)

    @property
    def schedule(self) -> tuple[tuple[int, int, int], ...]:
        """What batches begin with: (first, last, gamma)."""
        found, first = [], 1
        for slot, after in zip(self.slots, (*self.slots[1:], None), strict=True):
            last = max(first, slot.batch) if after is None else after.batch - 1
            found.append((first, last, slot.candidate_steps[slot.first(self.initial_steps)]))
            first = last + 1
        return tuple(found)

    @property
    def words(self) -> str:
        """``adaptive 1: 1/3/5/7, 8: 0/1/3``."""
        return "adaptive " + ", ".join(
            f"{each.batch}: {'/'.join(map(str, each.candidate_steps))}" for each in self.slots
        )

    def compiled(self, batch_max: int, graphs: Ints) -> CompiledSteps:
        """For batches up to ``batch_max``; a batch counts as the one that its graph is made for.

        graphs : batches that graphs are made for, rising
        """
        slots = np.zeros(len(self.slots), dtype=_SLOT)
        candidates = np.zeros((len(self.slots), max(len(s.candidate_steps) for s in self.slots)))
        for at, slot in enumerate(self.slots):
            count = len(slot.candidate_steps)
            candidates[at, :count] = slot.candidate_steps
            slots["candidates"][at] = count
            slots["current"][at] = slot.first(self.initial_steps)
            slots["average"][at] = candidates[at, slots["current"][at]] - 1.0
            for name in _SETTINGS:
                slots[name][at] = getattr(slot, name)
        batches = np.arange(batch_max + 1)
        if graphs.size:
            places = np.minimum(np.searchsorted(graphs, batches), graphs.size - 1)
            batches = np.maximum(graphs[places], batches)
        begins = np.array([each.batch for each in self.slots])
        of_batch = np.maximum(np.searchsorted(begins, batches, side="right") - 1, 0)
        return CompiledSteps(slots, candidates.astype(np.int64), of_batch)


def never(batch_max: int) -> CompiledSteps:
    """Draft lengths that do not change."""
    none: npt.NDArray[np.int64] = np.zeros((0, 1), dtype=np.int64)
    return CompiledSteps(np.zeros(0, dtype=_SLOT), none, np.zeros(batch_max + 1, dtype=np.int64))
