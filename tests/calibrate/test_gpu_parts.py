"""Parts of the battery for an accelerator: the pair that is trained, and how results are judged."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import msgspec
import numpy as np
import pytest
import torch

from calibrate.batch.ragged import RaggedModel
from calibrate.suite import acceptance
from calibrate.suite.judge import break_even_rows
from calibrate.suite.plan import FULL, TINY
from calibrate.suite.text import sources
from calibrate.suite.train import build
from specsim import hardware, profiles
from specsim.hardware.roofline_fit import roofline_rows

CPU = torch.device("cpu")


# -- the trained pair --


def test_the_sizes_are_those_of_the_paper() -> None:
    # Leviathan23 section 4.2 says 97M and 6M with 8k tokens; positions are not counted there.
    counts = {
        name: sum(each.numel() for each in build(getattr(FULL.pair, name), FULL.pair).parameters())
        for name in ("target", "draft")
    }
    positions = {"target": 512 * 768, "draft": 512 * 256}
    assert [round((counts[name] - positions[name]) / 1e6) for name in counts] == [98, 6]


def test_text_is_held_out_by_path_and_copies_are_left_out() -> None:
    train, held_out = sources(1_200_000)
    assert train
    assert held_out
    assert not set(train) & set(held_out)
    texts = [*train.values(), *held_out.values()]
    assert len(set(texts)) == len(texts)
    assert sources(1_200_000) == (train, held_out)


def test_gpt_is_read_in_a_batch_as_it_is_read_alone() -> None:
    torch.manual_seed(4)
    model = build(TINY.pair.target, TINY.pair).eval().requires_grad_(False)
    texts = [[5, 6, 7, 8, 9], [10, 11, 12]]
    cached = RaggedModel(model, 2, 32)
    cached.prefill(texts)
    found = cached.read(torch.tensor([[9, 13], [12, 14]]))
    for row, text, end in zip(found, texts, (13, 14), strict=True):
        alone = model(torch.tensor([[*text, end]])).logits[0, -2:]
        torch.testing.assert_close(row, alone, atol=1e-5, rtol=1e-5)


def test_counts_of_words_and_pairs() -> None:
    train = torch.tensor([0, 1, 1, 2, 1, 1, 3])
    plan = SimpleNamespace(vocabulary=5)
    found = acceptance._counted(train, torch.tensor([[1, 4]]), plan)  # type: ignore[arg-type]
    unigram, bigram = (found[name].softmax(-1) for name in ("unigram", "bigram"))
    single = torch.tensor([1, 4, 1, 1, 0]) / 7
    torch.testing.assert_close(unigram, single.expand(2, 5))
    # After 1 came 1 twice, 2 and 3 once; nothing came after 4.
    after = (torch.tensor([0, 2, 1, 1, 0]) + single) / 5
    torch.testing.assert_close(bigram, torch.stack([after, single]))


def test_survival_counts_every_start_with_room() -> None:
    random = np.random.default_rng(3)
    target, draft = -random.exponential(size=(2, 3, 6))
    columns = {
        "prompts": [[0]] * 3,
        "logp_target": target.ravel().tolist(),
        "draft": {"logp_draft": draft.ravel().tolist()},
    }
    chance = np.minimum(np.exp(draft - target), 1)
    slow = [
        np.mean([np.prod(row[t : t + i]) for row in chance for t in range(3)]) for i in (1, 2, 3, 4)
    ]
    assert acceptance.survival(columns, 4) == pytest.approx(slow)


# -- what is judged --


def made_up_profile(seconds: Any, batches: tuple[int, ...]) -> profiles.Profile:
    """A grid of ``seconds(model, tokens, batch)``, without host time."""
    model = profiles.MeasuredModel("m", 1, 100, "0", hardware.read_config("llama-3.2-1b"))
    kinds = [("target", "target", 1), ("target", "draft", 2), ("target", "draft", 3)]
    kinds += [("draft", "target", 1), ("draft", "target", 2), ("draft", "draft", 1)]
    grid = [
        {
            "model": what,
            "follows": follows,
            "tokens": tokens,
            "batch": batch,
            "context": context,
            "mode": "eager",
            "seconds": [seconds(what, tokens, batch)],
            "plain": [seconds("target", 1, batch)],
        }
        for what, follows, tokens in kinds
        for batch in batches
        for context in (16, 64)
    ]
    overhead = [profiles.BatchOverhead(0.0, 0, batch, 16, "eager", [0.0]) for batch in batches]
    return profiles.Profile(
        *(profiles.SCHEMA, profiles.VERSION, "", "", model, model),
        profiles.Hardware("cpu", "cpu", "", 1, 1),
        profiles.Software("", "", "", "", "bfloat16"),
        *(2, [], [], [], []),
        msgspec.convert(grid, list[profiles.GridTime]),
        overhead,
    )


def test_break_even_is_the_batch_from_which_on_nothing_pays() -> None:
    def seconds(what: str, tokens: int, batch: int) -> float:
        return 0.1 if what == "draft" else max(1.0, batch * tokens / 4)

    batches = (1, 2, 4, 8)
    cells = {}
    for batch in batches:
        timed = {
            str(gamma): {
                "timed": [
                    {
                        "batch": batch,
                        "context": 16,
                        "gamma": gamma,
                        "blocks": 1,
                        "tokens": 1,
                        "seconds": gamma * 0.1 + seconds("target", gamma + 1, batch),
                        "target_s": 0.0,
                        "draft_s": 0.0,
                        "draft_runs": 0,
                        "wide_first_runs": 0,
                    }
                ],
                "plain_s": [seconds("target", 1, batch)],
            }
            for gamma in (0, 1, 2)
        }
        where = {"mode": "eager", "temperature": 0, "batch": batch, "context": 16}
        cells[str(batch)] = {**where, "timed": timed}
    rows = break_even_rows(made_up_profile(seconds, batches), cells, (0.9, 0.05))
    # At batch 2 a target run over two tokens is as long as over one: 1.9 / 1.1.  At batch 4 it is
    # twice as long, and 1.9 tokens do not pay for 2.1.  At alpha 0.05 1.05 tokens never pay.
    assert [row["measured_break_even"] for row in rows] == [4, 1]
    assert [row["predicted_break_even"] for row in rows] == [4, 1]
    assert rows[0]["measured_speedup"][1] == pytest.approx(1.9 / 1.1)


def test_a_roofline_of_a_roofline_fits() -> None:
    sheet, shape = hardware.accelerator("H200"), hardware.shape("llama-3.2-1b")
    truth = hardware.Efficiency(compute=0.5, memory=0.6, layer_s=2e-5)

    def seconds(what: str, tokens: int, batch: int) -> float:
        return hardware.roofline(shape, sheet, tokens, batch, 40, efficiency=truth).seconds

    costs = made_up_profile(seconds, (1, 8, 64, 512))
    rows = roofline_rows(costs, sheet, {"target": shape, "draft": shape})
    found = next(r for r in rows if (r["kind"], r["efficiency"]) == ("target", "fitted"))
    # The grid says 16 and 64 where the truth is 40, so nothing is exact.
    assert found["worst_error"] < 0.05
    assert found["memory"] == pytest.approx(0.6, rel=0.1)
    assert found["compute"] == pytest.approx(0.5, rel=0.1)
    peak = next(r for r in rows if (r["kind"], r["efficiency"]) == ("target", "peak"))
    assert peak["median_ratio"] < 0.7
