"""The law of a block and of a proposal: fast code against slow twins, limits, refusals."""

from __future__ import annotations

import re
from collections import defaultdict

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from specsim import laws
from specsim.acceptance import Acceptance, ConstantAcceptance, acceptance_of, tokens_per_call
from specsim.checks import InvalidArgumentError, UnsupportedError
from specsim.laws import (
    TARGET,
    BlockLaw,
    ProposalLaw,
    Run,
    concatenate,
    draft,
    propose,
    propose_at_least,
    verify,
)
from specsim.schemes import SpeculativeDecoding
from tests.support.contract import acceptances
from tests.support.traces import trace_of

READ = Run("reader", 3)


@st.composite
def proposals(draw: st.DrawFn) -> ProposalLaw:
    """Any proposal of one to three producers, with runs that depend on the outcome."""
    producers = tuple("abc"[: draw(st.integers(1, 3))])
    rows = draw(
        st.lists(
            st.lists(st.integers(0, 4), min_size=len(producers), max_size=len(producers)),
            min_size=1,
            max_size=6,
        )
    )
    weight = np.array(draw(st.lists(st.integers(1, 9), min_size=len(rows), max_size=len(rows))))
    counts = draw(st.lists(st.floats(0, 5), min_size=len(rows), max_size=len(rows)))
    lengths = np.array(rows, dtype=np.int64).reshape(len(rows), len(producers))
    return ProposalLaw(weight / weight.sum(), lengths, producers, {READ: np.array(counts)})


@st.composite
def blocks(draw: st.DrawFn) -> BlockLaw:
    """Any block that emits 1..4 tokens."""
    tokens = draw(st.lists(st.integers(1, 4), min_size=1, max_size=5))
    size = len(tokens)
    weight = np.array(draw(st.lists(st.integers(1, 9), min_size=size, max_size=size)))
    counts = draw(st.lists(st.floats(0, 5), min_size=size, max_size=size))
    return BlockLaw(weight / weight.sum(), np.array(tokens), {READ: np.array(counts)})


Slow = tuple[dict[int, float], dict[tuple[int, Run], float]]


def by_tokens(law: BlockLaw) -> Slow:
    """P(N = n) and E[runs; N = n]."""
    mass: dict[int, float] = defaultdict(float)
    runs: dict[tuple[int, Run], float] = defaultdict(float)
    for i, (chance, n) in enumerate(zip(law.probability, law.tokens, strict=True)):
        mass[int(n)] += chance
        for run, count in law.runs.items():
            runs[int(n), run] += chance * count[i]
    return mass, runs


def same(found: Slow, wanted: Slow) -> None:
    for mine, theirs in zip(found, wanted, strict=True):
        for key in {*mine, *theirs}:
            assert mine.get(key, 0.0) == pytest.approx(theirs.get(key, 0.0), rel=1e-12, abs=1e-13)


def verified_slowly(
    proposal: ProposalLaw, acceptance: dict[str, Acceptance], verifier: str, bonus: bool
) -> Slow:
    """``verify``, one outcome and one position at a time."""
    mass: dict[int, float] = defaultdict(float)
    runs: dict[tuple[int, Run], float] = defaultdict(float)
    for i, chance in enumerate(proposal.probability):
        names = [
            name
            for name, length in zip(proposal.producers, proposal.lengths[i], strict=True)
            for _ in range(length)
        ]
        ends = []  # (tokens, probability)
        alive = chance
        for position, name in enumerate(names):
            rate = acceptance[name].conditional(position + 1)[position]
            ends.append((position + 1, alive * (1 - rate)))
            alive *= rate
        ends.append((len(names) + 1 if bonus or not names else len(names), alive))
        read = Run(verifier, len(names) + 1 if bonus or not names else len(names))
        for tokens, part in ends:
            mass[tokens] += part
            runs[tokens, read] += part
            for run, count in proposal.runs.items():
                runs[tokens, run] += part * count[i]
    return mass, runs


