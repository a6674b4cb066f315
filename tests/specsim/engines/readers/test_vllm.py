"""What vLLM prints, read; the numbers are those that each sample's own figures state."""

from __future__ import annotations

import json

import pytest

from specsim.checks import InvalidArgumentError, SpecsimError, UnsupportedError
from specsim.engines.readers import read_text
from specsim.engines.readers.pooling import pooled_files
from specsim.engines.readers.reading import Reading
from specsim.engines.readers.vllm_bench import _chunk_is_step
from tests.support.mutations import sample
from tests.support.refusals import refuses


def read(text: str) -> list[Reading]:
    return read_text(text, "a file")


# K, rounds, accepted, drafted, and what was accepted by position as far as the digits tell.
GOLDEN = {
    # Its counters are round numbers.
    "vllm-prometheus-scrape.txt": [(3, 1000, 1660, 3000, [710, 530, 420])],
    # 83.42, 72.91 and 64.07 % of 6393 drafts.
    "vllm-bench-serve-mtp3.txt": [(3, 6393, 14090, 19179, [5333, 4661, 4096])],
    # Two results: 83.39 % at K = 1, and at K = 8 the positions whose hundredth of a percent of
    # 11043 drafts leaves one whole number.
    "vllm-bench-serve-mtp1-mtp8.txt": [
        (1, 26407, 22021, 26407, [22021]),
        (8, 11043, 38611, 88344, [None, 6800, None, None, 4020, 3417, 3006, 2612]),
    ],
    "vllm-bench-serve-k15.txt": [(15, 54713, 154753, 820695, [None] * 15)],
    # Drafts of 3.6 tokens on average, so K varied.
    "vllm-bench-serve-result.json.txt": [(None, 5, 9, 18, [5, 3, 1])],
    # 295 / 5 drafts; 98.3, 94.9, 91.5, 88.1 and 71.2 % of 59.
    "vllm-log-2025-09.txt": [(5, 59, 262, 295, [58, 56, 54, 52, 42])],
    # K = 3: 151 drafts in each line, 124 + 124, 92 + 102 and 66 + 73 accepted (282 and 299).
    # K = 7: 23 and 55 drafts; 17 + 38, 11 + 23, 6 + 21, 4 + 10, 3 + 7, 2 + 4, 1 + 3 (44 and 106).
    "vllm-log-current.txt": [
        (3, 302, 581, 906, [248, 194, 139]),
        (7, 78, 150, 546, [55, 34, 27, 14, 10, 6, 4]),
    ],
    # Emitted less one a round: 10616 - 4437, 3 - 3, 2642 - 2642; rounds = draft tokens / K.
    "vllm-log-v0.txt": [
        (3, 4437, 6179, 13311, []),
        (5, 3, 0, 15, []),
        (16, 2642, 0, 42272, []),
    ],
    # 39 + 1 + 0 + 3 rounds.
    "vllm-request-metrics.json.txt": [(3, 43, 10, 129, [4, 3, 3])],
}


@pytest.mark.parametrize("name", list(GOLDEN))
def test_a_sample_gives_the_numbers_that_it_states(name: str) -> None:
    found = read(sample(name))
    assert len(found) == len(GOLDEN[name])
    for reading, (gamma, rounds, accepted, drafted, reached) in zip(
        found, GOLDEN[name], strict=True
    ):
        counts = reading.counts
        assert counts is not None
        assert (counts.gamma, counts.rounds, counts.accepted) == (gamma, rounds, accepted)
        assert counts.drafted == drafted
        assert len(counts.reached) == len(reached)
        for counted, expected in zip(counts.reached, reached, strict=True):
            assert expected is None or counted == expected
        law = "ratio-test" if name == "vllm-log-v0.txt" else "greedy-drafts"
        assert (reading.engine, reading.acceptance_law) == ("vllm", law)


