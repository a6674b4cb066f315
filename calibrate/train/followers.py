"""Train three more members of the embedded family on text that its target wrote.

    python -m calibrate.train.followers --family calibrate/family --work build/followers

1. greedy: the target continues prompts of the training corpus at temperature 0;
2. aligned: the small model of BiLD after prediction alignment (Kim23 section 3.5.1): ``small``
   goes on with cross-entropy on what the target wrote;
3. masks: the drafter of SpecDec (Xia22).  ``middle`` with one more layer and one more token, the
   mask, learns to fill in a block of masks at once.  One run trains many blocks of one text;
4. eagle: a head over the target's hidden states (``calibrate.train.eagle``, which also runs alone).

Stages that are in the work folder are skipped, and both fits resume from their last checkpoint.
On one kind of processor the weights come out the same to the last bit; another one rounds half
precision otherwise, and what comes out is as good and not the same.  What is shipped is what one
run wrote on two cores of an AMD EPYC.
``followers.json`` in the family records data, seed, steps, losses, acceptance and time.
"""

from __future__ import annotations

import argparse
import json
import shutil
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from transformers import LlamaForCausalLM

from calibrate.models.load import Loaded, Pair, load
from calibrate.models.prompts import held_out_prompts
from calibrate.train import corpus, eagle
from calibrate.train.heldout_eval import HeldOut, bild_costs, own_text_acceptance, specdec_blocks
from calibrate.train.loop import (
    Fit,
    LossAt,
    Schedule,
    Work,
    circumstances,
    continued,
    draws,
    encode,
    half_precision,
    report,
    run_script,
    top,
    training_data,
)
from calibrate.train.masks import blocks_filled, with_masks
from specsim.schemes import BigLittle

CPU = torch.device("cpu")
# Second word of every random key, so that no two stages share random numbers.
GREEDY, MASKS, ALIGNED = range(3)
# What the members are judged on: requests of held-out text, prompt and new tokens of each.
REQUESTS, PROMPT, NEW = 48, 64, 64
BILD = tuple(BigLittle(fallback_threshold=fallback) for fallback in (0.3, 0.5, 0.7, 0.9))


@dataclass(frozen=True)
class FollowersRecipe(Schedule):
    """Everything that decides what comes out, recorded beside the weights.

    prompt_tokens : the prompt lengths, with so many texts of each
    block, blocks : masks in a block, and blocks trained on one text at once
    block_decay : how much less each further mask of a block counts: it is of use only where all
        before it were right
    """

    seed: int = 30
    prompt_tokens: tuple[int, ...] = (32, 64, 192)
    new_tokens: int = 96
    texts: int = 1408
    block: int = 8
    blocks: int = 16
    block_decay: float = 0.85
    masks_steps: int = 3200
    masks_rate: float = 0.5
    aligned_steps: int = 500
    aligned_rate: float = 0.05


def main() -> None:
    def both(asked: argparse.Namespace) -> None:
        train(FollowersRecipe(), asked.family, asked.work)
        eagle.train(eagle.EagleRecipe(), asked.family, asked.work / "eagle")

    run_script(__doc__, both)


