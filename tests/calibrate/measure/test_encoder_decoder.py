"""Encoder-decoder pairs through the commands, from sources to a checked prediction."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
from transformers import AutoModelForSeq2SeqLM, AutoTokenizer

import specsim
from specsim.profiles import Profile, read_profile
from specsim.traces import Trace
from tests.support.command_line import fail, rows, run
from tests.support.encoder_decoders import FAMILIES, near, save, untied
from tests.support.word_texts import write_words

REQUESTS, NEW = 6, 12
# Wall-clock is not judged here: tiny models on a busy machine.
LENIENT = ("--tolerance", "100", "--median-tolerance", "100", "--format", "json")


@pytest.fixture(scope="module")
def sources(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_words(tmp_path_factory.mktemp("sources") / "sources.txt", REQUESTS, 6, first=4)


@pytest.fixture(scope="module", params=FAMILIES)
def folders(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> dict[str, Path]:
    """A target whose draft often agrees."""
    root = tmp_path_factory.mktemp(request.param)
    target = untied(FAMILIES[request.param](1, encoder=1, decoder=1), spread=0.5)
    return {
        "target": save(target, root / "target"),
        "draft": save(near(target, 2, 0.1), root / "draft"),
    }


def pair(folders: dict[str, Path]) -> list[str]:
    return ["--target", str(folders["target"]), "--draft", str(folders["draft"])]


@pytest.fixture(scope="module")
def profile(
    folders: dict[str, Path], sources: Path, tmp_path_factory: pytest.TempPathFactory
) -> Path:
    out = tmp_path_factory.mktemp("profile") / "pair.json"
    models = specsim.Models(str(folders["target"]), str(folders["draft"]), device="cpu", threads=1)
    measured = specsim.calibrate(
        out,
        models,
        specsim.Measurement(
            prompts=sources,
            requests=(REQUESTS,),
            prompt_tokens=7,
            max_new_tokens=NEW,
            gamma_max=3,
            repeats=1,
        ),
    )
    # Seven tokens are what the sources have, but who knows what was cut off.
    assert f"{REQUESTS} of {REQUESTS} sources" in measured.warnings[0]
    return out


def traces(profile: Path) -> tuple[Profile, list[Trace]]:
    content = read_profile(profile)
    return content, [content.trace(profile, each) for each in content.acceptance]


def test_the_text_is_that_of_transformers(
    profile: Path, folders: dict[str, Path], sources: Path
) -> None:
    content, (greedy, _) = traces(profile)
    tokenizer = AutoTokenizer.from_pretrained(folders["target"])
    model = AutoModelForSeq2SeqLM.from_pretrained(folders["target"], dtype=torch.float32)
    for number, source in enumerate(sources.read_text().splitlines()):
        ids = tokenizer(source, return_tensors="pt")
        found = model.generate(**ids, max_new_tokens=NEW, do_sample=False)[0, 1:].tolist()
        start, end = greedy.starts[number : number + 2]
        assert greedy.columns["token"][start:end].tolist() == found
        # The context counts the source, its end and what is written.
        assert greedy.columns["context"][start] == 7
    assert all(0.2 < each.alpha.best < 0.95 for each in content.acceptance)


def test_a_prediction_from_the_profile_is_what_decoding_counts(
    capsys: pytest.CaptureFixture[str], profile: Path, sources: Path
) -> None:
    content, (greedy, _) = traces(profile)
    file = profile.parent / content.acceptance[0].trace.file
    replayed = run(capsys, "replay", str(file), "--greedy", "--gamma", "3", "--format", "json")
    calls = {row["gamma"]: row["calls"] for row in rows(replayed[1])}
    best = run(capsys, "optimize", "--profile", str(profile), "--format", "json")
    evaluated = run(
        capsys,
        *("evaluate", "--profile", str(profile), "--gamma", "3", "--temperature", "0"),
        *("--format", "json"),
    )
    assert best[0] == evaluated[0] == 0, best[2] + evaluated[2]
    (priced,) = rows(evaluated[1])
    code, out, err = run(
        capsys,
        *("validate", str(profile), "--only", "calibration", "--prompts", str(sources)),
        *("--gamma", "3", *LENIENT),
    )
    assert code == 0, err
    for row in rows(out):
        if row["temperature"] == 0:
            assert row["exact"]
            assert row["predicted_calls"] == row["measured_calls"] == calls[row["gamma"]]
            assert row["z"] == 0
            assert row["predicted_tokens_per_call"] == pytest.approx(priced["tokens_per_call"])
        else:
            # False-alarm chance 1e-4 for each of 2 families.  Seeded.
            assert abs(row["z"]) < 3.9
    assert greedy.tokens > calls[3] > calls[3] / 4


def test_whole_requests_judge_a_prediction_that_is_written_down(
    capsys: pytest.CaptureFixture[str], profile: Path, sources: Path
) -> None:
    code, out, err = run(
        capsys,
        *("validate", str(profile), "--prompts", str(sources), "--requests", "3", "--blind"),
        *("--gamma", "1,3", "--passes", "2", "--tolerance", "100", "--format", "json"),
    )
    assert code == 0, err
    file = profile.with_name(f"{profile.stem}.prediction.json")
    predictions = json.loads(file.read_text())["predictions"]
    before = {(each["temperature"], each["gamma"]): each["speedup"] for each in predictions}
    found = rows(out)
    assert [(row["temperature"], row["gamma"]) for row in found] == [
        (temperature, gamma) for temperature in (0, 1) for gamma in (1, 3)
    ]
    for row in found:
        assert row["speedup_at_profile_plain"] == before[row["temperature"], row["gamma"]]
        # At temperature 0 calls are known exactly.
        assert row["exact"] is (True if row["temperature"] == 0 else None)
        assert row["measured_speedup"] > 0
    file.unlink()


def test_schemes_are_predicted_and_decoded(
    capsys: pytest.CaptureFixture[str],
    profile: Path,
    sources: Path,
    folders: dict[str, Path],
) -> None:
    if "bart" in str(folders["target"]):
        pytest.skip("schemes see no difference between the families, and take a while")
    code, out, err = run(
        capsys,
        *("validate", str(profile), "--prompts", str(sources), "--requests", "2"),
        *("--scheme", "vertical-cascade,token-cascade,beam-search", "--temperature", "0"),
        *("--with", f"middle={folders['draft']}", *LENIENT),
    )
    assert code == 0, err
    found = rows(out)
    assert {row["scheme"] for row in found} == {"vertical-cascade", "token-cascade"}
    for row in found:
        assert row["exact"]
        assert row["log_loss"] is None
        assert row["predicted_runs"]["target"] == pytest.approx(row["measured_runs"]["target"])
    assert "beam-search is left out: an encoder-decoder model" in err


def test_what_cannot_be_done_is_refused_in_a_line(
    capsys: pytest.CaptureFixture[str],
    profile: Path,
    folders: dict[str, Path],
    sources: Path,
    tiny_family: dict[str, Path],
    tmp_path: Path,
) -> None:
    both, causal = pair(folders), str(tiny_family["target"])
    prompts, out = ["--prompts", str(sources)], ["--out", str(tmp_path / "p.json")]

    def refused(*words: str) -> str:
        return fail(capsys, *words, "--device", "cpu")

    mixed = ["--target", causal, "--draft", str(folders["draft"])]
    assert "of one kind" in refused("calibrate", *mixed, *prompts, *out)
    assert "source texts" in refused("calibrate", *both, *out)
    assert "no --batch" in refused("calibrate", *both, *prompts, *out, "--batch", "1,2")
    assert "no --batch" in refused("calibrate", *both, *out, "--cost-only")
    positions = str(tmp_path / "positions.csv")
    assert "score takes causal models" in refused(
        "score", *both, "--text", str(sources), "--out", positions
    )
    check = ["validate", str(profile), *prompts, "--requests", "2"]
    assert "vllm takes causal models" in refused(*check, "--engine", "vllm")
    check += ["--scheme", "speculative"]
    assert "of one kind" in refused(*check, "--with", f"middle={causal}")
    assert "another target" in refused(*check, "--with", "eagle=embedded/eagle")
    assert "no run times of batches" in refused("validate", str(profile), "--synthetic")

    config = json.loads((folders["target"] / "config.json").read_text())
    startless = FAMILIES["t5" if "d_model" in config and "d_kv" in config else "bart"](1, 1, 1)
    startless.config.decoder_start_token_id = None
    startless.generation_config.decoder_start_token_id = None
    folder = str(save(startless, tmp_path / "startless"))
    words = ["--target", folder, "--draft", folder]
    assert "decoder_start_token_id" in refused("calibrate", *words, *prompts, *out)
    assert not (tmp_path / "p.json").exists()
