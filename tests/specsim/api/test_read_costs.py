"""Cost from the files of ``specsim read``, and the speculation profile that it writes."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import specsim
from specsim.checks import UnsupportedError
from tests.support.command_line import fail, run
from tests.support.mutations import SAMPLES

SCRAPE = str(SAMPLES / "vllm-prometheus-scrape.txt")


def results(folder: Path, itl_ms: dict[int, float], batch: int = 8) -> list[str]:
    """Files of ``vllm bench serve --save-result``: ITL by K, half of all drafts accepted."""
    names = []
    for gamma, itl in itl_ms.items():
        result: dict[str, object] = {"median_itl_ms": itl, "max_concurrency": batch}
        if gamma:
            result |= {
                "spec_decode_acceptance_rate": 50.0,
                "spec_decode_acceptance_length": 1 + gamma / 2,
                "spec_decode_num_drafts": 100,
                "spec_decode_draft_tokens": 100 * gamma,
                "spec_decode_accepted_tokens": 50 * gamma,
                "spec_decode_per_position_acceptance_rates": [0.5] * gamma,
            }
        names.append(str(folder / f"k{gamma}-b{batch}.json"))
        Path(names[-1]).write_text(json.dumps(result))
    return names


def test_results_at_three_k_give_the_law_of_a_step(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    files = results(tmp_path, {0: 10.0, 2: 16.0, 4: 20.0})
    costs = specsim.read(*files).costs
    assert costs is not None
    assert costs.relative(4, 8) == pytest.approx(2.0)
    assert costs.step_s(3, 8) == pytest.approx(0.018)
    code, _, notes = run(capsys, "read", *files)
    assert code == 0
    law = "at batch 8 a step takes 10 ms without drafts, with K drafts +2 ms and +2 ms a draft"
    assert law in notes


def test_concurrencies_make_a_grid(tmp_path: Path) -> None:
    files = results(tmp_path, {0: 10.0, 2: 16.0}) + results(tmp_path, {0: 30.0, 2: 60.0}, batch=16)
    costs = specsim.read(*files).costs
    assert costs is not None
    assert costs.batches == (8.0, 16.0)
    assert costs.relative(2, 8) == pytest.approx(1.6)
    assert costs.relative(2, 16) == pytest.approx(2.0)
    assert costs.plain_s(12) == pytest.approx(0.020)


def test_forward_times_need_no_acceptance(capsys: pytest.CaptureFixture[str]) -> None:
    files = [str(SAMPLES / f"vllm-bench-forward{end}.json.txt") for end in ("", "-with-drafter")]
    costs = specsim.read(*files).costs
    assert costs is not None
    assert costs.line(2, fixed_s=0.0).draft_run_s == pytest.approx(0.5e-3)
    code, _, notes = run(capsys, "read", *files)
    assert code == 0
    assert "11 ms at K = 4" in next(
        line for line in notes.splitlines() if line.startswith("step times at batch 2:")
    )


def test_steps_of_no_known_draft_length_give_no_cost(tmp_path: Path) -> None:
    text = (SAMPLES / "guidellm-benchmarks.json.txt").read_text()
    (tmp_path / "report").write_text(text.replace("response_metrics", "other"))
    found = specsim.read(tmp_path / "report")
    assert found.steps
    assert found.costs is None


def test_a_speculation_profile_has_what_was_counted(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    out = tmp_path / "speculation_profile.json"
    words = ["--speculation-profile", str(out), "--method", "eagle3"]
    code, _, notes = run(capsys, "read", SCRAPE, *words)
    assert code == 0
    assert f"wrote {out}" in notes
    counted, again = specsim.read(SCRAPE).counts, specsim.read(out).counts
    assert [(c.gamma, c.rounds, c.reached) for c in again] == [
        (c.gamma, c.rounds, c.reached) for c in counted
    ]
    written = json.loads(out.read_text())
    assert written["measurement_conditions"]["engine"] == "vllm"
    assert written["method"] == "eagle3"


def test_a_speculation_profile_is_of_one_k(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    out = tmp_path / "profile.json"
    with pytest.raises(UnsupportedError, match="is of one K, the files have 2, 4; read"):
        specsim.read(*results(tmp_path, {2: 16.0, 4: 20.0}), speculation_profile=out)
    words = ("read", SCRAPE, "--speculation-profile", "/none/profile.json")
    assert "no such folder /none" in fail(capsys, *words)
    assert not out.exists()
