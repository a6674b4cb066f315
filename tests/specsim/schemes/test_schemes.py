"""Schemes of one drafter, under the contract; and the closed forms of specsim.formulas."""

from __future__ import annotations

import dataclasses
from importlib import import_module
from pathlib import Path

import mpmath as mp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from specsim import formulas
from specsim.acceptance import SurvivalAcceptance
from specsim.checks import InvalidArgumentError, UnsupportedError
from specsim.cost import Cost
from specsim.laws import TARGET, BlockLaw, Run
from specsim.predict import operations, renewal
from specsim.rules import Lenient, Lossless, Opt
from specsim.schemes import (
    SCHEMES,
    Acceptances,
    AdaptiveEstimate,
    AdaptiveHeuristic,
    BeamSearch,
    BigLittle,
    Deferral,
    DraftedAccepted,
    FallbackRollback,
    OracleGamma,
    PlainDecoding,
    SequenceCascade,
    SpecDec,
    SpeculativeCascade,
    SpeculativeDecoding,
    TokenCascade,
    VerticalCascade,
)
from tests.support.contract import (
    EDGES,
    SchemeContract,
    acceptances,
    chances,
    check_closed,
    check_histories,
    close,
    coin_acceptances,
    coins,
    costs,
    geometric,
    read_cost,
    sizes,
    small,
    survival_sum,
)
from tests.support.mechanisms import play, random_coin


class TestPlain(SchemeContract):
    example = PlainDecoding()
    plain = PlainDecoding()


