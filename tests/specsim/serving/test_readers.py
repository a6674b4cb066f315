"""Workloads in files: what they say, and where they are wrong."""

from __future__ import annotations

import itertools
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from specsim.serving.prefixes import blocks_of_tokens, scaled_blocks, shared_tokens
from specsim.serving.readers import read_records, read_workload
from specsim.serving.requests import WorkloadError
from specsim.serving.workload import RecordedWorkload
from specsim.serving.workload_summary import WorkloadSummary

# The first rows of Azure/AzurePublicDataset b469a11, data/AzureLLMInferenceTrace_conv.csv (CC-BY).
AZURE = (
    "TIMESTAMP,ContextTokens,GeneratedTokens\r\n"
    "2023-11-16 18:15:46.6805900,374,44\r\n"
    "2023-11-16 18:15:50.9951690,396,109\r\n"
    "2023-11-16 18:15:51.2224670,879,55\r\n"
    "2023-11-16 18:15:51.3910170,91,16"
)
# The first rows of kvcache-ai/Mooncake 3b5a594, FAST25-release/traces/conversation_trace.jsonl
# (Apache-2.0), the first two with fewer blocks.
MOONCAKE = (
    '{"timestamp": 0, "input_length": 1700, "output_length": 500, "hash_ids": [0, 1, 2, 3]}\n'
    '{"timestamp": 0, "input_length": 1536, "output_length": 490, "hash_ids": [0, 14, 15]}\n'
    '{"timestamp": 3000, "input_length": 2290, "output_length": 316, '
    '"hash_ids": [0, 42, 43, 44, 45]}\n'
)


def lines(*records: dict[str, Any]) -> str:
    return "\n".join(json.dumps(each) for each in records)


def test_azure() -> None:
    found = read_records(AZURE)
    assert found.format == "azure"
    assert found.prompt_tokens.tolist() == [374, 396, 879, 91]
    assert found.output_tokens.tolist() == [44, 109, 55, 16]
    assert found.arrival_s is not None
    np.testing.assert_allclose(found.arrival_s, [0, 4.314579, 4.541877, 4.710427], atol=1e-9)


def test_mooncake() -> None:
    found = read_records(MOONCAKE)
    assert found.format == "mooncake"
    assert found.arrival_s is not None
    assert found.arrival_s.tolist() == [0, 0, 3]
    assert found.prefix is not None
    assert found.prefix.block_tokens == 512
    # A last block that is not full is not shared: 1700 = 3 blocks and 164 tokens.
    assert np.diff(found.prefix.starts).tolist() == [3, 3, 4]
    first, second, third = (found.prefix.of(n) for n in range(3))
    assert first[0] == second[0] == third[0]
    assert not set(first[1:]) & set(second[1:]) & set(third[1:])
    assert shared_tokens(found.prefix) == 2 * 512


def test_qwen_bailian() -> None:
    """By its README: seconds, and an id for each 16 tokens."""
    found = read_records(
        lines(
            *(
                {
                    "chat_id": chat,
                    "parent_chat_id": -1,
                    "timestamp": seconds,
                    "input_length": 40,
                    "output_length": 132,
                    "type": "text",
                    "turn": 1,
                    "hash_ids": [1089, 1090, last],
                }
                for chat, seconds, last in ((1, 61.114, 7), (2, 62.614, 8))
            )
        )
    )
    assert found.format == "qwen-bailian"
    assert found.arrival_s is not None
    assert found.arrival_s.tolist() == [61.114, 62.614]
    assert found.prefix is not None
    assert found.prefix.block_tokens == 16
    assert shared_tokens(found.prefix) == 32


def test_the_same_block_behind_another_is_another() -> None:
    prefix = blocks_of_tokens([[1, 2, 3, 4], [9, 9, 3, 4], [1, 2, 3, 4, 5]], 2)
    one, two, three = (prefix.of(n).tolist() for n in range(3))
    assert one == three
    assert one[1] != two[1]


