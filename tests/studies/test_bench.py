"""``vllm bench serve`` in one process, run by a Python whose vLLM is made up."""

from __future__ import annotations

from pathlib import Path

import pytest

from calibrate.engine.client import EngineClient, EngineError
from studies.serving.bench import bench_started
from tests.support.engine_program import engine_program


@pytest.fixture(autouse=True)
def program(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("ENGINE_VENV", str(tmp_path))
    monkeypatch.setattr(EngineClient, "model", lambda _: "the-model")
    (tmp_path / "bin").mkdir()
    return engine_program(tmp_path / "bin")


def test_one_process_benchmarks_again_and_again(tmp_path: Path) -> None:
    dataset = tmp_path / "requests.jsonl"
    dataset.touch()
    client = EngineClient("http://127.0.0.1:8123")
    with bench_started() as bench:
        first = bench.serve(client, dataset, 200, "12.5", 7)
        second = bench.serve(client, dataset, 32, "inf", 8)
        # The one folder that goes with the process, also where this program is killed.
        assert Path(first["result_dir"]) == bench.folder
        assert not list(bench.folder.glob("*.json"))
    for found, requests, rate, seed in ((first, 200, 12.5, 7), (second, 32, float("inf"), 8)):
        assert found["num_prompts"] == requests
        assert found["request_rate"] == rate
        assert found["seed"] == seed
        assert found["base_url"] == "http://127.0.0.1:8123"
        assert found["model"] == "the-model"
        assert found["dataset_path"] == str(dataset)
        assert found["save_detailed"]
        assert found["ignore_eos"]
        assert found["custom_output_len"] == -1
    assert not Path(first["result_dir"]).exists()


def test_what_goes_wrong_is_one_line(tmp_path: Path, program: Path) -> None:
    client = EngineClient("http://127.0.0.1:8123")
    with bench_started() as bench:
        with pytest.raises(EngineError, match=r"vllm bench serve: no dataset .*missing.jsonl$"):
            bench.serve(client, tmp_path / "missing.jsonl", 1, "1", 0)
        (tmp_path / "there.jsonl").touch()
        found = bench.serve(client, tmp_path / "there.jsonl", 1, "1", 0)
        assert found["num_prompts"] == 1, "it can be asked again"
    program.with_name("python").write_text("#!/bin/sh\necho of no use >&2\n")
    with (
        pytest.raises(EngineError, match=r"bench serve has ended; its log ends: of no use"),
        bench_started(),
    ):
        pass
