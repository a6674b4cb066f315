"""Seconds of a step from coefficients and from costs by load, against what these say."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from specsim import deploy
from specsim.batching.cost import LoadCost
from specsim.batching.measured_cost import MeasuredLoadCost
from specsim.batching.step_cost import StepLoadCost
from specsim.checks import InvalidArgumentError, UnsupportedError
from specsim.counts.prompt_costs import PromptCosts
from specsim.counts.step_costs import StepCosts
from specsim.counts.steps import PromptTime, StepTime, StreamedStep, StreamedSteps
from specsim.deployment.cost import DeployedCost
from specsim.deployment.deployment import Deployment
from specsim.hardware.roofline import PEAK
from specsim.profiles import read_profile
from specsim.serving.costs.coefficients import coefficients, coefficients_of
from specsim.serving.costs.load_cost import step_model_of
from specsim.serving.costs.words import step_model_of_words
from specsim.serving.step_model import StepModel, StepTerm
from tests.support.loads import LLAMAS, roofline
from tests.support.profiles import write_grid
from tests.support.step_models import seconds

BONUS = np.array([1.0, 0.8, 0.6, 0.5])


def decodes(gamma: int, batch: int, context: int) -> dict[str, float]:
    """A step of equal requests that decode and draft as many tokens again."""
    tokens = batch * (gamma + 1)
    return {
        "tokens": tokens,
        "verified_tokens": tokens,
        "decode_width": gamma + 1,
        "decodes": batch,
        "mean_decode_context": context + gamma + 1,
        "sequences": batch,
        "drafting": batch,
        "gamma": gamma,
    }


def chunk(tokens: int) -> dict[str, float]:
    """A step that reads so many tokens of a prompt and nothing else."""
    return {"tokens": tokens, "prefill_tokens": tokens, "prefill_chunks": 1, "sequences": 1}


def test_coefficients_by_hand() -> None:
    model = coefficients_of(
        "step_ms=5, token_us=20,context_token_ns=3,host_ms=1,draft_run_ms=0.5,draft_token_us=10"
    )
    found = seconds(model, tokens=40, decode_context=1000, drafting=8, gamma=4)
    assert found["target"] == pytest.approx(5e-3 + 40 * 20e-6 + 3e-6)
    assert found["draft"] == pytest.approx(4 * 0.5e-3 + 4 * 8 * 10e-6)
    assert found["host"] == 1e-3
    same = coefficients(step_ms=5, token_us=20, context_token_ns=3, host_ms=1, draft_run_ms=0.5)
    assert seconds(same, tokens=40, gamma=0)["draft"] == 0
    assert (same.frontend_s, coefficients(step_ms=5, frontend_ms=3).frontend_s) == (0.0, 0.003)
    scattered = coefficients_of("step_ms=5,step_variation=0.2,frontend_ms=3,frontend_variation=1")
    assert (scattered.step_variation, scattered.frontend_variation) == (0.2, 1.0)
    assert (scattered.prompt_step_variation, scattered.frontend_s) == (0.0, 0.003)
    assert scattered.scatters
    nothing: list[StepTerm] = []
    for each in (scattered.at_speed(2.0), scattered.__add__(nothing), scattered.without_drafter()):
        assert (each.step_variation, each.frontend_variation) == (0.2, 1.0)
    assert not same.scatters
    # Of nothing.
    assert not coefficients(step_ms=5, frontend_variation=1).scatters
    with pytest.raises(InvalidArgumentError, match=r"step_variation must be .*got 4"):
        coefficients(step_ms=5, step_variation=4)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ("step_ms", "coefficients of a step must be NAME=VALUE,... of step_ms, token_us"),
        ("stepms=4", "must be one of step_ms, token_us"),
        ("step_ms=-4", "step_ms must be >= 0, got -4"),
        ("", "coefficients must be some of"),
        ("step_ms=5,step_ms=50", "have step_ms twice, got 'step_ms=5,step_ms=50'"),
        ("step_ms=0", "one of step_ms, token_us, sequence_us, host_ms, host_sequence_us must be >"),
        ("draft_run_ms=5,frontend_ms=1", "got draft_run_ms, frontend_ms: every step takes time"),
    ],
)
def test_coefficients_that_are_refused(words: str, said: str) -> None:
    with pytest.raises(InvalidArgumentError, match=said):
        coefficients_of(words)


def test_without_a_drafter_its_terms_cost_nothing() -> None:
    given = {"step_ms": 5.0, "frontend_ms": 3.0}
    model = coefficients(**given, draft_run_ms=1, draft_prefill_token_us=50)
    plain = model.without_drafter()
    assert seconds(plain, gamma=2, prefill_tokens=100) == {"target": 5e-3}
    assert plain.frontend_s == model.frontend_s == 3e-3
    same = coefficients(**given).without_drafter()
    assert seconds(same, prefill_tokens=100) == {"target": 5e-3}
    alone = StepModel((StepTerm("draft", 5e-3),))
    assert alone.without_drafter() is alone


def test_tables_of_kernels_by_words(tmp_path: Path) -> None:
    (tmp_path / "dense.csv").write_text("layer,tokens,time_us\nmlp,1,10\nmlp,64,20\n")
    (tmp_path / "per_sequence.csv").write_text("layer,sequences,time_us\nhead,1,5\nhead,8,9\n")
    rows = [
        f"{chunk},{before},{n},{context},{7 if n or chunk else 0}"
        for chunk in (0, 16)
        for before in (0, 64)
        for n in (0, 4)
        for context in (0, 64)
    ]
    header = "prefill_chunk,kv_prefill,n_decode,kv_decode,time_us"
    (tmp_path / "attention.csv").write_text("\n".join([header, *rows]))
    model = step_model_of_words(f"kernels:{tmp_path},layers=2,between_ms=1.5")
    found = seconds(model, padded_tokens=1, decodes=4, mean_decode_context=64, sampled=1)
    assert found["dense"] == pytest.approx(20e-6)
    assert found["between"] == pytest.approx(1.5e-3)
    for name, text, said in (
        ("attention", "\n".join([header, *rows, rows[3]]), "row 16 is of the same prefill_chunk"),
        ("attention", "\n".join([header, *rows[:1]]), "must have two values of each quantity"),
        ("dense", "layer,tokens,time_us\nmlp,1,-3\n", "time_us must be numbers >= 0, got -3"),
        ("dense", "layer,tokens,time_us\nmlp,one,3\n", "tokens must be numbers >= 0, got one"),
        ("dense", "layer,tokens,time_us\n", "has no rows"),
        ("dense", "layer,tokens,time_us\nmlp,1,3\n,1,3\n", "layer must be a name, row 1 has none"),
        ("dense", "layer,tokens\n", "has columns layer, tokens, expected"),
        ("dense", "", "cannot be read"),
    ):
        whole = (tmp_path / f"{name}.csv").read_text()
        (tmp_path / f"{name}.csv").write_text(text)
        with pytest.raises(InvalidArgumentError, match=said):
            step_model_of_words(f"kernels:{tmp_path},layers=2")
        (tmp_path / f"{name}.csv").write_text(whole)
    with pytest.raises(InvalidArgumentError, match="layers is missing: kernels:FOLDER,layers=N"):
        step_model_of_words(f"kernels:{tmp_path}")
    with pytest.raises(InvalidArgumentError, match="kernels have layers twice"):
        step_model_of_words(f"kernels:{tmp_path},layers=2,layers=3")
    with pytest.raises(InvalidArgumentError, match="kernels take layers, between_ms, host_ms, got"):
        step_model_of_words(f"kernels:{tmp_path},layer=2")


@pytest.fixture(params=["roofline", "grid"])
def cost(request: pytest.FixtureRequest, tmp_path: Path) -> LoadCost:
    if request.param == "roofline":
        return roofline(4)
    return MeasuredLoadCost.of(read_profile(write_grid(tmp_path)), 1.0)


@pytest.mark.parametrize("gamma", [0, 1, 3])
@pytest.mark.parametrize("batch", [1, 2, 64])
def test_rounds_of_equal_requests_cost_what_they_do_by_load(
    cost: LoadCost, gamma: int, batch: int
) -> None:
    """At knots of the tables there is nothing between."""
    model = step_model_of(cost, 3, BONUS, 64, 512)
    # Tables have the context with the tokens of the step: 512 is a knot.
    context = 512 - gamma - 1
    found = seconds(model, **decodes(gamma, batch, context))
    assert found["target"] == pytest.approx(cost.verify_s(gamma, batch, context))
    assert found["overhead"] == pytest.approx(cost.overhead_s(gamma, batch))
    draft = (
        cost.draft_s(gamma, batch, 512, BONUS[gamma]) if gamma else cost.loaded_s(batch, context)
    )
    assert found["draft"] == pytest.approx(draft, rel=1e-3)


def test_between_knots_little_is_lost(cost: LoadCost) -> None:
    """Within 3 % of what the cost says, at batches and contexts that are no knots."""
    model = step_model_of(cost, 3, BONUS, 200, 4096)
    for batch, context in ((3, 300), (11, 700), (50, 1500), (130, 900)):
        found = seconds(model, **decodes(3, batch, context))
        assert found["target"] == pytest.approx(cost.verify_s(3, batch, context), rel=0.03)


def test_a_prompt_alone_costs_a_run_over_it() -> None:
    model = step_model_of(roofline(1), 0, BONUS, 64, 8192)
    for tokens in (1, 16384):
        found = seconds(model, **chunk(tokens))
        run, _ = roofline(1).prefill_s(tokens)
        assert found["target"] == pytest.approx(run, rel=1e-6)


def test_a_prompt_is_not_free_beside_decodes_that_keep_the_arithmetic_busy() -> None:
    """1,024 verified tokens are many times what the weights' reading hides: a token of a prompt
    takes as long as one of theirs.  Beside a few decodes it is hidden like them.
    """
    cost = roofline(1)
    model = step_model_of(cost, 3, BONUS, 256, 512)

    def added(batch: int, tokens: int) -> float:
        alone = decodes(3, batch, 500)
        mixed = {**alone, "tokens": alone["tokens"] + tokens, "prefill_tokens": tokens}
        both, only = (seconds(model, **each)["target"] for each in (mixed, alone))
        return both - only

    each_s = (cost.verify_s(3, 256, 0) - cost.verify_s(3, 128, 0)) / 512
    assert added(256, 100) == pytest.approx(100 * each_s, rel=0.1)
    alone = seconds(model, **chunk(100))["target"] - seconds(model, **chunk(1))["target"]
    assert added(2, 100) == pytest.approx(alone, abs=0.02 * 100 * each_s)
    assert alone < 0.1 * 100 * each_s
    # Attention apart, it does not matter whose the tokens are.
    wide = seconds(model, **decodes(3, 256, 0))["target"]
    assert added(128, 512) == pytest.approx(
        wide - seconds(model, **decodes(3, 128, 0))["target"], rel=0.1
    )


@pytest.mark.parametrize(
    "deployment",
    [
        deploy("llama-3.1-8b", "L40S"),
        deploy("llama-3.1-70b", "H100", tensor_parallel=4),
        deploy("mixtral-8x7b", "H100", tensor_parallel=2),
        deploy("qwen3-30b-a3b", "H100"),
    ],
)
def test_prompts_and_decodes_together_take_less_than_apart(deployment: Deployment) -> None:
    """And more than either alone: weights are read once, and experts, while arithmetic adds up.

    Between the knots of the tables, which are not the same, 1 % is lost.
    """
    model = step_model_of(DeployedCost(deployment, None, 1), 0, np.ones(1), 512, 2048)
    for batch in (1, 8, 64, 512):
        for tokens in (1, 16, 128, 512, 4096):
            alone = decodes(0, batch, 512)
            mixed = {**alone, "tokens": alone["tokens"] + tokens, "prefill_tokens": tokens}
            both, one, other = (
                seconds(model, **each)["target"] for each in (mixed, alone, chunk(tokens))
            )
            assert 0.99 * max(one, other) <= both <= 1.01 * (one + other)


def test_experts_that_prompts_and_decodes_touch_are_read_once() -> None:
    """Either reads nearly all of them, and nothing else takes time."""
    cost = DeployedCost(deploy("mixtral-8x7b", "H100", tensor_parallel=2), None, 1)
    model = step_model_of(cost, 0, np.ones(1), 64, 512)
    alone, prompt = decodes(0, 64, 100), chunk(64)
    mixed = {**alone, "tokens": 128, "prefill_tokens": 64}
    both, one, other = (seconds(model, **each)["target"] for each in (mixed, alone, prompt))
    assert one == pytest.approx(other, rel=0.05)
    assert both < 1.05 * one


def test_a_drafter_reads_prompts_too() -> None:
    model = step_model_of(roofline(4), 3, BONUS, 64, 8192)
    plain, both = roofline(4).prefill_s(16384)
    found = seconds(model, **chunk(16384))
    one_plain, one_both = roofline(4).prefill_s(1)
    assert found["draft"] == pytest.approx((both - plain) - (one_both - one_plain), rel=1e-6)


def test_the_host_starts_the_kernels_of_a_step_once() -> None:
    """Whatever is in it: decodes, a chunk of a prompt, both; a longer run hides it."""
    plain = roofline(4)
    slow = replace(PEAK, graph_tokens=64, eager_layer_s=1e-3)
    cost = replace(plain, deployment=replace(plain.deployment, efficiency=slow))
    model, free = (step_model_of(each, 3, BONUS, 64, 8192) for each in (cost, plain))
    mixed = {**decodes(3, 32, 512), "tokens": 256, "prefill_tokens": 128}
    least = 1e-3 * len(cost.deployment.shape.layers)
    assert seconds(free, **mixed)["target"] < least
    for step in (decodes(3, 32, 512), chunk(128), mixed):
        assert seconds(model, eager=True, **step)["target"] == least
        assert seconds(model, **step)["target"] == seconds(free, **step)["target"]
    long = chunk(16384)
    assert seconds(model, eager=True, **long) == seconds(free, **long)


def test_a_chunk_behind_a_context_costs_more() -> None:
    model = step_model_of(roofline(1), 0, BONUS, 64, 40_000)
    far, near = (seconds(model, **chunk(2048), chunk_context=each)["target"] for each in (32768, 0))
    assert far > 1.1 * near


def test_chunks_of_a_grid_are_priced_as_many_requests(tmp_path: Path) -> None:
    """The grid's law is seconds (1 + n B / 32): 160 tokens are 5 of 32 requests."""
    cost = MeasuredLoadCost.of(read_profile(write_grid(tmp_path)), 1.0)
    model = step_model_of(cost, 0, BONUS, 64, 256)
    found = seconds(model, **chunk(320))["target"]
    assert found == pytest.approx(0.01 * (1 + 320 / 32), rel=0.05)


