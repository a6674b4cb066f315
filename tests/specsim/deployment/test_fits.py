"""Fits of how close an engine gets to the peaks: shipped ones, and to a user's measurements."""

from __future__ import annotations

import csv
import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from msgspec import structs

from specsim import deploy, optimize
from specsim.batching.workload import Load
from specsim.checks import InvalidArgumentError, UnsupportedError
from specsim.counts.steps import StepTime
from specsim.deployment.cliff import find_cliff
from specsim.deployment.cost import DeployedCost
from specsim.deployment.deployment import Deployment, HostTime
from specsim.deployment.drafter_words import drafter
from specsim.deployment.drafters import Drafter
from specsim.deployment.fits import SHIPPED, fit_profile, fit_steps, fitted, shipped_fit
from specsim.deployment.step_fit import _SPREAD, _TYPICAL, TimedSteps, _cases, _Priced
from specsim.deployment.timed import timed_deployment
from specsim.hardware.roofline import Efficiency, roofline
from specsim.hardware.roofline_fit import fit_efficiency
from specsim.profiles import RunTime, read_profile, write_profile
from tests.support.command_line import run
from tests.support.profiles import ON_H100, write_grid

REFERENCE = Path(__file__).parents[3] / "studies" / "reference"
EAGLE = drafter("eagle3")
BARE = deploy("llama-3.1-8b", "H100-SXM", EAGLE)
GRID = [(gamma, batch) for gamma in (0, 2, 5, 8) for batch in (1, 16, 64, 256)]


def timed(
    deployment: Deployment,
    efficiency: Efficiency,
    host: HostTime,
    grid: list[tuple[int, int]] = GRID,
    head: Drafter = EAGLE,
) -> list[StepTime]:
    """What steps take in a deployment whose efficiency is known."""
    cost = DeployedCost(replace(deployment, efficiency=efficiency, host=host), head, 9)
    return [
        StepTime(gamma, batch, step_s(cost, gamma, batch), context=500.0) for gamma, batch in grid
    ]


def step_s(cost: DeployedCost, gamma: int, batch: int, context: float = 500.0) -> float:
    drafts = cost.draft_s(gamma, batch, context, 0.0) if gamma else 0.0
    return drafts + cost.verify_s(gamma, batch, context) + cost.overhead_s(gamma, batch)


@pytest.mark.parametrize("seed", range(8))
def test_steps_tell_what_made_them(seed: int) -> None:
    # Shares and times within two standard deviations of the prior.
    drawn = np.random.default_rng(seed).uniform(-2, 2, 5)
    compute, memory, layer_s, step, block = np.minimum(np.exp(_TYPICAL + drawn * _SPREAD), 1.0)
    efficiency, host = Efficiency(compute, memory, layer_s), HostTime(step, block)
    steps = timed(BARE, efficiency, host)
    found = fit_steps(BARE, EAGLE, steps)
    assert found.efficiency.memory == pytest.approx(memory, rel=0.05)
    cost = DeployedCost(fitted(BARE, found), EAGLE, 9)
    for each in steps:
        priced = step_s(cost, each.gamma or 0, int(each.batch))
        assert priced == pytest.approx(each.seconds, rel=0.03)
    assert found.efficiency.graph_tokens is None
    assert found.error is not None
    assert found.error < 0.1


def test_one_step_moves_only_what_it_tells_of() -> None:
    steps = timed(BARE, Efficiency(0.6, 0.6, 5e-6), HostTime(1e-3, 1e-3), [(0, 1)])
    found = fit_steps(BARE, EAGLE, steps)
    assert found.error is None
    # The typical values: no step with drafts, and none that arithmetic binds.
    assert found.efficiency.compute == pytest.approx(0.6, rel=1e-3)
    assert found.host.round_s == pytest.approx(1e-3, rel=1e-3)
    assert 0.6 < found.efficiency.memory < 0.75
    cost = DeployedCost(fitted(BARE, found), EAGLE, 9)
    assert step_s(cost, 0, 1) == pytest.approx(steps[0].seconds, rel=0.01)


def test_arrays_price_as_runs_do() -> None:
    steps = timed(BARE, Efficiency(0.5, 0.7, 7e-6), HostTime(1e-3, 2e-3))
    priced = _Priced.of(_cases(TimedSteps(BARE, EAGLE, steps)))
    at = priced.at(np.log([0.5, 0.7, 7e-6, 1e-3, 2e-3]))
    np.testing.assert_allclose(at, [each.seconds for each in steps], rtol=1e-12)


