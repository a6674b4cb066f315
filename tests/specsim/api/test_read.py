"""``specsim.read`` and the command as a user types it."""

from __future__ import annotations

import io
import json
import sys
from pathlib import Path

import pytest

import specsim
from specsim.counts.file import read_acceptance
from tests.support.command_line import fail, rows, run
from tests.support.mutations import SAMPLES, sample

SCRAPE = str(SAMPLES / "vllm-prometheus-scrape.txt")
LOG = str(SAMPLES / "vllm-log-current.txt")


def test_the_table_has_intervals_and_the_rest_is_told_beside_it(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    out = tmp_path / "acceptance.json"
    code, text, notes = run(capsys, "read", SCRAPE, "--out", str(out), "--temperature", "0")
    assert code == 0
    # 710 of 1000: Wilson's interval is 0.70920 +- 0.02808 (z = 1.96).
    assert "0.710 (0.681 to 0.737)" in text
    assert "2.660 (" in text
    for word in ("vllm, /metrics scrape", "greedy-drafts", "second to difference", f"wrote {out}"):
        assert word in notes
    assert read_acceptance(out).temperature == 0


def test_rows_have_every_rate(capsys: pytest.CaptureFixture[str]) -> None:
    _, out, _ = run(capsys, "read", LOG, "--format", "json")
    three, seven = rows(out)
    assert (three["gamma"], three["rounds"], seven["gamma"], seven["rounds"]) == (3, 302, 7, 78)
    for row in (three, seven):
        for name in ("marginal", "conditional"):
            ends = zip(row[f"{name}_low"], row[name], row[f"{name}_high"], strict=True)
            assert all(low <= best <= high for low, best, high in ends)
            assert len(row[name]) == row["gamma"]
        assert row["tokens_per_call_low"] < row["tokens_per_call"] < row["tokens_per_call_high"]
    document = json.loads(out)
    assert document["answer"]["acceptance_law"] == "greedy-drafts"
    assert document["answer"]["sources"][0]["recognised"] == ["2 log lines", "2 log lines"]


def test_standard_input(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    # As a Windows shell redirects, with its own line ends.
    text = sample("vllm-log-2025-09.txt").replace("\n", "\r\n").encode("utf-16")
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(text)))
    _, out, _ = run(capsys, "read", "-", "--format", "json")
    assert rows(out)[0]["rounds"] == 59


def test_results_without_counts_have_a_row(capsys: pytest.CaptureFixture[str]) -> None:
    for name in ("sglang-log.txt", "vllm-log-2025-04.txt"):
        code, _, notes = run(capsys, "read", str(SAMPLES / name))
        assert code == 0
        assert "each log line is a window" in notes


def test_two_forms_of_one_run_are_doubted(tmp_path: Path) -> None:
    once = specsim.read(LOG)
    (tmp_path / "copy").write_text(sample("vllm-log-current.txt") + "\n")
    twice = specsim.read(LOG, tmp_path / "copy")
    assert twice.counts[0].rounds == 2 * once.counts[0].rounds
    assert any("counted twice" in line for line in twice.warnings)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ([LOG, LOG], "has the same content as"),
        (["none.txt"], "none.txt: no such file"),
        ([str(SAMPLES)], "is a folder, not a file"),
        ([LOG, str(SAMPLES / "sglang-log.txt")], "files of sglang and vllm do not pool"),
        ([LOG, "--engine", "sglang"], "no number of sglang was found in it"),
        ([LOG, "--engine", "vlm"], "did you mean vllm"),
        ([LOG, "--temperature", "-1"], "must be >= 0"),
        ([LOG, "--out", "/none/acceptance.json"], "no such folder /none"),
        (
            [str(SAMPLES / "vllm-prometheus-dp.txt")],
            "64 at position 4) and neither vllm:spec_decode",
        ),
        ([str(Path(__file__))], "nothing was recognised; looked for"),
    ],
)
def test_refusals_are_one_line(
    capsys: pytest.CaptureFixture[str], words: list[str], message: str
) -> None:
    assert message in fail(capsys, "read", *words)


def test_nothing_is_written_where_one_of_two_files_cannot_be(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    out, profile = tmp_path / "acceptance.json", tmp_path / "profile.json"
    words = ["read", LOG, "--out", str(out), "--speculation-profile"]
    assert "is of one K, the files have 3, 7" in fail(capsys, *words, str(profile))
    assert "must be two files, got" in fail(capsys, *words, str(out))
    assert list(tmp_path.iterdir()) == []
