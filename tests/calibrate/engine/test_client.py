"""Asking a server over HTTP, and the one line that comes of everything that goes wrong."""

from __future__ import annotations

import asyncio
import json
import socket
from typing import Any

import pytest

from calibrate.engine.client import EngineClient, EngineError, completion, counted
from calibrate.engine.load_client import stream, stream_all
from specsim.counts.streams import Stream
from specsim.profiles import SamplingSetting
from tests.support.engine_server import EngineState, event, serving, streamed

PROMPTS = [(5, 6), (7, 8)]
GREEDY = SamplingSetting(0.0)


def state(**changes: Any) -> EngineState:
    """Two texts of sevens, one of whose drafts is right and the other wrong."""
    texts = {prompt: [7] * 12 for prompt in PROMPTS}
    drafts = {
        prompt: {place: [word] * 2 for place in range(12)}
        for prompt, word in zip(PROMPTS, (7, 8), strict=True)
    }
    return EngineState(texts, drafts, **changes)


def test_texts_and_counters_of_these_requests_alone() -> None:
    with serving(state()) as url:
        client = EngineClient(url + "/")
        assert client.is_up()
        client.complete(PROMPTS[:1], [10], GREEDY, 1)
        done = client.complete(PROMPTS, [10, 4], GREEDY, 2)
    assert done.texts == [[7] * 10, [7] * 4]
    counts = counted(done.before, done.after, url)
    # Tokens 2..10 by threes, and tokens 2..4 one by one.
    assert (counts.rounds, counts.drafted, counts.reached) == (6, 12, (3, 3))
    assert counts.gamma == 2


class Late(EngineState):
    """Its counters tell of an answer only when they are read for the third time behind it."""

    def complete(self, asked: dict[str, Any]) -> list[int]:
        self.old = 2 * [super().metrics()]
        return super().complete(asked)

    def metrics(self) -> str:
        return self.old.pop() if getattr(self, "old", []) else super().metrics()


def test_counters_are_read_until_they_hold_all_tokens(monkeypatch: pytest.MonkeyPatch) -> None:
    """Before that those of the last request are not in them."""
    late = Late(**vars(state()))
    with serving(late) as url:
        client = EngineClient(url)
        done = client.complete(PROMPTS, [10, 4], GREEDY, 1)
        assert late.old == []
        counts = counted(done.before, done.after, url)
        assert (counts.rounds, counts.drafted, counts.reached) == (6, 12, (3, 3))
        monkeypatch.setattr("calibrate.engine.client._COUNTED_S", 0.0)
        with pytest.raises(EngineError, match="metrics counts 10 tokens where 14 were generated"):
            client.complete(PROMPTS, [10, 4], GREEDY, 1)


def test_requests_have_seeds_of_their_own_where_one_is_given() -> None:
    server = state()
    with serving(server) as url:
        EngineClient(url).complete(PROMPTS, [4, 4], SamplingSetting(1.0), 1, seed=7)
        EngineClient(url).complete(PROMPTS[:1], [4], SamplingSetting(1.0), 1)
    assert server.seeds == [7, 8, None]


def test_nothing_is_left_to_the_generation_config_of_a_model() -> None:
    """Else a penalty of it would write another text than the profile's, at temperature 0 too."""
    server = state()
    with serving(server) as url:
        for sampling in (GREEDY, SamplingSetting(0.7, top_k=5, top_p=0.9)):
            EngineClient(url).complete(PROMPTS[:1], [4], sampling, 1)
    neutral = {"top_k": 0, "top_p": 1.0, "min_p": 0.0, "repetition_penalty": 1.0}
    assert server.sampling == [
        neutral | {"temperature": 0.0},
        neutral | {"temperature": 0.7, "top_k": 5, "top_p": 0.9},
    ]


def test_streams_tell_when_chunks_came_and_of_how_many_tokens() -> None:
    """Prompts go as text, whose tokens the server counts."""
    server = state()
    with serving(server) as url:
        client = EngineClient(url)
        one, other = stream(client, ["5 6", "7  8 "], [10, 3], GREEDY, 2, [0.0, 0.01])
        client.complete(PROMPTS[:1], [4], GREEDY, 1)
    assert sorted(map(str, server.prompts[:2])) == ["5 6", "7  8 "]
    assert server.prompts[2] == [5, 6]
    assert (one.prompt_tokens, one.chunk_tokens) == (2, (2,) * 5)
    assert (other.prompt_tokens, other.chunk_tokens) == (2, (2, 1))
    for each in (one, other):
        assert each.sent_s <= each.chunk_s[0]
        assert list(each.chunk_s) == sorted(each.chunk_s)


def test_streams_are_read_beside_a_loop_that_runs_already() -> None:
    """As a notebook has one."""

    async def asks(client: EngineClient) -> list[Stream]:
        return stream(client, ["5 6"], [10], GREEDY, 1, [0.0])

    with serving(state()) as url:
        (found,) = asyncio.run(asks(EngineClient(url)))
    assert found.chunk_tokens == (2,) * 5


