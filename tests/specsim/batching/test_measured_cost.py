"""Run times of a grid where they say nothing: other batches than one, and requests without room."""

from __future__ import annotations

from pathlib import Path

import pytest
from msgspec.structs import replace

from specsim.batching.cost import CellUnavailableError, NoRoomError
from specsim.batching.measured_cost import MeasuredLoadCost
from specsim.batching.point import points_of_cell
from specsim.deployment.timed import timed_deployment
from specsim.profiles import read_profile
from tests.support.profiles import ON_H200, grid, write_grid

EAGER = ON_H200.with_name("costs-8b-1b-eager.json")


def test_of_one_batch_there_is_no_price_of_others() -> None:
    cost = MeasuredLoadCost.of(read_profile(EAGER), 0.0)
    assert cost.batches == (1,)
    assert len(points_of_cell([0.8] * 4, cost, 1, 512, 4)) == 5
    for batch in (2, 16):
        with pytest.raises(CellUnavailableError, match="timed at batch 1 alone, which does not"):
            points_of_cell([0.8] * 4, cost, batch, 512, 4)


def test_the_only_batch_may_be_any(tmp_path: Path) -> None:
    rows = [row for row in grid() if row["batch"] == 16]
    cost = MeasuredLoadCost.of(read_profile(write_grid(tmp_path, grid=rows)), 1.0)
    assert cost.verify_s(3, 16, 64) > 0
    for batch in (1, 17):
        with pytest.raises(CellUnavailableError, match="timed at batch 16 alone"):
            cost.verify_s(0, batch, 64)


def test_requests_without_room_have_no_price() -> None:
    """65,536 tokens of Llama-3.1-8B keep 8 GiB and of 3.2-1B 2, beside 15 and 2.3 of weights; 0.9
    of 141 GiB less 2 are for them.
    """
    cost = MeasuredLoadCost.of(read_profile(ON_H200), 0.0)
    assert cost.verify_s(3, 10, 65_530) > 0
    with pytest.raises(NoRoomError, match=r"llama-3.1-8b with draft.*llama-3.2-1b .*room for 10"):
        cost.verify_s(3, 11, 65_530)
    assert cost.verify_s(0, 13, 65_530) > 0  # without the drafter
    with pytest.raises(NoRoomError, match="room for 13"):
        cost.verify_s(0, 14, 65_530)


def test_cells_that_were_timed_had_room() -> None:
    """Whatever the share of the memory is that an engine takes: an L40S has 48 GB."""
    profile = read_profile(ON_H200)
    small = replace(profile.hardware, device_name="NVIDIA L40S")
    cost = MeasuredLoadCost.of(replace(profile, hardware=small), 0.0)
    assert cost.deployed is not None
    with pytest.raises(NoRoomError):
        cost.deployed.check_room(3, 64, 4096)
    assert cost.verify_s(3, 64, 4096) > 0
    assert cost.verify_s(3, 60, 4000) > 0
    with pytest.raises(NoRoomError):
        cost.verify_s(3, 65, 4096)


def test_nobody_knows_the_memory_without_a_shape_or_a_data_sheet(tmp_path: Path) -> None:
    profile = read_profile(write_grid(tmp_path))
    assert timed_deployment(profile) is None
    assert MeasuredLoadCost.of(profile, 1.0).deployed is None
    found = timed_deployment(read_profile(ON_H200))
    assert found is not None
    assert found.card.name == "H200"
