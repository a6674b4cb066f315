"""What a data sheet, or the target, says of runs where few were timed."""

from __future__ import annotations

from itertools import product

import msgspec
import numpy as np
import pytest

from specsim.hardware.grid_fit import grid_fits
from specsim.hardware.routing import Experts
from specsim.hardware.run_time_fit import FittedRunTimes, GridPoint, fits
from specsim.hardware.run_time_law import Growth
from specsim.hardware.timed_models import timed_card, timed_shape
from specsim.profiles import Profile, read_profile
from tests.support.profiles import EMBEDDED, ON_H200

KNOWN = Growth(cache_s=4e-8, token_s=2e-5, attention_s=1e-9)


def law(tokens: int, batch: int, context: int, known: Growth = KNOWN) -> float:
    memory = 5e-3 + known.cache_s * batch * (context + tokens)
    arithmetic = known.token_s * batch * tokens
    return memory + arithmetic + known.attention_s * batch * tokens * (context + tokens / 2)


def points(tokens: tuple[int, ...], batches: tuple[int, ...]) -> list[GridPoint]:
    cells = product(tokens, batches, (512, 4096))
    return [GridPoint(*cell, law(*cell)) for cell in cells]


def test_what_no_run_tells_is_as_known() -> None:
    """One token at two small batches: hardly longer runs, of which nobody could tell why."""
    few = points((1,), (1, 2))
    times = FittedRunTimes.of(few, KNOWN)
    for point in few:
        assert times(point.tokens, point.batch, point.context) == pytest.approx(point.seconds)
    for cell in ((1, 64, 512), (1, 64, 4096), (9, 16, 512)):
        assert times(*cell) == pytest.approx(law(*cell), rel=0.1)


def test_what_runs_tell_is_not_moved_by_what_was_known() -> None:
    many = points((1, 2, 3, 5, 9), (1, 4, 16, 64))
    wrong = FittedRunTimes.of(many, KNOWN.times(3.0))
    assert wrong.growth.cache_s == pytest.approx(KNOWN.cache_s, rel=0.1)
    assert wrong.growth.token_s == pytest.approx(KNOWN.token_s, rel=0.1)
    assert wrong(5, 256, 2048) == pytest.approx(law(5, 256, 2048), rel=0.05)


def test_next_to_nothing_is_not_known() -> None:
    """Or it would hold a draft's caches at nothing, since a target's were too short to tell."""
    alone = [GridPoint(n, b, 8, 5e-3 + 2e-5 * b * n) for n, b in product((1, 5, 9), (1, 4, 16))]
    found = FittedRunTimes.of(alone).growth
    assert np.isnan(found.cache_s)
    assert found.token_s == pytest.approx(2e-5, rel=0.05)
    assert np.isnan(found.times(0.1).cache_s)


@pytest.mark.parametrize(
    ("name", "least", "factor"),
    [
        ("h200/costs-8b-1b-compiled", 16, 1.35),  # 3.4 without
        ("h200/costs-8b-1b-compiled", 64, 1.30),  # 1.7
        ("h200/costs-32b-0.6b-compiled", 16, 1.40),  # 8.2
        ("h200-second/costs-8b-1b-compiled", 256, 1.15),
        ("h100/costs-8b-1b-compiled", 8, 1.25),  # 1.25
        ("h100/costs-8b-1b-compiled", 16, 1.25),  # 1.11
        ("h100-second/costs-8b-1b-compiled", 16, 1.25),
        ("h100-second/costs-30b-a3b-0.6b-compiled", 16, 1.25),  # 5.0
        ("embedded-cpu/profile", 4, 1.30),  # 1.7
        ("embedded-cpu/profile", 32, 1.25),  # 1.21
    ],
)
def test_runs_of_larger_batches_than_any_that_was_timed(
    name: str, least: int, factor: float
) -> None:
    """Measured runs of all batches from ``least`` on, as fitted to the smaller ones: how far off
    the worst is, with what is known, and without.
    """
    profile = read_profile(ON_H200.parents[1] / f"{name}.json")
    smaller = [row for row in profile.grid if row.batch < least]
    found = grid_fits(msgspec.structs.replace(profile, grid=smaller))
    for key, times in fits(profile.grid).items():
        held = [point for point in times.points if point.batch >= least]
        off = [np.log(found[key](p.tokens, p.batch, p.context) / p.seconds) for p in held]
        assert np.exp(np.max(np.abs(off))) < factor, key


def test_a_draft_without_a_shape_grows_as_its_target() -> None:
    """The embedded pair on a CPU: of its two smallest batches, in the ratio of parameters."""
    profile = read_profile(EMBEDDED)
    small = msgspec.structs.replace(profile, grid=[row for row in profile.grid if row.batch <= 2])
    assert timed_card(profile) is None
    assert timed_shape(profile, "draft") is None
    found = grid_fits(small)
    share = profile.draft.parameters / profile.target.parameters
    target = found["eager", "target"].growth
    for kind in ("first draft", "next draft"):
        known = found["eager", kind].known
        assert known is not None
        assert known.token_s == share * target.token_s
    assert found["eager", "target"].known is None


