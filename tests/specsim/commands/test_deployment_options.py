"""Deployments that cannot be, as a user types them: one line, exit code 2."""

from __future__ import annotations

import pytest

from tests.support.command_line import fail, run

ASKED = ["--accelerator", "H100", "--alpha", "0.8", "--batch", "1", "--context", "512"]
LLAMA, MIXTURE = ["--target", "llama-3.1-8b"], ["--target", "qwen3-30b-a3b"]


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ([*LLAMA, "--drafter", "eagle3", "--tensor-parallel", "3"], "must divide the 32 attention"),
        (
            [*LLAMA, "--drafter", "eagle3", "--tensor-parallel", "2", "--expert-parallel", "2"],
            "no routed experts",
        ),
        (
            [*MIXTURE, "--drafter", "mtp", "--tensor-parallel", "2", "--expert-parallel", "4"],
            "must divide tensor x data",
        ),
        (
            [*LLAMA, "--drafter", "eagle3", "--imbalance", "1.5"],
            "imbalance must be 1 where experts",
        ),
        ([*LLAMA, "--drafter", "eagle3", "--pipeline-parallel", "40"], "must be <= 32, the layers"),
        ([*LLAMA, "--drafter", "eagle3", "--dtype", "nvfp4"], "dtype nvfp4-weight-only runs on it"),
        ([*LLAMA, "--drafter", "eagle3", "--kv-dtype", "fp9"], "did you mean fp8"),
        ([*LLAMA, "--drafter", "eagel3"], "did you mean eagle or eagle3"),
        ([*LLAMA, "--drafter", "eagle3:lama-3.1-8b"], "did you mean llama-3.1-8b"),
        ([*LLAMA, "--drafter", "eagle3:qwen3-8b"], "is for a vocabulary of 151,936 tokens"),
        ([*LLAMA, "--drafter", "eagle3:qwen3-32b"], "is for a target with states of 5,120"),
        ([*LLAMA, "--drafter", "eagle3:nothing"], "neither shipped nor a config.json"),
        ([*LLAMA, "--drafter", "draft_model:llama-3.2-1b,tensor=2"], "must divide the target's"),
        ([*LLAMA, "--drafter", "medusa:heads=4", "--gamma-max", "9"], "gamma_max must be <= 4"),
        (
            [*LLAMA, "--drafter", "eagle3", "--profile", "nothing.json"],
            "nothing.json: no such file",
        ),
        (["--target", "llama-3.1-405b", "--drafter", "eagle3"], "it may fit on more cards"),
        (["--target", "llama-3.1-9b", "--drafter", "eagle3"], "did you mean llama-3.1-70b"),
    ],
)
def test_refused(capsys: pytest.CaptureFixture[str], words: list[str], said: str) -> None:
    assert said in fail(capsys, "optimize", *words, *ASKED)


@pytest.mark.parametrize("dtype", ["int4", "awq", "fp8-weight-only", "nvfp4-weight-only"])
def test_weights_alone_may_be_in_numbers_that_the_card_has_no_units_for(
    capsys: pytest.CaptureFixture[str], dtype: str
) -> None:
    words = [*LLAMA, "--drafter", "eagle3:llama-3.1-8b", "--dtype", dtype, *ASKED]
    code, out, _ = run(capsys, "optimize", *words, "--accelerator", "A100")
    assert code == 0
    assert "speedup" in out


def test_drafters_are_loaded_in_the_number_type_of_the_target(
    capsys: pytest.CaptureFixture[str],
) -> None:
    words = ["optimize", "--target", "llama-3.2-3b", *ASKED, "--accelerator", "V100-SXM2-32GB"]
    drafters = ["--drafter", "draft_model:llama-3.2-1b", "--drafter", "eagle3"]
    assert "dtype float16 runs on it" in fail(capsys, *words, *drafters)
    code, _, _ = run(capsys, *words, *drafters, "--dtype", "float16")
    assert code == 0
