"""A causal model that fills in masks (Xia22): made of a drafter, and run over many blocks at once.

``calibrate.decode.drafters.MaskFiller`` decodes with it.  The id of the mask is
``config.mask_token_id``, one above the family's vocabulary.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from transformers import LlamaConfig, LlamaForCausalLM

from calibrate.train.loop import half_precision


def with_masks(middle: LlamaForCausalLM) -> LlamaForCausalLM:
    """``middle`` with one more token, the mask, and one more layer, which at first does nothing.

    The layer comes last: there a mask can take over what ``middle`` predicts at the text's end.
    """
    config = LlamaConfig(**middle.config.to_dict())
    config.update(
        {
            "vocab_size": middle.config.vocab_size + 1,
            "num_hidden_layers": middle.config.num_hidden_layers + 1,
            "mask_token_id": middle.config.vocab_size,
        }
    )
    model = LlamaForCausalLM(config)
    state = middle.state_dict()
    for name in ("model.embed_tokens.weight", "lm_head.weight"):
        state[name] = torch.cat([state[name], state[name].mean(0, keepdim=True)])
    model.load_state_dict(state, strict=False)
    last = model.model.layers[-1]
    with torch.no_grad():
        last.self_attn.o_proj.weight.zero_()
        last.mlp.down_proj.weight.zero_()
    return model


def behind(
    text: torch.Tensor, starts: torch.Tensor, width: int, mask: int
) -> dict[str, torch.Tensor]:
    """Inputs of one run over texts (B, T), with a block of masks at each start (B, G).

    The masks follow the texts, block by block.  A block stands where its start says and sees the
    text before it and its own earlier masks, as if it alone followed a text cut there.
    """
    (rows, length), blocks = text.shape, starts.shape[1]
    block = torch.arange(blocks).repeat_interleave(width)
    place = torch.arange(width).repeat(blocks)
    sees_text = torch.arange(length) < starts[:, block, None]
    sees_block = (block[:, None] == block) & (place[:, None] >= place)
    size = length + blocks * width
    visible = torch.zeros((rows, 1, size, size), dtype=torch.bool)
    visible[:, 0, :length, :length] = torch.ones((length, length), dtype=torch.bool).tril()
    visible[:, 0, length:, :length] = sees_text
    visible[:, 0, length:, length:] = sees_block
    return {
        "input_ids": torch.cat([text, text.new_full((rows, blocks * width), mask)], dim=1),
        "attention_mask": visible,
        "position_ids": torch.cat(
            [torch.arange(length).expand(rows, -1), starts[:, block] + place], dim=1
        ),
    }


def blocks_filled(
    model: LlamaForCausalLM, text: torch.Tensor, starts: torch.Tensor, width: int
) -> tuple[torch.Tensor, torch.Tensor]:
    """Cross-entropy of every mask, and whether its top token is right: (blocks, width) each."""
    with half_precision(model.device):
        logits = model(
            **behind(text, starts, width, model.config.mask_token_id),
            use_cache=False,
            logits_to_keep=width * starts.shape[1],
        ).logits
    labels = text.gather(1, (starts[:, :, None] + torch.arange(width)).flatten(1)).flatten()
    logits = logits.float().flatten(0, 1)
    losses = F.cross_entropy(logits, labels, reduction="none")
    right = logits.argmax(-1) == labels
    return losses.view(-1, width), right.view(-1, width)
