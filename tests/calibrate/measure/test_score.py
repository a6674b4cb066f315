"""``specsim score``: statistics against whole distributions, and the command as typed."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch

from calibrate.measure import score as measure
from calibrate.measure.score import fixed_rules, score, setting, statistics
from calibrate.models.load import load_pair
from calibrate.models.sampling import Sampling
from specsim.checkpoint import Checkpoint
from specsim.frontier import Comparison, read_positions
from specsim.rules import Distributions, Lossy, TokenV3
from tests.support.command_line import fail, run
from tests.support.word_texts import write_words


@pytest.fixture(scope="module")
def text(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_words(tmp_path_factory.mktemp("text") / "text.txt", 6, 90)


def words(family: dict[str, Path], text: Path, out: Path, *more: str) -> list[str]:
    return [
        *("score", "--target", str(family["target"]), "--draft", str(family["draft"])),
        *("--text", str(text), "--device", "cpu", "--out", str(out), "--tokens", "80", *more),
    ]


@pytest.mark.parametrize("temperature", [0.0, 0.7, 1.0])
def test_score_then_defer(
    capsys: pytest.CaptureFixture[str],
    tiny_family: dict[str, Path],
    text: Path,
    tmp_path: Path,
    temperature: float,
) -> None:
    out = tmp_path / "positions.parquet"
    options = ("--temperature", f"{temperature}", "--requests", "6", "--format", "json")
    code, printed, err = run(capsys, *words(tiny_family, text, out, *options))
    assert code == 0, err
    assert json.loads(printed)["answer"]["rows"][0]["positions"] == 6 * 79
    positions = read_positions(out)
    assert positions.requests == 6
    assert positions.about["temperature"] == temperature
    code, printed, err = run(capsys, "defer", str(out), "--quality", "target", "--format", "json")
    assert code == 0, err
    rules = {row["rule"] for row in json.loads(printed)["answer"]["rows"]}
    assert rules >= {"Chow", "OptLog", "BildStar greedy", "TokenV3", "TopBeta"}
    assert ("Lossy" in rules) == (temperature > 0)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["positions.parquet"]


def test_score_goes_on_where_it_was_killed(
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    tiny_family: dict[str, Path],
    text: Path,
    tmp_path: Path,
) -> None:
    whole, killed = tmp_path / "whole.parquet", tmp_path / "killed.parquet"
    options = ("--requests", "5", "--format", "json")
    assert run(capsys, *words(tiny_family, text, whole, *options))[0] == 0
    read, requests = measure._scored, list[int]()

    def dies(target: Any, draft: Any, request: int, *rest: Any) -> Any:
        if request == 3 and 3 not in requests:
            requests.append(request)
            raise KeyboardInterrupt
        requests.append(request)
        return read(target, draft, request, *rest)

    monkeypatch.setattr(measure, "_scored", dies)
    assert run(capsys, *words(tiny_family, text, killed, *options))[0] == 130
    assert not killed.exists()
    assert run(capsys, *words(tiny_family, text, killed, *options))[0] == 0
    assert requests == [0, 1, 2, 3, 3, 4]
    pd.testing.assert_frame_equal(pd.read_parquet(killed), pd.read_parquet(whole))
    assert sorted(tmp_path.iterdir()) == [killed, whole]


def test_chunks_and_batches_agree_with_one_pass(
    tiny_family: dict[str, Path], text: Path, tmp_path: Path
) -> None:
    """The slow twin: whole texts in one forward pass each, every rule on whole distributions."""
    pair = load_pair(str(tiny_family["target"]), str(tiny_family["draft"]), torch.device("cpu"))
    lines = text.read_text().splitlines()[:2]
    texts = [pair.target.tokenizer(line)["input_ids"] for line in lines]
    frame = score(*pair.cached(), texts, Sampling(0.8), Checkpoint(tmp_path / "work"))
    rows = []
    for words_ in texts:
        ids = torch.tensor([words_])
        with torch.inference_mode():
            logits = [loaded.model(ids).logits[0, :-1] for loaded in (pair.target, pair.draft)]
        p, q = ((row.double() / 0.8).softmax(-1).numpy() for row in logits)
        raw_p, raw_q = (row.double().softmax(-1).numpy() for row in logits)
        labels = np.array(words_[1:])
        given = Distributions(p, q, raw_p, raw_q)
        columns = {
            "label": labels,
            "logp_target": np.log(p[np.arange(len(labels)), labels]),
            "tv": np.maximum(p - q, 0).sum(-1),
            "unscaled_draft_max": raw_q.max(-1),
            "tempered_target_entropy": -(p * np.log(p)).sum(-1),
            "tempered_bild_expectation": -(q * np.log(p)).sum(-1),
            "draft_log_range": -np.log(q.min(-1)),
        }
        for rule in (TokenV3(0.5, decide_on="unscaled"), Lossy(0.5)):
            emitted = rule.emitted(given)[np.arange(len(labels)), labels]
            columns[f"{setting(rule)}.rejection"] = 1 - rule.acceptance(given)
            columns[f"{setting(rule)}.logp"] = np.log(emitted)
        rows.append(pd.DataFrame(columns))
    for name, expected in pd.concat(rows).items():
        # float32 on the one side; logits of some tens.
        assert frame[name].to_numpy() == pytest.approx(expected.to_numpy(), abs=2e-5), name
    assert frame["position"].tolist() == [at for words_ in texts for at in range(len(words_) - 1)]
    assert min(len(words_) for words_ in texts) > 65  # more than one chunk


def test_names_of_settings() -> None:
    names = [setting(rule) for rule in fixed_rules(greedy=False)]
    assert len(set(names)) == len(names)
    assert {"TokenV3(threshold=0.5)", "TopBeta(beta=3, tau=1)", "Lossy(looseness=0.9)"} <= {*names}


def test_small_probabilities_have_logs() -> None:
    """At a low temperature float32 probabilities vanish; their logs do not."""
    logits = torch.tensor([[0.0, 20.0]])
    columns = statistics(logits, logits, torch.tensor([0]), Sampling(0.1), [])
    assert columns["logp_target"] == pytest.approx(-200)


def test_swept_and_measured_agree(
    capsys: pytest.CaptureFixture[str], tiny_family: dict[str, Path], text: Path, tmp_path: Path
) -> None:
    """CSV has no room for what the file is about, and gives the same curves."""
    curves = []
    for name in ("p.csv", "p.parquet"):
        assert run(capsys, *words(tiny_family, text, tmp_path / name, "--requests", "3"))[0] == 0
        rules = Comparison.of(read_positions(tmp_path / name), "log", "unscaled").rules
        curves.append({rule: judged.curve() for rule, judged in rules.items()})
    assert curves[0].keys() == curves[1].keys()
    for rule, curve in curves[0].items():
        assert curve.rejection[-1] == pytest.approx(curves[1][rule].rejection[-1], abs=1e-6)


def test_wrong_words(
    capsys: pytest.CaptureFixture[str], tiny_family: dict[str, Path], text: Path, tmp_path: Path
) -> None:
    out = tmp_path / "p.parquet"
    assert "must end in .parquet or .csv" in fail(capsys, *words(tiny_family, text, tmp_path / "p"))
    nowhere = tmp_path / "none" / "p.csv"
    assert "no such folder" in fail(capsys, *words(tiny_family, text, nowhere))
    assert "tokens must be <= 128" in fail(
        capsys, *words(tiny_family, text, out, "--tokens", "129")
    )
    single = tmp_path / "single.txt"
    single.write_text("w5 w6 w7\nw8\n")
    assert "has 1 texts of at least two tokens" in fail(capsys, *words(tiny_family, single, out))
    assert not out.exists()
