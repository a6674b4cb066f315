"""vLLM 0.33.0: the JSON of ``--speculative-config``, with a draft length by batch.

``num_speculative_tokens_per_batch_size`` is a list of [first, last, tokens], both ends included,
the first from 1 on; every number of tokens is at most ``num_speculative_tokens``, and beyond the
last range its number holds on (``vllm/v1/spec_decode/dynamic/utils.py``).  An unknown key is an
error.  A length by context, ``num_speculative_tokens_per_seq_len``, is a proposal (vLLM issue
48627, pull request 54801, both open) that no release up to 0.33.0 knows.
"""

from __future__ import annotations

import json
from typing import Any

from specsim.engines.drafting import Configuration, Drafting, Engine, Method, Order
from specsim.engines.schedule import gamma_at, largest, off_at

_SAMPLED = '"draft_sample_method": "probabilistic"'

_METHODS: dict[Method, Drafting] = {
    "draft_model": Drafting("draft_model", ratio_test=_SAMPLED, by_batch=True),
    "eagle3": Drafting("eagle3", ratio_test=_SAMPLED, by_batch=True),
    "mtp": Drafting("mtp", model="optional", ratio_test=_SAMPLED, by_batch=True),
    "dflash": Drafting("dflash", ratio_test=_SAMPLED, by_batch=True),
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
    lookups = {"prompt_lookup_min": order.lookup_min, "prompt_lookup_max": order.lookup_max}
    bounds = {key: bound for key, bound in lookups.items() if bound is not None}
    if not drafting.by_batch:
        content["num_speculative_tokens"] = gamma_at(schedule, order.batch)
        return Configuration(json.dumps(content | bounds), _suffix_notes(order))
    content["num_speculative_tokens"] = largest(schedule)
    # One length for all batches needs no schedule, and a schedule has a price of its own.
    if len(schedule) > 1:
        content["num_speculative_tokens_per_batch_size"] = schedule
    return Configuration(json.dumps(content | bounds), _notes(order))


def _notes(order: Order) -> tuple[str, ...]:
    schedule = order.schedule
    _, last, gamma = schedule[-1]
    notes = []
    if gamma:
        notes.append(f"above batch {last} vLLM goes on with draft length {gamma}")
    if len(schedule) > 1:
        notes.append(
            f"with data parallelism above 1 vLLM drafts {largest(schedule)} tokens at every batch"
        )
        notes.append(
            "with draft lengths by batch vLLM's V1 model runner uses piecewise CUDA graphs instead "
            "of full ones; VLLM_USE_V2_MODEL_RUNNER=1 keeps full ones"
        )
    if off_at(schedule) and order.drafting.model != "none":
        notes.append(
            "at draft length 0 vLLM still runs the drafter once a step, to keep its cache in step: "
            "that costs more than planned, which is as much as without a drafter"
        )
    return tuple(notes)


def _suffix_notes(order: Order) -> tuple[str, ...]:
    return (
        f"vLLM takes one largest draft length with {order.drafting.word}, here the best at batch "
        f"{order.batch}, and drafts less where the match is short "
        "(suffix_decoding_max_spec_factor); it needs the package arctic-inference",
    )


ENGINE = Engine("vLLM", "vLLM 0.33.0", _METHODS, _write, lookups=("lookup_max", "lookup_min"))
