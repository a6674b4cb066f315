"""Every decision from a profile, and the replay of a trace, under each law of acceptance."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

import specsim
from specsim import Load, deploy
from specsim.acceptance import ACCEPTANCE_LAWS, AcceptanceLaw
from specsim.checks import InvalidArgumentError
from specsim.files import file_digest
from specsim.predict.replay.fixed_gamma import replay
from specsim.predict.trace_rates import acceptance_rates, measured_under
from specsim.profiles import ProfileError, read_profile
from specsim.traces import Trace, TraceError, read_trace
from tests.support.command_line import fail, rows, run
from tests.support.profiles import rate, write, write_grid
from tests.support.refusals import refuses


def texts(folder: Path, law: AcceptanceLaw) -> Trace:
    return read_trace(folder / "p.trace.parquet", acceptance_law=law)


@pytest.mark.parametrize("law", ACCEPTANCE_LAWS)
def test_a_profile_is_replayed_under_the_law_asked_for(tmp_path: Path, law: AcceptanceLaw) -> None:
    path = write(tmp_path)
    found = specsim.evaluate(profile=path, gamma=3, acceptance_law=law)
    (row,) = found.rows()
    trace = texts(tmp_path, law)
    assert row["acceptance_law"] == law == found.inputs["acceptance_law"]
    assert row["tokens_per_call"] == pytest.approx(replay(trace, [3])[0].tokens_per_call)
    assert row["alpha"] == pytest.approx(trace.acceptance.mean())
    best = specsim.optimize(profile=path, acceptance_law=law).rows()[0]
    # What the best of several is flattered by is taken off.
    assert best["speedup"] >= 0.98 * row["speedup"]


def test_laws_differ_and_the_profiles_own_is_the_default(tmp_path: Path) -> None:
    path = write(tmp_path)
    asked = [specsim.evaluate(profile=path, gamma=3, acceptance_law=law) for law in ACCEPTANCE_LAWS]
    ratio, greedy, exact = (each.forecasts[0] for each in asked)
    assert specsim.evaluate(profile=path, gamma=3).forecasts[0] == ratio
    assert len({ratio.speedup, greedy.speedup, exact.speedup}) == 3
    # A draw that is also the target's own draw is the rarest: p q <= min(p, q).
    assert exact.tokens_per_call < ratio.tokens_per_call


def test_rates_and_their_intervals_follow_the_law(tmp_path: Path) -> None:
    path = write(tmp_path)
    profile = read_profile(path)
    measured = profile.acceptance[0]
    assert measured_under(profile, path, measured, None) is measured
    assert measured_under(profile, path, measured, "ratio-test") is measured
    greedy = measured_under(profile, path, measured, "greedy-drafts")
    alpha, survival, conditional = acceptance_rates(texts(tmp_path, "greedy-drafts"), 4, 0)
    assert (greedy.alpha, greedy.survival, greedy.conditional) == (alpha, survival, conditional)
    assert greedy.alpha.low < greedy.alpha.best < greedy.alpha.high
    assert greedy.acceptance_law == "greedy-drafts"


def test_by_load_survival_and_gains_follow_the_law(tmp_path: Path) -> None:
    path = write_grid(tmp_path)
    plans = {
        law: specsim.evaluate(profile=path, gamma=2, load=Load([4]), acceptance_law=law)
        for law in ACCEPTANCE_LAWS
    }
    for law, plan in plans.items():
        trace = texts(tmp_path, law)
        workload = plan.settings[0].workload
        assert plan.inputs["acceptance_law"] == law
        if law != "ratio-test":  # of which the profile has invented rates
            assert workload.survival == pytest.approx(trace.survival(4)[1:])
        expected = replay(trace, [2])[0].tokens_per_call
        assert plan.rows()[0]["tokens_per_call"] == pytest.approx(expected)
    own = specsim.evaluate(profile=path, gamma=2, load=Load([4]))
    assert own.rows() == plans["ratio-test"].rows()


def test_a_profile_may_be_of_any_law(tmp_path: Path) -> None:
    content = json.loads(write(tmp_path).read_text())
    usual = specsim.optimize(profile=tmp_path / "p.json", acceptance_law="exact-match").rows()
    measured = content["acceptance"][0]
    measured["acceptance_law"] = "exact-match"
    (tmp_path / "other.json").write_text(json.dumps(content))
    with pytest.raises(ProfileError, match="has a mean acceptance of"):
        specsim.optimize(profile=tmp_path / "other.json")
    measured["alpha"] = rate(float(texts(tmp_path, "exact-match").acceptance.mean()))
    other = tmp_path / "other.json"
    other.write_text(json.dumps(content))
    (found,) = specsim.optimize(profile=other).rows()
    assert found["acceptance_law"] == "exact-match"
    assert (found["gamma"], found["speedup"]) == (usual[0]["gamma"], usual[0]["speedup"])
    content["acceptance"][0]["acceptance_law"] = "typical"
    other.write_text(json.dumps(content))
    with pytest.raises(ProfileError, match=r"'typical' - at `\$.acceptance\[0\].acceptance_law`"):
        read_profile(other)


def test_older_traces_have_two_laws_and_at_temperature_0_all(tmp_path: Path) -> None:
    content = json.loads(write(tmp_path).read_text())
    file = tmp_path / "p.trace.parquet"
    pd.read_parquet(file).drop(columns="draft_rank").assign(
        logp_draft=lambda frame: np.where(frame.index % 3, 0.0, -np.inf)
    ).to_parquet(file)
    measured = content["acceptance"][0]
    measured["trace"]["sha256"] = file_digest(file)
    measured["alpha"] = rate(float(texts(tmp_path, "ratio-test").acceptance.mean()))
    path = tmp_path / "p.json"
    path.write_text(json.dumps(content))
    assert specsim.optimize(profile=path, acceptance_law="exact-match").rows()
    with pytest.raises(TraceError, match="needs the column draft_rank"):
        specsim.optimize(profile=path, acceptance_law="greedy-drafts")
    # The same text at temperature 0, where the distributions are one-hot.
    measured["sampling"]["temperature"] = 0.0
    for row in content["overhead"]:
        row["temperature"] = 0.0
    path.write_text(json.dumps(content))
    found = [specsim.optimize(profile=path, acceptance_law=law).rows() for law in ACCEPTANCE_LAWS]
    figures = [{**row, "acceptance_law": ""} for (row,) in found]
    assert figures[0] == figures[1] == figures[2]


def test_replay_of_a_file(tmp_path: Path) -> None:
    write(tmp_path)
    file = tmp_path / "p.trace.parquet"
    for law in ACCEPTANCE_LAWS:
        found = specsim.replay(file, [2], acceptance_law=law)
        assert found.inputs["acceptance_law"] == law
        assert found.lengths[0].calls == replay(texts(tmp_path, law), [2])[0].total_calls
    assert (
        specsim.replay(file, [2]).lengths
        == specsim.replay(file, [2], acceptance_law="ratio-test").lengths
    )


def test_as_typed(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    path = write_grid(tmp_path)
    law = ("--acceptance-law", "greedy-drafts")
    code, out, _ = run(
        capsys, "replay", f"{tmp_path}/p.trace.parquet", "--gamma", "3", *law, "--format", "json"
    )
    replayed = rows(out)[0]["tokens_per_call"]
    assert (code, json.loads(out)["inputs"]["acceptance_law"]) == (0, "greedy-drafts")
    by_profile = "evaluate", "--profile", f"{path}", "--gamma", "3", *law, "--format", "json"
    _, out, _ = run(capsys, *by_profile)
    assert rows(out)[0]["tokens_per_call"] == pytest.approx(replayed)
    _, out, _ = run(capsys, *by_profile, "--batch", "4")
    assert rows(out)[0]["tokens_per_call"] == pytest.approx(replayed)
    assert "acceptance_law needs a profile" in fail(
        capsys, "optimize", "--alpha", "0.8", "--c", "0.1", *law
    )


test_what_has_no_meaning_is_refused = refuses(
    (
        lambda: specsim.optimize(0.8, 0.1, acceptance_law="exact-match"),  # type: ignore[call-overload]
        "acceptance_law needs a profile",
    ),
    (
        lambda: specsim.optimize(  # type: ignore[call-overload]
            0.8,
            deployment=deploy("llama-3.1-8b", "H100-SXM", "draft_model:llama-3.2-1b"),
            acceptance_law="exact-match",
        ),
        "acceptance_law needs a profile",
    ),
    (
        lambda: specsim.optimize(  # type: ignore[call-overload]
            0.8, 0.1, scheme="speculative", candidates={}, acceptance_law="exact-match"
        ),
        "acceptance_law has no meaning for a scheme",
    ),
    (
        lambda: specsim.replay(
            Trace(np.ones(3), np.array([0, 3])), [1], acceptance_law="exact-match"
        ),
        "acceptance_law needs a file",
    ),
    (
        lambda: specsim.Measurement(acceptance_law="typical"),  # type: ignore[arg-type]
        "acceptance_law must be one of ratio-test, greedy-drafts, exact-match, got 'typical'",
    ),
)


def test_a_law_beside_an_acceptance_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InvalidArgumentError, match="no meaning beside alpha"):
        specsim.optimize(
            0.8, profile=write_grid(tmp_path), load=Load([1]), acceptance_law="exact-match"
        )
    with pytest.raises(InvalidArgumentError, match="must be one of ratio-test"):
        specsim.optimize(profile=write(tmp_path), acceptance_law="typical")  # type: ignore[call-overload]