def test_forward_runs_have_no_host_time() -> None:
    steps = timed(BARE, Efficiency(0.5, 0.7, 7e-6), HostTime())
    found = fit_steps(BARE, EAGLE, steps, whole=False)
    assert found.host == HostTime()
    assert "--overhead-us" in found.note
    alone = [replace(each, draft_s=0.0) for each in steps if each.gamma]
    assert all(not any(case.host) for case in _cases(TimedSteps(BARE, EAGLE, alone)))


def test_a_cliff_is_found() -> None:
    known = Efficiency(0.6, 0.75, 5e-6, graph_tokens=512, eager_layer_s=1e-3)
    grid = [(gamma, batch) for gamma in (0, 2, 5, 8) for batch in (1, 8, 32, 64, 80, 128, 256)]
    found = fit_steps(BARE, EAGLE, timed(BARE, known, HostTime(1e-3, 1e-3), grid))
    assert found.efficiency.graph_tokens == 480  # the largest size below 513 in the grid
    assert found.efficiency.eager_layer_s == pytest.approx(1e-3, rel=0.1)
    assert found.efficiency.memory == pytest.approx(0.75, rel=0.05)


def curve() -> tuple[np.ndarray, np.ndarray]:
    """Milliseconds of a verification by tokens, DeepSeek-V4-Flash on four B300 (vLLM's blog)."""
    with (REFERENCE / "vllm_cost_curve.csv").open() as stream:
        rows = [row for row in csv.DictReader(stream) if row["run"] == "verify"]
    sizes, times = ([float(row[name]) for row in rows] for name in ("size", "milliseconds"))
    return np.array(sizes), np.array(times)


def line(tokens: np.ndarray, seconds: np.ndarray, known: np.ndarray) -> np.ndarray:
    """A straight line with the least relative squares."""
    design = np.column_stack([np.ones(tokens.size), tokens]) / seconds[:, None]
    found, *_ = np.linalg.lstsq(design[known], np.ones(known.sum()), rcond=None)
    return (design @ found) * seconds


def test_the_published_cliff_lies_behind_1024_tokens() -> None:
    tokens, seconds = curve()
    assert tokens.size == 14
    assert find_cliff(tokens, seconds, lambda known: line(tokens, seconds, known)) == 1024
    below, low = tokens[:9], seconds[:9]
    assert find_cliff(below, low, lambda known: line(below, low, known)) is None
    # One slow run that the next does not share is none.
    odd = np.where(below == 64, 3 * low, low)
    assert find_cliff(below, odd, lambda known: line(below, odd, known)) is None


def test_shipped_fits_have_sources_and_plausible_figures() -> None:
    engines = {"sglang-h200", "vllm-h100", "vllm-rtx-pro-6000"}
    assert {*engines, "transformers-h100"} == SHIPPED.keys()
    for name, fit in SHIPPED.items():
        assert fit.source
        assert fit.note
        assert fit.error is not None
        assert 0 < fit.error < 0.6, name
        # A layer costs the library's own code ten times what it costs an engine.
        assert (0.3 if name in engines else 0.2) < fit.efficiency.compute <= 1
        assert 0.5 < fit.efficiency.memory < 0.95
        assert 5e-7 < fit.efficiency.layer_s < (1e-4 if name in engines else 2e-4)
        assert 1e-4 < fit.host.step_s < 1e-2
        assert deploy("llama-3.1-8b", fit.accelerator).card.name == fit.accelerator


# casys-kaist/LLMServingSim 5daddb2: steps of vLLM 0.19.0, studies/reference.
def test_the_fit_of_vllm_prices_the_steps_that_were_timed() -> None:
    deployment = fitted(deploy("llama-3.1-8b", "RTX-PRO-6000"), "vllm-rtx-pro-6000")
    cost = DeployedCost(deployment, None, 1)
    with (REFERENCE / "rtx_pro_6000_steps.csv").open() as stream:
        rows = [row for row in csv.DictReader(stream) if row["kind"] == "engine"]
    off = [
        step_s(cost, 0, round(float(row["batch"])), float(row["context"])) / float(row["seconds"])
        for row in rows
    ]
    assert np.abs(np.array(off) - 1).mean() < 0.08
    assert np.abs(np.array(off) - 1).max() < 0.16


