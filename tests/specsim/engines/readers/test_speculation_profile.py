"""NVIDIA's speculation_profile.json: read, written, and the same again."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from specsim.checks import SpecsimError, UnsupportedError
from specsim.counts.drafts import DraftCounts
from specsim.engines.readers import read_text
from specsim.engines.readers.reading import Reading
from specsim.engines.readers.speculation_profile import write
from tests.support.mutations import sample, without_header
from tests.support.refusals import refuses

SAMPLE = "speculation-profile.json.txt"


def read(text: str) -> list[Reading]:
    return read_text(text, "profile")


def changed(**changes: Any) -> list[Reading]:
    return read(json.dumps(json.loads(without_header(SAMPLE)) | changes))


def test_the_histogram_is_of_lengths_with_the_bonus_token() -> None:
    (found,) = read(sample(SAMPLE))
    assert found.counts == DraftCounts(3, 30653, 45161, reached=(22042.0, 14228.0, 8891.0))
    # NVIDIA/Model-Optimizer, examples/specdec_bench/tests/test_speculation_profile.py: 2.4733
    assert found.counts.tokens_per_call == pytest.approx(2.4733, abs=5e-5)
    assert any("not safe to carry to another K" in note for note in found.notes)


def test_offset_of_two_between_lengths_and_positions() -> None:
    # The same file: 40, 30 and 30 rounds of 1, 2 and 3 tokens are shares 0.6, 0.3, 0.
    (found,) = changed(
        acceptance_length_histogram={"1": 40, "2": 30, "3": 30},
        marginal_accept_rates=[0.6, 0.3, 0.0],
        conditional_accept_rates=[0.6, 0.5, 0.0],
        mean_accept_length=1.9,
        accept_length_by_k={"3": 1.9},
    )
    assert found.counts is not None
    np.testing.assert_allclose(found.counts.marginal().best, [0.6, 0.3, 0.0])


@given(st.lists(st.integers(0, 10**6), min_size=2, max_size=9))
def test_what_is_written_is_read_again(histogram: list[int]) -> None:
    reached = np.cumsum(histogram[::-1])[::-1]
    if not reached[0]:
        return
    counts = DraftCounts(
        gamma=len(histogram) - 1,
        rounds=float(reached[0]),
        accepted=float(reached[1:].sum()),
        reached=tuple(reached[1:].astype(float).tolist()),
    )
    text = write(counts, method="eagle3", conditions={"dataset": "mt_bench"})
    (found,) = read(text)
    assert found.counts == counts
    profile = json.loads(text)
    assert profile["accept_length_model"] == "measured_per_k"
    assert profile["validation"]["mean_consistency"]["passed"]
    assert profile["measurement_conditions"]["dataset"] == "mt_bench"
    assert "not safe to carry" in profile["measurement_conditions"]["note"]


def test_the_written_file_has_the_keys_of_the_schema() -> None:
    counts = DraftCounts(3, 30653, 45161, reached=(22042.0, 14228.0, 8891.0))
    written = json.loads(write(counts, method="dflash"))
    known = json.loads(without_header(SAMPLE))
    assert list(written) == list(known)
    for key in ("marginal_accept_rates", "conditional_accept_rates", "mean_accept_length"):
        assert written[key] == known[key]
    assert written["acceptance_length_histogram"] == known["acceptance_length_histogram"]


def test_lengths_of_other_k_are_means_without_counts() -> None:
    own, other = changed(accept_length_by_k={"3": 2.473298, "7": 3.1})
    assert own.counts is not None
    assert other.length is not None
    assert (other.length.gamma, other.length.tokens_per_call) == (7, 3.1)


def test_without_a_histogram_there_is_a_mean_alone() -> None:
    (found,) = changed(acceptance_length_histogram=None)
    assert found.counts is None
    assert found.length is not None
    assert found.length.tokens_per_call == pytest.approx(2.473298)


def test_block_verification_is_said() -> None:
    (found,) = changed(verification_method="block")
    assert any("not token by token" in note for note in found.notes)


test_profiles_that_contradict_themselves_are_refused = refuses(
    (lambda: changed(schema_version="2.0"), "schema_version '2.0' of a speculation profile"),
    (lambda: changed(measured=False), "measured: false"),
    (lambda: changed(num_speculative_tokens=0), "num_speculative_tokens must be >= 1"),
    (lambda: changed(num_speculative_tokens=10**400), "num_speculative_tokens must be"),
    (lambda: changed(num_speculative_tokens=2), "must be a list of K = 2 rates"),
    (lambda: changed(marginal_accept_rates=[0.7, 0.5, 0.3]), r"conditional_accept_rates\[0\]"),
    (
        lambda: changed(marginal_accept_rates=[0.5, 0.6, 0.3], conditional_accept_rates=None),
        "must not rise",
    ),
    (
        lambda: changed(marginal_accept_rates=[0.7, 0.5, 0.3], conditional_accept_rates=None),
        "begin with 0.7, the histogram gives 0.719",
    ),
    (lambda: changed(mean_accept_length=2.54671), "mean_accept_length is 2.54671, the histogram"),
    (
        lambda: changed(acceptance_length_histogram={"1": 10, "5": 10}),
        r"10 rounds have 5 tokens, beyond 1 to K \+ 1 = 4",
    ),
    error=SpecsimError,
)

test_counts_without_all_positions_of_one_k_are_not_written = refuses(
    (lambda: write(DraftCounts(3, 10, 5)), "0 positions and K = 3"),
    (lambda: write(DraftCounts(None, 10, 5, reached=(5.0,))), "1 positions and K = unknown"),
    (lambda: write(DraftCounts(1, 0, 0, reached=(0.0,))), "no round was drafted"),
    error=UnsupportedError,
)
