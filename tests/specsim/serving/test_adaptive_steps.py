"""Draft lengths that follow what was accepted; by hand, and what files may say."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import specsim
from specsim.checks import InvalidArgumentError, UnsupportedError
from specsim.serving import Requests, RoundAcceptance, SglangEngine, VllmEngine, run
from specsim.serving.adaptive_steps import AdaptiveSteps, StepSlot
from specsim.serving.analytic.of_setup import replica_of
from tests.support.serving_configurations import MODEL, following

ENGINE = SglangEngine(
    "0.5.23", 100_000, disable_overlap_schedule=True, disable_decode_cuda_graph=True
)
ONE = Requests(np.zeros(1), np.array([8]), np.array([400]))


def gammas(steps: AdaptiveSteps, accepted: float, requests: Requests = ONE) -> list[int]:
    """Draft lengths of all steps where every draft stands with that chance."""
    law = RoundAcceptance.law(np.full((8, 8), accepted) ** np.arange(1.0, 9.0))
    found = run(requests, ENGINE, MODEL, following(steps), law)
    assert found.steps is not None
    return [int(each) for each in found.steps.gamma]


def test_lengths_rise_where_all_is_accepted_and_fall_where_nothing_is() -> None:
    """SGLang's own configuration from 3 on: looked at after 15, 20, ... rounds."""
    risen = gammas(AdaptiveSteps.usual(), 1.0)
    # The prompt's step, with one run of the drafter, and 15 rounds, of which the last changes what
    # the next one drafts: the average is 3 - 0.8 ** 15 = 2.96, above 3 - 0.5.  After five rounds of
    # 5 it is 5 - 2.04 * 0.8 ** 5 = 4.33, after ten 4.78.
    assert risen[:16] == [1] + [3] * 15
    assert risen[16:26] == [5] * 10
    assert set(risen[26:]) == {7}
    fallen = gammas(AdaptiveSteps.usual(), 0.0)
    assert fallen[:16] == [1] + [3] * 15
    # The average is 2 * 0.8 ** 15 = 0.07: below 0.5 - 0.25, and 1 is the least.
    assert set(fallen[16:]) == {1}


def test_a_length_of_zero_is_left_again() -> None:
    steps = AdaptiveSteps((StepSlot(1, (0, 2), down_hysteresis=0.0, ema_alpha=1.0),), 2)
    found = gammas(steps, 0.0)
    assert found[:16] == [1] + [2] * 15
    assert found[16:21] == [0] * 5
    assert found[21:26] == [2] * 5
    assert found[26:31] == [0] * 5


def test_the_last_token_of_a_prompt_is_no_round() -> None:
    """After a round of which no draft stands the next draft one token.  All stand here."""
    slot = StepSlot(
        1, (1, 4), down_hysteresis=0.0, ema_alpha=1.0, update_interval=1, warmup_batches=0
    )
    steps, law = AdaptiveSteps((slot,), 4), RoundAcceptance.law([1.0] * 4)
    one = Requests(np.zeros(1), np.array([9]), np.array([20]))
    found = run(one, replace(ENGINE, chunked_prefill_size=8), MODEL, following(steps), law)
    assert found.steps is not None
    assert found.steps.prefill_tokens.tolist() == [8, 1, 0, 0, 0, 0]
    assert found.steps.gamma.tolist() == [1, 1, 4, 4, 4, 4]


def lengths_where_two_drafts_stand(slot: StepSlot, initial_steps: int) -> list[int]:
    """Draft lengths of all steps where of every round the first two drafts stand, and no third."""
    drafts = following(AdaptiveSteps((slot,), initial_steps))
    law = RoundAcceptance.law([1.0] * 2 + [0.0] * 6)
    found = run(ONE, ENGINE, MODEL, drafts, law)
    assert found.steps is not None
    return [int(each) for each in found.steps.gamma]


def test_a_length_falls_below_so_many_times_the_average() -> None:
    """Two drafts stand on average.  The average itself asks for no shorter draft here."""
    slot = StepSlot(1, (1, 3, 5, 7), down_hysteresis=-10.0, ceiling_coeff=1.5, ema_alpha=1.0)
    found = lengths_where_two_drafts_stand(slot, 7)
    # At most 1.5 * 2 = 3, which it has then.
    assert found[:16] == [1] + [7] * 15
    assert set(found[16:]) == {3}
    # At most 2, so one; from one on the average is one, and three the next above: a length that
    # rises may be more than the average, until the next look.
    found = lengths_where_two_drafts_stand(replace(slot, ceiling_coeff=1.0), 7)
    assert found[16:36] == [1] * 5 + [3] * 5 + [1] * 5 + [3] * 5
    assert set(lengths_where_two_drafts_stand(replace(slot, ceiling_coeff=0.0), 7)[1:]) == {7}


