"""Engines' configurations: golden texts, and schedules that say what was found for every batch."""

from __future__ import annotations

import json
import shlex
from itertools import pairwise
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

import specsim
from specsim import deploy
from specsim.acceptance import AcceptanceLaw
from specsim.batching.measured_cost import MeasuredLoadCost
from specsim.batching.point import batch_point, best_of_cell
from specsim.batching.tokens_per_block import TokensPerBlock
from specsim.checks import InvalidArgumentError, UnsupportedError
from specsim.engines import ENGINES, Method, Order, Schedule, gamma_at, largest, merged
from specsim.profiles import file_digest, read_profile
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


# What is written for a draft model; every other method is checked in test_declarations.py, which
# names the engines' sources.
GOLDEN = {
    "vllm": '{"method": "draft_model", "model": "org/a draft", "num_speculative_tokens": 3, '
    '"num_speculative_tokens_per_batch_size": [[1, 2, 3], [3, 4, 1], [5, 6, 0]]}',
    "sglang": "--speculative-algorithm STANDALONE --speculative-draft-model-path 'org/a draft' "
    "--speculative-num-steps 1 --speculative-eagle-topk 1 --speculative-num-draft-tokens 2 "
    "--max-running-requests 6",
    "tensorrt-llm": "speculative_config:\n"
    "  decoding_type: Draft_Target\n"
    "  max_draft_len: 3\n"
    '  speculative_model: "org/a draft"\n'
    "  draft_len_schedule:\n"
    "    2: 3\n"
    "    4: 1",
    "llama.cpp": "--spec-type draft-simple -md 'org/a draft' --spec-draft-n-max 1",
    "transformers": "assistant_model.generation_config.num_assistant_tokens = 3\n"
    'assistant_model.generation_config.num_assistant_tokens_schedule = "constant"\n'
    "assistant_model.generation_config.assistant_confidence_threshold = 0.0",
}


def order(name: str, schedule: Schedule, method: Method = "draft_model", batch: int = 1) -> Order:
    return Order(schedule, ENGINES[name].drafting(method), "org/a draft", batch)


@pytest.mark.parametrize("name", list(ENGINES))
def test_golden_texts(name: str, schedule: Schedule) -> None:
    batch = 1 if name == "transformers" else 3
    assert ENGINES[name].write(order(name, schedule, batch=batch)).text == GOLDEN[name]


def test_sglang_keeps_lengths_by_batch_in_a_file(schedule: Schedule) -> None:
    written = ENGINES["sglang"].write(order("sglang", schedule, "eagle3"))
    assert written.text == (
        "--speculative-algorithm EAGLE3 --speculative-draft-model-path 'org/a draft' "
        "--speculative-num-steps 3 --speculative-eagle-topk 1 --speculative-num-draft-tokens 4 "
        "--max-running-requests 6 --speculative-adaptive --speculative-adaptive-config "
        "adaptive.json\n"
        '{"1": {"candidate_steps": [3]}, "3": {"candidate_steps": [1]}, '
        '"5": {"candidate_steps": [0]}}'
    )


def test_transformers_takes_one_request(schedule: Schedule) -> None:
    with pytest.raises(UnsupportedError, match="at batch 1 only, got --batch 3"):
        ENGINES["transformers"].write(order("transformers", schedule, batch=3))


def test_tensorrt_llm_cannot_start_with_less_than_the_longest() -> None:
    with pytest.raises(UnsupportedError, match="the best here would be 1: 0, 2-3: 4"):
        ENGINES["tensorrt-llm"].write(order("tensorrt-llm", merged([0, 4, 4])))


def test_engines_say_what_happens_above_the_last_batch() -> None:
    still_on = merged([2, 2, 1])
    assert "above batch 3 vLLM goes on with draft length 1" in (
        ENGINES["vllm"].write(order("vllm", still_on)).notes
    )
    trt = ENGINES["tensorrt-llm"].write(order("tensorrt-llm", still_on))
    assert trt.text.endswith("    2: 2\n    3: 1")
    assert "above batch 3 TensorRT-LLM drafts nothing" in trt.notes


