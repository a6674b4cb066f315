"""llama.cpp's log, scrapes and timings, with the numbers that their sources state."""

from __future__ import annotations

import pytest

from specsim.checks import SpecsimError, UnsupportedError
from specsim.counts.drafts import DraftCounts
from specsim.engines.readers import read_text
from specsim.engines.readers.pooling import pooled_files
from specsim.engines.readers.reading import Reading
from tests.support.mutations import sample
from tests.support.refusals import refuses


def read(text: str) -> list[Reading]:
    return read_text(text, "log")


def by_source() -> dict[str, Reading]:
    return {
        f"{each.source} K={each.counts.gamma}": each
        for each in read(sample("llama-cpp-log.txt"))
        if each.counts is not None
    }


# ggml-org/llama.cpp pull request #24536 (2026-06-15): 87 drafts, 259 and 167 tokens, 325.555 ms
# of drafting, 2296.72 ms in all, shares (0.805, 0.632, 0.483)
EAGLE3 = DraftCounts(gamma=3, rounds=87, accepted=167, drafted=259, reached=(70.0, 55.0, 42.0))


def test_a_drafter_is_counted_once_though_its_request_prints_the_same_tokens() -> None:
    found = by_source()["statistics of draft-eagle3 K=3"]
    assert found.counts == EAGLE3
    assert found.counts.tokens_per_call == pytest.approx(2.92, abs=0.005)
    (step,) = found.steps
    # The same pull request: 26.4 ms a block, 3.74 ms of it drafting.
    assert step.seconds == pytest.approx(26.4e-3, abs=5e-5)
    assert step.draft_s == pytest.approx(3.74e-3, abs=5e-6)


def test_drafters_of_one_server_are_kept_apart() -> None:
    found = by_source()
    # pull request #22673 (May 2026): two drafters in one server
    assert found["statistics of draft-mtp K=2"].counts == DraftCounts(2, 727, 1135, 1447)
    assert found["statistics of ngram-mod K=64"].counts == DraftCounts(64, 4, 47, 256)
    assert {each.drafter for each in found.values()} == {
        "draft-eagle3",
        "draft-mtp",
        "ngram-mod",
        None,
    }


def test_drafters_do_not_pool_even_of_one_draft_length() -> None:
    both = statistics(1, 100, 120, 200) + statistics(1, 10, 20, 20).replace("draft-mtp", "ngram")
    found = pooled_files([("log", (request(100, 120, 200) + both).encode())])
    assert found.counts == (DraftCounts(2, 100, 120, 200),)
    assert any("ngram left out (20 tokens accepted in 10 rounds)" in note for note in found.notes)


def test_two_scrapes_are_differenced() -> None:
    later = sample("llama-cpp-metrics.txt")
    for few, many in (("300", "360"), ("150", "180"), ("100", "120")):
        later = later.replace(f"total {few}\n", f"total {many}\n")
    for few, many in (("80", "96"), ("50", "60"), ("20", "24")):
        later = later.replace(f"}} {few}\n", f"}} {many}\n")
    files = [("a", sample("llama-cpp-metrics.txt").encode()), ("b", later.encode())]
    assert pooled_files(files).counts == (DraftCounts(3, 20.0, 30.0, 60.0, (16.0, 10.0, 4.0)),)


