"""Part ``pair``: train a target and a draft, and hold predictions against real decoding."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import torch

from calibrate.batch.ragged import CompileError, RaggedModel
from calibrate.batch.synthetic import speculate
from calibrate.measure.grid import GridSettings, measure_grid
from calibrate.suite.acceptance import held_out_prompts, survival, trace
from calibrate.suite.plan import SEED, TEMPERATURES, PairPlan
from calibrate.suite.raw import OUT_OF_TIME, Deadline, Raw, device_facts, freed, say
from calibrate.suite.train import tokens, trained
from calibrate.validate.batching import decode_cell
from specsim.checkpoint import Checkpoint

# Shares of the part's time that training may take.
_TARGET_SHARE, _DRAFT_SHARE = 4 / 9, 2 / 9
# Share of the planned training below which a pair says nothing, and is left for another visit.
_LEAST = 0.25


class Counted(RaggedModel):
    """Counts its runs."""

    runs = 0

    def read(self, ids: torch.Tensor) -> torch.Tensor:
        self.runs += 1
        return super().read(ids)


def measure_pair(
    plan: PairPlan, out: Path, work: Path, deadline: Deadline, device: torch.device
) -> bool:
    """Whether all of it worked; results go to pair.json and trace.json."""
    raw, traces = Raw(out / "pair.json"), Raw(out / "trace.json")
    raw.content["plan"] = asdict(plan)
    raw.content["errors"] = {}
    raw.put("device", device_facts(device))
    allotted = deadline.left_s
    missing = raw.content.setdefault("missing", {})
    missing.pop("training", None)
    wanted = plan.target_s + plan.draft_s
    finished = all((work / f"{name}.pt").is_file() for name in ("target", "draft"))
    if not finished and (_TARGET_SHARE + _DRAFT_SHARE) * allotted < _LEAST * wanted:
        missing["training"] = OUT_OF_TIME
        raw.save()
        return True
    text = tokens(plan, work, device, raw)
    seconds = min(plan.target_s, _TARGET_SHARE * allotted)
    target = trained("target", plan, seconds, text, work, raw)
    seconds = min(plan.draft_s, _DRAFT_SHARE * allotted)
    draft = trained("draft", plan, seconds, text, work, raw)
    freed()
    prompts = held_out_prompts(text[1], plan.requests, plan.prompt_tokens)
    for temperature in TEMPERATURES:
        key = f"temperature {temperature:g}"
        if key not in traces.content:
            with raw.attempt(f"trace at {key}"):
                traces.put(key, trace(target, draft, text[0], prompts, temperature, plan))
                say(f"trace at {key}")
            freed()
    curves = {
        temperature: survival(traces.content[f"temperature {temperature:g}"], plan.gamma_max)
        for temperature in TEMPERATURES
        if f"temperature {temperature:g}" in traces.content
    }
    modes = ("compiled", "eager") if device.type == "cuda" else ("eager",)
    for mode in modes:
        with raw.attempt(f"wall-clock {mode}"):
            _wall_clock(target, draft, plan, curves, mode, work, raw, deadline)
        freed()
    with raw.attempt("decoding"):
        _decode(target, draft, plan, prompts, raw, deadline, compiled=device.type == "cuda")
    return not raw.content["errors"]


def _wall_clock(
    target: Any,
    draft: Any,
    plan: PairPlan,
    curves: dict[float, list[float]],
    mode: str,
    work: Path,
    raw: Raw,
    deadline: Deadline,
) -> None:
    """The grid of run times at batch 1, and blocks at the acceptance of the trace."""
    settings = GridSettings(
        batches=(1,),
        contexts=plan.contexts,
        gamma_max=plan.gamma_max,
        repeats=plan.repeats,
        temperatures=TEMPERATURES,
        modes=(mode,),
        seed=SEED,
    )
    grids = raw.content.setdefault("grid", {})
    if grids.get(mode, {}).get("missing", True):
        found = measure_grid(
            target, draft, settings, Checkpoint(work), more_time=deadline.more_time
        )
        grids[mode] = asdict(found)
        raw.save()
        say(f"grid of the pair, {mode}")
    cells = raw.content.setdefault("forced", {})
    missing = raw.content.setdefault("missing", {})
    for temperature, curve in curves.items():
        key = f"{mode} at temperature {temperature:g}"
        if key in cells:
            continue
        missing.pop(key, None)
        if not deadline.more_time():
            missing[key] = OUT_OF_TIME
            continue
        freed()
        cells[key] = forced_cell(
            target, draft, 1, plan.contexts[0], curve, temperature, plan.turns, mode
        )
        raw.save()
        say(f"forced, {key}")


def forced_cell(
    target: Any,
    draft: Any,
    batch: int,
    context: int,
    curve: Sequence[float],
    temperature: float,
    turns: int,
    mode: str,
) -> dict[str, Any]:
    """Stretches of forced decoding, in a form that JSON knows."""
    gammas = range(1, len(curve) + 1)
    compiled = mode == "compiled"
    decoded = decode_cell(
        target, draft, batch, context, gammas, curve, temperature, turns, compiled, SEED
    )
    return {
        "mode": mode,
        "temperature": temperature,
        "batch": batch,
        "context": context,
        "survival": list(curve),
        "timed": {str(gamma): asdict(stretches) for gamma, stretches in decoded.items()},
    }


def _decode(
    target: Any,
    draft: Any,
    plan: PairPlan,
    prompts: Sequence[Sequence[int]],
    raw: Raw,
    deadline: Deadline,
    compiled: bool,
) -> None:
    """Real speculative decoding, one request at a time; all draft lengths of one go in turns."""
    rows = raw.content.setdefault("decoded", [])
    done = {row["request"] for row in rows}
    left = [request for request in range(plan.decoded) if request not in done]
    missing = raw.content.setdefault("missing", {})
    missing.pop("decoding", None)
    if not left:
        return
    models = _ready(target, draft, plan, compiled)
    for request in left:
        if not deadline.more_time():
            missing["decoding"] = f"requests {request} to {left[-1]}: {OUT_OF_TIME}"
            break
        rows += _decode_one(*models, plan, request, prompts[request])
        raw.save()
    say(f"decoded {len({row['request'] for row in rows})} requests")


def _ready(target: Any, draft: Any, plan: PairPlan, compiled: bool) -> tuple[Counted, RaggedModel]:
    """Models with room for a request, with every run that it can need recorded."""
    longest = plan.prompt_tokens + plan.new_tokens + plan.gamma_max + 1
    try:
        large = Counted(target, 1, longest, compiled=compiled)
        small = RaggedModel(draft, 1, longest, compiled=compiled)
        made_up = torch.Generator(large.device).manual_seed(SEED)
        for model, widths in ((large, range(1, plan.gamma_max + 2)), (small, (1, 2))):
            model.fill(plan.prompt_tokens - 1, made_up)
            for width in widths:
                model.prepare(width, longest)
        # Reading a prompt and drawing have kernels of their own to choose.
        for temperature in TEMPERATURES:
            random = np.random.default_rng(SEED)
            speculate(large, small, [[0] * plan.prompt_tokens], 1, 2, temperature, random)
    except CompileError as error:
        say(f"decoding goes on without graphs: {error}")
        return _ready(target, draft, plan, compiled=False)
    return large, small


def _decode_one(
    target: Counted, draft: RaggedModel, plan: PairPlan, request: int, prompt: Sequence[int]
) -> list[dict[str, Any]]:
    """Calls and seconds of a request with every draft length, plain decoding (0) among them."""
    rows = []
    order = np.random.default_rng([SEED, request]).permutation(plan.gamma_max + 1).tolist()
    for temperature in TEMPERATURES:
        texts = {}
        for gamma in order:
            random = np.random.default_rng([SEED, request, gamma])
            target.runs = 0
            began = time.perf_counter()
            text = speculate(
                target, draft, [prompt], gamma, plan.new_tokens, temperature, random
            )[0]  # fmt: skip
            seconds = time.perf_counter() - began
            texts[gamma] = text
            rows.append(
                {
                    "request": request,
                    "temperature": temperature,
                    "gamma": gamma,
                    "tokens": len(text),
                    "calls": target.runs,
                    "seconds": seconds,
                    "compiled": target.compiled,
                }
            )
        if temperature == 0:
            # Decoding is lossless, so at temperature 0 every draft length gives the same text.
            for row in rows:
                row["same_text"] = texts[row["gamma"]] == texts[0]
    return rows
