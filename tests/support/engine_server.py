"""A server that answers as vLLM does, with texts known beforehand, and counts step by step."""

from __future__ import annotations

import json
import sys
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

# Seconds for each token of a prompt.
_TOKEN_S = 2e-6


def count_rounds(
    text: Sequence[int], drafts: Mapping[int, Sequence[int]], tokens: int
) -> tuple[int, int, list[int]]:
    """Rounds, drafted tokens and accepted ones by position, step by step as an engine goes.

    text : the whole, longer than the ``tokens`` that are emitted
    drafts : those that are proposed before each position
    """
    rounds = drafted = 0
    accepted = [0] * max(map(len, drafts.values()))
    place = 1  # the prompt's run gave the first token
    while place < tokens:
        proposed = drafts[place]
        rounds += bool(proposed)
        drafted += len(proposed)
        right = 0
        while right < len(proposed) and proposed[right] == text[place + right]:
            accepted[right] += 1
            right += 1
        place += right + 1
    return rounds, drafted, accepted


# What a server takes from the model's generation config where a request does not say it.
SAMPLING = ("temperature", "top_k", "top_p", "min_p", "repetition_penalty")


@dataclass
class EngineState:
    """What the server knows, and what goes wrong with it.

    texts : by prompt, the text behind it, longer than anybody asks for
    drafts : by prompt, what is proposed before each position
    wrong : (status, body) for paths that do not answer as they should
    others : tokens that somebody else generates with every request
    miscounted : rounds that the counters have too many of each request
    step_s : seconds of a round, or of a token without drafts
    seeds, prompts, sampling : of the requests, as they came
    """

    texts: Mapping[tuple[int, ...], Sequence[int]] = field(default_factory=dict)
    drafts: Mapping[tuple[int, ...], Mapping[int, Sequence[int]]] = field(default_factory=dict)
    wrong: Mapping[str, tuple[int, str]] = field(default_factory=dict)
    others: int = 0
    miscounted: int = 0
    gamma: int = 2
    generated: int = 0
    rounds: int = 0
    drafted: int = 0
    accepted: list[int] = field(default_factory=lambda: [0] * 64)
    first_s: float = 0.0
    prefill_s: float = 0.0
    step_s: float = 0.0
    seeds: list[int | None] = field(default_factory=list)
    prompts: list[str | list[int]] = field(default_factory=list)
    sampling: list[dict[str, Any]] = field(default_factory=list)
    lock: Any = field(default_factory=threading.Lock)

    def complete(self, asked: dict[str, Any]) -> list[int]:
        prompt, tokens = token_ids(asked["prompt"]), asked["max_tokens"]
        with self.lock:
            self.prefill_s += _TOKEN_S * len(prompt)
            self.seeds.append(asked.get("seed"))
            self.prompts.append(asked["prompt"])
            self.sampling.append({name: asked.get(name) for name in SAMPLING})
        if tokens == 1:
            time.sleep(_TOKEN_S * len(prompt))
            with self.lock:
                self.generated += 1
            return [0]
        text = self.texts[prompt]
        rounds, drafted, accepted = count_rounds(text, self.drafts[prompt], tokens)
        time.sleep(self.step_s * ((rounds if self.gamma else tokens) - 1))
        with self.lock:
            self.first_s += 1e-5
            self.generated += tokens + self.others
            self.rounds += rounds + self.miscounted
            self.drafted += drafted + self.miscounted * self.gamma
            for index, more in enumerate(accepted):
                self.accepted[index] += more
        return list(text[:tokens])

    def metrics(self) -> str:
        labels = 'engine="0",model_name="m"'
        name = "vllm:spec_decode_num_"
        first = "vllm:time_to_first_token_seconds_sum"
        prefill = "vllm:request_prefill_time_seconds_sum"
        lines = [
            f"vllm:generation_tokens_total{{{labels}}} {float(self.generated)}",
            f"{first}{{{labels}}} {self.first_s}",
            f"{prefill}{{{labels}}} {self.prefill_s}",
        ]
        if not self.gamma:  # vLLM counts nothing of drafts then
            return "\n".join(lines) + "\n"
        lines += [
            f"{name}drafts_total{{{labels}}} {float(self.rounds)}",
            f"{name}draft_tokens_total{{{labels}}} {float(self.drafted)}",
            f"{name}accepted_tokens_total{{{labels}}} {float(sum(self.accepted))}",
        ]
        lines += [
            f'{name}accepted_tokens_per_pos_total{{{labels},position="{i}"}} {float(count)}'
            for i, count in enumerate(self.accepted[: self.gamma])
        ]
        return "\n".join(lines) + "\n"


def token_ids(prompt: str | Sequence[int]) -> tuple[int, ...]:
    """Of a prompt; in a text each word is one token, its number."""
    if isinstance(prompt, str):
        return tuple(int(word) for word in prompt.split())
    return tuple(prompt)


def streamed(tokens: Sequence[int], prompt_tokens: int = 0) -> str:
    """Events of two tokens each, as an answer comes that is streamed, and how many its prompt has
    where that is asked for.
    """
    pieces = [list(tokens[at : at + 2]) for at in range(0, len(tokens), 2)]
    events = [event({"choices": [{"token_ids": each}]}) for each in pieces]
    if prompt_tokens:
        events.append(event({"choices": [], "usage": {"prompt_tokens": prompt_tokens}}))
    return "".join(events) + "data: [DONE]\n"


def event(content: Any) -> str:
    return f"data: {json.dumps(content)}\n\n"


@contextmanager
def serving(state: EngineState, port: int = 0) -> Iterator[str]:
    """The address of a server that runs meanwhile."""
    salts: set[str] = set()

    class Handler(BaseHTTPRequestHandler):
        def answer(self, give: Any) -> None:
            status, body = state.wrong.get(self.path) or (200, give())
            content = body.encode()
            self.send_response(status)
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)

        def do_GET(self) -> None:
            models = json.dumps({"data": [{"id": "m"}]})
            self.answer(state.metrics if self.path == "/metrics" else lambda: models)

        def do_POST(self) -> None:
            asked = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            assert all(asked[name] for name in ("stream", "ignore_eos", "return_token_ids"))
            # No prompt is found in a cache.
            assert asked["cache_salt"] not in salts
            salts.add(asked["cache_salt"])
            counted = asked.get("stream_options", {}).get("include_usage")
            prompt_tokens = len(token_ids(asked["prompt"])) if counted else 0
            self.answer(lambda: streamed(state.complete(asked), prompt_tokens))

        def log_message(self, *words: Any) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", port), Handler)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}"
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def main(words: list[str]) -> None:
    """``vllm serve TARGET --port PORT``; the target says what goes wrong."""
    target, port = words[1], int(words[words.index("--port") + 1])
    print("starting", flush=True)
    if target == "unknown":
        print("ValueError: no such model")
        sys.exit("RuntimeError: Engine core initialization failed. See root cause above.")
    if target == "mute":
        time.sleep(60)
    with serving(EngineState(), port):
        # Its end is the end of the process, as that of an engine that crashes.
        time.sleep(1 if target == "crashing" else 60)


if __name__ == "__main__":
    main(sys.argv[1:])