@pytest.mark.parametrize(
    ("name", "lengths"),
    [
        # As printed in each, to its two digits.
        ("vllm-bench-serve-mtp3.txt", [3.20]),
        ("vllm-bench-serve-mtp1-mtp8.txt", [1.83, 4.50]),
        ("vllm-bench-serve-k15.txt", [3.83]),
        ("vllm-log-2025-09.txt", [5.44]),
        # vLLM v0: (K + 1) times a system efficiency of 0.598, 0.167 and 0.059.
        ("vllm-log-v0.txt", [4 * 0.598, 6 * 0.167, 17 * 0.059]),
        ("vllm-request-metrics.json.txt", [1.2325581395348837]),
    ],
)
def test_tokens_per_call_are_the_printed_length(name: str, lengths: list[float]) -> None:
    found = [each.counts.tokens_per_call for each in read(sample(name)) if each.counts]
    assert found == pytest.approx(lengths, abs=0.01)


def test_shares_of_the_printed_block_are_the_marginal_rates() -> None:
    (reading,) = read(sample("vllm-bench-serve-k15.txt"))
    assert reading.counts is not None
    marginal = reading.counts.marginal()
    # Conditional rates as the sample's header says: 0.67 at position 3, 0.96 at position 13.
    conditional = reading.counts.conditional().best
    assert marginal.best[:3] == pytest.approx([0.6826, 0.4670, 0.3116], abs=1e-12)
    assert conditional[[2, 12]] == pytest.approx([0.67, 0.96], abs=0.005)


def test_totals_alone_tell_no_rounds() -> None:
    (reading,) = read(sample("vllm-log-2025-04.txt"))
    assert reading.counts is None
    assert reading.totals is not None
    assert (reading.totals.accepted, reading.totals.drafted) == (132, 132)


def test_an_incomplete_scrape_says_what_it_lacks() -> None:
    # 24 + 6 of two engines, and 2 + 4 + 13 + 6 + 22 + 17 of six.
    known = r"\(30 at position 3, 64 at position 4\) and neither vllm:spec_decode_num_drafts nor"
    with pytest.raises(UnsupportedError, match=rf"^a file: the scrape has accepted .*{known}"):
        read(sample("vllm-prometheus-dp.txt"))


def scrape(engines: dict[str, tuple[int, int, list[int]]], form: str = "{} {}") -> str:
    """A scrape of engine processes: rounds, drafted tokens, accepted by position."""
    lines = []
    for engine, (rounds, drafted, reached) in engines.items():
        labels = f'engine="{engine}",model_name="m, 1"'
        lines += [
            form.format(f"vllm:spec_decode_num_drafts_total{{{labels}}}", rounds),
            form.format(f"vllm:spec_decode_num_draft_tokens_total{{{labels}}}", drafted),
            form.format(f"vllm:spec_decode_num_accepted_tokens_total{{{labels}}}", sum(reached)),
            form.format(f"vllm:spec_decode_num_accepted_tokens_created{{{labels}}}", 1.7e9),
        ]
        lines += [
            form.format(
                f"vllm:spec_decode_num_accepted_tokens_per_pos_total"
                f'{{{labels},position="{position}"}}',
                each,
            )
            for position, each in enumerate(reached)
        ]
    return "\n".join(lines) + "\n"


EARLY = scrape({"0": (10, 20, [8, 4]), "1": (5, 10, [5, 5])})
LATE = scrape({"0": (110, 220, [58, 34]), "1": (25, 50, [15, 6])})


def pooled(*texts: str) -> object:
    found = pooled_files([(f"file {i}", each.encode()) for i, each in enumerate(texts)])
    (counts,) = found.counts
    return counts.gamma, counts.rounds, counts.accepted, counts.drafted, counts.reached


@pytest.mark.parametrize("form", ["{} {}", "{} | {}", "{} {} 1731000000000", "{}\t{}.0"])
def test_engine_processes_are_summed(form: str) -> None:
    text = scrape({"0": (110, 220, [58, 34]), "1": (25, 50, [15, 6])}, form)
    assert pooled(text) == (2, 135, 113, 270, (73, 40))


def test_two_scrapes_are_differenced_whatever_their_order() -> None:
    between = (2, 120, 91, 240, (60, 31))
    assert pooled(EARLY, LATE) == pooled(LATE, EARLY) == pooled(EARLY + LATE) == between