@given(proposals(), st.tuples(acceptances, acceptances, acceptances), st.booleans())
def test_verify_is_its_slow_twin(proposal, known, bonus) -> None:
    acceptance = dict(zip("abc", known, strict=True))
    law = verify(proposal, acceptance, bonus=bonus)
    assert law.probability.sum() == pytest.approx(1, abs=1e-14)
    same(by_tokens(law), verified_slowly(proposal, acceptance, TARGET, bonus))


@given(proposals(), acceptances)
def test_verify_adds_to_runs_that_the_proposal_has_already(proposal, acceptance) -> None:
    """The reader proposes and verifies: its runs of one width are counted together."""
    known = dict.fromkeys("abc", acceptance)
    law = verify(proposal, known, verifier="reader")
    same(by_tokens(law), verified_slowly(proposal, known, "reader", True))


@given(st.lists(st.floats(0, 1), min_size=2, max_size=40), st.integers(1, 9))
def test_without_a_bonus_blocks_start_as_behind_one_draft_less(
    rates: list[float], gamma: int
) -> None:
    """Along a text the block of gamma drafts without a bonus emits as many tokens, with the same
    chances, as that of gamma - 1 with one.
    """
    known = acceptance_of(trace_of(rates * 20))
    found = SpeculativeDecoding(gamma, bonus=False).law(known)
    expected = tokens_per_call(known, gamma)[gamma - 1]
    assert found.tokens_per_call == pytest.approx(expected, rel=1e-9)


def test_without_a_bonus_lengths_zero_and_one_share_a_run() -> None:
    proposal = ProposalLaw(np.array([0.5, 0.5]), np.array([[0], [1]]), ("a",))
    law = verify(proposal, {"a": ConstantAcceptance(0.3)}, bonus=False)
    assert law.expected_runs() == {Run(TARGET, 1): 1.0}
    assert law.tokens_per_call == 1


@given(blocks(), st.integers(0, 4))
def test_propose_is_repetition(block, steps) -> None:
    """``steps`` independent blocks, every combination of outcomes one by one."""
    mass: dict[int, float] = {0: 1.0}
    runs: dict[int, float] = {0: 0.0}
    for _ in range(steps):
        after, after_runs = defaultdict(float), defaultdict(float)
        for length in mass:
            for i, n in enumerate(block.tokens.tolist()):
                chance = block.probability[i]
                after[length + n] += mass[length] * chance
                after_runs[length + n] += chance * (
                    runs[length] + mass[length] * block.runs[READ][i]
                )
        mass, runs = after, after_runs
    check_proposal(propose(block, "a", steps), mass, runs)


@given(blocks(), st.integers(0, 6))
def test_propose_at_least_stops_at_once(block, tokens) -> None:
    mass: dict[int, float] = defaultdict(float)
    runs: dict[int, float] = defaultdict(float)
    waiting = [(0, 1.0, 0.0)]  # length, probability, runs on the way
    while waiting:
        length, chance, count = waiting.pop()
        if length >= tokens:
            mass[length] += chance
            runs[length] += chance * count
            continue
        for i, n in enumerate(block.tokens.tolist()):
            waiting.append((length + n, chance * block.probability[i], count + block.runs[READ][i]))
    check_proposal(propose_at_least(block, "a", tokens), mass, runs)


def check_proposal(found: ProposalLaw, mass: dict[int, float], runs: dict[int, float]) -> None:
    assert found.producers == ("a",)
    lengths = found.lengths[:, 0].tolist()
    assert lengths == sorted(mass)
    np.testing.assert_allclose(found.probability, [mass[n] for n in lengths], rtol=1e-12)
    np.testing.assert_allclose(
        found.probability * found.runs[READ], [runs[n] for n in lengths], rtol=1e-12, atol=1e-14
    )


def test_a_block_that_may_emit_nothing_has_no_length_to_reach() -> None:
    block = BlockLaw(np.array([0.5, 0.5]), np.array([0, 1]))
    with pytest.raises(InvalidArgumentError, match="may emit nothing"):
        propose_at_least(block, "a", 3)


