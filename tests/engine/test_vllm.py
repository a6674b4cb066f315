"""vLLM itself: what it counts is what the replay says, and it does what it was configured to do.

    make test-engine

Every configuration starts a server, which takes half a minute: one for each fixture here.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from transformers import AutoTokenizer

import specsim
from calibrate.engine.client import EngineClient, EngineError, counted
from calibrate.engine.server import Launch, started
from calibrate.models.load import resolve
from calibrate.models.prompts import held_out_prompts
from specsim.profiles import SamplingSetting
from tests.support.command_line import fail, run

pytestmark = pytest.mark.engine

GAMMA = 3
TARGET, DRAFT = str(resolve("embedded/target")), str(resolve("embedded/small"))


@pytest.fixture(scope="module")
def greedy_drafts(program: Path) -> Iterator[str]:
    """A server that drafts three tokens, greedily as is vLLM's default."""
    speculative = {"method": "draft_model", "model": DRAFT, "num_speculative_tokens": GAMMA}
    with started(Launch(program, TARGET, speculative, "float32", 512)) as client:
        yield client.where


def test_at_temperature_0_every_count_is_the_replayed_one(
    profile: Path, greedy_drafts: str, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["--engine", "vllm", "--url", greedy_drafts, "--temperature", "0"]
    code, out, err = run(capsys, "validate", str(profile), *words, "--format", "json")
    assert code == 0, err
    (row,) = json.loads(out)["answer"]["rows"]
    assert (row["requests"], row["tokens"]) == (30, 30 * 128)
    assert row["counted_rounds"] == row["replayed_rounds"] > 30 * 128 / (GAMMA + 1)
    assert row["counted_accepted"] == row["replayed_accepted"]
    assert row["same_text"] is row["exact"] is True


def test_greedy_drafts_follow_their_own_law_and_no_other(profile: Path, greedy_drafts: str) -> None:
    """|z| < 4 of four tests: a correct run fails once in 4,000."""
    check = specsim.EngineCheck(temperature=1, url=greedy_drafts)
    found = specsim.validate(profile, check)
    (row,) = found.rows()
    assert found.passed
    # Given the text, greedy drafts leave nothing to chance before its end.
    assert row["counted_rounds"] == row["replayed_rounds"]
    assert row["largest_z"] < 4
    assert row["other_law_z"] > 15
    wrong = specsim.validate(profile, replace(check, drafts="probabilistic"))
    assert not wrong.passed
    assert "does it draft as assumed (draft_model, probabilistic)?" in wrong.failures[0]


def test_llm_generate_counts_what_a_server_does(profile: Path) -> None:
    check = specsim.EngineCheck(api="generate", gamma=(2,), temperature=0, requests=8)
    (row,) = specsim.validate(profile, check).rows()
    assert row["counted_rounds"] == row["replayed_rounds"] > 0
    assert row["counted_accepted"] == row["replayed_accepted"]
    assert row["same_text"] is row["exact"] is True


def test_what_the_server_refuses_is_one_line(
    profile: Path, greedy_drafts: str, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["--engine", "vllm", "--url", greedy_drafts, "--gamma", "2"]
    assert "drafts 3 tokens, gamma must be that, got 2" in fail(
        capsys, "validate", str(profile), *words
    )
    with pytest.raises(EngineError, match=r"answered 400: .* out of vocabulary"):
        EngineClient(greedy_drafts).complete([[5, 10**7]], [4], SamplingSetting(0.0), 1)


def test_probabilistic_drafts_follow_the_ratio_test_and_no_other(profile: Path) -> None:
    """|z| < 4 of four tests: a correct run fails once in 4,000."""
    check = specsim.EngineCheck(gamma=(2,), temperature=1, drafts="probabilistic")
    (row,) = specsim.validate(profile, check).rows()
    assert row["largest_z"] < 4
    # The other law has no chance in it, so that any difference is infinitely unlikely.
    assert row["other_law_rounds"] > 1.1 * row["counted_rounds"]


def test_prompt_lookup_follows_its_own_rule(profile: Path) -> None:
    check = specsim.EngineCheck(
        gamma=(3,), temperature=0, method="ngram", lookup_max=4, lookup_min=2
    )
    found = specsim.validate(profile, check)
    (row,) = found.rows()
    assert found.passed
    assert row["counted_rounds"] == row["replayed_rounds"] > 0
    assert row["counted_drafted"] == row["replayed_drafted"]
    assert row["counted_accepted"] == row["replayed_accepted"]
    assert row["same_text"] is True


def test_an_exported_schedule_is_followed(program: Path) -> None:
    """specsim's own export, as it is printed, for a load at which the best length changes."""
    shapes = specsim.deploy("qwen3-30b-a3b", "H100-SXM", "draft_model:qwen3-0.6b")
    exported = specsim.export(
        "vllm", deployment=shapes, alpha=0.8, context=512, most=32, gamma_max=4, model=DRAFT
    )
    assert exported.schedule == ((1, 3, 1), (4, 32, 4))
    prompts = held_out_prompts(AutoTokenizer.from_pretrained(TARGET), 64, 16)
    drafted: dict[int, float] = {}
    launch = Launch(program, TARGET, json.loads(exported.text), "float32", 512)
    with started(launch) as client:
        # A machine that stalls serves some requests one after another, and never so many at once:
        # batches that are longer than 3 are asked for again then.
        for batch in (1, 2, *[4] * 3, *[8] * 3, *[16] * 3):
            if drafted.get(batch, 0) > 1:
                continue
            done = client.complete(prompts[:batch], [96] * batch, SamplingSetting(0.0), batch)
            counts = counted(done.before, done.after, client.where)
            assert counts.drafted is not None
            drafted[batch] = counts.drafted / counts.rounds
    # Up to batch 3 one token; from 4 on four, until requests end and the batch is small again.
    assert drafted[1] == drafted[2] == 1
    assert all(1.5 < drafted[batch] < 4 for batch in (4, 8, 16)), drafted


def test_steps_are_timed_and_a_prediction_made_of_them_meets_the_servers(
    profile: Path, tmp_path: Path
) -> None:
    """Seconds on a machine that is busy with tests are not judged, counts and order are."""
    timed = tmp_path / "timed.json"
    timing = specsim.EngineTiming(gamma=(1, 3), batch=(1, 4), repeats=2)
    found = specsim.calibrate_engine(profile, timed, timing)
    assert not [each for each in found.warnings if "replayed" in each]
    steps = {(row["batch"], row["gamma"]): row["plain_steps"] for row in found.rows()}
    assert all(value > 0 for value in steps.values())
    assert set(steps) == {(batch, gamma) for batch in (1, 4) for gamma in (0, 1, 3)}
    plan = specsim.optimize(profile=timed, load=specsim.Load(batches=(1, 4)))
    assert plan.rows()

    check = specsim.EngineBlindCheck(gamma=(2,), passes=2, timed=timed)
    verdict = specsim.validate_engine(profile, check)
    assert [(row["batch"], row["gamma"]) for row in verdict.rows()] == [(1, 2), (4, 2)]
    for row in verdict.rows():
        # Which requests run how long is known beforehand; the texts were decoded 4 at a time.
        assert row["counted_rounds"] == row["replayed_rounds"] > 0
        assert 0.2 < row["measured_speedup"] < 5