def test_scrapes_that_are_turned_round_may_be_of_two_lives() -> None:
    """After a new start everything counts less, as in a scrape that was taken before."""
    for texts, turned in (((EARLY, LATE), False), ((LATE, EARLY), True)):
        found = pooled_files([(f"file {i}", each.encode()) for i, each in enumerate(texts)])
        assert any("started again between them" in each for each in found.notes) == turned


def test_positions_that_are_gone_again_began_and_ended_at_nothing() -> None:
    early = scrape({"0": (10, 20, [8, 4, 0])})
    found = pooled(early, scrape({"0": (20, 40, [15, 9])}))
    assert found == (None, 10, 12, 20, (7, 5, 0))


def test_two_servers_are_added() -> None:
    other = scrape({"7": (100, 200, [50, 25])})
    assert pooled(EARLY, other) == (2, 115, 97, 230, (63, 34))


def test_positions_that_come_later_began_at_nothing() -> None:
    # As a server prints its series before the first request with a draft, and after some.
    assert pooled(scrape({"0": (0, 0, [])}), scrape({"0": (10, 20, [8, 4])})) == (
        *(2, 10, 12, 20, (8, 4)),
    )


def test_a_few_short_drafts_leave_the_draft_length() -> None:
    # 7 of 200 rounds drafted one token and not two.
    found = pooled_files([("scrape", scrape({"0": (200, 393, [150, 80])}).encode())])
    assert found.counts[0].gamma == 2
    assert any("up to 3.5% of the rounds at K = 2 drafted less" in each for each in found.notes)


def test_drafts_of_several_lengths_have_no_one_length() -> None:
    found = pooled_files([("scrape", scrape({"0": (100, 150, [60, 20])}).encode())])
    assert found.counts[0].gamma is None
    assert any("not all of one length" in note for note in found.notes)


test_scrapes_that_contradict_are_refused = refuses(
    (
        lambda: pooled(scrape({"0": (10, 20, [8, 4])}), scrape({"0": (20, 40, [7, 7])})),
        r"num_accepted_tokens_per_pos fell from 8 to 7 .* started again",
    ),
    (
        lambda: pooled(scrape({"0": (10, 20, [8, 4])}), scrape({"0": (10, 40, [9, 7, 5, 3])})),
        r"no server counts what is between two scrapes \(.*\): these are two servers",
    ),
    (lambda: pooled(EARLY, LATE.replace('engine="1"', 'engine="2"')), "share some counters"),
    (lambda: pooled(EARLY.replace('"m, 1"', '"n"', 3)), "has 2 models"),
    (lambda: pooled(scrape({"0": (0, 0, [0, 0])})), "no round was drafted; send requests"),
    (
        lambda: pooled(
            *(
                f'{each}vllm:spec_decode_num_drafts_created{{engine="0"}} {when}\n'
                for each, when in ((EARLY, 1), (LATE, 2))
            )
        ),
        "num_drafts_created differs .* started again",
    ),
    error=UnsupportedError,
)

test_counters_that_contradict_are_refused = refuses(
    (lambda: pooled(EARLY.replace("} 8\n", "} 9\n")), "add up to 13 accepted .* says 12"),
    (lambda: pooled(EARLY.replace("} 20\n", "} 21\n")), "21 draft tokens, more than 2 positions"),
    (lambda: pooled(EARLY.replace("} 20\n", "} nan\n")), "must be a number >= 0, got 'nan'"),
    (lambda: pooled(EARLY.replace("} 20\n", "} 1e400\n")), "must be finite"),
    (lambda: pooled(EARLY, EARLY), "the same content as file 0, which would count twice"),
    (lambda: read_text(EARLY, "f", "vlm"), "did you mean vllm"),
    (lambda: read_text("hello\n", "f"), "^f: nothing was recognised; looked for log lines"),
    error=SpecsimError,
)

WINDOW = (
    "SpecDecoding metrics: Mean acceptance length: {length}, Accepted throughput: 1.00 tokens/s, "
    "Drafted throughput: 1.00 tokens/s, Accepted: {accepted} tokens, Drafted: {drafted} tokens, "
    "Per-position acceptance rate: {shares}, Avg Draft acceptance rate: {rate}%"
)


