"""A target and a draft trained within minutes on the machine at hand, so that acceptance is real.

Where there is no network there are no weights; but every Python brings its own source files, and
those of the packages that are installed.  The sizes are those of Leviathan23 section 4.2: 97M and
6M parameters with 8k tokens, embeddings at both ends included.
"""

from __future__ import annotations

import json
import time
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path

import torch
import torch.nn.functional as F
from tokenizers import Tokenizer

from calibrate.train import corpus
from calibrate.train.family import MemberShape
from calibrate.train.heldout_eval import HeldOut
from calibrate.train.loop import (
    CONTEXT,
    Fit,
    Schedule,
    Work,
    encode,
    for_transformers,
    half_precision,
    train_tokenizer,
)

# A fit is over when its time is; its schedule counts in such shares of that time.
_SHARES = 10_000
# Batches of held-out windows that a loss is taken on.
_HELD_OUT = 4
_TARGET = MemberShape(layers=12, width=768, heads=12, feed_forward=2048, tied=False)
_DRAFT = MemberShape(layers=2, width=256, heads=4, feed_forward=683, tied=False)


@dataclass(frozen=True)
class PairRecipe(Schedule):
    """Everything that decides what comes out, but for the time.

    corpus_bytes, tokenizer_bytes : most text to train the models and the tokenizer on
    """

    tokens_per_step: int = 64 * CONTEXT
    vocabulary: int = 8192
    corpus_bytes: int = 64_000_000
    tokenizer_bytes: int = 24_000_000
    target: MemberShape = _TARGET
    draft: MemberShape = _DRAFT


def train_pair(
    recipe: PairRecipe, folder: Path, device: torch.device, seconds: Mapping[str, float]
) -> None:
    """Checkpoints ``target`` and ``draft`` in ``folder``, each with the one tokenizer.

    seconds : how long each of the two is trained, on the clock

    What is in the folder is not made again; a fit that was cut short starts over.  What came of
    the fits stands in ``target.json`` and ``draft.json``, which come last.
    """
    texts = corpus.sampled_texts(recipe.corpus_bytes)
    work = Work(folder, json.dumps([asdict(recipe), corpus.digest(texts)]))

    def make_tokenizer(path: Path) -> None:
        some, size = [], 0
        for text in texts.values():
            some.append(text)
            size += len(text)
            if size >= recipe.tokenizer_bytes:
                break
        train_tokenizer(some, recipe.vocabulary).save(str(path))

    tokenizer = Tokenizer.from_file(str(work.stage("tokenizer.json", make_tokenizer)))
    row = work.stage("tokens.pt", lambda path: torch.save(encode(tokenizer, texts), path))
    tokens = torch.load(row, weights_only=True).to(device)
    for name in ("target", "draft"):

        def fit(path: Path, name: str = name) -> None:
            torch.manual_seed(recipe.seed + (name == "draft"))
            model = getattr(recipe, name).build(recipe.vocabulary).to(device)
            record = _fit(model, tokens, recipe, seconds[name])
            record["held_out_loss_nats"] = HeldOut(tokenizer, device).loss(model.eval(), _HELD_OUT)
            model.save_pretrained(folder / name)
            for_transformers(tokenizer).save_pretrained(folder / name)
            path.write_text(json.dumps(record, indent=2) + "\n")

        work.stage(f"{name}.json", fit)


def _fit(
    model: torch.nn.Module, tokens: torch.Tensor, recipe: PairRecipe, seconds: float
) -> dict[str, float]:
    """Cross-entropy on random windows until the time is over."""
    fit = Fit(model, recipe, _SHARES)
    random = torch.Generator(tokens.device).manual_seed(recipe.seed)
    inside = torch.arange(CONTEXT, device=tokens.device)
    count = recipe.tokens_per_step // CONTEXT
    steps, began = 0, time.monotonic()
    while not steps or time.monotonic() - began < seconds:
        share = (time.monotonic() - began) / seconds
        starts = torch.randint(
            len(tokens) - CONTEXT, (count, 1), generator=random, device=tokens.device
        )
        ids = tokens[starts + inside]
        with half_precision(tokens.device):
            logits = model(ids, use_cache=False).logits
        loss = F.cross_entropy(logits[:, :-1].flatten(0, 1).float(), ids[:, 1:].flatten())
        fit.update(loss, min(int(share * _SHARES), _SHARES - 1))
        steps += 1
    last = float(loss.detach())  # waits for the device
    return {
        "parameters": sum(each.numel() for each in model.parameters()),
        "corpus_tokens": len(tokens),
        "tokens_seen": steps * count * CONTEXT,
        "steps": steps,
        "seconds": time.monotonic() - began,
        "last_loss_nats": last,
    }
