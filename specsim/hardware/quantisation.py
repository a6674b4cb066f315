"""Number types of a config.json: ``dtype`` and ``quantization_config`` as a ``Precision``."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from specsim.checks import InvalidArgumentError, UnsupportedError, number
from specsim.hardware.fields import Config, text_part
from specsim.hardware.shapes import Precision

_SCALE_BITS = 16.0


def precision_from_config(config: Config) -> Precision:
    """What the checkpoint is stored in; float32 where the config names no dtype, as torch does."""
    # A model with vision names it outside its text part, and transformers 4 called it torch_dtype.
    named = [
        part[key]
        for part in (text_part(config), config)
        for key in ("dtype", "torch_dtype")
        if part.get(key)
    ]
    dtype = named[0] if named else "float32"
    quantisation = config.get("quantization_config")
    if quantisation is None:
        return Precision(dtype)
    method = quantisation.get("quant_method")
    if method not in _METHODS:
        known = ", ".join(known_quantisations())
        raise UnsupportedError(
            f"quantization_config.quant_method {method!r} is not known (known: {known})"
        )
    return _METHODS[method](dtype, quantisation)


def known_quantisations() -> list[str]:
    """Values of ``quant_method`` that are understood."""
    return sorted(_METHODS)


def _grouped(dtype: str, config: Config) -> Precision:
    """GPTQ and AWQ: per group of weights a half-precision scale and a zero point of ``bits``."""
    bits, group = _field(config, "bits"), config.get("group_size", 128)
    # A group of -1 is a whole column, whose scale is lost among thousands of weights.
    extra = (_SCALE_BITS + bits) / group if group > 0 else 0.0
    return Precision(dtype, weight_bits=bits + extra)


def _fp8(dtype: str, config: Config) -> Precision:
    """Weights and activations in fp8; a float32 scale per block (DeepSeek-V3, 2412.19437, 3.3)."""
    rows, columns = config.get("weight_block_size") or (0, 0)
    extra = 32.0 / (rows * columns) if rows else 0.0
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
    """Routed experts in 4 bits with an 8-bit scale per 32 (OCP Microscaling 1.0, table 1)."""
    return Precision(dtype, weight_bits=None, expert_bits=4.0 + 8.0 / 32)


def _compressed_tensors(dtype: str, config: Config) -> Precision:
    """One group of layers with one scheme; activations of 8 bits multiply in 8 bits."""
    groups = list(config.get("config_groups", {}).values())
    if len(groups) != 1:
        raise UnsupportedError(
            f"quantization_config.config_groups must hold one scheme, got {len(groups)}; "
            "pass a Precision instead"
        )
    weights, activations = groups[0]["weights"], groups[0].get("input_activations")
    bits, size = _field(weights, "num_bits"), weights.get("group_size")
    compute = None
    if activations is not None and activations.get("num_bits") == 8:
        compute = "fp8" if activations.get("type") == "float" else "int8"
    return Precision(dtype, bits + (_SCALE_BITS / size if size else 0.0), compute=compute)


def _field(config: Config, name: str) -> float:
    if name not in config:
        raise InvalidArgumentError(f"quantization_config has no {name}")
    return number(f"quantization_config.{name}", config[name], low=1.0, high=64.0)


_METHODS: Mapping[str, Callable[[str, Config], Precision]] = {
    "awq": _grouped,
    "bitsandbytes": _bitsandbytes,
    "compressed-tensors": _compressed_tensors,
    "fp8": _fp8,
    "gptq": _grouped,
    "mxfp4": _mxfp4,
}
