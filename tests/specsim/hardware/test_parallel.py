"""Models on several cards, against runs on one and sums written out."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from specsim import hardware
from specsim.checks import InvalidArgumentError, UnsupportedError
from specsim.hardware import Parallelism, Roofline
from specsim.hardware.routing import load_over_mean, most_touched
from tests.support.refusals import refuses

# Without limits of memory, so that any model may stand on one card.
H200 = dataclasses.replace(hardware.accelerator("H200"), memory=1e15)
LINK = hardware.interconnect("NVLink4")
DENSE, LATENT, LINEAR = "llama-3.1-8b", "deepseek-v3", "qwen3-next-80b-a3b"
MIXTURE, WINDOWS = "qwen3-30b-a3b", "gpt-oss-120b"
NAMES = (DENSE, LATENT, LINEAR, MIXTURE, WINDOWS)

shapes = st.sampled_from([hardware.shape(name) for name in NAMES])
runs = st.tuples(st.integers(1, 9), st.integers(1, 64), st.integers(0, 20_000))
degrees = st.sampled_from([1, 2, 4, 8])


def run(shape: hardware.Shape | str, size: tuple[int, int, int], **more: Any) -> Roofline:
    found = hardware.shape(shape) if isinstance(shape, str) else shape
    return hardware.roofline(found, H200, *size, **more)


def cards(tensor: int = 1, pipeline: int = 1, data: int = 1, expert: int = 1) -> dict[str, Any]:
    return {"parallel": Parallelism(tensor, pipeline, data, expert)}


@given(shapes, runs)
@settings(max_examples=50, deadline=None)
def test_one_card_is_the_roofline_of_the_docstring(
    shape: hardware.Shape, size: tuple[int, int, int]
) -> None:
    tokens, batch, context = size
    kept, moved = shape.precision, float(shape.head * shape.precision.dtype_bytes)
    for layer in shape.layers:
        moved += layer.weights * kept.weight_bytes
        if layer.experts:
            touched = hardware.expected_experts(
                layer.experts, layer.experts_per_token, tokens * batch
            )
            moved += touched * layer.expert_weights * kept.expert_bytes
        for part in layer.attentions:
            stored = part.kv_width * kept.kv_bytes * (part.read(context, tokens) + tokens)
            moved += batch * (stored + part.state * kept.state_bytes * (1 + tokens))
    found = run(shape, size)
    assert found.bytes == pytest.approx(moved, rel=1e-12)
    assert found.flops == pytest.approx(batch * shape.flops(tokens, context), rel=1e-15)
    assert (found.communication_s, found.eager_s, found.launch_s) == (0, 0, 0)


@given(shapes, runs, degrees)
@settings(max_examples=50, deadline=None)
def test_the_work_of_a_tensor_parallel_group_is_that_of_one_card(
    shape: hardware.Shape, size: tuple[int, int, int], degree: int
) -> None:
    one, shared = run(shape, size), run(shape, size, **cards(degree))
    again = (degree - 1) * 2 * size[0] * size[1] * sum(layer.whole for layer in shape.layers)
    assert degree * shared.flops == pytest.approx(one.flops + again, rel=1e-12)
    # Caches that cannot be divided are read by every card.
    assert one.bytes / degree <= shared.bytes * (1 + 1e-12)
    assert shared.compute_s <= one.compute_s
    assert shared.memory_s <= one.memory_s
    assert (shared.communication_s > 0) == (degree > 1)
    assert shared.experts == one.experts


@given(shapes, runs, st.sampled_from([(2, 1, 2, 4), (1, 1, 4, 4), (2, 2, 2, 2), (1, 3, 2, 1)]))
@settings(max_examples=50, deadline=None)
def test_more_cards_never_do_more(
    shape: hardware.Shape, size: tuple[int, int, int], form: tuple[int, int, int, int]
) -> None:
    if form[3] > 1 and not any(layer.experts for layer in shape.layers):
        return
    one, shared = run(shape, size), run(shape, size, **cards(*form))
    assert shared.flops <= one.flops * (1 + 1e-12)
    assert shared.bytes <= one.bytes * (1 + 1e-12)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("form", [(2, 1, 2, 1), (1, 2, 2, 1), (2, 1, 4, 8), (4, 2, 1, 4)])
def test_work_adds_up_over_all_cards(name: str, form: tuple[int, int, int, int]) -> None:
    tensor, pipeline, data, expert = form
    if expert > 1 and name == DENSE:
        return
    shared = run(name, (3, 16, 1000), **cards(*form))
    # Every group, and in it every part of a pipeline's batch, does the same; where experts are
    # dealt out, the busiest card has more than the mean of them by chance.
    whole = run(name, (3, 16, 1000)).flops
    chance = 0.0
    for layer, count in hardware.shape(name).distinct_layers:
        # What every card of a group has whole, all of them multiply.
        whole += (tensor - 1) * 2.0 * count * 3 * 16 * layer.whole
        if expert > 1 and layer.experts:
            chosen = layer.experts, layer.experts_per_token
            over = load_over_mean(*chosen, 3 * 16 / pipeline, expert) - 1.0
            chance += 2.0 * count * 3 * 16 * chosen[1] * layer.expert_weights * over
    assert shared.flops * tensor * data * pipeline == pytest.approx(whole + chance, rel=1e-12)


def test_bytes_of_a_latent_cache_are_on_every_card() -> None:
    shape, more = hardware.shape(LATENT), 1000
    latent = 61 * (512 + 64) * shape.precision.kv_bytes
    for degree in (1, 2, 8):
        short, long = (run(LATENT, (1, 1, n), **cards(degree)).bytes for n in (0, more))
        assert long - short == pytest.approx(more * latent)


def test_bytes_of_a_divided_cache() -> None:
    # Four key-value heads in 48 layers: eight cards keep one each, as four do.
    shape, more = hardware.shape(MIXTURE), 1000
    head = 48 * 2 * 128 * shape.precision.kv_bytes
    for degree, heads in ((1, 4), (2, 2), (4, 1), (8, 1)):
        short, long = (run(MIXTURE, (1, 1, n), **cards(degree)).bytes for n in (0, more))
        assert long - short == pytest.approx(more * heads * head)
        held = [
            hardware.memory_needed_bytes(shape, 1, n, parallel=Parallelism(degree))
            for n in (0, more)
        ]
        assert held[1] - held[0] == pytest.approx(more * heads * head)


def test_a_state_is_read_once_and_written_for_every_token() -> None:
    shape = hardware.shape(LINEAR)
    # 36 layers with 32 heads of 128 x 128 numbers and three inputs of the convolution, in float32.
    state = 36 * 4 * (32 * 128 * 128 + 3 * 8192)
    stored = 12 * 2 * 2 * 256 * 2  # of one new token, in the other layers
    for degree in (1, 2):
        one, four = (run(LINEAR, (n, 1, 0), **cards(degree)) for n in (1, 4))
        weights = [
            (found.experts * 48 * shape.layers[0].expert_weights * 2) / degree
            for found in (one, four)
        ]
        rest = (four.bytes - weights[1]) - (one.bytes - weights[0])
        assert rest == pytest.approx(3 * (state + stored) / degree, rel=1e-6)


def test_experts_are_divided_or_dealt_out() -> None:
    size = (2, 8, 100)
    shape = hardware.shape(MIXTURE)
    experts = 48 * shape.layers[0].expert_weights * 2.0
    divided = run(MIXTURE, size, **cards(4))
    dealt = run(MIXTURE, size, **cards(4, expert=4))
    # One group has the same tokens either way; a card that has whole experts has more by chance.
    most = most_touched(128, divided.experts, 4)
    assert dealt.bytes - divided.bytes == pytest.approx((most - divided.experts / 4) * experts)
    assert dealt.experts == divided.experts
    # Two groups of two cards: each reads the dense weights for its half of the requests, and its
    # quarter of the experts for all of them.
    groups = run(MIXTURE, size, **cards(2, data=2, expert=4))
    half = run(MIXTURE, (2, 4, 100), **cards(2))
    dense = half.bytes - half.experts * experts / 2
    assert groups.experts == divided.experts
    assert groups.bytes == pytest.approx(dense + most * experts)
    # Without expert parallelism the groups have nothing to do with each other.
    assert run(MIXTURE, size, **cards(2, data=2)) == half


def test_imbalance_makes_the_busiest_card_do_more_and_no_more_than_all() -> None:
    size, form = (1, 4, 0), cards(1, data=4, expert=4)
    even = run(MIXTURE, size, **form)
    busy = run(MIXTURE, size, imbalance=1.5, **form)
    shape = hardware.shape(MIXTURE)
    experts = 48 * shape.layers[0].expert_weights * 2.0
    most = most_touched(128, even.experts, 4)
    assert busy.bytes - even.bytes == pytest.approx(0.5 * most * experts)
    routed = 2 * 48 * 4 * 8 * shape.layers[0].expert_weights / 4 * load_over_mean(128, 8, 4, 4)
    assert busy.flops - even.flops == pytest.approx(0.5 * routed)
    # A card has 32 of 128 experts to read.
    worst = run(MIXTURE, size, imbalance=100.0, **form)
    assert worst.bytes - even.bytes == pytest.approx((32 - most) * experts)
    assert run(MIXTURE, size, imbalance=2.0, **cards(4)) == run(MIXTURE, size, **cards(4))


def test_idle_groups_send_no_tokens_to_experts() -> None:
    three = run(MIXTURE, (2, 3, 0), **cards(1, data=8, expert=8))
    assert three.experts == run(MIXTURE, (2, 3, 0)).experts
    one = run(MIXTURE, (2, 1, 0), **cards(1, data=8, expert=8))
    assert one.experts == run(MIXTURE, (2, 1, 0)).experts


@pytest.mark.parametrize(("batch", "stages", "part"), [(8, 4, 2), (9, 4, 3), (3, 4, 1), (1, 2, 1)])
def test_a_pipeline_takes_as_long_as_a_part_for_all_stages(
    batch: int, stages: int, part: int
) -> None:
    piped = run(DENSE, (4, batch, 500), **cards(pipeline=stages))
    alone = run(DENSE, (4, part, 500))
    assert (piped.flops, piped.bytes) == (alone.flops, alone.bytes)
    states = part * 4 * 4096 * 2
    handed = (stages - 1) * hardware.point_to_point_s(LINK, states)
    assert piped.communication_s == pytest.approx(handed, rel=1e-12)


def test_what_a_dense_group_sends() -> None:
    found = run(DENSE, (5, 16, 100), logits=2, **cards(4))
    states = 16 * 5 * 4096 * 2
    # Embeddings, then twice a layer; and the logits that are wanted.
    expected = (1 + 2 * 32) * hardware.all_reduce_s(LINK, 4, states)
    expected += hardware.all_gather_s(LINK, 4, 16 * 2 * 128_256 * 2)
    assert found.communication_s == pytest.approx(expected, rel=1e-12)


def test_what_groups_with_dealt_out_experts_send() -> None:
    found = run(MIXTURE, (1, 32, 100), **cards(2, data=4, expert=8))
    states = 8 * 2048 * 2  # of a group
    reached = 8 * (1 - (7 / 8) ** 8)  # cards that have one of eight experts
    expected = (1 + 48) * hardware.all_reduce_s(LINK, 2, states)
    expected += 2 * 48 * hardware.all_to_all_s(LINK, 8, states * reached / 2)
    expected += 48 * hardware.all_gather_s(LINK, 2, states)
    expected += hardware.all_gather_s(LINK, 2, 8 * 151_936 * 2)
    assert found.communication_s == pytest.approx(expected, rel=1e-12)


def test_graphs_end_at_the_tokens_of_a_group() -> None:
    limit = hardware.Efficiency(graph_tokens=64, eager_layer_s=1e-3)
    fits = run(DENSE, (8, 8, 0), efficiency=limit)
    behind = run(DENSE, (8, 9, 0), efficiency=limit)
    assert (fits.eager_s, behind.eager_s) == (0.0, pytest.approx(0.032))
    # The host's time is no sum: the cards work meanwhile.
    assert behind.seconds == behind.eager_s
    assert behind.bound == "launch"
    longer = run(DENSE, (8, 4096, 0), efficiency=limit)
    assert longer.eager_s < longer.seconds == run(DENSE, (8, 4096, 0)).seconds
    assert run(DENSE, (8, 16, 0), efficiency=limit, **cards(data=2)).eager_s == 0.0
    assert run(DENSE, (8, 16, 0), efficiency=limit, **cards(pipeline=2)).eager_s == 0.0


@pytest.mark.parametrize("name", NAMES)
def test_weights_of_all_cards_are_the_models(name: str) -> None:
    shape = hardware.shape(name)
    whole = hardware.memory_needed_bytes(shape, states=0)
    kept = sum(layer.whole for layer in shape.layers) * shape.precision.weight_bytes
    shared = hardware.memory_needed_bytes(shape, parallel=Parallelism(4), states=0)
    assert 4 * shared == pytest.approx(whole + 3 * kept, rel=1e-12)
    if name != DENSE:
        groups = Parallelism(2, data=2, expert=4)
        spread = hardware.memory_needed_bytes(shape, parallel=groups, states=0)
        experts = sum(each.experts * each.expert_weights for each in shape.layers)
        routed = experts * shape.precision.expert_bytes
        # Each group has the dense weights.
        assert 4 * spread == pytest.approx(2 * (whole + kept - routed) + routed, rel=1e-12)


def test_what_every_card_has_whole() -> None:
    # vLLM 0.32.0, models/deepseek_v2.py: the projections to the latents of queries, keys and
    # values, and from the fourth layer on the router of 256 experts.
    latents = 7168 * (1536 + 512 + 64)
    found = [layer.whole for layer in hardware.shape(LATENT).layers]
    assert found == 3 * [latents] + 58 * [latents + 7168 * 256]
    # A third of what a card of eight reads of the weights besides the experts is not divided.
    shape = hardware.shape(LATENT)
    kept = shape.precision
    weights = sum(layer.weights for layer in shape.layers)
    alone, of_eight = (run(LATENT, (1, 1, 0), **cards(n)) for n in (1, 8))
    experts = alone.experts * 58 * shape.layers[-1].expert_weights * kept.expert_bytes
    cache = 61 * 576 * kept.kv_bytes
    whole = sum(found) * kept.weight_bytes
    dense = shape.head * kept.dtype_bytes + weights * kept.weight_bytes
    read = of_eight.bytes - cache - experts / 8
    assert read == pytest.approx(dense / 8 + 7 / 8 * whole, rel=1e-9)
    assert 0.3 < whole / read < 0.4
    assert {layer.whole for layer in hardware.shape(DENSE).layers} == {0}
    assert {layer.whole for layer in hardware.shape(MIXTURE).layers} == {2048 * 128}


def test_the_fullest_stage_of_a_pipeline() -> None:
    shape = hardware.shape(DENSE)
    layer, table = shape.layers[0].weights * 2, shape.head * 2
    for stages, layers in ((2, 16), (3, 11), (32, 1)):
        found = hardware.memory_needed_bytes(shape, parallel=Parallelism(pipeline=stages))
        assert found == pytest.approx(layers * layer + table)


def test_states_are_kept_for_every_draft() -> None:
    shape = hardware.shape(LINEAR)
    one, four = (hardware.memory_needed_bytes(shape, 2, 10, states=n) for n in (1, 4))
    assert four - one == pytest.approx(2 * 3 * 36 * 4 * (32 * 128 * 128 + 3 * 8192))


def test_cards_need_wires() -> None:
    alone = dataclasses.replace(H200, interconnect=None)
    with pytest.raises(UnsupportedError, match="interconnect is missing: 2 cards send each other"):
        hardware.roofline(hardware.shape(DENSE), alone, parallel=Parallelism(2))
    named = hardware.roofline(
        hardware.shape(DENSE), alone, parallel=Parallelism(2), interconnect=LINK
    )
    assert named == run(DENSE, (1, 1, 0), **cards(2))


def check(name: str, **of: int) -> None:
    Parallelism(**of).check(hardware.shape(name), name)


test_degrees_are_refused = refuses(
    (lambda: Parallelism(0), "tensor parallel degree must be a whole number >= 1, got 0"),
    (lambda: Parallelism(2, expert=4), "must divide tensor x data, which is 2, got 4"),
    (lambda: check(DENSE, tensor=3), "must divide the 32 attention heads of llama-3.1-8b, got 3"),
    (lambda: check(DENSE, pipeline=33), "must be <= 32, the layers of llama-3.1-8b, got 33"),
    (lambda: check(DENSE, tensor=2, expert=2), "has no routed experts, got 2"),
    (lambda: check(MIXTURE, data=3, expert=3), "must divide the 128 experts of qwen3-30b-a3b"),
    error=InvalidArgumentError,
)


def test_degrees_that_divide_or_repeat_key_value_heads() -> None:
    for degree in (1, 2, 4, 8, 16, 32):
        check(MIXTURE, tensor=degree)
    check(LATENT, tensor=128)
