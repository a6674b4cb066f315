"""Every sample, cut and changed a thousand times: an answer that can be, or one line."""

from __future__ import annotations

import pytest

from tests.support.mutations import SAMPLES, answer_to, mutations, sample


@pytest.mark.parametrize("name", sorted(path.name for path in SAMPLES.iterdir()))
def test_a_changed_sample_gives_an_answer_or_one_line(name: str) -> None:
    answers = [answer_to(each) for each in mutations(sample(name), 1000)]
    # Many changes are of no consequence, so a reader that refuses everything fails here.
    whole = answer_to(sample(name))
    assert (whole is None) == (not any(answers))


@pytest.mark.parametrize("text", ["", "\n", "\x00" * 100, "{" * 100_000, "[]", "null", "# vllm:\n"])
def test_what_no_engine_prints_is_refused_in_one_line(text: str) -> None:
    assert answer_to(text) is None
