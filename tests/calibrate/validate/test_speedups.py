"""What a row of predicted beside measured says of counts, and which prompts it is of."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import msgspec
import numpy as np
import pytest
from scipy.stats import ttest_ind, ttest_rel

from calibrate.decode.engine import Decoded, Runs
from calibrate.models.prompts import PromptError, find_prompts
from calibrate.train import corpus
from calibrate.validate.interleave import PLAIN, Interleaved
from calibrate.validate.speedups import CheckedPrompts, _z, compare
from specsim.optimizers.workload import Workload
from specsim.predict.replay.fixed_gamma import Replay, replay
from specsim.profiles import prompts_digest, read_profile
from tests.support.profiles import EMBEDDED

GAMMA, REQUESTS = 3, 4


def decoded(tokens: int, calls: int, first: int = 0) -> Decoded:
    """A request that took a second."""
    text, none = [first, *range(1, tokens)], [0] * calls
    return Decoded(text, none, none, Runs(Counter({1: calls})), {}, [1.0])


def replayed(calls: Sequence[float], lengths: Sequence[int]) -> Replay:
    nowhere = np.empty(0)
    return Replay(GAMMA, nowhere, nowhere, np.array(calls, dtype=float), np.array(lengths))


def counted(calls: Sequence[int], lengths: Sequence[int]) -> Interleaved:
    return Interleaved({GAMMA: [decoded(*each) for each in zip(lengths, calls, strict=True)]})


# Powers of two, so that no figure is rounded.
LENGTHS = [32, 64, 16, 32]


def test_requests_of_the_trace_are_compared_one_by_one() -> None:
    """Student's score of paired samples."""
    expected, calls = [10.0, 25.0, 6.5, 9.0], [12, 23, 8, 16]
    turns = counted(calls, LENGTHS)
    z = _z(replayed(expected, LENGTHS), turns, paired=True, drawn=False)
    found = ttest_rel(np.array(calls) / LENGTHS, np.array(expected) / LENGTHS)
    assert z == pytest.approx(found.statistic)
    assert z > 1
    # These gaps scatter by more than a call of each request.
    assert _z(replayed(expected, LENGTHS), turns, paired=True, drawn=True) == z
    swapped = counted([10, 25, 7, 9], LENGTHS)
    less = _z(replayed([12.0, 23.0, 8.0, 16.0], LENGTHS), swapped, paired=True, drawn=False)
    assert less < -1


def test_other_requests_are_compared_by_their_means() -> None:
    """Welch's score of two samples of their own sizes and variances."""
    expected, of_length = [10.0, 12.5, 8.0, 9.0, 11.0, 10.5], [32] * 6
    calls = [12, 30, 6, 14]
    z = _z(replayed(expected, of_length), counted(calls, LENGTHS), paired=False, drawn=False)
    found = ttest_ind(np.array(calls) / LENGTHS, np.array(expected) / 32, equal_var=False)
    assert z == pytest.approx(found.statistic)
    assert z > 1


@pytest.mark.parametrize("paired", [True, False])
def test_drawn_counts_scatter_by_a_call_at_least(paired: bool) -> None:
    """Four requests with a call more each: two standard errors of a mean of four."""
    lengths = [32] * REQUESTS
    expected = replayed([10.0] * REQUESTS, lengths)
    for more, certain in ((0, 0.0), (1, np.inf), (-1, -np.inf)):
        turns = counted([10 + more] * REQUESTS, lengths)
        assert _z(expected, turns, paired, drawn=True) == pytest.approx(2.0 * more)
        assert _z(expected, turns, paired, drawn=False) == certain


def checked(paired: bool, dtype: str = "float32") -> CheckedPrompts:
    """Requests of a profile at temperature 0."""
    profile = read_profile(EMBEDDED)
    software = msgspec.structs.replace(profile.software, dtype=dtype)
    profile = msgspec.structs.replace(profile, software=software)
    (workload,) = Workload.all_of(profile, EMBEDDED, 0.0)
    return CheckedPrompts(workload, paired, [[1, 2]] * REQUESTS)


