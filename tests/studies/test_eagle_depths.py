"""What was measured of the embedded EAGLE head by depth, held against what is said of it."""

from __future__ import annotations

import csv
from pathlib import Path

import pytest

from specsim.schemes import SpeculativeDecoding

MEASURED = Path(__file__).parents[2] / "studies" / "measured" / "eagle"
GAMMAS = (1, 2, 3, 4, 5, 6)

Row = dict[str, str]


def rows(name: str, temperature: float) -> list[Row]:
    """One for each depth, or draft length."""
    with (MEASURED / f"{name}.csv").open() as file:
        found = [row for row in csv.DictReader(file) if float(row["temperature"]) == temperature]
    assert [int(row["depth" if name == "depths" else "gamma"]) for row in found] == list(GAMMAS)
    return found


def column(found: list[Row], name: str) -> list[float]:
    return [float(row[name]) for row in found]


def test_at_temperature_0_calls_and_draft_runs_are_the_replayed_ones() -> None:
    for row in rows("calls", 0.0):
        assert row["exact"] == "True"
        assert float(row["replayed"]) == float(row["counted"])
        assert float(row["replayed_draft_runs"]) == float(row["counted_draft_runs"])


def test_at_temperature_1_calls_are_the_replayed_ones_up_to_chance() -> None:
    """The text is the target's own in both, so what is compared are two samples of it."""
    assert all(abs(float(row["calls_z"])) < 4 for row in rows("calls", 1.0))


@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_the_law_is_that_of_the_rates(temperature: float) -> None:
    rates = column(rows("depths", temperature), "rate")
    for row in rows("calls", temperature):
        scheme = SpeculativeDecoding(int(row["gamma"]), "eagle")
        law = scheme.law(rates[: scheme.gamma]).tokens_per_call
        assert float(row["law_by_depth"]) == pytest.approx(law, rel=1e-12)


@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_features_of_its_own_cost_little_and_blocks_that_get_deep_are_easy(
    temperature: float,
) -> None:
    depths = rows("depths", temperature)
    alone, rates = column(depths, "on_the_text"), column(depths, "rate")
    assert alone[0] == max(alone) == pytest.approx(rates[0])
    assert alone[0] - min(alone) < 0.02
    assert rates == sorted(rates)
    assert rates[-1] - rates[0] > 0.13


@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_laws_promise_too_much_and_with_rates_by_depth_more(temperature: float) -> None:
    for row in rows("calls", temperature)[1:]:
        law, first = float(row["law_by_depth"]), float(row["law_of_first_rate"])
        assert law > first > float(row["replayed"])
    last = rows("calls", 0.0)[-1]
    assert float(last["law_by_depth"]) / float(last["counted"]) == pytest.approx(1.27, abs=0.005)
    assert float(last["law_of_first_rate"]) / float(last["counted"]) == pytest.approx(
        1.10, abs=0.005
    )
