"""Requests that a server is sent as ``vllm bench serve`` sends them: by one program, with aiohttp,
over connections that stay open.  What a client does itself is part of what its users wait for.

vLLM 0.32.0 lets aiohttp look for proxies and passwords in the environment (``trust_env`` in
``benchmarks/serve.py``), which it does in threads, anew for every request: 1.6 ms until the first
token on the two cores of the studies (``benchmarks/vllm_client.py``).
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any
from urllib.request import getproxies

import aiohttp

from calibrate.engine.client import (
    ANSWER_S,
    COMPLETIONS,
    EngineClient,
    EngineError,
    check_tokens,
    completion,
    prompt_tokens,
    read_event,
    refusal,
    sampling_words,
    token_ids,
    unanswered,
)
from specsim.counts.streams import Stream
from specsim.profiles import SamplingSetting


def stream(
    client: EngineClient,
    prompts: Sequence[str],
    tokens: Sequence[int],
    sampling: SamplingSetting,
    together: int,
    waits_s: Sequence[float],
) -> list[Stream]:
    """Like ``client.complete`` of prompts that are sent as text, each so many seconds after a
    client is free for it: when it was sent, and when its chunks came.

    A text is tokenized by the server, which says how many tokens it has.
    """
    name, before = client.model(), client.metrics()
    words = sampling_words(sampling)
    asked = [completion(name, words, *each) for each in zip(prompts, tokens, strict=True)]
    found = stream_all(client.url, asked, together, waits_s)
    client.await_counted(before, sum(tokens))
    return found


def stream_all(
    url: str, asked: Sequence[Mapping[str, Any]], together: int, waits_s: Sequence[float]
) -> list[Stream]:
    """When each request was sent, and when its chunks came, in order.

    asked : of ``completion``
    together : clients, each of which sends the next request when it is free
    waits_s : of every request, once a client is free for it
    """
    streams = _stream_all(url, asked, together, waits_s)
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return asyncio.run(streams)
    # A notebook runs a loop of its own, beside which none can run in the same thread.
    with ThreadPoolExecutor(1) as thread:
        return thread.submit(asyncio.run, streams).result()


async def _stream_all(
    url: str, asked: Sequence[Mapping[str, Any]], together: int, waits_s: Sequence[float]
) -> list[Stream]:
    found: dict[int, Stream] = {}
    waiting = iter(enumerate(asked))
    timeout = aiohttp.ClientTimeout(total=None, sock_read=ANSWER_S)
    connector = aiohttp.TCPConnector(limit=0, keepalive_timeout=60)
    # The server is asked directly, whatever proxy is set for the rest of the world.
    trust = "http" not in getproxies()
    async with aiohttp.ClientSession(
        connector=connector, timeout=timeout, trust_env=trust
    ) as session:

        async def client() -> None:
            for number, words in waiting:
                await asyncio.sleep(waits_s[number])
                found[number] = await _stream(session, url + COMPLETIONS, words)

        # In a load that lasts nearly every request finds a connection that is open.
        await asyncio.gather(*(_connect(session, url) for _ in range(together)))
        await asyncio.gather(*(client() for _ in range(together)))
    return [found[number] for number in range(len(asked))]


async def _connect(session: aiohttp.ClientSession, url: str) -> None:
    try:
        async with session.get(f"{url}/health") as answer:
            await answer.read()
    except (aiohttp.ClientError, OSError) as error:
        raise EngineError(unanswered(url, error)) from None


async def _stream(session: aiohttp.ClientSession, url: str, asked: Mapping[str, Any]) -> Stream:
    chunks: list[tuple[float, int]] = []
    prompt, rest = 0, b""
    sent_s = time.perf_counter()
    try:
        async with session.post(url, json=asked) as answer:
            if answer.status != 200:
                body = await answer.text(errors="replace")
                raise EngineError(refusal(url, answer.status, body))
            async for piece in answer.content.iter_any():
                *lines, rest = (rest + piece).split(b"\n")
                for line in lines:
                    if (event := read_event(line, url)) is None:
                        continue
                    if tokens := token_ids(event):
                        chunks.append((time.perf_counter(), len(tokens)))
                    prompt = max(prompt, prompt_tokens(event))
    except (aiohttp.ClientError, OSError, UnicodeDecodeError) as error:
        raise EngineError(unanswered(url, error)) from None
    check_tokens(
        url.removesuffix(COMPLETIONS), sum(each for _, each in chunks), asked["max_tokens"]
    )
    if not prompt:
        raise EngineError(
            f"{url} does not tell how many tokens a prompt has (stream_options.include_usage): is "
            "it a vLLM server?"
        )
    chunk_s, chunk_tokens = zip(*chunks, strict=True)
    return Stream(prompt, sent_s, chunk_s, chunk_tokens)
