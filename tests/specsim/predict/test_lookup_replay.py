"""The replay of prompt lookup: what the text decides, against the obvious loop over blocks."""

from __future__ import annotations

from functools import cache
from itertools import pairwise
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

import specsim
from specsim.checks import InvalidArgumentError, UnsupportedError
from specsim.hardware.run_time_fit import fits
from specsim.optimizers.workload import Workload
from specsim.predict.measured import MeasuredCost
from specsim.predict.replay.fixed_gamma import block_survival, drafted_tokens, replay
from specsim.profiles import Overhead, RunTime, file_digest, read_profile
from specsim.traces import Trace, TraceError, read_trace
from tests.support.profiles import rate, write

# Found and matched of every position of a request.
Request = list[tuple[int, int]]

position = st.integers(0, 6).flatmap(lambda found: st.tuples(st.just(found), st.integers(0, found)))
requests = st.lists(st.lists(position, min_size=1, max_size=12), min_size=1, max_size=4)


def trace_of(texts: list[Request]) -> Trace:
    found, matched = (np.array([row[i] for text in texts for row in text]) for i in (0, 1))
    starts = np.concatenate([[0], np.cumsum([len(text) for text in texts])])
    columns = {
        "found": found,
        "matched": matched,
        "context": np.concatenate([10 + np.arange(len(text)) for text in texts]),
    }
    return Trace((matched >= 1).astype(float), starts, columns)


def blocks(text: Request, gamma: int, limit: int) -> list[tuple[int, int, int]]:
    """Start, tokens asked for and tokens drafted of every block of a request, one by one."""
    at, seen = 0, []
    while at < len(text):
        found, matched = text[at]
        asked = min(gamma, limit - at - 1)
        drafted = min(asked, found)
        seen.append((at, asked, drafted))
        at += min(matched, drafted) + 1
    return seen


@given(requests, st.integers(0, 8))
def test_survival_of_blocks_counts_those_of_the_walk(texts: list[Request], gamma: int) -> None:
    trace = trace_of(texts)
    (walked,) = replay(trace, [gamma])
    limit = max(map(len, texts)) + gamma + 1
    stood = [text[at][1] for text in texts for at, _, _ in blocks(text, gamma, limit)]
    expected = [np.mean(np.array(stood) >= length) for length in range(gamma + 1)]
    np.testing.assert_allclose(block_survival(trace, walked), expected, atol=1e-12)


@given(requests, st.integers(0, 8))
def test_the_walk_is_the_loop_over_blocks(texts: list[Request], gamma: int) -> None:
    trace = trace_of(texts)
    (walked,) = replay(trace, [gamma])
    limit = max(map(len, texts)) + gamma + 1  # far enough that nothing is cut
    expected = [blocks(text, gamma, limit) for text in texts]
    assert walked.calls.tolist() == [len(each) for each in expected]
    for first, each in zip(trace.starts, expected, strict=False):
        starts = [int(first) + at for at, *_ in each]
        assert walked.starts[starts].tolist() == [1.0] * len(starts)
        assert drafted_tokens(trace, gamma)[starts].tolist() == [n for *_, n in each]
    assert walked.starts.sum() == walked.calls.sum()
    # A bonus token is before a block where all that was drafted stood, one token at least.
    bonus = np.zeros(trace.tokens)
    for first, text, each in zip(trace.starts, texts, expected, strict=False):
        for (at, _, drafted), (after, *_) in pairwise(each):
            bonus[first + after] = 0 < drafted <= text[at][1]
    assert walked.bonus.tolist() == bonus.tolist()


@given(requests, st.integers(1, 4), st.integers(0, 3))
def test_runs_are_as_wide_as_tokens_are_found(
    profile: Path, texts: list[Request], gamma: int, further: int
) -> None:
    """By width and by tokens asked for; a block never drafts past the limit."""
    cost, limit = cost_of(profile), max(map(len, texts)) + further
    # A trace knows no limit: drafts past it are cut by the text, whose rest cannot be matched.
    texts = [
        [(found, min(matched, len(text) - at)) for at, (found, matched) in enumerate(text)]
        for text in texts
    ]
    trace = trace_of(texts)
    (walked,) = replay(trace, [gamma])
    spent = cost.spent(trace, walked, limit)
    seen = [each for text in texts for each in blocks(text, gamma, limit)]
    for (kind, tokens, drafted), (runs, _) in spent.runs.items():
        assert (kind, drafted) == ("target", tokens - 1)
        assert runs.sum() == sum(n == drafted for *_, n in seen)
    assert sum(count.sum() for count, _ in spent.runs.values()) == len(seen)
    for asked, count in spent.blocks.items():
        assert count.sum() == sum(each == asked for _, each, _ in seen)


@given(requests, st.integers(1, 5))
def test_survival_counts_positions_as_block_starts(texts: list[Request], length: int) -> None:
    expected = [
        [
            sum(text[at][1] >= i for at in range(max(len(text) - length + 1, 0)))
            for i in range(length + 1)
        ]
        for text in texts
    ]
    assert trace_of(texts).survived(length).tolist() == expected