def test_a_server_that_does_not_count_the_tokens_of_a_text_is_refused() -> None:
    wrong = {"/v1/completions": (200, streamed([7] * 4))}
    with (
        serving(state(wrong=wrong)) as url,
        pytest.raises(EngineError, match="does not tell how many tokens a prompt has"),
    ):
        stream(EngineClient(url), ["5 6"], [4], GREEDY, 1, [0.0])


@pytest.mark.parametrize(
    ("status", "body", "words"),
    [
        (500, "", "completions answered 500: nothing"),
        (200, "data: <html>\n\n", "did not answer in JSON"),
        (200, "<html>", "gives no token ids"),
        (200, 'data: {"error": {"message": "too\\nlong", "code": 400}}\n\n', "400: too long"),
        (200, 'data: {"choices": [{"token_ids": [7]}]}\n\n', "gave 1 tokens where 4 were asked"),
    ],
)
def test_a_stream_that_goes_wrong_is_told_in_one_line(status: int, body: str, words: str) -> None:
    wrong = {"/v1/completions": (status, body)}
    with (
        serving(state(wrong=wrong)) as url,
        pytest.raises(EngineError, match=words) as refusal,
    ):
        stream(EngineClient(url), ["5 6", "7 8"], [4, 4], GREEDY, 2, [0.0, 0.0])
    assert "\n" not in str(refusal.value)


def test_a_server_that_is_gone_is_told_in_one_line() -> None:
    with serving(state()) as url:
        asked = completion("m", {"temperature": 0.0}, "5 6", 4)
    with pytest.raises(EngineError, match=f"{url} cannot be asked") as refusal:
        stream_all(url, [asked], 1, [0.0])
    assert "\n" not in str(refusal.value)


def test_servers_are_loaded_without_the_proxy_of_the_rest_of_the_world(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for name in ("http_proxy", "HTTP_PROXY"):
        monkeypatch.setenv(name, "http://127.0.0.1:9")
    for name in ("no_proxy", "NO_PROXY"):
        monkeypatch.delenv(name, raising=False)
    with serving(state()) as url:
        (found,) = stream(EngineClient(url), ["5 6"], [4], GREEDY, 1, [0.0])
    assert found.chunk_tokens == (2, 2)


def refused(words: str, **changes: Any) -> None:
    with serving(state(**changes)) as url, pytest.raises(EngineError, match=words) as refusal:
        EngineClient(url).complete(PROMPTS, [4, 4], GREEDY, 2)
    assert "\n" not in str(refusal.value)


def error(message: str, code: int | None = None) -> str:
    named = {} if code is None else {"code": code}
    return json.dumps({"error": {"message": message, **named}})


@pytest.mark.parametrize(
    ("path", "status", "body", "words"),
    [
        ("/v1/completions", 500, "", "completions answered 500: nothing"),
        ("/v1/completions", 400, error("Token id 9\nis out of vocabulary"), "400: Token id 9 is"),
        ("/v1/completions", 404, '{"error": "gone"}', "answered 404: gone"),
        ("/v1/completions", 200, "<html>", "gives no token ids"),
        ("/v1/completions", 200, "data: <html>", "did not answer in JSON"),
        ("/v1/completions", 200, "data: [1]", "did not answer in JSON"),
        ("/v1/completions", 200, event({"choices": []}), "gives no token ids"),
        ("/v1/completions", 200, event({"choices": [{"token_ids": None}]}), "gives no token ids"),
        ("/v1/completions", 200, streamed([1]), "1 tokens where 4"),
        ("/v1/completions", 200, "data: " + error("died"), "completions answered error: died"),
        ("/v1/completions", 200, "data: " + error("not a\nid", 400), "answered 400: not a id"),
        ("/v1/models", 200, '{"data": []}', "names no model"),
        ("/v1/models", 200, "[]", "/v1/models did not answer in JSON"),
        ("/metrics", 404, "", "/metrics answered 404"),
        ("/metrics", 200, "# nothing", "has no counter vllm:generation_tokens_total"),
    ],
)
def test_wrong_answers_are_one_line(path: str, status: int, body: str, words: str) -> None:
    refused(words, wrong={path: (status, body)})


def test_others_on_the_server_are_noticed() -> None:
    refused("generated 14 tokens where 8 were asked for: others use it", others=3)


def test_counters_without_drafts_are_one_line() -> None:
    plain = 'vllm:generation_tokens_total{engine="0"} 1.0\n'
    with pytest.raises(ValueError, match=r"number of vllm|nothing was recognised"):
        counted(plain, plain, "http://host")


def test_nobody_there() -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{free.getsockname()[1]}"
    client = EngineClient(url)
    assert not client.is_up()
    with pytest.raises(EngineError, match=r"/v1/models cannot be asked \(.*refused\)"):
        client.model()


def test_an_address_is_one() -> None:
    with pytest.raises(EngineError, match="url must be http://HOST:PORT, got localhost"):
        EngineClient("localhost:8000")
