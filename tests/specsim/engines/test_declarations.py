"""Exported files against what the engines declare, field by field, for every engine and method.

The declarations are facts copied from the engines' sources: names, types and allowed values, each
with repository, version and file above it.
"""

from __future__ import annotations

import ast
import json
import shlex
from collections.abc import Callable
from typing import Any

import pytest

from specsim.checks import UnsupportedError
from specsim.deployment.drafters import DRAFTERS, KINDS
from specsim.engines import ENGINES, METHODS, Drafting, Order, Tree, merged

Check = Callable[[Any], bool]


def whole(low: int) -> Check:
    return lambda value: type(value) is int and value >= low


def text(value: Any) -> bool:
    return isinstance(value, str) and bool(value)


def one_of(*names: str) -> Check:
    return lambda value: value in names


def schedule_by_range(value: Any) -> bool:
    """[first, last, tokens]; the first range starts at 1, and none overlaps."""
    ends = [0]
    for first, last, tokens in value:
        if not (ends[-1] < first <= last and tokens >= 0):
            return False
        ends.append(last)
    return bool(value) and value[0][0] == 1


# vllm-project/vllm 0.33.0, vllm/config/speculative.py, class SpeculativeConfig: pydantic, no other
# key allowed; the methods are SpeculativeMethod, the schedule's rules those of
# vllm/v1/spec_decode/dynamic/utils.py.
VLLM: dict[str, Check] = {
    "method": one_of(
        *("draft_model", "eagle", "eagle3", "mtp", "medusa", "dflash", "ngram", "suffix")
    ),
    "model": text,
    "parallel_drafting": lambda value: value is True,
    "num_speculative_tokens": whole(1),
    "num_speculative_tokens_per_batch_size": schedule_by_range,
    "prompt_lookup_max": whole(1),
    "prompt_lookup_min": whole(1),
}

# sgl-project/sglang 0.5.23, python/sglang/srt/arg_groups/fields/spec.py and schedule.py; flags are
# the fields' names.  The algorithms are in the help of speculative_algorithm.
SGLANG: dict[str, Check] = {
    "--speculative-algorithm": one_of("EAGLE", "EAGLE3", "NEXTN", "STANDALONE", "NGRAM", "DFLASH"),
    "--speculative-draft-model-path": text,
    "--speculative-num-steps": whole(1),
    "--speculative-eagle-topk": lambda word: int(word) >= 1,
    "--speculative-num-draft-tokens": whole(2),
    "--speculative-ngram-max-bfs-breadth": one_of("1"),
    "--speculative-ngram-max-trie-depth": whole(2),
    "--speculative-adaptive": one_of(""),
    "--speculative-adaptive-config": text,
    "--max-running-requests": whole(1),
}

# NVIDIA/TensorRT-LLM commit 0004396720054fd8e205cbf616f21f0b57c6b412,
# tensorrt_llm/llmapi/llm_args.py: DecodingBaseConfig and the classes of these decoding_type.
TENSORRT_LLM: dict[str, Check] = {
    "decoding_type": one_of("Draft_Target", "Eagle3", "MTP", "PARD", "DFlash", "NGram", "SA"),
    "max_draft_len": whole(1),
    "speculative_model": text,
    "draft_len_schedule": lambda value: all(k >= 1 and v >= 0 for k, v in value.items()),
    "max_concurrency": whole(1),
    "max_matching_ngram_size": whole(1),
    "is_public_pool": lambda value: value is False,
    "use_dynamic_tree": lambda value: value is True,
    "dynamic_tree_max_topK": whole(1),
    "max_total_draft_tokens": whole(1),
}

# ggml-org/llama.cpp 0c1e57098, common/arg.cpp; the types are those of
# common_speculative_type_from_name_map in common/speculative.cpp.
LLAMA_CPP: dict[str, Check] = {
    "--spec-type": one_of(
        "draft-simple", "draft-eagle3", "draft-mtp", "draft-dflash", "ngram-simple"
    ),
    "-md": text,
    "--spec-draft-n-max": whole(1),
    "--spec-ngram-simple-size-m": whole(1),
    "--spec-ngram-simple-size-n": whole(1),
}

