"""Train the EAGLE head of the embedded family (Li24; ``calibrate.models.eagle``).

    python -m calibrate.train.eagle --family calibrate/family --work build/eagle

1. own: the target continues prompts of the training corpus, at temperature 0 and at temperature 1;
2. eagle: the head learns the target's distributions on windows of the corpus and on that text,
   unrolled to a few depths on its own features (training-time test, Li25).  The loss at each depth
   is KL(p || q) + TV(p, q), as for the drafts of the family.

Stages that are in the work folder are skipped, and the fit resumes from its last checkpoint.  What
came out is the entry ``eagle`` of ``followers.json`` in the family: data, recipe, acceptance by
depth, time.  The rest of that record is left as it is.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F

from calibrate.measure.trace import TRACE, generator
from calibrate.models.eagle import EagleModel, load_head, save_head, unrolled
from calibrate.models.load import load
from calibrate.models.prompts import held_out_prompts
from calibrate.train import corpus
from calibrate.train.loop import (
    Fit,
    Schedule,
    Work,
    circumstances,
    continued,
    draws,
    encode,
    ordinary,
    report,
    run_script,
    top,
    training_data,
)
from specsim.files import write_atomically

CPU = torch.device("cpu")
# From logits (B, V) the next tokens (B, 1).
Draw = Callable[[torch.Tensor], torch.Tensor]
# What the head is judged on: requests of held-out text, prompt and new tokens of each, and depths.
REQUESTS, PROMPT, NEW, DEPTHS = 48, 64, 64, 6


@dataclass(frozen=True)
class EagleRecipe(Schedule):
    """Everything that decides what comes out, recorded beside the weights.

    prompt_tokens, new_tokens, texts : of the target's own text at each of the two temperatures
    own_share : of the steps that are on the target's own text, the others on the corpus
    window : tokens of a text of the corpus
    depths, depth_decay : depths that are unrolled, and how much less each further one counts: it
        is of use only where all before it were right
    """

    seed: int = 40
    tokens_per_step: int = 2048
    warm_up_steps: int = 50
    prompt_tokens: int = 32
    new_tokens: int = 96
    texts: int = 512
    own_share: float = 0.5
    window: int = 256
    depths: int = 3
    depth_decay: float = 0.8
    steps: int = 480
    rate: float = 1.0


def main() -> None:
    run_script(__doc__, lambda asked: train(EagleRecipe(), asked.family, asked.work))


def train(recipe: EagleRecipe, family: Path, folder: Path) -> None:
    """Run the stages, and write the head and its record into the family."""
    target = load(str(family / "target"), CPU, torch.float32)
    texts = corpus.training_texts()
    read = target.description.sha256, corpus.digest(texts)
    work = Work(folder, json.dumps([asdict(recipe), *read]))
    corpus_ids = encode(target.tokenizer.backend_tokenizer, texts)

    write = partial(write_own, recipe=recipe, target=target.model, corpus_ids=corpus_ids)
    own = torch.load(work.stage("own.pt", write), weights_only=True)

    model = EagleModel(target.model).train()

    def fit(path: Path) -> None:
        loss = partial(loss_at, model, recipe, target.model, corpus_ids, own)
        Fit(model, recipe, recipe.steps, recipe.rate).run("eagle", work, loss)
        torch.save(model.state_dict(), path)

    model.load_state_dict(torch.load(work.stage("eagle.pt", fit), weights_only=True))
    save_head(model, target.model, family / "eagle", target.description.sha256)
    # Judged is what is shipped, in 8 bits.
    head = load_head(family / "eagle", target.model, target.description.sha256)
    prompts = torch.tensor(held_out_prompts(target.tokenizer, PROMPT, REQUESTS))
    entry = {
        "data": {**training_data(texts, corpus_ids), "own_texts": len(own)},
        "recipe": asdict(recipe),
        "parameters": head.parameter_count,
        "judged_on": {"requests": REQUESTS, "prompt_tokens": PROMPT, "new_tokens": NEW},
        "acceptance_by_depth": judged(head, target.model, prompts),
        "seconds": work.seconds,
        **circumstances(CPU),
    }
    record(family / "followers.json", {"eagle": entry})
    print(json.dumps(entry, indent=2))


def record(path: Path, entries: Mapping[str, Any]) -> None:
    """Put entries into the record of the followers, whose others are kept."""
    known = json.loads(path.read_text()) if path.exists() else {}
    write_atomically(path, (json.dumps({**known, **entries}, indent=2) + "\n").encode())


# -- stage 1 -------------------------------------------------------------------------------


def write_own(path: Path, recipe: EagleRecipe, target: Any, corpus_ids: torch.Tensor) -> None:
    """Random prompts with the target's continuations, half of them at each temperature."""
    random = torch.Generator().manual_seed(recipe.seed)
    rows, batch = [], min(128, recipe.texts)
    writers: tuple[Draw, ...] = (top, partial(ordinary, random=random))
    for number, draw in enumerate(writers):
        turns = recipe.texts // batch
        for turn in range(turns):
            limit = len(corpus_ids) - recipe.prompt_tokens
            starts = draws(limit, batch, recipe.seed, 0, number, turn)
            prompts = corpus_ids[starts[:, None] + torch.arange(recipe.prompt_tokens)]
            rows.append(continued(target, prompts, recipe.new_tokens, draw))
            report(f"own text at temperature {number}", turn, turns)
    torch.save(torch.cat(rows), path)