@given(proposals(), proposals())
def test_concatenate_is_every_pair(first, second) -> None:
    second = ProposalLaw(second.probability, second.lengths, tuple("xyz")[: len(second.producers)])
    both = concatenate([first, second])
    pairs = [
        (p * q, [*a, *b], runs)
        for p, a, runs in zip(
            first.probability, first.lengths.tolist(), first.runs[READ], strict=True
        )
        for q, b in zip(second.probability, second.lengths.tolist(), strict=True)
    ]
    np.testing.assert_allclose(both.probability, [p for p, _, _ in pairs])
    assert both.lengths.tolist() == [lengths for _, lengths, _ in pairs]
    np.testing.assert_allclose(both.runs[READ], [count for *_, count in pairs])
    assert both.producers == first.producers + second.producers


def test_concatenated_proposals_may_run_other_models() -> None:
    """A kind of run that one of them lacks is none there, whatever their numbers of outcomes."""
    chances = np.array([0.5, 0.25, 0.25])
    first = ProposalLaw(
        chances, np.array([[0], [1], [2]]), ("a",), {Run("a", 1): np.array([1.0, 2.0, 3.0])}
    )
    second = ProposalLaw(
        np.array([0.5, 0.5]), np.array([[4], [5]]), ("b",), {Run("b", 7): np.array([10.0, 20.0])}
    )
    both = concatenate([first, second])
    assert both.runs[Run("a", 1)].tolist() == [1, 1, 2, 2, 3, 3]
    assert both.runs[Run("b", 7)].tolist() == [10, 20] * 3
    assert concatenate([second, first]).runs[Run("a", 1)].tolist() == [1, 2, 3] * 2
    three = concatenate([first, second, draft("c", 2)])
    assert three.producers == ("a", "b", "c")
    assert three.runs[Run("c", 1)].tolist() == [2] * 6


def test_drafts() -> None:
    assert draft("d", 3).runs[Run("d", 1)] == 3
    assert draft("d", 3, runs_per_token=False).runs == {Run("d", 3): 1.0}
    assert draft("d", 0).runs == draft("d", 0, runs_per_token=False).runs == {}
    assert draft("d", 1, runs_per_token=False).runs == {Run("d", 1): 1.0}
    with pytest.raises(InvalidArgumentError, match="length must be a whole number >= 0, got -1"):
        draft("d", -1)


@given(blocks())
def test_readings_of_a_law(block) -> None:
    mass, runs = by_tokens(block)
    assert block.tokens_per_call == pytest.approx(sum(n * p for n, p in mass.items()))
    np.testing.assert_allclose(block.token_law(), [mass.get(n, 0) for n in range(max(mass) + 1)])
    mean = sum(runs.values())
    assert block.calls("reader") == pytest.approx(mean)
    assert block.positions("reader") == pytest.approx(3 * mean)
    assert block.cost(lambda run: 2.0 * run.positions) == pytest.approx(6 * mean)
    by_outcome = block.cost_by_outcome(lambda run: 2.0 * run.positions)
    assert block.probability @ by_outcome == pytest.approx(6 * mean)


def test_a_law_is_checked_where_it_is_made() -> None:
    one = np.ones(1, dtype=np.int64)
    with pytest.raises(InvalidArgumentError, match=r"sums to 0\.9"):
        BlockLaw(np.array([0.9]), one)
    for shape in ((1, 1), (0,), ()):
        with pytest.raises(InvalidArgumentError, match="one row with at least one outcome"):
            BlockLaw(np.ones(shape), np.ones(shape, dtype=np.int64))
    # What cannot be is an outcome as well; sums are kept to nine digits.
    assert BlockLaw(np.array([0.0, 1.0]), np.array([1, 2])).tokens_per_call == 2
    BlockLaw(np.array([1 + 5e-10]), one)
    with pytest.raises(InvalidArgumentError, match=r"sums to 1\.000000002"):
        BlockLaw(np.array([1 + 2e-9]), one)
    with pytest.raises(InvalidArgumentError, match="probability must be >= 0"):
        BlockLaw(np.array([-0.5, 1.5]), np.array([1, 1]))
    with pytest.raises(InvalidArgumentError, match="tokens must have one entry per outcome"):
        BlockLaw(np.ones(1), np.array([1, 2]))
    with pytest.raises(InvalidArgumentError, match="one entry per outcome"):
        BlockLaw(np.ones(1), one, {Run("d", 1): np.ones(2)})
    with pytest.raises(InvalidArgumentError, match="one column per producer"):
        ProposalLaw(np.ones(1), np.ones((1, 2), dtype=np.int64), ("a",))


