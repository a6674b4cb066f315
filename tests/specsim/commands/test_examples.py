"""The examples below the help of every command: they run as they are printed, where that is cheap.

Beside each stands what makes the files that it names; what is not run stands in a list with the
reason.  An example that is in neither fails for want of its files.
"""

from __future__ import annotations

import json
import re
import shlex
import shutil
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path

import pytest

from specsim.cli import COMMANDS
from tests.support.command_line import run
from tests.support.mutations import SAMPLES
from tests.support.positions import write_positions
from tests.support.profiles import overhead, write_grid
from tools.command_pages import examples

ROOT = Path(__file__).parents[3]
NOT_RUN = {
    "specsim demo": "five minutes of decoding",
    "specsim calibrate": "models of the Hub, and minutes of decoding",
    "specsim validate": "models decode",
    "specsim score": "models read a long text",
    "specsim study": "minutes",
    "specsim doctor --target": "a model of the Hub",
    "specsim sweep settings.toml --out results --backend": "a scheduler elsewhere",
}


def to_run() -> Iterator[str]:
    """All that are to run, in the order of the commands."""
    for name in COMMANDS:
        found = examples(import_module(f"specsim.commands.{name}").command)
        assert found, f"specsim {name} --help has no example"
        for example in found:
            if not example.startswith(tuple(NOT_RUN)):
                yield example


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Every file that an example reads, by the name that it has there."""
    folder = tmp_path_factory.mktemp("examples")
    target = {"name": "t", "parameters": 1000, "context": 4096, "sha256": "0"}
    draft = {"name": "d", "parameters": 100, "context": 4096, "sha256": "1"}
    profile = write_grid(folder, target=target, draft=draft).read_text()
    (folder / "profile.json").write_text(profile)
    greedy = overhead(temperature=0.0)
    whole = json.loads(profile)
    (folder / "costs.json").write_text(
        json.dumps({**whole, "acceptance": [], "overhead": [], "batch_overhead": greedy})
    )
    for day in ("monday", "today"):
        (folder / day).mkdir()
        for name in ("profile.json", "p.trace.parquet"):
            shutil.copy(folder / name, folder / day / name)
    write_positions(folder)
    shutil.copy(ROOT / "docs/data/trace.parquet", folder / "trace.parquet")
    (folder / "AzureLLMInferenceTrace_conv.csv").write_text(
        "TIMESTAMP,ContextTokens,GeneratedTokens\n"
        "2023-11-16 18:15:46.6805900,374,44\n"
        "2023-11-16 18:15:50.9951690,396,109\n"
        "2023-11-16 18:15:51.2224670,879,55\n"
    )
    (folder / "settings.toml").write_text(
        'command = "optimize"\n[inputs]\nalpha = [0.7, 0.8]\nc = 0.05\n'
    )
    scrape = (SAMPLES / "vllm-prometheus-scrape.txt").read_text()
    (folder / "after.txt").write_text(scrape)
    # Half of everything that is counted.
    halved = re.sub(r"(?m)^(vllm:\S+_total\S*) (\S+)$", _half, scrape)
    (folder / "before.txt").write_text(halved)
    shutil.copy(SAMPLES / "vllm-log-current.txt", folder / "log")
    timed = {"median_itl_ms": 10.0, "max_concurrency": 8}
    (folder / "k0.json").write_text(json.dumps(timed))
    shutil.copy(SAMPLES / "vllm-bench-serve-result.json.txt", folder / "k3.json")
    return folder


def _half(line: re.Match[str]) -> str:
    return f"{line[1]} {float(line[2]) / 2:g}"


@pytest.mark.parametrize("example", list(to_run()))
def test_an_example_runs_as_it_is_printed(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, files: Path, example: str
) -> None:
    monkeypatch.chdir(files)
    if "before.json" in example:
        for name, alpha in (("before", "0.8"), ("after", "0.7")):
            words = ["evaluate", "--alpha", alpha, "--c", "0.05", "--gamma", "5"]
            _, out, _ = run(capsys, *words, "--format", "json")
            Path(f"{name}.json").write_text(out)
    code, out, err = run(capsys, *shlex.split(example)[1:])
    assert code == ("before.json" in example), err
    assert out
    assert "Traceback" not in err


def test_what_is_not_run_is_still_there() -> None:
    """A reason without its example would hide a new one."""
    every = [
        example
        for name in COMMANDS
        for example in examples(import_module(f"specsim.commands.{name}").command)
    ]
    for start in NOT_RUN:
        assert any(example.startswith(start) for example in every), start