class TestSpeculative(SchemeContract):
    example = SpeculativeDecoding(5)
    known = Acceptances(0.8)
    plain = SpeculativeDecoding(0)
    huge = SpeculativeDecoding(10**6)
    huge_known = Acceptances(1 - 1e-6)
    models = ("draft",)

    @given(acceptances, sizes, st.booleans(), st.booleans(), costs(["draft"]))
    def test_closed_form(self, acceptance, gamma, bonus, one_run, cost) -> None:
        scheme = SpeculativeDecoding(gamma, bonus=bonus, one_run=one_run)
        last = gamma if bonus else max(gamma - 1, 0)
        tokens = survival_sum(acceptance.conditional(last))
        runs = min(gamma, 1) if one_run else gamma
        read = read_cost(cost, mp.mpf(last + 1))
        check_closed(scheme, acceptance, cost, (tokens, runs * mp.mpf(cost.drafts["draft"]) + read))

    @given(coin_acceptances, small, st.booleans(), st.booleans())
    def test_histories(self, acceptance, gamma, bonus, one_run) -> None:
        scheme = SpeculativeDecoding(gamma, bonus=bonus, one_run=one_run)
        check_histories(scheme, Acceptances(acceptance))

    @pytest.mark.parametrize("alpha", EDGES)
    @pytest.mark.parametrize("c", [0.0, 0.3])
    @pytest.mark.parametrize("gamma", [1, 2000, 10**6])
    def test_limits(self, alpha, c, gamma) -> None:
        """alpha 0 and 1 and within 1e-15 of 1, c 0, gamma up to a million."""
        closed = (geometric(alpha, gamma), 1 + gamma * mp.mpf(c))
        check_closed(SpeculativeDecoding(gamma), alpha, Cost({"draft": c}), closed)

    @settings(max_examples=15)
    @given(st.floats(-15, -1), st.floats(0, 6))
    def test_long_blocks_near_one(self, log_gap, log_gamma) -> None:
        alpha, gamma = 1 - 10**log_gap, int(10**log_gamma)
        closed = (geometric(alpha, gamma), 1 + gamma * mp.mpf(0.1))
        check_closed(SpeculativeDecoding(gamma), alpha, Cost({"draft": 0.1}), closed)

    def test_real_tokens_of_two_toy_models(self) -> None:
        """Speculative sampling on real distributions: alpha = sum min(p, q) gives the law.

        Chi-square over 6 outcomes in 20,000 blocks, critical value at 1e-6: 36.
        """
        rng = np.random.default_rng(3)
        p, q = np.array([0.5, 0.2, 0.2, 0.1]), np.array([0.2, 0.5, 0.1, 0.2])
        alpha, gamma, blocks = np.minimum(p, q).sum(), 5, 20_000
        drafts = rng.choice(4, size=(blocks, gamma), p=q)
        stands = rng.random((blocks, gamma)) < np.minimum(1, p / q)[drafts]
        tokens = 1 + np.cumprod(stands, axis=1).sum(axis=1)
        law = SpeculativeDecoding(gamma).law(alpha).token_law()[1:]
        seen = np.bincount(tokens, minlength=gamma + 2)[1:]
        assert ((seen - blocks * law) ** 2 / (blocks * law)).sum() < 36

    def test_what_is_refused(self) -> None:
        with pytest.raises(InvalidArgumentError, match="alpha must be a number, got 'high'"):
            SpeculativeDecoding(5).law("high")
        with pytest.raises(InvalidArgumentError, match=r"alpha must be in \[0, 1\], got 1.2"):
            SpeculativeDecoding(5).law(1.2)
        with pytest.raises(InvalidArgumentError, match="alpha must have 1 entries, one or one"):
            SpeculativeDecoding(5).law(Acceptances.of_pairs(0.8, 0.7))
        with pytest.raises(InvalidArgumentError, match="the acceptance of 'draft' by 'target'"):
            SpeculativeDecoding(5).law({("draft", "middle"): 0.8})
        with pytest.raises(UnsupportedError, match="SpeculativeDecoding carries no state"):
            SpeculativeDecoding(5).policy()
        with pytest.raises(InvalidArgumentError, match="gamma must be a whole number >= 0, got -1"):
            SpeculativeDecoding(-1)
        with pytest.raises(InvalidArgumentError, match="not 'target'"):
            SpeculativeDecoding(1, draft="target")
        curve = SurvivalAcceptance((0.8, 0.6))
        assert SpeculativeDecoding(2).law(curve).tokens_per_call == pytest.approx(2.4)
        with pytest.raises(UnsupportedError, match="survival curve ends at position 2, 3 asked"):
            SpeculativeDecoding(3).law(curve)

    def test_laws_of_acceptance(self) -> None:
        """They change who is accepted, which is given, and no law of a block."""
        usual = SpeculativeDecoding(3)
        greedy = SpeculativeDecoding(3, acceptance_law="greedy-drafts")
        assert greedy.law(0.8).tokens_per_call == usual.law(0.8).tokens_per_call
        assert (usual.label, greedy.label) == ("draft 3", "draft 3, greedy-drafts")
        assert greedy.lossless
        with pytest.raises(InvalidArgumentError, match="acceptance_law must be one of ratio-test"):
            SpeculativeDecoding(3, acceptance_law="typical")
        with pytest.raises(
            UnsupportedError, match=r"Lenient changes .* exact-match has no meaning"
        ):
            SpeculativeDecoding(3, rule=Lenient(0.5), acceptance_law="exact-match")
        with pytest.raises(UnsupportedError, match=r"Opt changes .* greedy-drafts has no meaning"):
            SpeculativeCascade(3, acceptance_law="greedy-drafts")


class TestSpeculativeCascade(SchemeContract):
    example = SpeculativeCascade(4)
    known = Acceptances(0.8)
    plain = SpeculativeCascade(0)
    huge = SpeculativeCascade(10**6)
    huge_known = Acceptances(1 - 1e-6)
    models = ("draft",)

    @given(acceptances, sizes, costs(["draft"]))
    def test_closed_form(self, acceptance, gamma, cost) -> None:
        """One draft run more with probability S_gamma (Narasimhan24 Algorithm 4)."""
        tokens = survival_sum(acceptance.conditional(gamma))
        whole = survival_sum(acceptance.conditional(gamma)) - survival_sum(
            acceptance.conditional(gamma)[:-1]
        )
        runs = gamma + (whole if gamma else 0)
        price = runs * mp.mpf(cost.drafts["draft"]) + read_cost(cost, mp.mpf(gamma + 1))
        check_closed(SpeculativeCascade(gamma), acceptance, cost, (tokens, price))

    @given(coin_acceptances, small)
    def test_histories(self, acceptance, gamma) -> None:
        check_histories(SpeculativeCascade(gamma), Acceptances(acceptance))

    @given(acceptances, sizes)
    def test_a_lossless_rule_is_speculative_decoding(self, acceptance, gamma) -> None:
        found = SpeculativeDecoding(gamma, rule=Lossless()).law(acceptance)
        wanted = SpeculativeDecoding(gamma).law(acceptance)
        assert found.expected_runs() == wanted.expected_runs()
        assert SpeculativeDecoding(gamma, rule=Opt(0.1)) != SpeculativeCascade(gamma)


