"""One small result of every kind that has a page of its own, from invented numbers."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

import specsim
from specsim import Calibration, EngineCalibration, EngineVerdict, Load, Result, Validation, deploy
from specsim.api.demo import Demonstration
from specsim.api.result import LeftOut
from specsim.api.validation import (
    BlindCheck,
    CountsCheck,
    EngineCheck,
    SchemeCheck,
    SpeedupCheck,
    SyntheticCheck,
)
from specsim.counts.drafts import DraftCounts
from specsim.counts.steps import FrontendTime, PromptTime, StepTime, StreamedStep, StreamedSteps
from specsim.profiles import read_profile
from studies.common.reproduce import Reproduction
from studies.common.study import Check
from tests.support.bench_log import bench_log
from tests.support.positions import write_positions
from tests.support.profiles import write, write_grid

_LLAMAS = ("llama-3.1-8b", "H100-SXM")
_STEPS: dict[str, Any] = {"step_model": "step_ms=5,token_us=20"}
_ENGINE: dict[str, Any] = {"engine": "vllm:num_gpu_blocks=600"}
_WORK = {"rate": 10, "prompt": "uniform:50,400", "output": "uniform:1,60", "requests": 120}


def speedup_rows(*places: dict[str, Any], **more: Any) -> list[dict[str, Any]]:
    """Predicted beside measured at three draft lengths of each place."""
    return [
        {
            **place,
            "gamma": gamma,
            "predicted_tokens_per_call": 1 + 0.6 * gamma,
            "measured_tokens_per_call": 1.02 + 0.6 * gamma,
            "predicted_speedup": 1 + 0.2 * gamma,
            "predicted_low": 0.9 + 0.2 * gamma,
            "predicted_high": 1.1 + 0.2 * gamma,
            "measured_speedup": 1.02 + 0.2 * gamma,
            "measured_low": 0.95 + 0.2 * gamma,
            "measured_high": 1.09 + 0.2 * gamma,
            **more,
        }
        for place in places
        for gamma in (1, 2, 3)
    ]


_HOT_AND_COLD = {"temperature": 0.0, "prompts": "own"}, {"temperature": 1.0, "prompts": "own"}


def _checked(check: Any, rows: list[dict[str, Any]], **more: Any) -> Validation:
    return Validation(
        check=check,
        measured=tuple(rows),
        errors=("relative error of the speedup: median 1.0%",),
        failures=(),
        inputs={"profile": "p.json", "check": check, "tolerance": None},
        **more,
    )


def blind_rows(chosen: int = 2) -> list[dict[str, Any]]:
    """As ``validate --blind`` has them, at two temperatures."""
    rows = speedup_rows(
        *_HOT_AND_COLD,
        formula_speedup=1.4,
        exact=None,
        measured_error=0.02,
        measured_by_pass=[1.2, 1.24],
        relative_error=0.01,
        inside=True,
    )
    return [{**row, "chosen": row["gamma"] == chosen} for row in rows]


def _speedups() -> Validation:
    rows = speedup_rows(*_HOT_AND_COLD, formula_speedup=1.4, exact=None, z=0.1, relative_error=0.1)
    parts = dict.fromkeys(("error_drift", "error_acceptance", "error_draft"), 0.01)
    parts |= dict.fromkeys(("error_verify", "error_overhead"), -0.01)
    return _checked(SpeedupCheck(), [{**row, **parts} for row in rows])


def _schemes() -> Validation:
    rows = [
        {
            **speedup_rows({"temperature": 1.0})[gamma],
            "scheme": "bild",
            "setting": f"window {gamma}",
            "law_tokens_per_call": 2.0,
            "exact": None,
            "relative_error": 0.01,
            "log_loss": None,
            "accuracy": None,
            "agreement": None,
            "predicted_runs": {"draft": 50.0},
            "measured_runs": {"draft": 51.0},
            "runs_z": {"draft": 0.3},
        }
        for gamma in range(3)
    ]
    left_out = (LeftOut("specdec", "no such model; name one in others"),)
    return _checked(SchemeCheck(), rows, left_out=left_out)


def _synthetic() -> Validation:
    places = [{"temperature": 0.0, "batch": batch, "context": 64} for batch in (1, 8)]
    more = {"tokens_per_call": 2.0, "relative_error": 0.01, "loss": 0.0}
    more |= dict.fromkeys(("error_draft", "error_verify", "error_overhead"), 0.0)
    rows = speedup_rows(*places, **more, predicted_best=2, measured_best=2)
    return _checked(SyntheticCheck(), rows)


def _engine_counts() -> Validation:
    rows = [
        {
            "temperature": 0.0,
            "gamma": gamma,
            "requests": 4,
            "replayed_rounds": 10.0,
            "counted_rounds": 10.0,
            "replayed_accepted": {"1": 5.0},
            "exact": True,
            "counted_accepted": {"1": 5.0},
            "largest_z": 0.0,
            "other_law_rounds": None,
            "replayed_tokens_per_call": 1.5,
            "counted_tokens_per_call": 1.5,
            "other_law_z": None,
        }
        for gamma in (1, 2)
    ]
    return _checked(EngineCheck(), rows)


def _counts() -> Validation:
    rows = [
        {
            "gamma": gamma,
            "predicted_from": "3",
            "model": "gaps",
            "rounds": 100.0,
            "predicted_tokens_per_call": 1.5,
            "predicted_tokens_per_call_low": 1.4,
            "predicted_tokens_per_call_high": 1.6,
            "measured_tokens_per_call": 1.55,
            "measured_tokens_per_call_low": 1.5,
            "measured_tokens_per_call_high": 1.6,
            "relative_error": -0.03,
            "inside": True,
            "cut_or_held_tokens_per_call": 1.3,
            "cut_or_held_error": -0.16,
        }
        for gamma in (1, 2)
    ]
    return _checked(CountsCheck(), rows)


def _calibration(folder: Path, cost_only: bool = False) -> Calibration:
    path = write_grid(folder, **({"acceptance": []} if cost_only else {}))
    best = None if cost_only else specsim.optimize(profile=path)
    return Calibration(
        path=path,
        profile=read_profile(path),
        best=best,
        inputs={"models": {"target": "t", "draft": "d"}, "cost_only": cost_only},
        warnings=("busy machine: others used 1.2 cores while timing",),
    )


def _engine_calibration() -> EngineCalibration:
    random = np.random.default_rng(3)
    steps = tuple(
        StepTime(gamma, batch, seconds, repeat=repeat, first_s=2 * seconds)
        for repeat in range(4)
        for batch in (1, 4)
        for gamma in (0, 1, 3)
        for seconds in [0.01 * (1 + 0.2 * gamma) * random.uniform(0.95, 1.05)]
    )
    counts = (DraftCounts(1, 100.0, 70.0), DraftCounts(3, 80.0, 120.0))
    prompts = tuple(
        PromptTime(0, tokens, 1e-4 * tokens * (1 + 0.01 * repeat), 2e-4 * tokens, repeat)
        for repeat in range(2)
        for tokens in (64, 512)
    )
    streamed = tuple(
        StreamedSteps(
            gamma,
            (
                *(StreamedStep(batch, 0, 0, 0.01 + 0.001 * batch, 50) for batch in (1, 2, 4)),
                *(StreamedStep(2, 1, tokens, 0.015 + 1e-4 * tokens) for tokens in (16, 64)),
            ),
            (FrontendTime(0.005, 2, 1), FrontendTime(0.007, 1, 2)),
        )
        for gamma in (0, 1, 3)
    )
    return EngineCalibration(
        path=Path("p.vllm.json"),
        counts=counts,
        steps=steps,
        prompts=prompts,
        streamed=streamed,
        inputs={"profile": "p.json"},
    )


def _engine_verdict() -> EngineVerdict:
    rows = speedup_rows({"temperature": 0.0, "batch": 1}, {"temperature": 0.0, "batch": 4})
    more = {"measured_error": 0.02, "relative_error": 0.01, "inside": True}
    rows = [{**row, **more, "counted_rounds": 9.0, "replayed_rounds": 9.0} for row in rows]
    return EngineVerdict(
        prediction=Path("p.predicted.json"),
        sha256="0123456789abcdef",
        measured=tuple(rows),
        failures=(),
        inputs={"profile": "p.json"},
    )


def _demonstration() -> Demonstration:
    best = {"gamma": 2, "speedup": 1.4, "speedup_low": 1.3, "speedup_high": 1.5}
    chosen = [{**best, "temperature": temperature} for temperature in (0.0, 1.0)]
    return Demonstration(
        draft="embedded/small",
        profile=Path("demo/profile.json"),
        chosen=tuple(chosen),
        validation=_checked(BlindCheck(), blind_rows()),
        inputs={"out": "demo", "draft": "embedded/small", "seed": 0},
    )


def _serving_verdict(folder: Path) -> Result:
    """The simulator beside its own log, with cheaper steps."""
    served = specsim.serve(specsim.workload(**_WORK), **_STEPS, **_ENGINE).served
    path = bench_log(served, folder)
    return specsim.validate_serving(path, step_model="step_ms=4,token_us=20", **_ENGINE)


def _reproduction() -> Reproduction:
    checks = {
        "leviathan": [
            Check("Table 1", "alpha 0.8", 3.05, 3.052, 0.005),
            Check("Table 1", "alpha 0.6", 2.1, 2.4, 0.05, "another c"),
            Check("Table 2", "all", 1.0, None, 0.05, "not printed"),
        ],
        "bild": [Check("Table 4", "speed", 1.85, 1.85, 0.005, printed_twice=True)],
    }
    return Reproduction(out=Path("results"), checks=checks, inputs={"studies": list(checks)})


def _plan(**more: Any) -> Result:
    work = {**_WORK, "rate": 60, "output": "uniform:20,120", "requests": 300}
    return specsim.plan(
        specsim.workload(**work),
        slo="tpot_p99=0.02,ttft_p99=1",
        alpha=0.8,
        step_model="step_ms=5,token_us=30,draft_run_ms=0.5",
        engine="vllm:num_gpu_blocks=6000",
        gammas=(2,),
        price=2.0,
        **more,
    )


def _sweep(folder: Path, **inputs: Any) -> Result:
    """Of evaluate; an alpha above 1 fails."""
    asked = {"command": "evaluate", "inputs": {**inputs, "c": 0.05}}
    return specsim.sweep(asked, folder / "out", workers=1)


def _comparison() -> Result:
    """One of them is faster beyond chance, the others are not."""
    before, after = blind_rows(), blind_rows()
    after[0] = {**after[0], "measured_speedup": 2.0, "measured_low": 1.9, "measured_high": 2.1}
    after[1] = {**after[1], "measured_speedup": 1.43}
    first, second = (_checked(BlindCheck(), rows) for rows in (before, after))
    return specsim.compare(first, second)


RESULTS: dict[str, Callable[[Path], Result]] = {
    "by load": lambda _: specsim.optimize(
        0.8,
        deployment=deploy(*_LLAMAS, "draft_model:llama-3.2-1b"),
        load=Load([1, 8, 64, 4000], [512, 4096]),
    ),
    "several drafters": lambda _: specsim.optimize(
        0.8,
        deployment=deploy(*_LLAMAS, ["draft_model:llama-3.2-1b", "eagle3"]),
        load=Load([1, 8, 64], [512]),
    ),
    "many contexts": lambda _: specsim.optimize(
        0.8,
        deployment=deploy(*_LLAMAS, "draft_model:llama-3.2-1b"),
        load=Load([1, 8, 64], range(512, 5120, 512)),
    ),
    "a given length": lambda folder: specsim.evaluate(
        profile=write_grid(folder), gamma=2, load=Load([1, 16])
    ),
    "grid": lambda folder: specsim.optimize(profile=write_grid(folder), load=Load([1, 16, 99])),
    "profile": lambda folder: specsim.optimize(profile=write(folder)),
    "calibration": _calibration,
    "costs": lambda folder: _calibration(folder, cost_only=True),
    "engine calibration": lambda _: _engine_calibration(),
    "side by side": lambda _: _speedups(),
    "blind": lambda _: _checked(BlindCheck(), blind_rows(), warnings=("predicted before",)),
    "schemes": lambda _: _schemes(),
    "synthetic": lambda _: _synthetic(),
    "engine counts": lambda _: _engine_counts(),
    "counts": lambda _: _counts(),
    "engine verdict": lambda _: _engine_verdict(),
    "demonstration": lambda _: _demonstration(),
    "serving": lambda _: specsim.serve(
        specsim.workload(**_WORK), **_STEPS, **_ENGINE, slo="ttft_p99=1", replications=2
    ),
    "serving verdict": _serving_verdict,
    "deferral": lambda folder: specsim.defer(write_positions(folder)),
    "deferral at a price": lambda folder: specsim.defer(
        write_positions(folder), quality="target", c=0.1
    ),
    "plan": lambda _: _plan(),
    "analytic plan": lambda _: _plan(simulated=False),
    "explanation": lambda _: specsim.explain(
        0.7,
        gamma=4,
        batch=32,
        context=512,
        deployment=deploy(*_LLAMAS, "draft_model:llama-3.2-1b"),
    ),
    "study": lambda _: _reproduction(),
    "sweep": lambda folder: _sweep(folder, alpha=[0.6, 0.8, 1.2], gamma=[1, 2, 4]),
    "sweep of many": lambda folder: _sweep(
        folder, alpha=[0.5, 0.6, "0.8,0.7"], gamma=[1, 2, 4], overhead=[0.0, 0.1, 0.2, 0.3]
    ),
    "comparison": lambda _: _comparison(),
    "no charts": lambda _: specsim.evaluate(0.8, 0.05, 5),
}
