"""Calls on schemes: what they return and refuse, and a scheme that nobody has seen before."""

from __future__ import annotations

import importlib.util
import json
import shlex
from pathlib import Path

import numpy as np
import pytest

import specsim
from specsim.acceptance import BetaAcceptance, PerPositionAcceptance
from specsim.checks import InvalidArgumentError, UnsupportedError
from specsim.cli import main
from specsim.cost import Cost, LinearVerify
from specsim.predict import renewal
from specsim.schemes import (
    SCHEMES,
    Acceptances,
    AdaptiveEstimate,
    AdaptiveHeuristic,
    BeamSearch,
    BigLittle,
    DraftedAccepted,
    FallbackRollback,
    PlainDecoding,
    Scheme,
    SpeculativeDecoding,
    VerticalCascade,
)
from tests.support.command_line import fail
from tests.support.refusals import refuses

NEW_SCHEME = '''
"""Two target runs in every block: the second one reads the first one's token once more."""

from dataclasses import dataclass

import numpy as np

from specsim.laws import TARGET, BlockLaw, Run, draft, verify
from specsim.schemes.base import Scheme
from specsim.schemes.fields import INTEGER, described
from specsim.schemes.known import Acceptances


@dataclass(frozen=True)
class ReadTwice(Scheme):
    """Speculative decoding that reads everything twice."""

    example = "--alpha 0.8 --gamma 5 --c 0.05"
    pairs = (("draft", TARGET),)

    gamma: int = described("Draft tokens per block, >= 0.", INTEGER)

    def law(self, known):
        rates = {"draft": Acceptances.of(known).by_pair(self.pairs)["draft", TARGET]}
        once = verify(draft("draft", self.gamma), rates)
        read = Run(TARGET, self.gamma + 1)
        return BlockLaw(once.probability, once.tokens, {**once.runs, read: 2 * once.runs[read]})
'''