def test_names_in_any_case_and_near_misses() -> None:
    assert shipped_fit("SGLang_H200") is SHIPPED["sglang-h200"]
    with pytest.raises(UnsupportedError, match=r"sglang-h20'.*did you mean sglang-h200"):
        shipped_fit("sglang-h20")


def test_another_accelerator_is_named_and_its_error_unknown() -> None:
    here = fitted(deploy("llama-3.3-70b", "H200", tensor_parallel=4), "sglang-h200")
    assert here.error == SHIPPED["sglang-h200"].error
    assert here.routing_exponent == 0.5
    assert not here.is_bound
    there = fitted(deploy("llama-3.3-70b", "B200", tensor_parallel=4), "sglang-h200")
    assert there.error is None
    assert any("made on H200" in each for each in there.doubts)


def test_a_fit_is_judged_by_the_cards_that_it_is_carried_to() -> None:
    """Whichever cards came first, as when several are read anew."""
    alone = {
        card: deploy("llama-3.1-8b", card, EAGLE, fit="vllm-h100") for card in ("H100", "H200")
    }
    assert (alone["H100"].error, alone["H200"].error) == (SHIPPED["vllm-h100"].error, None)
    for card, other in (("H100", "H200"), ("H200", "H100")):
        carried = replace(alone[other], accelerator=card)
        assert (carried.error, carried.doubts) == (alone[card].error, alone[card].doubts)
    assert len(alone["H200"].doubts) == len(alone["H100"].doubts) + 1


def test_single_values_replace_those_of_the_fit() -> None:
    given_beside = deploy("llama-3.1-8b", "H100", EAGLE, fit="vllm-h100", layer_us=9.0)
    shipped = SHIPPED["vllm-h100"]
    assert given_beside.efficiency == replace(shipped.efficiency, layer_s=9e-6)
    assert given_beside.host == shipped.host
    assert given_beside.error is None
    assert "given beside it" in given_beside.fit
    exponent = deploy("llama-3.1-8b", "H200", EAGLE, fit="sglang-h200", routing_exponent=0.9)
    assert exponent.routing_exponent == 0.9
    assert exponent.error is None
    assert "given beside it" in exponent.fit


def acceptance(
    folder: Path, steps: list[StepTime], recognised: str = "1 log", method: str | None = None
) -> Path:
    path = folder / "acceptance.json"
    rows = [
        {"batch": each.batch, "seconds": each.seconds, "gamma": each.gamma, "context": 500.0}
        for each in steps
    ]
    document = {
        "schema": "specsim-acceptance",
        "version": 1,
        "created": "",
        "specsim": "",
        "engine": "vllm",
        "method": method,
        "counts": [],
        "lengths": [],
        "steps": rows,
        "sources": [{"file": "log", "sha256": "", "recognised": [recognised]}],
        "notes": [],
    }
    path.write_text(json.dumps(document))
    return path


def test_a_file_of_steps_is_a_fit(tmp_path: Path) -> None:
    steps = timed(BARE, Efficiency(0.6, 0.7, 5e-6), HostTime(1e-3, 1e-3))
    path = acceptance(tmp_path, steps)
    plan = optimize(
        alpha=0.8,
        deployment=deploy("llama-3.1-8b", "H100", EAGLE, fit=path),
        load=Load([1, 64], [500]),
    )
    echoed = plan.document()["inputs"]["deployment"]
    assert echoed["efficiency"]["memory"] == pytest.approx(0.7, rel=0.05)
    assert echoed["fit"] == str(path)
    assert echoed["error"] < 0.1
    assert any("fitted to 16 timed steps of vllm" in each for each in plan.warnings)
    assert any("extrapolates" in each for each in plan.warnings)
    forward = fitted(BARE, acceptance(tmp_path, steps, "9 cases of vllm bench forward"))
    assert forward.host == HostTime()