def test_steps_of_an_engine_do_not_tell_what_prompts_cost() -> None:
    steps = [StepTime(gamma=gamma, batch=1, seconds=0.01 + gamma / 1e3) for gamma in (0, 2)]
    cost = StepLoadCost(StepCosts.of(steps))
    with pytest.raises(UnsupportedError, match="do not tell what prompts cost"):
        step_model_of(cost, 2, BONUS, 4, 512)


def timed_engine(line: float = 2e-5) -> StepLoadCost:
    """Steps of 10 ms, 1 ms a draft and 0.1 ms a request; prompts of 15 ms and ``line`` a token."""
    steps = [
        StepTime(gamma=gamma, batch=batch, seconds=0.01 + gamma / 1e3 + batch / 1e4)
        for gamma in (0, 1, 3)
        for batch in (1, 8)
    ]
    prompts = [
        PromptTime(gamma, tokens, 0.015 + gamma / 1e3 + line * tokens, 0.02 + gamma / 1e3 + 0.1)
        for gamma in (0, 3)
        for tokens in (16, 256)
    ]
    return StepLoadCost(StepCosts.of(steps), PromptCosts(tuple(prompts)))


def test_a_prompt_alone_takes_what_it_took_alone() -> None:
    cost = timed_engine()
    assert cost.prompts is not None
    model = step_model_of(cost, 3, BONUS, 8, 512)
    assert model.parts == ("step", "prompts")
    assert model.frontend_s == cost.frontend_s == cost.prompts.frontend_s
    for gamma in (0, 2, 3):
        for tokens in (16, 100, 256, 400):
            alone = seconds(model, gamma=gamma, sequences=1, prefill_tokens=tokens)
            assert sum(alone.values()) == pytest.approx(cost.prompts.seconds(gamma, tokens))
    steps = seconds(model, gamma=2, sequences=4, decodes=4)
    assert steps == {"step": pytest.approx(0.0124), "prompts": 0.0}
    mixed = seconds(model, gamma=2, sequences=4, decodes=3, prefill_tokens=100)
    beyond = cost.prompts.seconds(2, 100) - cost.verify_s(2, 1, 0)
    assert sum(mixed.values()) == pytest.approx(0.0124 + beyond)


