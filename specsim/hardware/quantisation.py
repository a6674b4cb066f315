"""In what numbers a model is deployed, by a format's name or by its config.json.

Embeddings and head stay in the 16-bit type in every quantised format, as in the checkpoints that
engines load; scales and zero points count as bits of the weights.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from math import prod

from specsim.checks import (
    InvalidArgumentError,
    UnsupportedError,
    did_you_mean,
    integer,
    number,
)
from specsim.hardware.fields import Config, count, entries_of, layer_count, object_of, text_part
from specsim.hardware.shapes import Precision, Shape

_SCALE_BITS = 16.0
# NVFP4: an fp8 scale per 16 weights, and a float32 per tensor, which is lost among them
# (NVIDIA Transformer Engine, "NVFP4"); MXFP4: 8 bits per 32 (OCP Microscaling 1.0, table 1).
_NVFP4_BITS = 4.0 + 8.0 / 16
_MXFP4_BITS = 4.0 + 8.0 / 32
# Four bits with a half-precision scale and a zero point of four bits per 128 weights, the group
# size of most published GPTQ and AWQ checkpoints.
_INT4_BITS = 4.0 + (_SCALE_BITS + 4.0) / 128


@dataclass(frozen=True)
class _Format:
    """Bits of a weight and what it is multiplied in; None: as the 16-bit type."""

    bits: float
    compute: str | None = None
    experts_only: bool = False


_EXPERT_FIELDS = ("num_local_experts", "num_experts", "n_routed_experts")
_PLAIN = ("float32", "bfloat16", "float16")
# One scale per output channel is lost among its weights.
_FORMATS: Mapping[str, _Format] = {
    "fp8": _Format(8.0, "fp8"),
    "int8": _Format(8.0, "int8"),
    "nvfp4": _Format(_NVFP4_BITS, "fp4"),
    "mxfp4": _Format(_MXFP4_BITS, experts_only=True),
    "int4": _Format(_INT4_BITS),
    "awq": _Format(_INT4_BITS),
    "gptq": _Format(_INT4_BITS),
    "fp8-weight-only": _Format(8.0),
    "int8-weight-only": _Format(8.0),
    "nvfp4-weight-only": _Format(_NVFP4_BITS),
}
_KV_BITS: Mapping[str, float] = {
    "float32": 32.0,
    "bfloat16": 16.0,
    "float16": 16.0,
    "fp8": 8.0,
    "int8": 8.0,
    "nvfp4": _NVFP4_BITS,
}
# Other names that engines take for the same.
_ALIASES = {
    "fp32": "float32",
    "bf16": "bfloat16",
    "fp16": "float16",
    "half": "float16",
    "w8a8": "int8",
    "w8a16": "fp8-weight-only",
    "w4a16": "int4",
    "fp8_e4m3": "fp8",
    "fp8_e5m2": "fp8",
}
DTYPES = (*_PLAIN, *_FORMATS)
KV_DTYPES = tuple(_KV_BITS)


def precision_for(shape: Shape, dtype: str | None = None, kv_dtype: str | None = None) -> Precision:
    """What ``shape`` is deployed in, by the names that engines use (``DTYPES``, ``KV_DTYPES``).

    dtype : None: as the checkpoint is published.  float32, bfloat16 and float16 hold everything.
        fp8, int8 and nvfp4 quantise weights and activations of all layers and multiply in that
        type, so the accelerator must have units for it (fp4 for nvfp4).  int4, awq, gptq and the
        names with weight-only quantise the weights of all layers and multiply in the 16-bit type.
        mxfp4 is what gpt-oss is published in: routed experts only, multiplied in the 16-bit type;
        a model without experts is refused
    kv_dtype : of the KV cache; None or auto: the checkpoint's where it names one, else the 16-bit
        type.  Queries and keys are multiplied in the 16-bit type, or in fp8 where the cache is so

    The 16-bit type is the shape's own, bfloat16 where the shape is in float32.
    """
    kept = shape.precision
    if dtype is None:
        precision = kept
    else:
        name = _known("dtype", dtype, DTYPES)
        if name in _PLAIN:
            precision = replace(kept, dtype=name, weight_bits=None, expert_bits=None, compute=None)
        else:
            base = kept.dtype if kept.dtype != "float32" else "bfloat16"
            precision = _quantised(shape, replace(kept, dtype=base), name)
    if kv_dtype is None or kv_dtype.casefold() == "auto":
        return precision
    name = _known("kv_dtype", kv_dtype, KV_DTYPES)
    return replace(precision, kv_bits=_KV_BITS[name], kv_integers=name == "int8")


# Where formats name the modules that they leave in the 16-bit type.
_LEFT_OUT = ("ignore", "modules_to_not_convert", "ignored_layers")


def _quantised(shape: Shape, base: Precision, name: str) -> Precision:
    form = _FORMATS[name]
    if not form.experts_only:
        return replace(base, weight_bits=form.bits, expert_bits=None, compute=form.compute)
    if not any(layer.experts for layer in shape.layers):
        raise UnsupportedError(
            f"dtype {name} is of routed experts, and {shape.label} has none; "
            "nvfp4, int4 and fp8 quantise all layers"
        )
    return replace(base, weight_bits=None, expert_bits=form.bits, compute=form.compute)


def _known(argument: str, name: str, known: Iterable[str]) -> str:
    """The name in the table that is meant, in any case and by any of its aliases."""
    found = _ALIASES.get(name.casefold(), name.casefold())
    if found not in known:
        raise UnsupportedError(
            f"{argument} {name!r} is not known{did_you_mean(name, known)} "
            f"(known: {', '.join(known)})"
        )
    return found


def precision_from_config(config: Config) -> Precision:
    """What the checkpoint is stored in; float32 where the config names no dtype, as torch does."""
    # A model with vision names it outside its text part, and transformers 4 called it torch_dtype.
    named = [
        part[key]
        for part in (text_part(config), config)
        for key in ("dtype", "torch_dtype")
        if part.get(key)
    ]
    dtype = str(named[0])[:40] if named else "float32"
    quantisation = object_of(config, "quantization_config")
    if not quantisation and config.get("quantization_config") is None:
        return Precision(dtype)
    method = str(quantisation.get("quant_method"))[:40]
    if method not in _METHODS:
        known = ", ".join(known_quantisations())
        raise UnsupportedError(
            f"quantization_config.quant_method {method!r} is not known (known: {known})"
        )
    precision = _METHODS[method](dtype, quantisation)
    if _leaves_attention_out(quantisation, text_part(config)):
        precision = replace(precision, weight_bits=None, expert_bits=precision.weight_bits)
    return precision


def known_quantisations() -> list[str]:
    """Values of ``quant_method`` that are understood."""
    return sorted(_METHODS)


def _grouped(dtype: str, config: Config) -> Precision:
    """GPTQ and AWQ: per group of weights a half-precision scale and a zero point of ``bits``."""
    bits = _field(config, "bits")
    group = _group(config) or (128 if config.get("group_size") is None else 0)
    # A group of -1 is a whole column, whose scale is lost among thousands of weights.
    extra = (_SCALE_BITS + bits) / group if group else 0.0
    return Precision(dtype, weight_bits=bits + extra)


def _fp8(dtype: str, config: Config) -> Precision:
    """Weights and activations in fp8; a float32 scale per block (DeepSeek-V3, 2412.19437, 3.3)."""
    block = entries_of(config, "weight_block_size")
    if len(block) not in (0, 2):
        raise InvalidArgumentError(
            f"quantization_config.weight_block_size must be two numbers, got {len(block)} of them"
        )
    sizes = [integer("quantization_config.weight_block_size", each, low=1) for each in block]
    extra = 32.0 / prod(sizes) if sizes else 0.0
    return Precision(dtype, weight_bits=8.0 + extra, compute="fp8")


def _bitsandbytes(dtype: str, config: Config) -> Precision:
    """LLM.int8() (2208.07339) or 4 bits with a scale per 64 weights (QLoRA, 2305.14314, sec. 3).

    The scale is float32, or with double quantisation 8 bits and a float32 per 256 scales.
    """
    if config.get("load_in_8bit"):
        return Precision(dtype, weight_bits=8.0, compute="int8")
    if config.get("bnb_4bit_use_double_quant"):
        return Precision(dtype, weight_bits=4.0 + 8.0 / 64 + 32.0 / (64 * 256))
    return Precision(dtype, weight_bits=4.0 + 32.0 / 64)


def _mxfp4(dtype: str, config: Config) -> Precision:
    """Routed experts in 4 bits with an 8-bit scale per 32."""
    return Precision(dtype, expert_bits=_MXFP4_BITS)


def _grouped_schemes(dtype: str, config: Config) -> Precision:
    """compressed-tensors and ModelOpt: one group of layers with one scheme.

    Activations of 8 or 4 bits multiply in as many; weights of 4 bits in floating point have an
    8-bit scale per group (NVFP4, MXFP4), other weights a half-precision one.  Where ``ignore``
    names attention, only routed experts count as quantised, and a shared one as not.
    """
    named = object_of(config, "config_groups")
    groups = [object_of(named, name) for name in named]
    if not groups and object_of(config, "kv_cache_scheme"):
        return _with_cache(Precision(dtype), config)  # the cache alone
    if len(groups) != 1:
        raise UnsupportedError(
            f"quantization_config.config_groups must hold one scheme, got {len(groups)}; "
            "pass a Precision instead"
        )
    weights, activations = (object_of(groups[0], each) for each in ("weights", "input_activations"))
    bits, size = _field(weights, "num_bits"), _group(weights)
    floats = weights.get("type") == "float"
    scale = 8.0 if floats and bits == 4 else _SCALE_BITS
    kinds = {(8, True): "fp8", (8, False): "int8", (4, True): "fp4"}
    kind = count(activations, "num_bits", default=0), activations.get("type") == "float"
    weight_bits = bits + (scale / size if size else 0.0)
    return _with_cache(Precision(dtype, weight_bits, compute=kinds.get(kind)), config)


def _modelopt(dtype: str, config: Config) -> Precision:
    """ModelOpt, which names the algorithm where it does not list groups."""
    if config.get("config_groups"):
        return _grouped_schemes(dtype, config)
    algorithm = str(config.get("quant_algo"))[:40]
    if algorithm.casefold() not in ("fp8", "nvfp4"):
        raise UnsupportedError(
            f"quantization_config.quant_algo {algorithm!r} is not known (known: FP8, NVFP4); "
            "pass a Precision instead"
        )
    form = _FORMATS[algorithm.casefold()]
    return _with_cache(Precision(dtype, form.bits, compute=form.compute), config)


def _with_cache(precision: Precision, config: Config) -> Precision:
    """The same with the numbers of the KV cache, where the quantisation names them."""
    cache = object_of(config, "kv_cache_scheme")
    if cache:
        bits, integers = _field(cache, "num_bits"), cache.get("type") == "int"
        return replace(precision, kv_bits=bits, kv_integers=integers)
    named = str(config.get("kv_cache_quant_algo") or "").casefold()
    return replace(precision, kv_bits=8.0) if named == "fp8" else precision


def _leaves_attention_out(quantisation: Config, text: Config) -> bool:
    """Whether what is not quantised has the attention of every layer of the decoder, or of none:
    ``ignore`` of compressed-tensors and ModelOpt, ``modules_to_not_convert`` of AWQ and fp8,
    ``ignored_layers`` of fp8.
    """
    patterns = [str(each) for name in _LEFT_OUT for each in entries_of(quantisation, name)]
    elsewhere = ("mtp", "vision", "visual", "multi_modal")
    attention = [
        each
        for each in patterns
        if "self_attn" in each and not any(part in each for part in elsewhere)
    ]
    if not attention or quantisation.get("quant_method") == "mxfp4":  # which is of experts alone
        return False
    named = [re.search(r"layers\.(\d+)\.self_attn", each) for each in attention]
    layers = {int(match[1]) for match in named if match}
    everywhere = not all(named) or layers >= set(range(layer_count(text, "num_hidden_layers")))
    experts = any(text.get(name) for name in _EXPERT_FIELDS)
    if not everywhere or not experts:
        where = "every layer of a model without experts" if everywhere else f"{len(layers)} layers"
        raise UnsupportedError(
            f"quantization_config leaves out the attention of {where}; pass a Precision instead"
        )
    return True


def _group(config: Config) -> int:
    """Weights that share a scale; 0 where the config names none, or a whole column (-1)."""
    size = config.get("group_size")
    if size is None or size == -1:
        return 0
    return integer("quantization_config.group_size", size, low=1)


def _field(config: Config, name: str) -> float:
    if name not in config:
        raise InvalidArgumentError(f"quantization_config has no {name}")
    return number(f"quantization_config.{name}", config[name], low=1.0, high=64.0)


_METHODS: Mapping[str, Callable[[str, Config], Precision]] = {
    "awq": _grouped,
    "bitsandbytes": _bitsandbytes,
    "compressed-tensors": _grouped_schemes,
    "fp8": _fp8,
    "gptq": _grouped,
    "modelopt": _modelopt,
    "mxfp4": _mxfp4,
}
