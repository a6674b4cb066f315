"""``specsim.workload``: what is asked of a server, from names and plain numbers."""

from __future__ import annotations

from os import PathLike
from pathlib import Path

from specsim.api.models import need_torch
from specsim.checks import InvalidArgumentError, refuse
from specsim.serving.arrivals import Arrivals, ClosedLoop
from specsim.serving.lengths import Lengths
from specsim.serving.readers import read_workload
from specsim.serving.readers.texts import Tokenize
from specsim.serving.words import arrivals_of, lengths_of
from specsim.serving.workload import DrawnWorkload, RecordedWorkload, ServingWorkload


def workload(
    file: str | PathLike[str] | None = None,
    *,
    rate: float | None = None,
    arrivals: str | Arrivals | None = None,
    concurrency: int | None = None,
    prompt: int | str | Lengths | None = None,
    output: int | str | Lengths | None = None,
    requests: int | None = None,
    duration_s: float | None = None,
    scale: float | None = None,
    scale_prompt: float | None = None,
    scale_output: float | None = None,
    window_s: tuple[float, float] | None = None,
    tokenizer: str | None = None,
) -> ServingWorkload:
    """Requests that arrive over time.

    file : whose requests they are: Azure's CSV, Mooncake's and Qwen-Bailian's JSONL,
        LLMServingSim's JSONL, BurstGPT's CSV, a result of ``vllm bench serve --save-detailed``, a
        dataset with token counts, or with a ``tokenizer`` one of texts, such as ShareGPT's
    rate : requests per second; with a file that has times, what these are stretched to
    arrivals : ``poisson`` (the default), ``gamma:BURSTINESS``, ``constant``, or
        ``schedule:SECONDS=RATE,...``; with a file, in place of its times
    concurrency : of a closed loop, in place of rate and arrivals
    prompt, output : tokens: a number, ``uniform:LOW,HIGH``, ``lognormal:MEAN,SIGMA[,HIGH]`` or
        ``file:PATH``; needed without a file
    requests : how many, 1,000 by default; of a file all, or the first
    duration_s : in place of ``requests``, seconds in which they arrive
    scale, scale_prompt, scale_output : factors of a file's rate and lengths
    window_s : (first, last) seconds of a file's clock that are taken
    tokenizer : the model, a folder or a name, whose tokens a file's texts are counted in

    >>> workload(rate=4, prompt="lognormal:1155,0.9", output=211).draw(seed=7).prompt_tokens[:3]
    array([2678, 2041,  168])
    """
    if file is not None:
        refuse(
            {"prompt": prompt, "output": output, "duration_s": duration_s},
            "has no meaning beside a file, which has its own; window_s cuts its times",
        )
        recorded = read_workload(Path(file), None if tokenizer is None else _tokenize(tokenizer))
        process = _arrivals(rate, arrivals, concurrency, recorded.arrival_s is None)
        return RecordedWorkload(
            recorded,
            process,
            rate if process is None else None,
            1.0 if scale is None else scale,
            1.0 if scale_prompt is None else scale_prompt,
            1.0 if scale_output is None else scale_output,
            window_s,
            requests,
        )
    refuse(
        {
            "scale": scale,
            "scale_prompt": scale_prompt,
            "scale_output": scale_output,
            "window_s": window_s,
            "tokenizer": tokenizer,
        },
        "needs a file",
    )
    if prompt is None or output is None:
        missing = "prompt" if prompt is None else "output"
        raise InvalidArgumentError(
            f"{missing} is missing: tokens, such as 512 or lognormal:1155,0.9, or give a file"
        )
    process = _arrivals(rate, arrivals, concurrency, True)
    if process is None:
        raise InvalidArgumentError("rate is missing: requests per second, or concurrency")
    return DrawnWorkload(
        process, lengths_of("prompt", prompt), lengths_of("output", output), requests, duration_s
    )


def _tokenize(model: str) -> Tokenize:
    need_torch()
    from calibrate.models.tokenizer import token_ids

    return token_ids(model)


def _arrivals(
    rate: float | None,
    arrivals: str | Arrivals | None,
    concurrency: int | None,
    needed: bool,
) -> Arrivals | ClosedLoop | None:
    """The process that is meant; None: the file's own times, which exist unless ``needed``."""
    if concurrency is not None:
        refuse({"rate": rate, "arrivals": arrivals}, "has no meaning in a closed loop")
        return ClosedLoop(concurrency)
    if arrivals is None:
        if not needed or rate is None:
            return None
        arrivals = "poisson"
    if isinstance(arrivals, str):
        return arrivals_of(arrivals, rate)
    refuse({"rate": rate}, "has no meaning beside arrivals that have their own")
    return arrivals
