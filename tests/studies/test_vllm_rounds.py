"""What was measured on vLLM (studies/measured/vllm), held against what is said of it."""

from __future__ import annotations

import csv
from pathlib import Path

import pytest

from specsim.counts.drafts import DraftCounts
from specsim.extrapolation import acceptance_from_counts

MEASURED = Path(__file__).parents[2] / "studies" / "measured" / "vllm"
DRAFTS, GAMMAS = ("small", "middle"), (1, 2, 3, 4, 5)

Row = dict[str, str]


def rows(name: str, temperature: float) -> list[Row]:
    """One for each draft length."""
    with (MEASURED / f"{name}.csv").open() as file:
        found = [row for row in csv.DictReader(file) if float(row["temperature"]) == temperature]
    assert [int(row["gamma"]) for row in found] == list(GAMMAS)
    return found


def figures(cell: str) -> list[float]:
    return [float(part.partition("=")[2]) for part in cell.split()]


def counts(row: Row) -> DraftCounts:
    accepted = figures(row["counted_accepted"])
    rounds, drafted = float(row["counted_rounds"]), float(row["counted_drafted"])
    return DraftCounts(int(row["gamma"]), rounds, sum(accepted), drafted, tuple(accepted))


@pytest.mark.parametrize("name", ["small-greedy", "middle-greedy", "ngram-2-4", "ngram-5-5"])
def test_at_temperature_0_all_counts_are_the_replayed_ones(name: str) -> None:
    for row in rows(name, 0.0):
        assert int(row["requests"]) >= 30
        assert int(row["tokens"]) == int(row["requests"]) * 128
        assert row["same_text"] == row["exact"] == "True"
        for count in ("rounds", "drafted", "accepted"):
            assert row[f"counted_{count}"] == row[f"replayed_{count}"]


@pytest.mark.parametrize("draft", DRAFTS)
def test_each_law_goes_with_its_own_setting(draft: str) -> None:
    for row in rows(f"{draft}-greedy", 1.0):
        assert row["counted_rounds"] == row["replayed_rounds"]
        assert float(row["largest_z"]) < 3
        assert float(row["other_law_z"]) > 10
    for row in rows(f"{draft}-probabilistic", 1.0):
        assert float(row["largest_z"]) < 3
        assert float(row["other_law_rounds"]) > 1.1 * float(row["counted_rounds"])


@pytest.mark.parametrize("draft", DRAFTS)
def test_counts_at_one_draft_length_tell_those_at_others(draft: str) -> None:
    """Within 2 %, where cutting and holding are further off."""
    counted = {int(row["gamma"]): counts(row) for row in rows(f"{draft}-greedy", 0.0)}
    from_longest = acceptance_from_counts([counted[5]], heads=False)
    marginal = [1.0, *(each / counted[5].rounds for each in counted[5].reached)]
    for gamma in (1, 2, 3):
        measured = counted[gamma].tokens_per_call
        told = float(from_longest.survival(gamma).sum())
        assert told == pytest.approx(measured, rel=0.02)
        assert abs(sum(marginal[: gamma + 1]) / measured - 1) > 0.025
    from_short = acceptance_from_counts([counted[gamma] for gamma in (1, 2, 3)], heads=False)
    measured = counted[5].tokens_per_call
    assert float(from_short.survival(5).sum()) == pytest.approx(measured, rel=0.02)
