"""A pair of encoder-decoder models to measure: the T5 class, of which no weights come with this.

    python -m benchmarks.t5_pair build/t5

Writes a target, a draft and prompts below the folder.  Weights are random.  The draft is the
target's first decoder layer behind the whole encoder; what the target's further layers add to it
is made small, so that drafts stand (alpha 0.71 at temperature 0 and 0.79 at 1, by ``specsim
calibrate``).  Costs are those of the shapes.  Same seed, same weights.
"""

from __future__ import annotations

import argparse
import copy
import random
from pathlib import Path
from typing import Any

import torch
from transformers import T5Config, T5ForConditionalGeneration

from tests.support.encoder_decoders import save, untied

_WORDS, _WIDTH, _LAYERS, _HEADS = 4096, 384, 6, 6
# Of what a layer of the target adds, beyond those that the draft has; of its logits.
_SHARE, _SPREAD = 0.08, 0.25
_REQUESTS, _LENGTHS = 128, (16, 64)
_SEED = 5
# Names below the folder.
TARGET, DRAFT, PROMPTS = "target", "draft", "prompts.txt"


def target() -> Any:
    torch.manual_seed(_SEED)
    config = T5Config(
        vocab_size=_WORDS,
        d_model=_WIDTH,
        d_kv=_WIDTH // _HEADS,
        d_ff=4 * _WIDTH,
        num_layers=_LAYERS,
        num_decoder_layers=_LAYERS,
        num_heads=_HEADS,
        pad_token_id=0,
        eos_token_id=1,
        decoder_start_token_id=0,
        tie_word_embeddings=False,
    )
    model = untied(T5ForConditionalGeneration(config), _SPREAD)
    for block in model.decoder.block[1:]:
        for part in block.layer:
            _last(part).weight.data *= _SHARE
    return model


def _last(part: Any) -> Any:
    """The matrix whose output a part of a layer adds."""
    for name in ("SelfAttention", "EncDecAttention"):
        if hasattr(part, name):
            return getattr(part, name).o
    return part.DenseReluDense.wo


def first_layer(model: Any) -> Any:
    """The draft of a target."""
    config = copy.deepcopy(model.config)
    config.num_decoder_layers = 1
    draft = untied(T5ForConditionalGeneration(config))
    weights = model.state_dict()
    draft.load_state_dict({name: weights[name] for name in draft.state_dict()})
    return draft


def prompts() -> list[str]:
    """Random words of the tokenizer's."""
    order = random.Random(_SEED)
    return [
        " ".join(f"w{order.randrange(4, _WORDS)}" for _ in range(order.randint(*_LENGTHS)))
        for _ in range(_REQUESTS)
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("folder", type=Path)
    folder = parser.parse_args().folder
    model = target()
    save(model, folder / TARGET)
    save(first_layer(model), folder / DRAFT)
    (folder / PROMPTS).write_text("\n".join(prompts()) + "\n")


if __name__ == "__main__":
    main()
