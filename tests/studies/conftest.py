"""What the tests of studies share; pictures are closed behind every one of them."""

from __future__ import annotations

from collections.abc import Iterator

import matplotlib.pyplot as plt
import pytest

from studies.common.measured import Measured
from studies.common.study import Tables
from tests.support.profiles import write


@pytest.fixture(autouse=True)
def closed() -> Iterator[None]:
    yield
    plt.close("all")


@pytest.fixture(scope="module")
def bare(tmp_path_factory: pytest.TempPathFactory) -> Measured:
    """A profile with its trace and nothing else."""
    return Measured.at(write(tmp_path_factory.mktemp("bare")))


@pytest.fixture(scope="module")
def tables(request: pytest.FixtureRequest, measured: Measured) -> Tables:
    """Of the module's study, from what the module calls measured."""
    return request.module.STUDY.tables(measured)
