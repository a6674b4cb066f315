"""Processor sharing: closed forms, and a chain of states solved by linear algebra."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from specsim.checks import InvalidArgumentError, UnsupportedError
from specsim.serving.analytic.sharing import Shared


def chain(rate: float, completions: np.ndarray, waiting: int) -> np.ndarray:
    """The stationary law of a birth-death chain with so many places to wait, by its equations."""
    speeds = np.concatenate([completions, np.full(waiting, completions[-1])])
    size = speeds.size + 1
    generator = np.zeros((size, size))
    for n in range(size - 1):
        generator[n, n + 1], generator[n + 1, n] = rate, speeds[n]
    generator -= np.diag(generator.sum(axis=1))
    system = np.vstack([generator.T, np.ones(size)])
    law: np.ndarray = np.linalg.lstsq(system, np.append(np.zeros(size), 1.0), rcond=None)[0]
    return law


@given(st.lists(st.floats(0.5, 3.0), min_size=1, max_size=6).map(np.array), st.floats(0.05, 0.7))
def test_it_is_the_chain(completions: np.ndarray, load: float) -> None:
    rate = load * float(completions[-1])
    shared = Shared(rate, completions)
    law = chain(rate, completions, 120)
    cap = completions.size
    assert shared.in_service[:cap] == pytest.approx(law[:cap], abs=1e-8)
    assert shared.all_busy == pytest.approx(law[cap:].sum(), abs=1e-8)


@pytest.mark.parametrize("load", [0.1, 0.5, 0.9])
def test_one_server_is_m_m_1(load: float) -> None:
    """E[n] = rho / (1 - rho), so that E[T] = E[S] / (1 - rho)."""
    shared = Shared(load, np.ones(2000))
    assert shared.mean == pytest.approx(load / (1 - load), rel=1e-9)


def test_many_servers_are_m_m_infinity() -> None:
    """c(n) = n: a Poisson number in service."""
    shared = Shared(3.0, np.arange(1.0, 101.0))
    assert shared.mean == pytest.approx(3.0)
    assert shared.in_service[0] == pytest.approx(np.exp(-3.0))
    assert shared.seen_in_service @ np.arange(101) == pytest.approx(4.0)  # itself and three others


def test_at_the_cap_it_waits_as_in_m_m_c() -> None:
    # Erlang C with 2 servers and a load of 1.2: rho = 0.6, P(wait) = 2 rho^2 / (1 + rho) = 0.45.
    shared = Shared(1.2, np.array([1.0, 2.0]))
    assert shared.all_busy == pytest.approx(0.45)


def test_no_load_is_a_limit() -> None:
    shared = Shared(0.0, np.array([1.0, 2.0]))
    assert shared.mean == 0.0
    assert shared.seen_in_service[1] == 1.0


def test_beyond_the_capacity_it_is_refused() -> None:
    with pytest.raises(UnsupportedError, match="beyond the capacity, 2"):
        Shared(2.0, np.array([1.0, 2.0]))
    with pytest.raises(InvalidArgumentError, match="rates > 0"):
        Shared(2.0, np.array([0.0, 2.0]))
