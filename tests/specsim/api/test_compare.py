"""``specsim.compare``: which figures belong together, and what is more than chance."""

from __future__ import annotations

import copy
import json
from collections.abc import Callable
from math import inf, isnan, log, sqrt
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import specsim
from specsim import Load, PricedDrafter, Result, deploy
from specsim.api.compare import read_side
from specsim.api.compared import FigureKey, figures, flat
from specsim.api.compared_files import in_plain_steps
from specsim.checks import SpecsimError
from specsim.counts.file import (
    SCHEMA,
    VERSION,
    AcceptanceFile,
    CountedRounds,
    Source,
    TimedPrompt,
    TimedStep,
    TimedStreamedStep,
    TimedStreams,
    write_acceptance,
)
from specsim.intervals import Interval
from specsim.schemes import SpeculativeDecoding
from tests.support.mutations import SAMPLES
from tests.support.profiles import overhead, write, write_grid
from tests.support.refusals import refuses
from tests.support.traces import trace_of

ROOT = Path(__file__).parents[3]
LLAMAS = deploy("llama-3.1-8b", "H100-SXM", "draft_model:llama-3.2-1b")
CALLS: dict[str, Callable[[Path], Result]] = {
    "evaluation": lambda _: specsim.evaluate(0.8, 0.05, 5),
    "sweep": lambda _: specsim.optimize(np.array([0.5, 0.8]), [[0.1], [0.2]]),
    "profile": lambda folder: specsim.optimize(profile=write(folder)),
    "grid": lambda folder: specsim.optimize(profile=write_grid(folder), load=Load([1, 99])),
    "shapes": lambda _: specsim.optimize(0.8, deployment=LLAMAS, load=Load([1, 8], [512, 1024])),
    "scheme": lambda _: specsim.evaluate(0.8, 0.05, scheme=SpeculativeDecoding(gamma=5)),
    "drawn": lambda _: specsim.simulate(SpeculativeDecoding(gamma=5), 0.8, c=0.05),
    "allocation": lambda _: specsim.allocate(
        [PricedDrafter("a", 0.8, 0.05), PricedDrafter("b", 0.7, 0.01)]
    ),
    "replay": lambda _: specsim.replay(trace_of([0.9, 0.5, 0.7, 1.0]), range(1, 4), c=0.1),
    "extrapolation": lambda _: specsim.extrapolate([0.8, 0.6], 4, counts=100),
    "explanation": lambda _: specsim.explain(0.7, gamma=5, deployment=LLAMAS),
    "export": lambda _: specsim.export("vllm", deployment=LLAMAS, alpha=0.8, model="d", most=8),
}
# As vLLM prints it, with counts and rates by position.
LOG = (
    "SpecDecoding metrics: Mean acceptance length: {length:.2f}, Accepted: {accepted} tokens, "
    "Drafted: {drafted} tokens, Per-position acceptance rate: {rates}, "
    "Avg Draft acceptance rate: {share:.1f}%"
)


def document(*rows: dict[str, Any], schema: str = "specsim.load-plan", **more: Any) -> Any:
    """The JSON form of a result with these rows."""
    answer = {**more.pop("answer", {}), "rows": list(rows)}
    return {"schema": schema, "specsim": "0", "inputs": {}, "answer": answer, **more}


def row(speedup: float, reach: float | None = 0.1, **more: Any) -> dict[str, Any]:
    """At a batch, with an interval of so many nats either way."""
    ends = {}
    if reach is not None:
        ends = {"low": speedup * float(np.exp(-reach)), "high": speedup * float(np.exp(reach))}
    return {"batch": 1, "context": 512, "speedup": speedup, **ends, **more}


@pytest.mark.parametrize("name", list(CALLS))
def test_a_result_is_the_same_as_itself_and_as_its_file(name: str, tmp_path: Path) -> None:
    result = CALLS[name](tmp_path)
    file = tmp_path / "result.json"
    file.write_text(result.to_json())
    found = specsim.compare(result, file)
    assert not found.differs
    assert set(found.counts) == {"same"}
    assert not found.left_out
    assert found.other_inputs == {}
    assert len(found.rows()) == len(found.frame()) >= 1
    # Rows of one table are told apart by what they are of, not by their order.
    assert all(place != "row" for each in found.figures for place, _ in each.key.setting)


