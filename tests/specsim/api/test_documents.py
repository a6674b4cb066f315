"""The JSON form of every result of the calls, and what each of them leaves out or warns of."""

from __future__ import annotations

import json
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest

import specsim
from specsim import Load, PricedDrafter, Result, deploy
from specsim.acceptance import BetaAcceptance
from specsim.checks import InvalidArgumentError
from specsim.schemes import SpeculativeDecoding
from tests.support.profiles import write_grid
from tests.support.refusals import refuses
from tests.support.traces import trace_of

LLAMAS = deploy("llama-3.1-8b", "H100-SXM", "draft_model:llama-3.2-1b")

CALLS: dict[str, Callable[[Path], Result]] = {
    "evaluation": lambda _: specsim.evaluate(0.8, 0.05, 5),
    "optimum": lambda _: specsim.optimize([0.8, 0.7], 0.05, gamma_max=2),
    "sweep": lambda _: specsim.optimize(np.array([0.5, 0.8]), [[0.1], [0.2]]),
    "acceptance": lambda _: specsim.optimize(BetaAcceptance(3, 1), 0.05),
    "profile": lambda folder: specsim.optimize(profile=write_grid(folder)),
    "profile's gamma": lambda folder: specsim.evaluate(profile=write_grid(folder), gamma=2),
    "shapes": lambda _: specsim.optimize(0.8, deployment=LLAMAS, load=Load([1, 8, 4000], [512])),
    "grid": lambda folder: specsim.optimize(profile=write_grid(folder), load=Load([1, 99])),
    "load's gamma": lambda _: specsim.evaluate(0.8, gamma=3, deployment=LLAMAS, load=Load([1])),
    "scheme": lambda _: specsim.evaluate(0.8, 0.05, scheme=SpeculativeDecoding(gamma=5)),
    "search": lambda _: specsim.optimize(
        0.8, 0.05, scheme="speculative", candidates={"gamma": range(1, 20)}
    ),
    "allocation": lambda _: specsim.allocate(
        [PricedDrafter("a", 0.8, 0.05), PricedDrafter("b", 0.7, 0.01)]
    ),
    "replay": lambda _: specsim.replay(
        trace_of([0.9, 0.5, 0.7, 1.0]), range(1, 4), c=0.1, policies=["grow-shrink"]
    ),
    "extrapolation": lambda _: specsim.extrapolate([0.8, 0.6], 4, counts=100),
    "export": lambda _: specsim.export("vllm", deployment=LLAMAS, alpha=0.8, model="d", most=8),
}


@pytest.mark.parametrize("name", list(CALLS))
def test_every_result_has_one_form(name: str, tmp_path: Path) -> None:
    result = CALLS[name](tmp_path)
    document = json.loads(result.to_json())
    assert list(document) == [
        *("schema", "version", "specsim", "inputs", "answer", "left_out", "warnings")
    ]
    assert document["schema"].startswith("specsim.")
    assert (document["version"], document["specsim"]) == (1, specsim.__version__)
    assert document["inputs"]
    assert len(document["answer"]["rows"]) == len(result.rows()) == len(result.frame()) > 0
    assert document["warnings"] == list(result.warnings)
    assert all(line and "\n" not in line for line in [*result.warnings, *result.sentences()])


def test_arrays_broadcast_and_rows_name_their_setting() -> None:
    found = CALLS["sweep"](Path())
    assert [(row["alpha"], row["c"], row["gamma"]) for row in found.rows()] == [
        *((0.5, 0.1, 2), (0.8, 0.1, 6), (0.5, 0.2, 1), (0.8, 0.2, 4))
    ]


def test_what_cannot_be_priced_is_left_out_with_its_reason() -> None:
    found = CALLS["shapes"](Path())
    assert [row["batch"] for row in found.rows()] == [1, 8]
    (left_out,) = found.left_out
    assert left_out.what == "batch 4,000 at context 512"
    assert "H100-SXM has 80 GiB" in left_out.why
    assert found.sentences()[0] == (
        "context 512: pays by 5% or more at every batch asked for that has a price, up to 8, "
        "draft tokens by batch 1-8: 4"
    )
    assert found.summary()["margin"] == 0.05


def test_very_many_batches_are_few_rows() -> None:
    found = specsim.optimize(0.2, deployment=LLAMAS, load=Load(range(1, 100_001), [512]))
    rows = found.rows()
    assert [rows[0]["batch"], rows[-1]["last_batch"]] == [1, 853]
    assert all(before["last_batch"] + 1 == after["batch"] for before, after in pairwise(rows))
    # Every batch at the edge of a row, and one between, against the best of that batch alone.
    for row in rows:
        for batch in (row["batch"], (row["batch"] + row["last_batch"]) // 2, row["last_batch"]):
            (alone,) = specsim.optimize(0.2, deployment=LLAMAS, load=Load([batch], [512])).rows()
            assert alone["gamma"] == row["gamma"]
    assert found.left_out[0].what == "batch 854-100,000 at context 512"
    assert any("of 853 batches were looked at" in line for line in found.warnings)
    assert len(found.to_json()) < 5_000


def test_a_batch_beyond_reason_is_answered(tmp_path: Path) -> None:
    found = specsim.optimize(profile=write_grid(tmp_path), load=Load([1, 64, 10**9], [64]))
    assert [row["batch"] for row in found.rows()] == [1, 64, 10**9]
    with pytest.raises(InvalidArgumentError, match=r"batches must be at most 1,000,000 numbers"):
        Load(range(1, 10**9))


def test_models_that_do_not_fit_each_other_are_doubted() -> None:
    swapped = deploy("qwen3-0.6b", "H100-SXM", "draft_model:llama-3.1-8b")
    found = specsim.optimize(0.8, deployment=swapped, load=Load([1], [512]))
    assert any("have target and draft changed places?" in line for line in found.warnings)
    assert any("151,936 tokens and the draft's 128,256" in line for line in found.warnings)
    with pytest.raises(InvalidArgumentError, match=r"context must be <= 40,960, .*, got 60,000"):
        specsim.optimize(0.8, deployment=swapped, load=Load([1], [60_000]))
    assert "changed places" in specsim.optimize(0.8, 5.0).warnings[0]


def test_an_extrapolated_curve_plans_a_load() -> None:
    curve = specsim.extrapolate([0.8, 0.6, 0.4], 5)
    found = specsim.optimize(curve, deployment=LLAMAS, load=Load([1], [512]))
    assert found.inputs["gamma_max"] == [5]
    assert found.rows()[0]["gamma"] <= 5


test_what_does_not_go_together_is_refused = refuses(
    (lambda: specsim.optimize(c=0.1, load=Load([1])), "c has no meaning by load"),
    (lambda: specsim.optimize(0.5, profile="p.json"), "alpha and profile exclude .* unless a load"),
    (lambda: specsim.optimize(0.5, 0.1, temperature=1.0), "temperature needs a profile"),
    (lambda: specsim.optimize(0.5, 0.1, costs={"a": 1.0}), "costs needs a scheme"),
    (lambda: specsim.optimize(0.5, load=Load([1])), "profile is missing, or a deployment"),
    (lambda: specsim.optimize(scheme="speculativ"), "did you mean speculative"),
)
