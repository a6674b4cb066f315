"""Batches at a synthetic acceptance, beside what was predicted of them."""

from __future__ import annotations

import json
import tempfile
from dataclasses import dataclass, replace
from math import hypot, log
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch

from calibrate.batch.synthetic import Timed, decode_synthetic
from calibrate.validate import batching as validate_load
from calibrate.validate.batching import Segments, compare_cell, decode_cell
from specsim.batching.cost import RunByRun
from specsim.batching.point import batch_point
from specsim.checkpoint import Checkpoint
from specsim.predict.elasticity import PRIOR
from specsim.profiles import Role, read_profile
from tests.support.command_line import fail, run, succeed

CURVE = [0.8, 0.6, 0.5, 0.4]


@dataclass(frozen=True)
class Made(RunByRun):
    """A made-up machine: seconds of everything, a draft run a twentieth of a target run."""

    overhead: float = 0.01
    longest: int = 5

    def run_s(
        self, model: Role, tokens: int, batch: int, context: float, follows: Role = "draft"
    ) -> float:
        return (1.0 if model == "target" else 0.05) * (1 + 0.02 * tokens * batch)

    def overhead_s(self, gamma: int, batch: int) -> float:
        return self.overhead


def segments(cost: Made, gamma: int, batch: int, slower: float = 1.0) -> Segments:
    """Three segments of two blocks that took what ``cost`` says, everything times ``slower``."""
    spent = batch_point(CURVE, cost, gamma, batch, 64).spent
    target, draft = 2 * spent.verify_s * slower, 2 * spent.draft_s * slower
    seconds = target + draft + 2 * spent.overhead_s * slower
    one = Timed(batch, 64, gamma, 2, 2 * batch, seconds, target, draft, 2 * gamma, 0)
    return Segments((one, one, one), (batch_point(CURVE, cost, 0, batch, 64).block_s,) * 3)


def test_a_machine_that_does_what_was_predicted_has_no_error() -> None:
    cost = Made()
    decoded = {gamma: segments(cost, gamma, 4) for gamma in range(5)}
    rows = compare_cell(decoded, cost, CURVE, 4, 64)
    assert [row["gamma"] for row in rows] == [1, 2, 3, 4]
    for row in rows:
        assert row["relative_error"] == pytest.approx(0, abs=1e-12)
        assert row["predicted_best"] == row["measured_best"]
        assert row["loss"] == 0


def test_what_was_mispriced_bears_the_error() -> None:
    cost = Made()
    decoded = {gamma: segments(cost, gamma, 4) for gamma in range(5)}
    rows = compare_cell(decoded, Made(overhead=0.3), CURVE, 4, 64)
    for row in rows:
        parts = sum(value for name, value in row.items() if name.startswith("error_"))
        assert parts == pytest.approx(np.log1p(row["relative_error"]))
        assert row["relative_error"] > 0  # plain steps were overpriced most
        assert row["error_acceptance"] == 0


def test_a_slow_draft_length_is_found_out() -> None:
    """What is predicted best is decoded at half the speed: following it costs what it costs."""
    cost = Made()
    decoded = {gamma: segments(cost, gamma, 1) for gamma in range(5)}
    best = compare_cell(decoded, cost, CURVE, 1, 64)[0]["predicted_best"]
    decoded[best] = segments(cost, best, 1, slower=2.0)
    rows = compare_cell(decoded, cost, CURVE, 1, 64)
    speeds = {row["gamma"]: row["measured_speedup"] for row in rows} | {0: 1.0}
    assert rows[0]["measured_best"] == max(speeds, key=lambda gamma: speeds[gamma]) != best
    assert rows[0]["loss"] == pytest.approx(1 - speeds[best] / max(speeds.values()))
    assert rows[0]["loss_low"] > 0


def test_a_machine_that_slows_down_and_a_segment_that_was_disturbed_change_nothing() -> None:
    cost = Made()
    decoded = {gamma: segments(cost, gamma, 4) for gamma in range(5)}
    slow = segments(cost, 2, 4, slower=3.0)
    right = decoded[2]
    decoded[2] = Segments(
        # In order: as usual, all three times as slow, the segment alone, its neighbours alone.
        (right.timed[0], slow.timed[0], slow.timed[0], right.timed[0]),
        (right.plain_s[0], 3 * right.plain_s[0], right.plain_s[0], 3 * right.plain_s[0]),
    )
    row = compare_cell(decoded, cost, CURVE, 4, 64)[1]
    assert row["relative_error"] == pytest.approx(0, abs=1e-12)
    assert row["measured_low"] < row["measured_speedup"] < row["measured_high"]