# -- stage 2 -------------------------------------------------------------------------------


def pick(
    recipe: EagleRecipe, corpus_ids: torch.Tensor, own: torch.Tensor, step: int
) -> torch.Tensor:
    """Texts of one step (B, T): windows of the corpus, or what the target wrote with its prompt."""
    mine = int(step * recipe.own_share) < int((step + 1) * recipe.own_share)
    length = own.shape[1] if mine else recipe.window
    count = max(1, recipe.tokens_per_step // length)
    if mine:
        return own[draws(len(own), count, recipe.seed, 1, step)]
    starts = draws(len(corpus_ids) - length, count, recipe.seed, 1, step)
    return corpus_ids[starts[:, None] + torch.arange(length)]


def loss_at(
    model: EagleModel,
    recipe: EagleRecipe,
    target: Any,
    corpus_ids: torch.Tensor,
    own: torch.Tensor,
    step: int,
) -> tuple[torch.Tensor, dict[str, torch.Tensor]]:
    """Cross-entropy and TV to the target at every depth, over all starts of the texts of a step.

    Cross-entropy is KL(p || q) and the entropy of p, which no weight changes.
    """
    text = pick(recipe, corpus_ids, own, step)
    features, logits = read(target, text)
    verified = F.softmax(logits, dim=-1)
    losses, shown = [], {}
    for depth, rows in enumerate(unrolled(model, text, features[:, :-1], recipe.depths), start=1):
        log_q = F.log_softmax(rows, dim=-1)
        p = verified[:, depth:]
        variation = 0.5 * (p - log_q.exp()).abs().sum(-1).mean()
        losses.append(variation - (p * log_q).sum(-1).mean())
        shown[f"accepted_{depth}"] = 1 - variation
    weight = (recipe.depth_decay ** torch.arange(len(losses))).to(verified)
    return (torch.stack(losses) @ weight) / weight.sum(), shown


@torch.no_grad()
def read(target: Any, text: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """The target's features (B, T, h) and logits (B, T, V) at every token of texts (B, T)."""
    output = target(text, output_hidden_states=True, use_cache=False)
    return output.hidden_states[-1], output.logits


# -- the result ----------------------------------------------------------------------------


@torch.inference_mode()
def judged(model: EagleModel, target: Any, prompts: torch.Tensor) -> dict[str, list[float]]:
    """Acceptance at each depth on the target's own text, given that all before it was accepted.

    A block starts at every token behind a prompt (B, n) that has all depths behind it.
    """
    starts, first = NEW - DEPTHS + 1, prompts.shape[1]
    writers: tuple[Draw, ...] = (top, partial(ordinary, random=generator(CPU, TRACE)))
    found = {}
    for number, draw in enumerate(writers):
        text = continued(target, prompts, NEW, draw)
        features, logits = read(target, text)
        survived = [torch.ones((len(text), starts, 1))]
        rows = unrolled(model, text, features[:, :-1], DEPTHS, first - 2)
        for depth, drafted in enumerate(each[:, :starts] for each in rows):
            place = first + depth
            token = text[:, place : place + starts, None]
            if draw is top:
                accepted = (drafted.argmax(-1, keepdim=True) == token).float()
            else:
                verified = logits[:, place - 1 : place - 1 + starts]
                p, q = (each.softmax(-1).gather(-1, token) for each in (verified, drafted))
                accepted = (q / p).clamp(max=1)
            survived.append(survived[-1] * accepted)
        shares = [float(each.mean()) for each in survived]
        rates = [after / before if before else 0.0 for before, after in pairwise(shares)]
        found[f"temperature_{number}"] = rates
    return found


if __name__ == "__main__":
    main()
