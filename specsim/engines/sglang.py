"""SGLang 0.5.23: flags for one draft length, and a file for lengths by batch.

With ``--speculative-eagle-topk 1`` the target reads ``--speculative-num-draft-tokens`` = steps + 1.
The file of ``--speculative-adaptive-config`` maps the smallest batch of a range to the numbers of
steps that the engine may choose from; one number leaves it no choice, and
``--speculative-num-steps`` must be among all of them.  It is for EAGLE and EAGLE3: with another
algorithm SGLang warns and keeps the flags (``srt/speculative/adaptive_spec_params.py``).  Without
``--max-running-requests`` it is set to 48 (``srt/arg_groups/speculative_hook.py``).

With topk above 1 a run drafts topk tokens from each of topk nodes, the best
``--speculative-num-draft-tokens`` of the tree are verified, its root among them, and the file has
no effect.
"""

from __future__ import annotations

import json
import shlex
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from specsim.checks import UnsupportedError
from specsim.engines.drafting import (
    Configuration,
    Drafting,
    Engine,
    Method,
    Order,
    Tree,
    attention_alone,
    in_step_notes,
)
from specsim.engines.schedule import in_words, largest, of_group

if TYPE_CHECKING:
    from specsim.hardware.parallel import Parallelism

_SAMPLED = "--speculative-use-rejection-sampling"
_ADAPTIVE = "adaptive.json"
# What drafts over pipeline stages (``check_pipeline_parallel_compat`` of srt/arg_groups).
_OVER_STAGES = ("EAGLE", "NEXTN")
# What does not draft where attention alone is data parallel
# (``srt/arg_groups/speculative_hook.py``; pull request 28616, which was open when this was read,
# lets ngram).
_NOT_IN_GROUPS = ("STANDALONE", "DFLASH", "NGRAM")
# The default of --speculative-ngram-max-trie-depth: a match and its drafts are no longer together.
_TRIE_DEPTH = 18


def _heads(word: str, ratio_test: str = _SAMPLED, **more: Any) -> Drafting:
    """With 0 steps the draft still extends its cache (``speculative/eagle_worker_v2.py``)."""
    tree = Drafting(word, **more)
    return replace(tree, ratio_test=ratio_test, by_batch=True, in_step=True, tree=tree)


_METHODS: dict[Method, Drafting] = {
    # SGLang refuses rejection sampling with STANDALONE.
    "draft_model": Drafting("STANDALONE"),
    "eagle": _heads("EAGLE"),
    # Nor with a head that has a vocabulary of its own (``speculative/eagle_worker_v2.py``), as
    # those of EAGLE-3 mostly have.
    "eagle3": _heads("EAGLE3", ratio_test=""),
    "mtp": _heads("NEXTN", model="optional"),
    "dflash": Drafting("DFLASH"),
    "ngram": Drafting("NGRAM", model="none"),
}