@dataclass(frozen=True)
class Drawn(Made):
    """The same in 1,001 draws, whose plain steps are spread evenly as logarithms."""

    def verify_s(self, gamma: int, batch: int, context: float) -> Any:
        seconds = super().verify_s(gamma, batch, context)
        return seconds if gamma else seconds * np.exp(np.linspace(-0.2, 0.3, 1001))


@pytest.mark.parametrize("slower", [1.0, 1.1, 0.9])
@pytest.mark.parametrize("error", [None, 0.05])
@pytest.mark.parametrize("drawn", [False, True])
def test_a_prediction_leaves_open_its_grid_its_fit_and_the_state_of_the_machine(
    slower: float, error: float | None, drawn: bool
) -> None:
    """As logarithms, the root of the sum of the squares of three: how far 95 % of the draws reach;
    the error of the fit; and where plain steps take another time than in the grid, that times what
    an elasticity may be off (``PRIOR``), at 95 %.
    """
    cost = Made(overhead=0.0)
    decoded = {gamma: segments(cost, gamma, 4) for gamma in range(5)}
    for gamma, each in decoded.items():
        decoded[gamma] = replace(each, plain_s=tuple(slower * step for step in each.plain_s))
    drawn_cost = Drawn(overhead=0.0) if drawn else None
    rows = compare_cell(decoded, cost, CURVE, 4, 64, drawn_cost, error)
    # A fortieth of the draws, from -0.2 to 0.3, lies beyond either.
    below, above = (0.1875, 0.2875) if drawn else (0.0, 0.0)
    fit, machine = log(1 + (error or 0.0)), 1.959964 * PRIOR * abs(log(slower))
    for row in rows:
        assert row["measured_plain_ms"] == pytest.approx(slower * row["profile_plain_ms"])
        low = log(row["predicted_speedup"] / row["predicted_low"])
        high = log(row["predicted_high"] / row["predicted_speedup"])
        assert low == pytest.approx(hypot(below, fit, machine))
        assert high == pytest.approx(hypot(above, fit, machine))


class Slots:
    """A model of which only the lengths are there."""

    def __init__(self, *_: Any, **__: Any) -> None:
        self.device, self.starts = torch.device("cpu"), list[int]()

    def fill(self, context: int, source: torch.Generator) -> None: ...

    def cut(self, length: int) -> None:
        self.starts.append(length)


CONFIG = SimpleNamespace(get_text_config=lambda: SimpleNamespace(vocab_size=8))
NO_MODEL = SimpleNamespace(config=CONFIG, parameters=lambda: iter([torch.empty(0)]))


