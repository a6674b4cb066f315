"""A pair of the sizes of Leviathan23 section 4.2, trained in minutes on the text at hand."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from transformers import GPT2Config, GPT2LMHeadModel

from calibrate.suite.plan import SEED, Gpt, PairPlan
from calibrate.suite.raw import Raw, say
from calibrate.suite.text import flat_tokens, sources, train_tokenizer
from calibrate.train.loop import half_precision

# Steps between two looks at the loss; every look waits for the device.
_LOOK = 25
_HELD_OUT_WINDOWS = 64
# The last part of training in which the learning rate falls to zero.
_DECAY = 0.4


def build(shape: Gpt, plan: PairPlan) -> Any:
    """A model with fresh weights in float32."""
    return GPT2LMHeadModel(
        GPT2Config(
            vocab_size=plan.vocabulary,
            n_positions=plan.window,
            n_embd=shape.width,
            n_layer=shape.layers,
            n_head=shape.heads,
            n_inner=shape.feed_forward,
            resid_pdrop=0.0,
            embd_pdrop=0.0,
            attn_pdrop=0.0,
            # The paper's counts, 97M and 6M, hold with a table at each end.
            tie_word_embeddings=False,
            bos_token_id=0,
            eos_token_id=0,
            attn_implementation="sdpa",
        )
    )


def tokens(plan: PairPlan, work: Path, device: torch.device, raw: Raw) -> tuple[Any, Any]:
    """Training and held-out tokens, one row each on the device; kept in ``work``."""
    file = work / "tokens.pt"
    if not file.is_file():
        began = time.monotonic()
        train, held_out = sources(plan.corpus_bytes)
        tokenizer = train_tokenizer(train, plan)
        rows = flat_tokens(tokenizer, train), flat_tokens(tokenizer, held_out)
        _save([row.to(torch.int32) for row in rows], file)
        raw.put(
            "text",
            {
                "what": "Python files of the standard library and of installed packages",
                "files": len(train),
                "held_out_files": len(held_out),
                "bytes": sum(len(text.encode()) for text in train.values()),
                "vocabulary": tokenizer.get_vocab_size(),
                "tokens": len(rows[0]),
                "held_out_tokens": len(rows[1]),
                "seconds": time.monotonic() - began,
            },
        )
    train_row, held_out_row = torch.load(file, weights_only=True)
    return train_row.long().to(device), held_out_row.long().to(device)


def trained(
    name: str,
    plan: PairPlan,
    seconds: float,
    text: tuple[torch.Tensor, torch.Tensor],
    work: Path,
    raw: Raw,
) -> Any:
    """The target or the draft, trained for so many seconds unless ``work`` has it; in float32."""
    shape: Gpt = getattr(plan, name)
    train, held_out = text
    file = work / f"{name}.pt"
    torch.manual_seed(SEED + (name == "draft"))
    model = build(shape, plan).to(train.device)
    if file.is_file():
        model.load_state_dict(torch.load(file, weights_only=True, map_location=train.device))
    else:
        found = _train(model, shape, plan, seconds, train)
        _save(model.state_dict(), file)
        found["parameters"] = sum(each.numel() for each in model.parameters())
        found["held_out_loss_nats"] = _held_out_loss(model.eval(), held_out, plan)
        raw.content.setdefault("training", {})[name] = found
        raw.save()
        say(
            f"{name}: {found['tokens_seen']:,} tokens in {found['seconds']:.0f} s, held-out loss "
            f"{found['held_out_loss_nats']:.3f}"
        )
    return model.eval().requires_grad_(False)


def _train(
    model: Any, shape: Gpt, plan: PairPlan, seconds: float, train: torch.Tensor
) -> dict[str, Any]:
    """Cross-entropy on random windows until the time is over."""
    device = train.device
    matrices = [each for each in model.parameters() if each.ndim == 2]
    others = [each for each in model.parameters() if each.ndim != 2]
    optimizer = torch.optim.AdamW(
        [{"params": matrices, "weight_decay": 0.1}, {"params": others, "weight_decay": 0.0}],
        lr=shape.rate,
        betas=(0.9, 0.95),
        fused=device.type == "cuda",
    )
    random = torch.Generator(device).manual_seed(SEED)
    inside = torch.arange(plan.window, device=device)
    curve = []
    step, began = 0, time.monotonic()
    model.train()
    while (share := (time.monotonic() - began) / seconds) < 1:
        rate = shape.rate * min(1.0, (step + 1) / plan.warm_up, (1 - share) / _DECAY)
        for group in optimizer.param_groups:
            group["lr"] = rate
        starts = torch.randint(
            len(train) - plan.window, (plan.windows, 1), generator=random, device=device
        )
        ids = train[starts + inside]
        with half_precision(device):
            logits = model(ids, use_cache=False).logits
        loss = F.cross_entropy(logits[:, :-1].flatten(0, 1).float(), ids[:, 1:].flatten())
        loss.backward()  # type: ignore[no-untyped-call]
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        if step % _LOOK == 0:
            curve.append([time.monotonic() - began, step, float(loss.detach())])
        step += 1
    last = float(loss.detach())
    return {
        "steps": step,
        "tokens_seen": step * plan.windows * plan.window,
        "seconds": time.monotonic() - began,
        "last_loss_nats": last,
        # Seconds, step and loss; a hundred of them say as much as all.
        "losses": curve[:: max(1, len(curve) // 100)],
    }


@torch.inference_mode()
def _held_out_loss(model: Any, held_out: torch.Tensor, plan: PairPlan) -> float:
    """Mean over the first windows of the held-out text, one after the other."""
    count = min(_HELD_OUT_WINDOWS, len(held_out) // plan.window)
    rows = held_out[: count * plan.window].view(count, plan.window)
    losses = []
    for first in range(0, count, 8):
        ids = rows[first : first + 8]
        logits = model(ids, use_cache=False).logits[:, :-1]
        losses.append(F.cross_entropy(logits.flatten(0, 1), ids[:, 1:].flatten(), reduction="sum"))
    return float(torch.stack(losses).sum()) / (count * (plan.window - 1))


def _save(value: Any, file: Path) -> None:
    partial = file.with_suffix(".partial")
    torch.save(value, partial)
    partial.replace(file)