class TestSpecDec(SchemeContract):
    example = SpecDec()
    known = Acceptances(0.9)
    plain = SpecDec(0)
    huge = SpecDec(10**6)
    models = ("draft",)

    @given(acceptances, sizes, st.booleans(), costs(["draft"]))
    def test_closed_form(self, acceptance, k, bonus, cost) -> None:
        """E[N] = S_0 + ... + S_{k-1} (Xia22), S_k more with the bonus token; cost c + v + o."""
        last = k if bonus else max(k - 1, 0)
        tokens = survival_sum(acceptance.conditional(last))
        price = mp.mpf(cost.drafts["draft"]) + read_cost(cost, mp.mpf(last + 1))
        check_closed(SpecDec(k, bonus=bonus), acceptance, cost, (tokens, price))

    @given(coin_acceptances, small, st.booleans())
    def test_histories(self, acceptance, k, bonus) -> None:
        check_histories(SpecDec(k, bonus=bonus), Acceptances(acceptance))


class TestOracle(SchemeContract):
    example = OracleGamma(20)
    known = Acceptances(0.8)
    plain = OracleGamma(0)
    huge = OracleGamma(10**6)
    huge_known = Acceptances(0.999)
    models = ("draft",)

    @given(chances, sizes, costs(["draft"]))
    def test_closed_form(self, alpha, gamma_max, cost) -> None:
        tokens = geometric(alpha, gamma_max)
        price = (tokens - 1) * mp.mpf(cost.drafts["draft"]) + read_cost(cost, tokens)
        # A block that drafts nothing is a plain step.
        nothing = 1 - mp.mpf(alpha)
        price += nothing * (mp.mpf(cost.plain_overhead) - mp.mpf(cost.overhead))
        check_closed(OracleGamma(gamma_max), alpha, cost, (tokens, price))

    @given(coin_acceptances, small)
    def test_histories(self, acceptance, gamma_max) -> None:
        check_histories(OracleGamma(gamma_max), Acceptances(acceptance))


class TestBigLittle(SchemeContract):
    example = BigLittle()
    known = FallbackRollback(0.15, 0.05)
    plain = BigLittle(0)
    huge = BigLittle(10**6)
    huge_known = FallbackRollback(1e-5, 0.05)
    models = ("small",)

    @given(chances, chances, sizes, st.booleans(), costs(["small"]))
    def test_closed_form(self, f, r, window, rescore, cost) -> None:
        u, s = 1 - mp.mpf(f), 1 - mp.mpf(r)
        drafted = geometric(u, window) - 1
        runs = geometric(u, window - 1)
        tokens = geometric(u * s, window)
        stands = mp.mpf(f) * geometric(u * s, window - 1) + (u * s) ** window  # E[s^J]
        if r > 1e-9:  # theory's form, a difference of nearly equal numbers below that
            assert abs((1 - s * stands) / mp.mpf(r) - tokens) < 1e-30
        price = runs * mp.mpf(cost.drafts["small"]) + read_cost(cost, 1 + drafted)
        if rescore:
            price += 1 - stands
        # The law takes 1 - f and 1 - r rounded, as any code must.
        known = FallbackRollback(f, r)
        check_closed(BigLittle(window, rescore=rescore), known, cost, (tokens, price))

    @given(coins, coins, small, st.booleans())
    def test_histories(self, f, r, window, rescore) -> None:
        check_histories(BigLittle(window, rescore=rescore), FallbackRollback(f, r))

    def test_fractions_are_per_emitted_token(self) -> None:
        coin = random_coin(4)
        scheme = BigLittle(rescore=True)
        played = [play(scheme, self.known, coin) for _ in range(20_000)]
        tokens = sum(n for n, _ in played)
        rollbacks = sum(runs.total() - runs[Run("small", 1)] > 1 for _, runs in played)
        # Each is within 5.5 standard errors (about 1.5 %): a false alarm in 1e7.
        assert close(scheme.fractions(self.known).fallback, len(played) / tokens, 0.03)
        assert close(scheme.fractions(self.known).rollback, rollbacks / tokens, 0.08)

    def test_figure_8_is_a_law_of_this_family(self) -> None:
        """Kim23 Figure 8, CNN/DM: operations 1.11, memory operations about 1/5, speed 1.85.

        T5-small over T5-large: 60 M over 737 M parameters.  Some (f, r) meets operations and
        memory at once, and its roofline bound, all memory and no host time, exceeds the 1.85.
        """
        ratio = 60 / 737
        hits = []
        for f in np.linspace(0, 0.3, 31):
            for r in np.linspace(0, 0.1, 21):
                law = BigLittle().law(FallbackRollback(f, r))
                found = operations.operations(law, {"small": ratio}, {"small": ratio})
                if abs(found.operations - 1.11) < 0.02 and abs(1 / found.memory - 5) < 0.5:
                    assert close(found.intensity, found.operations / found.memory)
                    hits.append((f, r, 1 / found.memory))
        assert hits
        assert all(bound > 1.85 for *_, bound in hits)


