"""Train the embedded family: tokenizer, target, distilled drafts and bigram counts.

    python -m calibrate.train.family --family calibrate/family --work build/family

Stages run in order and each is skipped when its result is in the work folder, so a killed run
goes on where it was (the target resumes from its last checkpoint).  Data is the standard
library of the Python that runs this (``calibrate.train.corpus``).

1. tokenizer: byte-level BPE;
2. target: cross-entropy, Muon for the matrices and AdamW for the rest, warm-up, constant rate,
   linear decay over the second half; the last fifth of the steps on windows of full context;
3. samples: text drawn from the target at temperature 1;
4. drafts: both drafts in one loop against the target's full distributions, on corpus windows
   and on the target's samples.  The loss is KL(p || q) + TV(p, q): TV(p, q) is one minus the
   acceptance rate (Leviathan23 Cor 3.6), KL keeps gradients alive where TV is flat;
5. sharpened: the same loop goes on for a while with TV alone, at a lower rate and with more of
   the target's samples, since acceptance is measured on the target's text;
6. export: float16 safetensors, bigram counts, and ``training.json`` with data, seed, steps,
   losses, acceptance and time.
"""

from __future__ import annotations

import argparse
import json
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from safetensors.numpy import save_file
from tokenizers import Tokenizer
from transformers import LlamaConfig, LlamaForCausalLM

from calibrate.train import corpus
from calibrate.train.heldout_eval import HeldOut
from calibrate.train.loop import (
    CONTEXT,
    Fit,
    Schedule,
    Work,
    circumstances,
    continued,
    draws,
    encode,
    for_transformers,
    half_precision,
    ordinary,
    report,
    run_script,
    train_tokenizer,
    training_data,
)


@dataclass(frozen=True)
class MemberShape:
    """A decoder-only member of the family."""

    layers: int
    width: int
    heads: int
    feed_forward: int
    tied: bool = True  # one table of tokens for both ends

    def build(self, vocabulary: int) -> LlamaForCausalLM:
        return LlamaForCausalLM(
            LlamaConfig(
                vocab_size=vocabulary,
                hidden_size=self.width,
                intermediate_size=self.feed_forward,
                num_hidden_layers=self.layers,
                num_attention_heads=self.heads,
                num_key_value_heads=self.heads,
                max_position_embeddings=CONTEXT,
                tie_word_embeddings=self.tied,
                bos_token_id=0,
                eos_token_id=0,
                pad_token_id=0,
            )
        )


# Deep and thin: at this size a run costs its layers, so depth is what makes a draft cheap.
SHAPES = {
    "target": MemberShape(layers=12, width=192, heads=3, feed_forward=512),
    "middle": MemberShape(layers=2, width=160, heads=5, feed_forward=432),
    "small": MemberShape(layers=1, width=128, heads=4, feed_forward=352),
}


@dataclass(frozen=True)
class FamilyRecipe(Schedule):
    """Everything that decides what comes out, recorded beside the weights."""

    vocabulary: int = 2048
    target_steps: int = 2600
    draft_steps: int = 1500
    sample_requests: int = 1280
    sample_tokens: int = 160
    sample_share: float = 0.2
    sharpen_steps: int = 420
    sharpen_sample_share: float = 0.6
    sharpen_rate: float = 0.3


def main() -> None:
    device = "cuda" if torch.cuda.is_available() else "cpu"
    steps = {name: getattr(FamilyRecipe, name) for name in ("target_steps", "draft_steps")}

    def train(asked: argparse.Namespace) -> None:
        recipe = FamilyRecipe(target_steps=asked.target_steps, draft_steps=asked.draft_steps)
        Training(recipe, asked.work, torch.device(asked.device)).run(asked.family)

    run_script(__doc__, train, device=device, **steps)


