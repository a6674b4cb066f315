"""What the members of the embedded family are judged on: text that none of them has seen.

Prompts of held-out modules stand for what a calibration asks: what a drafter is worth shows on
the text that the target itself writes behind them.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from functools import partial

import numpy as np
import torch
import torch.nn.functional as F
from tokenizers import Tokenizer
from transformers import LlamaForCausalLM

from calibrate.decode.bild import bild
from calibrate.decode.drafters import MaskFiller
from calibrate.decode.engine import DecodeRequest
from calibrate.decode.specdec import specdec
from calibrate.measure.trace import DECODING, TRACE, generator
from calibrate.models.load import Pair
from calibrate.models.sampling import Sampling
from calibrate.train import corpus
from calibrate.train.loop import CONTEXT, continued, encode, half_precision, ordinary, top
from specsim.rules import GreedyMatch
from specsim.schemes import BigLittle

# Batches of 8 windows of held-out text that losses and acceptance are judged on.
HELD_OUT_BATCHES = 24


class HeldOut:
    """Windows of the held-out modules, which no member of the family is trained on."""

    def __init__(self, tokenizer: Tokenizer, device: torch.device) -> None:
        tokens = encode(tokenizer, corpus.held_out_texts())
        self.batches = min(HELD_OUT_BATCHES, len(tokens) // (8 * CONTEXT))
        self.tokens = self.batches * 8 * CONTEXT
        self._windows, self.device = tokens[: self.tokens].view(-1, 8, CONTEXT), device

    def windows(self, batches: int | None = None) -> Iterator[torch.Tensor]:
        for ids in itertools.islice(self._windows, batches):
            yield ids.to(self.device)

    @torch.inference_mode()
    def loss(self, model: LlamaForCausalLM, batches: int | None = None) -> float:
        """Mean cross-entropy on the windows (or on their first batches), nats per token."""
        losses = []
        for ids in self.windows(batches):
            with half_precision(self.device):
                logits = model(ids).logits.float()
            losses.append(
                float(F.cross_entropy(logits[:, :-1].flatten(0, 1), ids[:, 1:].flatten()))
            )
        return float(np.mean(losses))

    def acceptance(self, target: LlamaForCausalLM, model: LlamaForCausalLM) -> dict[str, float]:
        """Acceptance of the model's tokens by the target, at temperatures 1 and 0."""
        rates = [acceptance(target, model, ids) for ids in self.windows()]
        sampled, greedy = np.array(rates).mean(0).tolist()
        return {"temperature_1": sampled, "temperature_0": greedy}


@torch.inference_mode()
def acceptance(
    target: LlamaForCausalLM, model: LlamaForCausalLM, ids: torch.Tensor, start: int = 0
) -> tuple[float, float]:
    """Acceptance at temperatures 1 and 0 of the token behind each place of texts (B, T).

    start : the first place that counts
    """
    with half_precision(ids.device):
        p = target(ids).logits[:, start:].float().softmax(-1)
        q = model(ids).logits[:, start:].float().softmax(-1)
    sampled = torch.minimum(p, q).sum(-1).mean()
    return float(sampled), float((p.argmax(-1) == q.argmax(-1)).float().mean())


def own_text_acceptance(
    pair: Pair, prompts: Sequence[Sequence[int]], new_tokens: int
) -> dict[str, float]:
    """Acceptance on text that the target writes itself, at the temperature that it writes at."""
    target, ids = pair.target.model, torch.tensor(prompts)
    random = generator(ids.device, TRACE)
    drawn = continued(target, ids, new_tokens, partial(ordinary, random=random))
    greedy = continued(target, ids, new_tokens, top)
    start = ids.shape[1] - 1
    return {
        "temperature_1": acceptance(target, pair.draft.model, drawn[:, :-1], start)[0],
        "temperature_0": acceptance(target, pair.draft.model, greedy[:, :-1], start)[1],
    }


def _greedy_requests(
    pair: Pair, prompts: Sequence[Sequence[int]], new_tokens: int
) -> Iterator[DecodeRequest]:
    """One a prompt, at temperature 0."""
    for prompt in prompts:
        random = generator(pair.target.model.device, DECODING)
        yield DecodeRequest(prompt, new_tokens, Sampling(0.0), random, pair.target.end_of_text)


def specdec_blocks(
    pair: Pair, prompts: Sequence[Sequence[int]], new_tokens: int, block: int
) -> dict[str, float | list[float]]:
    """SpecDec with masks, decoded for real.

    Blocks that the end of a request makes shorter are left out of ``accepted_per_block`` and of
    ``survival``, the shares of blocks in which at least 1, 2, ... tokens were accepted.
    """
    target, draft = pair.cached(timed=False)
    drafter = MaskFiller(draft, pair.draft.model.config.mask_token_id)
    accepted: list[int] = []
    tokens = calls = 0
    for request in _greedy_requests(pair, prompts, new_tokens):
        decoded = specdec(target, drafter, request, block, GreedyMatch()).finish()
        blocks = zip(decoded.accepted, decoded.drafted, strict=True)
        accepted += [count for count, length in blocks if length == block]
        tokens, calls = tokens + len(decoded.tokens), calls + decoded.calls
    return {
        "accepted_per_block": float(np.mean(accepted)),
        "survival": [float(np.mean(np.array(accepted) > place)) for place in range(block)],
        "tokens_per_call": tokens / calls,
    }


def bild_costs(
    pair: Pair, prompts: Sequence[Sequence[int]], new_tokens: int, scheme: BigLittle
) -> dict[str, float]:
    """BiLD at temperature 0, decoded for real.

    ``cost`` : runs per token, in target runs, a run of the small model taken to cost its layers
    ``regret_nats`` : how much likelier the target's top token is than the token written, on the
        mean over the text; 0 is greedy decoding
    """
    target, draft = pair.cached(timed=False)
    calls = runs = back = 0
    regrets = []
    for request in _greedy_requests(pair, prompts, new_tokens):
        decoded = bild(target, draft, request, scheme).finish()
        calls, runs = calls + decoded.calls, runs + decoded.draft.count
        back += decoded.rejections
        target.reset()
        read = torch.tensor([[*request.prompt, *decoded.tokens[:-1]]])
        rows = target.read(read)[len(request.prompt) - 1 :]
        rows = rows.float().log_softmax(-1)
        written = rows.gather(1, torch.tensor(decoded.tokens)[:, None])[:, 0]
        regrets.append(rows.amax(-1) - written)
    regret = torch.cat(regrets)
    c = draft.model.config.num_hidden_layers / target.model.config.num_hidden_layers
    return {
        "fallback": scheme.fallback_threshold,
        "rollback": scheme.rollback_threshold,
        "target_runs_per_token": calls / len(regret),
        "small_runs_per_token": runs / len(regret),
        "rollbacks_per_token": back / len(regret),
        "cost": (calls + c * runs) / len(regret),
        "regret_nats": float(regret.mean()),
    }