def test_an_interval_belongs_to_its_figure_by_whatever_name() -> None:
    found = figures(
        "rows",
        [
            {
                "latency": "ttft",
                "p99_ms": 3.0,
                "p99_ms_low": 2.0,
                "p99_ms_high": 5.0,
                "speedup": 1.5,
                "low": 1.4,
                "high": 1.7,
                "gamma": 3,
                "gamma_low": 2,
                "predicted_speedup": 2.0,
                "predicted_low": 1.9,
                "predicted_high": 2.2,
                "marginal": [0.8, 0.5],
                "marginal_low": [0.7, 0.4],
                "marginal_high": [0.9, 0.6],
                "runs": {"draft": 4.0},
                "met": True,
                "why": "it is slow",
                "unknown": 7.0,
            }
        ],
        frozenset(("latency",)),
    )
    by_name = {key.figure: value for key, value in found.items()}
    assert by_name.pop("met") is True
    assert {key.setting for key in found} == {(("latency", "ttft"),)}
    unknown = [by_name.pop(name) for name in ("gamma", "runs.draft", "unknown")]
    assert all(isinstance(each, Interval) and isnan(each.low) for each in unknown)
    assert by_name == {
        "p99_ms": Interval(2.0, 3.0, 5.0),
        "speedup": Interval(1.4, 1.5, 1.7),
        "predicted_speedup": Interval(1.9, 2.0, 2.2),
        "marginal 1": Interval(0.7, 0.8, 0.9),
        "marginal 2": Interval(0.4, 0.5, 0.6),
    }


def test_lists_of_low_best_high_are_intervals_where_results_write_them_so() -> None:
    metrics = {"goodput": [9.0, 10.0, 12.0], "ttft": {"p99": [1.0, 2.0, 3.0]}}
    told = {"latency": "ttft", "p99_ms": 2000.0, "p99_ms_low": 1000.0, "p99_ms_high": 3000.0}
    serving = document(told, schema="specsim.serving", answer={"metrics": metrics})
    values = read_side(serving, "first").values
    assert values[FigureKey("", (), "metrics.goodput")] == Interval(9.0, 10.0, 12.0)
    # What the rows say is not said again.
    assert [key.figure for key in values] == ["p99_ms", "metrics.goodput"]
    other = read_side({**serving, "schema": "specsim.other"}, "first").values
    assert FigureKey("", (), "metrics.goodput 1") in other


def test_an_interval_of_another_level_is_taken_as_one_of_95_percent() -> None:
    drawn = document({"speedup": 2.0, "speedup_low": 1.8, "speedup_high": 2.1, "level": 0.9})
    (value,) = read_side(drawn, "first").values.values()
    assert isinstance(value, Interval)
    # z of 95 % over z of 90 %: 1.959964 / 1.644854.
    assert 2 - value.low == pytest.approx(0.2 * 1.191573, abs=1e-5)
    assert value.high - 2 == pytest.approx(0.1 * 1.191573, abs=1e-5)


def test_beyond_chance_is_what_a_reader_works_out_by_hand() -> None:
    first, second = document(row(1.5), row(2.0, batch=8)), document(row(2.0), row(2.1, batch=8))
    found = specsim.compare(first, second)
    one, eight = found.figures
    assert one.key.where == "batch 1, context 512"
    assert one.apart == pytest.approx(log(2.0 / 1.5) / (0.1 * sqrt(2)))
    assert eight.apart == pytest.approx(log(2.1 / 2.0) / (0.1 * sqrt(2)))
    # Two figures at 95 % together: each at 97.5 %, z = 2.241403, over 1.959964.
    assert found.limit == pytest.approx(2.241403 / 1.959964)
    assert [each["verdict"] for each in found.rows()] == ["beyond chance", "chance"]
    assert found.differs
    assert one.change == pytest.approx(1 / 3)
    assert found.sentences()[-1].startswith("more than chance (95% over 2 figures")
    # The context is that of all figures.
    assert [(each["of"], each["chance"]) for each in found.table()] == [
        *(("batch 1", "beyond"), ("batch 8", "within")),
    ]


