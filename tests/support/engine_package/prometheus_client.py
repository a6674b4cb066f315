"""The counters of the made-up ``vllm`` beside this."""

from __future__ import annotations


def generate_latest() -> bytes:
    from vllm import LLM

    return str(LLM.state.metrics()).encode()
