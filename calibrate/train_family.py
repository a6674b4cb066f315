"""Train the embedded family: tokenizer, target, distilled drafts and bigram counts.

    python -m calibrate.train_family --out calibrate/family --work build/family

Stages run in order and each is skipped when its result is in the work folder, so a killed run
goes on where it was (the target resumes from its last checkpoint).  Data is the standard
library of the Python that runs this (``calibrate.corpus``).

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
import itertools
import json
import math
import os
import platform
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
import transformers
from safetensors.numpy import save_file
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

from calibrate import corpus

END_OF_TEXT = "<|endoftext|>"
CONTEXT = 512
# Batches of 8 windows of held-out text that losses and acceptance are judged on.
HELD_OUT_BATCHES = 24


@dataclass(frozen=True)
class Shape:
    """A decoder-only member of the family."""

    layers: int
    width: int
    heads: int
    feed_forward: int

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
                tie_word_embeddings=True,
                bos_token_id=0,
                eos_token_id=0,
                pad_token_id=0,
            )
        )


# Deep and thin: at this size a run costs its layers, so depth is what makes a draft cheap.
SHAPES = {
    "target": Shape(layers=12, width=192, heads=3, feed_forward=512),
    "middle": Shape(layers=2, width=160, heads=5, feed_forward=432),
    "small": Shape(layers=1, width=128, heads=4, feed_forward=352),
}


@dataclass(frozen=True)
class Recipe:
    """Everything that decides what comes out, recorded beside the weights."""

    seed: int = 20
    vocabulary: int = 2048
    tokens_per_step: int = 4096
    target_steps: int = 2600
    draft_steps: int = 1500
    sample_requests: int = 1280
    sample_tokens: int = 160
    sample_share: float = 0.2
    sharpen_steps: int = 420
    sharpen_sample_share: float = 0.6
    sharpen_rate: float = 0.3
    matrix_rate: float = 0.02
    other_rate: float = 4e-3
    warm_up_steps: int = 100
    weight_decay: float = 0.05

    def rate_at(self, step: int, steps: int) -> float:
        """Share of the full learning rate: warm-up, constant, linear decay in the second half."""
        return min(1.0, (step + 1) / self.warm_up_steps, 2.0 * (steps - step) / steps)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--out", type=Path, required=True, help="folder of the finished family")
    parser.add_argument("--work", type=Path, required=True, help="folder of checkpoints")
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--target-steps", type=int, default=Recipe.target_steps)
    parser.add_argument("--draft-steps", type=int, default=Recipe.draft_steps)
    arguments = parser.parse_args()
    recipe = Recipe(target_steps=arguments.target_steps, draft_steps=arguments.draft_steps)
    arguments.work.mkdir(parents=True, exist_ok=True)
    Training(recipe, arguments.work, torch.device(arguments.device)).run(arguments.out)


class Training:
    """The stages; each reads what the former left in the work folder."""

    def __init__(self, recipe: Recipe, work: Path, device: torch.device) -> None:
        self.recipe, self.work, self.device = recipe, work, device
        self.texts = corpus.training_texts()
        self.seconds: dict[str, float] = {}

    def run(self, out: Path) -> None:
        self.check_recipe()
        tokenizer = self.stage("tokenizer.json", self.train_tokenizer)
        self.tokenizer = Tokenizer.from_file(str(tokenizer))
        self.train_tokens = self.encode(self.texts)
        self.held_tokens = self.encode(corpus.held_out_texts())
        print(f"{self.train_tokens.numel():,} training tokens", flush=True)
        target_file = self.stage("target.pt", self.train_target)
        self.target = self.load("target", target_file)
        self.samples = torch.load(self.stage("samples.pt", self.draw_samples), weights_only=True)
        self.stage("drafts.pt", self.train_drafts)
        sharpened = self.stage("sharpened.pt", self.sharpen_drafts)
        states = torch.load(sharpened, weights_only=True, map_location=self.device)
        drafts = {name: self.build(name, state) for name, state in states.items()}
        self.export(out, {"target": self.target, **drafts})

    def check_recipe(self) -> None:
        """A work folder holds one recipe's results; another recipe needs another folder."""
        wanted = json.dumps([asdict(self.recipe), {n: asdict(s) for n, s in SHAPES.items()}])
        file = self.work / "recipe.json"
        if not file.exists():
            file.write_text(wanted)
        elif file.read_text() != wanted:
            raise SystemExit(f"{self.work} holds results of another recipe; choose another --work")

    def stage(self, name: str, make: Callable[[Path], None]) -> Path:
        """Make ``name`` in the work folder unless it is there; written whole or not at all."""
        path = self.work / name
        clock = self.work / f"{name}.seconds"
        if not path.exists():
            partial = path.with_suffix(".partial")
            self.clock, self.started = clock, time.monotonic()
            make(partial)
            self.keep_time()
            partial.replace(path)
        self.seconds[name] = float(clock.read_text())
        return path

    def keep_time(self) -> None:
        """Add the time since the last call to the stage's clock, which survives a kill."""
        now = time.monotonic()
        before = float(self.clock.read_text()) if self.clock.exists() else 0.0
        self.clock.write_text(str(before + now - self.started))
        self.started = now

    # -- stage 1 ---------------------------------------------------------------------------

    def train_tokenizer(self, path: Path) -> None:
        tokenizer = Tokenizer(models.BPE())
        tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
        tokenizer.decoder = decoders.ByteLevel()
        trainer = trainers.BpeTrainer(
            vocab_size=self.recipe.vocabulary,
            special_tokens=[END_OF_TEXT],
            initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        )
        tokenizer.train_from_iterator(self.texts.values(), trainer)
        tokenizer.save(str(path))

    def encode(self, texts: dict[str, str]) -> torch.Tensor:
        """All texts as one row of token ids, each opened by the end-of-text token."""
        ids: list[int] = []
        for encoding in self.tokenizer.encode_batch(list(texts.values())):
            ids.append(0)
            ids.extend(encoding.ids)
        return torch.tensor(ids, dtype=torch.long)

    # -- stage 2 ---------------------------------------------------------------------------

    def train_target(self, path: Path) -> None:
        torch.manual_seed(self.recipe.seed)
        model = SHAPES["target"].build(self.recipe.vocabulary).to(self.device)
        optimizers = self.optimizers(model)
        steps, first = self.recipe.target_steps, 0
        checkpoint = self.work / "target.checkpoint"
        if checkpoint.exists():
            saved = torch.load(checkpoint, weights_only=True, map_location=self.device)
            first = saved["step"]
            model.load_state_dict(saved["model"])
            for optimizer, state in zip(optimizers, saved["optimizers"], strict=True):
                optimizer.load_state_dict(state)
        progress = Progress("target", steps)
        for step in range(first, steps):
            ids = self.windows(self.train_tokens, step, 256 if step < 0.8 * steps else CONTEXT)
            with self.half_precision():
                logits = model(ids).logits
            loss = F.cross_entropy(logits[:, :-1].flatten(0, 1).float(), ids[:, 1:].flatten())
            self.update(model, optimizers, loss, step, steps)
            progress.show(step, loss=loss)
            if (step + 1) % 200 == 0:
                partial = checkpoint.with_suffix(".partial")
                torch.save(
                    {
                        "step": step + 1,
                        "model": model.state_dict(),
                        "optimizers": [optimizer.state_dict() for optimizer in optimizers],
                    },
                    partial,
                )
                partial.replace(checkpoint)
                self.keep_time()
                if (step + 1) % 400 == 0:
                    print(f"held-out loss {self.held_out_loss(model, 8):.4f}", flush=True)
        torch.save(model.state_dict(), path)

    # -- stage 3 ---------------------------------------------------------------------------

    @torch.inference_mode()
    def draw_samples(self, path: Path) -> None:
        """Continuations of random 32-token prompts by the target at temperature 1."""
        generator = torch.Generator().manual_seed(self.recipe.seed + 1)
        batch, rows = 128, []
        progress = Progress("samples", self.recipe.sample_requests // batch)
        for turn in range(self.recipe.sample_requests // batch):
            starts = torch.randint(len(self.train_tokens) - 32, (batch,), generator=generator)
            ids = self.train_tokens[starts[:, None] + torch.arange(32)].to(self.device)
            row, cache = ids, None
            for _ in range(self.recipe.sample_tokens - 32):
                with self.half_precision():
                    output = self.target(ids, past_key_values=cache, use_cache=True)
                cache = output.past_key_values
                p = output.logits[:, -1].float().softmax(-1).cpu()
                ids = torch.multinomial(p, 1, generator=generator).to(self.device)
                row = torch.cat([row, ids], dim=1)
            rows.append(row.cpu())
            progress.show(turn)
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
        states = torch.load(self.work / "drafts.pt", weights_only=True, map_location=self.device)
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
        optimizers = {name: self.optimizers(model) for name, model in drafts.items()}
        progress = Progress(stage, steps)
        for step in range(steps):
            # Sharpening draws other windows than the pass before it.
            key = step if kl else step + self.recipe.draft_steps
            if step % 10 < 10 * sample_share:
                rows = np.random.default_rng([self.recipe.seed, key]).integers(
                    len(self.samples), size=self.recipe.tokens_per_step // self.recipe.sample_tokens
                )
                ids = self.samples[rows].to(self.device)
            else:
                ids = self.windows(self.train_tokens, key, 256 if step % 4 else CONTEXT)
            with torch.no_grad(), self.half_precision():
                log_p = F.log_softmax(self.target(ids).logits.float(), dim=-1)
            shown = {}
            for name, model in drafts.items():
                with self.half_precision():
                    logits = model(ids).logits
                log_q = F.log_softmax(logits.float(), dim=-1)
                p, q = log_p.exp(), log_q.exp()
                variation = 0.5 * (p - q).abs().sum(-1).mean()
                loss = variation + (p * (log_p - log_q)).sum(-1).mean() if kl else variation
                self.update(model, optimizers[name], loss, step, steps, rate)
                shown[name] = 1 - variation
            progress.show(step, **shown)

    # -- stage 6 ---------------------------------------------------------------------------

    def export(self, out: Path, members: dict[str, LlamaForCausalLM]) -> None:
        out.mkdir(parents=True, exist_ok=True)
        fast = PreTrainedTokenizerFast(
            tokenizer_object=self.tokenizer,
            bos_token=END_OF_TEXT,
            eos_token=END_OF_TEXT,
            pad_token=END_OF_TEXT,
            model_max_length=CONTEXT,
        )
        losses, acceptance = {}, {}
        for name, model in members.items():
            losses[name] = self.held_out_loss(model)
            if name != "target":
                acceptance[name] = self.held_out_acceptance(model)
            model.to(torch.float16).save_pretrained(out / name)
            fast.save_pretrained(out / name)
        save_file(
            bigram_counts(self.train_tokens.numpy(), self.recipe.vocabulary),
            out / "bigram.safetensors",
        )
        record = {
            "data": {
                "what": "source files of the Python standard library",
                "python": platform.python_version(),
                "files": len(self.texts),
                "bytes": sum(len(text.encode()) for text in self.texts.values()),
                "sha256": corpus.digest(self.texts),
                "tokens": self.train_tokens.numel(),
                "held_out_modules": list(corpus.held_out_texts()),
                "held_out_tokens": HELD_OUT_BATCHES * 8 * CONTEXT,
            },
            "recipe": asdict(self.recipe),
            "shapes": {name: asdict(shape) for name, shape in SHAPES.items()},
            "parameters": {
                name: sum(p.numel() for p in m.parameters()) for name, m in members.items()
            },
            "held_out_loss_nats": losses,
            "held_out_acceptance": acceptance,
            "seconds": self.seconds,
            "machine": {
                "cores": os.cpu_count(),
                "device": str(self.device),
                "processor": platform.machine(),
            },
            "versions": {"torch": torch.__version__, "transformers": transformers.__version__},
        }
        (out / "training.json").write_text(json.dumps(record, indent=2) + "\n")
        print(json.dumps(record, indent=2))

    @torch.inference_mode()
    def held_out_loss(self, model: LlamaForCausalLM, batches: int | None = None) -> float:
        """Mean cross-entropy on the held-out modules (or their first batches), nats per token."""
        losses = []
        for ids in itertools.islice(self.held_out_windows(), batches):
            with self.half_precision():
                logits = model(ids).logits.float()
            losses.append(
                float(F.cross_entropy(logits[:, :-1].flatten(0, 1), ids[:, 1:].flatten()))
            )
        return float(np.mean(losses))

    @torch.inference_mode()
    def held_out_acceptance(self, model: LlamaForCausalLM) -> dict[str, float]:
        """Acceptance against the target on held-out text, at temperatures 1 and 0."""
        sampled, greedy = [], []
        for ids in self.held_out_windows():
            with self.half_precision():
                p = self.target(ids).logits.float().softmax(-1)
                q = model(ids).logits.float().softmax(-1)
            sampled.append(float(torch.minimum(p, q).sum(-1).mean()))
            greedy.append(float((p.argmax(-1) == q.argmax(-1)).float().mean()))
        return {
            "temperature_1": float(np.mean(sampled)),
            "temperature_0": float(np.mean(greedy)),
        }

    # -- shared ----------------------------------------------------------------------------

    def build(self, name: str, state: dict[str, torch.Tensor]) -> LlamaForCausalLM:
        model = SHAPES[name].build(self.recipe.vocabulary).to(self.device)
        model.load_state_dict(state)
        return model.eval()

    def load(self, name: str, path: Path) -> LlamaForCausalLM:
        return self.build(name, torch.load(path, weights_only=True, map_location=self.device))

    def windows(self, tokens: torch.Tensor, step: int, length: int) -> torch.Tensor:
        """Random windows of one step, a function of seed and step alone, so runs resume exactly."""
        count = self.recipe.tokens_per_step // length
        starts = np.random.default_rng([self.recipe.seed, step]).integers(
            len(tokens) - length, size=count
        )
        return tokens[torch.from_numpy(starts)[:, None] + torch.arange(length)].to(self.device)

    def held_out_windows(self) -> Iterator[torch.Tensor]:
        count = min(HELD_OUT_BATCHES, len(self.held_tokens) // (8 * CONTEXT))
        yield from self.held_tokens[: count * 8 * CONTEXT].view(count, 8, CONTEXT).to(self.device)

    def half_precision(self) -> torch.autocast:
        return torch.autocast(self.device.type, torch.bfloat16)

    def optimizers(self, model: LlamaForCausalLM) -> list[torch.optim.Optimizer]:
        matrices = [p for n, p in model.named_parameters() if p.ndim == 2 and "embed" not in n]
        others = [p for n, p in model.named_parameters() if p.ndim != 2 or "embed" in n]
        recipe = self.recipe
        return [
            torch.optim.Muon(
                matrices, lr=recipe.matrix_rate, momentum=0.95, weight_decay=recipe.weight_decay
            ),
            torch.optim.AdamW(others, lr=recipe.other_rate, betas=(0.9, 0.95), weight_decay=0.0),
        ]

    def update(
        self,
        model: LlamaForCausalLM,
        optimizers: list[torch.optim.Optimizer],
        loss: torch.Tensor,
        step: int,
        steps: int,
        rate: float = 1.0,
    ) -> None:
        loss.backward()  # type: ignore[no-untyped-call]
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        share = rate * self.recipe.rate_at(step, steps)
        rates = (self.recipe.matrix_rate, self.recipe.other_rate)
        for optimizer, full in zip(optimizers, rates, strict=True):
            optimizer.param_groups[0]["lr"] = full * share
            optimizer.step()
            optimizer.zero_grad(set_to_none=True)


class Progress:
    """One line every 50 turns: where the stage is, what it averaged, how long it will take."""

    def __init__(self, name: str, turns: int) -> None:
        self.name, self.turns = name, turns
        self.start, self.done = time.monotonic(), 0
        self.sums: dict[str, float] = {}

    def show(self, turn: int, **values: Any) -> None:
        self.done += 1
        for key, value in values.items():
            self.sums[key] = self.sums.get(key, 0.0) + float(torch.as_tensor(value).detach())
        if self.done % 50 == 0 or turn + 1 == self.turns:
            span = self.done % 50 or 50
            means = " ".join(f"{key} {total / span:.4f}" for key, total in self.sums.items())
            left = (time.monotonic() - self.start) / self.done * (self.turns - turn - 1)
            print(
                f"{self.name} {turn + 1}/{self.turns} {means} {math.ceil(left / 60)} min left",
                flush=True,
            )
            self.sums = {}


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
