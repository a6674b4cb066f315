"""``LLM.generate`` of an inference engine, in a process of its own, asked as a server is asked."""

from __future__ import annotations

import json
import subprocess
import threading
from collections.abc import Callable, Sequence
from queue import Empty, Queue
from typing import Any

from calibrate.engine.client import GENERATED, Completed, EngineError, counter, sampling_words
from specsim.profiles import SamplingSetting

_ANSWER_S = 600.0


class GenerateClient:
    """One ``LLM``, held by a ``worker``.

    where : what it is called in messages
    """

    def __init__(self, process: subprocess.Popen[bytes], where: str) -> None:
        self.where = where
        self._process = process
        # An empty line is the end of the process.
        self._answers: Queue[bytes] = Queue()
        self._ready = False
        threading.Thread(target=self._read, daemon=True).start()

    def is_up(self) -> bool:
        """Whether its models are loaded."""
        if not self._ready:
            try:
                self._ready = bool(self._answers.get_nowait())
            except Empty:
                return False
        return self._ready

    def complete(
        self,
        prompts: Sequence[Sequence[int]],
        tokens: Sequence[int],
        sampling: SamplingSetting,
        together: int,
        advance: Callable[[], None] = lambda: None,
        seed: int | None = None,
    ) -> Completed:
        """Decode ``tokens[r]`` tokens behind each prompt, so many prompts a call of ``generate``.

        End-of-text does not end a request.
        """
        texts: list[list[int]] = []
        counters: list[str] = []
        seconds = 0.0
        for start in range(0, len(prompts), together):
            asked = {
                "prompts": [list(prompt) for prompt in prompts[start : start + together]],
                "sampling": [
                    {"max_tokens": count, **sampling_words(sampling, seed, number)}
                    for number, count in enumerate(tokens[start : start + together], start)
                ],
            }
            answer = self._ask(asked)
            texts += answer["texts"]
            counters += [answer["before"], answer["after"]]
            seconds += answer["seconds"]
            for _ in answer["texts"]:
                advance()
        for text, count in zip(texts, tokens, strict=True):
            if len(text) != count:
                raise EngineError(f"{self.where} gave {len(text)} tokens where {count} were asked")
        if not counters:
            return Completed([], "", "", 0.0)
        before, after = counters[0], counters[-1]
        more = counter(after, GENERATED, self.where) - counter(before, GENERATED, self.where)
        if more != sum(tokens):
            raise EngineError(
                f"{self.where} counts {more:g} tokens where {sum(tokens)} were generated"
            )
        return Completed(texts, before, after, seconds)

    def _ask(self, asked: dict[str, Any]) -> dict[str, Any]:
        assert self._process.stdin is not None
        try:
            self._process.stdin.write(json.dumps(asked).encode() + b"\n")
            self._process.stdin.flush()
            line = self._answers.get(timeout=_ANSWER_S)
        except OSError:
            line = b""
        except Empty:
            raise EngineError(f"{self.where}: no answer after {_ANSWER_S:g} s") from None
        if not line:
            raise EngineError(f"{self.where} has ended")
        answer: dict[str, Any] = json.loads(line)
        if "error" in answer:
            raise EngineError(f"{self.where}: {answer['error'][:300]}")
        return answer

    def _read(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            self._answers.put(line)
        self._answers.put(b"")