# Public logs on GitHub (repositories not named where they were found), May and June 2026.
TWO_DRAFTERS = """\
[44195] 4.26.848.523 I slot print_timing: id  3 | task 0 | prompt eval time =    1571.25 ms / 759 tokens
[44195] 4.26.848.527 I slot print_timing: id  3 | task 0 |        eval time =  250457.50 ms /  3115 tokens
[44195] 4.26.848.529 I slot print_timing: id  3 | task 0 | draft acceptance = 0.41236 ( 2235 accepted /  5420 generated)
[44195] 4.26.848.547 I statistics        ngram-mod: #calls(b,g,a) =    1    884      2, #gen drafts =      2, #acc drafts =     2, #gen tokens =    128, #acc tokens =    13, dur(b,g,a) = 0.124, 1.631, 0.002 ms
[44195] 4.26.848.548 I statistics        draft-mtp: #calls(b,g,a) =    1    882    882, #gen drafts =    882, #acc drafts =   716, #gen tokens =   5292, #acc tokens =  2222, dur(b,g,a) = 0.003, 70964.224, 0.918 ms
"""  # noqa: E501
CUT_SHORT = """\
0.16.519.187 I slot print_timing: id  0 | task 42 |        eval time =    3133.20 ms /   353 tokens
0.16.519.195 I slot print_timing: id  0 | task 42 | draft acceptance = 0.66237 (  257 accepted /   388 generated), mean acceptance length =  3.65, acceptance rate per position = (0.804, 0.701, 0.629, 0.515)
0.16.519.216 I statistics        draft-mtp: #calls(b,g,a) =    2    134    134, #gen drafts =    134, #acc drafts =   109, #gen tokens =    536, #acc tokens =   354, #mean acc len = 3.64, #acc rate/pos = (0.813, 0.716, 0.619, 0.493), dur(b,g,a) = 0.004, 808.560, 0.264 ms
0.43.828.255 I slot print_timing: id  0 | task 144 |        eval time =    3210.86 ms /   329 tokens
0.43.828.261 I slot print_timing: id  0 | task 144 | draft acceptance = 0.57828 (  229 accepted /   396 generated), mean acceptance length =  3.31, acceptance rate per position = (0.778, 0.636, 0.495, 0.404)
"""  # noqa: E501
NGRAMS = """\
I spec common_specu: statistics        ngram-mod: #calls(b,g,a) =    4    542     31, #gen drafts =     31, #acc drafts =    28, #gen tokens =    920, #acc tokens =   527, #mean acc len = 18.00, dur(b,g,a) = 0.688, 0.851, 0.021 ms
"""  # noqa: E501


def test_a_first_request_has_its_rounds_in_the_statistics() -> None:
    ngram, mtp = read(TWO_DRAFTERS)
    assert ngram.counts == DraftCounts(64, 2, 13, 128)
    assert mtp.counts == DraftCounts(6, 882, 2222, 5292)
    # 884 rounds of both drafters, 882 calls of one
    assert [step.seconds for step in mtp.steps] == pytest.approx([250.4575 / 884])
    assert [step.draft_s for step in mtp.steps] == pytest.approx([70.964224 / 882])


def test_a_request_after_the_last_statistics_is_counted_with_them() -> None:
    found = pooled_files([("log", CUT_SHORT.encode())])
    (counts,) = found.counts
    assert (counts.gamma, counts.rounds, counts.accepted) == (4, 134 + 99, 354 + 229)
    assert counts.reached == (109.0 + 77, 96.0 + 63, 83.0 + 49, 66.0 + 40)


def test_requests_before_statistics_are_in_them() -> None:
    log = request(100, 120, 200) + request(50, 70, 100) + statistics(2, 150, 190, 300)
    assert pooled_files([("log", log.encode())]).counts == (DraftCounts(2, 150, 190, 300),)


def test_lengths_that_fit_by_chance_are_not_told() -> None:
    """920 tokens in 31 drafts are 30 a draft less 10, as near to a multiple as one in three."""
    (found,) = read(NGRAMS)
    assert found.counts == DraftCounts(None, 31, 527, 920)


def test_rounds_follow_from_a_printed_length() -> None:
    found = by_source()
    # pull request #27342 (2026-08): 886 of 900 accepted, mean len 4.94, so 225 rounds of 4
    assert found["log of 1 request K=4"].counts == DraftCounts(4, 225, 886, 900)
    # lemonade-sdk/llamacpp-rocm issue #129: 5995 of 9089, mean len 4.30; two lengths of rounds
    # fit the printed length, one of them fits 5 draft tokens each
    assert found["log of 1 request K=5"].counts == DraftCounts(5, 1818, 5995, 9089)


REQUEST = (
    "slot print_timing: id 0 | task 1 |        eval time =     {ms} ms /   {tokens} tokens (x)\n"
    "slot print_timing: id 0 | task 1 | draft acceptance = {rate:.5f} (  {accepted} accepted /"
    "   {drafted} generated), mean len =  {length:.2f}\n"
)
STATISTICS = (
    "statistics  draft-mtp: #calls(b,g,a) = {begun} {rounds} {rounds}, #gen drafts = {rounds}, "
    "#acc drafts = {kept}, #gen tokens = {drafted}, #acc tokens = {accepted}, "
    "#mean acc len = {length:.2f}, dur(b,g,a) = 0.1, {ms}, 0.1 ms\n"
)


def request(rounds: int, accepted: int, drafted: int) -> str:
    return REQUEST.format(
        ms=20 * rounds,
        tokens=1 + rounds + accepted,
        rate=accepted / drafted,
        accepted=accepted,
        drafted=drafted,
        length=1 + accepted / rounds,
    )


