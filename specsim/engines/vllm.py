"""vLLM 0.33.0: the JSON of ``--speculative-config``, with a draft length by batch.

``num_speculative_tokens_per_batch_size`` is a list of [first, last, tokens], both ends included,
the first from 1 on; every number of tokens is at most ``num_speculative_tokens``, and beyond the
last range its number holds on (``vllm/v1/spec_decode/dynamic/utils.py``).  An unknown key is an
error.  ``parallel_drafting`` makes EAGLE-3 heads P-EAGLE's and a draft model PARD's (vLLM pull
request 32887).  ``draft_tensor_parallel_size`` is not written: heads are spread as the target is
whatever it says (``_create_draft_vllm_config`` of ``vllm/v1/spec_decode/llm_base_proposer.py``),
and so are draft models, or they are refused (``vllm/v1/spec_decode/draft_model.py``).  More tokens
than a target has modules for multi-token prediction must be a multiple of these
(``vllm/config/speculative.py``).  A CUDA graph has ``max_cudagraph_capture_size`` tokens at most
(``vllm/config/compilation.py``), by default 2 max_num_seqs (1 + K), and 512 at most, or 1,024 on
some cards (``vllm/config/vllm.py``, ``_set_cudagraph_sizes``).

A length by context, ``num_speculative_tokens_per_seq_len``, is a proposal (vLLM issue 48627, pull
request 54801, both open) that no release up to 0.33.0 knows.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from specsim.checks import UnsupportedError
from specsim.engines.drafting import (
    Configuration,
    Drafting,
    Engine,
    Method,
    Order,
    in_step_notes,
)
from specsim.engines.schedule import Schedule, in_words, largest

if TYPE_CHECKING:
    from specsim.hardware.parallel import Parallelism

_SAMPLED = '"draft_sample_method": "probabilistic"'
_PARALLEL = {"parallel_drafting": True}
# Tokens of the largest CUDA graph that it captures unasked, and that on cards of compute capability
# 10.x (0.32.0 and later).
LARGEST_CAPTURE, LARGEST_ON_BLACKWELL = 512, 1024
_BLACKWELL = ("b200", "gb200", "b300", "gb300")
# What the V1 model runner does of what the V2 one does not.
_INSTEAD = {"draft_model": "has them", "ngram": "verifies what was found"}


def largest_capture(card: str) -> int:
    """Of a card by its name."""
    return LARGEST_ON_BLACKWELL if card.casefold() in _BLACKWELL else LARGEST_CAPTURE


def _neural(word: str, **more: Any) -> Drafting:
    """A drafter that is a model: it runs at draft length 0 too."""
    return Drafting(word, ratio_test=_SAMPLED, by_batch=True, in_step=True, **more)


_METHODS: dict[Method, Drafting] = {
    "draft_model": _neural("draft_model"),
    "eagle": _neural("eagle"),
    "eagle3": _neural("eagle3"),
    "mtp": _neural("mtp", model="optional"),
    # They run on the V1 model runner alone, which drafts the largest length at every batch and
    # takes it for that of the batch (vllm/v1/spec_decode/llm_base_proposer.py,
    # extra_slots_per_request; vLLM pull request 45695, open when this was read).
    "p_eagle": Drafting("eagle3", ratio_test=_SAMPLED, settings=_PARALLEL),
    "pard": Drafting("draft_model", ratio_test=_SAMPLED, settings=_PARALLEL),
    "dflash": _neural("dflash"),
    # The V1 model runner alone has it, with one length (vllm/v1/spec_decode/medusa.py).
    "medusa": Drafting("medusa"),
    "ngram": Drafting("ngram", model="none", by_batch=True),
    # The V2 model runner has no suffix decoding, and the V1 one no lengths by batch with it
    # (vllm/config/vllm.py, _maybe_disable_dynamic_sd_for_v1).
    "suffix": Drafting("suffix", model="none"),
}


def _write(order: Order) -> Configuration:
    """``vllm serve TARGET --speculative-config "$(specsim export vllm ...)"``."""
    schedule, drafting = order.schedule, order.drafting
    content: dict[str, Any] = {"method": drafting.word}
    if order.draft:
        content["model"] = order.draft
    content |= drafting.settings
    bounds = {}
    if given := [each for each in (order.lookup_min, order.lookup_max) if each is not None]:
        # A bound that is not given is the other one.
        bounds = {"prompt_lookup_min": given[0], "prompt_lookup_max": given[-1]}
    if not drafting.by_batch:
        content["num_speculative_tokens"] = order.one_length
        _check_modules(order, order.one_length)
        return Configuration(json.dumps(content | bounds), _one_length_notes(order))
    content["num_speculative_tokens"] = largest(schedule)
    _check_modules(order, largest(schedule))
    # One length for all batches needs no schedule, and a schedule has a price of its own.
    if len(schedule) > 1:
        content["num_speculative_tokens_per_batch_size"] = schedule
    return Configuration(json.dumps(content | bounds), _notes(order))


def _check_modules(order: Order, length: int) -> None:
    modules = order.modules
    if order.drafting.word == "mtp" and length > modules and length % modules:
        raise UnsupportedError(
            f"vLLM drafts a multiple of {modules} tokens with {modules} modules for multi-token "
            f"prediction, or fewer than these, and the best here would be {length}: plan with "
            f"gamma_max {length - length % modules}"
        )


def _notes(order: Order) -> tuple[str, ...]:
    schedule = order.schedule
    _, last, gamma = schedule[-1]
    notes = []
    if gamma:
        notes.append(f"above batch {last} vLLM goes on with draft length {gamma}")
    if len(schedule) > 1 and order.deployed is None:
        notes.append(
            f"with data parallelism above 1 vLLM drafts {largest(schedule)} tokens at every batch"
        )
    return (
        *notes,
        *runner_doubts(order.drafting.word, schedule, order.modules),
        *in_step_notes("vLLM", order),
        *_expert_notes(order),
        *_graph_notes(order, schedule),
    )


def runner_doubts(word: str, schedule: Schedule, modules: int = 1) -> list[str]:
    """What vLLM's V2 model runner does otherwise than it is planned.

    ``vllm/config/vllm.py`` (``_get_v2_model_runner_unsupported_features``,
    ``_maybe_override_dynamic_sd_cudagraph_mode``) and the ``propose`` of each speculator in
    ``vllm/v1/worker/gpu/spec_decode`` of vLLM 0.32.0.

    word : the method, as vLLM calls it
    modules : for multi-token prediction
    """
    by_batch = len({gamma for *_, gamma in schedule}) > 1
    always = f"drafts {largest(schedule)} tokens at every batch"
    planned = "of which it verifies the planned ones"
    eager = "has no CUDA graphs for a draft model"
    unfound = "verifies all places of a request with ngram, whether anything was found or not"
    found = {
        ("draft_model", True): f"{eager} and {always}, {planned}",
        ("draft_model", False): eager,
        ("dflash", True): f"{always} with dflash, {planned}",
        ("ngram", by_batch): unfound,
    }.get((word, by_batch))
    if word == "mtp" and modules > 1 and by_batch:
        found = f"{always} with {modules} modules for multi-token prediction, {planned}"
    if found is None:
        return []
    instead = [_INSTEAD.get(word, "")]
    if by_batch:
        instead.append("drafts by the schedule, with piecewise CUDA graphs instead of full ones")
    priced = "; eager_us of draft_model prices runs without" if word == "draft_model" else ""
    return [
        f"vLLM's V2 model runner, its default on GPUs, {found}: VLLM_USE_V2_MODEL_RUNNER=0 "
        f"{' and '.join(filter(None, instead))}{priced}"
    ]


def _one_length_notes(order: Order) -> tuple[str, ...]:
    if order.drafting.word == "suffix":
        note = (
            f"vLLM takes one largest draft length with suffix, here the best at batch "
            f"{order.batch}, and drafts less where the match is short "
            "(suffix_decoding_max_spec_factor); it needs the package arctic-inference"
        )
    else:
        where = "data parallelism"
        if order.drafting.word == "medusa":
            where = "Medusa, which its V1 model runner alone has"
        if order.drafting.settings:
            where = (
                "parallel drafts, which its V1 model runner alone has, and there lengths by batch "
                "give requests each other's drafts (pull request 45695)"
            )
        note = (
            f"vLLM takes one draft length with {where}, here the best at batch "
            f"{order.batch}; by batch, in few ranges, they would be {in_words(order.schedule)}"
        )
    every: Schedule = [(1, order.schedule[-1][1], order.one_length)]
    # Parallel drafts run where there is no doubt.
    runner = [] if order.drafting.settings else runner_doubts(order.drafting.word, every)
    return (note, *runner, *_expert_notes(order), *_graph_notes(order, every))


def _expert_notes(order: Order) -> list[str]:
    if order.deployed is None:
        return []
    parallel = order.deployed.parallel
    if parallel.expert in (1, parallel.stage_cards):
        return []
    return [
        f"vLLM deals experts out to all {parallel.stage_cards} cards of a stage; planned for "
        f"{parallel.expert}"
    ]


def _graph_notes(order: Order, schedule: Schedule) -> list[str]:
    """From which batch on a round has more tokens than a CUDA graph."""
    if order.deployed is None:
        return []
    priced, groups = order.deployed.graph_tokens, order.deployed.parallel.data
    limit = largest_capture(order.deployed.card) if priced is None else priced
    # A graph is of the requests of one group.
    tokens = [-(-last // groups) * (gamma + 1) for _, last, gamma in schedule]
    wide = [
        max(first, limit // (gamma + 1) * groups + 1)
        for (first, _, gamma), widest in zip(schedule, tokens, strict=True)
        if widest > limit
    ]
    if not wide:
        return []
    widest = max(tokens)
    raised = f"--compilation-config '{json.dumps({'max_cudagraph_capture_size': widest})}'"
    if priced is not None:
        return [
            f"from batch {wide[0]} on a round has more tokens than the largest CUDA graph, "
            f"{limit:,}, and is planned without one; {raised} raises that (then plan with "
            f"--graph-tokens {widest})"
        ]
    return [
        f"planned as if every round had a CUDA graph; vLLM's largest has {limit} tokens unless "
        f"told {raised}, and a round has more from batch {wide[0]} on (or plan with "
        f"--graph-tokens {limit} and --eager-layer-us)"
    ]


def _degrees(parallel: Parallelism) -> str:
    words = {
        f"--tensor-parallel-size {parallel.tensor}": parallel.tensor,
        f"--pipeline-parallel-size {parallel.pipeline}": parallel.pipeline,
        f"--data-parallel-size {parallel.data}": parallel.data,
        "--enable-expert-parallel": parallel.expert,
    }
    return " ".join(word for word, degree in words.items() if degree > 1)


ENGINE = Engine(
    "vLLM",
    "vLLM 0.33.0",
    _METHODS,
    _write,
    lookups=("lookup_max", "lookup_min"),
    degrees=_degrees,
    by_batch=lambda parallel: parallel.data == 1,
    most_requests="--max-num-seqs",
)
