"""Explanations: parts against the runs written out, reasons on settings made for each."""

from __future__ import annotations

import json
from dataclasses import replace
from math import log
from pathlib import Path
from typing import Any

import pytest

import specsim
from specsim import deploy, hardware
from specsim.batching.cost import CellUnavailableError
from specsim.batching.measured_cost import MeasuredLoadCost
from specsim.batching.point import BatchPoint
from specsim.checks import InvalidArgumentError, UnsupportedError
from specsim.hardware.roofline import expected_experts
from specsim.profiles import read_profile
from tests.support.profiles import write_grid

DENSE, MOE = "llama-3.1-8b", "qwen3-30b-a3b"
GRAPHS: dict[str, Any] = {"graph_tokens": 128, "eager_layer_us": 300}
PCIE: dict[str, Any] = {"tensor_parallel": 4, "interconnect": "PCIe-4.0"}
# Target, drafter, batch, and how it is deployed.
SETTINGS: dict[str, tuple[str, str, int, dict[str, Any]]] = {
    "draft model": (DENSE, "draft_model:llama-3.2-1b", 16, {"efficiency": (0.6, 0.8)}),
    "experts": (MOE, "eagle3", 32, {"layer_us": 10, "overhead_us": 800, "round_us": 300}),
    "graphs": ("llama-3.3-70b", "eagle3", 32, {"tensor_parallel": 4, "layer_us": 5, **GRAPHS}),
    "slow link": ("llama-3.3-70b", "eagle3", 32, {**PCIE, **GRAPHS}),
    "pipeline": ("llama-3.3-70b", "draft_model:llama-3.2-1b", 7, {"pipeline_parallel": 4}),
    "found drafts": (DENSE, "ngram:match=0.4,host_us=20", 3, {"overhead_us": 100}),
    "tree": (DENSE, "eagle:topk=4,slots=16", 8, {}),
    "modules": ("deepseek-v3", "mtp", 64, {"tensor_parallel": 8, "expert_parallel": 8}),
    "one run": (DENSE, "medusa", 8, {}),
}


def explained(name: str, gamma: int = 4, alpha: float = 0.7) -> specsim.Explanation:
    target, drafter, batch, more = SETTINGS[name]
    deployed = deploy(target, "H200", drafter, **more)
    return specsim.explain(alpha, gamma=gamma, batch=batch, context=512, deployment=deployed)


@pytest.mark.parametrize("name", SETTINGS)
@pytest.mark.parametrize("gamma", [1, 4])
def test_parts_and_losses_add_up(name: str, gamma: int) -> None:
    found = explained(name, gamma)
    point, rows = found.point, found.rows()
    for step, seconds in (("round", point.block_s), ("plain step", point.spent.plain_step_s)):
        parts = [row for row in rows if row["step"] == step]
        assert sum(row["ms"] for row in parts) == pytest.approx(1e3 * seconds, rel=1e-12)
        assert sum(row["share"] for row in parts) == pytest.approx(1.0, rel=1e-12)
        assert all(row["ms"] >= 0 for row in parts)
    lost = sum(found.diagnosis.losses.values())
    assert lost == pytest.approx(log((gamma + 1) / point.speedup), rel=1e-12)


@pytest.mark.parametrize("name", SETTINGS)
def test_a_round_is_that_of_evaluate(name: str) -> None:
    target, drafter, batch, more = SETTINGS[name]
    deployed = deploy(target, "H200", drafter, **more)
    load = specsim.Load([batch], [512])
    (row,) = specsim.evaluate(0.7, gamma=4, deployment=deployed, load=load).rows()
    summary = explained(name).summary()
    for figure in ("batch", "context", "gamma", "speedup", "tokens_per_call", "tokens_per_s"):
        assert summary[figure] == row[figure]