def statistics(begun: int, rounds: int, accepted: int, drafted: int) -> str:
    return STATISTICS.format(
        begun=begun,
        rounds=rounds,
        kept=min(rounds, accepted),
        drafted=drafted,
        accepted=accepted,
        length=1 + accepted / rounds,
        ms=5 * rounds,
    )


def test_growing_statistics_count_once() -> None:
    log = request(100, 120, 200) + statistics(1, 100, 120, 200)
    log += request(50, 70, 100) + statistics(2, 150, 190, 300)
    (found,) = read(log)
    assert found.counts == DraftCounts(2, 150, 190, 300)
    assert [step.seconds for step in found.steps] == pytest.approx([20e-3, 20e-3])
    assert [step.draft_s for step in found.steps] == pytest.approx([5e-3, 5e-3])


def test_statistics_of_a_server_started_again_add_up() -> None:
    log = request(100, 120, 200) + statistics(1, 100, 120, 200)
    log += request(50, 70, 100) + statistics(1, 50, 70, 100)
    (found,) = read(log)
    assert found.counts == DraftCounts(2, 150, 190, 300)


def test_statistics_that_slots_count_apart_add_up() -> None:
    one = request(100, 120, 200) + statistics(1, 100, 120, 200)
    other = (request(30, 40, 60) + statistics(1, 30, 40, 60)).replace("id 0", "id 1")
    again = request(50, 70, 100) + statistics(2, 150, 190, 300)
    (found,) = read(one + other + again)
    assert found.counts == DraftCounts(2, 180, 230, 360)


def test_verification_that_was_counted_again_is_said() -> None:
    """As in ggml-org/llama.cpp #25682: requests count full acceptances alone, statistics all."""
    log = "draft acceptance rate = 1.00000 (  115 accepted /   115 generated)\n"
    log += (
        "statistics draft: #calls(b,g,a) = 1 82 33, #gen drafts = 81, #acc drafts = 33, "
        "#gen tokens = 214, #acc tokens = 115, dur(b,g,a) = 0.001, 999.634, 0.005 ms\n"
    )
    (found,) = read(log)
    assert found.counts is not None
    assert (found.counts.rounds, found.counts.accepted, found.counts.drafted) == (81, 115, 214)
    assert found.counts.gamma is None
    assert any("rolled back" in note for note in found.notes)
    assert any("not all of one length" in note for note in found.notes)


def test_positions_may_come_on_a_line_of_their_own() -> None:
    # The trace-level line of tools/server/server-context.cpp (0c1e57098), shares of pull request
    # #24536.
    log = (
        "draft acceptance = 0.64479 (  167 accepted /   259 generated), mean len =  2.92\n"
        "     acc per pos = (0.805, 0.632, 0.483)\n"
    )
    (found,) = read(log)
    assert found.counts == EAGLE3


def test_without_a_length_rounds_are_told_from_tokens_if_drafts_were_alike() -> None:
    # pull request #22673: 192 tokens in 14323.78 ms, 118 of 144 accepted
    log = (
        "eval time =   14323.78 ms /   192 tokens (   74.60 ms per token)\n"
        "draft acceptance rate = 0.81944 (  118 accepted /   144 generated)\n"
    )
    (found,) = read(log)
    assert found.counts == DraftCounts(2, 72, 118, 144)
    (varied,) = read(log.replace("144", "150").replace("0.81944", "0.78667"))
    assert varied.counts is None
    assert varied.totals is not None
    assert (varied.totals.accepted, varied.totals.drafted) == (118, 150)


def test_a_server_without_drafts_gives_plain_steps() -> None:
    log = "slot print_timing: id 0 | prompt eval time = 900.00 ms / 10 tokens\n"
    log += "slot print_timing: id 0 |        eval time =    2000.00 ms /   101 tokens\n"
    (found,) = read(log)
    (step,) = found.steps
    assert (step.gamma, step.seconds, step.steps) == (0, pytest.approx(20e-3), 100)


def test_a_scrape_is_counted_by_position() -> None:
    (found,) = read(sample("llama-cpp-metrics.txt"))
    assert found.counts == DraftCounts(3, 100.0, 150.0, 300.0, (80.0, 50.0, 20.0))