# huggingface/transformers 5.23.0, src/transformers/generation/configuration_utils.py, class
# GenerationConfig; block_size is of a DFlash model's own config (candidate_generator.py).
TRANSFORMERS: dict[str, Check] = {
    "assistant_model.generation_config.num_assistant_tokens": whole(1),
    "assistant_model.generation_config.num_assistant_tokens_schedule": one_of("constant"),
    "assistant_model.generation_config.assistant_confidence_threshold": lambda v: v == 0.0,
    "assistant_model.config.block_size": whole(2),
    "model.generation_config.prompt_lookup_num_tokens": whole(1),
    "model.generation_config.max_matching_ngram_size": whole(1),
    "model.generation_config.use_mtp": lambda value: value is True,
    "model.generation_config.speculation_type": one_of("dflash"),
}


def number_or_word(word: str) -> Any:
    return int(word) if word.isdigit() else word


def flags(line: str) -> dict[str, Any]:
    """Flags and their values, "" where a flag has none."""
    found: dict[str, Any] = {}
    for word in shlex.split(line):
        if word.startswith("-"):
            flag = word
            assert flag not in found
            found[flag] = ""
        else:
            assert found[flag] == ""
            # Of these flags SGLang's topk and breadth are compared as written.
            found[flag] = word if flag.endswith(("topk", "breadth")) else number_or_word(word)
    return found


def yaml(document: str) -> dict[str, Any]:
    """The little YAML that is written: nested maps of numbers, words, and JSON's strings and truth
    values.
    """
    root: dict[str, Any] = {}
    open_maps = [root]
    for line in document.splitlines():
        depth = (len(line) - len(line.lstrip(" "))) // 2
        key, _, value = line.strip().partition(":")
        del open_maps[depth + 1 :]
        here = open_maps[depth]
        name: Any = int(key) if key.isdigit() else key
        if value:
            word = value.strip()
            as_json = word.startswith('"') or word in ("true", "false")
            here[name] = json.loads(word) if as_json else number_or_word(word)
        else:
            here[name] = {}
            open_maps.append(here[name])
    return root


def statements(lines: str) -> dict[str, Any]:
    """Python assignments of literals."""
    pairs = [line.split(" = ") for line in lines.splitlines()]
    return {name: ast.literal_eval(value) for name, value in pairs}


READERS: dict[str, tuple[dict[str, Check], Callable[[str], dict[str, Any]]]] = {
    "vllm": (VLLM, json.loads),
    "sglang": (SGLANG, lambda written: flags(written.splitlines()[0])),
    "tensorrt-llm": (TENSORRT_LLM, lambda written: yaml(written)["speculative_config"]),
    "llama.cpp": (LLAMA_CPP, flags),
    "transformers": (TRANSFORMERS, statements),
}

# Lengths by batch: with a stop, without one, and one for all.
SCHEDULES = {
    "stops": merged([3, 3, 1, 0]),
    "goes on": merged([4, 4, 2]),
    "one": merged([5, 5]),
}
CASES = [(name, method) for name, engine in ENGINES.items() for method in engine.methods]


def content(name: str, order: Order) -> dict[str, Any]:
    return READERS[name][1](ENGINES[name].write(order).text)


def order_for(drafting: Drafting, schedule: str, **more: Any) -> Order:
    draft = "" if drafting.model == "none" else "org/a 'draft'"
    return Order(SCHEDULES[schedule], drafting, draft, **more)