class Training:
    """The stages; each reads what the former left in the work folder."""

    def __init__(self, recipe: FamilyRecipe, folder: Path, device: torch.device) -> None:
        self.recipe, self.device = recipe, device
        shapes = {name: asdict(shape) for name, shape in SHAPES.items()}
        self.texts = corpus.training_texts()
        read = corpus.digest(self.texts)
        self.work = Work(folder, json.dumps([asdict(recipe), shapes, read]))

    def run(self, out: Path) -> None:
        stage = self.work.stage
        tokenizer = stage("tokenizer.json", self.train_tokenizer)
        self.tokenizer = Tokenizer.from_file(str(tokenizer))
        self.train_tokens = encode(self.tokenizer, self.texts)
        self.held_out = HeldOut(self.tokenizer, self.device)
        print(f"{self.train_tokens.numel():,} training tokens", flush=True)
        target = torch.load(
            stage("target.pt", self.train_target), weights_only=True, map_location=self.device
        )
        self.target = self.build("target", target)
        self.samples = torch.load(stage("samples.pt", self.draw_samples), weights_only=True)
        stage("drafts.pt", self.train_drafts)
        sharpened = stage("sharpened.pt", self.sharpen_drafts)
        states = torch.load(sharpened, weights_only=True, map_location=self.device)
        drafts = {name: self.build(name, state) for name, state in states.items()}
        self.export(out, {"target": self.target, **drafts})

    # -- stage 1 ---------------------------------------------------------------------------

    def train_tokenizer(self, path: Path) -> None:
        tokenizer = train_tokenizer(self.texts.values(), self.recipe.vocabulary)
        tokenizer.save(str(path))

    # -- stage 2 ---------------------------------------------------------------------------

    def train_target(self, path: Path) -> None:
        torch.manual_seed(self.recipe.seed)
        model = SHAPES["target"].build(self.recipe.vocabulary).to(self.device)
        steps = self.recipe.target_steps
        fit = Fit(model, self.recipe, steps)

        def loss(step: int) -> tuple[torch.Tensor, dict[str, torch.Tensor]]:
            if step and step % 400 == 0:
                print(f"held-out loss {self.held_out.loss(model, 8):.4f}", flush=True)
            ids = self.windows(self.train_tokens, step, 256 if step < 0.8 * steps else CONTEXT)
            with half_precision(self.device):
                logits = model(ids).logits
            return F.cross_entropy(logits[:, :-1].flatten(0, 1).float(), ids[:, 1:].flatten()), {}

        fit.run("target", self.work, loss)
        torch.save(model.state_dict(), path)

    # -- stage 3 ---------------------------------------------------------------------------

    def draw_samples(self, path: Path) -> None:
        """Continuations of random 32-token prompts by the target at temperature 1."""
        generator = torch.Generator().manual_seed(self.recipe.seed + 1)
        draw = partial(ordinary, random=generator)
        batch, tokens, rows = 128, self.recipe.sample_tokens - 32, []
        turns = self.recipe.sample_requests // batch
        for turn in range(turns):
            starts = torch.randint(len(self.train_tokens) - 32, (batch,), generator=generator)
            ids = self.train_tokens[starts[:, None] + torch.arange(32)].to(self.device)
            with half_precision(self.device):
                rows.append(continued(self.target, ids, tokens, draw).cpu())
            report("samples", turn, turns)
        torch.save(torch.cat(rows), path)

    # -- stage 4 ---------------------------------------------------------------------------

    def train_drafts(self, path: Path) -> None:
        torch.manual_seed(self.recipe.seed + 2)
        drafts = {
            name: SHAPES[name].build(self.recipe.vocabulary).to(self.device)
            for name in ("middle", "small")
        }
        recipe = self.recipe
        self.distil("drafts", drafts, recipe.draft_steps, recipe.sample_share, 1.0, kl=True)
        torch.save({name: model.state_dict() for name, model in drafts.items()}, path)

    # -- stage 5 ---------------------------------------------------------------------------

    def sharpen_drafts(self, path: Path) -> None:
        file = self.work.folder / "drafts.pt"
        states = torch.load(file, weights_only=True, map_location=self.device)
        drafts = {name: self.build(name, state).train() for name, state in states.items()}
        recipe = self.recipe
        share, rate = recipe.sharpen_sample_share, recipe.sharpen_rate
        self.distil("sharpened", drafts, recipe.sharpen_steps, share, rate, kl=False)
        torch.save({name: model.state_dict() for name, model in drafts.items()}, path)

    def distil(
        self,
        stage: str,
        drafts: dict[str, LlamaForCausalLM],
        steps: int,
        sample_share: float,
        rate: float,
        kl: bool,
    ) -> None:
        """Bring the drafts' distributions near the target's, on its samples and on the corpus."""
        fits = {name: Fit(model, self.recipe, steps, rate) for name, model in drafts.items()}
        for step in range(steps):
            # Sharpening draws other windows than the pass before it.
            key = step if kl else step + self.recipe.draft_steps
            if step % 10 < 10 * sample_share:
                count = self.recipe.tokens_per_step // self.recipe.sample_tokens
                rows = draws(len(self.samples), count, self.recipe.seed, key)
                ids = self.samples[rows].to(self.device)
            else:
                ids = self.windows(self.train_tokens, key, 256 if step % 4 else CONTEXT)
            with torch.no_grad(), half_precision(self.device):
                log_p = F.log_softmax(self.target(ids).logits.float(), dim=-1)
            shown = {}
            for name, model in drafts.items():
                with half_precision(self.device):
                    logits = model(ids).logits
                log_q = F.log_softmax(logits.float(), dim=-1)
                p, q = log_p.exp(), log_q.exp()
                variation = 0.5 * (p - q).abs().sum(-1).mean()
                loss = variation + (p * (log_p - log_q)).sum(-1).mean() if kl else variation
                fits[name].update(loss, step)
                shown[name] = 1 - variation
            report(stage, step, steps, **shown)

    # -- stage 6 ---------------------------------------------------------------------------

    def export(self, out: Path, members: dict[str, LlamaForCausalLM]) -> None:
        out.mkdir(parents=True, exist_ok=True)
        fast = for_transformers(self.tokenizer)
        losses, acceptance = {}, {}
        for name, model in members.items():
            losses[name] = self.held_out.loss(model)
            if name != "target":
                acceptance[name] = self.held_out.acceptance(self.target, model)
            model.to(torch.float16).save_pretrained(out / name)
            fast.save_pretrained(out / name)
        save_file(
            bigram_counts(self.train_tokens.numpy(), self.recipe.vocabulary),
            out / "bigram.safetensors",
        )
        record = {
            "data": {
                **training_data(self.texts, self.train_tokens),
                "held_out_tokens": self.held_out.tokens,
            },
            "recipe": asdict(self.recipe),
            "shapes": {name: asdict(shape) for name, shape in SHAPES.items()},
            "parameters": {
                name: sum(p.numel() for p in m.parameters()) for name, m in members.items()
            },
            "held_out_loss_nats": losses,
            "held_out_acceptance": acceptance,
            "seconds": self.work.seconds,
            **circumstances(self.device),
        }
        (out / "training.json").write_text(json.dumps(record, indent=2) + "\n")
        print(json.dumps(record, indent=2))

    # -- shared ----------------------------------------------------------------------------

    def build(self, name: str, state: dict[str, torch.Tensor]) -> LlamaForCausalLM:
        model = SHAPES[name].build(self.recipe.vocabulary).to(self.device)
        model.load_state_dict(state)
        return model.eval()

    def windows(self, tokens: torch.Tensor, step: int, length: int) -> torch.Tensor:
        """Random windows of one step, a function of seed and step alone, so runs resume exactly."""
        count = self.recipe.tokens_per_step // length
        starts = draws(len(tokens) - length, count, self.recipe.seed, step)
        return tokens[starts[:, None] + torch.arange(length)].to(self.device)


def bigram_counts(
    tokens: np.ndarray[Any, np.dtype[np.int64]], vocabulary: int
) -> dict[str, np.ndarray[Any, Any]]:
    """Counts of (previous, next) token pairs, as compressed rows: row t is start[t]:start[t+1]."""
    pairs, counts = np.unique(tokens[:-1] * vocabulary + tokens[1:], return_counts=True)
    start = np.searchsorted(pairs, np.arange(vocabulary + 1) * vocabulary)
    return {
        "start": start.astype(np.int32),
        "next": (pairs % vocabulary).astype(np.int16),
        "count": counts.astype(np.int32),
    }


if __name__ == "__main__":
    main()