def test_what_is_too_large_is_refused_at_once() -> None:
    lengths = np.arange(100_000)[:, None]
    proposal = ProposalLaw(np.full(100_000, 1e-5), lengths, ("a",))
    with pytest.raises(UnsupportedError, match="too large"):
        verify(proposal, {"a": ConstantAcceptance(0.5)})
    block = verify(draft("a", 5), {"a": ConstantAcceptance(0.5)})
    with pytest.raises(UnsupportedError, match="too large"):
        propose(block, "b", 10**6)


def test_runs_are_told_apart_by_their_model() -> None:
    runs = {Run("a", 2): np.array([1.0, 3.0]), Run("b", 5): np.array([2.0, 0.0])}
    block = BlockLaw(np.array([0.25, 0.75]), np.array([1, 2]), runs)
    assert block.calls("a") == 0.25 + 0.75 * 3
    assert block.calls("b") == 0.25 * 2
    assert block.positions("a") == 2 * block.calls("a")
    assert block.positions("b") == 5 * block.calls("b")
    assert block.calls("c") == block.positions("c") == 0
    assert block.cost_by_outcome(lambda run: 10.0 * run.positions).tolist() == [20 + 100, 60]


def test_the_largest_law_is_one_of_so_many_cells(monkeypatch: pytest.MonkeyPatch) -> None:
    """Tables are counted before they are made, to the cell."""
    laws.check_size(2**24)
    with pytest.raises(UnsupportedError, match=r"1\.7e\+07 cells .* the most is 1\.7e\+07"):
        laws.check_size(2**24 + 1)
    always = {"a": ConstantAcceptance(0.5)}
    three = verify(draft("a", 2), always)  # emits 1, 2 or 3 tokens: a law of 4 cells
    either = ProposalLaw(np.array([0.5, 0.5]), np.array([[0], [5]]), ("a",))
    for cells, call in (
        # outcomes by positions, then outcomes of the block by lengths proposed
        (12, lambda: verify(draft("a", 11), always)),
        (12, lambda: verify(either, {"a": ConstantAcceptance(0.0)})),
        (14, lambda: verify(either, always)),
        # every step convolves the law with that of the steps before
        (4 * (1 + 4 * 6), lambda: propose(three, "b", 4)),
        # one place after another
        ((5 + 4 - 1) + 5 * 4, lambda: propose_at_least(three, "b", 5)),
    ):
        monkeypatch.setattr(laws, "_LARGEST", cells)
        call()
        monkeypatch.setattr(laws, "_LARGEST", cells - 1)
        with pytest.raises(UnsupportedError, match=re.escape(f"a law with {cells:.1e} cells")):
            call()


def test_a_proposal_of_too_many_tokens_is_refused_by_its_length() -> None:
    wide = BlockLaw(np.array([1.0]), np.array([200]))
    with pytest.raises(UnsupportedError, match="a law with"):
        propose_at_least(wide, "a", 2**17)
    with pytest.raises(UnsupportedError, match=r"at least 131,073 tokens .* the most is 131,072"):
        propose_at_least(wide, "a", 2**17 + 1)


@pytest.mark.parametrize("gap", [1e-15, 1e-12, 2.3e-10, 1e-6, 1e-3])
def test_a_million_positions_keep_their_precision(gap) -> None:
    """The sum of probabilities and E[N] at gamma = 10**6; a plain running product loses 1e-11."""
    alpha, gamma = 1 - gap, 10**6
    law = verify(draft("a", gamma), {"a": ConstantAcceptance(alpha)})
    assert law.probability.sum() == pytest.approx(1, rel=1e-12)
    gap = 1 - alpha
    wanted = -np.expm1((gamma + 1) * np.log1p(-gap)) / gap
    assert law.tokens_per_call == pytest.approx(wanted, rel=1e-12)