def lookup_profile(folder: Path, **changes: object) -> Path:
    """A profile of prompt lookup of invented numbers: v(n) = 1 + 0.1 (n - 1), a search costs 2 %.

    Runs of four and five tokens were never timed.
    """
    random = np.random.default_rng(5)
    size, length = 8, 40
    found = random.integers(0, 7, size * length)
    matched = random.integers(0, found + 1)
    left = np.tile(length - np.arange(length), size)
    trace = folder / "lookup.parquet"
    pd.DataFrame(
        {
            "request": np.repeat(np.arange(size), length),
            "position": np.tile(np.arange(length), size),
            "context": np.tile(10 + np.arange(length), size),
            "logp_target": np.log(0.5),
            "logp_draft": np.where(matched > 0, 0.0, -np.inf),
            "found": found,
            "matched": np.minimum(matched, left),
        }
    ).to_parquet(trace)
    run_times = [
        {"model": "target", "follows": "target", "tokens": tokens, "context": context}
        | {"batch": 1, "mode": "eager", "passes": [0, 1, 2], "plain": [0.01] * 3}
        | {"seconds": [0.01 * (1 + 0.1 * (tokens - 1)) * spread for spread in (0.99, 1, 1.01)]}
        for tokens in (1, 2, 3)
        for context in (10, 60)
    ]
    overhead = [
        {"temperature": 1.0, "gamma": gamma, "batch": 1, "context": 0, "mode": "eager"}
        | {"seconds": [2e-4 if gamma else 0.0] * 3, "plain": [0.01] * 3, "passes": [0, 1, 2]}
        for gamma in range(5)
    ]
    acceptance = {
        "sampling": {"temperature": 1.0},
        "requests": size,
        "prompt_tokens": 10,
        "prompts_sha256": "2",
        "max_new_tokens": length,
        "tokens": size * length,
        "seed": 0,
        "alpha": rate(float((matched > 0).mean())),
        "survival": [rate(0.4**i) for i in range(1, 5)],
        "conditional": [rate(0.4)] * 4,
        "trace": {"file": trace.name, "sha256": file_digest(trace)},
    }
    draft = {
        "name": "prompt-lookup",
        "parameters": 0,
        "context": 512,
        "sha256": "1",
        "longest_match": 3,
    }
    return write(
        folder,
        **{"draft": draft, "acceptance": [acceptance], "run_times": run_times}
        | {"overhead": overhead}
        | changes,
    )


@cache
def cost_of(path: Path) -> MeasuredCost:
    profile = read_profile(path)
    return MeasuredCost.of(profile.run_times, profile.overhead, 1.0, by_lookup=True)


