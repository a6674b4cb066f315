"""``specsim study`` from end to end: its files, its pages, its exit codes, what it measures."""

from __future__ import annotations

import csv
import re
import sys
from pathlib import Path
from typing import Any

import pytest

import specsim
from specsim import __version__
from specsim.api.validation import AnyCheck
from specsim.checkpoint import Checkpoint
from specsim.cli import main
from specsim.files import FileError
from specsim.schemes import SpeculativeDecoding
from studies import STUDIES
from studies.common import measure
from studies.common.measured import SCORED, Measured
from studies.common.study import Check, Study, Tables
from studies.common.write import counts, load, write
from tests.support.pages import decoding, document, sentences
from tests.support.profiles import write as write_profile

# A person reads no longer sentence in one breath.
WORDS = 45


def run(*words: str) -> int:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys, "argv", ["specsim", *words])
        with pytest.raises(SystemExit) as ended:
            main()
    return int(ended.value.code or 0)


@pytest.fixture(scope="module")
def pages(bare: Measured, tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("pages") / "new folder"
    assert run("study", "all", "--profile", str(bare.path), "--out", str(out)) == 0
    return out


@pytest.fixture(scope="module")
def computed(bare: Measured) -> dict[str, Tables]:
    return {name: load(name).tables(bare) for name in STUDIES}


@pytest.mark.parametrize("name", STUDIES)
def test_every_printed_number_matches_or_has_a_reason(
    name: str, computed: dict[str, Tables]
) -> None:
    checks = load(name).checks(computed[name])
    assert checks or name == "serving", "which has no paper"
    assert [each for each in checks if each.matches == bool(each.reason)] == []


@pytest.mark.parametrize("name", STUDIES)
def test_every_table_has_a_file_and_every_row_a_source(
    name: str, pages: Path, computed: dict[str, Tables]
) -> None:
    tables = computed[name]
    assert set(load(name).captions) <= set(tables)
    for table, rows in tables.items():
        with (pages / f"{name}-{table}.csv").open(newline="") as stream:
            written = list(csv.DictReader(stream))
        assert len(written) == len(rows)
        assert all(row["source"] for row in written)
        assert all(list(row)[-1] == "source" for row in written)
    with (pages / f"{name}-checks.csv").open(newline="") as stream:
        assert len(list(csv.DictReader(stream))) == len(load(name).checks(tables))


@pytest.mark.parametrize(
    ("name", "empty", "said", "pictures"),
    [
        (
            "bild",
            "engagement latency fastest decoded alignment early orderings",
            "specsim score",
            "operations",
        ),
        ("cascades", "frontier equal_quality executions", "No text was scored", ""),
        ("csdrafting", "swi search ablation orderings", "not decoded", "allocation positions"),
        (
            "fidelity",
            "points errors budget formula decisions orderings decoders",
            "Nothing was decoded",
            "iid public specbundle cost_curve",
        ),
        ("serving", "setup errors totals orders latencies", "Nothing was served", ""),
        ("specdec", "blocks law grid", "No drafter of masks was decoded", "verify devices"),
    ],
)
def test_a_profile_alone_is_enough(
    name: str, empty: str, said: str, pictures: str, computed: dict[str, Tables]
) -> None:
    study, tables = load(name), computed[name]
    assert [table for table in empty.split() if tables[table]] == []
    assert said in " ".join(study.opening(tables))
    assert study.draw(tables).keys() == set(pictures.split())


@pytest.mark.parametrize("name", STUDIES)
def test_a_page_can_be_read(
    name: str, bare: Measured, pages: Path, computed: dict[str, Tables]
) -> None:
    study, text = load(name), (pages / f"{name}.md").read_text()
    title, *opening, header = text.split("\n\n")[:5]
    rest = text.split("\n\n")[5:]
    assert title == f"# {study.title}"
    assert opening == list(study.opening(computed[name]))
    said = [sentence for paragraph in opening for sentence in sentences(paragraph)]
    assert [len(each.split()) for each in said if len(each.split()) > WORDS] == []
    for part in (
        f"command: `specsim study all --profile {bare.path} --out ",
        f"specsim {__version__}, commit ",
        "Python 3, torch 2, transformers 5",
        "seed: ",
        "target t (1,000 parameters)",
    ):
        assert part in header
    pictures = re.findall(rf"!\[(\w+)\]\({name}-(\w+)\.png\)\n\n\*(.+)\*\n", text)
    assert [first for first, _, _ in pictures] == [second for _, second, _ in pictures]
    for figure, _, caption in pictures:
        assert caption == study.pictures[figure].caption
        assert (pages / f"{name}-{figure}.png").stat().st_size > 5000
    assert len(list(pages.glob(f"{name}-*.png"))) == len(pictures)
    headings = [part.removeprefix("## ") for part in rest if part.startswith("## ")]
    expected = [caption.removesuffix(".").split(". ")[0] for caption in study.captions.values()]
    assert [each for each in headings if each in expected] == expected
    assert headings[-1] == "The paper's numbers"


def _made_tables(measured: Measured) -> Tables:
    long: list[dict[str, Any]] = [{"source": "x", "n": n} for n in range(61)]
    long[-1]["rare"] = 1
    return {"long": long, "none": [], "points": []}


def _made_opening(tables: Tables) -> list[str]:
    # A study tells its rows apart by the columns that they have.
    rare = sum("rare" in row for row in tables["long"])
    return ["Rows are counted.", f"{rare} row is rare.", "Nothing differs."]


# One number matches, one another number, two differ for one reason, one is missing.
MADE_CHECKS = [
    Check("Table 1", "a", 1.0, 1.0, 0.1),
    Check("Table 1", "again", 1.0, 1.0, 0.1, printed_twice=True),
    Check("Table 1", "b", 2.0, 2.5, 0.1, "a slip."),
    Check("Table 2", "c", 3.0, 3.5, 0.1, "a slip."),
    Check("Table 2", "d", 4.0, None, 0.1, "lost"),
]
MADE = Study(
    "Made up",
    {"long": "A long table. It goes on.", "none": "Nothing. Yet."},
    {},
    _made_tables,
    _made_opening,
    lambda tables: MADE_CHECKS,
)


def test_printed_numbers_are_counted_by_how_they_stand() -> None:
    assert counts(MADE_CHECKS) == {
        "printed": 5,
        "computable": 4,
        "reproduced": 1,
        "consistent": 1,
        "differ_with_reason": 2,
        "unexplained": 0,
    }
    unexplained = [Check("Table 1", "e", 1.0, 2.0, 0.1), Check("Table 1", "f", 1.0, None, 0.1)]
    assert counts(unexplained)["unexplained"] == 2


def test_what_differs_is_grouped_by_reason(
    bare: Measured, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("studies.common.write.load", lambda name: MADE)
    write("made", bare, tmp_path, "typed")
    text = (tmp_path / "made.md").read_text()
    computed = "4 of them can be computed from what it prints: 1 of those match ours within their "
    assert "The paper prints 5 numbers that are checked here." in text
    twice = "rounding, 1 match other printed numbers, and 2 differ for the reasons"
    assert computed + twice in text
    assert "- **A slip.** 2: Table 1: b (2, 2.5); Table 2: c (3, 3.5)." in text
    assert "- **Lost.** 1: Table 2: d (4)." in text
    assert "\n\nRows are counted.\n\n1 row is rare.\n\nNothing differs.\n\n" in text
    assert "## A long table\n\nIt goes on.\n\n| n | rare | source |" in text
    assert "The first 60 of 61 rows; all are in `made-long.csv`." in text
    assert "## Nothing\n\nYet.\n\nNot measured with this profile." in text
    assert "Their points: `made-points.csv`." in text


def test_an_unexplained_number_fails(
    bare: Measured,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    lost = Check("Table 9", "x", 1.0, 2.0, 0.1)
    monkeypatch.setattr("studies.common.reproduce.write", lambda *given: [lost])
    words = ("study", "specdec", "--profile", str(bare.path), "--out", str(tmp_path))
    assert run(*words) == 1
    assert "failed: Table 9, x: printed 1, ours 2.0" in capsys.readouterr().err


@pytest.mark.parametrize("command", [("study", "specdec"), ("demo",)])
def test_a_folder_that_cannot_be_made_is_one_line(
    command: tuple[str, ...], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "file"
    file.write_text("")
    assert run(*command, "--out", str(file / "folder")) == 2
    expected = f"specsim: error: --out {file / 'folder'}: cannot be made (Not a directory)\n"
    assert capsys.readouterr().err == expected


def test_an_unknown_study_is_one_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run("study", "medusa", "--out", str(tmp_path)) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.count("\n") == 1
    assert "NAME must be one of leviathan, " in captured.err
    assert captured.err.rstrip().endswith("got medusa")


def test_a_profile_that_is_missing_leaves_no_folder(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    profile, out = tmp_path / "none.json", tmp_path / "results"
    assert run("study", "specdec", "--profile", str(profile), "--out", str(out)) == 2
    assert "none.json: no such file" in capsys.readouterr().err
    assert not out.exists()


def test_measuring_is_refused_where_what_comes_of_it_has_no_place(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = write_profile(tmp_path)
    Measured.at(path).beside("speedups").mkdir()
    monkeypatch.setattr(specsim, "score", lambda *_, **__: pytest.fail("has begun"))
    with pytest.raises(FileError, match=r"speedups.json: is a folder"):
        measure.measure_all(path, tmp_path / "unused")


def test_a_calibration_that_was_killed_behind_its_profile_leaves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = write_profile(tmp_path).rename(tmp_path / "profile.json")
    left = Checkpoint.beside(path, "settings")
    left.keep_json("sample.json", lambda: 1)
    monkeypatch.setattr(measure, "_keep", lambda *_: None)
    monkeypatch.setattr(specsim, "score", lambda *_, **__: None)
    # What lies beside somebody's own may be a calibration that goes on later.
    measure.measure_all(path, tmp_path)
    assert left.folder.exists()
    measure.measure_all(None, tmp_path)
    assert not left.folder.exists()


@pytest.mark.parametrize("grid", [False, True])
def test_measuring_makes_what_is_missing(
    grid: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    where = {"batch": 1, "context": 8, "mode": "eager"}
    cell = {"model": "target", "follows": "target", "tokens": 1, **where}
    cell |= {"seconds": [1.0], "plain": [1.0]}
    overhead = {"temperature": 1.0, "gamma": 0, **where}
    more = {"grid": [cell], "batch_overhead": [{**overhead, "seconds": [0.0]}]} if grid else {}
    path = write_profile(tmp_path, **more)
    checks: list[AnyCheck] = []
    scored: list[tuple[specsim.Models, float]] = []

    def validate(profile: Path, check: AnyCheck, **_: Any) -> specsim.Validation:
        checks.append(check)
        rows = (decoding(SpeculativeDecoding(4), 2.0, 1.3),)
        return specsim.Validation(check=check, measured=rows, errors=(), failures=())

    def score(out: Path, models: specsim.Models, *, temperature: float, **_: Any) -> None:
        scored.append((models, temperature))

    monkeypatch.setattr(specsim, "validate", validate)
    monkeypatch.setattr(specsim, "score", score)
    kept = Measured.at(path).beside("speedups")
    kept.write_text(document([]))
    assert measure.measure_all(path, tmp_path / "unused") == path
    assert scored == [(specsim.Models("t", "d", "cpu", "float32", 1), at) for at in SCORED]
    measured = Measured.at(path)
    assert measured.speedups == []
    assert [row["setting"] for row in measured.decoded] == ["draft 4"]
    assert bool(measured.synthetic) is grid
    kinds = [specsim.SyntheticCheck, specsim.SchemeCheck]
    assert [type(check) for check in checks] == kinds[not grid :]