def test_what_is_shared_is_scaled() -> None:
    # The first three of four blocks of 2 tokens are shared.
    prefix = blocks_of_tokens([[1] * 8, [1, 1, 1, 1, 1, 1, 2, 2]], 2)
    doubled = scaled_blocks(prefix, 2.0, np.array([16, 16]))
    one, two = doubled.of(0).tolist(), doubled.of(1).tolist()
    assert len(one) == len(set(one)) == 8
    assert [a == b for a, b in zip(one, two, strict=True)] == [True] * 6 + [False] * 2
    # Of two blocks the first was stretched from shared blocks alone.
    halves = scaled_blocks(prefix, 0.5, np.array([4, 4]))
    assert halves.of(0)[0] == halves.of(1)[0]
    assert halves.of(0)[1] != halves.of(1)[1]
    same = scaled_blocks(prefix, 1.0, np.array([8, 8]))
    assert shared_tokens(same) == shared_tokens(prefix) == 6


@given(
    st.lists(st.lists(st.integers(0, 1), min_size=1, max_size=30), min_size=1, max_size=8),
    st.floats(0.1, 5.0),
)
def test_scaled_prompts_share_as_much_as_their_blocks_allow(
    prompts: list[list[int]], scale: float
) -> None:
    """Pair by pair, against the number of blocks that two prompts have in common."""
    lengths = np.maximum(np.rint(np.array([len(p) for p in prompts]) * scale), 1).astype(int)
    scaled = scaled_blocks(blocks_of_tokens(prompts, 2), scale, lengths)
    for a, b in itertools.combinations(range(len(prompts)), 2):
        pairs = zip(prompts[a], prompts[b], strict=False)
        common = len(list(itertools.takewhile(lambda pair: pair[0] == pair[1], pairs))) // 2
        same = (x == y for x, y in zip(scaled.of(a), scaled.of(b), strict=False))
        shared = len(list(itertools.takewhile(bool, same)))
        fits = min(scaled.of(a).size, scaled.of(b).size)
        assert shared == min(int(common * scale + 1e-9), fits)


def test_a_scaled_file_still_shares() -> None:
    requests = RecordedWorkload(read_records(MOONCAKE), scale_prompt=2.0).draw(0)
    assert requests.prefix is not None
    assert requests.prompt_tokens.tolist() == [3400, 3072, 4580]
    assert requests.prefix.block_tokens == 512
    assert WorkloadSummary.of(requests).shared == pytest.approx(4 * 512 / 11052)


def test_llmservingsim() -> None:
    # The keys of casys-kaist/LLMServingSim, workloads/sharegpt-llama-3.1-8b-300-sps10.jsonl.
    ids = list(range(20))
    found = read_records(
        lines(
            {"input_toks": 20, "output_toks": 5, "arrival_time_ns": 46926808, "input_tok_ids": ids},
            {
                "input_toks": 17,
                "output_toks": 7,
                "arrival_time_ns": 347938951,
                "input_tok_ids": ids[:17],
            },
        )
    )
    assert found.format == "llmservingsim"
    assert found.arrival_s is not None
    np.testing.assert_allclose(found.arrival_s, [0.046926808, 0.347938951])
    assert found.prefix is not None
    assert shared_tokens(found.prefix) == 16


def test_a_log_of_llmservingsim_begins_at_its_first_request() -> None:
    log = {"input_toks": 20, "output_toks": 5, "arrival_time": 1777142838.5}
    found = read_records(lines(log, {**log, "arrival_time": 1777142839.75}))
    assert found.arrival_s is not None
    assert found.arrival_s.tolist() == [0, 1.25]