@pytest.mark.parametrize(
    ("method", "count"), [(None, "16 timed steps"), ("eagle3", "16 timed"), ("ngram", "4 timed")]
)
def test_steps_of_another_drafter_are_no_steps_of_this_one(
    tmp_path: Path, method: str | None, count: str
) -> None:
    """Plain steps hold for whatever drafts."""
    steps = timed(BARE, Efficiency(0.6, 0.7, 5e-6), HostTime(1e-3, 1e-3))
    fit = acceptance(tmp_path, steps, method=method)
    found = fitted(deploy("llama-3.1-8b", "H100", EAGLE), fit)
    assert f"fitted to {count}" in " ".join((found.fit or "", *found.doubts))


def test_the_command_takes_a_fit(capsys: pytest.CaptureFixture[str]) -> None:
    words = "optimize --target llama-3.3-70b --drafter eagle3 --accelerator H200 --alpha 0.7"
    asked = [*words.split(), "--tensor-parallel", "4", "--batch", "8", "--context", "500"]
    code, out, _ = run(capsys, *asked, "--fit", "sglang-h200", "--format", "json")
    assert code == 0
    document = json.loads(out)
    assert document["inputs"]["deployment"]["fit"] == "sglang-h200 (SGLang of late 2025 on H200)"
    assert any("sglang-h200" in each for each in document["warnings"])


@pytest.mark.parametrize(
    ("content", "said"), [("{}", "neither a profile"), (None, "no such file"), ("x", "neither")]
)
def test_a_wrong_file_is_one_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], content: str | None, said: str
) -> None:
    path = tmp_path / "some.json"
    if content is not None:
        path.write_text(content)
    words = "optimize --target llama-3.1-8b --drafter eagle3 --accelerator H100 --alpha 0.7"
    code, _, err = run(capsys, *words.split(), "--batch", "8", "--fit", str(path))
    assert code == 2
    assert said in err
    assert len(err.strip().splitlines()) == 1


def test_steps_that_cannot_be_priced() -> None:
    with pytest.raises((UnsupportedError, InvalidArgumentError), match="no step"):
        fit_steps(BARE, None, [StepTime(3, 1, 0.01)])


def test_a_profile_is_a_fit(tmp_path: Path) -> None:
    known = Efficiency(0.5, 0.7, 6e-6)
    path = write_grid(tmp_path)
    profile = read_profile(path)
    timed = structs.replace(profile.target, parameters=BARE.shape.parameters)
    profile = structs.replace(
        profile,
        target=timed,
        hardware=structs.replace(profile.hardware, device="cuda", device_name="NVIDIA X1"),
        software=structs.replace(profile.software, dtype="bfloat16"),
    )
    write_profile(profile, path)

    def seconds(row: RunTime, tokens: int) -> float:
        cell = tokens, row.batch, row.context
        return roofline(BARE.shape, BARE.card, *cell, efficiency=known).seconds

    rows = [
        structs.replace(row, seconds=[seconds(row, row.tokens)], plain=[seconds(row, 1)])
        for row in profile.grid
        if row.model == "target"
    ]
    found = fit_profile(BARE, structs.replace(profile, grid=rows))
    assert found.efficiency.compute == pytest.approx(0.5, rel=0.01)
    assert found.efficiency.memory == pytest.approx(0.7, rel=0.01)
    assert found.efficiency.layer_s == pytest.approx(6e-6, rel=0.1)
    assert found.error is not None
    assert found.error < 0.02
    plain = [each for row in profile.batch_overhead if not row.gamma for each in row.seconds]
    assert found.host.step_s == pytest.approx(np.median(plain))
    deployed = deploy("llama-3.1-8b", "H100", "draft_model:llama-3.2-1b", fit=path)
    assert deployed.fit == str(path)
    with pytest.raises(UnsupportedError, match="calibrate --batch"):
        fit_profile(BARE, structs.replace(profile, grid=[]))


def test_a_profile_of_shapes_is_a_fit_of_other_models_too() -> None:
    """The same efficiency, whichever target is priced with it."""
    found = [
        fit_profile(
            deploy(target, "H100", f"draft_model:{draft}"), read_profile(ON_H100)
        ).efficiency
        for target, draft in (("llama-3.1-8b", "llama-3.2-1b"), ("qwen3-32b", "qwen3-0.6b"))
    ]
    assert found[0] == found[1]