def test_an_average_that_has_fallen_to_zero_is_kept_where_drafts_are_tried_again() -> None:
    """A half of it is left by every round: after 1100 rounds nothing, to the last bit.  A round of
    two drafts is tried after every one without, and that nothing stands of them is not made up for
    by an average that was set anew.
    """
    slot = StepSlot(1, (0, 2), ema_alpha=0.5, update_interval=1, warmup_batches=1100)
    long = Requests(np.zeros(1), np.array([8]), np.array([1110]))
    found = gammas(AdaptiveSteps((slot,), 2), 0.0, long)
    assert set(found[1:1102]) == {2}
    assert found[1102:1108] == [0, 2] * 3


def test_slots_begin_at_their_batches() -> None:
    """Batches of eight requests have lengths of their own, which begin with the one asked for."""
    many = Requests(np.zeros(9), np.full(9, 8), np.full(9, 30))
    found = gammas(AdaptiveSteps.usual(1), 0.5, many)
    assert found[1] == 1
    assert AdaptiveSteps.usual(2).schedule == ((1, 7, 5), (8, 31, 1), (32, 63, 1), (64, 64, 0))
    assert AdaptiveSteps.usual().words == "adaptive 1: 1/3/5/7, 8: 0/1/3, 32: 0/1, 64: 0"
    assert following(AdaptiveSteps.usual()).gamma_max == 7


def test_a_file_is_sglangs(tmp_path: Path) -> None:
    file = tmp_path / "steps.json"
    file.write_text(json.dumps({"ema_alpha": 0.5, "1": {"candidate_steps": [5, 1]}}))
    assert AdaptiveSteps.read(file) == AdaptiveSteps((StepSlot(1, (1, 5), ema_alpha=0.5),))
    file.write_text(json.dumps({"strategy": "ema", "1": {"candidate_steps": [5, 1]}}))
    assert AdaptiveSteps.read(file) == AdaptiveSteps((StepSlot(1, (1, 5)),))
    file.write_text(json.dumps({"strategy": "throughput_aware", "1": {"candidate_steps": [1]}}))
    with pytest.raises(UnsupportedError, match="strategy 'throughput_aware' is not simulated"):
        AdaptiveSteps.read(file)
    for content, said in (
        ({"1": {"candidate_step": [1]}}, "slot 1 takes candidate_steps, "),
        ({"1": {}}, "slot 1: candidate_steps must be a list"),
        ({"1": [1]}, "slot 1 must be an object"),
        ({}, "slots must begin at rising batches"),
        ([], "must hold an object"),
        ({"\u00b2": {"candidate_steps": [1]}}, "slots must begin at rising batches"),
        ({"9" * 5000: {"candidate_steps": [1]}}, "slots must begin at rising batches"),
        ({"1": {"candidate_steps": [1], "ema_alpha": 10**400}}, "ema_alpha must be a number"),
    ):
        file.write_text(json.dumps(content))
        with pytest.raises(InvalidArgumentError, match=said):
            AdaptiveSteps.read(file)
    file.write_text('{"a":' * 100_000)
    with pytest.raises(InvalidArgumentError, match="cannot be read"):
        AdaptiveSteps.read(file)
    with pytest.raises(InvalidArgumentError, match="is a folder"):
        AdaptiveSteps.read(tmp_path)
    with pytest.raises(InvalidArgumentError, match="candidate_steps must be one draft length"):
        StepSlot(1, ())


def test_only_sglang_adapts_and_only_the_simulator_knows() -> None:
    drafts = following(AdaptiveSteps.usual())
    law = RoundAcceptance.law(np.full((8, 8), 0.5))
    vllm = VllmEngine("0.33.0", 100)
    with pytest.raises(UnsupportedError, match="are SGLang's"):
        run(ONE, vllm, MODEL, drafts, law)
    with pytest.raises(UnsupportedError, match="simulate them"):
        replica_of(ONE, ENGINE, MODEL, drafts, law)


def test_serve_takes_them() -> None:
    found = specsim.serve(
        specsim.workload(rate=20, requests=200, prompt=20, output=60),
        gamma=AdaptiveSteps.usual(),
        alpha=0.9,
        step_model="step_ms=5,token_us=50,draft_run_ms=0.5",
        engine="sglang:max_total_num_tokens=100000,disable_decode_cuda_graph=yes",
    )
    assert "adaptive 1: 1/3/5/7" in found.title
    run_of = found.served.runs[0]
    assert run_of.steps is not None
    assert len(set(run_of.steps.gamma.tolist())) > 1