def timed(*batches: tuple[int, float]) -> StepLoadCost:
    """An engine whose steps take so many ms at each batch, with two drafts twice as long."""
    steps = [StepTime(k, batch, (1 + k / 2) * ms / 1e3) for k in (0, 2) for batch, ms in batches]
    prompts = [PromptTime(k, n, 0.02 + 2e-5 * n, 0.1) for k in (0, 2) for n in (16, 256)]
    return StepLoadCost.of(steps, prompts)


@pytest.mark.parametrize(
    ("cost", "expected"),
    [
        # As from 8 to 16, whatever the last of many batches says.
        (timed((1, 10.0), (8, 12.0), (12, 17.0), (16, 16.0)), 16.0 + 240 * 4.0 / 8),
        (timed((1, 10.0), (8, 12.0), (16, 11.5)), 11.5),
        (timed((1, 10.0)), 10.0),
    ],
)
def test_steps_of_larger_batches_than_were_timed(cost: StepLoadCost, expected: float) -> None:
    model = step_model_of(cost, 2, np.ones(3), 256, 512)
    for gamma in (0, 2):
        found = seconds(model, gamma=gamma, sequences=256)["step"]
        assert found == pytest.approx((1 + gamma / 2) * expected / 1e3)
        last = seconds(model, gamma=gamma, sequences=cost.batches[-1])["step"]
        assert last == pytest.approx(cost.verify_s(gamma, cost.batches[-1], 0))


