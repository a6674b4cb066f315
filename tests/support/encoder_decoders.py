"""Small encoder-decoder models with random weights, and folders of them with a tokenizer."""

from __future__ import annotations

import copy
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from tokenizers import Tokenizer, models, pre_tokenizers, processors
from transformers import (
    BartConfig,
    BartForConditionalGeneration,
    PreTrainedTokenizerFast,
    T5Config,
    T5ForConditionalGeneration,
)


def t5(seed: int, encoder: int, decoder: int, words: int = 64, width: int = 32) -> Any:
    torch.manual_seed(seed)
    return T5ForConditionalGeneration(
        T5Config(
            vocab_size=words,
            d_model=width,
            d_kv=width // 2,
            d_ff=2 * width,
            num_layers=encoder,
            num_decoder_layers=decoder,
            num_heads=2,
            relative_attention_num_buckets=8,
            relative_attention_max_distance=16,
            pad_token_id=0,
            eos_token_id=1,
            decoder_start_token_id=0,
            tie_word_embeddings=False,
        )
    )


def bart(seed: int, encoder: int, decoder: int, words: int = 64, width: int = 32) -> Any:
    torch.manual_seed(seed)
    return BartForConditionalGeneration(
        BartConfig(
            vocab_size=words,
            d_model=width,
            encoder_layers=encoder,
            decoder_layers=decoder,
            encoder_attention_heads=2,
            decoder_attention_heads=2,
            encoder_ffn_dim=2 * width,
            decoder_ffn_dim=2 * width,
            max_position_embeddings=64,
            init_std=0.3,
            pad_token_id=0,
            eos_token_id=1,
            bos_token_id=2,
            decoder_start_token_id=2,
            forced_eos_token_id=None,
            tie_word_embeddings=False,
        )
    )


FAMILIES: dict[str, Callable[..., Any]] = {"t5": t5, "bart": bart}


def untied(model: Any, spread: float = 1.0) -> Any:
    """With a random head: embeddings that are also the head repeat the last token for ever."""
    model.lm_head.weight = torch.nn.Parameter(spread * torch.randn_like(model.lm_head.weight))
    return model.eval()


def near(model: Any, seed: int, noise: float) -> Any:
    """A draft that often agrees."""
    other = copy.deepcopy(model)
    torch.manual_seed(seed)
    for parameter in other.parameters():
        parameter.data += noise * parameter.data.std() * torch.randn_like(parameter)
    return other


def save(model: Any, folder: Path) -> Path:
    """The model in Hugging Face format; its tokenizer, of words, ends every text as T5's does."""
    special = {"pad_token": "<pad>", "eos_token": "</s>", "bos_token": "<s>", "unk_token": "<unk>"}
    words = [*special.values(), *(f"w{id}" for id in range(4, model.config.vocab_size))]
    known = {word: id for id, word in enumerate(words)}
    tokenizer = Tokenizer(models.WordLevel(known, unk_token="<unk>"))
    tokenizer.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    tokenizer.post_processor = processors.TemplateProcessing(
        single="$A </s>", special_tokens=[("</s>", known["</s>"])]
    )
    fast = PreTrainedTokenizerFast(tokenizer_object=tokenizer, **special)
    model.save_pretrained(folder)
    fast.save_pretrained(folder)
    return folder
