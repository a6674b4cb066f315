"""``LLM.generate`` in a process of its own, run by a Python whose vLLM is made up."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from queue import Queue
from types import SimpleNamespace
from typing import Any

import pytest

from calibrate.engine.client import GENERATED, Completed, EngineError, counted
from calibrate.engine.generate import GenerateClient
from calibrate.engine.server import Launch, all_started, started
from specsim.profiles import SamplingSetting
from tests.support.engine_program import engine_program

GREEDY = SamplingSetting(0.0)


@pytest.fixture
def program(tmp_path: Path) -> Path:
    return engine_program(tmp_path)


def launch(program: Path, model: str = "m", gamma: int = 2) -> Launch:
    speculative = {"num_speculative_tokens": gamma} if gamma else None
    return Launch(program, model, speculative, "float32", 64, api="generate")


def test_texts_counts_and_seconds_are_of_what_was_asked(program: Path) -> None:
    told = 0

    def advance() -> None:
        nonlocal told
        told += 1

    prompts, tokens = [[5, 6], [9], [3, 4, 5]], [8, 5, 9]
    with all_started([launch(program, gamma=0), launch(program)]) as (plain, drafting):
        alone = plain.complete(prompts, tokens, GREEDY, 2, advance)
        done = drafting.complete(prompts, tokens, SamplingSetting(1.0, 5, 0.9), 3)
        again = drafting.complete(prompts[:1], tokens[:1], GREEDY, 1)
    assert told == 3
    assert done.texts == alone.texts
    assert [len(text) for text in done.texts] == tokens
    assert done.texts[1] == [(9 + 7 * place) % 60 for place in range(5)]
    assert done.seconds > 0
    # The texts go 1 | 2 3 | 4 5 6 | 7 ..., a round for each: the last token is never drafted right.
    assert counted(again.before, again.after, "").rounds == 3
    assert counted(done.before, done.after, "").rounds > 3
    assert again.before == done.after


def test_what_goes_wrong_is_one_line(program: Path) -> None:
    with started(launch(program)) as client:
        with pytest.raises(EngineError, match=r"with draft length 2: token -1 is out of vocab"):
            client.complete([[5, -1]], [4], GREEDY, 1)
        assert client.complete([[5, 1]], [4], GREEDY, 1).texts, "it can be asked again"
    with (
        pytest.raises(EngineError, match=r"ended with exit code 1; .*ValueError: no such model"),
        started(launch(program, "unknown")),
    ):
        pass
    with (
        pytest.raises(EngineError, match=r"LLM.generate with no drafts has ended; .* exit code 3"),
        started(launch(program, "crashing", gamma=0)) as client,
    ):
        client.complete([[5, 1]], [4], GREEDY, 1)


def test_a_program_without_a_python_beside_it_is_refused(program: Path) -> None:
    (program.parent / "python").unlink()
    with pytest.raises(EngineError, match="no python beside it"), started(launch(program)):
        pass


@dataclass
class Worker:
    """Input and output of a process whose texts are sevens.

    lacking : tokens that each text has too few
    others : tokens that are counted too many at each call
    asked : what it was asked, call by call
    """

    lacking: int = 0
    others: int = 0
    asked: list[dict[str, Any]] = field(default_factory=list)
    answers: Queue[bytes] = field(default_factory=Queue)
    generated: int = 0

    def write(self, line: bytes) -> None:
        asked = json.loads(line)
        self.asked.append(asked)
        tokens = [each["max_tokens"] for each in asked["sampling"]]
        before, self.generated = self.generated, self.generated + sum(tokens) + self.others
        answer = {
            "texts": [[7] * (count - self.lacking) for count in tokens],
            "before": f"{GENERATED} {before}",
            "after": f"{GENERATED} {self.generated}",
            "seconds": 0.5,
        }
        self.answers.put(json.dumps(answer).encode())

    def flush(self) -> None:
        pass

    def __iter__(self) -> Iterator[bytes]:
        return iter(self.answers.get, b"")


@contextmanager
def asking(worker: Worker) -> Iterator[GenerateClient]:
    process: Any = SimpleNamespace(stdin=worker, stdout=worker)
    yield GenerateClient(process, "the worker")
    worker.answers.put(b"")


def test_every_call_has_the_next_prompts_and_seeds() -> None:
    worker = Worker()
    sampling = SamplingSetting(1.0, 5)
    with asking(worker) as client:
        done = client.complete([[5, 6], [9], [3, 4, 5]], [8, 5, 9], sampling, 2, seed=7)
        client.complete([[5, 6]], [8], sampling, 2)
        nothing = client.complete([], [], sampling, 2)
    assert [len(text) for text in done.texts] == [8, 5, 9]
    assert (done.before, done.after) == (f"{GENERATED} 0", f"{GENERATED} 22")
    assert done.seconds == 2 * 0.5
    assert nothing == Completed([], "", "", 0.0)
    first, second, unseeded = worker.asked
    how = {"temperature": 1.0, "top_k": 5}
    assert first["prompts"] == [[5, 6], [9]]
    assert first["sampling"] == [
        {"max_tokens": 8, "seed": 7} | how,
        {"max_tokens": 5, "seed": 8} | how,
    ]
    assert second["prompts"] == [[3, 4, 5]]
    assert second["sampling"] == [{"max_tokens": 9, "seed": 9} | how]
    assert unseeded["sampling"] == [{"max_tokens": 8} | how]


@pytest.mark.parametrize(
    ("worker", "message"),
    [
        (Worker(lacking=1), "the worker gave 7 tokens where 8 were asked"),
        (Worker(others=3), "the worker counts 28 tokens where 22 were generated"),
    ],
)
def test_texts_and_counters_have_the_tokens_that_were_asked_for(
    worker: Worker, message: str
) -> None:
    with asking(worker) as client, pytest.raises(EngineError, match=message):
        client.complete([[5, 6], [9], [3, 4, 5]], [8, 5, 9], GREEDY, 2)