def test_prompts_beside_more_requests_than_were_timed_cost_what_they_did() -> None:
    """Beside each request a prompt made the step shorter by 0.2 ms."""
    rows = [
        *(StreamedStep(n, 0, 0, 0.01 + 1e-3 * n, 50) for n in (1, 2, 4, 8)),
        *(
            StreamedStep(n, 1, tokens, 0.013 + 0.8e-3 * (n + 1) + 1e-3 + 2e-5 * tokens)
            for n in (1, 3, 5, 7)
            for tokens in (20, 80)
        ),
    ]
    streamed = tuple(StreamedSteps(gamma, tuple(rows)) for gamma in (0, 2))
    cost = StepLoadCost.of([], streamed=streamed)
    model = step_model_of(cost, 2, np.ones(3), 64, 512)
    beside = {"gamma": 0, "prefill_chunks": 1, "prefill_tokens": 50}
    at_most, beyond = (seconds(model, sequences=n, **beside) for n in (8, 64))
    assert at_most["prompts"] == pytest.approx(0.003 - 0.2e-3 * 8 + 1e-3 + 2e-5 * 50, rel=1e-3)
    assert beyond["prompts"] == pytest.approx(at_most["prompts"])
    assert beyond["step"] == pytest.approx(0.01 + 1e-3 * 64)


