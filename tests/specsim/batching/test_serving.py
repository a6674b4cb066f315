"""Room for requests, reading of prompts, loaded drafters, and the best of several."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import specsim
from specsim import Load, deploy
from specsim.batching.point import points_of_cell
from specsim.batching.serving import room_of
from specsim.checks import InvalidArgumentError, UnsupportedError
from specsim.deployment.deployment import Deployment
from specsim.hardware.roofline import roofline
from tests.support.command_line import run
from tests.support.profiles import write_grid

TARGET, CARD = "llama-3.1-8b", "H100-SXM"
DRAFT = "draft_model:llama-3.2-1b"


def cards(*drafters: str, **more: Any) -> Deployment:
    return deploy(TARGET, CARD, drafters or (DRAFT,), **more)


def plan_of(deployment: Deployment, alpha: float = 0.8, **load: Any) -> specsim.LoadPlan:
    asked = Load(**{"batches": [1, 64], "contexts": [512], **load})
    return specsim.optimize(alpha, deployment=deployment, load=asked)


def test_equal_cards_are_each_at_its_largest_batch() -> None:
    found = plan_of(cards())
    ((setting,), context) = found.settings, 512
    workload, (room,) = setting.workload, setting.rooms
    assert room.with_drafter < room.without
    with_drafter, plain = (
        points_of_cell(workload.gains, workload.cost, batch, context, workload.gamma_max)
        for batch in (room.with_drafter, room.without)
    )
    best = max(point.tokens_per_s for point in with_drafter[1:])
    # One request more has no room beside the drafter, and is decoded plainly.
    above = points_of_cell(
        workload.gains, workload.cost, room.with_drafter + 1, context, workload.gamma_max
    )
    assert len(above) == 1
    assert room.speedup_equal_cards == pytest.approx(best / plain[0].plain_tokens_per_s)
    assert found.summary()["room"] == [vars(room)]
    (line,) = [line for line in found.sentences() if "room" in line]
    assert line == (
        f"context 512: room for {room.with_drafter:,} requests with the drafter, "
        f"{room.without:,} without it; with each at its largest, "
        f"{room.speedup_equal_cards:.3g} times the tokens per second"
    )


def test_cards_that_gain_nothing_decode_plainly_with_the_drafter_loaded() -> None:
    (setting,) = plan_of(cards(), alpha=0.01).settings
    (room,), cost = setting.rooms, setting.workload.cost
    step = cost.verify_s(0, room.with_drafter, 512) + cost.loaded_s(room.with_drafter, 512)
    plain = cost.verify_s(0, room.without, 512)
    expected = (room.with_drafter / step) / (room.without / plain)
    assert room.speedup_equal_cards == pytest.approx(expected)
    assert room.speedup_equal_cards < 1


def test_batches_without_room_for_the_drafter_are_named() -> None:
    found = plan_of(cards(), batches=[64, 700])
    rows = found.rows()
    assert [row["batch"] for row in rows] == [64, 700]
    assert rows[1]["gamma"] == 0
    assert "gamma_0_loaded" not in rows[1]
    first = found.settings[0].rooms[0].with_drafter + 1
    assert 64 < first <= 700
    (line,) = [line for line in found.warnings if "no room" in line]
    assert f"from batch {first} on there is no room for the drafter" in line


def test_a_profile_knows_no_memory(tmp_path: Path) -> None:
    found = specsim.optimize(profile=write_grid(tmp_path), load=Load([1], [64]))
    assert found.settings[0].rooms == ()
    assert room_of(found.settings[0].workload, 64) is None
    assert "room" not in found.summary()


@pytest.mark.parametrize(
    ("drafter", "reads"), [(DRAFT, True), ("eagle3", True), ("ngram", False), ("medusa", False)]
)
def test_reading_a_prompt_is_a_run_of_each_model_with_a_cache(drafter: str, reads: bool) -> None:
    deployment = cards(drafter, overhead_us=100, layer_us=5)
    found = plan_of(deployment, prompt=3000)
    (row,) = found.summary()["prefill_ms"]
    alone = roofline(
        deployment.shape, deployment.card, 3000, logits=1, efficiency=deployment.efficiency
    )
    assert row["plain"] == pytest.approx(1e3 * (alone.seconds + 1e-4))
    assert (row["with_drafter"] > row["plain"]) == reads
    if drafter == DRAFT:
        draft = specsim.deploy("llama-3.2-1b", CARD, layer_us=5)
        more = roofline(draft.shape, draft.card, 3000, logits=1, efficiency=draft.efficiency)
        assert row["with_drafter"] - row["plain"] == pytest.approx(1e3 * more.seconds)
    assert any("a prompt of 3,000 tokens takes" in line for line in found.sentences())


def test_a_prompt_that_was_not_timed_has_no_price(tmp_path: Path) -> None:
    with pytest.raises(UnsupportedError, match="prompt 500 has no price: no run over so many"):
        specsim.optimize(profile=write_grid(tmp_path), load=Load([1], [64], prompt=500))
    with pytest.raises(InvalidArgumentError, match=r"prompt must be <= 131,072, .*, got 131,073"):
        plan_of(cards(), prompt=131_073)


def test_titles_say_what_prices_rest_on(tmp_path: Path) -> None:
    bound = plan_of(cards())
    assert bound.title == (
        "best draft length by load, step times at a bound: peak rates, no launch or host time, "
        "no prefill"
    )
    assert bound.summary()["bound"] is True
    read = plan_of(cards(), prompt=10)
    assert read.title.endswith("no launch or host time")
    given = plan_of(cards(efficiency=0.7))
    assert given.title == "best draft length by load, efficiency and host time as given"
    assert given.summary()["bound"] is False
    grid = specsim.evaluate(gamma=2, profile=write_grid(tmp_path), load=Load([1], [64]))
    assert grid.title == "draft length 2 by load, measured run times"


def test_a_loaded_drafter_has_its_price_where_nothing_is_drafted() -> None:
    dear = plan_of(cards(), alpha=0.1)
    for row in dear.rows():
        cost = dear.settings[0].workload.cost
        plain = cost.verify_s(0, row["batch"], 512)
        loaded = cost.loaded_s(row["batch"], 512)
        assert row["gamma"] == 0
        assert row["gamma_0_loaded"] == pytest.approx(plain / (plain + loaded))
    assert "gamma_0_loaded" in dear.table()[0]
    assert any("drafter still loaded runs at 0.8" in line for line in dear.sentences())
    # Where all batches draft the table has no such column, and the JSON has.
    good = plan_of(cards())
    assert "gamma_0_loaded" not in good.table()[0]
    assert good.rows()[0]["gamma_0_loaded"] < 1


def test_the_best_of_several_drafters_by_ranges(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    alphas = {"eagle3": 0.35, DRAFT: 0.55}
    words = ["optimize", "--target", TARGET, "--accelerator", CARD, "--context", "512"]
    for name, alpha in alphas.items():
        words += ["--drafter", f"{name}{',' if ':' in name else ':'}alpha={alpha}"]
    figure = tmp_path / "drafters.png"
    asked = ["--batch", "1,32,256,512,700", "--format", "json", "--figure", str(figure)]
    _, out, err = run(capsys, *words, *asked)
    answer = json.loads(out)["answer"]
    (best,) = answer["best"]
    for batch in (1, 32, 256, 512, 700):
        at = [row for row in answer["rows"] if row["batch"] == batch]
        fastest = max(at, key=lambda row: row["speedup"])
        (found,) = [
            each for each in best["ranges"] if each["first_batch"] <= batch <= each["last_batch"]
        ]
        assert found["drafter"] == (fastest["drafter"] if fastest["gamma"] else None)
        (length,) = [
            each for each in found["lengths"] if each["first_batch"] <= batch <= each["last_batch"]
        ]
        assert length["gamma"] == fastest["gamma"]
    assert err.startswith("context 512: best by batch: ")
    assert figure.read_bytes().startswith(b"\x89PNG")


def test_the_best_drafter_of_many_batches_is_that_of_each() -> None:
    """Each drafter is looked at where its own length changes, and the others are not there."""
    drafters = ("draft_model:llama-3.2-1b,alpha=0.8", "ngram:match=0.2,alpha=0.5")
    many, few = (
        specsim.optimize(deployment=cards(*drafters), load=Load(batches=batches, contexts=[512]))
        for batches in (list(range(1, 1025)), [1, 100, 107, 110, 112, 114, 300, 1000])
    )
    assert len(many.best) == len(few.best) == 1
    for point in few.best[0].ranges:
        for batch in {point.first, point.last}:
            (there,) = [each for each in many.best[0].ranges if each.first <= batch <= each.last]
            assert there.drafter == point.drafter


def test_what_holds_for_all_drafters_is_said_once() -> None:
    deployment = deploy("qwen3-30b-a3b", CARD, ("eagle3", DRAFT))
    found = plan_of(deployment, batches=[1, 300])
    (experts,) = [line for line in found.warnings if "experts are counted" in line]
    assert experts.startswith("experts")
    (vocabulary,) = [line for line in found.warnings if "vocabulary" in line]
    assert vocabulary.startswith(f"{DRAFT}, the target's")
    (missing,) = found.left_out
    assert missing.what == "batch 300 at context 512"
    # With a draft length that was asked for, each drafter has its own room.
    given = specsim.evaluate(0.8, gamma=3, deployment=deployment, load=Load([1, 300], [512]))
    assert [each.what.split(",")[0] for each in given.left_out] == ["eagle3", DRAFT]


def test_a_fit_is_named_in_the_title_and_its_source_beside() -> None:
    found = plan_of(deploy(TARGET, CARD, DRAFT, fit="vllm-h100"))
    assert found.title.startswith("best draft length by load, fit vllm-h100 (")
    assert any(line.startswith("fit vllm-h100 is of ") for line in found.warnings)
    # Its error alone is the interval of a speedup at a rate that was typed in.
    error = found.settings[0].workload.basis.error(1, 512)
    assert error is not None
    for row in found.rows():
        assert row["high"] / row["speedup"] == pytest.approx(1 + error)
        assert row["speedup"] / row["low"] == pytest.approx(1 + error)


def test_no_drafter_is_best_where_no_drafts_were_asked_for() -> None:
    load, several = Load([1, 64], [512]), cards("eagle3", "ngram")
    assert specsim.optimize(0.8, deployment=several, load=load).best
    plain = specsim.optimize(0.8, deployment=several, load=load, gamma_max=0)
    assert plain.best == ()
    assert any("plain decoding, as no drafts were asked for" in line for line in plain.sentences())
