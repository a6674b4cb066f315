"""Trace files at the door."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from specsim.acceptance import ACCEPTANCE_LAWS, AcceptanceLaw
from specsim.checks import InvalidArgumentError, UnsupportedError
from specsim.laws import draft, verify
from specsim.predict.replay.fixed_gamma import replay
from specsim.traces import Trace, TraceError, read_trace


def frame() -> pd.DataFrame:
    return pd.DataFrame(
        {
            "request": ["a", "a", "a", "b", "b"],
            "position": [0, 1, 2, 0, 1],
            "logp_target": np.log([0.5, 0.2, 0.4, 1.0, 0.1]),
            "logp_draft": [np.log(0.25), np.log(0.3), -np.inf, 0.0, np.log(0.05)],
        }
    )


@pytest.mark.parametrize("suffix", [".csv", ".parquet"])
def test_acceptance_is_the_clipped_ratio(tmp_path: Path, suffix: str) -> None:
    file = tmp_path / f"trace{suffix}"
    frame().to_csv(file, index=False) if suffix == ".csv" else frame().to_parquet(file)
    trace = read_trace(file)
    assert trace.acceptance == pytest.approx([0.5, 1.0, 0.0, 1.0, 0.5])
    assert trace.starts.tolist() == [0, 3, 5]


def test_interleaved_requests_are_put_together(tmp_path: Path) -> None:
    file = tmp_path / "trace.csv"
    frame().iloc[[0, 3, 1, 4, 2]].to_csv(file, index=False)
    assert read_trace(file).acceptance == pytest.approx([0.5, 1.0, 0.0, 1.0, 0.5])


def test_argmax_equal_decides_when_greedy(tmp_path: Path) -> None:
    file = tmp_path / "trace.csv"
    frame().assign(argmax_equal=[1, 0, 1, 1, 0]).to_csv(file, index=False)
    assert read_trace(file, greedy=True).acceptance.tolist() == [1, 0, 1, 1, 0]


def test_take_repeats_requests(tmp_path: Path) -> None:
    file = tmp_path / "trace.csv"
    frame().to_csv(file, index=False)
    taken = read_trace(file).take(np.array([1, 0, 1]))
    assert taken.acceptance == pytest.approx([1.0, 0.5, 0.5, 1.0, 0.0, 1.0, 0.5])
    assert taken.lengths.tolist() == [2, 3, 2]


def test_a_trace_is_knowledge_of_acceptance() -> None:
    trace = Trace(np.array([0.5, 0.2, 0.4, 1.0, 0.1]), np.array([0, 3, 5]))
    # Starts with two tokens left: 0 and 1 of the first request, 0 of the second.
    one, two = (0.5 + 0.2 + 1.0) / 3, (0.1 + 0.08 + 0.1) / 3
    assert trace.survival(2) == pytest.approx([1, one, two])
    assert trace.conditional(2) == pytest.approx([one, two / one])
    block = verify(draft("d", 2), {"d": trace})
    assert block.tokens_per_call == pytest.approx(1 + one + two)
    with pytest.raises(TraceError, match="no request of the trace has 4 tokens"):
        trace.survival(4)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda f: f.drop(columns="logp_draft"), "missing column logp_draft"),
        (lambda f: f.assign(logp_target=[0.1] * 5), "logp_target must be <= 0"),
        (lambda f: f.assign(logp_draft=[0.2] * 5), "logp_draft must be <= 0"),
        (lambda f: f.assign(logp_target=[-np.inf] * 5), "logp_target must be finite"),
        (lambda f: f.assign(logp_draft=[np.nan] * 5), "empty or nan"),
        (lambda f: f.assign(position=[0, 1, 3, 0, 1]), "without a gap"),
        (lambda f: f.assign(position=[1, 2, 3, 0, 1]), "without a gap"),
        (lambda f: f.assign(logp_draft=["x"] * 5), "must hold numbers"),
        (lambda f: f.iloc[:0], "no rows"),
        (lambda f: f.assign(argmax_equal=[0, 1, 2, 0, 1]), "argmax_equal must be 0 or 1, got 2"),
        (lambda f: f.assign(argmax_equal=["x"] * 5), "argmax_equal must be 0 or 1, got x"),
        (lambda f: f.assign(context=[1, 2, 2.5, 0, 1]), "context must be a whole number"),
        (lambda f: f.assign(context=[1, 2, np.inf, 0, 1]), "context must be a whole number"),
        (lambda f: f.assign(found=[1e300] * 5, matched=0), "found must be a whole number"),
        (lambda f: f.assign(found=1), "found and matched go together"),
        (lambda f: f.assign(found=1, matched=2), "matched must be <= found, got 2 of 1"),
        (lambda f: f.assign(beta=[0, 1, 1.1, 0, 1]), r"beta must be in \[0, 1\], got 1.1 in row 2"),
        (lambda f: f.assign(draft_top=["x"] * 5), r"draft_top must be in \[0, 1\], got x in row 0"),
        (lambda f: f.assign(beta=["x" * 81] * 5), "got x{80} in row 0"),
        (lambda f: f.assign(context=["x" * 81] * 5), "got x{80} in row 0"),
        (lambda f: f.assign(draft_entropy=[-1.0] * 5), r"draft_entropy must be in \[0, inf\]"),
        (
            lambda f: f.assign(draft_rank=[1, 2, 0, 1, 1]),
            r"draft_rank must be .* \[1, 255\], got 0",
        ),
        (lambda f: f.assign(draft_rank=[1, 2, 256, 1, 1]), "draft_rank must be .* got 256"),
        (
            lambda f: f.assign(draft_rank=[1, 2, None, 1, 1]),
            "draft_rank must be .* got nan in row 2",
        ),
    ],
)
def test_bad_traces_are_refused(tmp_path: Path, change: object, message: str) -> None:
    file = tmp_path / "trace.csv"
    change(frame()).to_csv(file, index=False)  # type: ignore[operator]
    with pytest.raises(TraceError, match=message):
        read_trace(file)


def test_greedy_needs_its_column(tmp_path: Path) -> None:
    file = tmp_path / "trace.csv"
    frame().to_csv(file, index=False)
    with pytest.raises(TraceError, match="argmax_equal"):
        read_trace(file, greedy=True)


def test_missing_unreadable_and_unknown_files_are_refused(tmp_path: Path) -> None:
    with pytest.raises(TraceError, match="no such file"):
        read_trace(tmp_path / "none.csv")
    (tmp_path / "broken.parquet").write_bytes(b"PAR1 is not enough")
    with pytest.raises(TraceError, match="cannot be read"):
        read_trace(tmp_path / "broken.parquet")
    (tmp_path / "trace.pkl").write_bytes(b"")
    with pytest.raises(TraceError, match="must end in"):
        read_trace(tmp_path / "trace.pkl")


# By hand.  Tokens with p = 0.5, 0.2, 0.4, 1 and 0.1, q = 0.25, 0.3, 0, 1 and 0.05.
LAWS = {
    "ratio-test": [0.5, 1.0, 0.0, 1.0, 0.5],  # min(1, q / p)
    "greedy-drafts": [0, 1, 0, 1, 0],  # is it the draft's first choice?
    "exact-match": [0.25, 0.3, 0.0, 1.0, 0.05],  # q
}


@pytest.mark.parametrize("law", ACCEPTANCE_LAWS)
@pytest.mark.parametrize("suffix", [".csv", ".parquet"])
def test_a_trace_answers_for_every_law(tmp_path: Path, law: AcceptanceLaw, suffix: str) -> None:
    file = tmp_path / f"trace{suffix}"
    ranked = frame().assign(draft_rank=np.array([2, 1, 255, 1, 9], np.uint8))
    ranked.to_csv(file, index=False) if suffix == ".csv" else ranked.to_parquet(file)
    trace = read_trace(file, acceptance_law=law)
    assert trace.acceptance == pytest.approx(LAWS[law])
    # A block of one draft on the first request, whatever is drafted: 1 - a_0 more calls for [0].
    first, second, _ = trace.acceptance[:3]
    by_hand = 1 + (1 - first) + (first + (1 - first) * (1 - second))
    assert replay(trace, [1])[0].calls[0] == pytest.approx(by_hand)


def test_a_trace_without_ranks_says_so_and_stays_readable(tmp_path: Path) -> None:
    file = tmp_path / "trace.csv"
    frame().assign(argmax_equal=[1, 0, 1, 1, 0]).to_csv(file, index=False)
    with pytest.raises(TraceError, match="greedy-drafts needs the column draft_rank") as refused:
        read_trace(file, acceptance_law="greedy-drafts")
    assert "\n" not in str(refused.value)
    assert read_trace(file, acceptance_law="exact-match").tokens == 5
    # At temperature 0 all laws agree, and argmax_equal is enough.
    for law in ACCEPTANCE_LAWS:
        assert read_trace(file, greedy=True, acceptance_law=law).acceptance.tolist() == [
            *(1, 0, 1, 1, 0)
        ]


def test_an_unknown_law_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InvalidArgumentError, match="must be one of ratio-test, greedy-drafts"):
        read_trace(tmp_path / "trace.csv", acceptance_law="typical")  # type: ignore[arg-type]


def test_numbers_that_are_written_as_words_are_numbers(tmp_path: Path) -> None:
    file = tmp_path / "trace.parquet"
    frame().assign(context=["1", "2", "3", "1", "2"]).to_parquet(file)
    assert read_trace(file).columns["context"].tolist() == [1, 2, 3, 1, 2]
    table = frame().assign(found=["9", "10", "10", "9", "9"], matched=["2", "9", "10", "0", "9"])
    table.to_parquet(file)
    assert read_trace(file).columns["matched"].tolist() == [2, 9, 10, 0, 9]
    table.assign(matched="10").to_parquet(file)
    with pytest.raises(TraceError, match="matched must be <= found, got 10 of 9 in row 0"):
        read_trace(file)


def test_columns_that_a_trace_does_not_have_are_not_read(tmp_path: Path) -> None:
    file = tmp_path / "trace.parquet"
    frame().assign(tags=[["a"], [], ["b"], [], []]).to_parquet(file)
    assert read_trace(file).tokens == 5


def test_requests_of_lists_are_refused(tmp_path: Path) -> None:
    file = tmp_path / "trace.parquet"
    frame().assign(request=[["a"], ["a"], ["a"], ["b"], ["b"]]).to_parquet(file)
    with pytest.raises(TraceError, match="column request must hold numbers or words, got list"):
        read_trace(file)


LARGEST = float(2**53)


@pytest.mark.parametrize(
    ("name", "usual", "taken", "refused"),
    [
        # Rounding of float32 logarithms, and of sums over a vocabulary.
        ("logp_target", -1.0, [0.0, 0.9e-6, -1e300], [1.1e-6, 1.0]),
        ("logp_draft", -1.0, [0.0, 0.9e-6, -np.inf], [1.1e-6, 1.0]),
        *(
            (name, 0.5, [0.0, 1.0, -0.9e-5, 1 + 0.9e-5], [-1.1e-5, 1 + 1.1e-5])
            for name in ("beta", "target_top", "draft_top")
        ),
        *(
            (name, 0.5, [0.0, 1e9, -0.9e-5], [-1.1e-5])
            for name in ("target_entropy", "draft_entropy")
        ),
        ("argmax_equal", 1.0, [0.0, 1.0], [-1.0, 0.5, 2.0]),
        *(
            (name, 7.0, [0.0, 1.0, LARGEST], [-1.0, 0.5, LARGEST + 2])
            for name in ("context", "token")
        ),
        ("draft_rank", 7.0, [1.0, 255.0], [0.0, 1.5, 256.0]),
        ("found", 7.0, [0.0, LARGEST], [-1.0, 0.5, LARGEST + 2]),
    ],
)
def test_values_are_taken_up_to_their_ends(
    tmp_path: Path, name: str, usual: float, taken: list[float], refused: list[float]
) -> None:
    file = tmp_path / "trace.parquet"

    def read(value: float) -> Trace:
        table = frame().assign(matched=0) if name == "found" else frame()
        table.assign(**{name: [usual, usual, usual, value, usual]}).to_parquet(file)
        return read_trace(file)

    for value in taken:
        assert read(value).tokens == 5
    for value in refused:
        with pytest.raises(TraceError, match=rf"{name} must be .* in row 3$"):
            read(value)


def test_the_row_that_is_wrong_is_named(tmp_path: Path) -> None:
    file = tmp_path / "trace.parquet"
    for change, message in (
        ({"logp_draft": [0, 0, np.nan, 0, 0]}, "column logp_draft is empty or nan in row 2"),
        ({"request": ["a", "a", "a", None, "b"]}, "column request is empty or nan in row 3"),
        ({"logp_target": [0, -np.inf, 0, 0, 0]}, "got -inf in row 1"),
        ({"position": [0, 1, 2, 0, 2]}, "row 4 has position 2, expected 1"),
        ({"position": [0, 1, 1, 0, 1]}, "row 2 has position 1, expected 2"),
        ({"found": 3, "matched": [3, 0, 4, 3, 3]}, "matched must be <= found, got 4 of 3 in row 2"),
        ({"matched": 0}, "found and matched go together"),
    ):
        frame().assign(**change).to_parquet(file)
        with pytest.raises(TraceError, match=message):
            read_trace(file)


def test_rows_know_their_request(tmp_path: Path) -> None:
    file = tmp_path / "trace.parquet"
    frame().assign(context=[5, 6, 7, 9, 10]).to_parquet(file)
    trace = read_trace(file)
    assert (trace.requests, trace.tokens, trace.lengths.tolist()) == (2, 5, [3, 2])
    assert trace.positions.tolist() == [0, 1, 2, 0, 1]
    assert [row.tolist() for row in trace.rows()] == [
        trace.acceptance[:3].tolist(),
        trace.acceptance[3:].tolist(),
    ]
    assert trace.take(np.array([1, 0])).columns["context"].tolist() == [9, 10, 5, 6, 7]
    assert trace.survived(3)[:, 0].tolist() == [1, 0]
    assert trace.survived(4).tolist() == [[0] * 5] * 2


def test_of_a_lookup_the_first_draft_is_what_is_accepted(tmp_path: Path) -> None:
    file = tmp_path / "trace.parquet"
    frame().assign(found=2, matched=[0, 1, 2, 0, 2], draft_rank=3).to_parquet(file)
    for law in ACCEPTANCE_LAWS:
        trace = read_trace(file, acceptance_law=law)
        assert trace.by_lookup
        assert trace.acceptance.tolist() == [0, 1, 1, 0, 1]
    with pytest.raises(UnsupportedError, match="adaptation needs the trace of a draft model"):
        trace.require_model("adaptation")
    of_model = Trace(np.ones(2), np.array([0, 2]))
    of_model.require_model("adaptation")
    assert not of_model.by_lookup