def test_a_single_figure_may_be_apart_where_one_of_many_is_chance() -> None:
    def of(size: int, at: float) -> Any:
        return document(row(at), *(row(1.0, batch=batch) for batch in range(2, size + 1)))

    away = 1.2 * 0.1 * sqrt(2)
    assert specsim.compare(of(1, 1.0), of(1, float(np.exp(away)))).differs
    assert not specsim.compare(of(50, 1.0), of(50, float(np.exp(away)))).differs


def test_what_has_no_interval_counts_only_where_nothing_has_one() -> None:
    sure, moved = document(row(1.5, tokens=3.0)), document(row(1.5, tokens=3.5))
    found = specsim.compare(sure, moved)
    assert found.counts == {"same": 1, "not judged": 1}
    assert not found.differs
    bare = [document(row(1.5, None, tokens=tokens)) for tokens in (3.0, 3.5)]
    found = specsim.compare(*bare)
    assert found.differs
    assert "every difference counts" in found.sentences()[-1]
    words = [document({"batch": 1, "bound": bound}) for bound in ("memory", "compute")]
    assert specsim.compare(*words).differs
    assert not specsim.compare(words[0], words[0]).differs


def test_rounding_is_no_difference_and_certainty_leaves_no_doubt() -> None:
    certain = [document(row(1.0 + off, 0.0)) for off in (0.0, 1e-12, 1e-6)]
    assert not specsim.compare(certain[0], certain[1]).differs
    found = specsim.compare(certain[0], certain[2])
    assert found.figures[0].apart == inf
    assert found.differs
    assert found.judged == 0
    assert json.loads(found.to_json())["answer"]["rows"][0]["apart"] is None


def test_what_one_side_lacks_is_named() -> None:
    found = specsim.compare(
        document(row(1.5), row(1.4, batch=8)), document(row(1.5, tokens=3.0), warnings=["slow"])
    )
    assert [(each.what, each.why) for each in found.left_out] == [
        ("batch 8, context 512", "only first has it"),
        ("tokens of batch 1, context 512", "only second has it"),
    ]
    assert found.warnings == ("second: slow",)


def test_large_figures_are_written_without_exponents() -> None:
    large = specsim.compare(*(document(row(each)) for each in (25_868.4, 2_586_840.0)))
    (shown,) = large.table()
    assert (shown["first"], shown["second"]) == ("25,868", "2,586,840")
    assert "e+" not in str(large.table()) + str(large.sentences())


def test_inputs_that_differ_are_said() -> None:
    found = specsim.compare(specsim.evaluate(0.8, 0.05, 5), specsim.evaluate(0.7, 0.05, 5))
    assert found.other_inputs == {"alpha": (0.8, 0.7)}
    assert found.sentences()[0] == "inputs differ: alpha 0.8 and 0.7"
    assert found.differs


@given(
    st.recursive(
        st.floats(allow_nan=False) | st.text(max_size=3) | st.none(),
        lambda inner: st.dictionaries(st.text("ab", min_size=1, max_size=2), inner, max_size=3),
        max_leaves=8,
    )
)
def test_flat_inputs_are_the_leaves(inputs: Any) -> None:
    def leaves(value: Any, path: tuple[str, ...]) -> list[tuple[str, Any]]:
        if not isinstance(value, dict):
            return [(".".join(path), value)]
        return [leaf for name, item in value.items() for leaf in leaves(item, (*path, name))]

    whole = {"x": inputs}
    assert sorted(map(repr, flat(whole).items())) == sorted(map(repr, leaves(whole, ())))


def test_profiles_compare_by_what_was_measured(tmp_path: Path) -> None:
    for name in ("before", "after", "dear"):
        (tmp_path / name).mkdir()
    before, after = write(tmp_path / "before"), write(tmp_path / "after")
    found = specsim.compare(before, after)
    assert found.kind == "profile"
    assert not found.differs
    tables = {"acceptance", "run times", "host times", "speedup"}
    assert {each.key.table for each in found.figures} == tables
    content = json.loads(before.read_text())
    for cell in content["run_times"]:
        if cell["model"] == "draft":
            cell["seconds"] = [2 * each for each in cell["seconds"]]
    dear = write(tmp_path / "dear", run_times=content["run_times"])
    found = specsim.compare(before, dear)
    assert found.differs
    beyond = [each for each in found.figures if each.verdict(found.limit) == "beyond chance"]
    assert {each.key.table for each in beyond} == {"speedup"}
    assert all(each.change is not None and each.change < 0 for each in beyond)


