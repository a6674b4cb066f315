"""A plan in a file, as export takes it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import specsim
from specsim.api.export_notes import serving_notes
from specsim.api.plan_file import planned_serving
from specsim.checks import InvalidArgumentError
from specsim.engines import ENGINES


def written(folder: Path, schedule: Any, **plan: Any) -> Path:
    path = folder / "plan.json"
    answer = {"plan": {"met": True, "schedule": schedule, **plan}}
    path.write_text(json.dumps({"schema": "specsim.serving", "answer": answer}))
    return path


def test_a_schedule_is_read(tmp_path: Path) -> None:
    path = written(tmp_path, [[1, 4, 5], [5, 64, 0]])
    assert planned_serving(path).schedule == [(1, 4, 5), (5, 64, 0)]


@pytest.mark.parametrize(
    ("schedule", "message"),
    [
        (None, "schedule: Expected `array`, got `null`"),
        ([], "schedule is empty"),
        ([[1, 4]], "schedule: Expected `array` of length 3"),
        ([[1, 4, "five"]], "schedule: Expected `int`"),
        ([[2, 4, 5]], r"schedule\[0\] must be .* begin with batch 1, got \(2, 4, 5\)"),
        ([[1, 4, 5], [6, 8, 3]], r"schedule\[1\] must be .* begin with batch 5"),
        ([[1, 4, 5], [4, 8, 3]], r"schedule\[1\]"),
        ([[1, 0, 5]], r"schedule\[0\]"),
        ([[1, 4, -1]], r"schedule\[0\]"),
    ],
)
def test_a_schedule_that_cannot_be_is_refused(tmp_path: Path, schedule: Any, message: str) -> None:
    with pytest.raises(InvalidArgumentError, match=message) as refused:
        planned_serving(written(tmp_path, schedule))
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize(
    "content",
    [b"", b"{", b"[]", b"null", b"[" * 100_000, b"\xff", b'{"schema": "specsim.serving"}'],
)
def test_what_is_no_plan_is_refused(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "plan.json"
    path.write_bytes(content)
    with pytest.raises(InvalidArgumentError, match=r"is no plan|cannot be read"):
        planned_serving(path)
    with pytest.raises(InvalidArgumentError, match="no such file"):
        planned_serving(tmp_path / "none.json")


def test_a_plan_tells_whose_scheduler_it_was_made_with(tmp_path: Path) -> None:
    path = written(tmp_path, [[1, 4, 5]], max_num_seqs=4)
    document = json.loads(path.read_text())
    assert serving_notes(ENGINES["vllm"], planned_serving(path)) == [
        "planned for up to 4 requests at a time: --max-num-seqs 4"
    ]
    for words, notes in (("vllm", 1), ("sglang:max_running_requests=4", 2), ({}, 1)):
        path.write_text(json.dumps({**document, "inputs": {"engine": words}}))
        found = serving_notes(ENGINES["vllm"], planned_serving(path))
        assert len(found) == notes
    path.write_text(json.dumps({**document, "inputs": {"engine": "vllm"}}))
    assert serving_notes(ENGINES["sglang"], planned_serving(path))[-1] == (
        "planned with the scheduler of vLLM: SGLang puts other requests into a step"
    )


def test_a_plan_that_meets_nothing_has_no_schedule(tmp_path: Path) -> None:
    with pytest.raises(InvalidArgumentError, match="meets no level"):
        planned_serving(written(tmp_path, [[1, 4, 5]], met=False))


def test_a_plan_is_of_its_own_deployment(tmp_path: Path) -> None:
    plan = {
        "target": "llama-3.1-8b",
        "accelerator": "H100-SXM",
        "tensor_parallel": 2,
        "drafter": "draft_model:llama-3.2-1b",
    }
    found = planned_serving(written(tmp_path, [[1, 24, 3]], max_num_seqs=24, **plan))
    assert found.max_num_seqs == 24
    draft = "draft_model:llama-3.2-1b"
    found.check_same(specsim.deploy("llama-3.1-8b", "H100", draft, tensor_parallel=2))
    with pytest.raises(InvalidArgumentError, match=r"target must be llama-3\.1-8b, .* qwen3-8b"):
        found.check_same(specsim.deploy("qwen3-8b", "H100", draft, tensor_parallel=2))
    with pytest.raises(InvalidArgumentError, match="plans for H100-SXM: give target, drafter and"):
        found.check_same(None)
    for deployed, message in (
        (("H200", draft, 2), "accelerator must be H100-SXM, which .* plans for, got H200"),
        (("H100", draft, 1), "tensor_parallel must be 2, which .* plans for, got 1"),
        (("H100", "eagle3", 2), f"drafter must be {draft}, which .* plans for, got eagle3"),
    ):
        card, drafter, tensor = deployed
        with pytest.raises(InvalidArgumentError, match=message):
            found.check_same(specsim.deploy("llama-3.1-8b", card, drafter, tensor_parallel=tensor))


def test_a_plan_is_of_its_own_numbers(tmp_path: Path) -> None:
    path = written(tmp_path, [[1, 24, 3]], accelerator="H100-SXM")
    document = json.loads(path.read_text())
    deployed = [{"kind": "Deployment", "dtype": "fp8", "kv_dtype": None}]
    path.write_text(json.dumps({**document, "inputs": {"deployment": deployed}}))
    found = planned_serving(path)
    found.check_same(specsim.deploy("llama-3.1-8b", "H100", dtype="fp8"))
    known = "must be fp8 and as the config says, .* got as the config says and fp8"
    with pytest.raises(InvalidArgumentError, match=known):
        found.check_same(specsim.deploy("llama-3.1-8b", "H100", kv_dtype="fp8"))


def test_export_takes_a_plan_beside_what_it_is_of(tmp_path: Path) -> None:
    path = written(tmp_path, [[1, 8, 5], [9, 24, 3]], max_num_seqs=24, accelerator="H100-SXM")
    with pytest.raises(InvalidArgumentError, match="capacity_plan needs beside it what was"):
        specsim.export("vllm", capacity_plan=path)
    deployed = specsim.deploy("llama-3.1-8b", "H100", "eagle3")
    found = specsim.export(
        "vllm", capacity_plan=path, deployment=deployed, alpha=0.7, model="head", gamma_max=5
    )
    assert found.schedule == ((1, 8, 5), (9, 24, 3))
    assert any("--max-num-seqs 24" in note for note in found.warnings)


def test_a_plan_that_drafts_nothing_needs_no_name_of_a_draft(tmp_path: Path) -> None:
    path = written(tmp_path, [[1, 24, 0]], max_num_seqs=24)
    deployed = specsim.deploy("llama-3.1-8b", "H100", "eagle3")
    found = specsim.export("vllm", capacity_plan=path, deployment=deployed, alpha=0.7)
    assert not found.text
    assert any("drafts nothing: leave it off" in each for each in found.warnings)


@pytest.mark.parametrize("given", [{"margin": 0.2}, {"most": 256}])
def test_export_refuses_what_a_plan_has_decided(tmp_path: Path, given: dict[str, Any]) -> None:
    path = written(tmp_path, [[1, 8, 5], [9, 24, 3]])
    deployed = specsim.deploy("llama-3.1-8b", "H100", "eagle3")
    words: dict[str, Any] = {"deployment": deployed, "alpha": 0.7, "model": "head"}
    (name,) = given
    with pytest.raises(InvalidArgumentError, match=f"{name} has no meaning with capacity_plan"):
        specsim.export("vllm", capacity_plan=path, **words, **given)
    assert specsim.export("vllm", **words).inputs["most"] == 256
