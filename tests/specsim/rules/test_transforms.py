"""Temperature, top-k and top-p of both array libraries against transformers' processors."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from transformers import TemperatureLogitsWarper, TopKLogitsWarper, TopPLogitsWarper

from specsim.checks import InvalidArgumentError
from specsim.rules.transforms import probabilities


def theirs(
    logits: torch.Tensor, temperature: float, top_k: int | None, top_p: float | None
) -> torch.Tensor:
    expected = TemperatureLogitsWarper(temperature)(None, logits)
    if top_k is not None:
        expected = TopKLogitsWarper(top_k)(None, expected)
    if top_p is not None:
        expected = TopPLogitsWarper(top_p)(None, expected)
    return expected.softmax(-1)


@settings(max_examples=200)
@given(
    st.integers(0, 2**32 - 1),
    st.sampled_from([0.1, 0.5, 1.0, 1.7]),
    st.one_of(st.none(), st.integers(1, 12)),
    st.one_of(st.none(), st.floats(0.0, 1.0)),
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
    expected = theirs(logits, temperature, top_k, top_p)
    found = probabilities(logits, temperature, top_k, top_p)
    torch.testing.assert_close(found, expected)
    ours = probabilities(logits.numpy(), temperature, top_k, top_p)
    assert ours.dtype == np.float32
    # NumPy sums in another order; a row whose sum meets 1 - top_p to rounding may fall either way.
    sums = np.cumsum(np.sort(theirs(logits, temperature, top_k, None).numpy(), axis=-1), axis=-1)
    clear = np.abs(sums - (1 - (1 if top_p is None else top_p))).min(axis=-1) > 1e-6
    clear |= top_p is None
    np.testing.assert_allclose(ours[clear], expected.numpy()[clear], rtol=1e-5, atol=1e-7)


@pytest.mark.parametrize("to", [np.asarray, torch.tensor], ids=["numpy", "torch"])
def test_greedy_is_one_hot_at_the_first_of_ties(to: object) -> None:
    logits = to([[0.0, 2.0, 2.0], [1.0, -np.inf, 0.5]])  # type: ignore[operator]
    assert probabilities(logits, 0.0, 2, 0.5).tolist() == [[0, 1, 0], [1, 0, 0]]


def test_top_k_keeps_all_that_tie_with_the_kth() -> None:
    logits = np.array([1.0, 3.0, 1.0, 0.0])
    assert (probabilities(logits, top_k=2) > 0).tolist() == [True, True, True, False]


def test_top_p_zero_keeps_the_most_probable_token() -> None:
    assert probabilities(np.array([0.1, 0.3, 0.2]), top_p=0.0).tolist() == [0, 1, 0]


@given(st.floats(1e-30, 1e30))
def test_any_temperature_gives_a_distribution(temperature: float) -> None:
    row = probabilities(np.array([50.0, -np.inf, 49.0, -1e4], np.float32), temperature)
    assert row.sum() == pytest.approx(1, abs=1e-6)
    assert row[1] == 0


@pytest.mark.parametrize("kind", [torch.float16, torch.bfloat16, torch.float64])
def test_short_types_are_widened_and_long_ones_kept(kind: torch.dtype) -> None:
    rows = probabilities(torch.zeros(2, 5000, dtype=kind), 0.7, 40, 0.9)
    assert rows.dtype == (torch.float64 if kind == torch.float64 else torch.float32)
    assert rows.sum(-1).tolist() == pytest.approx([1, 1], abs=1e-5)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"temperature": -1.0}, "temperature must be >= 0, got -1"),
        ({"temperature": 1e-40}, "temperature must be 0 or >= 1e-30, got 1e-40"),
        ({"top_k": 0}, "top_k must be a whole number >= 1, got 0"),
        ({"top_p": -0.1}, r"top_p must be in \[0, 1\], got -0.1"),
        ({"top_p": 1.5}, r"top_p must be in \[0, 1\], got 1.5"),
    ],
)
def test_bad_settings_are_refused(arguments: dict[str, float], message: str) -> None:
    with pytest.raises(InvalidArgumentError, match=message):
        probabilities(np.zeros(3), **arguments)  # type: ignore[arg-type]