@pytest.mark.parametrize("schedule", list(SCHEDULES))
@pytest.mark.parametrize(("name", "method"), CASES)
def test_every_field_is_declared(name: str, method: str, schedule: str) -> None:
    engine = ENGINES[name]
    drafting = engine.drafting(method)
    lookups = dict.fromkeys(engine.lookups, 4) if method == "ngram" else {}
    found = content(name, order_for(drafting, schedule, **lookups))
    declared = READERS[name][0]
    assert found
    for field, value in found.items():
        assert field in declared
        assert declared[field](value), (field, value)


@pytest.mark.parametrize("schedule", list(SCHEDULES))
@pytest.mark.parametrize("method", list(ENGINES["vllm"].methods))
def test_vllm_drafts_the_schedule(method: str, schedule: str) -> None:
    """Read as vLLM's build_dynamic_sd_schedule_lookup does: the last number holds on."""
    drafting = ENGINES["vllm"].drafting(method)
    found = content("vllm", order_for(drafting, schedule))
    longest = found["num_speculative_tokens"]
    ranges = found.get("num_speculative_tokens_per_batch_size", [[1, 10**9, longest]])
    planned = SCHEDULES[schedule]
    if not drafting.by_batch:
        assert longest == planned[0][2]
        return
    for first, last, tokens in planned:
        for batch in range(first, last + 1):
            assert [g for low, high, g in ranges if low <= batch <= high] == [tokens]
    assert max(tokens for _, _, tokens in ranges) == longest


@pytest.mark.parametrize("schedule", list(SCHEDULES))
@pytest.mark.parametrize("method", ["eagle", "eagle3", "mtp"])
def test_sglang_routes_every_batch_to_its_length(method: str, schedule: str) -> None:
    """Read as AdaptiveSpeculativeParams does: the largest key at or below the batch."""
    order = order_for(ENGINES["sglang"].drafting(method), schedule)
    first_line, *rest = ENGINES["sglang"].write(order).text.splitlines()
    found = flags(first_line)
    assert found["--speculative-num-draft-tokens"] == found["--speculative-num-steps"] + 1
    assert found["--max-running-requests"] == SCHEDULES[schedule][-1][1]
    assert ("--speculative-adaptive" in found) == (schedule != "one") == bool(rest)
    file = json.loads(rest[0]) if rest else {}
    slots = {int(key): slot["candidate_steps"] for key, slot in file.items()}
    steps = {step for slot in slots.values() for step in slot}
    # "--speculative-num-steps ... is not in the adaptive config candidate_steps" stops SGLang.
    assert not rest or found["--speculative-num-steps"] in steps
    for first, last, tokens in SCHEDULES[schedule]:
        for batch in range(first, last + 1):
            known = [key for key in slots if key <= batch]
            expected = slots[max(known)] if known else [found["--speculative-num-steps"]]
            assert expected == [tokens]


# trie.cpp holds max_trie_depth tokens, 18 by default, the matched one and its drafts.
@pytest.mark.parametrize(("length", "depth"), [(17, None), (18, 19), (40, 41)])
def test_sglang_holds_runs_as_long_as_its_drafts(length: int, depth: int | None) -> None:
    order = Order(merged([length]), ENGINES["sglang"].drafting("ngram"))
    assert content("sglang", order).get("--speculative-ngram-max-trie-depth") == depth


@pytest.mark.parametrize("schedule", list(SCHEDULES))
@pytest.mark.parametrize("method", list(ENGINES["tensorrt-llm"].methods))
def test_tensorrt_llm_reads_the_last_batches(method: str, schedule: str) -> None:
    """Read as get_draft_len_for_batch_size does: the first key at or above the batch, else 0."""
    drafting = ENGINES["tensorrt-llm"].drafting(method)
    found = content("tensorrt-llm", order_for(drafting, schedule))
    planned = SCHEDULES[schedule]
    assert found["max_draft_len"] == planned[0][2]
    if not drafting.by_batch:
        assert "draft_len_schedule" not in found
        assert found.get("max_concurrency") == (3 if schedule == "stops" else None)
        return
    by_key = found["draft_len_schedule"]
    # The smallest key must have max_draft_len, or validation fails.
    assert by_key[min(by_key)] == found["max_draft_len"]
    for first, last, tokens in planned:
        for batch in range(first, last + 1):
            above = [key for key in by_key if key >= batch]
            assert (by_key[min(above)] if above else 0) == tokens


