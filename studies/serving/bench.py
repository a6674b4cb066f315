"""vLLM's own benchmark of a server, ``vllm bench serve``."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from itertools import accumulate
from pathlib import Path
from typing import Any

from calibrate.engine.answering import AnsweringProcess, worker_command
from calibrate.engine.client import EngineClient, EngineError
from calibrate.engine.server import engine_folder, find_program, guarded
from specsim.counts.streams import Stream

# Seconds that it may take; longer than any load of the study.
_LONGEST_S = 600.0
_LOADING_S, _ENDING_S = 300.0, 2.0


@dataclass(frozen=True)
class Bench:
    """One process that does it again and again: it takes ten seconds to load.

    folder : of ``engine_folder``, for results
    """

    worker: AnsweringProcess
    folder: Path

    def serve(
        self, client: EngineClient, dataset: Path, requests: int, rate: str, seed: int
    ) -> dict[str, Any]:
        """What ``--save-detailed`` says of so many requests of a file, with arrivals by Poisson
        that the seed draws.

        rate : requests/s; ``inf``: all at once
        """
        result = self.folder / "result.json"
        words = [
            *("--backend", "openai", "--base-url", client.url),
            *("--endpoint", "/v1/completions", "--model", client.model()),
            *("--dataset-name", "custom", "--dataset-path", str(dataset)),
            *("--custom-output-len", "-1", "--skip-chat-template", "--disable-shuffle"),
            *("--num-prompts", str(requests), "--request-rate", rate, "--seed", str(seed)),
            *("--ignore-eos", "--temperature", "0", "--disable-tqdm"),
            *("--percentile-metrics", "ttft,tpot,itl,e2el"),
            *("--metric-percentiles", "50,90,99", "--save-result", "--save-detailed"),
            *("--result-dir", str(result.parent), "--result-filename", result.name),
        ]
        self.worker.ask({"words": words}, _LONGEST_S)
        found: dict[str, Any] = json.loads(result.read_text())
        result.unlink()
        if found["completed"] != requests:
            raise EngineError(
                f"{client.where} completed {found['completed']} of {requests} requests"
            )
        return found


def streams_of(said: Mapping[str, Any]) -> list[Stream]:
    """When the requests of a result were sent, and when their chunks came; it does not say how many
    tokens a chunk has.
    """
    names = ("input_lens", "start_times", "ttfts", "itls")
    return [
        Stream(prompt, sent_s, tuple(accumulate(itl_s, initial=sent_s + ttft_s)))
        for prompt, sent_s, ttft_s, itl_s in zip(*(said[name] for name in names), strict=True)
    ]


@contextmanager
def bench_started() -> Iterator[Bench]:
    """A ``Bench`` of the engine that is installed, loaded; ended in any case."""
    words = worker_command(find_program(None), "bench")
    with engine_folder() as folder, (folder / "log").open("w+") as log:
        pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": log}
        with guarded(words, folder, **pipes) as process:
            worker = AnsweringProcess(process, "vllm bench serve")
            try:
                worker.wait_until_ready(_LOADING_S)
                yield Bench(worker, folder)
            except EngineError as error:
                # What ends stops answering a little before.
                with suppress(subprocess.TimeoutExpired):
                    process.wait(_ENDING_S)
                if process.poll() is None:
                    raise
                log.seek(0)
                *_, last = ["nothing", *filter(str.strip, log)]
                raise EngineError(f"{error}; its log ends: {last.strip()}") from None
