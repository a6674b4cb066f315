"""Sweeps on a real dask scheduler and a real ray, each with two workers on this machine."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import specsim
from specsim.checks import InvalidArgumentError, UnsupportedError
from tests.support.sweeps import SIMULATE, Watch, contents, deadly_answer

pytestmark = pytest.mark.long


@pytest.fixture
def watch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Watch:
    """Every chunk is written down, and one worker dies; before any worker is started."""
    monkeypatch.setattr("specsim.sweeps.workers.answer_chunk", deadly_answer)
    return Watch(tmp_path)


@pytest.fixture
def dask_address(watch: Watch) -> Iterator[str]:
    distributed = pytest.importorskip("distributed")
    cluster = distributed.LocalCluster(
        n_workers=2, threads_per_worker=1, processes=True, dashboard_address=None
    )
    with cluster:
        yield cluster.scheduler_address


@pytest.fixture
def ray_here(watch: Watch) -> Iterator[None]:
    ray = pytest.importorskip("ray")
    ray.init(num_cpus=2, include_dashboard=False, log_to_driver=False)
    yield
    ray.shutdown()


def test_dask_writes_the_same_bytes_though_a_worker_dies(
    tmp_path: Path, dask_address: str, watch: Watch
) -> None:
    found = specsim.sweep(SIMULATE, tmp_path / "out", backend="dask", address=dask_address, chunk=1)
    _as_on_one_process(found, tmp_path, watch)


def test_ray_writes_the_same_bytes_though_a_worker_dies(
    tmp_path: Path, ray_here: None, watch: Watch
) -> None:
    found = specsim.sweep(SIMULATE, tmp_path / "out", backend="ray", chunk=1)
    _as_on_one_process(found, tmp_path, watch)


def _as_on_one_process(found: specsim.SettingsSweep, folder: Path, watch: Watch) -> None:
    """The same bytes; nothing was computed twice but what the lost worker had."""
    assert watch.died
    assert set(watch.begun) == set(range(24))
    assert watch.again <= 6
    one = specsim.sweep(SIMULATE, folder / "one", workers=1, chunk=1)
    assert contents(found.folder) == contents(one.folder)


def test_a_scheduler_that_is_not_there_is_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("distributed")
    monkeypatch.setattr("specsim.sweeps.workers._SECONDS_TO_CONNECT", 1)
    with pytest.raises(InvalidArgumentError, match="no dask scheduler answers there"):
        specsim.sweep(SIMULATE, tmp_path / "out", backend="dask", address="tcp://127.0.0.1:1")


@pytest.mark.parametrize(("backend", "package"), [("dask", "distributed"), ("ray", "ray")])
def test_a_cluster_without_its_package_is_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, backend: str, package: str
) -> None:
    monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(UnsupportedError, match=rf"pip install 'specsim\[{backend}\]'"):
        specsim.sweep(SIMULATE, tmp_path / "out", backend=backend, address="tcp://a:1")
