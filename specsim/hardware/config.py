"""Shapes from Hugging Face's config.json, without torch or transformers."""

from __future__ import annotations

import csv
import json
import os
from dataclasses import replace
from importlib import resources
from importlib.resources.abc import Traversable
from pathlib import Path
from typing import Any

from specsim.checks import SpecsimError, UnsupportedError, did_you_mean
from specsim.files import read_regular
from specsim.hardware import hub
from specsim.hardware.families import FAMILIES
from specsim.hardware.fields import Config, layer_count, optional_count, text_part
from specsim.hardware.shapes import Shape

# Bytes of a config.json; the largest that are known have some ten thousand.
_LARGEST = 2**22


class ConfigError(SpecsimError):
    """A config.json cannot be read; the message says which file and why."""


def shape(name: str) -> Shape:
    """A shape that is shipped with specsim, by name (``known_shapes``) or alias, in any case.

    Aliases are the checkpoints of ``configs/aliases.csv``, with or without their organisation:
    the same layers in the same numbers.
    """
    config = _shipped_config(name)
    if config is None:
        known = known_shapes()
        raise UnsupportedError(
            f"shape {name!r} is not known{_near(name)} (known: {', '.join(known)})"
        )
    return shape_from_config(config)


def read_config(name: str) -> dict[str, Any]:
    """The config.json that a name means.

    name : a shipped shape, a file, a checkpoint's folder, a model in the local cache of the
        Hugging Face Hub, or an alias of a shipped shape, in this order
    """
    if _shipped_name(name) is None:
        if os.path.exists(name):
            path = Path(name)
            return _read(path / "config.json" if os.path.isdir(path) else path)
        cached = hub.cached_config(name)
        if cached is not None:
            return _read(cached)
    config = _shipped_config(name)
    if config is None:
        near = _near(name)
        known = "a known shape" + ("" if near else f" ({', '.join(known_shapes())})")
        if hub.is_repository(name):
            raise ConfigError(
                f"{name} is neither {known} nor a file, and the local Hub cache "
                f"{hub.cache_folder()} has no config.json of it{near}"
            )
        raise ConfigError(f"{name} is neither {known} nor a config.json{near}")
    return config


def _shipped_config(name: str) -> dict[str, Any] | None:
    """The config of a shipped shape by name or alias; an alias may read a longer context."""
    shipped = _shipped_name(name)
    if shipped is not None:
        return _read(_shipped() / f"{shipped}.json")
    for row in csv.DictReader((_shipped() / "aliases.csv").read_text("utf-8").splitlines()):
        alias = row["checkpoint"].casefold()
        if name.casefold() in (alias, alias.rpartition("/")[2]):
            config = _read(_shipped() / f"{row['shape']}.json")
            if row["longest_context"]:
                config["max_position_embeddings"] = int(row["longest_context"])
            return config
    return None


def _near(name: str) -> str:
    """Shipped shapes that are spelled like a model's name without its organisation."""
    return did_you_mean(name.rpartition("/")[2] or name, known_shapes())


def _shipped_name(name: str) -> str | None:
    """The shipped shape of that name, upper and lower case alike."""
    return next((each for each in known_shapes() if each.casefold() == name.casefold()), None)


def known_shapes() -> list[str]:
    """Names of the shipped shapes."""
    names = (file.name for file in _shipped().iterdir())
    return sorted(name.removesuffix(".json") for name in names if name.endswith(".json"))


def shape_from_config(config: Config) -> Shape:
    """The shape of the model that a parsed config.json describes.

    Of a model with vision (``text_config``) only the language model is counted.
    """
    if config.get("model_type") is None:
        raise UnsupportedError("model_type is missing: a config.json names one, such as llama")
    model_type = str(config["model_type"])
    if model_type not in FAMILIES:
        raise UnsupportedError(
            f"model_type {model_type[:40]!r} is not known (known: {', '.join(known_model_types())})"
        )
    text = text_part(config)
    return replace(
        FAMILIES[model_type](config),
        vocabulary=optional_count(text, "vocab_size"),
        longest_context=optional_count(
            text, "max_position_embeddings" if "max_position_embeddings" in text else "n_positions"
        ),
        mtp_modules=layer_count(text, "num_nextn_predict_layers", default=0, low=0),
    )


def known_model_types() -> list[str]:
    """Values of ``model_type`` that are understood."""
    return sorted(FAMILIES)


def _shipped() -> Traversable:
    return resources.files("specsim") / "configs"


def _read(file: Traversable) -> dict[str, Any]:
    # What is shipped need not lie in a folder.
    if isinstance(file, Path):
        content = read_regular(file, "", ConfigError, _LARGEST)
    else:
        content = file.read_bytes()
    try:
        config = json.loads(content.decode("utf-8"))
    except (ValueError, RecursionError) as error:
        raise ConfigError(f"{file}: is not JSON ({error})") from None
    if not isinstance(config, dict):
        raise ConfigError(f"{file}: must hold a JSON object")
    return config