def train(recipe: FollowersRecipe, family: Path, folder: Path) -> None:
    """Run all stages but the head's, and write both members and their record into the family."""
    target, middle, small = (
        load(str(family / name), CPU, torch.float32) for name in ("target", "middle", "small")
    )
    texts = corpus.training_texts()
    members = [each.description.sha256 for each in (target, middle, small)]
    work = Work(folder, json.dumps([asdict(recipe), members, corpus.digest(texts)]))
    corpus_ids = encode(target.tokenizer.backend_tokenizer, texts)

    greedy = []
    for prompt in recipe.prompt_tokens:
        write = partial(
            write_greedy, recipe=recipe, target=target.model, corpus_ids=corpus_ids, prompt=prompt
        )
        greedy.append(torch.load(work.stage(f"greedy_{prompt}.pt", write), weights_only=True))

    def fit(name: str, model: LlamaForCausalLM, steps: int, rate: float, loss: LossAt) -> None:
        def write(path: Path) -> None:
            Fit(model.train(), recipe, steps, rate).run(name, work, loss)
            torch.save(model.state_dict(), path)

        model.load_state_dict(torch.load(work.stage(f"{name}.pt", write), weights_only=True))

    aligned = LlamaForCausalLM(small.model.config)
    aligned.load_state_dict(small.model.state_dict())
    alignment = partial(aligned_loss, aligned, recipe, greedy)
    fit("aligned", aligned, recipe.aligned_steps, recipe.aligned_rate, alignment)

    torch.manual_seed(recipe.seed)
    masks = with_masks(middle.model)
    filling = partial(masks_loss, masks, recipe, greedy)
    fit("masks", masks, recipe.masks_steps, recipe.masks_rate, filling)

    followers = {
        name: exported(model, folder / name, family)
        for name, model in (("masks", masks), ("aligned", aligned))
    }
    judged = {
        "masks": judged_blocks(Pair(target, followers["masks"]), recipe),
        "small": judged_drafts(Pair(target, small)),
        "aligned": judged_drafts(Pair(target, followers["aligned"])),
    }
    shipped = ["masks"] + ["aligned"] * helps(judged["small"]["bild"], judged["aligned"]["bild"])
    for name in shipped:
        shutil.copytree(folder / name, family / name, dirs_exist_ok=True)
    record = {
        "data": {
            **training_data(texts, corpus_ids),
            "greedy_texts": sum(len(rows) for rows in greedy),
            "greedy_tokens": sum(len(rows) for rows in greedy) * recipe.new_tokens,
        },
        "recipe": asdict(recipe),
        "parameters": {name: one.description.parameters for name, one in followers.items()},
        "judged_on": {"requests": REQUESTS, "prompt_tokens": PROMPT, "new_tokens": NEW},
        **judged,
        "shipped": shipped,
        "seconds": work.seconds,
        **circumstances(CPU),
    }
    eagle.record(family / "followers.json", record)
    print(json.dumps(record, indent=2))


# -- stage 1 -------------------------------------------------------------------------------


def write_greedy(
    path: Path,
    recipe: FollowersRecipe,
    target: LlamaForCausalLM,
    corpus_ids: torch.Tensor,
    prompt: int,
) -> None:
    """Random prompts of ``prompt`` tokens with the target's continuations, as whole rows."""
    batch = min(128, recipe.texts)
    rows, turns = [], recipe.texts // batch
    for turn in range(turns):
        starts = draws(len(corpus_ids) - prompt, batch, recipe.seed, GREEDY, prompt, turn)
        prompts = corpus_ids[starts[:, None] + torch.arange(prompt)]
        rows.append(continued(target, prompts, recipe.new_tokens, top))
        report(f"greedy, prompts of {prompt} tokens", turn, turns)
    torch.save(torch.cat(rows), path)


