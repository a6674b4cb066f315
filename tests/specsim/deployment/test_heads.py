"""Shapes of heads against the sizes of published ones."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path

import pytest

import specsim
from specsim import hardware
from specsim.checks import SpecsimError
from specsim.deployment.drafter_words import drafter
from specsim.deployment.head_configs import known_heads
from specsim.deployment.heads import DraftShapes, draft_shapes

README = Path(specsim.__file__).parent / "configs" / "README.md"


def head(words: str, target: str | hardware.Shape, gamma: int = 4) -> DraftShapes:
    shape = hardware.shape(target) if isinstance(target, str) else target
    found = draft_shapes(drafter(words), shape, gamma)
    assert found is not None
    return found


def llama(hidden: int, inner: int, heads: int, kv_heads: int, tokens: int) -> hardware.Shape:
    return hardware.shape_from_config(
        {
            "model_type": "llama",
            "hidden_size": hidden,
            "intermediate_size": inner,
            "num_attention_heads": heads,
            "num_key_value_heads": kv_heads,
            "num_hidden_layers": 2,
            "vocab_size": tokens,
            "torch_dtype": "float16",
        }
    )


def written(folder: Path, **fields: object) -> Path:
    path = folder / "config.json"
    path.write_text(json.dumps(fields), encoding="utf-8")
    return path


# The table of weights in https://github.com/SafeAILab/EAGLE, README.md, rounded as printed there.
@pytest.mark.parametrize(
    ("inner", "hidden", "heads", "kv_heads", "billions"),
    [
        (11008, 4096, 32, 32, "0.24"),  # Vicuna 7B
        (13824, 5120, 40, 40, "0.37"),  # Vicuna 13B
        (28672, 8192, 64, 8, "0.99"),  # Llama 2 and 3 70B
        (14336, 4096, 32, 8, "0.25"),  # Llama 3 8B
        (14336, 4096, 32, 32, "0.28"),  # Mixtral 8x7B
    ],
)
def test_eagle(
    tmp_path: Path, inner: int, hidden: int, heads: int, kv_heads: int, billions: str
) -> None:
    config = written(
        tmp_path,
        architectures=["LlamaForCausalLM"],
        hidden_size=hidden,
        intermediate_size=inner,
        num_attention_heads=heads,
        num_key_value_heads=kv_heads,
        num_hidden_layers=1,
    )
    found = head(f"eagle:{config}", llama(hidden, inner, heads, kv_heads, 32_000))
    assert f"{found.loaded.parameters / 1e9:.2f}" == billions


# Sizes of pytorch_model.bin in float16 on the Hub: yuhuili/EAGLE-LLaMA3-Instruct-8B and -70B, with
# the table of embeddings that they share with the target.
@pytest.mark.parametrize(("target", "gb"), [("llama-3.1-8b", "1.55"), ("llama-3.3-70b", "4.08")])
def test_eagle_with_its_table(target: str, gb: str) -> None:
    table = hardware.shape(target).idle
    assert f"{2e-9 * (head('eagle', target).loaded.parameters + table):.2f}" == gb


def test_eagle3(tmp_path: Path) -> None:
    # huggingface.co/yuhuili/EAGLE3-LLaMA3.1-Instruct-8B: pytorch_model.bin of 850 MB in float16.
    shipped, like_target = (
        head(words, "llama-3.1-8b").loaded.parameters for words in ("eagle3:llama-3.1-8b", "eagle3")
    )
    assert 2 * shipped == pytest.approx(850e6, rel=0.001)
    assert like_target == shipped
    # huggingface.co/yuhuili/EAGLE3-Vicuna1.3-13B: 1.28 GB.
    config = written(
        tmp_path,
        architectures=["LlamaForCausalLMEagle3"],
        hidden_size=5120,
        intermediate_size=13824,
        num_attention_heads=40,
        num_hidden_layers=1,
        vocab_size=32_000,
    )
    vicuna = head(f"eagle3:{config}", llama(5120, 13824, 40, 40, 32_000)).loaded
    assert f"{2e-9 * vicuna.parameters:.2f}" == "1.28"
    # huggingface.co/nvidia/Llama-3.3-70B-Instruct-Eagle3: 3.2e9 with all tokens and its own table.
    nvidia = head("eagle3:draft_vocab=none", "llama-3.3-70b").loaded.parameters
    assert f"{1e-9 * (nvidia + hardware.shape('llama-3.3-70b').idle):.1f}" == "3.2"


def test_later_layers_of_eagle3_read_no_token() -> None:
    one, three = (head(f"eagle3:layers={n}", "llama-3.1-8b").loaded for n in (1, 3))
    plain = three.layers[1].weights
    assert three.layers[1] == three.layers[2]
    assert three.parameters == one.parameters + 2 * plain
    # A layer of the target without biases, which has the same attention and block here.
    assert plain == hardware.shape("llama-3.1-8b").layers[0].weights


def test_mtp() -> None:
    # github.com/deepseek-ai/DeepSeek-V3, README_WEIGHTS.md: 11.5B besides what is shared.
    found, target = head("mtp", "deepseek-v3"), hardware.shape("deepseek-v3")
    assert found.loaded.parameters == pytest.approx(11.5e9, rel=0.01)
    last, h = target.layers[-1], target.hidden
    layer = last.weights + last.experts * last.expert_weights
    # The projection and three norms (arXiv 2412.19437, section 2.2).
    assert found.loaded.parameters == layer + 2 * h * h + 3 * h
    assert head("mtp:modules=2", "deepseek-v3").loaded.layers == 2 * found.loaded.layers


def test_medusa() -> None:
    # arXiv 2401.10774, section 2.1.1: for each head a square matrix with a bias, and a vocabulary.
    target = llama(4096, 11008, 32, 32, 32_000)
    one = 4096 * 4096 + 4096 + 32_000 * 4096
    assert head("medusa:heads=5", target).loaded.parameters == 5 * one
    assert head("medusa:heads=5", target, gamma=3).first.active_parameters == 3 * one


@pytest.mark.parametrize(
    ("words", "target", "whole"),
    [
        ("eagle", "llama-3.1-8b", 2 * 4096**2),
        ("eagle3:llama-3.1-8b", "llama-3.1-8b", 3 * 4096**2),
        ("parallel:qwen3-8b", "qwen3-8b", 5 * 4096**2),
        ("mtp", "deepseek-v3", 7168 * (2 * 7168 + 1536 + 576 + 256)),
        ("mtp", "qwen3-next-80b-a3b", 2048 * 512),
        ("draft_model:llama-3.2-1b", "llama-3.1-8b", 0),
    ],
)
def test_what_mixes_states_is_whole_on_every_card(words: str, target: str, whole: int) -> None:
    """As the modules of vLLM 0.32.0 are built (models/llama_eagle3.py, deepseek_mtp.py)."""
    assert head(words, target).first.whole_parameters == whole


def test_blocks_of_medusa_are_whole_on_every_card() -> None:
    found = head("medusa:heads=5", "llama-3.1-8b", gamma=3)
    assert found.first.whole_head == 3 * (4096**2 + 4096)
    assert found.loaded.whole_head == 5 * (4096**2 + 4096)


def test_a_single_head_of_keys_is_no_latent() -> None:
    """Gemma-3-1B has four heads over one of keys and values, of 256 numbers each."""
    (layer,) = head("eagle3", "gemma-3-1b").later.layers
    (attention,) = layer.attentions
    assert (attention.heads, attention.kv_heads, attention.kv_width) == (4, 1, 512)


def test_the_vocabulary_of_a_given_head_is_its_own() -> None:
    with pytest.raises(SpecsimError, match="draft_vocab must be left out where a model is given"):
        drafter("eagle3:llama-3.1-8b,draft_vocab=1000")


def test_the_table_of_shipped_heads() -> None:
    listed = re.findall(r"\| (\w+)-(\S+)\.json \| .* \| ([\d,]+) \|", README.read_text("utf-8"))
    heads = {
        (method, target): int(count.replace(",", ""))
        for method, target, count in listed
        if target in known_heads(method)
    }
    assert len(heads) == sum(len(known_heads(method)) for method in ("eagle3", "parallel"))
    for (method, target), count in heads.items():
        assert head(f"{method}:{target}", target).loaded.parameters == count


def test_dflash() -> None:
    # Five layers like the target's, but without the norm of queries and keys, and a projection of
    # five states (arXiv 2602.06036 and the configuration).
    found, target = head("parallel:qwen3-8b", "qwen3-8b"), hardware.shape("qwen3-8b")
    layers = 5 * (target.layers[0].weights - 2 * 128)
    assert found.loaded.parameters == layers + 5 * 4096**2 + 4096
    assert found.first.head == target.head


def test_p_eagle_has_the_weights_of_eagle3() -> None:
    found = head("parallel:kind=p_eagle,draft_vocab=32000", "llama-3.1-8b").loaded
    assert found.parameters == head("eagle3", "llama-3.1-8b").loaded.parameters


def test_a_parallel_draft_model_is_a_model_of_its_own() -> None:
    found = head("parallel:qwen3-0.6b", "qwen3-32b")
    assert found.loaded == hardware.shape("qwen3-0.6b")


@pytest.mark.parametrize("words", ["draft_model:qwen3-0.6b", "eagle3:qwen3-32b", "mtp", "eagle"])
def test_caches_are_in_the_targets_numbers(words: str) -> None:
    target = hardware.shape("qwen3-32b")
    kept = target.at(hardware.precision_for(target, "fp8", "fp8"))
    assert head(words, kept).first.precision.kv_bytes == 1
    # Heads stay in 16 bits; a module of the target is quantised with it.
    assert head(words, kept).first.precision.weight_bytes == (1 if words == "mtp" else 2)


def test_speculators_keep_the_layers_fields_inside(tmp_path: Path) -> None:
    inner = {"hidden_size": 4096, "num_attention_heads": 32, "num_key_value_heads": 8}
    config = written(
        tmp_path,
        architectures=["Eagle3DraftModel"],
        speculators_model_type="eagle3",
        draft_vocab_size=32_000,
        transformer_layer_config={**inner, "num_hidden_layers": 1, "intermediate_size": 14336},
    )
    found = head(f"eagle3:{config}", "llama-3.1-8b")
    assert found == head("eagle3", "llama-3.1-8b")


def bad(**fields: object) -> Callable[[Path], object]:
    sizes = {"hidden_size": 4096, "num_attention_heads": 32, "draft_vocab_size": 32_000}
    return lambda path: head(f"eagle3:{written(path, **{**sizes, **fields})}", "llama-3.1-8b")


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (bad(hidden_size=8192), "is for a target with states of 8,192 numbers, this one has 4,096"),
        (bad(vocab_size=32_000), "is for a vocabulary of 32,000 tokens, the target has 128,256"),
        (bad(num_local_experts=8), "has num_local_experts: heads with routed experts"),
        (bad(hidden_size="wide"), "config field hidden_size must be a number, got 'wide'"),
        (lambda path: head("eagle3:lama-3.1-8b", "llama-3.1-8b"), "did you mean llama-3.1-8b"),
        (lambda path: head("eagle3:llama-3.2-1b", "llama-3.1-8b"), "neither shipped nor"),
        (lambda path: head("eagle:anything", "llama-3.1-8b"), "eagle head anything is neither"),
        (lambda path: head("eagle3:qwen3-32b", "llama-3.1-8b"), "states of 5,120 numbers"),
        (lambda path: head(f"eagle3:{path}", "llama-3.1-8b"), "no such file"),
        (lambda path: head("parallel:qwen3-8", "qwen3-8b"), "did you mean qwen3-8b"),
        (lambda path: head("eagle3:draft_vocab=200000", "llama-3.1-8b"), "must be <= 128,256"),
    ],
)
def test_refused(tmp_path: Path, call: Callable[[Path], object], message: str) -> None:
    with pytest.raises(SpecsimError, match=message) as refusal:
        call(tmp_path)
    assert "\n" not in str(refusal.value)


@pytest.mark.parametrize("drafts", ["eagle3", "draft_model:llama-3.2-1b"])
@pytest.mark.parametrize(("kv_dtype", "integers"), [("int8", True), ("fp8", False)])
def test_a_drafters_cache_has_the_numbers_of_the_targets(
    drafts: str, kv_dtype: str, integers: bool
) -> None:
    deployed = specsim.deploy("llama-3.1-8b", "H100-SXM", drafts, kv_dtype=kv_dtype)
    shapes = draft_shapes(deployed.drafters[0], deployed.shape, 4)
    assert shapes is not None
    precision = shapes.loaded.precision
    assert (precision.kv_bits, precision.kv_integers) == (8, integers)