def test_parts_of_a_model_over_cards() -> None:
    """Runs written out: what cards send each other is taken out of each, and is a part."""
    found = explained("slow link")
    shape, card = hardware.shape("llama-3.3-70b"), hardware.accelerator("H200")
    link = hardware.interconnect("PCIe-4.0")
    tensor = specsim.Parallelism(tensor=4)
    efficiency = specsim.Efficiency(graph_tokens=128, eager_layer_s=300e-6)
    run = hardware.roofline(
        shape, card, 5, 32, 512, parallel=tensor, interconnect=link, efficiency=efficiency
    )
    parts = {row["part"]: row for row in found.rows() if row["step"] == "round"}
    verification = parts["verification"]
    assert verification["ms"] == pytest.approx(1e3 * (run.seconds - run.communication_s))
    assert verification["tokens"] == 5 * 32
    assert verification["gflops"] == pytest.approx(1e-9 * run.flops)
    plain = {row["part"]: row for row in found.rows() if row["step"] == "plain step"}
    one = hardware.roofline(shape, card, 1, 32, 512, parallel=tensor, interconnect=link)
    assert plain["communication"]["ms"] == pytest.approx(1e3 * one.communication_s)
    assert found.target_efficiency == pytest.approx(one.seconds / run.seconds)


def test_experts_that_a_run_touches() -> None:
    rows = {(row["step"], row["part"]): row for row in explained("experts").rows()}
    for key, tokens in ((("round", "verification"), 160), (("plain step", "target run"), 32)):
        assert rows[key]["experts"] == pytest.approx(expected_experts(128, 8, tokens))
        assert rows[key]["of_experts"] == 128
    assert rows["round", "first draft run"]["experts"] is None
    modules = {row["part"]: row for row in explained("modules").rows()}
    assert modules["later draft runs"]["of_experts"] == 256


# What each setting was made to suffer from: target, drafter, batch, acceptance, deployment.
REASONS: dict[str, tuple[str, str, int, float, dict[str, Any]]] = {
    "acceptance": (DENSE, "eagle3", 1, 0.2, {}),
    "drafts": (DENSE, "draft_model:llama-3.2-3b", 1, 0.6, {}),
    "experts": (MOE, "eagle3", 4, 0.7, {}),
    "compute": (DENSE, "eagle3", 128, 0.7, {}),
    # Linear attention writes a state for every token that may be the last accepted one.
    "memory": (
        "qwen3-next-80b-a3b",
        "eagle3",
        64,
        0.7,
        {"tensor_parallel": 2, "routing_exponent": 0},
    ),
    "graph": ("llama-3.3-70b", "eagle3", 32, 0.7, {"tensor_parallel": 4, **GRAPHS}),
    "communication": ("llama-3.3-70b", "eagle3", 16, 0.7, PCIE),
    "host": (DENSE, "eagle3", 4, 0.7, {"round_us": 9000, "overhead_us": 100}),
}


@pytest.mark.parametrize("reason", REASONS)
def test_reasons(reason: str) -> None:
    target, drafter, batch, alpha, more = REASONS[reason]
    deployed = deploy(target, "H200", drafter, **more)
    found = specsim.explain(alpha, gamma=5, batch=batch, context=512, deployment=deployed)
    assert found.diagnosis.reason == reason
    named = {
        "experts": "touches 101 of 128 experts of a layer, a plain step 29",
        "compute": "arithmetic of 6 tokens of each of 128 requests",
        "graph": "up to 192 tokens, the largest CUDA graph 128",
        "host": "9.1 ms of a round, 0.1 ms of a plain step",
        "acceptance": "yields 1.25 of the 6 tokens",
    }
    assert named.get(reason, "") in found.sentences()[1]


def test_the_tokens_of_a_tree_are_those_that_are_verified() -> None:
    found = specsim.explain(
        0.7,
        gamma=5,
        batch=128,
        context=512,
        deployment=deploy(DENSE, "H200", "eagle:topk=4,slots=32"),
    )
    assert "32 tokens of each of 128 requests" in " ".join(found.sentences())