def window(reached: list[int], rounds: int, drafted: int) -> str:
    """A log line as vllm/v1/spec_decode/metrics.py prints it."""
    accepted = sum(reached)
    return WINDOW.format(
        length=f"{1 + accepted / rounds:.2f}",
        accepted=accepted,
        drafted=drafted,
        shares=", ".join(f"{each / rounds:.3f}" for each in reached),
        rate=f"{100 * accepted / drafted:.1f}",
    )


def test_rounds_of_a_window_whose_length_varied_are_recovered() -> None:
    # 50 rounds, 30 of three drafts and 20 of one.
    (reading,) = read(window([40, 20, 10], 50, 110))
    assert reading.counts is not None
    assert (reading.counts.gamma, reading.counts.rounds) == (None, 50)
    assert reading.counts.reached == (40, 20, 10)


def test_lines_are_weighted_by_their_drafts() -> None:
    (reading,) = read(window([9, 9], 10, 20) + "\n" + window([100, 0], 1000, 2000))
    assert reading.counts is not None
    assert reading.counts.reached == (109, 9)
    assert reading.counts.tokens_per_call == 1 + 118 / 1010


def test_windows_without_a_draft_are_left_out() -> None:
    # As versions of mid-2025 print where no request ran.
    empty = WINDOW.format(length="nan", accepted=0, drafted=0, shares="", rate="nan")
    (reading,) = read(f"{empty}\n{window([9, 5], 10, 20)}\n")
    assert reading.counts is not None
    assert reading.counts.reached == (9, 5)


def test_lines_pasted_twice_are_told() -> None:
    line = window([9, 5], 10, 20) + "\n"
    assert not any("the very same" in note for note in read(line)[0].notes)
    assert any("the very same" in note for note in read(line * 2)[0].notes)


test_lines_that_contradict_are_refused = refuses(
    (lambda: read(window([9, 5], 10, 20).replace("0.900", "0.400")), "0.4|adds up|rise"),
    (lambda: read(window([9, 5], 10, 20).replace("0.900", "1.400")), "share <= 100 %"),
    (lambda: read(window([9, 5], 10, 20).replace("Drafted: 20", "Drafted: 2")), "acceptance rate"),
    (lambda: read(window([9, 5], 10, 20).replace("2.40", "1.40")), "no number of rounds"),
    (lambda: read(window([9, 5], 10, 20).replace("70.0%", "nan%")), "got 'nan'"),
)

test_shares_of_another_denominator_are_refused = refuses(
    (
        lambda: read(
            window([9, 5], 10, 20).replace(
                ", Avg", ", Per-position verification coverage: 1.0, Avg"
            )
        ),
        "shares of the rounds that verified a position",
    ),
    error=UnsupportedError,
)

REQUEST = {
    "acceptance_histogram": {"0": 2, "2": 2},
    "num_spec_steps": 4,
    "num_accepted_draft_tokens": 4,
    "num_draft_tokens": 8,
    "num_spec_tokens": 3,
}


def test_rounds_of_several_lengths_are_told_apart_where_every_round_is_listed() -> None:
    listed = {**REQUEST, "per_step_drafted": [3, 3, 2, 0], "per_step_accepted": [2, 0, 2, 0]}
    found = read("\n".join(json.dumps(each) for each in (listed, {"a": [listed]})))
    counts = [each.counts for each in found if each.counts]
    assert [(each.gamma, each.rounds, each.reached) for each in counts] == [
        (2, 2, (2, 2)),
        (3, 4, (2, 2, 0)),
    ]
    assert all("each is taken for itself" in each.notes[0] for each in found)


def test_a_histogram_may_be_an_object() -> None:
    (reading,) = read(json.dumps(REQUEST))
    assert reading.counts is not None
    assert (reading.counts.gamma, reading.counts.reached) == (None, (2, 2, 0))


def request(**changed: object) -> list[Reading]:
    return read(json.dumps({**REQUEST, **changed}))


