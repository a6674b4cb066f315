"""States of constant size in the traffic of a run."""

from __future__ import annotations

from dataclasses import replace

import pytest

from specsim import hardware

# With room for all of its weights.
CARD = replace(hardware.accelerator("H200"), memory=1e15)
SHAPE = hardware.shape("qwen3-next-80b-a3b")
STATES = sum(
    count * part.state for layer, count in SHAPE.distinct_layers for part in layer.attentions
)


def traffic(tokens: int, logits: int | None) -> float:
    """Bytes of a run over a sequence that begins."""
    wide = hardware.Parallelism(tensor=1)
    found = hardware.roofline(SHAPE, CARD, tokens, 1, 0, logits=logits, parallel=wide)
    return found.bytes


def test_a_verification_keeps_a_state_for_every_token() -> None:
    more = traffic(5, None) - traffic(5, 1)
    # One of five and one of a chunk of the others, beside all five.
    assert more == pytest.approx(3 * STATES * SHAPE.precision.state_bytes)


def test_a_prompt_keeps_one_for_every_chunk_of_64() -> None:
    states = STATES * SHAPE.precision.state_bytes
    longer = traffic(64 * 20 + 1, 1) - traffic(64 * 10 + 1, 1)
    assert 10 * states <= longer < 20 * states