def test_prompt_costs_are_lines_through_means() -> None:
    times = [PromptTime(2, 10, 0.010, 0.02), PromptTime(2, 10, 0.012, 0.02, 1)]
    times += [PromptTime(2, 30, 0.021, 0.025), PromptTime(0, 10, 0.001, 0.004)]
    with pytest.raises(UnsupportedError, match=r"prompts of 1 length were timed with 0 draft"):
        PromptCosts(tuple(times))
    costs = PromptCosts((*times, PromptTime(0, 20, 0.002, 0.004)))
    assert costs.seconds(2, 20) == pytest.approx(0.016)
    # The nearest piece goes on, and never below 0; between no drafts and some there is no line.
    assert costs.seconds(2, 40) == pytest.approx(0.026)
    assert costs.seconds(1, 30) == costs.seconds(9, 30) == pytest.approx(0.021)
    assert costs.seconds(0, 0) == pytest.approx(0.0, abs=1e-12)
    assert PromptCosts(tuple(times[:3])).seconds(2, -0.0) == pytest.approx(0.006)
    assert costs.frontend_s == pytest.approx((0.010 + 0.008 + 0.004 + 0.003 + 0.002) / 5)


def test_a_prompt_that_took_longer_than_its_answer_is_refused() -> None:
    with pytest.raises(InvalidArgumentError, match=r"seconds of a prompt must be in \(0, answer_s"):
        PromptTime(0, 10, 0.02, 0.01)


def test_memory_is_the_engines() -> None:
    """Tables go beyond what the card holds: blocks say what fits."""
    model = step_model_of(roofline(4), 3, BONUS, 4096, 100_000)
    assert seconds(model, **decodes(3, 4096, 90_000))["target"] > 1.0
    assert LLAMAS.card.memory < 1e12
