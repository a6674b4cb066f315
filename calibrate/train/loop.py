"""What the training scripts share: stages in a work folder, and fits that resume.

A stage is skipped when its result is in the work folder, so a killed run goes on where it was.
"""

from __future__ import annotations

import argparse
import os
import platform
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import torch
import transformers
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
from torch import nn
from transformers import DynamicCache, LlamaForCausalLM, PreTrainedTokenizerFast

from calibrate.models.cache_argument import cache_argument
from calibrate.train import corpus
from specsim.checkpoint import Checkpoint
from specsim.checks import SpecsimError
from specsim.files import write_atomically

CONTEXT = 512
# So many steps of a fit may be lost when it is killed.
_SAVED_STEPS = 100
END_OF_TEXT = "<|endoftext|>"
# Encodings take a hundred times the room of their tokens.
_ENCODED_AT_ONCE = 256


# At a step: the loss, and what else to show.
LossAt = Callable[[int], tuple[torch.Tensor, dict[str, torch.Tensor]]]


@dataclass(frozen=True)
class Schedule:
    """Batch size and learning rates: Muon for the matrices and AdamW for the rest."""

    seed: int = 20
    tokens_per_step: int = 4096
    matrix_rate: float = 0.02
    other_rate: float = 4e-3
    warm_up_steps: int = 100
    weight_decay: float = 0.05

    def rate_at(self, step: int, steps: int) -> float:
        """Share of the full learning rate: warm-up, constant, linear decay in the second half."""
        return min(1.0, (step + 1) / self.warm_up_steps, 2.0 * (steps - step) / steps)


def run_script(
    script: str | None, train: Callable[[argparse.Namespace], None], **more: Any
) -> None:
    """Train as the command line says: ``family`` and ``work``, both folders, and ``more``.

    script : its docstring, whose first line the help shows
    train : given all options by name; what cannot be done is said in one line, with exit status 2
    more : other options by name with their defaults, of whose type they are
    """
    parser = argparse.ArgumentParser(description=(script or "").partition("\n")[0])
    parser.add_argument("--family", type=Path, required=True, help="folder of the family")
    parser.add_argument("--work", type=Path, required=True, help="folder of checkpoints")
    for name, usual in more.items():
        parser.add_argument(f"--{name.replace('_', '-')}", type=type(usual), default=usual)
    try:
        train(parser.parse_args())
    except SpecsimError as error:
        parser.error(str(error))


class Work:
    """A folder that holds the stages of one recipe, and how long each took."""

    def __init__(self, folder: Path, recipe: str) -> None:
        self.folder, self.seconds = folder, dict[str, float]()
        self._checkpoint = Checkpoint(folder)
        if self._checkpoint.keep_json("recipe.json", lambda: recipe) != recipe:
            raise SpecsimError(f"{folder} holds results of another recipe; choose another --work")

    def stage(self, name: str, make: Callable[[Path], None]) -> Path:
        """Make ``name`` in the folder unless it is there; written whole or not at all."""
        self._clock, self._started = self.folder / f"{name}.seconds", time.monotonic()

        def timed(partial: Path) -> None:
            make(partial)
            self.keep_time()

        path = self._checkpoint.keep(name, timed)
        self.seconds[name] = float(self._clock.read_text())
        return path

    def keep_time(self) -> None:
        """Add the time since the last call to the stage's clock, which survives a kill."""
        now = time.monotonic()
        before = float(self._clock.read_text()) if self._clock.exists() else 0.0
        write_atomically(self._clock, str(before + now - self._started).encode())
        self._started = now


class Fit:
    """A model on its way through ``steps`` steps, each at ``rate`` times the schedule's rates."""

    def __init__(self, model: nn.Module, schedule: Schedule, steps: int, rate: float = 1.0) -> None:
        self.model, self.schedule, self.steps, self.rate = model, schedule, steps, rate
        # The layers' matrices alone: tables of tokens are no maps of hidden states.
        matrices = [p for n, p in model.named_parameters() if p.ndim == 2 and ".layers." in n]
        others = [p for n, p in model.named_parameters() if p.ndim != 2 or ".layers." not in n]
        decay = schedule.weight_decay
        self.optimizers: list[torch.optim.Optimizer] = [
            torch.optim.Muon(matrices, lr=schedule.matrix_rate, momentum=0.95, weight_decay=decay),
            torch.optim.AdamW(others, lr=schedule.other_rate, betas=(0.9, 0.95), weight_decay=0.0),
        ]

    def update(self, loss: torch.Tensor, step: int) -> None:
        loss.backward()  # type: ignore[no-untyped-call]
        torch.nn.utils.clip_grad_norm_(self.model.parameters(), 1.0)
        share = self.rate * self.schedule.rate_at(step, self.steps)
        rates = (self.schedule.matrix_rate, self.schedule.other_rate)
        for optimizer, full in zip(self.optimizers, rates, strict=True):
            optimizer.param_groups[0]["lr"] = full * share
            optimizer.step()
            optimizer.zero_grad(set_to_none=True)

    def run(self, name: str, work: Work, loss: LossAt) -> None:
        """All steps, from the last that the work folder knows."""
        saved = work.folder / f"{name}.checkpoint"
        for step in range(self._resume(saved), self.steps):
            lost, shown = loss(step)
            self.update(lost, step)
            report(name, step, self.steps, loss=lost, **shown)
            if (step + 1) % _SAVED_STEPS == 0:
                self._save(saved, step + 1)
                work.keep_time()

    def _resume(self, checkpoint: Path) -> int:
        """The step to go on at: that of the checkpoint, which is loaded, or 0."""
        if not checkpoint.exists():
            return 0
        device = next(self.model.parameters()).device
        saved = torch.load(checkpoint, weights_only=True, map_location=device)
        self.model.load_state_dict(saved["model"])
        for optimizer, state in zip(self.optimizers, saved["optimizers"], strict=True):
            optimizer.load_state_dict(state)
        step: int = saved["step"]
        return step

    def _save(self, checkpoint: Path, step: int) -> None:
        partial = checkpoint.with_suffix(".partial")
        torch.save(
            {
                "step": step,
                "model": self.model.state_dict(),
                "optimizers": [optimizer.state_dict() for optimizer in self.optimizers],
            },
            partial,
        )
        partial.replace(checkpoint)