def pick(
    recipe: FollowersRecipe, greedy: Sequence[torch.Tensor], stage: int, step: int, extra: int
) -> tuple[torch.Tensor, int]:
    """Texts of one step, all of one length, and where the target's part of them begins.

    extra : tokens that each text brings with it, counted into ``tokens_per_step``
    """
    texts = greedy[int(draws(len(greedy), 1, recipe.seed, stage, step, 0))]
    length = texts.shape[1]
    count = max(1, recipe.tokens_per_step // (length + extra))
    return texts[draws(len(texts), count, recipe.seed, stage, step, 1)], length - recipe.new_tokens


# -- stage 2 -------------------------------------------------------------------------------


def aligned_loss(
    model: LlamaForCausalLM, recipe: FollowersRecipe, greedy: Sequence[torch.Tensor], step: int
) -> tuple[torch.Tensor, dict[str, torch.Tensor]]:
    """Cross-entropy on the tokens that the target wrote, behind the prompt."""
    text, first = pick(recipe, greedy, ALIGNED, step, 0)
    with half_precision(CPU):
        logits = model(text[:, :-1], use_cache=False).logits[:, first - 1 :]
    logits, labels = logits.float().flatten(0, 1), text[:, first:].flatten()
    right = (logits.argmax(-1) == labels).float().mean()
    return F.cross_entropy(logits, labels), {"right": right}


# -- stage 3 -------------------------------------------------------------------------------


def masks_loss(
    model: LlamaForCausalLM, recipe: FollowersRecipe, greedy: Sequence[torch.Tensor], step: int
) -> tuple[torch.Tensor, dict[str, torch.Tensor]]:
    """Mask i of a block that starts at s learns the target's token at s + i."""
    width, blocks = recipe.block, recipe.blocks
    weight = recipe.block_decay ** torch.arange(width)
    text, first = pick(recipe, greedy, MASKS, step, width * blocks)
    places = draws(recipe.new_tokens - width + 1, len(text) * blocks, recipe.seed, MASKS, step)
    losses, right = blocks_filled(model, text, first + places.view(-1, blocks), width)
    accepted = right.cumprod(1).sum(1).float().mean()
    return (losses @ weight).mean() / weight.sum(), {"accepted": accepted}


# -- the result ----------------------------------------------------------------------------


def exported(model: LlamaForCausalLM, folder: Path, family: Path) -> Loaded:
    """The model written in half precision, with the tokenizer of the family, and read back."""
    model.to(torch.float16).save_pretrained(folder)
    for name in ("tokenizer.json", "tokenizer_config.json"):
        shutil.copy(family / "target" / name, folder / name)
    return load(str(folder), CPU, torch.float32)


@torch.inference_mode()
def judged_blocks(pair: Pair, recipe: FollowersRecipe) -> dict[str, Any]:
    """Every place of the target's greedy text as the start of a block, and SpecDec for real."""
    prompts = held_out_prompts(pair.target.tokenizer, PROMPT, REQUESTS)
    text = continued(pair.target.model, torch.tensor(prompts), NEW, top)
    starts = torch.arange(PROMPT, PROMPT + NEW - recipe.block + 1).expand(len(text), -1)
    losses, right = blocks_filled(pair.draft.model, text, starts, recipe.block)
    return {
        "loss_by_mask_nats": losses.mean(0).tolist(),
        "right_by_mask": right.float().mean(0).tolist(),
        "specdec": specdec_blocks(pair, prompts, NEW, recipe.block),
    }


def judged_drafts(pair: Pair) -> dict[str, Any]:
    """Loss and acceptance of a draft, and what BiLD costs with it."""
    tokenizer = pair.target.tokenizer
    prompts = held_out_prompts(tokenizer, PROMPT, REQUESTS)
    held_out = HeldOut(tokenizer.backend_tokenizer, CPU)
    return {
        "held_out_loss_nats": held_out.loss(pair.draft.model),
        "held_out_acceptance": held_out.acceptance(pair.target.model, pair.draft.model),
        "own_text_acceptance": own_text_acceptance(pair, prompts, NEW),
        "bild": [bild_costs(pair, prompts, NEW, scheme) for scheme in BILD],
    }


def helps(before: Sequence[dict[str, float]], after: Sequence[dict[str, float]]) -> bool:
    """Does BiLD with the draft ``after`` cost less for text as near to greedy decoding's?

    Costs between the policies of ``after`` are interpolated by regret.  Where ``before`` comes
    nearer to greedy decoding than any of them there is nothing to compare.
    """
    curve = sorted((one["regret_nats"], one["cost"]) for one in after)
    regrets, costs = zip(*curve, strict=True)
    saved = [
        one["cost"] - np.interp(one["regret_nats"], regrets, costs)
        for one in before
        if one["regret_nats"] >= regrets[0]
    ]
    return bool(saved) and float(np.mean(saved)) > 0


if __name__ == "__main__":
    main()
