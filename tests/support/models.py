"""Models small enough to build in a test."""

from __future__ import annotations

from pathlib import Path

VOCABULARY = 64


def build_model(
    folder: Path, layers: int, width: int, seed: int, words: int = VOCABULARY, spread: float = 0.5
) -> Path:
    """A random Llama of the given size with a word-level tokenizer, in Hugging Face format.

    ``spread`` of the random weights: the wider, the more the next token depends on the text and
    the more peaked its distribution is.
    """
    import torch
    from tokenizers import Tokenizer, models, pre_tokenizers
    from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

    vocabulary = {f"w{number}": number for number in range(words)}
    tokenizer = Tokenizer(models.WordLevel(vocabulary, unk_token="w1"))
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    fast = PreTrainedTokenizerFast(tokenizer_object=tokenizer, eos_token="w0", unk_token="w1")
    torch.manual_seed(seed)
    model = LlamaForCausalLM(
        LlamaConfig(
            vocab_size=words,
            hidden_size=width,
            intermediate_size=2 * width,
            num_hidden_layers=layers,
            num_attention_heads=2,
            num_key_value_heads=2,
            max_position_embeddings=128,
            initializer_range=spread,
            bos_token_id=None,
            eos_token_id=0,
        )
    )
    model.save_pretrained(folder)
    fast.save_pretrained(folder)
    return folder


def build_family(root: Path, layers: int) -> dict[str, Path]:
    """A target, a draft that is the target with small noise and often agrees, and an unrelated one
    of one layer, in folders of their names.
    """
    import torch
    from transformers import AutoModelForCausalLM

    target = build_model(root / "target", layers=layers, width=32, seed=1)
    draft = build_model(root / "draft", layers=layers, width=32, seed=1)
    noisy = AutoModelForCausalLM.from_pretrained(draft)
    torch.manual_seed(2)
    with torch.no_grad():
        for parameter in noisy.parameters():
            parameter.add_(0.06 * torch.randn_like(parameter))
    noisy.save_pretrained(draft)
    stranger = build_model(root / "stranger", layers=1, width=16, seed=3)
    return {"target": target, "draft": draft, "stranger": stranger}
