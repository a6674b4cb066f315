"""Engines' configurations: golden texts, and schedules that say what was found for every batch."""

from __future__ import annotations

import json
import shlex
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from specsim.batching.cost import MeasuredLoadCost
from specsim.batching.point import best_of_cell
from specsim.batching.tokens_per_block import TokensPerBlock
from specsim.checks import InvalidArgumentError, UnsupportedError
from specsim.engines import ENGINES, Schedule, gamma_at, largest, merged
from specsim.profiles import read_profile
from tests.support.command_line import SHAPES, fail, run
from tests.support.loads import Priced
from tests.support.profiles import write_grid


@given(st.lists(st.integers(0, 3), min_size=1, max_size=60))
def test_ranges_cover_every_batch_once(gammas: list[int]) -> None:
    schedule = merged(gammas)
    covered = [batch for first, last, _ in schedule for batch in range(first, last + 1)]
    assert covered == list(range(1, len(gammas) + 1))
    assert [gamma_at(schedule, batch) for batch in covered] == gammas
    assert all(one[2] != other[2] for one, other in pairwise(schedule))
    assert largest(schedule) == max(gammas)


def test_batches_outside_the_schedule_are_refused() -> None:
    for batch in (0, 4):
        with pytest.raises(InvalidArgumentError, match=rf"must be in \[1, 3\], got {batch}"):
            gamma_at(merged([2, 2, 0]), batch)


@pytest.fixture(scope="module")
def schedule() -> Schedule:
    """S_i = 0.6^i and c = 0.1: by hand, of gamma 0..4 the best is 3, then 1, then 0.

    Another token costs the target nothing up to batch 2, then 0.3, and 1 from batch 5 on.
    Batch 1, 2: (1 + .6 + .36 + .216) / 1.3 = 1.674 against 1.633 at gamma 2 and 1.647 at 4.
    Batch 3, 4: 1.6 / 1.4 = 1.143 against 1.96 / 1.8 = 1.089.  Batch 5: 1.6 / 2.1 < 1.
    """
    curve = [0.6**i for i in range(1, 5)]
    cost = Priced(lambda n, batch: 1 + (n - 1) * (0.0 if batch < 3 else 0.3 if batch < 5 else 1.0))
    cells = [best_of_cell(curve, cost, batch, 0, 4) for batch in range(1, 7)]
    return merged([cell.gamma for cell in cells])


def test_the_schedule_of_the_golden_texts(schedule: Schedule) -> None:
    assert schedule == [(1, 2, 3), (3, 4, 1), (5, 6, 0)]


# The shapes of these texts are those of the engines' own documents: vLLM 0.33
# docs/features/speculative_decoding, SGLang 0.5.23 adaptive_spec_params.py, TensorRT-LLM pull
# request 10860, llama.cpp 2026-10 --help, transformers 5.23 GenerationConfig.
GOLDEN = {
    "vllm": '{"method": "draft_model", "model": "org/a draft", "num_speculative_tokens": 3, '
    '"num_speculative_tokens_per_batch_size": [[1, 2, 3], [3, 4, 1], [5, 6, 0]]}',
    "sglang": "--speculative-algorithm STANDALONE --speculative-draft-model-path 'org/a draft' "
    "--speculative-num-steps 1 --speculative-eagle-topk 1 --speculative-num-draft-tokens 2\n"
    '{"1": {"candidate_steps": [3]}, "3": {"candidate_steps": [1]}, '
    '"5": {"candidate_steps": [0]}}',
    "tensorrt-llm": "speculative_config:\n"
    "  decoding_type: DraftTarget\n"
    "  max_draft_len: 3\n"
    '  speculative_model: "org/a draft"\n'
    "  draft_len_schedule:\n"
    "    2: 3\n"
    "    4: 1",
    "llama.cpp": "-md 'org/a draft' --spec-draft-n-max 1",
    "transformers": "assistant_model.generation_config.num_assistant_tokens = 3\n"
    'assistant_model.generation_config.num_assistant_tokens_schedule = "constant"\n'
    "assistant_model.generation_config.assistant_confidence_threshold = 0.0",
}


@pytest.mark.parametrize("name", list(ENGINES))
def test_golden_texts(name: str, schedule: Schedule) -> None:
    batch = 1 if name == "transformers" else 3
    assert ENGINES[name].write(schedule, "org/a draft", batch).text == GOLDEN[name]


def test_transformers_takes_one_request(schedule: Schedule) -> None:
    with pytest.raises(UnsupportedError, match="at batch 1 only, got --batch 3"):
        ENGINES["transformers"].write(schedule, "", 3)


def test_tensorrt_llm_cannot_start_with_less_than_the_longest() -> None:
    with pytest.raises(UnsupportedError, match="the best here would be 1: 0, 2-3: 4"):
        ENGINES["tensorrt-llm"].write(merged([0, 4, 4]), "d", 1)


