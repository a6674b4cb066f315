"""Seconds of a step from the words of a command line."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from specsim.checks import InvalidArgumentError, did_you_mean, integer, number
from specsim.serving.costs.coefficients import coefficients_of
from specsim.serving.costs.kernel_tables import kernel_tables
from specsim.serving.step_model import StepModel

_KERNELS = "kernels:"
_MS = 1e-3
_SETTINGS = ("layers", "between_ms", "host_ms")


def step_model_of_words(words: str | Mapping[str, float]) -> StepModel:
    """Coefficients, as ``step_ms=5,token_us=20``, or the tables of a folder, as
    ``kernels:FOLDER,layers=32,between_ms=1.2,host_ms=0.5`` (``kernel_tables``).
    """
    if not isinstance(words, str) or not words.startswith(_KERNELS):
        return coefficients_of(words)
    folder, *settings = words.removeprefix(_KERNELS).split(",")
    given: dict[str, str] = {}
    for part in settings:
        name, _, value = part.partition("=")
        if name.strip() not in _SETTINGS:
            raise InvalidArgumentError(
                f"kernels take {', '.join(_SETTINGS)}, got {part!r}{did_you_mean(name, _SETTINGS)}"
            )
        if name.strip() in given:
            raise InvalidArgumentError(f"kernels have {name.strip()} twice, got {words!r}")
        given[name.strip()] = value.strip()
    if "layers" not in given:
        raise InvalidArgumentError("layers is missing: kernels:FOLDER,layers=N, those of the model")
    seconds = (number(name, given.get(name, 0.0), low=0.0) * _MS for name in _SETTINGS[1:])
    return kernel_tables(Path(folder), integer("layers", given["layers"], low=1), *seconds)