def test_a_graph_as_wide_as_the_round_costs_nothing_more() -> None:
    wide = replace(deploy(DENSE, "H100", "eagle3", **GRAPHS))
    found = specsim.explain(0.7, gamma=5, batch=32, context=512, deployment=wide)
    (change,) = [each for each in found.changes if each.what == "graph tokens 128 -> 192"]
    free = deploy(DENSE, "H100", "eagle3")
    assert change.point.speedup == pytest.approx(
        specsim.explain(0.7, gamma=5, batch=32, context=512, deployment=free).point.speedup
    )


def test_changes_are_what_the_changed_deployment_gives() -> None:
    setting: dict[str, Any] = {"overhead_us": 500, "round_us": 1000, "dtype": "fp8"}
    here = {"gamma": 4, "batch": 16, "context": 4096}

    def point(**changed: Any) -> BatchPoint:
        asked = {**here, **{name: changed.pop(name) for name in here if name in changed}}
        drafter = changed.pop("drafter", "eagle3:layers=4")
        deployed = deploy(DENSE, "H100", drafter, **{**setting, **changed})
        return specsim.explain(0.6, deployment=deployed, **asked).point

    drafters = ["eagle3:layers=4", "medusa:heads=3", "eagle"]
    deployed = deploy(DENSE, "H100", drafters, **setting)
    found = specsim.explain(0.6, deployment=deployed, **here)
    expected = {
        "drafter medusa:heads=3 at gamma 3": point(drafter="medusa:heads=3", gamma=3),
        "drafter eagle": point(drafter="eagle"),
        "host time -> 0": point(overhead_us=0, round_us=0),
        "tensor parallel 1 -> 2": point(tensor_parallel=2),
        "KV cache -> fp8": point(kv_dtype="fp8"),
        "batch 16 -> 8": point(batch=8),
        "batch 16 -> 32": point(batch=32),
    }
    load = specsim.Load([16], [4096])
    alone = deploy(DENSE, "H100", "eagle3:layers=4", **setting)
    (best,) = specsim.optimize(0.6, deployment=alone, load=load).rows()
    expected[f"gamma 4 -> {best['gamma']}"] = point(gamma=best["gamma"])
    named = {what for what in expected if what.startswith("drafter")}
    helps = {what for what, value in expected.items() if value.speedup > found.point.speedup}
    lowers = {w for w, value in expected.items() if value.tokens_per_s < found.point.tokens_per_s}
    assert lowers == {"batch 16 -> 8"}
    most = sorted(expected, key=lambda what: (what in lowers, -expected[what].speedup))
    assert len(helps) <= 6
    assert [each.what for each in found.changes] == [what for what in most if what in named | helps]
    for each in found.changes:
        assert each.point.speedup == pytest.approx(expected[each.what].speedup, rel=1e-12)


def test_more_cards_are_not_the_best_single_change() -> None:
    deployed = deploy(MOE, "H100", "eagle3")
    found = specsim.explain(0.7, gamma=11, batch=8, context=512, deployment=deployed)
    (cards,) = [each for each in found.change_rows() if each["change"].startswith("tensor")]
    assert cards["change"] == "tensor parallel 1 -> 2"
    assert cards["assumes"] == "needs twice the cards"
    assert found.sentences()[-1].startswith(
        "no single change that was tried makes it faster; batch 8 -> 16 would give "
    )


def test_changes_that_yield_fewer_tokens_per_second_come_last() -> None:
    deployed = deploy(DENSE, "H100", "eagle3")
    found = specsim.explain(0.7, gamma=3, batch=256, context=512, deployment=deployed)
    fewer = [each.point.tokens_per_s < found.point.tokens_per_s for each in found.changes]
    assert fewer == sorted(fewer)
    assert found.changes[-1].what == "batch 256 -> 128"
    assert found.changes[-1].point.speedup > found.changes[0].point.speedup


