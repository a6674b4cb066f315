"""TensorRT-LLM ahead of 1.4 (commit 000439672): the YAML of ``speculative_config``.

``draft_len_schedule`` maps the largest batch of a range to its draft length, and above the last
nothing is drafted.  Before 2026-03-13 (NVIDIA/TensorRT-LLM pull request 10860) the same keys were
the smallest batches of the ranges.  The first range must have the longest draft,
``max_draft_len``, or the engine does not start (``tensorrt_llm/llmapi/llm_args.py``).  Its names
are ``Literal`` types; ``Draft_Target`` was ``DraftTarget`` as long as ``from_dict`` of
``DecodingBaseConfig`` looked it up.  ``Eagle`` is another word for ``Eagle3``, and Medusa is gone.

A tree has ``max_total_draft_tokens`` besides its root, at least ``max_draft_len`` and at most
``dynamic_tree_max_topK`` times that.
"""

from __future__ import annotations

import json
from dataclasses import replace
from typing import TYPE_CHECKING

from specsim.checks import UnsupportedError
from specsim.engines.drafting import (
    Configuration,
    Drafting,
    Engine,
    Method,
    Order,
    Tree,
    attention_alone,
)
from specsim.engines.schedule import in_words, largest, of_group, off_at

if TYPE_CHECKING:
    from specsim.hardware.parallel import Parallelism

_SAMPLED = "use_rejection_sampling: true"

_METHODS: dict[Method, Drafting] = {
    "draft_model": Drafting("Draft_Target", ratio_test=_SAMPLED, by_batch=True),
    "eagle3": Drafting(
        "Eagle3", ratio_test=_SAMPLED, by_batch=True, tree=Drafting("Eagle3", ratio_test=_SAMPLED)
    ),
    "mtp": Drafting("MTP", model="optional", ratio_test=_SAMPLED, by_batch=True),
    "pard": Drafting("PARD", ratio_test=_SAMPLED, by_batch=True),
    "dflash": Drafting("DFlash", ratio_test=_SAMPLED, by_batch=True),
    # Not in support_dynamic_draft_len (tensorrt_llm/_torch/speculative/interface.py).
    "ngram": Drafting("NGram", model="none"),
    "suffix": Drafting("SA", model="none", by_batch=True),
}


def _write(order: Order) -> Configuration:
    """Lines of a YAML file.

    Raises UnsupportedError where the smallest batches do not draft longest, as with a mixture of
    experts, of which more tokens read more.
    """
    drafting, groups = order.drafting, order.groups
    by_batch = drafting.by_batch
    own = replace(order, schedule=of_group(order.schedule, groups))
    length = largest(own.schedule) if by_batch else order.one_length
    lines = [
        "speculative_config:",
        f"  decoding_type: {drafting.word}",
        f"  max_draft_len: {length}",
    ]
    if order.draft:
        # A JSON string is a YAML string whatever the name holds.
        lines.append(f"  speculative_model: {json.dumps(order.draft)}")
    if order.lookup_max is not None:
        lines.append(f"  max_matching_ngram_size: {order.lookup_max}")
    if drafting.word == "NGram":
        # What other requests wrote is looked up, too, unless told.
        lines.append("  is_public_pool: false")
    if order.tree is not None:
        lines += _tree(order.tree, length)
    lines += _schedule(own) if by_batch else _cutoff(own)
    notes = list(_notes(own if by_batch else order))
    if groups > 1:
        notes.append(f"batches are of each of the {groups} servers")
    return Configuration("\n".join(lines), tuple(notes))


def _tree(tree: Tree, length: int) -> list[str]:
    if not length < tree.slots <= tree.topk * length + 1:
        raise UnsupportedError(
            f"slots must be in [{length + 1}, {tree.topk * length + 1}] with topk {tree.topk} and "
            f"{length} drafts in a row, which are best here, got {tree.slots}"
        )
    return [
        "  use_dynamic_tree: true",
        f"  dynamic_tree_max_topK: {tree.topk}",
        f"  max_total_draft_tokens: {tree.slots - 1}",
    ]