@pytest.mark.parametrize(("name", "method"), CASES)
def test_a_draft_is_named_exactly_where_one_is_loaded(name: str, method: str) -> None:
    drafting = ENGINES[name].drafting(method)
    for draft in ("", "a draft") if drafting.model == "optional" else ("a draft",):
        given = "" if drafting.model == "none" else draft
        found = content(name, Order(SCHEDULES["one"], drafting, given))
        assert ("a draft" in found.values()) == bool(given)


def test_the_yaml_is_yaml() -> None:
    library = pytest.importorskip("yaml")
    for method in ENGINES["tensorrt-llm"].methods:
        drafting = ENGINES["tensorrt-llm"].drafting(method)
        for schedule in SCHEDULES:
            written = ENGINES["tensorrt-llm"].write(order_for(drafting, schedule)).text
            assert library.safe_load(written) == yaml(written)


def test_transformers_declares_what_is_set() -> None:
    """On the installed transformers itself: no statement makes a setting that was not there."""
    config = pytest.importorskip("transformers").GenerationConfig
    for method in ENGINES["transformers"].methods:
        order = order_for(ENGINES["transformers"].drafting(method), "one")
        for name, value in content("transformers", order).items():
            *_, owner, setting = name.split(".")
            if owner == "generation_config":
                assert hasattr(config(), setting)
                assert getattr(config(**{setting: value}), setting) == value


def test_every_method_is_some_engines() -> None:
    assert set(METHODS) == {method for _, method in CASES}


def test_drafters_and_methods_have_the_same_names() -> None:
    assert set(METHODS) == {*DRAFTERS, *KINDS} - {"parallel"}


@pytest.mark.parametrize("name", ["sglang", "tensorrt-llm"])
@pytest.mark.parametrize("schedule", list(SCHEDULES))
def test_trees_are_declared(name: str, schedule: str) -> None:
    """TensorRT-LLM holds max_total_draft_tokens to [max_draft_len, topK max_draft_len]."""
    drafting = ENGINES[name].drafting("eagle3").tree
    assert drafting is not None
    found = content(name, order_for(drafting, schedule, tree=Tree(4, 8)))
    declared = READERS[name][0]
    assert all(declared[field](value) for field, value in found.items())
    assert "draft_len_schedule" not in found
    assert "--speculative-adaptive" not in found
    length = SCHEDULES[schedule][0][2]
    if name == "sglang":
        assert found["--speculative-num-steps"] == length
        assert found["--speculative-eagle-topk"] == "4"
        assert found["--speculative-num-draft-tokens"] == 8
    else:
        assert found["max_draft_len"] == length
        assert found["dynamic_tree_max_topK"] == 4
        assert found["max_total_draft_tokens"] == 7
        assert length <= 7 <= 4 * length


@pytest.mark.parametrize(
    ("name", "slots", "range_"),
    [
        # 1 + 4 + 16 + 16 nodes of three steps; 4 x 3 and the root.
        ("sglang", 38, r"\[4, 37\]"),
        ("sglang", 3, r"\[4, 37\]"),
        ("tensorrt-llm", 14, r"\[4, 13\]"),
        ("tensorrt-llm", 3, r"\[4, 13\]"),
    ],
)
def test_trees_hold_their_drafts(name: str, slots: int, range_: str) -> None:
    drafting = ENGINES[name].drafting("eagle3").tree
    assert drafting is not None
    with pytest.raises(UnsupportedError, match=f"slots must be in {range_} with topk 4"):
        content(name, order_for(drafting, "stops", tree=Tree(4, slots)))