# What an engine does with the lengths that it was given, and a word of the sentence that says so.
NOTES = [
    ("vllm", "draft_model", "data parallelism above 1"),
    ("vllm", "draft_model", "has no CUDA graphs for a draft model and drafts 3 tokens at every"),
    ("vllm", "draft_model", "VLLM_USE_V2_MODEL_RUNNER=0 has them and drafts by the schedule, with"),
    ("vllm", "dflash", "drafts 3 tokens at every batch with dflash, of which it verifies"),
    ("vllm", "p_eagle", "give requests each other's drafts (pull request 45695), here the best at"),
    ("vllm", "pard", "takes one draft length with parallel drafts, which its V1 model runner"),
    ("vllm", "ngram", "verifies all places of a request with ngram, whether anything was found"),
    ("vllm", "ngram", "VLLM_USE_V2_MODEL_RUNNER=0 verifies what was found and drafts by the"),
    ("vllm", "medusa", "takes one draft length with Medusa, which its V1 model runner alone has"),
    ("vllm", "eagle3", "at draft length 0 vLLM still runs the drafter"),
    ("vllm", "suffix", "drafts less where the match is short"),
    ("sglang", "draft_model", "runs 48 requests at most"),
    ("sglang", "eagle3", "pads a batch to the next CUDA-graph size"),
    ("sglang", "mtp", "attention data parallelism, two-batch overlap"),
    ("sglang", "draft_model", "by batch, in few ranges, they would be 1-2: 3, 3-4: 1, 5-6: 0"),
    ("tensorrt-llm", "draft_model", "older and calls it DraftTarget"),
    ("tensorrt-llm", "draft_model", "pull request 16888"),
    ("tensorrt-llm", "draft_model", "does not run the drafter, whose cache lacks these tokens"),
    ("sglang", "ngram", "looks up what requests have written, all of them together"),
    ("llama.cpp", "draft_model", "runs the drafter once more a round than planned"),
    ("tensorrt-llm", "ngram", "takes one draft length with NGram"),
    ("llama.cpp", "draft_model", "--spec-draft-p-min is above 0"),
    ("transformers", "mtp", "one token for each MTP layer"),
]


@pytest.mark.parametrize(("name", "method", "words"), NOTES)
def test_engines_say_what_they_make_of_it(
    schedule: Schedule, name: str, method: Method, words: str
) -> None:
    assert words in "\n".join(ENGINES[name].write(order(name, schedule, method)).notes)


def test_what_does_not_apply_is_not_said() -> None:
    """One length for all batches has no schedule to lose, and ngram no drafter to run."""
    one = ENGINES["vllm"].write(order("vllm", merged([2, 2]), "eagle3"))
    assert one.notes == ("above batch 2 vLLM goes on with draft length 2",)
    assert "by_batch" not in one.text
    looked_up = Order(merged([2, 0]), ENGINES["vllm"].drafting("ngram"))
    assert "still runs the drafter" not in "\n".join(ENGINES["vllm"].write(looked_up).notes)