@pytest.mark.parametrize("name", ["32b-0.6b", "30b-a3b-0.6b"])
def test_a_share_that_decides_no_run_is_the_usual_one(name: str) -> None:
    """Batch 1 alone was timed; the search used to end at 0.02 and 0.005 of the arithmetic."""
    profile = read_profile(ON_H100.with_name(f"costs-{name}-compiled.json"))
    deployment = timed_deployment(profile)
    assert deployment is not None
    found = fit_profile(deployment, profile)
    assert found.efficiency.compute == pytest.approx(0.6, rel=1e-3)
    assert "runs were timed at batch 1 and context 512 to 4096, beyond which" in found.note


def test_runs_that_are_met_exactly_contradict_no_share() -> None:
    """All wait for memory: the search ends at rounding, and the share is the usual one."""
    cells = ((1, 1, 512), (1, 4, 512), (2, 4, 4096), (5, 1, 512))
    shape, card = BARE.shape, BARE.card
    known = Efficiency(0.6, 0.7)
    measured = [roofline(shape, card, *cell, efficiency=known).seconds for cell in cells]
    runs = [roofline(shape, card, *cell) for cell in cells]
    found = fit_efficiency(runs, np.array(measured), len(shape.layers))
    assert found.compute == pytest.approx(0.6)
    assert found.memory == pytest.approx(0.7, rel=1e-3)


def test_a_profile_is_a_fit_of_the_card_that_it_was_timed_on() -> None:
    """On another one it says what the shipped fit of the same runs says."""
    words = "llama-3.1-8b", "B200", "draft_model:llama-3.2-1b"
    own, shipped = (deploy(*words, fit=fit) for fit in (ON_H100, "transformers-h100"))
    assert (own.error, own.fitted_on) == (None, "H100-SXM")
    assert own.efficiency.memory == pytest.approx(shipped.efficiency.memory, abs=1e-3)
    assert any("was made on H100-SXM" in doubt for doubt in own.doubts)


def test_a_fit_is_of_the_numbers_that_were_timed() -> None:
    """Twice the bytes in the same time: twice as near to the bandwidth, layers apart."""
    profile = read_profile(ON_H100)
    wide = structs.replace(profile.software, dtype="float32")
    deployed = deploy("llama-3.1-8b", "H100", "draft_model:llama-3.2-1b")
    found = fit_profile(deployed, structs.replace(profile, software=wide))
    assert found.efficiency.memory > 1.3 * fit_profile(deployed, profile).efficiency.memory


def test_a_fit_of_a_checkpoint_is_of_the_numbers_that_were_timed() -> None:
    """Whatever it is deployed in, also where its profile does not hold its config.json."""
    shapes = read_profile(ON_H100)
    checkpoints = structs.replace(
        shapes,
        target=structs.replace(shapes.target, config=None),
        draft=structs.replace(shapes.draft, config=None),
    )
    words = "llama-3.1-8b", "H100", "draft_model:llama-3.2-1b"
    plain, quantised = deploy(*words), deploy(*words, dtype="fp8", kv_dtype="fp8")
    found = fit_profile(plain, shapes).efficiency
    assert fit_profile(plain, checkpoints).efficiency == found
    assert fit_profile(quantised, checkpoints).efficiency == found


def test_a_profile_of_a_cpu_is_no_fit_of_an_accelerator(tmp_path: Path) -> None:
    timed = read_profile(ON_H100)
    cpu = structs.replace(timed.hardware, device="cpu", device_name="AMD EPYC")
    on_cpu = structs.replace(timed, hardware=cpu)
    with pytest.raises(UnsupportedError, match=r"on a CPU \(AMD EPYC\).*nothing of H100-SXM"):
        fit_profile(deploy("llama-3.1-8b", "H100"), on_cpu)
    path = tmp_path / "cpu.json"
    sheet = {"name": "EPYC", "memory_gb": 1e3, "bandwidth_gb_s": 4e3, "tflops": {"bfloat16": 1e3}}
    path.write_text(json.dumps(sheet))
    assert fit_profile(deploy("llama-3.1-8b", str(path)), on_cpu).efficiency.memory < 1


def test_a_profile_of_other_checkpoints_is_no_fit(tmp_path: Path) -> None:
    path = write_grid(tmp_path)
    with pytest.raises(UnsupportedError, match=r"t \(1,000 parameters\).*has 8,030,261,248"):
        deploy("llama-3.1-8b", "H100", fit=path)
