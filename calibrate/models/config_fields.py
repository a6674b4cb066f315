"""What of a config.json reaches transformers: a configuration is data, and must not choose code.

Some fields name code: ``auto_map`` a module that comes with the model, ``attn_implementation`` and
its like a kernel, which transformers fetches from the Hub and runs.  Neither is taken unless the
user said that he trusts the model.
"""

from __future__ import annotations

import inspect
import json
from collections.abc import Iterator, Mapping
from dataclasses import fields
from pathlib import Path
from typing import Any

from transformers import CONFIG_MAPPING, PretrainedConfig

from specsim.checks import InvalidArgumentError, SpecsimError, UnsupportedError, reason_of
from specsim.files import read_regular

# What transformers has itself, for any model; all else that can be named there is fetched.
_OWN_IMPLEMENTATIONS = (None, "eager", "sdpa", "flex_attention")
# Fields of older files, which the class of a model turns into those that it has now.
_OLDER = {
    *("rope_theta", "rope_scaling", "partial_rotary_factor", "rope_local_base_freq"),
    *("sliding_window_pattern", "full_attention_interval", "tie_word_embeddings"),
}
# Of the fields that every model has, the one that says what is built.
_COMMON = {"is_encoder_decoder"}
# Sizes that a model cannot be built without; one that is set must not be lost.
_SIZES = ("hidden_size", "num_hidden_layers", "num_attention_heads", "vocab_size")
# Bytes of a config.json.
_LARGEST = 2**22


def known_fields(config: Mapping[str, Any]) -> dict[str, Any]:
    """The fields that the model's own class in transformers has, and no others.

    Raises UnsupportedError for a ``model_type`` that transformers does not have.
    """
    model_type = config.get("model_type")
    if not isinstance(model_type, str) or model_type not in CONFIG_MAPPING:
        raise UnsupportedError(f"model_type {str(model_type)[:40]!r} is not in transformers")
    return {"model_type": model_type, **_of_class(CONFIG_MAPPING[model_type], config)}


def _of_class(kind: Any, config: Mapping[str, Any]) -> dict[str, Any]:
    every = {each.name for each in fields(PretrainedConfig)}
    names = {each.name for each in fields(kind)} | {*inspect.signature(kind).parameters}
    names |= {name for pair in kind.attribute_map.items() for name in pair}
    names = names - every | _COMMON | _OLDER
    names = {name for name in names if not name.endswith("_implementation")}
    found = {name: value for name, value in config.items() if name in names}
    lost = [name for name in _SIZES if name in config and name not in found]
    if lost:
        raise UnsupportedError(f"{kind.__name__} of transformers has no field {lost[0]}")
    for name, inner in kind.sub_configs.items():
        value = found.get(name)
        if value is None:
            continue
        if not isinstance(value, Mapping):
            raise InvalidArgumentError(
                f"config field {name} must be an object, got {str(value)[:40]!r}"
            )
        if isinstance(inner, type) and issubclass(inner, PretrainedConfig):
            found[name] = _of_class(inner, value)
        else:  # a part of any kind, which names its own
            found[name] = known_fields(value)
    return found


def check_no_code(folder: Path, what: str, error: type[SpecsimError]) -> None:
    """Refuse a checkpoint whose config.json names code that transformers would fetch and run.

    what : that the folder is of, and the ``error`` to raise, for the message
    """
    path = folder / "config.json"
    content = read_regular(path, "", error, _LARGEST)
    try:
        config = json.loads(content)
    except (ValueError, RecursionError) as problem:
        raise error(f"{path}: is not JSON ({reason_of(problem)})") from None
    for name, value in _named(config):
        if name.endswith("_implementation") and not _is_own(value):
            raise error(
                f"{what}: its config.json has {name} {str(value)[:60]!r}, which is code that would "
                "be fetched and run; remove the field, or trust the model (--trust-remote-code)"
            )


def _is_own(value: Any) -> bool:
    """Whether an implementation, or one of each part of a model, is transformers' own."""
    if isinstance(value, dict):
        return all(map(_is_own, value.values()))
    return value is None or (isinstance(value, str) and value in _OWN_IMPLEMENTATIONS)


def _named(config: Any) -> Iterator[tuple[str, Any]]:
    """Every field of every object, however deep, without recursion."""
    waiting = [config]
    while waiting:
        value = waiting.pop()
        if isinstance(value, dict):
            yield from value.items()
            waiting.extend(value.values())
        elif isinstance(value, list):
            waiting.extend(value)
