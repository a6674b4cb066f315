"""The commands of README and docs, files of invented numbers by the names that they use, and what
it takes to see them at a terminal.
"""

from __future__ import annotations

import glob
import json
from collections.abc import Iterator, Sequence
from pathlib import Path

import specsim
from tests.support.console import ROOT, commands
from tests.support.engine_files import bench, scrape
from tests.support.positions import write_positions
from tests.support.profiles import grid, overhead, write

PAGES = (ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md")))
# They run models, and a study draws many figures.
_WITH_MODELS = ("calibrate", "validate", "score", "study", "demo")
# What only somebody else has: models of the Hub, vLLM, the log of a server, a cluster.
_ELSEWHERE = ("google/", "TARGET", "vllm:", "--serving", "--address")

# Of a few settings, one of which fails.
_SWEEP = """command = "optimize"

[inputs]
alpha = [0.6, 0.7, 1.2]
c = 0.1
"""


def typed_commands() -> Iterator[tuple[str, ...]]:
    """The words behind ``specsim``, of every command once, in the order of the pages."""
    yield from dict.fromkeys(tuple(words) for page in PAGES for words in commands(page))


def is_elsewhere(words: Sequence[str]) -> bool:
    """Whether the command needs what is neither part of the repository nor written here."""
    engine = words[0] != "export" and "--engine" in words
    of_hub = words[:2] == ("validate", "t5.json")
    return engine or of_hub or any(each in word for word in words for each in _ELSEWHERE)


def runs_models(words: Sequence[str]) -> bool:
    """Whether it takes real models; counts of engines are validated without."""
    return words[0] in _WITH_MODELS and words[:2] != ("validate", "timed.json")


def as_a_shell(words: Sequence[str], folder: Path) -> list[str]:
    """The words with patterns of names replaced by the files of a folder."""
    found = []
    for word in words:
        names = sorted(glob.glob(word, root_dir=folder)) if set(word) & set("*?") else []
        found += names or [word]
    return found


def lay_out(folder: Path) -> None:
    """What the commands read: profiles with run times of batches, counts of engines, positions."""
    batches = [
        {**row, "context": context}
        for row in grid()
        for context in (64, 512, 4096)
        if row["context"] == 64
    ]
    batches += [{**row, "batch": 256} for row in batches if row["batch"] == 64]
    hosts = [{**row, "context": 64} for row in (*overhead(temperature=0.0), *overhead())]
    profile = json.loads(write(folder, grid=batches, batch_overhead=hosts).read_text())
    for name in ("target", "draft"):
        profile[name]["context"] = 8192
    for name in ("acceptance", "overhead"):
        profile[name] = [
            {**row, **_at(name, temperature)} for row in profile[name] for temperature in (0.0, 1.0)
        ]
    for name in ("profile", "profile-today", "costs", "t5"):
        (folder / f"{name}.json").write_text(json.dumps(profile))
    answer = specsim.optimize(profile=folder / "profile.json").to_json()
    for day in ("monday", "today"):
        (folder / f"{day}.json").write_text(answer)
    (folder / "metrics.txt").write_text(scrape(0.7, 4))
    for gamma in (0, 1, 4):
        for batch in (1, 16):
            (folder / f"k{gamma}-c{batch}.json").write_text(bench(10.0 + gamma, batch, gamma))
    write_positions(folder)
    (folder / "settings.toml").write_text(_SWEEP)
    for name, c in (("before", 0.1), ("after", 0.2)):
        (folder / f"{name}.toml").write_text(_SWEEP.replace("0.1", str(c)))
        specsim.sweep(folder / f"{name}.toml", folder / name, workers=1)
    (folder / "docs").symlink_to(ROOT / "docs")
    (folder / "tests").symlink_to(ROOT / "tests")


def _at(name: str, temperature: float) -> dict[str, object]:
    return (
        {"sampling": {"temperature": temperature}}
        if name == "acceptance"
        else {"temperature": temperature}
    )