class TestBigLittleCounted(SchemeContract):
    example = BigLittle(2)
    known = DraftedAccepted(((3.0,), (1.0, 4.0), (0.5, 0.5, 6.0)))
    models = ("small",)

    @given(chances, chances, st.integers(0, 6), st.booleans())
    def test_independent_table_is_bild(self, f, r, window, rescore) -> None:
        """The table of independent fallback and rollback gives the law of BigLittle."""
        table = []
        for j in range(window + 1):
            drafted = (1 - f) ** j * (f if j < window else 1)
            row = [(1 - r) ** m * r for m in range(j)] + [(1 - r) ** j]
            table.append(tuple(drafted * weight for weight in row))
        scheme = BigLittle(window, rescore=rescore)
        joint, single = DraftedAccepted(tuple(table)), FallbackRollback(f, r)
        found, wanted = scheme.law(joint), scheme.law(single)
        np.testing.assert_allclose(found.token_law(), wanted.token_law(), atol=1e-13)
        for run, count in wanted.expected_runs().items():
            assert found.expected_runs().get(run, 0.0) == pytest.approx(count, abs=1e-12)
        assert scheme.fractions(joint) == pytest.approx(scheme.fractions(single), abs=1e-12)

    def test_histories(self) -> None:
        check_histories(self.example, self.known)
        check_histories(dataclasses.replace(self.example, rescore=True), self.known)

    def test_a_window_of_nothing_is_plain_decoding(self) -> None:
        assert renewal.speedup(BigLittle(0).law(DraftedAccepted(((2.0,),))), self.cost()) == 1

    def test_what_is_refused(self) -> None:
        with pytest.raises(InvalidArgumentError, match="table row 1 must have 2 entries"):
            DraftedAccepted(((1.0,), (1.0,)))
        with pytest.raises(InvalidArgumentError, match="weight > 0"):
            DraftedAccepted(((0.0,),))
        with pytest.raises(InvalidArgumentError, match=r"window \+ 1 = 11 rows, got 3"):
            BigLittle().law(self.known)


class TestTokenCascade(SchemeContract):
    example = TokenCascade()
    known = Deferral(0.2)
    plain = TokenCascade(0)
    huge = TokenCascade(10**6)
    huge_known = Deferral(1e-5)
    models = ("small",)

    @given(chances, sizes, costs(["small"]))
    def test_closed_form(self, d, cap, cost) -> None:
        u = 1 - mp.mpf(d)
        drafted, runs = geometric(u, cap) - 1, geometric(u, cap - 1)
        price = runs * mp.mpf(cost.drafts["small"]) + read_cost(cost, 1 + drafted)
        check_closed(TokenCascade(cap), d, cost, (1 + drafted, price))

    @given(coins, small)
    def test_histories(self, d, cap) -> None:
        check_histories(TokenCascade(cap), Deferral(d))