def test_a_result_of_vllm_bench_is_sorted_and_without_failures() -> None:
    text = json.dumps(
        {
            "duration": 9.0,
            "input_lens": [10, 20, 30],
            "output_lens": [5, 0, 7],
            "start_times": [104.0, 103.0, 101.5],
        }
    )
    found = read_records(text)
    assert found.format == "vllm-bench"
    assert found.arrival_s is not None
    assert found.arrival_s.tolist() == [0, 2.5]
    assert found.prompt_tokens.tolist() == [30, 10]
    assert found.notes == ("1 failed requests (output_lens 0) are left out",)
    indented = json.dumps(json.loads(text), indent=2)
    assert read_records(indented).output_tokens.tolist() == [7, 5]


def test_burstgpt() -> None:
    found = read_records(
        "Timestamp,Model,Request tokens,Response tokens,Total tokens,Log Type\n"
        "5,ChatGPT,472,18,490,Conversation log\n"
        "45,ChatGPT,1087,0,1087,Conversation log\n"
        "118.5,GPT-4,417,276,693,API log\n"
    )
    assert found.format == "burstgpt"
    assert found.arrival_s is not None
    assert found.arrival_s.tolist() == [0, 113.5]
    assert found.output_tokens.tolist() == [18, 276]
    assert found.notes == ("1 failed requests (0 response tokens) are left out",)


@pytest.mark.parametrize(
    "text",
    [
        lines({"prompt_len": 12, "output_len": 3}, {"prompt_len": 40, "output_len": 6}),
        '[{"prompt": "a", "input_len": 12, "output_tokens": 3},'
        '{"prompt": "b", "input_len": 40, "output_tokens": 6}]',
        "prompt_tokens,completion_tokens\n12,3\n40,6\n",
        "prompt_tokens,max_tokens\n12,3\n40,6\n",
        # A limit is no length, where there is one.
        "prompt_len,max_tokens,num_output_tokens\n12,1024,3\n40,1024,6\n",
        # SpecDecode-Bench/simulator's keys
        lines(
            {"id": 0, "prompt_token_ids": [1] * 12, "generated_token_ids": [4, 5, 6]},
            {"id": 1, "prompt_token_ids": [2] * 40, "generated_token_ids": [1] * 6},
        ),
    ],
)
def test_token_counts_by_several_names(text: str) -> None:
    found = read_records(text)
    assert found.format == "token-counts"
    assert found.arrival_s is None
    assert found.prompt_tokens.tolist() == [12, 40]
    assert found.output_tokens.tolist() == [3, 6]


@pytest.mark.parametrize(
    "times", [(3.5, 4.75), (1777142838.5, 1777142839.75), (1777142838500, 1777142839750)]
)
def test_times_of_any_clock_begin_at_the_first(times: tuple[float, float]) -> None:
    """Seconds, seconds since 1970 and milliseconds since then."""
    counts = {"prompt_len": 12, "output_len": 3}
    found = read_records(lines(*({**counts, "timestamp": each} for each in times)))
    assert found.arrival_s is not None
    assert found.arrival_s.tolist() == [0, 1.25]


