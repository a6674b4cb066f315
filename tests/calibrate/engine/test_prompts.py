"""Prompts of some lengths on servers that have nothing else to do."""

from __future__ import annotations

import time
from collections import Counter
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from calibrate.engine.client import EngineClient
from calibrate.engine.prompts import time_prompts
from specsim.checkpoint import Checkpoint
from specsim.profiles import SamplingSetting
from tests.support.engine_server import EngineState, serving, token_ids

SLOW_S, TOKEN_S = 0.02, 2e-6


class SlowAtFirst(EngineState):
    """The first prompt of each length takes longer."""

    def complete(self, asked: dict[str, Any]) -> list[int]:
        if len(token_ids(asked["prompt"])) not in map(len, self.prompts):
            time.sleep(SLOW_S)
            self.prefill_s += SLOW_S
        return super().complete(asked)


def test_the_first_prompt_of_each_length_on_a_server_does_not_count(tmp_path: Path) -> None:
    measured = SimpleNamespace(sampling=SamplingSetting(0.0))
    check = SimpleNamespace(workload=SimpleNamespace(measured=measured))
    asked: Any = SimpleNamespace(prompts=[[2, 3, 4], [5, 6]], check=check)
    states = {gamma: SlowAtFirst(gamma=gamma) for gamma in (0, 2)}
    lengths = (4, 8, 16)
    checkpoint = Checkpoint.beside(tmp_path / "out", "time_prompts")
    with serving(states[0]) as plain, serving(states[2]) as drafting:
        clients = {0: EngineClient(plain), 2: EngineClient(drafting)}
        found = time_prompts(clients, asked, lengths, 1, 0, checkpoint)
    assert Counter((each.gamma, each.tokens) for each in found) == {
        (gamma, length): 3 for gamma in clients for length in lengths
    }
    for each in found:
        assert each.repeat == 1
        assert each.seconds == pytest.approx(TOKEN_S * each.tokens)
    for state in states.values():
        sent = [len(prompt) for prompt in state.prompts]
        assert sent[:3] == [4, 8, 16]
        assert sorted(sent[3:]) == [4, 4, 4, 8, 8, 8, 16, 16, 16]
        # Pieces of the profile's prompts, one after another.
        for prompt in map(token_ids, state.prompts):
            assert prompt == tuple((prompt[0] - 2 + at) % 5 + 2 for at in range(len(prompt)))
