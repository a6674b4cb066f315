"""Training of the head: its loss is unrolled on its own features, and its record joins others."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path

import pytest
import torch

from calibrate.models.eagle import EagleModel, load_head
from calibrate.models.load import load
from calibrate.train import corpus
from calibrate.train import eagle as training
from calibrate.train.eagle import EagleRecipe, loss_at, pick, train
from tests.support.heads import slow_rows, unlike
from tests.support.imitations import CPU
from tests.support.models import build_model

TOY = EagleRecipe(
    tokens_per_step=64,
    warm_up_steps=2,
    prompt_tokens=8,
    new_tokens=8,
    texts=4,
    window=12,
    depths=2,
    steps=4,
)


def test_the_loss_is_that_of_every_start_and_depth_alone(tmp_path: Path) -> None:
    """Cross-entropy and total variation, token by token from the obvious twin."""
    target = load(str(build_model(tmp_path, 2, 16, seed=3)), CPU, torch.float64).model
    head, recipe = unlike(target), dataclasses.replace(TOY, tokens_per_step=24)
    ids = torch.randint(64, (200,), generator=torch.Generator().manual_seed(1))
    own = torch.zeros((1, 16), dtype=torch.long)
    loss, shown = loss_at(head, recipe, target, ids, own, step=0)

    texts = pick(recipe, ids, own, step=0)
    assert texts.shape == (2, 12)
    with torch.inference_mode():
        p = target(texts, use_cache=False).logits.softmax(-1)
    weighed = weights = 0.0
    for depth in range(2):
        entropies, variations = [], []
        for row, text in enumerate(texts.tolist()):
            for read in range(2 + depth, 13):
                q = slow_rows(head, target, text[:read], depth).softmax(-1)
                entropies.append(-(p[row, read - 1] * q.log()).sum())
                variations.append(0.5 * (p[row, read - 1] - q).abs().sum())
        variation = float(torch.stack(variations).mean())
        assert float(shown[f"accepted_{depth + 1}"].detach()) == pytest.approx(1 - variation)
        # The last token of a text has a target's row too, and so a loss.
        weighed += recipe.depth_decay**depth * (float(torch.stack(entropies).mean()) + variation)
        weights += recipe.depth_decay**depth
    assert float(loss.detach()) == pytest.approx(weighed / weights)


def test_texts_of_a_step_are_the_corpus_or_the_targets_own() -> None:
    ids, own = torch.arange(100, 164), torch.arange(64).view(4, 16)
    kinds = [bool((pick(TOY, ids, own, step) < 64).all()) for step in range(6)]
    assert kinds == [False, True] * 3
    assert pick(TOY, ids, own, 0).shape == (5, 12)
    assert pick(TOY, ids, own, 1).shape == (4, 16)


def test_only_the_heads_own_weights_learn(tmp_path: Path) -> None:
    target = load(str(build_model(tmp_path, 2, 16, seed=3)), CPU, torch.float32).model
    head = EagleModel(target)
    ids = torch.arange(64).repeat(4)
    loss, _ = loss_at(head, TOY, target, ids, torch.zeros((1, 16), dtype=torch.long), step=0)
    loss.backward()
    learning = {name for name, weight in head.named_parameters() if weight.grad is not None}
    assert learning == set(head.own())
    assert all(weight.grad is None for weight in target.parameters())


def test_end_to_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A head beside the other members, the same from a second run, and its record in theirs."""
    texts = {"a.py": "w2 w3 w5 w7 " * 40, "b.py": "w11 w13 w17 " * 50}
    monkeypatch.setattr(corpus, "training_texts", lambda: texts)
    monkeypatch.setattr(corpus, "held_out_texts", lambda: {"c.py": "w2 w5 w11 w13 w7 " * 900})
    for name, value in (("REQUESTS", 3), ("PROMPT", 8), ("NEW", 12)):
        monkeypatch.setattr(training, name, value)
    family = tmp_path / "family"
    build_model(family / "target", layers=2, width=16, seed=1)
    (family / "followers.json").write_text('{"masks": {"loss": 1}}')
    weights = []
    for work in ("one", "other", "other"):
        train(TOY, family, tmp_path / work)
        weights.append((family / "eagle" / "model.safetensors").read_bytes())
    assert weights[0] == weights[1] == weights[2]
    record = json.loads((family / "followers.json").read_text())
    assert record["masks"] == {"loss": 1}
    assert record["eagle"]["recipe"] == dataclasses.asdict(TOY)
    for rates in record["eagle"]["acceptance_by_depth"].values():
        assert len(rates) == training.DEPTHS
        assert all(0 <= rate <= 1 for rate in rates)
    target = load(str(family / "target"), CPU, torch.float32)
    head = load_head(family / "eagle", target.model, target.description.sha256)
    assert head.parameter_count == record["eagle"]["parameters"]