def test_times_that_may_be_milliseconds_are_noticed() -> None:
    """Mooncake's clock counts milliseconds from the begin, under the same name."""
    counts = {"prompt_len": 12, "output_len": 3}
    for name, times, noticed in (
        ("timestamp", (0, 27482, 90000), True),
        ("timestamp", (0, 27.482, 90.5), False),
        ("timestamp", (0, 30, 90), False),
        ("arrival_s", (0, 27482, 90000), False),
        ("timestamp", (1777142838500, 1777142839750, 1777142939750), False),
    ):
        found = read_records(lines(*({**counts, name: each} for each in times)))
        assert any("give --scale 1000" in note for note in found.notes) is noticed


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "no request in it"),
        (
            '{"prompt_len": 1, "output_len": 1, "timestamp": 1777142838500000}',
            "record 1: timestamp must be seconds, or milliseconds since 1970, got 1.77714e+15",
        ),
        ("a,b\n1,2\n", "line 2: no format is recognised by its keys (a, b): read are"),
        (AZURE.replace("396", "0"), "line 3: ContextTokens must be a whole number in [1,"),
        (AZURE.replace("396", "x"), "line 3: ContextTokens must be a number, got 'x'"),
        (AZURE.replace("2023-11-16 18:15:50.9951690", "noon"), "line 3: TIMESTAMP must be a date"),
        (AZURE.replace("50.9951690", "50.9951690+02:00"), "of UTC where it has a zone, got '2023"),
        (AZURE.replace("2023-11-16 18:15:50", "2023-02-31 18:15:50"), "TIMESTAMP must be a date"),
        (AZURE.replace("2023-11-16 18:15:50", "9023-11-16 18:15:50"), "TIMESTAMP must be a date"),
        (AZURE.replace("18:15:50", "18:15:40"), "line 3: arrives 5.68542 s before the request"),
        (AZURE + "\n1,2", "line 6: 2 columns, but the header has 3"),
        (MOONCAKE.replace("490", "null"), "line 2: output_length is missing"),
        (MOONCAKE.replace("[0, 14, 15]", '["a"]'), "line 2: hash_ids must be a list of whole"),
        (MOONCAKE[:-20], "line 3: not complete JSON"),
        (
            MOONCAKE.replace("[0, 14, 15]", "[0, 14, 15, 16]"),
            "line 2: hash_ids has 4 ids for a prompt of 1536 tokens, and a trace of this kind has "
            "one for each 512; leave hash_ids out",
        ),
        ('{"conversations": [{"from": "human", "value": "hi"}]}', "no number of prompt tokens"),
        ('{"prompt": "hi", "prompt_len": 3}', "record 1: no number of output tokens (looked for"),
        (
            '{"input_toks": 3, "output_toks": 1, "input_tok_ids": [1, 2]}',
            "record 1: input_tok_ids has 2 tokens, input_toks is 3",
        ),
        ('{"input_lens": [1], "output_lens": [1, 2]}', "must be of equal length, got 1 input_lens"),
        ('{"input_lens": [1], "output_lens": [0]}', "no request was answered"),
        ("[1, 2]", "record 1: must be a JSON object, got 1"),
    ],
)
def test_what_is_wrong_is_said_with_its_place(text: str, said: str, tmp_path: Path) -> None:
    path = tmp_path / "requests"
    path.write_text(text)
    with pytest.raises(WorkloadError) as error:
        read_workload(path)
    assert str(error.value).startswith(f"workload {path}: ")
    assert said in str(error.value)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("a,b,a\n1,2,3\n", "line 1: more than one column 'a'"),
        (f"{'x' * 200_000},b\n1,2\n", "not CSV"),
        ('{"input_length": 1' + "0" * 400 + ', "output_length": 1}', "must be a number"),
        ('{"a": ' + "[" * 100_000 + "\n{}", "not complete JSON"),
        ("{" + ", ".join(f'"k{n}": 1' for n in range(10_000)) + "}", "is recognised by its keys"),
    ],
)
def test_hostile_files_are_refused_in_a_short_line(tmp_path: Path, text: str, said: str) -> None:
    path = tmp_path / "workload"
    path.write_text(text)
    with pytest.raises(WorkloadError, match=said) as refused:
        read_workload(path)
    assert "\n" not in str(refused.value)
    assert len(str(refused.value)) < 2000


def test_other_line_ends_that_unicode_knows_do_not_end_a_line(tmp_path: Path) -> None:
    path = tmp_path / "workload"
    values = {"input_length": 3, "output_length": 2, "note": "a\u2028b"}
    line = json.dumps(values, ensure_ascii=False)
    path.write_text(f"{line}\n{line}\n", encoding="utf-8")
    assert read_workload(path).prompt_tokens.tolist() == [3, 3]


def test_a_file_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(WorkloadError, match="none: no such file"):
        read_workload(tmp_path / "none")
    (tmp_path / "bytes").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(WorkloadError, match="not a text in UTF-8"):
        read_workload(tmp_path / "bytes")
