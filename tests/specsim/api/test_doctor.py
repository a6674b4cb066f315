"""``specsim.doctor``: what it finds, on this machine and on imitated ones, and what it advises."""

from __future__ import annotations

import shutil
import sys
from importlib import metadata
from pathlib import Path

import pytest

import specsim
from calibrate.models.embedded import FAMILY, damaged_files, family_files
from calibrate.models.load import ModelError
from specsim.api import doctor_checks as checks
from specsim.api.doctor import Installation
from specsim.api.doctor_checks import Condition
from specsim.checks import SpecsimError

CPUS = 1 << 40


def named(found: Installation) -> dict[str, Condition]:
    return {each.what: each for each in found.conditions}


def test_this_machine_is_described() -> None:
    found = specsim.doctor(seconds=0.1)
    conditions = named(found)
    assert list(conditions)[:2] == ["specsim", "packages"]
    assert specsim.__version__ in conditions["specsim"].found
    assert f"numpy {metadata.version('numpy')}" in conditions["packages"].found
    assert "torch" in conditions["packages of calibrate"].found
    assert "calibrate takes 1 for the embedded family" in conditions["threads"].found
    assert conditions["embedded family"].state == "ok"
    assert "GiB free" in conditions["memory"].found
    assert found.fit == all(each.state != "to do" for each in found.conditions)
    assert len(found.rows()) == len(conditions)
    assert all("\n" not in line for line in found.sentences())


def test_a_lack_is_to_do_and_a_wish_is_advice() -> None:
    well = Condition("memory", "8 GiB")
    wish = Condition("inference engine", "none", "make engine")
    lack = Condition("packages", "none", "pip install specsim", needed=True)
    assert [each.state for each in (well, wish, lack)] == ["ok", "advice", "to do"]
    assert Installation(conditions=(well, wish)).fit
    found = Installation(conditions=(well, wish, lack))
    assert not found.fit
    assert found.sentences() == [
        "advice, inference engine: make engine",
        "to do, packages: pip install specsim",
        "something is lacking",
    ]


def test_without_torch_nothing_of_it_is_loaded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "torch", None)
    for name in ("calibrate.models.threads", "calibrate.models.trial"):
        monkeypatch.setitem(sys.modules, name, None)  # importing it would raise
    conditions = named(specsim.doctor(seconds=0.1))
    assert conditions["threads"].found == "not known without torch and transformers"
    assert conditions["accelerator"].found == "not known without torch and transformers"
    assert conditions["threads"].state == conditions["accelerator"].state == "unknown"
    assert conditions["embedded family"].state == "ok"
    with pytest.raises(SpecsimError, match="pip install"):
        specsim.doctor("embedded/small")


def test_threads_of_a_model_are_those_that_calibrate_takes() -> None:
    import torch

    before = torch.get_num_threads()
    found = named(specsim.doctor("embedded/small", seconds=0.1))
    assert found["threads"].found == "calibrate takes 1 for embedded/small"
    assert torch.get_num_threads() == before
    with pytest.raises(ModelError, match="not in the embedded family"):
        specsim.doctor("embedded/none")


