"""Arguments that have no meaning together are refused rather than ignored."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from specsim.checks import InvalidArgumentError


def refuse(given: Mapping[str, Any], reason: str) -> None:
    """Raise InvalidArgumentError with the first argument that is there, and why it must not be."""
    for name, value in given.items():
        if value is not None:
            raise InvalidArgumentError(f"{name} {reason}")