def test_a_named_drafter_without_room_is_left_out() -> None:
    drafters = ["eagle3", "draft_model:llama-3.1-8b"]
    deployed = deploy("llama-3.1-70b", "H200", drafters, dtype="fp8")
    found = specsim.explain(0.7, gamma=3, batch=50, context=2048, deployment=deployed)
    assert [each.what for each in found.left_out] == ["drafter draft_model:llama-3.1-8b"]
    assert "room for" in found.left_out[0].why


@pytest.mark.parametrize("gamma", [4, 20])
def test_drafters_of_mixed_rates_are_changed_like_those_of_their_own(gamma: int) -> None:
    """One rate for those without their own is the same as that rate for each of these."""
    drafters = ["eagle3:alpha=0.7", "draft_model:llama-3.2-1b"]
    host: dict[str, Any] = {"graph_tokens": 4, "eager_layer_us": 300}

    def changes(alpha: float | None, *several: str) -> list[tuple[str, float]]:
        deployment = deploy("llama-3.1-8b", "H100", list(several), **host)
        found = specsim.explain(alpha, gamma=gamma, deployment=deployment)
        assert not found.left_out
        return [(each.what, each.point.speedup) for each in found.changes]

    for first, other in (drafters, drafters[::-1]):
        own = [each if "alpha" in each else f"{each},alpha=0.8" for each in (first, other)]
        assert changes(0.8, first, other) == changes(None, *own)


def test_a_profile_knows_seconds_only(tmp_path: Path) -> None:
    path = write_grid(tmp_path)
    found = specsim.explain(0.8, gamma=2, batch=4, context=64, profile=path, temperature=1.0)
    cost = MeasuredLoadCost.of(read_profile(path), 1.0)
    expected = {
        ("round", "draft runs"): cost.draft_s(2, 4, 64, 0.8**2),
        ("round", "verification"): cost.verify_s(2, 4, 64),
        ("round", "host"): cost.overhead_s(2, 4),
        ("plain step", "target run"): cost.verify_s(0, 4, 64),
        ("plain step", "host"): cost.overhead_s(0, 4),
    }
    rows = {(row["step"], row["part"]): row for row in found.rows()}
    assert rows.keys() == expected.keys()
    for key, seconds in expected.items():
        assert rows[key]["ms"] == pytest.approx(1e3 * seconds)
    assert rows["round", "verification"]["bound"] is None
    assert found.diagnosis.reason == "verification"
    assert found.target_efficiency == pytest.approx(
        cost.verify_s(0, 4, 64) / cost.verify_s(2, 4, 64)
    )
    # Batch 2 and 8 lie between measured ones; beyond them nothing is tried.
    edge = specsim.explain(0.8, gamma=2, batch=64, context=64, profile=path)
    assert not any("128" in each.what for each in edge.changes)


def test_changes_of_a_profile_are_as_sure_as_when_they_are_asked_for(tmp_path: Path) -> None:
    path = write_grid(tmp_path)
    found = specsim.explain(gamma=3, batch=4, context=64, profile=path)
    rows = found.change_rows()
    assert [row["change"] for row in rows] == ["gamma 3 -> 2", "batch 4 -> 2"]
    for row in rows:
        asked = {"gamma": 3, "batch": 4}
        name, _, _, value = row["change"].split()
        other = specsim.explain(**{**asked, name: int(value)}, context=64, profile=path)
        known = other.decision.speedup
        assert known is not None
        assert (row["speedup"], row["high"]) == pytest.approx((known.best, known.high))
        # The best length was chosen among others, which flatters it.
        assert row["low"] < known.low if name == "gamma" else row["low"] == known.low

    best = rows[0]
    assert found.sentences()[-1] == (
        f"best single change: gamma 3 -> 2 ({best['speedup']:.2f}x, {best['low']:.2f} to "
        f"{best['high']:.2f})"
    )