def test_a_profile_without_its_trace_is_compared_by_the_rest(tmp_path: Path) -> None:
    (tmp_path / "other").mkdir()
    whole, alone = write(tmp_path), write(tmp_path / "other")
    (tmp_path / "other" / "p.trace.parquet").unlink()
    found = specsim.compare(whole, alone)
    assert any("speedups are not compared" in line for line in found.warnings)
    assert "speedup" not in {each.key.table for each in found.figures}


def test_run_times_are_judged_by_their_repeats(tmp_path: Path) -> None:
    """Ten passes that scatter by 2 %; the pair that is alike fails by chance once in 100 seeds."""
    random = np.random.default_rng(3)

    def profile(name: str, cost: float) -> Path:
        (tmp_path / name).mkdir()
        seconds = (cost * 0.01 * np.exp(random.normal(0.0, 0.02, 10))).tolist()
        cell = {"batch": 4, "context": 64, "mode": "eager", "tokens": 1, "passes": [*range(10)]}
        runs = [
            {**cell, "model": "target", "follows": "draft", "seconds": [0.01] * 10},
            {**cell, "model": "draft", "follows": "draft", "seconds": seconds},
        ]
        grid = [{**each, "plain": [0.01] * 10} for each in runs]
        return write(tmp_path / name, grid=grid, batch_overhead=overhead())

    one, same, other = profile("one", 0.1), profile("same", 0.1), profile("other", 0.13)

    def figure(first: Path, second: Path) -> Any:
        found = specsim.compare(first, second)
        named = {(each.key.where, each.key.figure): each for each in found.figures}
        where = "run times, next draft, tokens 1, batch 4, context 64, eager"
        return named[where, "plain_steps"], found.limit

    still, limit = figure(one, same)
    assert still.verdict(limit) == "chance"
    moved, limit = figure(one, other)
    assert moved.verdict(limit) == "beyond chance"
    # Two standard errors of 2 % over ten passes are 1.4 % either way, by Student's t.
    assert 0.01 < moved.first.high / moved.first.low - 1 < 0.08


def test_acceptance_files_compare_by_their_counts(tmp_path: Path) -> None:
    def counted(name: str, rounds: int, rates: tuple[float, ...]) -> Path:
        accepted = round(rounds * sum(rates))
        line = LOG.format(
            length=1 + accepted / rounds,
            accepted=accepted,
            drafted=rounds * len(rates),
            rates=", ".join(f"{rate:.3f}" for rate in rates),
            share=100 * accepted / (rounds * len(rates)),
        )
        log_file, path = tmp_path / f"{name}.log", tmp_path / f"{name}.json"
        log_file.write_text(line)
        specsim.read(log_file, method="draft_model", out=path)
        return path

    one = counted("one", 1000, (0.82, 0.61, 0.44))
    twice = counted("twice", 2000, (0.82, 0.61, 0.44))
    worse = counted("worse", 1000, (0.72, 0.51, 0.34))
    found = specsim.compare(one, twice)
    assert found.kind == "acceptance file"
    assert not found.differs
    assert {each.key.setting for each in found.figures} == {(("gamma", "3"),)}
    found = specsim.compare(one, worse)
    names = {each.key.figure for each in found.figures if (each.apart or 0) > found.limit}
    assert {"marginal 1", "marginal 2", "marginal 3", "tokens_per_call"} <= names