def _write(order: Order) -> Configuration:
    """A line of flags, and for lengths by batch a second one, the file."""
    word, groups = order.drafting.word, order.groups
    stages = 1 if order.deployed is None else order.deployed.parallel.pipeline
    if stages > 1 and word not in _OVER_STAGES:
        alone = " and ".join(_OVER_STAGES)
        raise UnsupportedError(f"SGLang drafts over pipeline stages with {alone} alone, got {word}")
    if word in _NOT_IN_GROUPS and order.deployed and attention_alone(order.deployed.parallel):
        raise UnsupportedError(
            f"SGLang has no {word} under attention data parallelism: share experts out over no "
            "more cards than a group has"
        )
    schedule = of_group(order.schedule, groups)
    adaptive = order.drafting.by_batch and len(schedule) > 1
    steps = order.one_length
    if order.drafting.by_batch:
        steps = largest(schedule)
    flags = ["--speculative-algorithm", word]
    if order.draft:
        flags += ["--speculative-draft-model-path", order.draft]
    tree = order.tree or Tree(1, steps + 1)
    if word not in ("NGRAM", "DFLASH"):
        _check_tree(tree, steps)
        flags += ["--speculative-num-steps", str(steps)]
        flags += ["--speculative-eagle-topk", str(tree.topk)]
    flags += ["--speculative-num-draft-tokens", str(tree.slots)]
    if word == "NGRAM":
        # Wider, SGLang drafts a tree of so many tokens and not a chain.
        flags += ["--speculative-ngram-max-bfs-breadth", "1"]
        if steps >= _TRIE_DEPTH:
            flags += ["--speculative-ngram-max-trie-depth", str(steps + 1)]
    flags += ["--max-running-requests", str(schedule[-1][1])]
    notes = ["without --max-running-requests SGLang runs 48 requests at most when it speculates"]
    if groups > 1:
        notes.append(
            f"--max-running-requests and batches are of each of the {groups} groups of cards"
        )
    if not adaptive:
        if len(schedule) > 1:
            notes.append(
                f"SGLang takes one draft length with {_named(order)}, here the best at batch "
                f"{order.batch}; by batch, in few ranges, they would be {in_words(order.schedule)}"
            )
        notes += [*_stage_notes(order), *_own_notes(order)]
        return Configuration(shlex.join(flags), tuple(notes))
    flags += ["--speculative-adaptive", "--speculative-adaptive-config", _ADAPTIVE]
    file = {str(first): {"candidate_steps": [gamma]} for first, _, gamma in schedule}
    notes += [
        f"the first line is flags, the second is to be kept as {_ADAPTIVE}",
        "SGLang pads a batch to the next CUDA-graph size before it looks up its draft length",
        f"under attention data parallelism, two-batch overlap or multi-layer EAGLE SGLang drafts "
        f"{steps} tokens at every batch",
        *in_step_notes("SGLang", order),
    ]
    return Configuration(f"{shlex.join(flags)}\n{json.dumps(file)}", (*notes, *_own_notes(order)))


def _stage_notes(order: Order) -> list[str]:
    if order.deployed is None or order.deployed.parallel.pipeline == 1:
        return []
    return [
        "with pipeline stages SGLang drafts only if SGLANG_ENABLE_PP_SPEC=1 and "
        "--disable-overlap-schedule are given"
    ]


def _check_tree(tree: Tree, steps: int) -> None:
    nodes = tree.topk + (steps - 1) * tree.topk**2
    if not steps < tree.slots <= nodes + 1:
        raise UnsupportedError(
            f"slots must be in [{steps + 1}, {nodes + 1}] with topk {tree.topk} and {steps} steps, "
            f"which are best here, got {tree.slots}"
        )


def _named(order: Order) -> str:
    word = order.drafting.word
    if order.tree:
        return f"a tree of {word}"
    if order.deployed is not None and attention_alone(order.deployed.parallel):
        return f"{word} under attention data parallelism"
    return f"{word} over pipeline stages" if _stage_notes(order) else word


def _own_notes(order: Order) -> list[str]:
    """What is to be known of one method only."""
    word = order.drafting.word
    if word == "NEXTN" and not order.draft:
        return [
            "SGLang finds the layers of NEXTN in the target's checkpoint for the architectures "
            "that it lists; for others name a checkpoint with --model"
        ]
    if word == "DFLASH":
        return [
            "--speculative-num-draft-tokens is DFLASH's block, the drafts and one more; drafters "
            "with a sampling head (DFlash2, LiLiCorr) sample above temperature 0"
        ]
    if word == "NGRAM":
        return [
            "SGLang's NGRAM looks up what requests have written, all of them together, and not "
            "their prompts, so that another share of drafts is accepted; and every request "
            "verifies all places, whether it has drafts or not"
        ]
    return []


def _degrees(parallel: Parallelism) -> str:
    shared = attention_alone(parallel)
    words = {
        f"--tp-size {parallel.tensor * (parallel.data if shared else 1)}": parallel.stage_cards
        if shared
        else parallel.tensor,
        f"--pp-size {parallel.pipeline}": parallel.pipeline,
        f"--{'attn-dp-size' if shared else 'dp-size'} {parallel.data}": parallel.data,
        f"--ep-size {parallel.expert}": parallel.expert,
    }
    return " ".join(word for word, degree in words.items() if degree > 1)


ENGINE = Engine(
    "SGLang",
    "SGLang 0.5.23",
    _METHODS,
    _write,
    degrees=_degrees,
    by_batch=lambda parallel: parallel.pipeline == 1 and not attention_alone(parallel),
    most_requests="--max-running-requests",
)
