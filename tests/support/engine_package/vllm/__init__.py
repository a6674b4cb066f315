"""What ``calibrate.engine.worker`` needs of vLLM, with texts that follow from their prompts."""

from __future__ import annotations

import os
import time
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

from tests.support.engine_server import EngineState


def written(prompt: list[int], length: int) -> list[int]:
    """The text behind a prompt."""
    return [(prompt[-1] + 7 * place) % 60 for place in range(length)]


@dataclass
class SamplingParams:
    max_tokens: int
    temperature: float
    ignore_eos: bool
    top_k: int = 0
    top_p: float = 1.0


class LLM:
    """Drafts stand but for every third place."""

    state = EngineState()

    def __init__(self, model: str, disable_log_stats: bool, **options: Any) -> None:
        assert not disable_log_stats
        print("what an engine prints must not come between the answers", flush=True)
        if model == "unknown":
            raise ValueError("no such model")
        self.model = model
        gamma = options.get("speculative_config", {}).get("num_speculative_tokens", 0)
        LLM.state = EngineState({}, {}, gamma=gamma)

    def generate(
        self, prompts: list[dict[str, Any]], sampling: list[SamplingParams], use_tqdm: bool
    ) -> list[Any]:
        assert not use_tqdm
        if self.model == "crashing":
            os._exit(3)
        if self.model == "mute":
            time.sleep(60)
        found = []
        for each, how in zip(prompts, sampling, strict=True):
            assert how.ignore_eos
            prompt = each["prompt_token_ids"]
            if min(prompt) < 0:
                raise ValueError(f"token {min(prompt)} is\nout of vocabulary")
            key, text = tuple(prompt), written(prompt, how.max_tokens + 8)
            gamma = LLM.state.gamma
            guesses = [token if place % 3 else -1 for place, token in enumerate(text)]
            drafts = {place: guesses[place : place + gamma] for place in range(len(text))}
            LLM.state.texts, LLM.state.drafts = {key: text}, {key: drafts}
            asked = {"prompt": prompt, "max_tokens": how.max_tokens}
            answer = SimpleNamespace(token_ids=LLM.state.complete(asked))
            found.append(SimpleNamespace(outputs=[answer]))
        return found
