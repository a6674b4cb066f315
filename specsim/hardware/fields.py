"""Fields of a parsed config.json, checked as they are read."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from specsim.checks import InvalidArgumentError, integer

Config = Mapping[str, Any]


def count(config: Config, *names: str, default: int | None = None, low: int = 1) -> int:
    """The first of ``names`` that the config sets, a whole number; null counts as not set."""
    for name in names:
        if config.get(name) is not None:
            return integer(f"config field {name}", config[name], low=low)
    if default is None:
        model = config.get("model_type", "this model")
        raise InvalidArgumentError(f"the config of {model} has no field {' or '.join(names)}")
    return default


def text_part(config: Config) -> Config:
    """The language model's fields, which a model with vision keeps in ``text_config``."""
    part: Config = config.get("text_config", config)
    return part
