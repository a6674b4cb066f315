"""Is the text of every lossless decoder that of plain greedy decoding?  And what does each run?

    python benchmarks/lossless.py [--requests 200] [--tokens 64]

One row per drafter on the embedded family at temperature 0: requests whose text differs from
plain greedy decoding, tokens per target call, runs of each drafter per target call, and SWI
(Chen23: tokens over runs, each weighted by its model's share of the target's parameters; drafters
without a model weigh nothing).
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence

import torch

from calibrate.decode.drafters import (
    Bigram,
    Drafter,
    Horizontal,
    MaxGram,
    Neural,
    PromptLookup,
    Uniform,
    Unigram,
    Vertical,
    VerticalAtLeast,
    first_layers,
    full_cascade,
    read_pair_counts,
    standardized_improvement,
)
from calibrate.decode.engine import CachedModel, Decoded
from calibrate.decode.plain import plain
from calibrate.decode.speculative import speculative
from calibrate.models import FAMILY, load
from calibrate.prompts import held_out_prompts
from calibrate.sampling import Sampling
from calibrate.trace import DECODING, generator

GREEDY = Sampling(0.0)
CPU = torch.device("cpu")
EARLY_LAYERS = 4


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--requests", type=int, default=200)
    parser.add_argument("--tokens", type=int, default=64)
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    loaded = {name: load(f"embedded/{name}", CPU, torch.float32) for name in ("target", *DRAFTS)}
    models = {name: CachedModel(each.model, name=name) for name, each in loaded.items()}
    early = first_layers(loaded["target"].model, EARLY_LAYERS)
    models["early"] = CachedModel(early, name="early")
    sizes = {name: model.model.num_parameters() for name, model in models.items()}
    costs = {name: size / sizes["target"] for name, size in sizes.items()}
    costs |= dict.fromkeys(("bigram", "unigram", "copy", "max-gram", "uniform"), 0.0)
    prompts = held_out_prompts(loaded["target"].tokenizer, 64, arguments.requests)
    target = models["target"]
    texts = [
        plain(target, prompt, arguments.tokens, GREEDY, generator(CPU, DECODING)).finish().tokens
        for prompt in prompts
    ]
    print(f"{len(prompts)} requests of {arguments.tokens} tokens, temperature 0")
    print(f"{'drafter':34}{'texts differ':>13}{'tokens/call':>13}{'SWI':>7}  runs per call")
    for name, drafter, gamma in drafters(models):
        decoded = [
            speculative(
                target, drafter, prompt, gamma, arguments.tokens, GREEDY, generator(CPU, DECODING)
            ).finish()
            for prompt in prompts
        ]
        show(name, decoded, texts, costs)


DRAFTS = ("middle", "small")


def drafters(models: dict[str, CachedModel]) -> list[tuple[str, Drafter, int | None]]:
    """Name, drafter, most tokens in a block."""
    counts = read_pair_counts(FAMILY / "bigram.safetensors")
    middle, small, early = models["middle"], models["small"], models["early"]
    gram = MaxGram(counts)
    both = Horizontal([(Neural(middle), 3), (Neural(small), 3)])
    return [
        ("small, 4", Neural(small), 4),
        ("middle, 4", Neural(middle), 4),
        (f"first {EARLY_LAYERS} layers, 4", Neural(early), 4),
        ("unigram, 2", Unigram(counts), 2),
        ("bigram, 3", Bigram(counts), 3),
        ("copy, 10", PromptLookup(), 10),
        ("Max-Gram, 10", gram, 10),
        ("uniform, 2", Uniform(), 2),
        ("horizontal, middle 3 small 3", both, None),
        ("vertical, 2 steps of small 2", Vertical(middle, Neural(small), 2, 2), None),
        ("vertical, 2 steps of Max-Gram 5", Vertical(middle, gram, 2, 5), None),
        ("vertical, at least 4, Max-Gram 5", VerticalAtLeast(middle, gram, 4, 5), None),
        ("the same, lenience 1 / 2", VerticalAtLeast(middle, gram, 4, 5, 0.5), None),
        ("full, lenience 1", full_cascade([middle, small], gram, LENGTHS), None),
        ("full, lenience 1 / 2", full_cascade([middle, small], gram, LENGTHS, 0.5), None),
    ]


# k11, k12 and the last share of the target's row; k22 and the share of middle's; small's.
LENGTHS = ((3, 2, 3), (2, 3), (3,))


def show(
    name: str, decoded: Sequence[Decoded], texts: Sequence[list[int]], costs: dict[str, float]
) -> None:
    differ = sum(each.tokens != text for each, text in zip(decoded, texts, strict=True))
    calls = sum(each.calls for each in decoded)
    tokens = sum(len(each.tokens) for each in decoded)
    runs = ", ".join(
        f"{drafter} {sum(each.drafts[drafter].count for each in decoded) / calls:.2f}"
        for drafter in decoded[0].drafts
    )
    improvement = standardized_improvement(decoded, costs)
    print(f"{name:34}{differ:13d}{tokens / calls:13.3f}{improvement:7.3f}  {runs}", flush=True)


if __name__ == "__main__":
    main()