@pytest.fixture
def read_twice(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> type[Scheme]:
    """One new file and one line in the dict of names."""
    path = tmp_path / "read_twice.py"
    path.write_text(NEW_SCHEME)
    spec = importlib.util.spec_from_file_location("read_twice", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    monkeypatch.setitem(SCHEMES, "read-twice", module.ReadTwice)
    return module.ReadTwice


def run(capsys: pytest.CaptureFixture[str], *words: str) -> dict[str, object]:
    """The only row that ``specsim WORDS`` prints."""
    with pytest.raises(SystemExit) as ended:
        main([*words, "--format", "json"])
    captured = capsys.readouterr()
    assert (ended.value.code or 0, captured.err) == (0, "")
    (row,) = json.loads(captured.out)["answer"]["rows"]
    return row


@pytest.mark.parametrize("verb", ["evaluate", "simulate", "optimize"])
def test_a_new_scheme_has_its_commands(
    capsys: pytest.CaptureFixture[str], read_twice: type[Scheme], verb: str
) -> None:
    row = run(capsys, verb, "read-twice", *shlex.split(read_twice.example))
    assert row["scheme"] == "read-twice"
    # 1 + 0.8 + ... + 0.8^5 tokens for five drafts and two target runs.
    wanted = sum(0.8**i for i in range(6)) / 2.25
    assert row["speedup"] == pytest.approx(wanted, rel=0.01)
    with pytest.raises(SystemExit):
        main([verb, "read-twice", "--help"])
    assert "Draft tokens per block, >= 0." in capsys.readouterr().out


def test_a_new_scheme_has_its_calls(read_twice: type[Scheme]) -> None:
    wanted = renewal.speedup(read_twice(5).law(0.8), Cost({"draft": 0.05}))
    assert specsim.evaluate(scheme=read_twice(5), alpha=0.8, c=0.05).speedup == wanted
    drawn = specsim.simulate(read_twice(5), alpha=0.8, c=0.05, level=1 - 1e-6).drawn
    assert drawn.speedup.low < wanted < drawn.speedup.high
    found = specsim.optimize(
        scheme="read-twice", candidates={"gamma": range(20)}, alpha=0.8, c=0.05
    )
    assert found.speedup >= wanted
    assert found.searched == {"gamma": found.scheme.gamma}
    assert read_twice(5).label == "gamma 5"
    assert read_twice(5).row_fields() == {"drafters": "draft", "gamma": 5}
    document = json.loads(found.to_json())
    assert document["schema"] == "specsim.optimize_scheme"
    assert document["answer"]["candidates"] == 20


def test_an_evaluation_is_the_renewal_figures() -> None:
    scheme, known = VerticalCascade(("a", "b"), 3, at_least=(5,)), Acceptances.of_pairs(0.8, 0.6)
    found = specsim.evaluate(
        scheme=scheme, known=known, c=0.1, costs={"b": 0.02}, verify_slope=0.01, overhead=0.1
    )
    cost = Cost({"a": 0.1, "b": 0.02}, LinearVerify(0.01), 0.1)
    law = scheme.law(known)
    assert found.figures == renewal.stationary(law, cost)
    assert found.runs == {model: law.calls(model) for model in ("a", "b", "target")}
    assert found.rows()[0]["a_runs_per_block"] == law.calls("a")
    said = json.loads(found.to_json())["inputs"]
    assert said["description"]["at_least"] == [5]
    assert said["known"]["alpha"][1] == {"kind": "ConstantAcceptance", "alpha": 0.6}


def test_the_baseline_is_the_schemes_own() -> None:
    # Plain beam search reads every beam; so does a search that drafts nothing.
    scheme = BeamSearch(0, beams=4, draft_beam=4)
    assert specsim.evaluate(scheme=scheme, alpha=0.5, c=0.1, verify_slope=0.3).speedup == 1
    drawn = specsim.simulate(scheme, alpha=0.5, c=0.1, verify_slope=0.3).drawn
    assert drawn.speedup.best == 1
    assert specsim.evaluate(scheme=PlainDecoding()).speedup == 1


def test_acceptance_in_all_its_forms() -> None:
    scheme = SpeculativeDecoding(3)

    def tokens(**known: object) -> float:
        return specsim.evaluate(scheme=scheme, c=0.1, **known).tokens_per_call

    assert tokens(alpha=[0.9, 0.5]) == pytest.approx(1 + 0.9 + 0.45 + 0.225)
    assert tokens(alpha=BetaAcceptance(8, 2)) > tokens(alpha=0.8)
    assert tokens(known=Acceptances({("draft", "target"): 0.8})) == tokens(alpha=0.8)
    # One acceptance for every pair, or one for each.
    cascade = VerticalCascade(("a", "b"), 3, steps=(2,))
    both = specsim.evaluate(scheme=cascade, alpha=0.7, c=0.1).tokens_per_call
    each = specsim.evaluate(scheme=cascade, known=Acceptances.of_pairs(0.7, [0.7, 0.7]), c=0.1)
    assert both == pytest.approx(each.tokens_per_call, rel=1e-14)


def test_a_search_over_what_is_known() -> None:
    knowns = [FallbackRollback(f, r) for f in (0.3, 0.1, 0.2) for r in (0.05, 0.01)]
    found = specsim.optimize(
        scheme="bild", candidates={"window": [2, 5], "rescore": True}, known=knowns, c=0.05
    )
    assert found.searched == {"window": 5, "fallback": 0.1, "rollback": 0.01}
    assert found.candidates == 12
    assert found.scheme == BigLittle(5, rescore=True)


def test_policies_are_drawn_and_not_evaluated() -> None:
    scheme = AdaptiveEstimate(0.05)
    with pytest.raises(UnsupportedError, match="use its policy"):
        specsim.evaluate(scheme=scheme, alpha=0.8, c=0.05)
    assert specsim.simulate(scheme, alpha=0.8, c=0.05, blocks=10_000).drawn.speedup.best > 2.5
    assert specsim.evaluate(scheme=AdaptiveHeuristic(), alpha=0.8, c=0.05).speedup > 2.5


def test_requests_have_their_own_row() -> None:
    found = specsim.simulate(
        SpeculativeDecoding(5), alpha=0.8, c=0.05, tokens=40, requests=500, seed=3
    )
    row = found.rows()[0]
    assert (row["requests"], row["tokens"]) == (500, 40)
    assert row["cost_p50"] <= row["cost_p95"] <= row["cost_p99"]
    assert found.inputs["seed"] == 3


test_what_is_refused = refuses(
    (
        lambda: specsim.evaluate(scheme=SpeculativeDecoding(5), alpha=0.8),
        "c is missing: the cost of",
    ),
    (
        lambda: specsim.evaluate(scheme=SpeculativeDecoding(5), alpha=0.8, costs={"big": 0.1}),
        "the scheme's drafters are: draft",
    ),
    (
        lambda: specsim.evaluate(scheme=SpeculativeDecoding(5), alpha=np.array([0.8, 0.7]), c=0.1),
        "alpha must be one acceptance here",
    ),
    (
        lambda: specsim.simulate(SpeculativeDecoding(5), 0.8, known=Acceptances(0.8), c=0.1),
        "alpha and known exclude each other",
    ),
    (
        lambda: specsim.evaluate(scheme=SpeculativeDecoding(5), c=0.1),
        "alpha must say what the law of SpeculativeDecoding takes, Acceptances, got None",
    ),
    (
        lambda: specsim.evaluate(scheme=BigLittle(), alpha=0.8, c=0.1),
        "known must say .* BigLittle takes, FallbackRollback or DraftedAccepted, got Acc",
    ),
    (
        lambda: specsim.optimize(scheme="nope", candidates={}, alpha=0.8, c=0.1),
        "no scheme is named 'nope'",
    ),
    (
        lambda: specsim.optimize(
            scheme="speculative", candidates={"gamma": range(30_000)}, alpha=0.8, c=0.1
        ),
        "the search has 30,000 candidates",
    ),
    (
        lambda: specsim.evaluate(scheme=BigLittle(), known=DraftedAccepted(((1.0,),)), c=0.1),
        "was it counted with the window 0",
    ),
)


def test_combinations_that_a_scheme_refuses_are_counted() -> None:
    found = specsim.optimize(
        *(0.7, 0.05),
        scheme="beam-search",
        candidates={"gamma": [2], "beams": [2, 4], "draft_beam": [3, 8]},
    )
    assert found.candidates == 3
    (left_out,) = found.left_out
    assert left_out.what == "1 of 4 combinations"
    assert "draft_beam must be a whole number >= 4" in left_out.why
    with pytest.raises(InvalidArgumentError, match="draft_beam must be"):
        specsim.optimize(
            *(0.7, 0.05),
            scheme="beam-search",
            candidates={"gamma": [2], "beams": [4], "draft_beam": [2, 3]},
        )


def test_rates_that_could_have_meant_another_kind_say_how_they_were_read(
    capsys: pytest.CaptureFixture[str],
) -> None:
    rates, scheme = [0.8, 0.72, 0.66], SpeculativeDecoding(3)
    said = "alpha 0.8,0.72,0.66 was read as conditional rates"
    for known in ({"alpha": rates}, {"known": Acceptances.of_pairs(rates)}):
        for found in (
            specsim.evaluate(scheme=scheme, c=0.05, **known),
            specsim.optimize(scheme="speculative", candidates={"gamma": [3]}, c=0.05, **known),
            specsim.simulate(scheme, c=0.05, blocks=1000, **known),
        ):
            (line,) = found.warnings
            assert line.startswith(said)
    for verb in ("evaluate", "optimize", "simulate"):
        words = [verb, "speculative", "--gamma", "3", "--alpha", "0.8,0.72,0.66", "--c", "0.05"]
        with pytest.raises(SystemExit):
            main(words)
        assert said in capsys.readouterr().err
    # Which says itself what it is.
    named = PerPositionAcceptance(tuple(rates))
    assert specsim.evaluate(scheme=scheme, alpha=named, c=0.05).warnings == ()


def test_what_is_drawn_says_how_far_acceptance_goes() -> None:
    """As far as the scheme has a law in the long run, which tells its longest draft."""
    found = specsim.simulate(SpeculativeDecoding(5), [0.7, 0.8], c=0.05, blocks=1000)
    (line,) = found.warnings
    assert "given for 2 positions, and the last, 0.8, is taken to hold on to gamma 5" in line
    for scheme in (AdaptiveEstimate(0.05), AdaptiveHeuristic(gamma_max=4000)):
        assert specsim.simulate(scheme, [0.7, 0.8], c=0.05, blocks=1000).warnings == ()


def test_a_search_takes_alpha_for_what_is_known_of_each() -> None:
    asked = {"scheme": "speculative", "candidates": {"gamma": [5]}, "c": 0.05}
    alone = specsim.optimize(0.8, **asked)
    assert specsim.optimize(0.8, known=[None], **asked).speedup == alone.speedup
    with pytest.raises(InvalidArgumentError, match="alpha and known exclude each other"):
        specsim.optimize(0.8, known=[Acceptances(0.6), Acceptances(0.7)], **asked)


test_what_is_drawn_is_said_in_one_way = refuses(
    (
        lambda: specsim.simulate(SpeculativeDecoding(5), 0.8, c=0.1, requests=50),
        "requests needs tokens, how many each request has",
    ),
    (
        lambda: specsim.simulate(SpeculativeDecoding(5), 0.8, c=0.1, tokens=9, blocks=50),
        "blocks has no meaning with tokens: requests says how many are drawn",
    ),
)


def test_what_would_be_ignored_is_refused_where_it_is_typed(
    capsys: pytest.CaptureFixture[str],
) -> None:
    words = ["simulate", *shlex.split("speculative --alpha 0.8 --gamma 5 --c 0.1")]
    assert "requests needs tokens" in fail(capsys, *words, "--requests", "10000")
    assert "blocks has no meaning" in fail(capsys, *words, "--tokens", "9", "--blocks", "1000000")
