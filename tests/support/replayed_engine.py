"""An engine that replays the trace of a profile."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
from transformers import AutoTokenizer

from calibrate.models.prompts import read_prompts
from specsim.profiles import read_profile
from tests.support.engine_server import EngineState

# Requests of the profile, and the tokens of each.
REQUESTS, LIMIT = 6, 24


def engine(profile: Path, prompts: Path, gamma: int = 2, **changes: Any) -> EngineState:
    """A server that emits the trace's texts, with drafts as good as the trace says."""
    content = read_profile(profile)
    # vLLM's drafts are greedy ones; at temperature 0 that is the law of all.
    measured = msgspec.structs.replace(content.acceptance[0], acceptance_law="greedy-drafts")
    trace = content.trace(profile, measured)
    tokenizer = AutoTokenizer.from_pretrained(content.target.name)
    found = read_prompts(prompts, tokenizer, content.acceptance[0].prompt_tokens)
    texts, drafts = {}, {}
    for number, prompt in enumerate(map(tuple, found)):
        where = slice(trace.starts[number], trace.starts[number + 1])
        text = trace.columns["token"][where].tolist()
        stands = trace.acceptance[where]
        guesses = [token if stand else -1 for token, stand in zip(text, stands, strict=True)]
        texts[prompt] = text
        drafts[prompt] = {place: guesses[place : place + gamma] for place in range(len(text))}
    return EngineState(texts, drafts, gamma=gamma, **changes)