def test_export_from_a_profile(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    path = write_grid(tmp_path)
    words = ["export", "vllm", "--profile", str(path), "--context", "100", "--most", "80"]
    code, out, err = run(capsys, *words)
    content = json.loads(out)
    profile = read_profile(path)
    cost = MeasuredLoadCost.of(profile, 1.0)
    gains = TokensPerBlock.of_trace(profile.trace(path, profile.acceptance[0]), 4)
    cells = [best_of_cell(gains, cost, batch, 100, 4) for batch in range(1, 81)]
    assert code == 0
    assert content["model"] == "d"
    ranges = content["num_speculative_tokens_per_batch_size"]
    gammas = [g for first, last, g in ranges for _ in range(first, last + 1)]
    assert content["num_speculative_tokens"] == max(gammas)
    for cell, gamma in zip(cells, gammas, strict=True):
        assert (gamma > 0) == cell.pays(0.05)
        given = batch_point(gains, cost, gamma, cell.batch, 100)
        assert not gamma or given.speedup >= 0.99 * cell.speedup
    # With each batch's own best there are more ranges than batches can be told apart by.
    assert len(ranges) < len(merged([cell.gamma for cell in cells]))
    assert "extrapolated beyond the measured grid: batch 65-80 at context 100" in err


TARGET = ("--target", "llama-3.1-8b", "--accelerator", "H100-SXM")


def test_export_from_shapes(capsys: pytest.CaptureFixture[str]) -> None:
    words = ["export", "llama.cpp", *SHAPES, "--alpha", "0.8", "--model", "d.gguf", "--most", "70"]
    code, out, err = run(capsys, *words, "--context", "4096", "--batch", "8")
    assert code == 0
    flags = shlex.split(out)
    assert flags[:-1] == ["--spec-type", "draft-simple", "-md", "d.gguf", "--spec-draft-n-max"]
    assert int(flags[-1]) > 0
    assert "planned for batch 1 to 70 at context 4,096" in err
    code, out, err = run(capsys, *words, "--context", "8192")
    assert code == 0
    # 75.2 GB for 16.06 and 2.47 GB of weights, and 8208 tokens of 160 KiB in each cache; or
    # of 128 KiB where the target is alone.
    assert "not planned from batch 43 on: llama-3.1-8b with draft_model:llama-3.2-1b" in err
    assert "room for 42, without the drafter for 54" in err


@pytest.mark.parametrize("name", list(ENGINES))
def test_nothing_to_export_ends_with_one(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, name: str
) -> None:
    words = ["export", name, "--profile", str(write_grid(tmp_path)), "--most", "8"]
    code, out, err = run(capsys, *words, "--alpha", "0.01")
    assert (code, out) == (1, "")
    assert err.endswith("speculation never gains 5% or more here: leave it off\n")


def test_a_batch_that_does_not_pay_has_no_flags(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    words = ["export", "sglang", "--profile", str(write_grid(tmp_path)), "--most", "64"]
    code, out, err = run(capsys, *words, "--context", "64", "--batch", "64")
    assert (code, out) == (1, "")
    assert err.endswith("speculation does not pay at batch 64: leave it off\n")


def drafter(words: str) -> tuple[str, ...]:
    return (*TARGET, "--drafter", f"{words}:alpha=0.8")


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["nope"], "engine 'nope' is not known (known: vllm"),
        (["vllm"], "profile is missing"),
        (["vllm", *SHAPES, "--alpha", "0.8"], "model is missing: what vLLM should load"),
        (["vllm", *SHAPES, "--alpha", "0.8"], "or its path, such as --model Qwen/Qwen3-0.6B"),
        (["llama.cpp", *SHAPES, "--alpha", "0.8"], "or its path, such as --model draft.gguf"),
        (["vllm", *SHAPES, "--alpha", "0.8", "--batch", "2"], "batch has no meaning for vllm"),
        (["transformers", *SHAPES, "--alpha", "1", "--model", "d"], "model has no meaning"),
        (["sglang", *SHAPES, "--alpha", ".8", "--batch", "9", "--most", "2", "--model", "d"], "9"),
        (["vllm", *SHAPES, "--alpha", "0.8", "--most", "0"], "--most must be"),
        (["trtllm", *SHAPES, "--alpha", "0.8"], "did you mean vllm or tensorrt-llm?"),
        (["vllm", "--method", "eagl3", *SHAPES, "--alpha", ".8"], "did you mean eagle or eagle3"),
        (["sglang", *drafter("suffix")], "SGLang has no method suffix"),
        (
            ["transformers", *drafter("eagle3")],
            "no method eagle3 (transformers 5.23.0 has draft_model, dflash, mtp, ngram)",
        ),
        (["vllm", *drafter("ngram"), "--model", "d"], "by name"),
        (["vllm", *drafter("eagle3")], "as the draft with eagle3"),
        (["vllm", *SHAPES, "--alpha", ".8", "--lookup-max", "3"], "only with ngram"),
        (
            ["sglang", *drafter("ngram"), "--lookup-max", "3"],
            "lookup_max cannot be told to SGLang",
        ),
        (
            ["llama.cpp", *drafter("ngram"), "--lookup-min", "3"],
            "lookup_min cannot be told to llama.cpp",
        ),
        (
            ["vllm", *drafter("ngram"), "--lookup-max", "2", "--lookup-min", "3"],
            "lookup_min must be <= lookup_max, which is 2, got 3",
        ),
    ],
)
def test_bad_exports_are_one_line(
    capsys: pytest.CaptureFixture[str], words: list[str], message: str
) -> None:
    *_, last = run(capsys, "export", *words)[2].splitlines()
    assert last.startswith("specsim: error: ")
    assert message in last