def test_a_tried_number_of_threads_is_said(
    tiny_family: dict[str, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    from calibrate.models import threads

    monkeypatch.setattr(threads, "_MOST", 6)
    monkeypatch.setattr(threads, "_timed", lambda *_: {1: [3.0], 2: [1.0], 4: [1.0], 6: [1.0]})
    target = str(tiny_family["target"])
    assert checks.threads(target).found == f"calibrate takes 2 for {target}"
    assert checks.threads(None).found.endswith("what is fastest of 1, 2, 4, 6")
    monkeypatch.setattr(threads, "_MOST", 1)
    monkeypatch.setattr(checks, "usable_cores", lambda: 8.0)
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    assert checks.threads(None).advice.startswith("unset OMP_NUM_THREADS (1)")


@pytest.mark.parametrize(
    ("wanted", "lacking"),
    [
        ([("numpy", "2.0")], None),
        ([("numpy", "999.1")], "numpy >= 999.1"),
        ([("numpy", "2.0"), ("no-such-package", "1")], "no-such-package >= 1"),
    ],
)
def test_packages_are_there_and_new_enough(
    wanted: list[tuple[str, str]], lacking: str | None
) -> None:
    found = checks.packages("", wanted)
    if lacking is None:
        assert found.state == "ok"
    else:
        assert (found.state, found.advice) == ("to do", f"pip install specsim: {lacking}")
    assert checks.packages("dask", [("no-such-package", "1")]) == Condition(
        "packages of dask",
        "not installed",
        "pip install 'specsim[dask]', if wanted: no-such-package >= 1",
    )


def test_users_are_not_sent_to_what_developers_need(monkeypatch: pytest.MonkeyPatch) -> None:
    extras = ("dev", "browser", "mutants", "dask")
    monkeypatch.setattr(
        checks.metadata, "requires", lambda _: [f'x{e} >= 1; extra == "{e}"' for e in extras]
    )
    assert [each.what for each in checks.versions()] == ["specsim", "packages of dask"]


def test_versions_are_compared_by_their_numbers() -> None:
    rising = ["2.9", "2.10", "2.10.1", "2.13.0+cpu", "3.0rc1"]
    assert sorted(rising, key=checks._numbers) == rising


def test_a_container_may_have_part_of_the_cores(tmp_path: Path) -> None:
    everything = checks.usable_cores(tmp_path)
    (tmp_path / "cpu.max").write_text("50000 100000\n")
    assert checks.usable_cores(tmp_path) == 0.5
    (tmp_path / "cpu.max").write_text("max 100000\n")
    assert checks.usable_cores(tmp_path) == everything


def test_memory_is_that_of_the_container(tmp_path: Path) -> None:
    meminfo = tmp_path / "meminfo"
    assert checks.memory(meminfo, tmp_path).found == "the system does not say"
    meminfo.write_text("MemTotal:  16777216 kB\nMemFree: 1 kB\nMemAvailable:    8388608 kB\n")
    assert checks.memory(meminfo, tmp_path).found == "8.0 of 16.0 GiB free"
    (tmp_path / "memory.max").write_text(f"{4 << 30}\n")
    (tmp_path / "memory.current").write_text(f"{7 << 29}\n")
    (tmp_path / "memory.stat").write_text(f"anon 5\ninactive_file {1 << 28}\n")
    found = checks.memory(meminfo, tmp_path)
    assert found.found == "0.8 of 4.0 GiB free"
    assert found.state == "advice"


def test_a_folder_is_tried_and_not_asked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert checks.is_writable(tmp_path / "not" / "there" / "yet")
    assert not (tmp_path / "not").exists()
    file = tmp_path / "file"
    file.write_text("")
    assert not checks.is_writable(file / "below")
    monkeypatch.setenv("NUMBA_CACHE_DIR", str(file))
    monkeypatch.setenv("HF_HOME", str(file))
    compiled, hub = checks.caches()
    assert (compiled.state, hub.state) == ("to do", "advice")


def test_an_engine_is_found_where_its_environment_says(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ENGINE_VENV", str(tmp_path))
    monkeypatch.setenv("PATH", str(tmp_path))
    assert checks.engine().advice.startswith("make engine")
    program = tmp_path / "bin" / "vllm"
    program.parent.mkdir()
    program.write_text("")
    assert checks.engine() == Condition("inference engine", str(program))


def test_other_programs_are_said_and_judged(monkeypatch: pytest.MonkeyPatch) -> None:
    from calibrate.models import busy

    monkeypatch.setattr(busy, "others_load", lambda _: 0.0)
    assert checks.others(0.1).state == "ok"
    monkeypatch.setattr(busy, "others_load", lambda _: float(CPUS))
    assert checks.others(0.1).state == "advice"
    monkeypatch.setattr(busy, "others_load", lambda _: None)
    assert checks.others(0.1).state == "unknown"


def test_the_family_is_whole_and_every_kind_of_damage_is_seen(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert damaged_files() == []
    assert {*family_files()} == {path for path in FAMILY.rglob("*") if path.is_file()}
    folder = tmp_path / "family"
    shutil.copytree(FAMILY, folder)
    weights = folder / "small" / "model.safetensors"
    whole = weights.read_bytes()
    weights.write_bytes(whole[:-1])
    assert damaged_files(folder) == [
        f"small/model.safetensors has {len(whole) - 1:,} bytes of {len(whole):,}"
    ]
    weights.write_bytes(b"version https://git-lfs.github.com/spec/v1\n")
    assert damaged_files(folder) == ["small/model.safetensors has no header of safetensors"]
    weights.write_bytes(b"")
    assert damaged_files(folder) == ["small/model.safetensors has no header of safetensors"]
    weights.unlink()
    config = folder / "eagle" / "config.json"
    config.write_text(config.read_text()[:-3])
    assert sorted(damaged_files(folder)) == [
        "eagle/config.json is not complete JSON",
        "small/model.safetensors is missing",
    ]
    monkeypatch.setattr("calibrate.models.embedded.FAMILY", folder)
    monkeypatch.setattr("calibrate.models.embedded.damaged_files", lambda: damaged_files(folder))
    found = checks.family()
    assert found.state == "to do"
    assert found.found.startswith(str(folder))