def test_steps_and_prompts_of_an_engine_are_judged_by_their_repeats(tmp_path: Path) -> None:
    """Six repeats that scatter by 1 %: 14 figures of the pair that is alike, a 5 % chance."""
    random = np.random.default_rng(5)

    def step_s(gamma: int, batch: int) -> float:
        return 0.01 + 0.002 * gamma + 0.001 * batch

    def loaded(gamma: int) -> list[TimedStreamedStep]:
        return [TimedStreamedStep(n, step_s(gamma, n), steps=9) for n in (1, 2, 4)]

    def reading(gamma: int, slower: float) -> list[TimedStreamedStep]:
        return [
            TimedStreamedStep(
                1, step_s(gamma, 2) + slower * (0.003 + 2e-5 * tokens), 1, prompt_tokens=tokens
            )
            for tokens in (16, 256)
        ]

    def timed(name: str, slower: float) -> Path:
        def s(usual: float) -> float:
            return usual * float(np.exp(random.normal(0.0, 0.01)))

        file = AcceptanceFile(
            schema=SCHEMA,
            version=VERSION,
            created="2026-01-01T00:00:00+00:00",
            specsim="0",
            engine="vllm",
            counts=[CountedRounds(1000, 1500, 2, 2000, [900, 600])],
            lengths=[],
            steps=[
                TimedStep(1, s(0.01 + 0.002 * gamma), gamma, repeat=repeat, first_s=s(0.02))
                for gamma in (0, 1, 2)
                for repeat in range(6)
            ],
            sources=[Source("x", "0" * 64, ["x"])],
            notes=[],
            prompts=[
                TimedPrompt(gamma, tokens, s(slower * 3e-4 * tokens), s(1.0), repeat)
                for gamma in (0, 2)
                for tokens in (16, 256)
                for repeat in range(6)
            ],
            streamed=[
                TimedStreams(gamma, [*loaded(gamma), *reading(gamma, slower)], 0.004, requests=9)
                for gamma in (0, 2)
            ],
        )
        write_acceptance(file, tmp_path / name)
        return tmp_path / name

    one, same, dear = timed("one", 1.0), timed("same", 1.0), timed("dear", 1.1)
    found = specsim.compare(one, same)
    assert found.differs is False
    assert found.judged >= 10
    found = specsim.compare(one, dear)
    beyond = {each.key.where for each in found.figures if (each.apart or 0) > found.limit}
    assert beyond == {
        f"prompts, gamma {gamma}, tokens {tokens}" for gamma in (0, 2) for tokens in (16, 256)
    }
    # Of steps under load nobody knows how sure they are.
    under_load = {each.key: each for each in found.figures if each.key.table == "under load"}
    assert {each.apart for each in under_load.values()} <= {None, 0.0}
    moved = {key.figure: each.change for key, each in under_load.items() if each.change}
    steady = moved.pop("with_prompt_ms")
    assert moved == pytest.approx({"per_prompt_token_us": 0.1}, rel=1e-6)
    # Of a step with a prompt 4.3 ms of 16 or more are slower.
    assert 0.015 < steady < 0.03


def test_what_cells_scatter_by_is_pooled_and_what_has_no_repeats_is_not_judged() -> None:
    cells = [[1.9, 2.1], [3.9, 4.1], [0.5], []]
    found = list(in_plain_steps(cells, [[0, 0], [0, 0], [0], []]))
    # Of two repeats each, shares of 5 % and 2.5 % off: s^2 = 2 (0.05^2 + 0.025^2) / 2, over two
    # repeats, and over one in the third cell.
    error = sqrt((0.05**2 + 0.025**2) / 2)
    for row, best, size in zip(found[:3], (2.0, 4.0, 0.5), (2, 2, 1), strict=True):
        assert row["plain_steps"] == pytest.approx(best)
        half = 1.959964 * best * error * sqrt(2 / size)
        assert row["plain_steps_high"] - best == pytest.approx(half, rel=1e-4)
    assert found[3] == {}
    (alone,) = in_plain_steps([[2.0]], [[0]])
    assert isnan(alone["plain_steps_low"])


def test_calibrations_of_one_machine_differ_by_chance_and_of_other_drafts_by_more() -> None:
    """Shipped profiles, each measured three times on one idle machine, hours apart.

    A pair of the same draft has at most a 5 % chance to differ.
    """
    folder = ROOT / "studies/measured/blind/quiet"
    for draft in ("small", "prompt-lookup"):
        found = specsim.compare(folder / f"{draft}-1.json", folder / f"{draft}-2.json")
        assert not found.differs
        assert found.judged > 60
    found = specsim.compare(folder / "small-1.json", folder / "middle-1.json")
    names = {each.key.table for each in found.figures if (each.apart or 0) > found.limit}
    assert {"acceptance", "run times"} <= names