def test_totals_of_a_scrape_have_six_digits_and_positions_all() -> None:
    text = sample("llama-cpp-metrics.txt")
    for few, many in (("300", "3.70071e+06"), ("150", "1.85035e+06"), ("100", "1.23357e+06")):
        text = text.replace(f"total {few}\n", f"total {many}\n")
    for few, many in (("80", "986856"), ("50", "616785"), ("20", "246714")):
        text = text.replace(f"}} {few}\n", f"}} {many}\n")
    (found,) = read(text)
    assert found.counts is not None
    assert found.counts.gamma == 3
    assert found.counts.accepted == 986856 + 616785 + 246714
    with pytest.raises(SpecsimError, match="add up to"):
        read(text.replace("246714", "246799"))


def test_scrapes_that_lie_too_near_for_six_digits_are_refused() -> None:
    """A server of a million rounds prints none of the 84 between two scrapes."""
    text = "\n".join(
        f"llamacpp:spec_decode_{name} {{}}"
        for name in ("num_drafts", "num_draft_tokens", "num_accepted_tokens")
    )
    pair = [text.format("1.23457e+06", "3.7037e+06", "2.4e+06")]
    pair.append(text.format("1.23465e+06", "3.70395e+06", "2.40014e+06"))
    with pytest.raises(UnsupportedError, match="so few digits that both may be"):
        pooled_files([(f"scrape-{at}", each.encode()) for at, each in enumerate(pair)])


def test_a_scrape_before_the_first_request_has_no_positions() -> None:
    text = "".join(
        line for line in sample("llama-cpp-metrics.txt").splitlines(True) if "per_pos" not in line
    )
    (found,) = read(text)
    assert found.counts == DraftCounts(3, 100.0, 150.0, 300.0)


def test_drafts_cut_at_the_end_of_requests_leave_the_draft_length() -> None:
    cut = sample("llama-cpp-metrics.txt").replace("total 300", "total 296")
    found = pooled_files([("cut", cut.encode())])
    assert found.counts[0].gamma == 3
    assert any("up to 4.0% of the rounds at K = 3 drafted less" in note for note in found.notes)
    (varied,) = read(sample("llama-cpp-metrics.txt").replace("total 300", "total 250"))
    assert varied.counts is not None
    assert varied.counts.gamma is None


def test_timings_have_no_rounds() -> None:
    """347 draft tokens fit no single length in 134 steps (--draft-min 4, --draft-p-min 0.4)."""
    (found,) = read(sample("llama-cpp-timings.json.txt"))
    assert found.counts is None
    assert found.totals is not None
    # ggml-org/llama.cpp pull request #12603: 200 tokens, 65 of 347 accepted
    assert (found.totals.accepted, found.totals.drafted) == (65, 347)
    assert found.length is not None
    assert found.length.tokens_per_call == pytest.approx(199 / 134)


def test_timings_whose_drafts_were_alike_have_rounds_and_a_step_time() -> None:
    timings = '{"timings": {"predicted_n": 192, "predicted_ms": 14600.0, '
    timings += '"draft_n": 144, "draft_n_accepted": 118}}'
    (found,) = read(timings)
    assert found.counts == DraftCounts(2, 72, 118, 144)
    assert [step.seconds for step in found.steps] == pytest.approx([0.2])
    assert any("timings have no rounds" in note for note in found.notes)


LENGTH = "draft acceptance = 0.98444 (886 accepted / 900 generated), mean len = {}"
SERIES = (
    "statistics draft-mtp: #calls(b,g,a) = 1 9 {}, #gen drafts = 9, #acc drafts = {}, "
    "#gen tokens = 18, #acc tokens = {}"
)

test_figures_that_contradict_are_refused = refuses(
    (lambda: read(LENGTH.format("5.94").replace("0.98444", "0.9")), "is printed as 0.9, but"),
    (lambda: read(LENGTH.format("1.50")), "no number of rounds gives mean len = 1.5"),
    (lambda: read(LENGTH.format("1.00")), "no number of rounds gives mean len = 1 with"),
    (lambda: read(f"{LENGTH.format(4.94)}\ndraft acceptance = 0.5 (5 "), "line 2: .* not whole"),
    (lambda: read(CUT_SHORT.replace("0.493", "0.4,000")), "line 3: .* as many digits"),
    (lambda: read(SERIES.format(10, 5, 9)), "9 drafts cannot be 10 times verified"),
    (lambda: read(SERIES.format(9, 9, 8)), "9 times with some of 8 tokens accepted"),
    (lambda: read(SERIES.format(9, 9, 19)), "accepted must be at most drafted = 18, got 19"),
    (lambda: read('{"predicted_n": 5, "draft_n": 9, "draft_n_accepted": 7}'), "cannot have 7"),
    error=SpecsimError,
)