test_requests_that_contradict_are_refused = refuses(
    (lambda: request(num_spec_steps=5), "must be num_spec_steps = 5, got 4"),
    (lambda: request(num_accepted_draft_tokens=3), "must be num_accepted_draft_tokens = 3, got 4"),
    (lambda: request(num_draft_tokens=13), "at most num_spec_tokens = 3 in each of 4"),
    (lambda: request(mean_acceptance_length=2.5), "printed as 2.5, but the histogram gives 2;"),
    (lambda: request(draft_acceptance_rate=0.4), "printed as 0.4, but .* gives 0.5;"),
    (lambda: request(acceptance_histogram=[3.5]), "must be a whole number"),
    (lambda: request(acceptance_histogram={"9999": 1}), "different whole numbers < 1000"),
    (lambda: request(per_step_drafted=[8], per_step_accepted=[4]), "num_spec_steps = 4, got 1"),
    (lambda: read('{"num_accepted_draft_tokens": 1'), "not complete JSON"),
    (lambda: read('{"num_accepted_draft_tokens": ' + "[" * 100_000), "nested too deep"),
)


def test_a_chunk_is_a_step() -> None:
    (reading,) = read(sample("vllm-bench-serve-mtp3.txt"))
    (step,) = reading.steps
    # Median ITL 40.50 ms at a concurrency of 1; prompts of 4096 and half of 1024 tokens.
    assert (step.gamma, step.batch, step.seconds, step.context) == (3, 1, 0.0405, 4608)


PLAIN = {"max_concurrency": 8, "median_itl_ms": 12.5, "mean_itl_ms": 13.0, "mean_tpot_ms": 13.1}


def test_a_batch_is_no_larger_than_the_requests_were() -> None:
    (reading,) = read(json.dumps({**PLAIN, "max_concurrency": 256, "completed": 20}))
    assert reading.steps[0].batch == 20


def test_a_result_without_drafts_times_plain_steps() -> None:
    (reading,) = read(json.dumps(PLAIN))
    (step,) = reading.steps
    assert (reading.counts, step.gamma, step.batch, step.seconds) == (None, 0, 8, 0.0125)


@pytest.mark.parametrize(
    "text",
    [
        # Chunks of four tokens without a word on drafts: cut off, or streamed otherwise.
        json.dumps({**PLAIN, "mean_itl_ms": 52.0}),
        json.dumps({**PLAIN, "max_concurrency": None}),
        # A model that denoises has the counters of drafts too (vllm/benchmarks/serve.py, 0.33.0).
        json.dumps({**PLAIN, "diffusion_denoising_steps": 8}),
        # The last lines are cut off, and with them whether anything was drafted.
        sample("vllm-bench-serve-mtp3.txt").partition("---------------Speculative")[0],
    ],
)
def test_a_cut_result_is_not_one_of_plain_decoding(text: str) -> None:
    with pytest.raises(UnsupportedError):
        read(text)


@pytest.mark.parametrize(("itl", "is_step"), [(1.3, True), (1.2, True), (1.0, False), (1.1, False)])
def test_a_chunk_of_one_token_is_no_step_of_more(itl: float, is_step: bool) -> None:
    """Rounds of 1.3 tokens in the mean: chunks of one each are within a quarter of them."""
    result = {**PLAIN, "mean_tpot_ms": 10.0, "mean_itl_ms": 10.0 * itl}
    assert _chunk_is_step(result, 1.3) == is_step


def test_random_prompts_are_told() -> None:
    drafted = json.loads(sample("vllm-bench-serve-result.json.txt").splitlines()[1])
    for more, word in (({}, "does not say which prompts"), ({"dataset_name": "random"}, "random")):
        (reading,) = read(json.dumps({**drafted, **more}))
        assert any(word in note for note in reading.notes)


def test_a_rate_of_a_result_is_in_percent() -> None:
    drafted = json.loads(sample("vllm-bench-serve-result.json.txt").splitlines()[1])
    with pytest.raises(InvalidArgumentError, match=r"acceptance rate is printed as 0\.005"):
        read(json.dumps({**drafted, "spec_decode_acceptance_rate": 0.5}))
