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
from collections.abc import Callable, Iterator, Mapping, Sequence

import torch

from calibrate.decode.build import build_drafter, start
from calibrate.decode.engine import Decoded, DecodeRequest, Decoding
from calibrate.decode.plain import plain
from calibrate.decode.speculative import speculative
from calibrate.measure.trace import DECODING, generator
from calibrate.models.load import load_pair
from calibrate.models.pool import ModelPool, ModelSet, load_pool
from calibrate.models.prompts import held_out_prompts
from calibrate.models.sampling import Sampling
from calibrate.validate.catalogue import settings
from specsim.schemes import FullCascade, Scheme, VerticalCascade, scheme_name
from specsim.schemes.base import DraftingScheme

GREEDY = Sampling(0.0)
CPU = torch.device("cpu")
# k11, k12 and the last share of the target's row; k22 and the share of middle's; the draft's.
LENGTHS = ((3, 2, 3), (2, 3), (3,))
LENIENCE = 0.5

Start = Callable[[ModelSet, DecodeRequest], Decoding]


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("--requests", type=int, default=200)
    parser.add_argument("--tokens", type=int, default=64)
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    pair = load_pair("embedded/target", "embedded/small", CPU)
    pool = load_pool(pair, {})
    prompts = held_out_prompts(pair.target.tokenizer, 64, arguments.requests)
    random = generator(CPU, DECODING)
    requests = [DecodeRequest(prompt, arguments.tokens, GREEDY, random) for prompt in prompts]
    target = pool.new().target
    texts = [plain(target, request).finish().tokens for request in requests]
    # Drafters without a model weigh nothing.
    costs: dict[str, float] = defaultdict(float)
    for name, model in pool.models.items():
        costs[name] = model.num_parameters() / pool.target.num_parameters()
    print(f"{len(prompts)} requests of {arguments.tokens} tokens, temperature 0")
    print(f"{'setting':54}{'texts differ':>13}{'tokens/call':>13}{'SWI':>7}  runs per call")
    different = 0
    for name, begin in decoders(pool):
        model_set = pool.new(timed=False)
        decoded = [begin(model_set, request).finish() for request in requests]
        differ = sum(each.tokens != text for each, text in zip(decoded, texts, strict=True))
        different += differ
        show(name, decoded, differ, costs)
    return 1 if different else 0


def decoders(pool: ModelPool) -> Iterator[tuple[str, Start]]:
    """Every lossless setting that the family has models for, and two cascades with lenience."""
    for scheme in settings(GREEDY):
        if scheme.lossless and pool.names.issuperset(scheme.models):
            yield f"{scheme_name(scheme)}: {scheme.label}", starter(scheme)
    for cascade in (
        VerticalCascade(("middle", "max-gram"), gamma=5, at_least=(4,)),
        FullCascade(("middle", "draft", "max-gram"), LENGTHS),
    ):
        yield f"{scheme_name(cascade)} with lenience {LENIENCE}", starter(cascade, LENIENCE)


def starter(scheme: Scheme, lenience: float = 1.0) -> Start:
    """The scheme's decoder, lenient between its drafters."""

    def begin(model_set: ModelSet, request: DecodeRequest) -> Decoding:
        if lenience == 1 or not isinstance(scheme, DraftingScheme):
            return start(scheme, model_set, request)
        drafter = build_drafter(scheme.drafter, model_set, lenience)
        return speculative(model_set.target, drafter, request)

    return begin


def standardized_improvement(decoded: Sequence[Decoded], costs: Mapping[str, float]) -> float:
    """SWI = tokens / sum_i c_i runs_i, counted and not timed (Chen23 section 5).

    costs : c of each drafter by name, in target runs; the target's own is 1
    """
    spent = sum(
        each.calls + sum(costs[name] * runs.count for name, runs in each.drafts.items())
        for each in decoded
    )
    return sum(len(each.tokens) for each in decoded) / spent


def show(name: str, decoded: Sequence[Decoded], differ: int, costs: Mapping[str, float]) -> None:
    calls = sum(each.calls for each in decoded)
    tokens = sum(len(each.tokens) for each in decoded)
    runs = ", ".join(
        f"{drafter} {sum(each.drafts[drafter].count for each in decoded) / calls:.2f}"
        for drafter in decoded[0].drafts
    )
    improvement = standardized_improvement(decoded, costs)
    print(f"{name:54}{differ:13d}{tokens / calls:13.3f}{improvement:7.3f}  {runs}", flush=True)


if __name__ == "__main__":
    sys.exit(main())