def test_engines_say_what_happens_above_the_last_batch() -> None:
    still_on = merged([2, 2, 1])
    assert "above batch 3 vLLM goes on with draft length 1" in (
        ENGINES["vllm"].write(still_on, "d", 1).notes
    )
    trt = ENGINES["tensorrt-llm"].write(still_on, "d", 1)
    assert trt.text.endswith("    2: 2\n    3: 1")
    assert "above batch 3 TensorRT-LLM drafts nothing" in trt.notes


def test_export_from_a_profile(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    path = write_grid(tmp_path)
    words = ["export", "vllm", "--profile", str(path), "--context", "100", "--most", "80"]
    code, out, err = run(capsys, *words)
    content = json.loads(out)
    profile = read_profile(path)
    cost = MeasuredLoadCost.of(profile, 1.0)
    gains = TokensPerBlock.of_trace(profile.trace(path, profile.acceptance[0]), 4)
    cells = [best_of_cell(gains, cost, batch, 100, 4) for batch in range(1, 81)]
    best = [cell.gamma if cell.speedup >= 1.01 else 0 for cell in cells]
    assert code == 0
    assert content["model"] == "d"
    assert content["num_speculative_tokens"] == max(best)
    ranges = content["num_speculative_tokens_per_batch_size"]
    assert [g for first, last, g in ranges for _ in range(first, last + 1)] == best
    assert "extrapolated beyond the measured grid: batch 65-80 at context 100" in err


def test_export_from_shapes(capsys: pytest.CaptureFixture[str]) -> None:
    words = ["export", "llama.cpp", *SHAPES, "--alpha", "0.8", "--model", "d.gguf", "--most", "70"]
    code, out, err = run(capsys, *words, "--context", "4096", "--batch", "8")
    assert code == 0
    flags = shlex.split(out)
    assert flags[:3] == ["-md", "d.gguf", "--spec-draft-n-max"]
    assert int(flags[3]) > 0
    assert "planned for batch 1 to 70 at context 4,096" in err
    code, out, err = run(capsys, *words, "--context", "8192")
    assert code == 0
    # 18.5 GB of weights; each of 8192 + 17 tokens takes 160 KiB of both caches.
    assert "not planned from batch 46 on: both models with batch 46" in err


@pytest.mark.parametrize("name", list(ENGINES))
def test_nothing_to_export_ends_with_one(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, name: str
) -> None:
    words = ["export", name, "--profile", str(write_grid(tmp_path)), "--most", "8"]
    code, out, err = run(capsys, *words, "--alpha", "0.01")
    assert (code, out) == (1, "")
    assert err.endswith("speculation never gains 1% or more here: leave it off\n")


def test_a_batch_that_does_not_pay_has_no_flags(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    words = ["export", "sglang", "--profile", str(write_grid(tmp_path)), "--most", "64"]
    code, out, err = run(capsys, *words, "--context", "64", "--batch", "64")
    assert (code, out) == (1, "")
    assert err.endswith("speculation does not pay at batch 64: leave it off\n")


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["nope"], "engine 'nope' is not known (known: vllm"),
        (["vllm"], "profile is missing"),
        (["vllm", *SHAPES, "--alpha", "0.8"], "model is missing: what vllm should load"),
        (["vllm", *SHAPES, "--alpha", "0.8", "--batch", "2"], "batch has no meaning for vllm"),
        (["transformers", *SHAPES, "--alpha", "1", "--model", "d"], "model has no meaning"),
        (["sglang", *SHAPES, "--alpha", ".8", "--batch", "9", "--most", "2", "--model", "d"], "9"),
        (["vllm", *SHAPES, "--alpha", "0.8", "--most", "0"], "--most must be"),
        (["trtllm", *SHAPES, "--alpha", "0.8"], "did you mean vllm or tensorrt-llm?"),
    ],
)
def test_bad_exports_are_one_line(
    capsys: pytest.CaptureFixture[str], words: list[str], message: str
) -> None:
    *_, last = run(capsys, "export", *words)[2].splitlines()
    assert last.startswith("specsim: error: ")
    assert message in last


def test_one_temperature_at_a_time(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    path = write_grid(tmp_path)
    content = json.loads(path.read_text())
    cold = [{**row, "temperature": 0.0} for row in content["batch_overhead"]]
    content["batch_overhead"] += cold
    path.write_text(json.dumps(content))
    words = ["export", "vllm", "--profile", str(path), "--alpha", "0.9", "--most", "2"]
    assert "temperature is missing, one of 0, 1" in fail(capsys, *words)
    assert run(capsys, *words, "--temperature", "0")[0] == 0