def test_methods_as_typed(capsys: pytest.CaptureFixture[str]) -> None:
    words = [*TARGET, "--alpha", "0.7,0.6,0.5", "--most", "32"]
    code, out, err = run(
        capsys, "export", "vllm", *words, "--drafter", "ngram", "--lookup-max", "4",
        "--lookup-min", "2",
    )  # fmt: skip
    content = json.loads(out)
    assert code == 0
    assert content["method"] == "ngram"
    assert (content["prompt_lookup_min"], content["prompt_lookup_max"]) == (2, 4)
    assert "model" not in content
    assert "not those of" not in err
    code, out, _ = run(capsys, "export", "llama.cpp", *words, "--drafter", "mtp")
    assert (code, shlex.split(out)[:2]) == (0, ["--spec-type", "draft-mtp"])
    assert "-md" not in out
    code, out, err = run(
        capsys, "export", "sglang", *words, "--drafter", "parallel:kind=DFlash", "--model", "d"
    )
    assert (code, shlex.split(out)[:2]) == (0, ["--speculative-algorithm", "DFLASH"])
    assert "another length than it was trained for" in err


def test_heads_do_not_have_the_name_of_the_draft_model(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    words = ["export", "vllm", "--profile", str(write_grid(tmp_path)), "--most", "4"]
    said = fail(capsys, *words, "--method", "eagle3")
    assert "model is missing: what" in said
    assert "such as --model yuhuili/EAGLE3-LLaMA3.1-Instruct-8B" in said
    code, out, err = run(capsys, *words, "--method", "mtp")
    assert code == 0
    assert "model" not in json.loads(out)
    assert "planned with the acceptance and costs of a draft model" in err


@pytest.mark.parametrize("name", list(ENGINES))
def test_results_name_law_and_version(name: str) -> None:
    shapes = deploy("llama-3.1-8b", "H100-SXM", "draft_model:llama-3.2-1b")
    model = None if name == "transformers" else "d"
    found = specsim.export(name, deployment=shapes, alpha=0.8, most=2, model=model)
    engine = ENGINES[name]
    assert found.read_at == engine.read_at
    assert found.acceptance_law == ("ratio-test" if name == "transformers" else "greedy-drafts")
    answer = found.document()["answer"]
    assert answer["acceptance_law"] == found.acceptance_law
    assert answer["method"] == "draft_model"
    assert f"written as {engine.read_at} reads it" in found.warnings
    (said,) = [line for line in found.warnings if f"({found.acceptance_law})" in line]
    # SGLang refuses the ratio test with a draft model, and llama.cpp has none.
    assert ("unless told" in said) == (name in ("vllm", "tensorrt-llm"))


def write_ranked(folder: Path, **changes: Any) -> Path:
    """A profile at temperature 1 whose trace has ranks: every other token is a greedy draft's."""
    path = write_grid(folder, **changes)
    content = json.loads(path.read_text())
    file = folder / content["acceptance"][0]["trace"]["file"]
    frame = pd.read_parquet(file)
    frame.assign(draft_rank=1 + frame.index % 2).to_parquet(file)
    content["acceptance"][0]["trace"]["sha256"] = file_digest(file)
    path.write_text(json.dumps(content))
    return path


def test_one_length_of_a_profile_has_its_interval(tmp_path: Path) -> None:
    path = write_grid(tmp_path)
    found = specsim.export("llama.cpp", profile=path, most=4)
    one, best = (
        specsim.explain(gamma=gamma, batch=4, context=64, profile=path).decision.speedup
        for gamma in (3, 2)
    )
    assert one is not None
    assert best is not None
    assert (
        f"at batch 4 draft length 3 gives {one.best:.2f}x ({one.low:.2f} to {one.high:.2f}), where "
        f"2 would give {best.best:.2f}x ({best.low:.2f} to {best.high:.2f}); --batch says for "
        "which batch"
    ) in found.warnings


# The law of an engine, and what may be told to it instead.
OTHER_LAWS = [
    ("vllm", "greedy-drafts", 'tell vLLM "draft_sample_method": "probabilistic"'),
    ("tensorrt-llm", "greedy-drafts", "tell TensorRT-LLM use_rejection_sampling: true"),
    ("sglang", "greedy-drafts", ""),
    ("llama.cpp", "greedy-drafts", ""),
    ("transformers", "ratio-test", ""),
]


@pytest.mark.parametrize(("name", "law", "remedy"), OTHER_LAWS)
def test_a_plan_under_another_law_is_told(
    tmp_path: Path, name: str, law: AcceptanceLaw, remedy: str
) -> None:
    path = write_ranked(tmp_path)
    laws: tuple[AcceptanceLaw, ...] = ("ratio-test", "greedy-drafts")
    for planned in laws:
        found = specsim.export(name, profile=path, acceptance_law=planned, most=4)
        assert found.text
        (said,) = [line for line in found.warnings if f"({law})" in line]
        if planned == law:
            assert said.endswith("as was planned")
        else:
            assert f"planned for {planned}" in said
            assert f"plan with --acceptance-law {law}" in said
            assert ("tell " in said) == bool(remedy)
            assert remedy in said


def test_the_law_of_the_plan_changes_it(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    """Ranks 1, 2, 1, 2, ...: greedy drafts accept every other token, so one draft, never two.

    Of two drafts the second is always rejected; one in two starts of a block is accepted.
    """
    words = ["export", "vllm", "--profile", str(write_ranked(tmp_path)), "--most", "1"]
    code, out, err = run(capsys, *words, "--acceptance-law", "greedy-drafts")
    assert (code, json.loads(out)["num_speculative_tokens"]) == (0, 1)
    assert "(greedy-drafts), as was planned" in err
    code, out, err = run(capsys, *words)
    assert (code, json.loads(out)["num_speculative_tokens"] > 1) == (0, True)
    assert "planned for ratio-test" in err


def test_laws_agree_at_temperature_zero(tmp_path: Path) -> None:
    path = write_grid(tmp_path)
    content = json.loads(path.read_text())
    for row in [*content["batch_overhead"], *content["overhead"]]:
        row["temperature"] = 0.0
    path.write_text(json.dumps(content))
    found = specsim.export("vllm", profile=path, alpha=0.8, temperature=0.0, most=2)
    assert not any("greedy-drafts" in line for line in found.warnings)


def test_one_temperature_at_a_time(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    path = write_grid(tmp_path)
    content = json.loads(path.read_text())
    cold = [{**row, "temperature": 0.0} for row in content["batch_overhead"]]
    content["batch_overhead"] += cold
    path.write_text(json.dumps(content))
    words = ["export", "vllm", "--profile", str(path), "--alpha", "0.9", "--most", "2"]
    assert "temperature is missing, one of 0, 1" in fail(capsys, *words)
    assert run(capsys, *words, "--temperature", "0")[0] == 0
