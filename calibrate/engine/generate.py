"""``LLM.generate`` of an inference engine, in a process of its own, asked as a server is asked."""

from __future__ import annotations

import subprocess
from collections.abc import Callable, Sequence

from calibrate.engine.answering import AnsweringProcess
from calibrate.engine.client import GENERATED, Completed, EngineError, counter, sampling_words
from specsim.profiles import SamplingSetting

_ANSWER_S = 600.0


class GenerateClient:
    """One ``LLM``, held by a ``worker``.

    where : what it is called in messages
    """

    def __init__(self, process: subprocess.Popen[bytes], where: str) -> None:
        self.where = where
        self._worker = AnsweringProcess(process, where)

    def is_up(self) -> bool:
        """Whether its models are loaded."""
        return self._worker.is_ready()

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
            answer = self._worker.ask(asked, _ANSWER_S)
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
