"""Shapes from Hugging Face's config.json, without torch or transformers."""

from __future__ import annotations

import json
from dataclasses import replace
from importlib import resources
from importlib.resources.abc import Traversable
from pathlib import Path
from typing import Any

from specsim.checks import SpecsimError, UnsupportedError, did_you_mean
from specsim.hardware.families import FAMILIES
from specsim.hardware.fields import Config, text_part
from specsim.hardware.shapes import Shape


class ConfigError(SpecsimError):
    """A config.json cannot be read; the message says which file and why."""


def shape(name: str) -> Shape:
    """A shape that is shipped with specsim, by name (``known_shapes``) in any case."""
    shipped = _shipped_name(name)
    if shipped is None:
        known = known_shapes()
        raise UnsupportedError(
            f"shape {name!r} is not known{did_you_mean(name, known)} (known: {', '.join(known)})"
        )
    return shape_from_config(_read(_shipped() / f"{shipped}.json"))


def read_config(name: str) -> dict[str, Any]:
    """The config.json that a name means: a shipped shape, a file, or a checkpoint's folder."""
    shipped = _shipped_name(name)
    if shipped is not None:
        return _read(_shipped() / f"{shipped}.json")
    path = Path(name)
    if not path.exists():
        known = known_shapes()
        raise ConfigError(
            f"{name} is neither a known shape ({', '.join(known)}) nor a config.json"
            f"{did_you_mean(name, known)}"
        )
    return _read(path / "config.json" if path.is_dir() else path)


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
    model_type = str(config.get("model_type"))
    if model_type not in FAMILIES:
        raise UnsupportedError(
            f"model_type {model_type!r} is not known (known: {', '.join(known_model_types())})"
        )
    text = text_part(config)
    return replace(
        FAMILIES[model_type](config),
        vocabulary=text.get("vocab_size"),
        longest_context=text.get("max_position_embeddings"),
    )


def known_model_types() -> list[str]:
    """Values of ``model_type`` that are understood."""
    return sorted(FAMILIES)


def _shipped() -> Traversable:
    return resources.files("specsim") / "configs"


def _read(file: Traversable) -> dict[str, Any]:
    try:
        config = json.loads(file.read_text(encoding="utf-8"))
    except OSError as error:
        raise ConfigError(f"{file}: cannot be read ({error.strerror})") from None
    except ValueError as error:
        raise ConfigError(f"{file}: is not JSON ({error})") from None
    if not isinstance(config, dict):
        raise ConfigError(f"{file}: must hold a JSON object")
    return config
