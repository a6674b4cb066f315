"""Fields of a parsed config.json, checked as they are read."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from specsim.checks import InvalidArgumentError, integer

Config = Mapping[str, Any]

# Every layer is counted on its own, and no model has a tenth of these.
_MOST_LAYERS = 4096


def count(
    config: Config,
    *names: str,
    default: int | None = None,
    low: int = 1,
    high: float = float("inf"),
) -> int:
    """The first of ``names`` that the config sets, a whole number; null counts as not set."""
    for name in names:
        if config.get(name) is not None:
            return integer(f"config field {name}", config[name], low=low, high=high)
    if default is None:
        model = config.get("model_type", "this model")
        raise InvalidArgumentError(f"the config of {model} has no field {' or '.join(names)}")
    return default


def layer_count(config: Config, *names: str, default: int | None = None, low: int = 1) -> int:
    """The same of a number of layers."""
    return count(config, *names, default=default, low=low, high=_MOST_LAYERS)


def optional_count(config: Config, name: str) -> int | None:
    """A whole number >= 1, or None where the config does not set it."""
    return None if config.get(name) is None else count(config, name)


def entries_of(config: Config, name: str, size: int | None = None) -> Sequence[Any]:
    """A list; empty where the config does not set it.

    size : entries that it has where it is not empty
    """
    value = config.get(name)
    if value is None:
        return ()
    if not isinstance(value, (list, tuple)):
        raise InvalidArgumentError(f"config field {name} must be a list, got {str(value)[:40]!r}")
    if value and size is not None and len(value) != size:
        raise InvalidArgumentError(
            f"config field {name} must have one entry for each of {size} layers, got {len(value)}"
        )
    return value


def object_of(config: Config, name: str) -> Config:
    """An object; empty where the config does not set it."""
    value = config.get(name)
    if value is None:
        return {}
    if not isinstance(value, Mapping):
        raise InvalidArgumentError(
            f"config field {name} must be an object, got {str(value)[:40]!r}"
        )
    return value


def text_part(config: Config) -> Config:
    """The language model's fields, which a model with vision keeps in ``text_config``."""
    return object_of(config, "text_config") or config


def head_width(config: Config, hidden: int, heads: int, default: int | None = None) -> int:
    """``head_dim``, which by default is what each head has of the hidden size."""
    if config.get("head_dim") is None and default is None and hidden % heads:
        raise InvalidArgumentError(
            f"config field hidden_size must be a multiple of num_attention_heads = {heads} where "
            f"there is no head_dim, got {hidden}"
        )
    return count(config, "head_dim", default=default or hidden // heads)


def kv_head_count(config: Config, heads: int) -> int:
    """``num_key_value_heads``, each of which serves as many of ``heads``."""
    found = count(config, "num_key_value_heads", default=heads)
    if heads % found:
        raise InvalidArgumentError(
            f"config field num_key_value_heads must divide num_attention_heads = {heads}, got "
            f"{found}"
        )
    return found
