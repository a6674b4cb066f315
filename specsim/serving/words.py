"""Arrivals, lengths and engines from the words of a command line."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from numbers import Real
from pathlib import Path
from typing import Any

from specsim.checks import InvalidArgumentError, check_choice, did_you_mean, integer, number
from specsim.hardware.accelerators import Accelerator
from specsim.serving.arrivals import (
    Arrivals,
    ConstantArrivals,
    GammaArrivals,
    PoissonArrivals,
    ScheduledArrivals,
)
from specsim.serving.engines.kv_groups import KvGroup
from specsim.serving.engines.settings import ServingEngine
from specsim.serving.lengths import (
    EmpiricalLength,
    FixedLength,
    Lengths,
    LognormalLength,
    UniformLength,
)
from specsim.serving.readers import read_workload

_ARRIVALS = ("poisson", "gamma", "constant", "schedule")


def arrivals_of(words: str, rate: float | None) -> Arrivals:
    """``poisson``, ``gamma:BURSTINESS`` or ``constant`` at a rate, or
    ``schedule:SECONDS=RATE,...``, which has its own.

    >>> arrivals_of("gamma:0.5", 4.0)
    GammaArrivals(rate=4.0, burstiness=0.5)
    >>> arrivals_of("schedule:0=2,600=8", None).rates
    (2.0, 8.0)
    """
    kind, _, rest = words.partition(":")
    check_choice("arrivals", kind, _ARRIVALS)
    if kind == "schedule":
        if rate is not None:
            raise InvalidArgumentError("rate has no meaning beside a schedule, which has its own")
        pairs = [part.partition("=") for part in rest.split(",")]
        if not all(equals for _, equals, _ in pairs):
            raise InvalidArgumentError(
                f"arrivals must be schedule:SECONDS=RATE,..., such as schedule:0=2,600=8, got "
                f"{words!r}"
            )
        return ScheduledArrivals(
            tuple(number("seconds of a schedule", start.strip()) for start, _, _ in pairs),
            tuple(number("rate of a schedule", each.strip()) for _, _, each in pairs),
        )
    if rate is None:
        raise InvalidArgumentError("rate is missing: requests per second")
    if kind == "gamma":
        return GammaArrivals(rate, number("burstiness", rest))
    if rest:
        raise InvalidArgumentError(f"arrivals {kind} takes nothing more, got {words!r}")
    return PoissonArrivals(rate) if kind == "poisson" else ConstantArrivals(rate)


def lengths_of(name: str, words: str | int | Lengths) -> Lengths:
    """A number of tokens, ``uniform:LOW,HIGH``, ``lognormal:MEAN,SIGMA[,HIGH]`` (the mean of the
    tokens, the standard deviation of their logarithm, what longer ones are cut to) or
    ``file:PATH``, the lengths of a workload's prompts or outputs in random order.

    name : prompt or output

    >>> lengths_of("prompt", "lognormal:1155,0.9")
    LognormalLength(mean=1155.0, sigma=0.9, high=100000000)
    """
    if not isinstance(words, (str, int, Real)):
        return words
    kind, colon, rest = str(words).partition(":")
    if not colon:
        return FixedLength(integer(f"{name} tokens", kind, low=1))
    if kind == "file":
        recorded = read_workload(Path(rest))
        seen = recorded.prompt_tokens if name == "prompt" else recorded.output_tokens
        return EmpiricalLength(seen, recorded.file, recorded.sha256)
    values = [each.strip() for each in rest.split(",")]
    if kind == "uniform" and len(values) == 2:
        low, high = (integer(f"{name} {kind}", each, low=1) for each in values)
        return UniformLength(low, high)
    if kind == "lognormal" and len(values) in (2, 3):
        mean, sigma = (number(f"{name} {kind}", each) for each in values[:2])
        more = [integer(f"{name} {kind}", each, low=1) for each in values[2:]]
        return LognormalLength(mean, sigma, *more)
    raise InvalidArgumentError(
        f"{name} must be TOKENS, uniform:LOW,HIGH, lognormal:MEAN,SIGMA[,HIGH] or file:PATH, got "
        f"{words!r}"
    )


# The settings that say which CUDA graphs there are.
_GRAPHS = {
    "vllm": {"cudagraph_capture_sizes", "max_cudagraph_capture_size", "enforce_eager"},
    "sglang": {"cuda_graph_bs_decode", "cuda_graph_max_bs_decode", "disable_decode_cuda_graph"},
}
# Fields that follow from models and cards, and that no argument of the engine's says.
_FOUND = ("kv_groups", "largest_graph")


@dataclass(frozen=True)
class EngineDefaults:
    """What settings that nobody names follow from; None: not known.

    cache_tokens : what the KV cache holds
    kv_groups, group_tokens : of vLLM, where some layers see a window: groups of layers that have
        blocks of their own, and what all blocks hold of one of them
    longest : tokens of prompt and output together that the model takes
    card, tensor_parallel : on which it runs, and on how many of them
    graph_tokens : of the largest CUDA graph, of decodes with ``gamma_max`` drafts each
    """

    cache_tokens: int | None = None
    kv_groups: tuple[KvGroup, ...] = ()
    group_tokens: int | None = None
    longest: int | None = None
    card: Accelerator | None = None
    tensor_parallel: int = 1
    graph_tokens: int | None = None
    gamma_max: int = 0


def engine_of(words: str, defaults: EngineDefaults | None = None) -> ServingEngine:
    """``vllm:max_num_seqs=128,enforce_eager=yes``: an engine, and its own settings.

    defaults : what settings that the words leave out follow from

    A version that is not named is the newest that is known.
    """
    defaults = defaults or EngineDefaults()
    from specsim.serving.engines import sglang, vllm

    # By name: the description, the newest version, and what says how much the cache holds and how
    # long a request may be.
    kinds: dict[str, tuple[Any, str, str, str]] = {
        "vllm": (vllm.VllmEngine, list(vllm.VLLM_VERSIONS)[-1], "num_gpu_blocks", "max_model_len"),
        "sglang": (
            sglang.SglangEngine,
            list(sglang.SGLANG_VERSIONS)[-1],
            "max_total_num_tokens",
            "context_length",
        ),
    }
    name, _, rest = words.partition(":")
    if name not in kinds:
        raise InvalidArgumentError(
            f"engine must be one of {', '.join(kinds)}, got {name!r}{did_you_mean(name, kinds)}"
        )
    kind, newest, room, limit = kinds[name]
    known = {each.name: str(each.type) for each in fields(kind) if each.name not in _FOUND}
    given: dict[str, Any] = {}
    for part in filter(None, (part.strip() for part in rest.split(","))):
        key, equals, value = part.partition("=")
        key = key.strip().replace("-", "_")
        if key not in known or not equals:
            raise InvalidArgumentError(
                f"engine {name} takes NAME=VALUE of {', '.join(known)}, got {part!r}"
                f"{did_you_mean(key, known)}"
            )
        if key in given:
            raise InvalidArgumentError(f"engine {name}: {key} is given twice")
        given[key] = _setting(key, known[key], value.strip())
    given = {"version": newest, limit: defaults.longest, **given}
    if room not in given:
        if defaults.cache_tokens is None:
            raise InvalidArgumentError(
                f"{room} is missing: what the KV cache holds, as the engine's log prints it "
                f"(--engine {name}:{room}=N), unless a deployment tells its memory"
            )
        # Zero and less are refused by the engine itself, with their name.
        block = max(given.get("block_size", kind.block_size), 1) if name == "vllm" else 1
        pooled = defaults.group_tokens if name == "vllm" and defaults.kv_groups else None
        given[room] = (defaults.cache_tokens if pooled is None else pooled) // block
    if defaults.graph_tokens is not None and not _GRAPHS[name] & given.keys():
        if name == "vllm":
            most = min(defaults.graph_tokens, vllm.MOST_GRAPH_TOKENS)
            given["max_cudagraph_capture_size"] = most
        else:
            graphs = defaults.graph_tokens // (1 + defaults.gamma_max)
            given["cuda_graph_max_bs_decode"] = max(graphs, 1)
    given = {**_limits(name, given, defaults), **given}
    if name == "vllm":
        given["kv_groups"] = defaults.kv_groups
    engine: ServingEngine = kind(**given)
    return engine


def _limits(name: str, given: Mapping[str, Any], defaults: EngineDefaults) -> dict[str, int]:
    """Limits of a step that the engine sets by itself, by its card where that is known."""
    from specsim.serving.engines import sglang, vllm

    card = defaults.card
    if name == "sglang":
        if card is None:
            return {}
        found = sglang.limits_on(card, defaults.tensor_parallel)
        # A chunk is of whole pages.
        page = max(given.get("page_size", 1), 1)
        found["chunked_prefill_size"] = max(found["chunked_prefill_size"] // page, 1) * page
        return found
    if given["version"] not in vllm.VLLM_VERSIONS:
        return {}  # the engine itself refuses it
    found = vllm.limits_on(card, given["version"])
    usual = found["max_num_batched_tokens"]
    if not given.get("enable_chunked_prefill", True):
        # The longest prompt has to fit into a step (vllm/engine/arg_utils.py,
        # _set_default_max_num_seqs_and_batched_tokens_args).
        usual = max(usual, given["max_model_len"] or 0)
    budget = given.get("max_num_batched_tokens", usual)
    return {
        "max_num_batched_tokens": usual,
        "max_num_seqs": min(found["max_num_seqs"], budget),
        "largest_graph": vllm.largest_graph_on(card, given["version"]),
    }


def _setting(key: str, kind: str, word: str) -> Any:
    """A value by the type of its field."""
    if kind.startswith("bool"):
        switches = {"yes": True, "true": True, "1": True, "no": False, "false": False, "0": False}
        check_choice(key, word.casefold(), switches)
        return switches[word.casefold()]
    if kind.startswith("tuple"):
        return tuple(integer(key, each, low=1) for each in word.split("/"))
    if kind.startswith("int"):
        # SGLang's -1: prompts are never cut.
        return integer(key, word, low=-1 if key == "chunked_prefill_size" else 0)
    return number(key, word) if kind.startswith("float") else word