def test_every_segment_has_the_plain_ones_around_it(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Every segment takes a second longer than the one before."""
    models: list[Slots] = []
    gammas: list[int] = []

    def ragged(*arguments: Any, **options: Any) -> Slots:
        models.append(Slots())
        return models[-1]

    def decode_synthetic(large: Any, small: Any, gamma: int, *_: Any, **__: Any) -> Timed:
        gammas.append(gamma)
        return Timed(1, 100, gamma, 6, 6, float(len(gammas)), 0.0, 0.0, 0, 0)

    monkeypatch.setattr(validate_load, "RaggedModel", ragged)
    monkeypatch.setattr(validate_load, "decode_synthetic", decode_synthetic)
    found = decode_cell(
        *(NO_MODEL, NO_MODEL, 2, 100, [1, 3], [0.8, 0.6, 0.5], 0.0, 4, False, 0),
        Checkpoint(tmp_path / "work"),
    )
    # A round: plain, one length, plain, the other, plain.  The first round is not kept.
    for number in range(5):
        assert gammas[5 * number :][:5:2] == [0, 0, 0]
        assert sorted(gammas[5 * number :][1:5:2]) == [1, 3]
    for gamma in (1, 3):
        assert len(found[gamma].timed) == 4
        for timed, plain_s in zip(found[gamma].timed, found[gamma].plain_s, strict=True):
            assert plain_s == pytest.approx(timed.seconds / 6)
    assert len(found[0].timed) == 8
    # In the middle of six blocks a text has the hundred tokens: plain ones begin 2 or 3 before.
    starts = dict(zip(gammas, models[0].starts, strict=True))
    assert starts == {0: 98, 1: round(100 - 2.5 * 1.8), 3: round(100 - 2.5 * 2.9)}
    assert models[0].starts == models[1].starts


def test_rounds_go_to_draft_lengths_that_may_be_best(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Blocks that take up to a twentieth longer by chance: 1 and 2 are alike, 3 is far slower."""
    chance = np.random.default_rng(1)
    blocks = {0: 1.0, 1: 1.2, 2: 1.2 * 2.4 / 1.8, 3: 5.0}

    def decode_synthetic(large: Any, small: Any, gamma: int, *_: Any, **__: Any) -> Timed:
        seconds = 6 * blocks[gamma] * (1 + 0.05 * chance.random())
        return Timed(1, 100, gamma, 6, 6, seconds, seconds, 0.0, 0, 0)

    monkeypatch.setattr(validate_load, "RaggedModel", Slots)
    monkeypatch.setattr(validate_load, "decode_synthetic", decode_synthetic)
    curve = [0.8, 0.6, 0.5]

    def decode(work: str, gammas: list[int]) -> dict[int, Segments]:
        asked = (NO_MODEL, NO_MODEL, 1, 100, gammas, curve, 0.0, 20, False, 0)
        return decode_cell(*asked, Checkpoint(tmp_path / work))

    found = decode("all", [1, 2, 3])
    # The slow one is decoded in the first eight rounds, and in the sixteenth.
    assert {gamma: len(found[gamma].timed) for gamma in (1, 2, 3)} == {1: 20, 2: 20, 3: 9}
    # A length that is asked for alone has all its rounds, however slow.
    alone = decode("alone", [3])
    assert len(alone[3].timed) == 20
    rows = compare_cell(found, Made(), curve, 1, 100)
    assert [row["segments"] for row in rows] == [20, 20, 9]
    assert rows[0]["measured_best"] in (1, 2)
    # Where plain decoding is faster than all of them, one alone goes on, now 1 and now 2.
    blocks = {gamma: 2 * seconds if gamma else seconds for gamma, seconds in blocks.items()}
    found = decode("slower", [1, 2, 3])
    assert sum(len(found[gamma].timed) for gamma in (1, 2, 3)) == 3 * 9 + 11
    assert len(found[3].timed) == 9


def test_a_cell_goes_on_in_the_round_that_was_killed(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Segments last as long as their random numbers say, so equal ones were drawn alike."""
    decoded, last = list[int](), [1000]

    def decode_synthetic(large: Any, small: Any, gamma: int, *rest: Any, **_: Any) -> Timed:
        if len(decoded) == last[0]:
            raise KeyboardInterrupt
        decoded.append(gamma)
        seconds = 6 + float(rest[-1].random())
        return Timed(1, 100, gamma, 6, 6, seconds, seconds, 0.0, 0, 0)

    monkeypatch.setattr(validate_load, "RaggedModel", Slots)
    monkeypatch.setattr(validate_load, "decode_synthetic", decode_synthetic)

    def decode(work: str, until: int = 1000) -> dict[int, Segments]:
        decoded.clear()
        last[0] = until
        asked = (NO_MODEL, NO_MODEL, 1, 100, [1, 2], [0.8, 0.6], 0.0, 8, False, 0)
        return decode_cell(*asked, Checkpoint(tmp_path / work))

    whole = decode("whole")
    with pytest.raises(KeyboardInterrupt):
        decode("killed", until=5 * 4 + 2)  # in the fourth round, and one to warm up
    assert decode("killed") == whole
    assert len(decoded) == 5 * (1 + 8 - 3)
    assert decode("killed") == whole
    assert not decoded, "nothing is warmed up where nothing is measured"


@pytest.fixture(scope="module")
def costs(tiny_family: dict[str, Path], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Costs of a shape and of a model."""
    from specsim.cli import main

    out = tmp_path_factory.mktemp("costs") / "costs.json"
    words = "calibrate --cost-only --device cpu --threads 1 --temperature 0 --gamma-max 2"
    words += f" --repeats 2 --batch 1,2 --context 8,16 --draft {tiny_family['draft']}"
    words += f" --target {tiny_family['target'] / 'config.json'} --out {out}"
    with pytest.raises(SystemExit, match="0"):
        main(words.split())
    return out


def test_validate_synthetic_as_it_is_typed(costs: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["validate", str(costs), "--synthetic", "--alpha", "0.7", "--requests", "2"]
    loose = ["--median-tolerance", "9", "--tolerance", "99", "--format", "json"]
    code, out, err = run(capsys, *words, *loose)
    rows = json.loads(out)["answer"]["rows"]
    cells = [(row["context"], row["batch"], row["gamma"]) for row in rows]
    assert cells == [(c, b, g) for c in (8, 16) for b in (1, 2) for g in (1, 2)]
    for row in rows:
        assert row["tokens_per_call"] == pytest.approx(1.7 if row["gamma"] == 1 else 2.19)
        assert row["measured_low"] <= row["measured_speedup"] <= row["measured_high"]
        assert 1 <= row["drawn_tokens_per_call"] <= row["gamma"] + 1
    # Such small models are all noise: a cell may lose speed, which is then said.
    assert code == int("failed: " in err)
    assert "best draft length as predicted in" in err
    assert read_profile(costs).target.config is not None


@pytest.mark.parametrize(("alpha", "drafts"), [("1", 1), ("0", 0)])
def test_all_drafts_are_accepted_at_alpha_1_and_none_at_0(
    costs: Path, capsys: pytest.CaptureFixture[str], alpha: str, drafts: int
) -> None:
    words = ["validate", str(costs), "--synthetic", "--alpha", alpha, "--requests", "2"]
    words += ["--context", "8", "--median-tolerance", "9", "--tolerance", "99"]
    rows = json.loads(run(capsys, *words, "--format", "json")[1])["answer"]["rows"]
    assert [(row["batch"], row["gamma"]) for row in rows] == [(1, 1), (1, 2), (2, 1), (2, 2)]
    for row in rows:
        tokens = 1 + drafts * row["gamma"]
        assert row["drawn_tokens_per_call"] == row["tokens_per_call"] == tokens


def test_batches_are_drawn_as_the_profile_was(
    tiny_family: dict[str, Path],
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
) -> None:
    """The host pays for a filter and a law of acceptance, and its times are of these."""
    prompts, out = tmp_path / "prompts.txt", tmp_path / "p.json"
    prompts.write_text("w3 w4 w5\nw6 w7 w8\n")
    succeed(
        *(
            "calibrate",
            "--target",
            str(tiny_family["target"]),
            "--draft",
            str(tiny_family["draft"]),
        ),
        *(
            "--prompts",
            str(prompts),
            "--requests",
            "2",
            "--max-new-tokens",
            "12",
            "--device",
            "cpu",
        ),
        *("--gamma-max", "2", "--repeats", "2", "--batch", "1", "--context", "8", "--threads", "1"),
        *("--temperature", "1", "--top-p", "0.9", "--acceptance-law", "greedy-drafts"),
        *("--out", str(out)),
    )
    told = list[dict[str, Any]]()

    def decode(*given: Any, **named: Any) -> Timed:
        told.append(named)
        return decode_synthetic(*given, **named)

    monkeypatch.setattr(validate_load, "decode_synthetic", decode)
    words = ("--synthetic", "--alpha", "0.7", "--requests", "2", "--context", "8")
    loose = ("--median-tolerance", "9", "--tolerance", "99")
    # 1 is a verdict, which times give: which draft length is the best is judged without tolerance.
    assert run(capsys, "validate", str(out), *words, *loose)[0] in (0, 1)
    assert told
    as_measured = {"top_k": None, "top_p": 0.9, "acceptance_law": "greedy-drafts"}
    assert all(each == as_measured for each in told)


def test_validate_synthetic_goes_on_where_it_was_killed(
    costs: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    decoded: list[int] = []
    # A round has five segments, a cell a round to warm up and two more.
    cell = 5 * 3

    def decode(*given: Any, **named: Any) -> Timed:
        if len(decoded) == 3 * cell + 12:
            decoded.clear()
            raise KeyboardInterrupt
        decoded.append(1)
        return decode_synthetic(*given, **named)

    monkeypatch.setattr(validate_load, "decode_synthetic", decode)
    words = ["validate", str(costs), "--synthetic", "--alpha", "0.7", "--requests", "2"]
    words += ["--median-tolerance", "9", "--format", "json"]
    assert run(capsys, *words)[0] == 130
    # Asked for anything else, everything is decoded anew.
    run(capsys, *words, "--seed", "1", "--batch", "1", "--context", "8")
    assert len(decoded) == cell
    decoded.clear()
    rows = json.loads(run(capsys, *words)[1])["answer"]["rows"]
    assert len(decoded) == 5 * 2, "the last cell's second round, warmed up again"
    assert [(row["context"], row["batch"]) for row in rows[::2]] == [
        (8, 1),
        (8, 2),
        (16, 1),
        (16, 2),
    ]
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ([], "alpha is missing"),
        (["--alpha", "0.5", "--gamma", "7"], "gamma must be in [1, 2]"),
        (["--alpha", "0.5", "--context", "120"], "context must be <= "),
        (["--alpha", "0.5", "--scheme", "all"], "do not go with --synthetic"),
    ],
)
def test_wrong_words_are_refused(
    costs: Path, capsys: pytest.CaptureFixture[str], words: list[str], message: str
) -> None:
    found = fail(capsys, "validate", str(costs), "--synthetic", *words)
    assert message in found


def test_options_of_synthetic_need_it(costs: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert "--batch goes with --synthetic" in fail(capsys, "validate", str(costs), "--batch", "2")
