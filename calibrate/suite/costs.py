"""Parts ``grids`` and ``forced``: what shapes with random weights cost, cell by cell.

A cell is one batch and one context in one mode.  Its grid of run times comes first and its forced
decoding right after, the small cells first, so that whatever the time suffices for is complete.

A recording that fails leaves CUDA in a state that nothing after it can rely on, as does a device
that fails.  Then the cell is named as missing, and the process ends, to be started anew.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import torch

from calibrate.measure.grid import GridSettings, measure_grid, room
from calibrate.models.shapes import random_model
from calibrate.suite.pair import forced_cell
from calibrate.suite.plan import SEED, TEMPERATURES, CostPlan
from calibrate.suite.raw import (
    OUT_OF_TIME,
    UNRECORDED,
    Deadline,
    Raw,
    device_facts,
    first_line,
    freed,
    out_of_memory,
    say,
)
from specsim.checkpoint import Checkpoint
from specsim.hardware import memory_needed_bytes, shape_from_config

# Shares of the device's memory that models and caches may fill; the rest is its own.
_FILL = 0.95


class StartAnewError(Exception):
    """What is left has to be measured by another process."""


def measure_costs(
    plan: CostPlan,
    alpha: float,
    mode: str,
    parts: tuple[str, ...],
    out: Path,
    work: Path,
    deadline: Deadline,
    device: torch.device,
) -> None:
    """All cells of one mode that are not in the files yet: costs-NAME.json and forced.json.

    parts : grids, forced or both
    """
    measuring = _Measuring(plan, alpha, mode, out, work, deadline, device)
    todo = [job for job in measuring.jobs(parts) if measuring.is_open(*job)]
    if todo:
        measuring.run(todo)


class _Measuring:
    """One pair of shapes in one mode."""

    def __init__(
        self,
        plan: CostPlan,
        alpha: float,
        mode: str,
        out: Path,
        work: Path,
        deadline: Deadline,
        device: torch.device,
    ) -> None:
        self.plan, self.mode, self.deadline, self.device = plan, mode, deadline, device
        self.curve = [alpha**i for i in range(1, plan.gamma_max + 1)]
        self.work = work
        self.costs, self.forced = Raw(out / f"costs-{plan.name}.json"), Raw(out / "forced.json")
        self.configs = {"target": plan.config(plan.target), "draft": plan.config(plan.draft)}
        self.dtype = torch.bfloat16 if device.type == "cuda" else torch.float32

    def jobs(self, parts: tuple[str, ...]) -> Iterator[tuple[str, int, int, float]]:
        """What there is to measure: what, batch, context, and temperature of forced decoding."""
        forced = self.plan.forced.get(self.mode, ()) if "forced" in parts else ()
        for batch in self.plan.batches:
            for context in self.plan.contexts:
                if "grids" in parts:
                    yield "grid", batch, context, 0.0
                if batch in forced:
                    for temperature in TEMPERATURES if batch == 1 else (0.0,):
                        yield "forced", batch, context, temperature

    def is_open(self, what: str, batch: int, context: int, temperature: float) -> bool:
        """Whether it is neither measured nor known to be impossible."""
        found = self._cells(what).get(self._key(what, batch, context, temperature), {})
        return found.get("reason", OUT_OF_TIME) == OUT_OF_TIME and not (
            "times" in found or "timed" in found
        )

    def run(self, todo: list[tuple[str, int, int, float]]) -> None:
        if not self.deadline.more_time():
            for job in todo:
                self._keep(*job, {"reason": OUT_OF_TIME})
            return
        models = [
            random_model(self.configs[which], self.device, self.dtype)
            for which in ("target", "draft")
        ]
        self._describe(models)
        say(f"{self.plan.name}, {self.mode}: models are there")
        # Cells without room; what is as large has none either.
        full = [
            (cell["batch"], cell["context"], cell["reason"])
            for what in ("grid", "forced")
            for cell in self._cells(what).values()
            if cell["mode"] == self.mode and out_of_memory(cell.get("reason", ""))
        ]
        for job in todo:
            what, batch, context, temperature = job
            freed()
            reason = self._too_large(batch, context) or next(
                (why for b, c, why in full if batch >= b and context >= c), ""
            )
            if not reason and not self.deadline.more_time():
                reason = OUT_OF_TIME
            if reason:
                self._keep(*job, {"reason": reason})
                continue
            measure = self._grid_cell if what == "grid" else self._forced_cell
            found = self._attempt(measure, models, batch, context, temperature)
            self._keep(*job, found)
            if "reason" not in found:
                say(f"{self.plan.name}: {what} {self._key(*job)}")
                continue
            say(f"{self.plan.name}: {what} {self._key(*job)} is missing: {found['reason']}")
            if out_of_memory(found["reason"]):
                full.append((batch, context, found["reason"]))
            if UNRECORDED in found["reason"] and not out_of_memory(found["reason"]):
                # The shape is at fault and not the size: no other cell would do better.
                for other in todo[todo.index(job) + 1 :]:
                    self._keep(*other, {"reason": found["reason"]})
            if UNRECORDED in found["reason"] or not out_of_memory(found["reason"]):
                raise StartAnewError(found["reason"])

    def _attempt(self, measure: Callable[..., dict[str, Any]], *job: Any) -> dict[str, Any]:
        try:
            return measure(*job)
        # torch raises its own kinds for memory, devices and compilers, and plain RuntimeError.
        except (RuntimeError, MemoryError, ValueError) as error:
            return {"reason": first_line(error)}

    def _grid_cell(
        self, models: list[Any], batch: int, context: int, temperature: float
    ) -> dict[str, Any]:
        settings = GridSettings(
            batches=(batch,),
            contexts=(context,),
            gamma_max=self.plan.gamma_max,
            repeats=self.plan.repeats_at(self.mode, batch),
            temperatures=self.plan.temperatures,
            modes=(self.mode,),
            seed=SEED,
        )
        cells = self.work / self.plan.name
        cells.mkdir(parents=True, exist_ok=True)
        target, draft = models
        found = measure_grid(target, draft, settings, Checkpoint(cells))
        if found.missing:
            return {"reason": found.missing[0]["reason"]}
        return {"times": found.times, "overhead": found.overhead}

    def _forced_cell(
        self, models: list[Any], batch: int, context: int, temperature: float
    ) -> dict[str, Any]:
        turns = self.plan.turns_at(self.mode, batch)
        target, draft = models
        return forced_cell(
            target, draft, batch, context, self.curve, temperature, turns, self.mode
        )  # fmt: skip

    def _too_large(self, batch: int, context: int) -> str:
        """Why the cell cannot fit, or nothing."""
        if self.device.type != "cuda":
            return ""
        widest = self.plan.gamma_max + 1
        slots = context + room(self.plan.gamma_max)
        shapes = [shape_from_config(config) for config in self.configs.values()]
        needed = sum(memory_needed_bytes(shape, batch, slots) for shape in shapes)
        # Logits of every recorded width, two bytes each, and five copies of the widest in float32
        # where tokens are drawn.
        numbers = batch * self.configs["target"]["vocab_size"]
        needed += numbers * (widest * (widest + 1) + 20 * widest)
        memory = torch.cuda.get_device_properties(self.device).total_memory
        if needed <= _FILL * memory:
            return ""
        return f"needs {needed / 1e9:.0f} GB, the device has {memory / 1e9:.0f} GB"

    def _describe(self, models: list[Any]) -> None:
        self.costs.content.get("errors", {}).pop(f"{self.plan.name}-{self.mode}", None)
        self.costs.content["device"] = device_facts(self.device)
        self.costs.content["dtype"] = str(self.dtype).removeprefix("torch.")
        self.costs.content["gamma_max"] = self.plan.gamma_max
        for which, model in zip(("target", "draft"), models, strict=True):
            config = self.configs[which]
            self.costs.content[which] = {
                "name": getattr(self.plan, which),
                "parameters": sum(each.numel() for each in model.parameters()),
                "context": model.config.max_position_embeddings,
                "sha256": hashlib.sha256(json.dumps(config, sort_keys=True).encode()).hexdigest(),
                "config": config,
            }
        self.costs.save()

    def _cells(self, what: str) -> dict[str, Any]:
        content = self.costs.content if what == "grid" else self.forced.content
        cells: dict[str, Any] = content.setdefault(
            "cells" if what == "grid" else self.plan.name, {}
        )
        return cells

    def _key(self, what: str, batch: int, context: int, temperature: float) -> str:
        cell = f"{self.mode}-{batch}-{context}"
        return cell if what == "grid" else f"{cell}-{temperature:g}"

    def _keep(
        self, what: str, batch: int, context: int, temperature: float, found: dict[str, Any]
    ) -> None:
        where = {"mode": self.mode, "batch": batch, "context": context}
        self._cells(what)[self._key(what, batch, context, temperature)] = {**where, **found}
        (self.costs if what == "grid" else self.forced).save()