@pytest.fixture(scope="module")
def profile(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return lookup_profile(tmp_path_factory.mktemp("lookup"))


def test_widths_that_were_never_timed_are_those_of_the_fit(profile: Path) -> None:
    cost, found = cost_of(profile), fits(read_profile(profile).run_times)["eager", "target"]
    where = np.array([10.0])
    assert cost.target.tokens.tolist() == [1, 2, 3, 4, 5]
    for tokens in (4, 5):
        assert cost.target(tokens, where)[0] == pytest.approx(found(tokens, 1, 10))
        # The law goes on: 0.01 (1 + 0.1 (n - 1)), where the nearest run says no else.
        assert cost.target(tokens, where)[0] == pytest.approx(0.01 * (0.9 + 0.1 * tokens), rel=0.02)
    assert cost.draft_cost(30.0) == 0.0
    assert cost.block(2, 10.0) == pytest.approx(0.0122, rel=0.01)


def test_runs_of_a_lookup_are_those_of_their_temperature() -> None:
    """Passes 0 and 2 are of temperature 0, where width 2 is the usual one, and 1 and 3 of 1."""

    def run(tokens: int, seconds: list[float], runs: list[int]) -> RunTime:
        passes = list(range(4))
        return RunTime(
            "target", "target", tokens, 1, 64, "eager", seconds, [0.01] * 4, passes, runs
        )

    def host(temperature: float, passes: list[int]) -> list[Overhead]:
        rest = {"batch": 1, "context": 0, "mode": "eager", "plain": [0.01] * 2, "passes": passes}
        return [Overhead(temperature, gamma, seconds=[0.0] * 2, **rest) for gamma in (0, 1)]

    run_times = [
        run(1, [0.01] * 4, [60] * 4),
        run(2, [0.011, 0.013, 0.011, 0.013], [20, 2, 20, 2]),
    ]
    overhead = host(0.0, [0, 2]) + host(1.0, [1, 3])
    where = np.array([64.0])

    def width_2(temperature: float, by_lookup: bool) -> float:
        cost = MeasuredCost.of(run_times, overhead, temperature, by_lookup)
        return float(cost.target(2, where)[0])

    assert width_2(0.0, True) == pytest.approx(0.011)
    assert width_2(1.0, True) == pytest.approx(0.013)
    # A model drafts as many at every temperature: all count, and the usual ones most.
    run_times += [
        RunTime("draft", follows, 1, 1, 64, "eager", [0.001] * 4, [0.01] * 4, list(range(4)))
        for follows in ("target", "draft")
    ]
    assert width_2(0.0, False) == width_2(1.0, False) == pytest.approx(0.011, rel=0.02)


def test_a_profile_of_a_lookup_is_optimised(profile: Path) -> None:
    (row,) = specsim.optimize(profile=profile).rows()
    assert row["c"] == 0
    assert row["speedup_low"] < row["speedup"] < row["speedup_high"]
    assert row["memory_factor"] == pytest.approx(1 / row["tokens_per_call"])
    # No parameters draft: operations are the positions that the target reads.
    (workload,) = Workload.all_of(read_profile(profile), profile, None)
    (walked,) = replay(workload.trace, [row["gamma"]])
    read = walked.starts @ (1 + drafted_tokens(workload.trace, row["gamma"]))
    assert row["operations_factor"] == pytest.approx(read / workload.trace.tokens)
    # By hand: seconds of plain decoding over those of the blocks, each as wide as its drafts.
    given = specsim.evaluate(gamma=3, profile=profile)
    assert any("c is 0" in line for line in given.sentences())
    (row,) = given.rows()
    texts = np.column_stack([workload.trace.columns[name] for name in ("found", "matched")])
    cost, spent, plain = workload.cost, 0.0, 0.0
    for first, last in zip(workload.trace.starts, workload.trace.starts[1:], strict=False):
        for at, asked, drafted in blocks(texts[first:last].tolist(), 3, 40):
            spent += cost.target(drafted + 1, np.array([9.0 + at]))[0] + (2e-4 if asked else 0)
        plain += sum(cost.target(1, np.array([9.0 + at]))[0] for at in range(last - first))
    assert row["speedup"] == pytest.approx(plain / spent)


def test_every_law_of_acceptance_is_the_same(profile: Path) -> None:
    rows = [
        specsim.evaluate(gamma=2, profile=profile, acceptance_law=law).rows()[0]
        for law in (None, "greedy-drafts", "exact-match")
    ]
    assert len({(row["speedup"], row["tokens_per_call"]) for row in rows}) == 1


def test_one_request_is_exported_as_ngram(profile: Path) -> None:
    found = specsim.export("vllm", profile=profile, most=8)
    assert (found.method, found.acceptance_law) == ("ngram", "greedy-drafts")
    assert '"prompt_lookup_min": 1, "prompt_lookup_max": 3' in found.text
    assert f'"num_speculative_tokens": {found.schedule[0][2]}' in found.text
    assert [span[1] for span in found.schedule] == [1]
    said = " ".join(found.warnings)
    assert "batch 1 only" in said
    assert "as was planned" in said
    assert "draft model" not in said
    text = specsim.export("transformers", profile=profile, most=1).text
    assert "max_matching_ngram_size = 3" in text
    said = " ".join(specsim.export("sglang", profile=profile, most=1).warnings)
    assert "lookup_max as by default" in said
    with pytest.raises(InvalidArgumentError, match="alpha has no meaning"):
        specsim.export("vllm", profile=profile, alpha=0.5)
    # At the batch that is measured it is what the replay says, at one context and no end of text.
    (row,) = specsim.optimize(profile=profile, load=specsim.Load([1], [30])).rows()
    (alone,) = specsim.evaluate(gamma=row["gamma"], profile=profile).rows()
    assert row["speedup"] == pytest.approx(alone["speedup"], rel=0.03)


def test_a_trace_of_a_lookup_is_replayed(profile: Path) -> None:
    file = profile.with_name("lookup.parquet")
    trace = read_trace(file, acceptance_law="greedy-drafts")
    assert trace.acceptance.tolist() == (trace.columns["matched"] > 0).tolist()
    rows = specsim.replay(file, [0, 2, 40], c=0.0, verify_slope=0.1).rows()
    assert rows[0]["speedup"] == 1.0
    (walked,) = replay(trace, [2])
    width = 1 + 0.1 * drafted_tokens(trace, 2)
    assert rows[1]["speedup"] == pytest.approx(trace.tokens / (walked.starts @ width))
    with pytest.raises(InvalidArgumentError, match="c must be 0"):
        specsim.replay(file, [2], c=0.1)
    for what in ({"policies": ["grow-shrink"]}, {"p_min": [0.5]}):
        with pytest.raises(UnsupportedError, match="needs the trace of a draft model"):
            specsim.replay(file, [2], **what)
    with pytest.raises(UnsupportedError, match="another draft length"):
        trace.over_gamma()


def test_a_trace_of_a_lookup_is_checked(tmp_path: Path) -> None:
    file = tmp_path / "trace.csv"
    frame = pd.DataFrame(
        {"request": 0, "position": [0, 1], "logp_target": -1.0, "logp_draft": 0.0}
        | {"found": [2, 1], "matched": [1, 2]}
    )
    frame.to_csv(file, index=False)
    with pytest.raises(TraceError, match="matched must be <= found, got 2 of 1 in row 1"):
        read_trace(file)
    frame.drop(columns="found").to_csv(file, index=False)
    with pytest.raises(TraceError, match="found and matched go together"):
        read_trace(file)