@pytest.mark.parametrize(
    ("paired", "more_calls", "first", "exact"),
    [
        (True, 0, 0, True),
        (True, 1, 0, False),
        (True, -1, 0, False),
        (True, 0, 7, False),
        (False, 0, 0, True),
        (False, 1, 0, True),  # nobody knows how many calls an unseen text takes
        (False, 0, 7, False),
    ],
)
def test_exact_is_the_text_of_plain_decoding_in_as_many_calls_as_replayed(
    paired: bool, more_calls: int, first: int, exact: bool
) -> None:
    """One request of four has another number of calls, or begins with another token."""

    def found(check: CheckedPrompts) -> bool | None:
        (each,) = replay(check.trace, [GAMMA])
        lengths = each.lengths[:REQUESTS].tolist()
        calls = each.calls[:REQUESTS].astype(int).tolist()
        fast = [decoded(*some) for some in zip(lengths, calls, strict=True)]
        fast[2] = decoded(lengths[2], calls[2] + more_calls, first)
        turns = Interleaved({PLAIN: [decoded(some, some) for some in lengths], GAMMA: fast})
        (row,) = compare(check, turns, waited=False)
        assert row["gamma"] == GAMMA
        answer: bool | None = row["exact"]
        return answer

    assert found(checked(paired)) is exact
    # Rounding decides there.
    assert found(checked(paired, "bfloat16")) is None


def of_profile(prompts: Sequence[Sequence[int]]) -> Any:
    """A setting that was calibrated on these prompts, of a profile with another one of seven."""
    measured = SimpleNamespace(
        prompt_tokens=2, requests=len(prompts), prompts_sha256=prompts_digest(prompts)
    )
    every = [SimpleNamespace(requests=each) for each in (len(prompts), 7)]
    return SimpleNamespace(measured=measured, profile=SimpleNamespace(acceptance=every))


@pytest.fixture(scope="module")
def tokenizer(tiny_family: dict[str, Path]) -> Any:
    from transformers import AutoTokenizer

    return AutoTokenizer.from_pretrained(tiny_family["target"])


def lines(folder: Path, count: int) -> Path:
    """A file of so many prompts, no two alike."""
    path = folder / "prompts.txt"
    path.write_text("".join(f"w{number} w{number + 1}\n" for number in range(20, count + 20)))
    return path


@pytest.mark.parametrize("in_a_file", [True, False])
def test_unseen_prompts_are_none_of_the_calibration(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, tokenizer: Any, in_a_file: bool
) -> None:
    """Of none of its settings: five requests of this one, seven of the other."""
    words = [f"w{number}" for number in range(20, 64)]
    modules = {"a.py": " ".join(words), "b.py": " ".join(reversed(words))}
    monkeypatch.setattr(corpus, "held_out_texts", lambda: modules)
    path = lines(tmp_path, 20) if in_a_file else None
    every = find_prompts(path, tokenizer, 2, 11)
    assert len(set(map(tuple, every))) == 11
    workload = of_profile(every[:5])

    def found(paired: bool, requests: int) -> list[list[int]]:
        check = CheckedPrompts.find(workload, paired, path, tokenizer, requests)
        assert check.name == ("calibration" if paired else "unseen")
        return list(map(list, check.prompts))

    assert found(True, 12) == every[:5]
    assert found(True, 3) == every[:3]
    assert found(False, 4) == every[7:]
    assert found(False, 3) == every[7:10]


def test_fewer_than_two_unseen_prompts_are_refused(tmp_path: Path, tokenizer: Any) -> None:
    path = lines(tmp_path, 9)
    every = find_prompts(path, tokenizer, 2, 9)
    workload = of_profile(every[:5])
    found = CheckedPrompts.find(workload, False, path, tokenizer, 12)
    assert found.prompts == every[7:]
    lines(tmp_path, 8)
    with pytest.raises(PromptError, match="has fewer than two prompts that calibration did not"):
        CheckedPrompts.find(workload, False, path, tokenizer, 12)
    # Those of the calibration are there.
    assert CheckedPrompts.find(workload, True, path, tokenizer, 12).prompts == every[:5]