def _schedule(order: Order) -> list[str]:
    schedule = order.schedule
    if schedule[0][2] < largest(schedule):
        raise UnsupportedError(
            "TensorRT-LLM drafts longest at the smallest batches, and the best here would be "
            f"{in_words(schedule)}"
        )
    kept = schedule if schedule[-1][2] else schedule[:-1]
    return ["  draft_len_schedule:", *(f"    {end}: {length}" for _, end, length in kept)]


def _cutoff(order: Order) -> list[str]:
    """The largest batch that drafts, where some do not.

    It becomes a ``draft_len_schedule`` (``tensorrt_llm/llmapi/llm_args.py``), by which each rank
    of attention data parallelism would go by its own batch.
    """
    first, _, gamma = order.schedule[-1]
    return [] if gamma or _by_rank(order) else [f"  max_concurrency: {first - 1}"]


def _by_rank(order: Order) -> bool:
    return order.deployed is not None and attention_alone(order.deployed.parallel)


def _notes(order: Order) -> tuple[str, ...]:
    schedule, word = order.schedule, order.drafting.word
    _, last, gamma = schedule[-1]
    notes = []
    if word == "Draft_Target":
        notes.append(
            "TensorRT-LLM that does not know decoding_type Draft_Target is older and calls it "
            "DraftTarget"
        )
    if word == "PARD":
        notes.append(
            "TensorRT-LLM's target reads 2 K positions of a request with PARD, where K + 1 were "
            "planned"
        )
    if not order.drafting.by_batch:
        drafts = f"a tree of {word}" if order.tree else word
        if _by_rank(order):
            # Each rank would choose by its own batch, and they wait for each other.
            drafts += " under attention data parallelism"
            notes.append("max_batch_size is of each rank under attention data parallelism")
            if not gamma:
                notes.append("nothing switches drafts off by batch there")
        notes.append(
            f"TensorRT-LLM takes one draft length with {drafts}, here the best at batch "
            f"{order.batch}; by batch, in few ranges, they would be {in_words(schedule)}"
        )
        return tuple(notes)
    notes.append(
        "keys of draft_len_schedule are the last batches of their ranges, as TensorRT-LLM reads "
        "them since 2026-03-13; older ones read them as the first"
    )
    if gamma:
        notes.append(f"above batch {last} TensorRT-LLM drafts nothing")
    if off_at(schedule):
        notes.append(
            "where it drafts nothing TensorRT-LLM does not run the drafter, whose cache lacks "
            "these tokens: fewer of a request's later drafts are accepted than planned (pull "
            "request 16888)"
        )
    notes.append(
        "where pull request 16888 is in, which was open when this was read, TensorRT-LLM drafts "
        "one token with some drafters where the schedule says none"
    )
    return tuple(notes)


def _degrees(parallel: Parallelism) -> str:
    """Experts dealt out over groups of requests mean that attention alone is data parallel."""
    shared = attention_alone(parallel)
    cards = parallel.stage_cards if shared else parallel.tensor
    words = {
        f"tensor_parallel_size: {cards}": cards,
        f"pipeline_parallel_size: {parallel.pipeline}": parallel.pipeline,
        f"moe_expert_parallel_size: {parallel.expert}": parallel.expert,
        "enable_attention_dp: true" if shared else f"{parallel.data} servers": parallel.data,
    }
    return ", ".join(word for word, degree in words.items() if degree > 1)


ENGINE = Engine(
    "TensorRT-LLM",
    "TensorRT-LLM ahead of 1.4, commit 000439672",
    _METHODS,
    _write,
    lookups=("lookup_max",),
    degrees=_degrees,
    by_batch=lambda parallel: not attention_alone(parallel),
    most_requests="--max_batch_size",
)
