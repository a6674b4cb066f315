"""Is the text of every lossless decoder that of plain greedy decoding?  And what does each run?

    python benchmarks/lossless.py [--requests 200] [--tokens 64]

One row per setting on the embedded family at temperature 0: requests whose text differs from
plain greedy decoding, tokens per target call, runs of each drafter per target call, and SWI
(Chen23: tokens over runs, each weighted by its model's share of the target's parameters; drafters
without a model weigh nothing).  Exits 1 if any text differs.
"""

from __future__ import annotations

import argparse
import sys
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence

import torch

from calibrate.decode.drafters import (
    Drafter,
    MaxGram,
    VerticalAtLeast,
    full_cascade,
    standardized_improvement,
)
from calibrate.decode.engine import Decoded, Decoding
from calibrate.decode.plain import plain
from calibrate.decode.speculative import speculative
from calibrate.measure.trace import DECODING, generator
from calibrate.models.load import load_pair
from calibrate.models.pool import load_pool
from calibrate.models.prompts import held_out_prompts
from calibrate.models.sampling import Sampling
from calibrate.schemes import ModelPool, ModelSet, Setting
from calibrate.validate.catalogue import settings

GREEDY = Sampling(0.0)
CPU = torch.device("cpu")
# k11, k12 and the last share of the target's row; k22 and the share of middle's; the draft's.
LENGTHS = ((3, 2, 3), (2, 3), (3,))
LENIENCE = 0.5

# From a party, a prompt and the tokens wanted.
Start = Callable[[ModelSet, Sequence[int], int], Decoding]


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("--requests", type=int, default=200)
    parser.add_argument("--tokens", type=int, default=64)
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    pair = load_pair("embedded/target", "embedded/small", CPU)
    pool = load_pool(pair, {})
    prompts = held_out_prompts(pair.target.tokenizer, 64, arguments.requests)
    target = pool.new().target
    texts = [
        plain(target, prompt, arguments.tokens, GREEDY, generator(CPU, DECODING)).finish().tokens
        for prompt in prompts
    ]
    # Drafters without a model weigh nothing.
    costs: dict[str, float] = defaultdict(float)
    for name, model in pool.models.items():
        costs[name] = model.num_parameters() / pool.target.num_parameters()
    print(f"{len(prompts)} requests of {arguments.tokens} tokens, temperature 0")
    print(f"{'setting':46}{'texts differ':>13}{'tokens/call':>13}{'SWI':>7}  runs per call")
    different = 0
    for name, start in decoders(pool):
        model_set = pool.new(timed=False)
        decoded = [start(model_set, prompt, arguments.tokens).finish() for prompt in prompts]
        differ = sum(each.tokens != text for each, text in zip(decoded, texts, strict=True))
        different += differ
        show(name, decoded, differ, costs)
    return 1 if different else 0


def decoders(pool: ModelPool) -> Iterator[tuple[str, Start]]:
    """Every lossless setting that the family has models for, and two cascades with lenience."""
    for setting in settings(GREEDY):
        if setting.lossless and setting.needs <= pool.names:
            yield f"{setting.scheme}: {setting.name}", starter(setting)

    def lenient_vertical(model_set: ModelSet, prompt: Sequence[int], tokens: int) -> Decoding:
        drafter = VerticalAtLeast(model_set["middle"], gram(model_set), 4, 5, LENIENCE)
        return cascade(model_set, drafter, prompt, tokens)

    def lenient_full(model_set: ModelSet, prompt: Sequence[int], tokens: int) -> Decoding:
        models = [model_set["middle"], model_set["draft"]]
        return cascade(
            model_set, full_cascade(models, gram(model_set), LENGTHS, LENIENCE), prompt, tokens
        )

    yield f"vertical with lenience {LENIENCE}", lenient_vertical
    yield f"full with lenience {LENIENCE}", lenient_full


def starter(setting: Setting) -> Start:
    """The setting's decoder."""

    def start(model_set: ModelSet, prompt: Sequence[int], tokens: int) -> Decoding:
        return setting.start(model_set, prompt, tokens, generator(CPU, DECODING), None)

    return start


def gram(model_set: ModelSet) -> MaxGram:
    assert model_set.counts is not None, "the embedded family has counts"
    return MaxGram(model_set.counts)


def cascade(model_set: ModelSet, drafter: Drafter, prompt: Sequence[int], tokens: int) -> Decoding:
    random = generator(CPU, DECODING)
    return speculative(model_set.target, drafter, prompt, None, tokens, GREEDY, random)


def show(name: str, decoded: Sequence[Decoded], differ: int, costs: dict[str, float]) -> None:
    calls = sum(each.calls for each in decoded)
    tokens = sum(len(each.tokens) for each in decoded)
    runs = ", ".join(
        f"{drafter} {sum(each.drafts[drafter].count for each in decoded) / calls:.2f}"
        for drafter in decoded[0].drafts
    )
    charged = {drafter: costs[drafter] for drafter in decoded[0].drafts}
    improvement = standardized_improvement(decoded, charged)
    print(f"{name:46}{differ:13d}{tokens / calls:13.3f}{improvement:7.3f}  {runs}", flush=True)


if __name__ == "__main__":
    sys.exit(main())