def test_documents_that_are_broken_anywhere_raise_one_line() -> None:
    """Whatever stands in the place of a part, it is compared or refused in words."""
    refused: list[str] = []
    whole = document(row(1.5), answer={"pays": [{"context": 512, "up_to_batch": 8}]})
    for place in (("schema",), ("answer",), ("answer", "rows"), ("inputs",), ("warnings",)):
        for broken in (None, 3, "x", [], [1, 2], {}, [{}]):
            other = copy.deepcopy(whole)
            inner = other
            for name in place[:-1]:
                inner = inner[name]
            inner[place[-1]] = broken
            try:
                specsim.compare(whole, other)
            except SpecsimError as error:
                refused.append(str(error))
    assert refused
    assert not any("\n" in line for line in refused)


def _profile_and_result() -> object:
    return specsim.compare(document(row(1.0)), document(row(1.0), schema="specsim.replay"))


test_what_does_not_go_together_is_refused = refuses(
    (_profile_and_result, "must be of one kind, got specsim.load-plan and specsim.replay"),
    (
        lambda: specsim.compare(document(row(1.0)), document(row(1.0, batch=2))),
        "first and second have no figure of one setting in common",
    ),
    (lambda: specsim.compare("none.json", document(row(1.0))), "first none.json: no such file"),
    (lambda: specsim.compare(document(row(1.0)), {}), "second is no result"),
    (lambda: specsim.compare(document(row(1.0)), document(row(1.0)), level=1.0), "level must be"),
)


def test_sweeps_compare_setting_by_setting(tmp_path: Path) -> None:
    def swept(name: str, alphas: tuple[float, ...], **fixed: float) -> Path:
        inputs = {"alpha": list(alphas), "gamma": [2, 4], "c": 0.05, "blocks": 2000, **fixed}
        asked = {"command": "simulate speculative", "inputs": inputs}
        specsim.sweep(asked, tmp_path / name, workers=1)
        return tmp_path / name

    before, again = swept("before", (0.7, 0.8), seed=1), swept("again", (0.7, 0.8), seed=2)
    found = specsim.compare(before, again)
    assert found.kind == "sweep"
    # What a sweep did not vary is no setting but an input that differs.
    assert found.other_inputs == {"inputs.seed": ([1], [2])}
    assert not found.differs
    assert found.judged == 8
    assert not found.left_out
    # A rate of 1.2 fails, and 0.9 is none of the first sweep's.
    after = swept("after", (0.8, 0.9, 1.2), seed=1)
    found = specsim.compare(before, after)
    assert {each.key.where for each in found.figures} == {
        *("alpha 0.8, gamma 2, c 0.05, blocks 2000, seed 1",),
        *("alpha 0.8, gamma 4, c 0.05, blocks 2000, seed 1",),
    }
    assert not found.differs
    assert len(found.left_out) == 6
    with pytest.raises(SpecsimError, match="holds no complete sweep"):
        specsim.compare(tmp_path, before)


def test_what_is_compared_is_no_setting() -> None:
    """Two cards are compared at the same batches, and two batches are not compared."""
    sides = [
        document(*(row(speedup * batch, batch=batch, accelerator=card) for batch in (1, 2)))
        for card, speedup in (("L40S", 1.5), ("H100", 3.0))
    ]
    found = specsim.compare(*sides)
    assert found.other_inputs == {"accelerator": ("L40S", "H100")}
    assert [each.change for each in found.figures] == [1.0, 1.0]
    assert found.counts == {"beyond chance": 2}
    # Both cards on one side: they are settings again.
    both = document(*sides[0]["answer"]["rows"], *sides[1]["answer"]["rows"])
    found = specsim.compare(sides[0], both)
    assert found.counts == {"same": 2}
    assert len(found.left_out) == 2


def test_intervals_of_predicted_counts_are_taken_as_what_they_are(tmp_path: Path) -> None:
    """Of 90 %, as the row says."""
    path = tmp_path / "counted.json"
    specsim.read(SAMPLES / "vllm-bench-serve-mtp1-mtp8.txt", out=path)
    judged = specsim.validate(path)
    row = judged.rows()[0]
    values = {
        key.figure: each
        for key, each in read_side(judged, "first").values.items()
        if ("gamma", str(row["gamma"])) in key.setting
    }
    for name in ("predicted_tokens_per_call", "measured_tokens_per_call"):
        value = values[name]
        assert isinstance(value, Interval)
        reach = row[f"{name}_high"] - row[name]
        assert value.high - value.best == pytest.approx(reach * 1.959964 / 1.644854, rel=1e-5)