def report(name: str, turn: int, turns: int, **values: Any) -> None:
    """A line every 50 turns, and after the last: where the stage is, and these values of it."""
    if (turn + 1) % 50 == 0 or turn + 1 == turns:
        found = {key: float(torch.as_tensor(value).detach()) for key, value in values.items()}
        shown = " ".join(f"{key} {value:.4f}" for key, value in found.items())
        print(f"{name} {turn + 1}/{turns} {shown}", flush=True)


def encode(tokenizer: Tokenizer, texts: dict[str, str]) -> torch.Tensor:
    """All texts as one row of token ids, each opened by the end-of-text token."""
    left, rows = iter(texts.values()), [torch.empty(0, dtype=torch.long)]
    while some := list(islice(left, _ENCODED_AT_ONCE)):
        ids: list[int] = []
        for encoding in tokenizer.encode_batch(some):
            ids.append(0)
            ids.extend(encoding.ids)
        rows.append(torch.tensor(ids, dtype=torch.long))
    return torch.cat(rows)


def train_tokenizer(texts: Iterable[str], vocabulary: int) -> Tokenizer:
    """Byte-level BPE with so many tokens, the first of them the end of a text."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=vocabulary,
        special_tokens=[END_OF_TEXT],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator(texts, trainer)
    return tokenizer


def for_transformers(tokenizer: Tokenizer) -> PreTrainedTokenizerFast:
    """The tokenizer in the form that is saved beside a model."""
    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        bos_token=END_OF_TEXT,
        eos_token=END_OF_TEXT,
        pad_token=END_OF_TEXT,
        model_max_length=CONTEXT,
    )


def draws(limit: int, count: int, *key: int) -> torch.Tensor:
    """``count`` numbers below ``limit``, a function of the key alone, so runs resume exactly."""
    return torch.from_numpy(np.random.default_rng(key).integers(limit, size=count))


def half_precision(device: torch.device) -> torch.autocast:
    return torch.autocast(device.type, torch.bfloat16)


@torch.inference_mode()
def continued(
    model: LlamaForCausalLM,
    prompts: torch.Tensor,
    tokens: int,
    draw: Callable[[torch.Tensor], torch.Tensor],
) -> torch.Tensor:
    """Prompts (B, n) with so many tokens of the model behind them: (B, n + tokens).

    draw : from logits (B, V) the next tokens (B, 1); end-of-text ends nothing
    """
    row = ids = prompts
    cache = {cache_argument(model): DynamicCache(config=model.config)}
    for _ in range(tokens):
        logits = model(ids, use_cache=True, logits_to_keep=1, **cache).logits
        ids = draw(logits[:, -1])
        row = torch.cat([row, ids], dim=1)
    return row


def top(logits: torch.Tensor) -> torch.Tensor:
    """The most probable tokens (B, 1), at temperature 0."""
    return logits.argmax(-1, keepdim=True)


def ordinary(logits: torch.Tensor, random: torch.Generator) -> torch.Tensor:
    """Tokens (B, 1) drawn at temperature 1, on the host, so that devices agree."""
    p = logits.float().softmax(-1).cpu()
    return torch.multinomial(p, 1, generator=random).to(logits.device)


def training_data(texts: dict[str, str], tokens: torch.Tensor) -> dict[str, Any]:
    """What was trained on, for the record beside the weights."""
    return {
        "what": "source files of the Python standard library",
        "python": platform.python_version(),
        "files": len(texts),
        "bytes": sum(len(text.encode()) for text in texts.values()),
        "sha256": corpus.digest(texts),
        "tokens": tokens.numel(),
        "held_out_modules": list(corpus.held_out_texts()),
    }


def circumstances(device: torch.device) -> dict[str, Any]:
    """Machine and versions, for the record beside the weights."""
    return {
        "machine": {
            "cores": os.cpu_count(),
            "device": str(device),
            "processor": platform.machine(),
        },
        "versions": {"torch": torch.__version__, "transformers": transformers.__version__},
    }