class TestSequenceCascade(SchemeContract):
    example = SequenceCascade(12)
    known = Deferral(0.3)
    models = ("small",)

    @given(chances, st.integers(1, 50), st.floats(0.001, 2))
    def test_closed_form(self, d, length, c) -> None:
        law = SequenceCascade(length).law(d)
        assert close(renewal.speedup(law, Cost({"small": c})), 1 / (c + mp.mpf(d)))
        calls = renewal.tokens_per_call(law)
        assert calls == np.inf if d == 0 else close(calls, 1 / mp.mpf(d))
        check_histories(SequenceCascade(length), Deferral(d))


class TestBeamSearch(SchemeContract):
    example = BeamSearch(3, beams=4, draft_beam=8)
    known = Acceptances(0.7)
    plain = BeamSearch(0, beams=1, draft_beam=1)
    huge = BeamSearch(10**6, beams=4, draft_beam=8)
    models = ("draft",)

    @given(acceptances, sizes, st.integers(1, 8), st.integers(0, 8))
    def test_closed_form(self, acceptance, gamma, beam, wider) -> None:
        """Leviathan23 A.4: the target scores w + u gamma positions."""
        law = BeamSearch(gamma, beam, beam + wider).law(acceptance)
        assert close(law.tokens_per_call, survival_sum(acceptance.conditional(gamma)))
        assert close(law.positions(TARGET), beam + (beam + wider) * gamma)
        assert close(law.calls(TARGET), 1)

    @given(coin_acceptances, small)
    def test_histories(self, acceptance, gamma) -> None:
        check_histories(BeamSearch(gamma, 2, 3), Acceptances(acceptance))

    def test_a_narrow_draft_beam_is_refused(self) -> None:
        with pytest.raises(InvalidArgumentError, match="draft_beam must be a whole number >= 4"):
            BeamSearch(3, beams=4, draft_beam=3)


class TestFormulas:
    """specsim.formulas, written apart from the laws, gives the same to 1e-12."""

    @given(chances, sizes, st.booleans(), st.booleans(), costs(["draft"]))
    def test_speculative(self, alpha, gamma, bonus, one_run, cost) -> None:
        scheme = SpeculativeDecoding(gamma, "draft", bonus, one_run)
        law, cost = scheme.law(alpha), dataclasses.replace(cost, plain_overhead=0.0)
        assert close(law.tokens_per_call, formulas.tokens_per_call(alpha, gamma, bonus=bonus))
        wanted = formulas.speedup(
            alpha,
            cost.drafts["draft"],
            gamma,
            verify_slope=cost.verify.slope,
            overhead=cost.overhead,
            draft_once=one_run,
            bonus=bonus,
        )
        assert close(renewal.speedup(law, cost), wanted)

    @given(chances, chances, st.integers(0, 5), st.integers(0, 8), chances, chances)
    def test_vertical(self, alpha, inner, n, k, c1, c2) -> None:
        known = Acceptances.of_pairs(alpha, inner)
        law = VerticalCascade(("a", "b"), k, steps=(n,)).law(known)
        wanted = formulas.vertical_speedup(alpha, inner, n, k, c1, c2)
        assert close(renewal.speedup(law, Cost({"a": c1, "b": c2})), wanted)

    @given(chances, sizes, st.integers(1, 60))
    def test_finite(self, alpha, gamma, tokens) -> None:
        law = SpeculativeDecoding(gamma).law(alpha)
        found = renewal.finite(law, Cost({"draft": 0.0}), tokens)
        assert close(found.calls, formulas.calls_for(tokens, alpha, gamma))


def test_every_name_has_a_contract() -> None:
    for path in Path(__file__).parent.glob("test_*.py"):
        import_module(f"{__package__}.{path.stem}")  # its contracts are counted too
    tested = {type(contract.example) for contract in SchemeContract.__subclasses__()}
    assert tested | {AdaptiveHeuristic, AdaptiveEstimate} == set(SCHEMES.values())


def test_law_is_immutable_data() -> None:
    assert dataclasses.is_dataclass(BlockLaw)
    for scheme in SCHEMES.values():
        assert scheme.__dataclass_params__.frozen