def test_a_profile_replays_its_own_acceptance(tmp_path: Path) -> None:
    path = write_grid(tmp_path)
    load = specsim.Load([4], [64])
    (row,) = specsim.evaluate(gamma=2, profile=path, load=load).rows()
    found = specsim.explain(gamma=2, batch=4, context=64, profile=path)
    assert found.summary()["tokens_per_call"] == row["tokens_per_call"]
    assert found.summary()["temperature"] == 1.0


@pytest.mark.parametrize(
    ("asked", "error", "message"),
    [
        ({"gamma": 0}, InvalidArgumentError, r"gamma must be a whole number in \[1, 256\], got 0"),
        ({"batch": 0}, InvalidArgumentError, "batch must be a whole number >= 1, got 0"),
        ({"context": 200_000}, InvalidArgumentError, r"context must be <= 131,072"),
        ({"batch": 100_000}, CellUnavailableError, "room for"),
        ({"alpha": None}, InvalidArgumentError, "alpha is missing"),
        ({"temperature": 1.0}, InvalidArgumentError, "temperature needs a profile"),
        ({"deployment": None}, InvalidArgumentError, "profile is missing"),
        (
            {"deployment": deploy(DENSE, "H100", "medusa:heads=3")},
            UnsupportedError,
            "gamma must be <= 3 with medusa:heads=3, got 5",
        ),
        ({"deployment": deploy(DENSE, "H100")}, InvalidArgumentError, "as in --draft llama"),
    ],
)
def test_what_cannot_be_explained(asked: dict[str, Any], error: type, message: str) -> None:
    usual = {"alpha": 0.7, "gamma": 5, "deployment": deploy(DENSE, "H100", "eagle3")}
    with pytest.raises(error, match=message):
        specsim.explain(**{**usual, **asked})


def test_drafts_longer_than_were_timed(tmp_path: Path) -> None:
    with pytest.raises(
        InvalidArgumentError, match="gamma must be <= 4, the longest that was timed"
    ):
        specsim.explain(0.7, gamma=5, profile=write_grid(tmp_path))


@pytest.fixture
def counted(tmp_path: Path) -> Path:
    """An acceptance file with the step times of batch 8, 10 ms without drafts, 16 ms with 2."""
    names = []
    for gamma, itl in ((0, 10.0), (2, 16.0)):
        result: dict[str, Any] = {"median_itl_ms": itl, "max_concurrency": 8}
        if gamma:
            result |= {
                "spec_decode_acceptance_rate": 50.0,
                "spec_decode_acceptance_length": 2.0,
                "spec_decode_num_drafts": 1000,
                "spec_decode_draft_tokens": 2000,
                "spec_decode_accepted_tokens": 1000,
                "spec_decode_per_position_acceptance_rates": [0.6, 0.4],
            }
        names.append(tmp_path / f"k{gamma}.json")
        names[-1].write_text(json.dumps(result))
    specsim.read(*names, method="eagle3", out=tmp_path / "acceptance.json")
    return tmp_path / "acceptance.json"


def test_step_times_of_an_engine_are_whole(counted: Path) -> None:
    found = specsim.explain(gamma=2, profile=counted)
    assert [(row["part"], row["ms"]) for row in found.rows()] == [
        ("whole step", pytest.approx(16.0)),
        ("whole step", pytest.approx(10.0)),
    ]
    assert found.diagnosis.reason == "round"
    assert found.target_efficiency is None
    assert found.summary()["speedup"] == pytest.approx(2.0 * 10 / 16)
    assert found.summary()["low"] < found.summary()["speedup"] < found.summary()["high"]


def test_counts_of_an_engine_priced_by_a_deployment(counted: Path) -> None:
    deployed = deploy(DENSE, "H100", "eagle3", round_us=500)
    found = specsim.explain(gamma=2, batch=8, context=512, deployment=deployed, profile=counted)
    assert found.point.tokens_per_call == pytest.approx(2.0)
    other = {each.what: each.point for each in found.changes}["host time -> 0"]
    assert other.tokens_per_call == found.point.tokens_per_call