def test_a_data_sheet_says_what_a_token_takes() -> None:
    """Llama-3.1-8B: 2 FLOPs a weight at 989 TFLOP/s, 131,072 bytes of cache a token at 4.8 TB/s."""
    profile: Profile = read_profile(ON_H200)
    known = grid_fits(profile)["compiled", "target"].known
    assert known is not None
    shape = timed_shape(profile, "target")
    assert shape is not None
    assert known.token_s == pytest.approx(2 * (8.03e9 - 128256 * 4096) / 989e12 / 0.6, rel=0.01)
    assert known.cache_s == pytest.approx(131_072 / 4.8e12 / 0.75)


def test_an_expert_takes_its_reading() -> None:
    """Qwen3-30B-A3B: 48 layers, in each 3 x 2,048 x 768 numbers of 2 bytes; of one batch alone runs
    tell it nearly, too.
    """
    name = "costs-30b-a3b-0.6b-compiled.json"
    times = grid_fits(read_profile(ON_H200.with_name(name)))["compiled", "target"]
    assert times.known is not None
    assert times.experts == Experts(128, 8)
    expert_s = 48 * 3 * 2048 * 768 * 2 / 4.8e12 / 0.75
    assert times.known.expert_s == pytest.approx(expert_s, rel=0.01)
    assert times.growth.expert_s == pytest.approx(expert_s, rel=0.7)
    # The arithmetic of a token is a hundredth of the reading of its eight.
    assert times.known.token_s == pytest.approx(0.01 * 8 * expert_s, rel=0.1)


def test_experts_that_are_all_touched_take_no_longer() -> None:
    """As made up: of 64 tokens nearly all are, and ten times as many read no more of them."""
    experts = Experts(128, 8)

    def seconds(n: int, b: int) -> float:
        return 10e-3 + 2e-4 * float(experts.beyond_one(np.array([float(n * b)]))[0])

    points = [GridPoint(n, 1, 512, seconds(n, 1)) for n in range(1, 10)]
    known = Growth(1e-8, 1e-6, 1e-12, 1e-4)
    times = FittedRunTimes.of(points, known, experts)
    for n, b in ((1, 16), (9, 16), (9, 64)):
        assert times(n, b, 512) == pytest.approx(seconds(n, b), rel=0.1)
    assert FittedRunTimes.of(points, known)(9, 16, 512) != pytest.approx(seconds(9, 16), rel=0.3)


def test_experts_of_which_a_token_takes_all_are_weights_like_others() -> None:
    """Eight, of which every token takes eight: more tokens touch no more of them."""
    profile = read_profile(ON_H200.with_name("costs-30b-a3b-0.6b-compiled.json"))
    config = {**(profile.target.config or {}), "num_experts": 8}
    target = msgspec.structs.replace(profile.target, config=config)
    found = grid_fits(msgspec.structs.replace(profile, target=target))["compiled", "target"]
    assert found.experts is None
    assert found.known is not None
    assert np.isnan(found.known.expert_s)


def replaced(profile: Profile, card: str = "", model_type: str = "") -> Profile:
    config = dict(profile.target.config or {})
    return msgspec.structs.replace(
        profile,
        hardware=msgspec.structs.replace(
            profile.hardware, device_name=card or profile.hardware.device_name
        ),
        target=msgspec.structs.replace(
            profile.target, config={**config, "model_type": model_type or config["model_type"]}
        ),
    )


def test_what_a_run_takes_needs_no_data_sheet() -> None:
    """A T4 has no units for bfloat16, and no shape is counted of a type that is not known."""
    profile = read_profile(ON_H200)
    for other in (replaced(profile, card="Tesla T4"), replaced(profile, model_type="qwen2_vl")):
        found = grid_fits(other)["compiled", "target"]
        assert found.known is None
        assert found(3, 16, 512) == pytest.approx(
            grid_fits(profile)["compiled", "target"](3, 16, 512), rel=0.01
        )
    assert timed_shape(replaced(profile, model_type="qwen2_vl"), "target") is None
    assert grid_fits(msgspec.structs.replace(profile, grid=[])) == {}


def test_a_model_ran_in_the_type_that_it_was_timed_in() -> None:
    """Whatever numbers its checkpoint has: weights are made up."""
    profile = read_profile(ON_H200)
    quantised = {**(profile.target.config or {}), "quantization_config": {"quant_method": "fp8"}}
    target = msgspec.structs.replace(profile.target, config=quantised)
    assert timed_shape(msgspec.structs.replace(profile, target=target), "target") == timed_shape(
        profile, "target"
    )
