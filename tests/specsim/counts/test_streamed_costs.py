"""What steps and prompts cost under load, fitted to streamed steps."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from specsim.batching.step_cost import StepLoadCost
from specsim.checks import InvalidArgumentError, UnsupportedError
from specsim.counts.steps import FrontendTime, StepTime, StreamedStep, StreamedSteps
from specsim.counts.streamed_costs import StreamedCosts
from specsim.counts.streamed_law import StreamedLaw, batch_levels
from specsim.counts.streams import streamed_steps
from specsim.serving.costs.load_cost import step_model_of
from specsim.serving.engines.vllm import VllmEngine
from specsim.serving.requests import Requests
from specsim.serving.service import SetUp, serve_requests
from tests.support.step_models import seconds
from tests.support.streamed import PROMPT_S, REQUEST_S, STEP_S, TOKEN_S, a_load, served


def loaded(
    seed: int,
    gammas: tuple[int, ...] = (0, 2),
    longer_s: float = 0.001,
    reading_s: tuple[float, float] = (0.0, 0.0),
    context_s: float = 0.0,
) -> StreamedCosts:
    """Steps of a server whose round takes ``longer_s`` more for every draft, which is in the mean
    of all its steps, and (1 + gamma) ``context_s`` for every token in the caches of its decodes.
    """
    found = []
    for gamma in gammas:
        for repeat in range(2):
            sent, prompts, chunks = a_load(seed + repeat, 100)
            streams, _ = served(
                *(sent, prompts, chunks, 0.004),
                extra_s=gamma * longer_s,
                reading_s=reading_s,
                context_s=(1 + gamma) * context_s,
            )
            found.append(streamed_steps(streams, gamma, repeat))
    return StreamedCosts(tuple(found))


@given(seed=st.integers(0, 10**6))
def test_the_fit_is_the_law_that_the_server_follows(seed: int) -> None:
    costs = loaded(seed)
    assert costs.gammas == (0, 2)
    assert costs.frontend_s == pytest.approx(0.004, abs=0.003)
    for gamma, law in costs.laws.items():
        assert law.per_prompt_s == pytest.approx(PROMPT_S, rel=1e-6)
        assert law.per_token_s == pytest.approx(TOKEN_S, rel=1e-6)
        timed = law.steps > 0
        expected = STEP_S + gamma * 0.001 + REQUEST_S * np.array(law.batches)
        assert law.step_s[timed] == pytest.approx(expected[timed], rel=1e-6)


def test_what_a_request_spends_outside_of_steps_grows_with_those_beside_it() -> None:
    """A plane of least squares, of as many requests as each row has; not below zero."""
    plain = StreamedStep(2, 0, 0, 0.01, 9)
    read = [StreamedStep(1, 1, tokens, 0.02) for tokens in (10, 20)]

    def costs(*rows: FrontendTime) -> tuple[float, float, float]:
        some = tuple(StreamedSteps(gamma, (plain, *read), rows) for gamma in (0, 2))
        found = StreamedCosts(some)
        return found.frontend_s, found.frontend_decode_s, found.frontend_prompt_s

    rows = [FrontendTime(0.004 + 2e-4 * n, 5, n) for n in (1, 3, 9)]
    assert costs(*rows) == pytest.approx((0.004, 2e-4, 0.0))
    both = [
        FrontendTime(0.004 + 2e-4 * n + 1e-3 * others, 5, n, 1 + others)
        for n in (1, 3, 9)
        for others in (0, 1, 2)
    ]
    assert costs(*both) == pytest.approx((0.004, 2e-4, 1e-3))
    # Files of before tell by the decodes alone.
    assert costs(*both, FrontendTime(0.0042, 5, 1))[2] == 0.0
    # Where some do not tell beside how many, or fewer decode where it takes longer, one mean is.
    untold = FrontendTime(0.008, 5)
    assert costs(*rows, untold) == pytest.approx(
        (np.mean([0.0042, 0.0046, 0.0058, 0.008]), 0.0, 0.0)
    )
    falling = FrontendTime(0.006, 5, 1), FrontendTime(0.002, 15, 9)
    assert costs(*falling) == pytest.approx((0.003, 0.0, 0.0))
    assert costs(FrontendTime(-0.001, 5, 1)) == costs() == (0.0, 0.0, 0.0)
    for words, bad in (
        ("seconds of a frontend must be a number", (np.nan, 1)),
        ("requests of a frontend must be >= 1, got 0", (0.0, 0)),
        ("decodes of a frontend must be >= 0, got -1", (0.0, 1, -1)),
        ("prompts of a frontend must be >= 1, got 0", (0.0, 1, 1, 0)),
    ):
        with pytest.raises(InvalidArgumentError, match=words):
            FrontendTime(*bad)


@pytest.mark.parametrize("arrival_s", [0.0, 0.001])
def test_who_is_sent_while_a_step_runs_makes_it_longer(arrival_s: float) -> None:
    """Of steps of 10 ms that scatter by 2, 17,000 with a few hundred that see somebody: within four
    standard errors of 0.05 ms, a false alarm in 16,000.  Long steps, which see more, would alone
    look like 0.4 ms.
    """
    steps = []
    for gamma in (0, 2):
        load = a_load(6 + gamma, 4000, 0.05)
        streams, _ = served(
            *load, 0.012, extra_s=gamma * 1e-3, variations=(0.2, 0.3, 0.0), arrival_s=arrival_s
        )
        steps.append(streamed_steps(streams, gamma))
    costs = StreamedCosts(tuple(steps))
    assert costs.arrival_s == pytest.approx(arrival_s, abs=2e-4)
    for gamma, law in costs.laws.items():
        seen = law.steps > 800
        expected = STEP_S + gamma * 1e-3 + REQUEST_S * np.array(law.batches)
        assert law.step_s[seen] == pytest.approx(expected[seen], rel=0.02)
    # Its own first step is longer by that.
    assert costs.frontend_s == pytest.approx(0.012 - arrival_s, abs=4 * 0.00023)


def test_nobody_tells_who_was_sent_meanwhile() -> None:
    plain = [StreamedStep(2, 0, 0, 0.01 + 0.002 * n, 9, 0.0, 0.0, n) for n in (0, 1)]
    read = [StreamedStep(1, 1, tokens, 0.02) for tokens in (10, 20)]

    def arrival_s(*some: StreamedStep) -> float:
        return StreamedCosts(
            tuple(StreamedSteps(gamma, (*some, *read)) for gamma in (0, 2))
        ).arrival_s

    assert arrival_s(*plain) == pytest.approx(0.002)
    assert arrival_s(*(replace(each, arrivals=None) for each in plain)) == 0.0
    assert arrival_s(plain[0]) == arrival_s(plain[1]) == 0.0
    # Of single steps nobody knows how far they scatter; and nobody makes a step shorter.
    assert arrival_s(*(replace(each, steps=1) for each in plain)) == 0.0
    assert arrival_s(plain[0], replace(plain[1], seconds=0.005)) == 0.0


def test_a_simulated_server_is_the_one_that_was_seen() -> None:
    """Requests that make steps longer as they come, with costs of other loads of the server.  It is
    5 % too quick where they cost nothing, and 1.3 % where what they cost is in all steps alike.
    """
    like = {"variations": (0.1, 0.1, 0.0), "arrival_s": 0.001}
    timed = [
        streamed_steps(served(*a_load(seed, 1500, 0.06), 0.012, **like)[0], gamma)
        for seed, gamma in ((1, 0), (2, 1))
    ]
    model = step_model_of(StepLoadCost.of([], (), timed), 0, np.ones(1), 64, 512)
    sent, prompts, chunks = a_load(3, 3000, 0.06)
    streams, _ = served(sent, prompts, chunks, 0.012, **like)
    requests = Requests(np.array(sent), np.array(prompts), np.array(chunks))
    engine = VllmEngine(
        "0.32.0",
        10_000,
        max_num_seqs=64,
        max_num_batched_tokens=8192,
        enable_prefix_caching=False,
        async_scheduling=False,
    )
    found = serve_requests(SetUp(engine, model), requests, seed=0, keep=()).times
    ttft_s = np.mean([each.chunk_s[0] - each.sent_s for each in streams])
    e2e_s = np.mean([each.chunk_s[-1] - each.sent_s for each in streams])
    assert found.ttft_s.mean() == pytest.approx(ttft_s, rel=0.01)
    assert found.e2e_s.mean() == pytest.approx(e2e_s, rel=0.01)


def test_variations_are_about_what_is_expected_of_each() -> None:
    """Rows of many steps scatter in themselves and about the law; nobody tells it of older ones."""

    def costs(*some: float | None) -> StreamedCosts:
        of_steps, of_prompts, outside = some
        steps = (
            *(StreamedStep(n, 0, 0, 0.01, 9, 0.0, of_steps) for n in (1, 2)),
            *(StreamedStep(1, 1, n, 0.02, 1, 0.0, of_prompts) for n in (10, 20)),
        )
        rows = (FrontendTime(0.004, 5, 1, 1, outside),)
        return StreamedCosts(tuple(StreamedSteps(gamma, steps, rows) for gamma in (0, 2)))

    found = costs(4e-6, 0.0, 1e-6)
    assert found.step_variation == pytest.approx(0.2)
    assert found.prompt_step_variation == pytest.approx(0.0, abs=1e-6)
    assert found.frontend_variation == pytest.approx(0.25)
    timed = [StepTime(g, 1, 1.0, context=100.0) for g in (0, 2)]
    cost = StepLoadCost.of(timed, (), found.streamed)
    model = step_model_of(cost, 2, np.ones(3), 3, 512)
    assert model.step_variation == found.step_variation
    assert model.prompt_step_variation == found.prompt_step_variation
    assert model.frontend_variation == found.frontend_variation
    assert model.scatters
    untold = costs(None, None, None)
    assert untold.step_variation == untold.prompt_step_variation == untold.frontend_variation == 0
    assert costs(None, None, -1e-6).frontend_variation == 0.0
    assert found.knows_variations
    assert not untold.knows_variations
    # A simulated step takes no more than that.
    wild = costs(1.0, None, None)
    assert wild.step_variation == pytest.approx(100.0)
    capped = step_model_of(StepLoadCost.of(timed, (), wild.streamed), 2, np.ones(3), 3, 512)
    assert capped.step_variation == 3.0
    for bad in (-1.0, np.nan, np.inf):
        with pytest.raises(InvalidArgumentError, match="variance_s2 must be >= 0, got"):
            StreamedStep(1, 0, 0, 0.1, variance_s2=bad)
    with pytest.raises(InvalidArgumentError, match="variance_s2 of a frontend must be a number"):
        FrontendTime(0.1, 1, variance_s2=np.nan)


def test_a_step_under_load_is_put_together_as_it_was_fitted() -> None:
    costs = loaded(1, (0, 2, 4))
    alone = [StepTime(gamma, 1, 1.0, context=100.0) for gamma in (0, 2, 4)]
    cost = StepLoadCost.of(alone, (), costs.streamed)
    assert cost.contexts == (round(costs.context or 0),)
    assert cost.verify_s(2, 3, 100) == pytest.approx(STEP_S + 0.002 + 3 * REQUEST_S)
    model = step_model_of(cost, 4, np.ones(5), 6, 512)
    assert model.frontend_s == cost.frontend_s == costs.frontend_s
    assert model.parts == ("step", "prompts")
    for gamma, decodes, prompts, tokens in ((0, 2, 1, 50), (2, 4, 2, 300), (3, 1, 0, 0)):
        found = seconds(
            model,
            gamma=gamma,
            sequences=decodes + prompts,
            prefill_chunks=prompts,
            prefill_tokens=tokens,
        )
        expected = STEP_S + 0.001 * gamma + REQUEST_S * (decodes + prompts)
        expected += PROMPT_S * prompts + TOKEN_S * tokens
        assert sum(found.values()) == pytest.approx(expected)


def test_prompts_beside_many_requests_cost_less() -> None:
    reading_s = 0.002, -0.0005
    costs = loaded(3, reading_s=reading_s)
    cost = StepLoadCost.of([StepTime(g, 1, 1.0, context=100.0) for g in (0, 2)], (), costs.streamed)
    model = step_model_of(cost, 2, np.ones(3), costs.most, 512)
    for requests, prompts, tokens in ((2, 1, 50), (costs.most, 1, 100), (3, 2, 200)):
        expected = STEP_S + 0.002 + REQUEST_S * requests + reading_s[0] + reading_s[1] * requests
        expected += PROMPT_S * prompts + TOKEN_S * tokens
        assert costs.laws[2].seconds(requests, prompts, tokens) == pytest.approx(expected, rel=1e-6)
        found = seconds(
            model,
            gamma=2,
            sequences=requests,
            prefill_chunks=prompts,
            prefill_tokens=tokens,
        )
        assert sum(found.values()) == pytest.approx(expected, rel=1e-6)


@given(seed=st.integers(0, 10**6))
def test_a_token_in_the_caches_costs_what_it_did(seed: int) -> None:
    costs = loaded(seed, context_s=3e-6)
    context = costs.context
    assert context is not None
    for gamma, law in costs.laws.items():
        token_s = (1 + gamma) * 3e-6
        assert law.context_token_s == pytest.approx(token_s, rel=1e-6)
        batches, timed = np.array(law.batches), law.steps > 0
        expected = STEP_S + gamma * 0.001 + (REQUEST_S + token_s * context) * batches
        assert law.step_s[timed] == pytest.approx(expected[timed], rel=1e-6)
        # S has a whole request for one whose prompt is still read.
        assert law.per_prompt_s == pytest.approx(PROMPT_S - token_s * context, rel=1e-5)


def test_a_step_at_another_context_costs_what_its_caches_hold() -> None:
    costs = loaded(4, (0, 2, 4), context_s=3e-6)
    alone = [StepTime(gamma, 1, 1.0, context=100.0) for gamma in costs.gammas]
    cost = StepLoadCost.of(alone, (), costs.streamed)
    assert cost.verify_s(2, 3, 400) == pytest.approx(
        STEP_S + 0.002 + 3 * (REQUEST_S + 9e-6 * 400), rel=1e-6
    )
    model = step_model_of(cost, 4, np.ones(5), costs.most, 512)
    # Three drafts are between the lengths that were timed; none of them is verified by a step
    # behind which a schedule goes over to another length.
    for gamma, drafts, decodes, prompts, tokens, caches in (
        (0, 0, 3, 0, 0, 100),
        (2, 2, 2, 1, 60, 900),
        (3, 1, 2, 0, 0, 500),
    ):
        found = seconds(
            model,
            gamma=gamma,
            sequences=decodes + prompts,
            decodes=decodes,
            verified_tokens=(1 + drafts) * decodes,
            # With those of the round.
            decode_context=caches + drafts * decodes,
            prefill_chunks=prompts,
            prefill_tokens=tokens,
        )
        expected = STEP_S + 0.001 * gamma + REQUEST_S * (decodes + prompts)
        expected += (1 + gamma) * 3e-6 * caches
        expected += PROMPT_S * prompts + TOKEN_S * tokens
        assert sum(found.values()) == pytest.approx(expected, rel=1e-5)


def test_larger_sets_are_moved_from_their_own_context() -> None:
    costs = loaded(4, context_s=3e-6)
    context = costs.context
    assert context is not None
    larger = [StepTime(gamma, 64, 0.2, context=150.0) for gamma in (0, 2)]
    cost = StepLoadCost.of(larger, (), costs.streamed)
    assert cost.verify_s(0, 64, 150) == 0.2
    assert cost.verify_s(0, 64, 350) == pytest.approx(0.2 + 64 * 3e-6 * 200, rel=1e-6)
    model = step_model_of(cost, 0, np.ones(1), 64, 512)
    found = seconds(model, sequences=64, decodes=64, verified_tokens=64, decode_context=64 * 150.0)
    assert sum(found.values()) == pytest.approx(0.2, rel=1e-6)
    # However short, a step with empty caches takes something.
    assert cost.verify_s(2, 64, 0) == pytest.approx(0.2 - 64 * 9e-6 * 150, rel=1e-6)
    short = [StepTime(gamma, 64, 0.05, context=150.0) for gamma in (0, 2)]
    cost = StepLoadCost.of(short, (), costs.streamed)
    assert cost.verify_s(2, 64, 0) == pytest.approx(0.005)


def test_a_step_with_empty_caches_takes_something() -> None:
    """Where steps take twice as long with twice as many tokens, and thrice with thrice."""
    rows = [
        StreamedStep(requests, 0, 0, 1e-4 * tokens, decode_context=tokens)
        for requests, tokens in ((1, 50.0), (1, 100.0), (1, 150.0), (2, 200.0))
    ]
    read = [StreamedStep(1, 1, n, 0.02, decode_context=100.0) for n in (20, 40)]
    steps = [StreamedSteps(k, (*rows, *read), context=200.0) for k in (0, 2)]
    law = StreamedCosts(tuple(steps)).laws[0]
    assert law.step_s.tolist() == pytest.approx([0.02, 0.04])
    assert 200 * law.context_token_s == pytest.approx(0.018)
    # One step that does not tell is enough for nobody to know.
    untold = replace(rows[0], decode_context=0.0)
    steps[0] = StreamedSteps(0, (*steps[0].steps, untold), context=200.0)
    assert [law.context_token_s for law in StreamedCosts(tuple(steps)).laws.values()] == [0, 0]


def test_a_step_never_takes_less_than_nothing() -> None:
    law = StreamedLaw((1, 4), np.array([0.01, 0.02]), np.ones(2), 0.01, -0.1, 0.002, 1e-5)
    assert law.seconds(4) == 0.02
    assert law.seconds(4, 1, 100) == pytest.approx(0.003)


def test_batches_that_nobody_had_are_no_part_of_the_law() -> None:
    prompts = StreamedStep(1, 1, 20, 0.01), StreamedStep(1, 1, 40, 0.02)
    plain = [StreamedStep(n, 0, 0, 0.01 + 0.001 * n, 9) for n in (1, 8)]
    costs = StreamedCosts(tuple(StreamedSteps(k, (*plain, *prompts)) for k in (0, 2)))
    assert costs.laws[0].batches == (1, 8)
    assert costs.laws[0].seconds(4) == pytest.approx(0.014)


@pytest.mark.parametrize(
    ("drafted", "words"),
    [
        ([StreamedStep(1, 1, 20, 0.01)], "no step without a prompt was seen with 2 draft tokens, "),
        ([StreamedStep(4, 0, 0, 0.01)], "with 2 draft tokens and at most 1 requests"),
        (
            [StreamedStep(1, 0, 0, 0.01), StreamedStep(4, 1, 20, 0.1), StreamedStep(4, 1, 9, 0.1)],
            "got 0 with 0 draft tokens",
        ),
    ],
)
def test_draft_lengths_need_batches_in_common(drafted: list[StreamedStep], words: str) -> None:
    prompts = StreamedStep(1, 1, 20, 0.01), StreamedStep(1, 1, 40, 0.02)
    plain = StreamedSteps(0, (StreamedStep(1, 0, 0, 0.01), *prompts))
    with pytest.raises(UnsupportedError, match=words):
        StreamedCosts((plain, StreamedSteps(2, tuple(drafted))))


def test_batches_between_which_steps_are_on_a_line() -> None:
    assert batch_levels(1) == [1]
    assert batch_levels(2) == [1, 2]
    assert batch_levels(5) == [1, 2, 3, 4, 5]
    assert batch_levels(16) == [1, 2, 3, 4, 6, 8, 12, 16]


def test_a_load_is_of_plain_decoding_and_drafts() -> None:
    with pytest.raises(UnsupportedError, match="at least, got draft lengths 2, 4"):
        loaded(1, (2, 4))


def test_prompts_of_one_length_do_not_tell_what_a_token_costs() -> None:
    steps = (StreamedStep(1, 1, 20, 0.01), StreamedStep(2, 2, 40, 0.02), StreamedStep(4, 0, 0, 0.1))
    with pytest.raises(
        UnsupportedError, match="two lengths that were read beside other requests, got 1 with"
    ):
        StreamedCosts((StreamedSteps(0, steps),))
