"""Interleaved decoding: side by side is the same work as one after the other."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from pathlib import Path

import numpy as np
import pytest
import torch

from calibrate.decode.engine import Decoded, DecodeRequest, Decoding, Runs
from calibrate.decode.plain import plain
from calibrate.measure.trace import DECODING, generator
from calibrate.models.load import Pair, load_pair
from calibrate.models.sampling import Sampling
from calibrate.validate.findings import check_counts
from calibrate.validate.interleave import (
    PLAIN,
    Interleaved,
    RequestSet,
    Start,
    _round_robin,
    decode_interleaved,
)
from calibrate.validate.speedups import decoder
from specsim.checkpoint import Checkpoint
from specsim.intervals import Bootstrap

CPU = torch.device("cpu")


@pytest.fixture(scope="module")
def pair(tiny_family: dict[str, Path]) -> Pair:
    return load_pair(str(tiny_family["target"]), str(tiny_family["draft"]), CPU)


def test_side_by_side_decodes_what_each_decodes_alone(pair: Pair, tmp_path: Path) -> None:
    prompts = [[5, 6, 7], [8, 9]]
    gammas = (PLAIN, 1, 3)

    def decoders(temperature: float) -> dict[Hashable, Start]:
        sampling = Sampling(temperature)
        return {gamma: decoder(pair.cached(), gamma, sampling, 30, pair) for gamma in gammas}

    sets = [RequestSet(prompts, decoders(temperature)) for temperature in (0.0, 1.0)]
    interleaved = decode_interleaved(sets, CPU, 4, Checkpoint(tmp_path))
    for index, decoded in enumerate(interleaved):
        assert tuple(decoded.decoded) == gammas
        assert decoded.lengths(3)[0] == 30
        for number, (gamma, start) in enumerate(decoders(float(index)).items()):
            for request in range(2):
                random = generator(CPU, DECODING, 4, index, request, number)
                alone = start(prompts[request], random).finish()
                found = decoded.decoded[gamma][request]
                assert (found.tokens, found.accepted) == (alone.tokens, alone.accepted)
                assert found.target.widths == alone.target.widths
                assert found.draft.widths == alone.draft.widths
    assert interleaved[0].same_text(1)
    assert interleaved[0].same_text(3)


def test_a_request_that_was_written_down_is_not_decoded_again(pair: Pair, tmp_path: Path) -> None:
    """Killed in its third request of four, and started again: the same texts and counts."""
    prompts = [[5, 6, 7], [8, 9], [3], [4, 3]]
    begun: list[int] = []

    def decode(folder: Path, last: int) -> Interleaved:
        gammas: dict[Hashable, Start] = {
            gamma: decoder(pair.cached(), gamma, Sampling(1.0), 20, pair) for gamma in (PLAIN, 2)
        }
        start = gammas[PLAIN]

        def plainly(prompt: Sequence[int], random: torch.Generator) -> Decoding:
            request = len(list(folder.glob("*.json")))
            if request == last:
                raise KeyboardInterrupt
            begun.append(request)
            return start(prompt, random)

        sets = [RequestSet(prompts, gammas | {PLAIN: plainly})]
        (found,) = decode_interleaved(sets, CPU, 4, Checkpoint(folder))
        return found

    whole, killed = tmp_path / "whole", tmp_path / "killed"
    whole.mkdir()
    killed.mkdir()
    expected = decode(whole, last=-1)
    with pytest.raises(KeyboardInterrupt):
        decode(killed, last=2)
    found = decode(killed, last=-1)
    assert begun == [*range(4), 0, 1, 2, 3]
    for name in (PLAIN, 2):
        for one, other in zip(expected.decoded[name], found.decoded[name], strict=True):
            assert (one.tokens, one.accepted, one.drafted) == (
                other.tokens,
                other.accepted,
                other.drafted,
            )
            assert one.target.widths == other.target.widths
            assert one.draft.widths == other.draft.widths


def test_a_decoding_can_be_taken_up_again(pair: Pair) -> None:
    target, _ = pair.cached()
    whole = plain(target, DecodeRequest([5, 6], 12, Sampling(1.0), generator(CPU, 1))).finish()
    target, _ = pair.cached()
    decoding = plain(target, DecodeRequest([5, 6], 12, Sampling(1.0), generator(CPU, 1)))
    goals = [decoding.advance(goal) for goal in (4, 4, 8, 12)]
    assert goals == [True, True, True, False]
    assert decoding.finish().tokens == whole.tokens
    assert decoding.finish().calls == 12


def test_every_set_is_spread_over_the_whole_time() -> None:
    order = _round_robin([2, 6])
    assert sorted(order) == [(0, 0), (0, 1), *((1, request) for request in range(6))]
    where = [place for place, (index, _) in enumerate(order) if index == 0]
    assert where[0] < 4 <= where[1]
    assert [request for index, request in order if index == 1] == list(range(6))


def decoded(tokens: int, calls: int, seconds: float) -> Decoded:
    runs = Runs()
    runs.widths[1] = calls
    return Decoded(list(range(tokens)), [0] * calls, [0] * calls, runs, Runs(), [seconds])


def test_speedup_is_of_time_per_token() -> None:
    found = Interleaved(
        {
            0: [decoded(10, 10, 1.0), decoded(5, 5, 0.5)],
            2: [decoded(10, 4, 0.4), decoded(5, 3, 0.35)],
        }
    )
    speedup = found.speedup(2)
    assert speedup.best == pytest.approx(1.5 / 0.75)
    # Requests give 2.5 and 0.5 / 0.35, between which every draw lies; two tell little of more.
    wider = Bootstrap(2).wider
    assert 2 * (0.5 / 0.35 / 2) ** wider - 1e-9 <= speedup.low <= speedup.best
    assert speedup.best <= speedup.high <= 2 * (2.5 / 2) ** wider + 1e-9
    # A prediction that is right about each request leaves no uncertainty.
    expected = np.array([1.0, 0.5]), np.array([0.4, 0.35])
    speedup = found.speedup(2, expected)
    assert (speedup.low, speedup.best, speedup.high) == pytest.approx((2.0, 2.0, 2.0))


def test_counts_that_contradict_the_replay_are_named() -> None:
    row = {"temperature": 0.0, "prompts": "unseen", "gamma": 3, "requests": 8, "exact": True}
    assert check_counts([{**row, "z": 0.0}]) == []
    (text,) = check_counts([{**row, "exact": False, "z": 0.0}])
    assert "gamma 3: text or number of calls" in text
    (text,) = check_counts([{**row, "temperature": 1.0, "exact": None, "z": -30.0}])
    assert "z -30.0" in text
