"""Prompt lookup as what drafts, from its trace to a check of what its profile predicts."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch

from calibrate.decode.drafters import PromptLookup
from calibrate.decode.engine import CachedModel, Decoded, DecodeRequest
from calibrate.decode.speculative import speculative
from calibrate.measure.trace import generator, record
from calibrate.models.load import load_pair
from calibrate.models.prompts import find_prompts
from calibrate.models.sampling import Sampling
from specsim.acceptance import AcceptanceLaw
from specsim.predict.replay.fixed_gamma import replay
from specsim.profiles import read_profile
from specsim.traces import Trace, read_trace
from tests.support.command_line import fail, rows, run, succeed

CPU = torch.device("cpu")


def calls(request: DecodeRequest, tokens: list[int], gamma: int) -> int:
    """Blocks until these tokens are there, one by one: the slow twin of the replay."""
    at = count = 0
    while at < len(tokens):
        room = min(gamma, request.limit - at - 1)
        drafts = PromptLookup().found([*request.text, *tokens[:at]], room) if room else []
        pairs = list(zip(drafts, tokens[at:], strict=False))
        while pairs and pairs[0][0] == pairs[0][1]:
            pairs.pop(0)
            at += 1
        at += 1
        count += 1
    return count


def trace_of(
    target: CachedModel, requests: list[DecodeRequest], folder: Path, greedy: bool = False
) -> Trace:
    frames = [record(target, PromptLookup(), n, each) for n, each in enumerate(requests)]
    pd.concat(frames).to_parquet(folder / "trace.parquet")
    return read_trace(folder / "trace.parquet", greedy)


def decode(
    target: CachedModel, request: DecodeRequest, gamma: int, law: AcceptanceLaw = "ratio-test"
) -> Decoded:
    drafter = PromptLookup(counted=False)
    return speculative(target, drafter, request, gamma, acceptance_law=law).finish()


def asked(prompt: list[int], limit: int, temperature: float, *key: int) -> DecodeRequest:
    return DecodeRequest(prompt, limit, Sampling(temperature), generator(CPU, *key))


def drawn(*key: int) -> DecodeRequest:
    """Of four words, so that texts differ and repeat themselves."""
    return asked([1, 2, 3, 0, 1, 2], 12, 1.0, *key)


def test_replayed_calls_are_counted_calls_at_temperature_0(tmp_path: Path) -> None:
    """Request by request at every draft length, on text of Python that the target goes on with."""
    pair = load_pair("embedded/target", "prompt-lookup", CPU)
    target, drafter = pair.with_drafter()
    assert isinstance(drafter, PromptLookup)
    prompts = find_prompts(None, pair.target.tokenizer, 40, 2)
    requests = [asked(prompt, 16, 0.0, 1) for prompt in prompts]
    trace = trace_of(target, requests, tmp_path, greedy=True)
    assert 0 < trace.acceptance.mean() < 1
    # A first draft is the target's own choice where it is accepted.
    assert trace.columns["argmax_equal"].tolist() == trace.acceptance.tolist()
    tokens = np.split(trace.columns["token"], trace.starts[1:-1])
    for walked in replay(trace, range(1, 5)):
        for number, request in enumerate(requests):
            decoded = speculative(target, drafter, request, walked.gamma).finish()
            assert decoded.tokens == tokens[number].tolist()
            assert decoded.calls == walked.calls[number]
            assert decoded.calls == calls(request, decoded.tokens, walked.gamma)
            # The search is no run: it is host time.
            assert (decoded.drafts, decoded.draft.seconds) == ({}, 0.0)


def test_at_a_temperature_the_text_decides_the_calls(
    four_words: tuple[CachedModel, CachedModel], tmp_path: Path
) -> None:
    """Each text has the calls of its walk, and the mean is that of the walks on a trace.

    Two samples of 40 requests.  False alarm: |z| > 4 of a normal law, 1 in 16,000.
    """
    target, gamma, size = four_words[0], 3, 40
    recorded = trace_of(target, [drawn(3, n) for n in range(size)], tmp_path)
    expected = replay(recorded, [gamma])[0].calls
    counted = np.zeros(size)
    for number in range(size):
        request = drawn(4, number)
        decoded = decode(target, request, gamma)
        assert decoded.calls == calls(request, decoded.tokens, gamma)
        counted[number] = decoded.calls
    assert 0.1 < recorded.acceptance.mean() < 0.9
    error = np.sqrt((expected.var(ddof=1) + counted.var(ddof=1)) / size)
    assert abs(counted.mean() - expected.mean()) / error < 4


@pytest.mark.parametrize("law", ["greedy-drafts", "exact-match"])
def test_so_it_does_under_every_law(
    four_words: tuple[CachedModel, CachedModel], law: AcceptanceLaw
) -> None:
    for gamma in (1, 2, 4):
        request = drawn(5, gamma)
        decoded = decode(four_words[0], request, gamma, law)
        assert decoded.calls == calls(request, decoded.tokens, gamma) < len(decoded.tokens)


def test_a_position_tells_what_a_block_there_finds(
    models: dict[str, CachedModel], tmp_path: Path
) -> None:
    prompt, request = [5, 6, 7, 8, 5, 6], asked([5, 6, 7, 8, 5, 6], 8, 1.0, 5)
    trace = trace_of(models["target"], [request], tmp_path)
    tokens = trace.columns["token"].tolist()
    # Behind 5 6 came 7 8 5 6, all that there is.
    assert trace.columns["found"][0] == 4
    whole = [*zip([7, 8, 5, 6], tokens, strict=False)]
    assert trace.columns["matched"][0] == [*(a == b for a, b in whole), False].index(False)
    for at in range(len(tokens)):
        longest = PromptLookup().found([*prompt, *tokens[:at]], request.limit)
        assert trace.columns["found"][at] == len(longest)
        # A shorter draft is the beginning of a longer one.
        for room in range(1, 6):
            assert PromptLookup().found([*prompt, *tokens[:at]], room) == longest[:room]


@pytest.fixture(scope="module")
def words(tiny_family: dict[str, Path], tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    random = np.random.default_rng(3)
    prompts = tmp_path_factory.mktemp("prompts") / "prompts.txt"
    lines = ([f"w{word}" for word in random.integers(2, 64, 4)] * 2 for _ in range(8))
    prompts.write_text("\n".join(" ".join(line) for line in lines) + "\n")
    return [
        *("--target", str(tiny_family["target"]), "--draft", "prompt-lookup"),
        *("--prompts", str(prompts), "--device", "cpu"),
    ]


@pytest.fixture(scope="module")
def profile(words: list[str], tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("profile") / "lookup.json"
    succeed(
        *("calibrate", *words, "--requests", "4", "--max-new-tokens", "12"),
        *("--gamma-max", "3", "--repeats", "2", "--out", str(out)),
    )
    return out


def test_the_profile_says_that_no_model_drafts(profile: Path) -> None:
    content = read_profile(profile)
    assert (content.draft.name, content.draft.parameters) == ("prompt-lookup", 0)
    assert content.draft.longest_match == 3
    assert content.draft.context == content.target.context
    assert {(row.model, row.follows) for row in content.run_times} == {("target", "target")}
    assert {row.tokens for row in content.run_times} <= {1, 2, 3, 4}
    assert {row.gamma for row in content.overhead} == {0, 1, 2, 3}
    for measured in content.acceptance:
        trace = content.trace(profile, measured)
        assert trace.by_lookup
        assert trace.acceptance.mean() == pytest.approx(measured.alpha.best)


def test_it_is_optimised_and_validated(
    capsys: pytest.CaptureFixture[str], profile: Path, words: list[str]
) -> None:
    code, out, err = run(capsys, "optimize", "--profile", str(profile), "--format", "json")
    assert code == 0, err
    assert [(row["temperature"], row["c"]) for row in rows(out)] == [(0, 0), (1, 0)]
    prompts = words[words.index("--prompts") + 1]
    asked = ["validate", str(profile), "--prompts", prompts, "--requests", "2", "--format", "json"]
    # Wall-clock is not judged here: tiny models on a busy machine.
    free = ["--tolerance", "100"]
    code, out, err = run(capsys, *asked, *free, "--median-tolerance", "100")
    assert code == 0, err
    found = rows(out)
    assert {(row["temperature"], row["gamma"]) for row in found} == {
        (t, g) for t in (0, 1) for g in (1, 2, 3)
    }
    for row in found:
        assert row["exact"] is (True if row["temperature"] == 0 else None)
        assert row["error_draft"] == 0
        if row["temperature"] == 0 and row["prompts"] == "calibration":
            assert row["predicted_calls"] == row["measured_calls"]
    code, out, err = run(capsys, *asked, *free, "--blind", "--passes", "2", "--gamma", "1,3")
    assert code == 0, err
    assert [row["exact"] for row in rows(out)] == [True, True, None, None]
    file = profile.with_name("lookup.prediction.json")
    assert len(json.loads(file.read_text())["predictions"]) == 6


@pytest.mark.parametrize(
    ("more", "what"),
    [
        (("--batch", "2"), "--batch"),
        (("--cost-only",), "--cost-only"),
        (("--engine", "vllm"), "--engine"),
    ],
)
def test_calibrations_that_need_a_draft_model_refuse(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, more: tuple[str, ...], what: str
) -> None:
    out = str(tmp_path / "p.json")
    said = fail(capsys, "calibrate", "--draft", "prompt-lookup", "--out", out, *more)
    assert what in said
    assert "needs a draft model, and prompt-lookup has none" in said


@pytest.mark.parametrize("more", [("--engine", "vllm"), ("--synthetic",), ("--scheme", "bild")])
def test_checks_that_need_a_draft_model_refuse(
    capsys: pytest.CaptureFixture[str], profile: Path, more: tuple[str, ...]
) -> None:
    said = fail(capsys, "validate", str(profile), *more)
    assert f"({more[0]}) needs a draft model" in said


def test_score_needs_a_draft_model(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    out = str(tmp_path / "positions.csv")
    said = fail(capsys, "score", "--draft", "prompt-lookup", "--out", out)
    assert "score needs a draft model" in said
