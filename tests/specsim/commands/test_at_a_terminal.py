"""Every command of README and docs at a terminal of 80 columns: no line over it, no broken cell.

A command that is new on a page is run here as it stands: what it reads is laid out by
tests/support/typed_commands.py.  Those with their output on the page are run by tests/test_docs.py.
"""

from __future__ import annotations

import json
import sys
from collections import Counter
from contextlib import chdir
from pathlib import Path

import pytest

import specsim
from specsim.cli import COMMANDS
from tests.support.command_line import fail, run
from tests.support.console import ROOT, examples
from tests.support.results import RESULTS
from tests.support.terminal import run_on_terminal, said_on_terminals
from tests.support.typed_commands import (
    PAGES,
    as_a_shell,
    is_elsewhere,
    lay_out,
    runs_models,
    typed_commands,
)

HERE = [words for words in typed_commands() if not is_elsewhere(words)]
# A document is not read at a terminal.
TABLES = [words for words in HERE if "json" not in words]
PRINTED = {example.words for page in PAGES for example in examples(page)}
AS_TYPED = [
    words
    for words in TABLES
    if not runs_models(words) and words[0] != "sweep" and words not in PRINTED
]
WITH_MODELS = [words for words in HERE if runs_models(words) and words[0] != "study"]
# Words behind those of a command with models, of which the last count: fewer requests, shorter.
SHORTER = {
    "calibrate": "--prompts prompts.txt --temperature 0 --requests 2 --max-new-tokens 8 "
    "--gamma-max 2 --repeats 2",
    "calibrate --cost-only": "--batch 1,2 --context 16 --gamma-max 2 --repeats 2",
    "validate": "--prompts prompts.txt --requests 2",
    "validate --blind": "--prompts prompts.txt --gamma 1,2 --passes 2 --requests 2",
    "validate --synthetic": "--batch 1,2 --context 16",
    "score": "--text prompts.txt --requests 2 --tokens 8",
}
# Of a command that no page types.
WORKLOADS = (
    "--rate 4 --prompt lognormal:1155,0.9 --output 211",
    "--concurrency 8 --prompt 512 --output 128 --requests 100",
    "--rate 1000 --arrivals gamma:4 --prompt uniform:10,100000 --output 20000 --duration 100",
)
# What programs read, and no terminal breaks: their lines are as long as they are.
DOCUMENTS = {
    "schema": ("profile", "acceptance", "prediction", "accelerator", "interconnect"),
    "completion": ("bash", "zsh", "fish"),
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """With the files that the commands read, those among them that ``specsim read`` writes."""
    found = tmp_path_factory.mktemp("typed")
    lay_out(found)
    with chdir(found):
        for words in AS_TYPED:
            if words[0] == "read":
                run_on_terminal(as_a_shell(words, found))
    return found


def test_every_command_is_run_or_needs_what_is_not_here() -> None:
    names = Counter(words[0] for words in (*AS_TYPED, *PRINTED))
    assert names["optimize"] >= 15
    assert names["explain"] >= 4
    assert names["export"] >= 5
    assert names["serve"] >= 4
    assert names["plan"] >= 2
    assert {words[0] for words in WITH_MODELS} == {"calibrate", "validate", "score"}
    elsewhere = {words[0] for words in typed_commands() if is_elsewhere(words)}
    assert elsewhere == {"calibrate", "validate", "sweep"}
    by_themselves = {"sweep", "study", "demo", "workload", *DOCUMENTS}
    assert {*names, "calibrate", "validate", "score"} | by_themselves == set(COMMANDS)


@pytest.mark.parametrize("words", AS_TYPED, ids=" ".join)
def test_a_command_fits(
    words: tuple[str, ...], folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(folder)
    screen = run_on_terminal(as_a_shell(words, folder))
    assert screen.code in (0, 1), screen.lines
    assert screen.tables or words[0] == "export"
    if words[0] == "plan":  # simulated figures stand beside analytic ones, and are other ones
        assert "by" in [column.name for column in screen.tables[0]]
    screen.check()


def test_a_sweep_fits(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """In a process of its own, with which its workers end."""
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    (words,) = [words for words in HERE if words[0] == "sweep" and "--workers" not in words]
    said = said_on_terminals([sys.executable, "-m", "specsim", *words], folder)
    lines = [line for each in said for line in each.splitlines()]
    assert lines
    assert max(map(len, lines)) <= 80


def test_commands_with_models_fit(
    tmp_path: Path, tiny_family: dict[str, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    """In the order of the pages, each with what those before it wrote, on models built here."""
    monkeypatch.chdir(tmp_path)
    for name in ("target", "draft"):
        Path(name).symlink_to(tiny_family[name])
    prompts = (
        " ".join(f"w{(7 * line + word) % 60 + 2}" for word in range(6)) for line in range(20)
    )
    Path("prompts.txt").write_text("\n".join(prompts))
    names = {"embedded/target": "target", "embedded/small": "draft"}
    for words in WITH_MODELS:
        kinds = [f"{words[0]} {word}" for word in words if f"{words[0]} {word}" in SHORTER]
        more = SHORTER[kinds[0] if kinds else words[0]]
        screen = run_on_terminal([names.get(word, word) for word in (*words, *more.split())])
        assert screen.code in (0, 1), screen.lines
        assert screen.tables, screen.lines
        screen.check()


def test_a_study_fits(tmp_path: Path) -> None:
    screen = run_on_terminal(["study", "specdec", "--out", str(tmp_path)])
    assert screen.tables
    screen.check()


@pytest.mark.parametrize("words", WORKLOADS)
def test_a_workload_fits(words: str) -> None:
    screen = run_on_terminal(["workload", *words.split()])
    assert screen.code == 0, screen.lines
    assert screen.tables
    screen.check()


def test_the_demo_fits(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What it measures in minutes is taken as done; all that it says of it is said."""
    found = RESULTS["demonstration"](tmp_path)
    monkeypatch.setattr("specsim.api.demo.demonstrate", lambda *_, **__: found)
    monkeypatch.chdir(tmp_path)
    screen = run_on_terminal(["demo", "--out", "."])
    assert screen.code == 0, screen.lines
    assert screen.tables
    assert screen.lines[-1] == "page: page.html"
    screen.check()


@pytest.mark.parametrize("name", ["speedup.png", "page.html"])
def test_the_demo_needs_a_place_for_what_it_writes(
    name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Before it measures for minutes."""
    monkeypatch.setattr("specsim.api.demo.demonstrate", lambda *_, **__: pytest.fail("has begun"))
    (tmp_path / name).mkdir()
    assert f"{name}: is a folder" in fail(capsys, "demo", "--out", str(tmp_path))


@pytest.mark.parametrize(
    "words", [(name, word) for name, words in DOCUMENTS.items() for word in words], ids=" ".join
)
def test_a_document_is_whole_at_a_terminal(
    words: tuple[str, str], capsys: pytest.CaptureFixture[str]
) -> None:
    code, piped, _ = run(capsys, *words)
    screen = run_on_terminal(words)
    assert screen.code == code == 0
    assert screen.out.rstrip("\n") == piped.rstrip("\n")
    assert screen.err == ""
    if words[0] == "schema":
        assert json.loads(screen.out) == specsim.schema(words[1])


@pytest.mark.parametrize("name", [None, *COMMANDS])
def test_help_fits(
    name: str | None, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    code, out, _ = run(capsys, *([name] if name else []), "--help")
    assert code == 0
    assert max(map(len, out.splitlines())) <= 80


def test_an_error_is_broken_at_a_terminal_and_one_line_in_a_pipe(
    capsys: pytest.CaptureFixture[str],
) -> None:
    words = ["optimize", "--target", "no-such-model", "--drafter", "eagle3", "--alpha", "0.7"]
    words += ["--accelerator", "H100"]
    line = fail(capsys, *words)
    assert len(line) > 80
    screen = run_on_terminal(words)
    assert screen.code == 2
    screen.check()
    assert " ".join(" ".join(screen.lines).split()) == line.strip()
