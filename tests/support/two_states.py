"""Text that is easy in some stretches and hard in others, solved exactly."""

from __future__ import annotations

import numpy as np

from specsim.checks import Floats

RATES = np.array([0.95, 0.45])
# Chance that the state of one token is that of the token before.
STAY = np.array([0.95, 0.85])
MOVES = np.array([[STAY[0], 1 - STAY[0]], [1 - STAY[1], STAY[1]]])


def two_state_curve(gamma: int) -> Floats:
    """S_0..S_gamma of blocks in endless text, by the states that blocks start in."""
    accepted, rejected = np.diag(RATES) @ MOVES, np.diag(1 - RATES) @ MOVES
    going = np.eye(2)
    ends = np.zeros((2, 2))
    survived = [np.eye(2)]
    for _ in range(gamma):
        ends += going @ rejected
        going = going @ accepted
        survived.append(going)
    ends += going @ MOVES
    values, vectors = np.linalg.eig(ends.T)
    start = np.real(vectors[:, np.argmax(np.real(values))])
    start /= start.sum()
    return np.array([float((start @ each).sum()) for each in survived])


def two_state_gaps(longest: int) -> Floats:
    """G(0)..G(longest - 1): from the states that follow a rejection."""
    accepted = np.diag(RATES) @ MOVES
    share = np.array([1 - STAY[1], 1 - STAY[0]])
    start = (share * (1 - RATES)) @ MOVES
    found = []
    for _ in range(longest):
        found.append(float(start.sum()))
        start = start @ accepted
    return np.array(found) / found[0]


def two_state_text(tokens: int, seed: int) -> Floats:
    """Rates along a text, shape (tokens,)."""
    draws = np.random.default_rng(seed).random(tokens)
    state, states = 0, np.zeros(tokens, dtype=np.int64)
    for place in range(tokens):
        state = state if draws[place] < STAY[state] else 1 - state
        states[place] = state
    return np.asarray(RATES[states])
