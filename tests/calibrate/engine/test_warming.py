"""Steps of every width before a server is timed."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from calibrate.engine import warming
from calibrate.engine.client import EngineClient
from calibrate.engine.server import Launch
from calibrate.engine.warming import warm
from tests.support.engine_server import EngineState, serving


def launch(gamma: int, context: int = 64) -> Launch:
    speculative: dict[str, Any] | None = {"num_speculative_tokens": gamma} if gamma else None
    return Launch(Path("vllm"), "model", speculative, "float32", context, requests=4)


def lengths_read(launch: Launch, prompt_tokens: int) -> list[int]:
    state = EngineState()
    with serving(state) as url:
        warm(EngineClient(url), launch, prompt_tokens)
    return [len(prompt) for prompt in state.prompts]


@pytest.mark.parametrize("gamma", [0, 2])
def test_prompts_are_as_long_as_steps_get_wide(gamma: int) -> None:
    assert lengths_read(launch(gamma), 20) == list(range(1, 4 * (gamma + 1) + 20 + 1))


def test_no_prompt_is_longer_than_the_context_has_room_for() -> None:
    assert lengths_read(launch(2, context=24), 20) == list(range(1, 24 - 2))


def test_it_ends_where_steps_take_long(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(warming, "_LONGEST_S", 0.0)
    # The clock is read once a few were sent.
    assert len(lengths_read(launch(0), 60)) < 63
