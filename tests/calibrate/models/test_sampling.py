"""Temperature, top-k and top-p against transformers' own logits processors."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from transformers import TemperatureLogitsWarper, TopKLogitsWarper, TopPLogitsWarper

from calibrate.models.sampling import Sampling
from tests.support.refusals import refuses


@settings(max_examples=200)
@given(
    st.integers(0, 2**32 - 1),
    st.sampled_from([0.1, 0.5, 1.0, 1.7]),
    st.one_of(st.none(), st.integers(1, 12)),
    st.one_of(st.none(), st.floats(1e-9, 1.0)),
    st.sampled_from(["normal", "ties", "holes"]),
)
def test_as_transformers_does(
    seed: int, temperature: float, top_k: int | None, top_p: float | None, kind: str
) -> None:
    random = np.random.default_rng(seed)
    rows = 3 * random.normal(size=(3, 10))
    if kind == "ties":
        rows = random.integers(-3, 3, size=(3, 10)).astype(np.float64)
    if kind == "holes":
        rows[:, random.permutation(10)[:4]] = -np.inf
    logits = torch.tensor(rows, dtype=torch.float32)
    expected = TemperatureLogitsWarper(temperature)(None, logits)
    if top_k is not None:
        expected = TopKLogitsWarper(top_k)(None, expected)
    if top_p is not None:
        expected = TopPLogitsWarper(top_p)(None, expected)
    found = Sampling(temperature, top_k, top_p).probabilities(logits)
    torch.testing.assert_close(found, expected.softmax(-1))


def test_greedy_is_one_hot_at_the_first_of_ties() -> None:
    logits = torch.tensor([[0.0, 2.0, 2.0], [1.0, -1.0, 0.5]])
    assert Sampling(0.0).probabilities(logits).tolist() == [[0, 1, 0], [1, 0, 0]]


@given(st.floats(1e-30, 1e30))
def test_any_temperature_gives_a_distribution(temperature: float) -> None:
    row = Sampling(temperature).probabilities(torch.tensor([50.0, -torch.inf, 49.0, -1e4]))
    assert row.sum() == pytest.approx(1, abs=1e-6)
    assert row[1] == 0


@pytest.mark.parametrize("kind", [torch.float16, torch.bfloat16, torch.float64])
def test_rows_of_any_type_sum_to_one(kind: torch.dtype) -> None:
    rows = Sampling(0.7, 40, 0.9).probabilities(torch.zeros(2, 5000, dtype=kind))
    assert rows.dtype == torch.float32
    assert rows.sum(-1).tolist() == pytest.approx([1, 1], abs=1e-5)


test_bad_settings_are_refused = refuses(
    (lambda: Sampling(-1.0), "temperature must be >= 0, got -1"),
    (lambda: Sampling(top_k=0), "top_k must be a whole number >= 1, got 0"),
    (lambda: Sampling(top_p=0.0), "top_p must be in"),
    (lambda: Sampling(top_p=1.5), "top_p must be in"),
)
