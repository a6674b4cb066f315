"""Configurations of published heads: shipped ones, files, and models in the local Hub cache."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from importlib import resources
from importlib.resources.abc import Traversable
from typing import Any

from specsim.checks import InvalidArgumentError, did_you_mean
from specsim.hardware.config import ConfigError, known_shapes, read_config
from specsim.hardware.fields import entries_of

# Fields that only configurations of heads have, and words in the names of their architectures.
_HEAD_FIELDS = {
    "draft_vocab_size",
    "target_hidden_size",
    "dflash_config",
    "eagle_config",
    "speculators_model_type",
}
_HEAD_WORDS = ("eagle", "dflash", "medusa", "speculator")
# Where formats keep the fields of the layers: speculators, and vLLM's of EAGLE.
_INNER_FIELDS = ("transformer_layer_config", "model")


def is_head(config: Mapping[str, Any]) -> bool:
    """Whether a config.json is of a head over another model's states, not of a language model."""
    words = " ".join(map(str, entries_of(config, "architectures"))).casefold()
    return bool(_HEAD_FIELDS & config.keys()) or any(word in words for word in _HEAD_WORDS)


def known_heads(method: str) -> list[str]:
    """Targets of the shipped heads of a method."""
    prefix = f"{method}-"
    names = (file.name for file in _shipped().iterdir())
    return sorted(
        name.removeprefix(prefix).removesuffix(".json") for name in names if name.startswith(prefix)
    )


def head_config(method: str, name: str) -> Mapping[str, Any]:
    """The config.json of a head or, for ``parallel``, of a draft model.

    name : the target that a shipped head is for (``known_heads``), a file, a folder, or a name on
        the Hugging Face Hub that is in the local cache
    """
    heads = known_heads(method)
    wanted = name.casefold().removeprefix(f"{method}-")
    for each in heads:
        if each.casefold() == wanted:
            text = (_shipped() / f"{method}-{each}.json").read_text("utf-8")
            shipped: Mapping[str, Any] = json.loads(text)
            return shipped
    if method != "parallel" and name.casefold() in map(str.casefold, known_shapes()):
        raise _no_head(method, name, heads)
    try:
        config = read_config(name)
    except ConfigError as error:
        if not os.path.exists(name) and (method != "parallel" or did_you_mean(name, heads)):
            raise _no_head(method, name, heads) from None
        raise InvalidArgumentError(f"{method} {error}") from None
    for field in _INNER_FIELDS:
        if isinstance(config.get(field), dict):
            config = {**config[field], **config}
    return config


def _no_head(method: str, name: str, heads: list[str]) -> InvalidArgumentError:
    near = did_you_mean(name.rpartition("/")[2], heads)
    known = f" (shipped for {', '.join(heads)})" if heads and not near else ""
    return InvalidArgumentError(
        f"{method} head {name} is neither shipped nor a config.json{near}{known}; without a name "
        "it is layers like the target's"
    )


def _shipped() -> Traversable:
    return resources.files("specsim") / "configs" / "heads"
