"""What an inference engine is asked: completions of token ids or of text, and counters; here over
HTTP.

vLLM 0.32.0: ``/health``, ``/v1/models``, ``/v1/completions`` with ``return_token_ids``, and
``/metrics``.  Answers are streamed, as those of a deployed server mostly are: what a server does
for the chunks of every step is part of the time that steps take.
"""

from __future__ import annotations

import json
import time
import urllib.error
import urllib.request
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from http.client import HTTPException, HTTPResponse
from typing import Any, Protocol

from specsim.checks import SpecsimError
from specsim.counts.drafts import DraftCounts
from specsim.engines.readers import read_text
from specsim.engines.readers.prometheus import differenced
from specsim.profiles import SamplingSetting

COMPLETIONS = "/v1/completions"
ANSWER_S = 600.0
_HEALTH_S = 2.0
_POLL_S = 0.05
_COUNTED_S = 20.0
GENERATED = "vllm:generation_tokens_total"


class EngineError(SpecsimError):
    """The engine cannot be started or asked; the message says which and why in one line."""


@dataclass(frozen=True)
class Completed:
    """Texts of requests, in order, and the counters of the server before and after them.

    seconds : from sending the first to the last answer
    """

    texts: list[list[int]]
    before: str
    after: str
    seconds: float


class Client(Protocol):
    """An engine that can be asked, a server or an ``LLM``.

    where : what it is called in messages
    """

    @property
    def where(self) -> str: ...

    def is_up(self) -> bool:
        """Whether it can be asked by now."""
        ...

    def complete(
        self,
        prompts: Sequence[Sequence[int]],
        tokens: Sequence[int],
        sampling: SamplingSetting,
        together: int,
        advance: Callable[[], None] = lambda: None,
        seed: int | None = None,
    ) -> Completed:
        """Decode ``tokens[r]`` tokens behind each prompt, so many requests at a time.

        seed : of the first request's random numbers, of which each then has its own; None: all are
            drawn from the server's, as they come, which is what users have and a little faster
        """
        ...


class EngineClient:
    """A server at an address such as ``http://127.0.0.1:8000``."""

    def __init__(self, url: str) -> None:
        self.url = url.rstrip("/")
        if not self.url.startswith(("http://", "https://")):
            raise EngineError(f"url must be http://HOST:PORT, got {url}")
        # The server is asked directly, whatever proxy is set for the rest of the world.
        self._opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))

    @property
    def where(self) -> str:
        return self.url

    def is_up(self) -> bool:
        """Whether it answers that it is well."""
        try:
            self._get("/health", _HEALTH_S)
        except EngineError:
            return False
        return True

    def model(self) -> str:
        """The name under which the first model is served."""
        answer = _json(self._get("/v1/models"), f"{self.url}/v1/models")
        try:
            return str(answer["data"][0]["id"])
        except (KeyError, IndexError, TypeError):
            raise EngineError(f"{self.url}/v1/models names no model") from None

    def metrics(self) -> str:
        """The text of ``/metrics``."""
        return self._get("/metrics")

    def complete(
        self,
        prompts: Sequence[Sequence[int]],
        tokens: Sequence[int],
        sampling: SamplingSetting,
        together: int,
        advance: Callable[[], None] = lambda: None,
        seed: int | None = None,
    ) -> Completed:
        """Decode ``tokens[r]`` tokens behind each prompt, so many requests at a time.

        End-of-text does not end a request.  Counters are read when they hold all tokens of these
        requests; raises EngineError where they hold more, since then others are served as well.
        """
        name = self.model()
        before = self.metrics()
        one = partial(self._complete, name)
        words = [sampling_words(sampling, seed, number) for number in range(len(prompts))]
        texts: list[list[int]] = []
        with ThreadPoolExecutor(together) as pool:
            begun = time.perf_counter()
            for text in pool.map(one, words, prompts, tokens):
                texts.append(text)
                advance()
            seconds = time.perf_counter() - begun
        after = self.await_counted(before, sum(map(len, texts)))
        return Completed(texts, before, after, seconds)

    def _complete(
        self, name: str, sampling: Mapping[str, float], prompt: Sequence[int], tokens: int
    ) -> list[int]:
        events = self._events(COMPLETIONS, completion(name, sampling, prompt, tokens))
        found = [token for event in events for token in token_ids(event)]
        check_tokens(self.url, len(found), tokens)
        return found

    def await_counted(self, before: str, tokens: int) -> str:
        """The counters once they hold so many tokens more: they trail the answers a little."""
        deadline = time.monotonic() + _COUNTED_S
        start = counter(before, GENERATED, self.url)
        while True:
            after = self.metrics()
            more = counter(after, GENERATED, self.url) - start
            if more > tokens:
                raise EngineError(
                    f"{self.url} generated {more:g} tokens where {tokens} were asked for: others "
                    "use it, and its counters are of all requests together"
                )
            if more == tokens:
                return after
            if time.monotonic() > deadline:
                raise EngineError(
                    f"{self.url}/metrics counts {more:g} tokens where {tokens} were generated"
                )
            time.sleep(_POLL_S)

    def _get(self, path: str, seconds: float = ANSWER_S) -> str:
        return self._ask(urllib.request.Request(self.url + path), seconds)

    def _events(self, path: str, content: dict[str, Any]) -> Iterator[dict[str, Any]]:
        """What a stream of server-sent events tells, one JSON object each, as they come."""
        request = urllib.request.Request(
            self.url + path,
            json.dumps(content).encode(),
            {"Content-Type": "application/json"},
        )
        with self._opened(request, ANSWER_S) as answer:
            for line in answer:
                if (event := read_event(line, request.full_url)) is not None:
                    yield event

    def _ask(self, request: urllib.request.Request, seconds: float) -> str:
        with self._opened(request, seconds) as answer:
            return str(answer.read().decode())

    @contextmanager
    def _opened(self, request: urllib.request.Request, seconds: float) -> Iterator[HTTPResponse]:
        """The answer, while it is read; whatever goes wrong meanwhile is one line."""
        try:
            with self._opener.open(request, timeout=seconds) as answer:
                yield answer
        except urllib.error.HTTPError as error:
            body = error.read().decode(errors="replace")
            raise EngineError(refusal(request.full_url, error.code, body)) from None
        except (OSError, HTTPException, UnicodeError) as error:
            reason = getattr(error, "reason", None) or error
            raise EngineError(unanswered(request.full_url, reason)) from None


