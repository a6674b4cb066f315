"""What serve and plan say of a profile beyond the runs that were timed."""

from __future__ import annotations

import pytest

import specsim
from specsim.checks import SpecsimError
from specsim.deployment.memory import BLOCK_TOKENS
from specsim.serving.engines.vllm import VllmEngine
from tests.support.profiles import ON_H200

EAGER = ON_H200.with_name("costs-8b-1b-eager.json")
WORK = specsim.workload(rate=5, prompt=1000, output=50, requests=50)


def warnings(**given: object) -> list[str]:
    words: dict = {"alpha": 0.8, "gamma": 2, "profile": ON_H200, **given}
    return list(specsim.serve(WORK, **words).warnings)


def test_prompts_and_more_requests_than_were_timed_are_told() -> None:
    said = warnings()
    assert any("no run over a prompt was timed" in each for each in said)
    assert any("timed up to 64 requests; with more, up to 1,024" in each for each in said)
    assert not any("were timed at contexts" in each for each in said)
    few = warnings(engine="vllm:max_num_seqs=64")
    assert not any("with more" in each for each in few)


def test_other_contexts_than_were_timed_are_told() -> None:
    long = specsim.workload(rate=0.5, prompt=20_000, output=50, requests=20)
    said = specsim.serve(long, alpha=0.8, gamma=2, profile=ON_H200).warnings
    assert any("timed at contexts of 512 to 4,096 tokens" in each for each in said)


@pytest.mark.parametrize("gamma", [None, 2])
def test_of_one_batch_nothing_is_served(gamma: int | None) -> None:
    alpha = None if gamma is None else 0.8
    with pytest.raises(SpecsimError, match="timed at batch 1 alone"):
        specsim.serve(WORK, alpha=alpha, gamma=gamma, profile=EAGER)


def test_plain_decoding_asks_for_no_acceptance() -> None:
    """The profile is of costs alone."""
    plain, told = (specsim.serve(WORK, alpha=alpha, profile=ON_H200) for alpha in (None, 0.8))
    assert plain.figures["e2e_mean"].best == told.figures["e2e_mean"].best
    with pytest.raises(SpecsimError, match="alpha is missing"):
        specsim.serve(WORK, gamma=2, profile=ON_H200)


def test_blocks_are_those_of_the_card_that_was_timed() -> None:
    """Beside 15 and 2.3 GiB of weights 0.9 of 141 GiB less 2 hold 10 GiB for each 65,536 tokens."""
    engine = specsim.serve(WORK, alpha=0.8, gamma=2, profile=ON_H200).setup.engine
    assert isinstance(engine, VllmEngine)
    gib = 0.9 * 141 - 2 - 15 - 2.3
    assert engine.num_gpu_blocks == pytest.approx(gib / 10 * 65_536 / BLOCK_TOKENS, rel=0.01)


def test_a_plan_names_prompts_where_rounds_alone_still_gain() -> None:
    """The drafter reads them too, and at this rate they take more than its rounds gain."""
    planned = specsim.plan(
        specsim.workload(rate=10, prompt=1000, output=200),
        slo="ttft_p99=1,tpot_p99=0.03",
        alpha=0.8,
        profile=ON_H200,
        gammas=[1],
        simulated=False,
    )
    assert planned.reason == "prompts"
    assert planned.why.startswith("prompts, whose reading takes 1.2")