def completion(
    name: str, sampling: Mapping[str, float], prompt: str | Sequence[int], tokens: int
) -> dict[str, Any]:
    """What is sent for so many tokens behind a prompt, whose chunks are streamed."""
    asked: dict[str, Any] = {
        "model": name,
        "prompt": prompt if isinstance(prompt, str) else list(prompt),
        "max_tokens": tokens,
        **_NEUTRAL,
        **sampling,
        "ignore_eos": True,
        "stream": True,
        "return_token_ids": True,
        # A prompt of which all but one token is cached counts a round more.
        "cache_salt": uuid.uuid4().hex,
    }
    if isinstance(prompt, str):
        asked["stream_options"] = {"include_usage": True}
    return asked


def read_event(line: bytes, url: str) -> dict[str, Any] | None:
    """What a line of an answer of server-sent events tells; None where that is nothing."""
    field, _, value = line.decode().strip().partition(":")
    if field != "data" or value.strip() == "[DONE]":
        return None
    event = _json(value, url)
    if "error" in event:
        # A stream has begun with 200 before the request is looked at.
        raise EngineError(refusal(url, _code(event["error"]), value))
    return event


def check_tokens(url: str, found: int, tokens: int) -> None:
    """Raises EngineError where an answer does not have as many tokens as were asked for."""
    if not found:
        raise EngineError(f"{url} gives no token ids (return_token_ids); vLLM 0.32 and later do")
    if found != tokens:
        raise EngineError(f"{url} gave {found} tokens where {tokens} were asked for")


def _json(text: str, url: str) -> dict[str, Any]:
    try:
        found = json.loads(text)
    except ValueError:
        found = None
    if not isinstance(found, dict):
        raise EngineError(f"{url} did not answer in JSON")
    return found


def unanswered(url: str, reason: object) -> str:
    """In words, that nobody answers there."""
    return f"{url} cannot be asked ({str(reason) or type(reason).__name__})"


def token_ids(event: Mapping[str, Any]) -> list[int]:
    """Of the one choice of an event; the last event may count tokens and hold none."""
    choices = event.get("choices", ())
    return [token for choice in choices for token in choice.get("token_ids") or ()]


def prompt_tokens(event: Mapping[str, Any]) -> int:
    """How many the prompt has, where an event counts tokens; 0 elsewhere."""
    usage = event.get("usage") or {}
    return int(usage.get("prompt_tokens", 0))


# What servers would else take from the model's generation config.
_NEUTRAL = {
    "top_k": 0,
    "top_p": 1.0,
    "min_p": 0.0,
    "repetition_penalty": 1.0,
    "presence_penalty": 0.0,
    "frequency_penalty": 0.0,
}


def sampling_words(
    sampling: SamplingSetting, seed: int | None = None, number: int = 0
) -> dict[str, float]:
    """A sampling setting as vLLM names it, with the seed of so many requests further."""
    found = {"temperature": sampling.temperature}
    if seed is not None:
        found["seed"] = seed + number
    if sampling.top_k is not None:
        found["top_k"] = sampling.top_k
    if sampling.top_p is not None:
        found["top_p"] = sampling.top_p
    return found


def counter(metrics: str, name: str, where: str) -> float:
    """The sum over all engines of a counter in the text of ``/metrics``."""
    found = [
        float(line.rpartition(" ")[2])
        for line in metrics.splitlines()
        if line.startswith((name + "{", name + " "))
    ]
    if not found:
        raise EngineError(f"{where}/metrics has no counter {name}: is it a vLLM server?")
    return sum(found)


def refusal(url: str, code: object, body: str) -> str:
    """In words, what a server answers instead."""
    said = " ".join(_message(body).split())
    return f"{url} answered {code}: {said[:300]}"


def _code(error: object) -> object:
    """The status that an error in the middle of a stream names."""
    return error.get("code", "error") if isinstance(error, dict) else "error"


def _message(body: str) -> str:
    """What the error of an OpenAI-like server says, or its body."""
    try:
        error = json.loads(body)["error"]
        return str(error["message"] if isinstance(error, dict) else error)
    except (ValueError, KeyError, TypeError):
        return body.strip() or "nothing"


def counted(before: str, after: str, where: str) -> DraftCounts:
    """What was counted of drafts between two scrapes of ``/metrics``."""
    scrapes = [*read_text(before, where, "vllm"), *read_text(after, where, "vllm")]
    (between,) = differenced(scrapes)
    assert between.counts is not None, "a scrape of the counters has counts"
    return between.counts
